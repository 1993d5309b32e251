/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seven system calls of a persistent store fail, with errors a drive, a filesystem or a quota may
 * give: while a directory with sealed and unfinished segments is opened, while pieces are put and
 * read, while it is closed; once, and from then on for good. With EIO and ENOSPC the first 12 calls
 * and every fourth after them, until the workload comes to no more; with other errors the first 3.
 * Not here: flock, fstat, reading the directory, and reads by the engine (test_tier_store_faults).
 *
 * The rules: a read gives the right bytes or a miss; opening works or says why in one line; a put
 * returns; a store that was switched off comes back by itself when the fault is over; and whatever
 * happened, the next mount opens the directory and serves right bytes only.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <time.h>

#include "src/tier/store_priv.h"
#include "store_kit.h"

enum call {
	CALL_OPENAT,
	CALL_PREAD,
	CALL_PWRITEV,
	CALL_FALLOCATE,
	CALL_FTRUNCATE,
	CALL_FSTATVFS,
	CALL_UNLINKAT,
	N_CALLS
};
static const char *const call_names[] = { "openat",    "pread",    "pwritev", "fallocate",
					  "ftruncate", "fstatvfs", "unlinkat" };
enum { N_OLD = 14, N_NEW = 12, TOGETHER = 3 };

/* The background thread makes calls as well. */
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct {
	enum call call;
	unsigned countdown, fired;
	int error;       /* 0: none */
	bool is_forever; /* from then on */
	bool is_torn;    /* a write or read that fails has done a part before */
} fault;

static bool fails(enum call call)
{
	bool is_hit = false;

	pthread_mutex_lock(&mu);
	if (fault.error && fault.call == call) {
		if (fault.countdown > 0)
			fault.countdown--;
		else if (fault.is_forever || fault.fired == 0)
			is_hit = true;
	}
	fault.fired += is_hit;
	if (is_hit)
		errno = fault.error;
	pthread_mutex_unlock(&mu);
	return is_hit;
}

static int fault_openat(int dirfd, const char *name, int flags, mode_t mode)
{
	return fails(CALL_OPENAT) ? -1 : openat(dirfd, name, flags, mode);
}

static ssize_t fault_pread(int fd, void *bytes, size_t n, off_t offset)
{
	if (!fails(CALL_PREAD))
		return pread(fd, bytes, n, offset);
	return fault.is_torn && n > 4096 ? pread(fd, bytes, 4096, offset) : -1;
}

static ssize_t fault_pwritev(int fd, const struct iovec *iov, int n, off_t offset)
{
	if (!fails(CALL_PWRITEV))
		return pwritev(fd, iov, n, offset);
	/* The first part of it arrives; what is left, or the whole, fails. */
	if (fault.is_torn && iov[0].iov_len > 4096)
		return pwrite(fd, iov[0].iov_base, 4096, offset);
	return -1;
}

static int fault_fallocate(int fd, int mode, off_t offset, off_t length)
{
	return fails(CALL_FALLOCATE) ? -1 : fallocate(fd, mode, offset, length);
}

static int fault_ftruncate(int fd, off_t length)
{
	return fails(CALL_FTRUNCATE) ? -1 : ftruncate(fd, length);
}

static int fault_fstatvfs(int fd, struct statvfs *st)
{
	return fails(CALL_FSTATVFS) ? -1 : fstatvfs(fd, st);
}

static int fault_unlinkat(int dirfd, const char *name, int flags)
{
	return fails(CALL_UNLINKAT) ? -1 : unlinkat(dirfd, name, flags);
}

static const struct store_sys fault_sys = {
	.openat = fault_openat,
	.pread = fault_pread,
	.pwritev = fault_pwritev,
	.fallocate = fault_fallocate,
	.ftruncate = fault_ftruncate,
	.fstatvfs = fault_fstatvfs,
	.unlinkat = fault_unlinkat,
};

static void set_fault(enum call call, unsigned countdown, int error, bool is_forever, bool is_torn)
{
	pthread_mutex_lock(&mu);
	fault.call = call;
	fault.countdown = countdown;
	fault.error = error;
	fault.is_forever = is_forever;
	fault.is_torn = is_torn;
	fault.fired = 0;
	pthread_mutex_unlock(&mu);
}

static unsigned end_fault(void)
{
	unsigned fired;

	pthread_mutex_lock(&mu);
	fired = fault.fired;
	fault.error = 0;
	pthread_mutex_unlock(&mu);
	return fired;
}

/* A sealed segment, one of a killed daemon, and one of which only a bad header is left. */
static void make_directory(const char *dir)
{
	struct kit_record records[N_OLD];
	struct kit_image image;

	kit_clear(dir);
	for (uint32_t i = 0; i < N_OLD; i++)
		records[i] = (struct kit_record){ .file = { 0, i } };
	kit_image_make(&image, 0x1111, records, N_OLD / 2, true);
	kit_image_write(&image, dir);
	free(image.bytes);
	kit_image_make(&image, 0x2222, records + N_OLD / 2, N_OLD / 2, false);
	kit_image_write(&image, dir);
	image.bytes[3] ^= 1;
	image.number = 0x3333;
	image.size = 8192;
	kit_image_write(&image, dir);
	free(image.bytes);
}

static struct store_params params_of(const char *dir, struct metrics *metrics)
{
	struct store_params params = kit_params(dir);

	params.segment_bytes = 64u << 10;
	params.retry_ns = 1000000;
	params.metrics = metrics;
	return params;
}

/* Until a put works again; a hang is a failure. */
static void wait_until_back(struct store *store)
{
	struct timespec pause = { .tv_nsec = 1000000 };
	struct kit_file file = { 5, 0 };
	int rc = -EAGAIN;

	for (int i = 0; i < 120000; i++) {
		rc = kit_put_file(store, file);
		if (rc == 0 || rc == -EEXIST)
			break;
		nanosleep(&pause, NULL);
	}
	if (rc != -EEXIST)
		CHECK_INT(rc, 0);
	CHECK_INT(kit_get(store, file, 0), 0);
}

/* Everything must go on; whatever is served is compared. */
static void use(struct store *store)
{
	(void)kit_served(store, 0, N_OLD);
	for (uint32_t i = 0; i < N_NEW; i += TOGETHER) {
		int rc[TOGETHER];

		/* One by one, then some together. */
		for (uint32_t k = 0; k < TOGETHER; k++)
			rc[k] = i < N_NEW / 2 ? kit_put_file(store, (struct kit_file){ 1, i + k })
					      : 0;
		if (i >= N_NEW / 2)
			kit_put_files(store, (struct kit_file){ 1, i }, 1, TOGETHER, rc);
		for (uint32_t k = 0; k < TOGETHER; k++)
			if (rc[k] == 0)
				CHECK_INT(kit_get(store, (struct kit_file){ 1, i + k }, 0), 0);
			else
				CHECK(rc[k] < 0);
	}
	(void)kit_served(store, 1, N_NEW);
	store_forget(store, &(struct file_identity){ .ino = 1 }, 0, 1);
}

/* Whether it came to the fault. */
static bool run(const char *dir, enum call call, unsigned n, int error, int how)
{
	struct metrics *metrics = metrics_new();
	struct store_params params = params_of(dir, metrics);
	struct store *store = NULL;
	struct err err = { 0 };
	unsigned fired;
	int rc;

	make_directory(dir);
	set_fault(call, n, error, how & 1, how & 2);
	rc = store_open_with(&params, &fault_sys, &store, &err);
	if (rc < 0) {
		CHECK(err.msg[0] && !strchr(err.msg, '\n'));
	} else {
		use(store);
		if (how & 1) { /* else the store's end may be what fails */
			fired = end_fault();
			wait_until_back(store);
		}
		store_close(store);
	}
	fired = end_fault() + (how & 1 && rc == 0 ? fired : 0);
	/* Nobody's mount fails for what a drive does. */
	if (rc < 0)
		CHECK(fired > 0 && !store_is_drive_error(-error));
	params.metrics = NULL;
	store = kit_open(&params);
	(void)kit_served(store, 0, N_OLD);
	(void)kit_served(store, 1, N_NEW);
	wait_until_back(store);
	store_close(store);
	metrics_free(metrics);
	return fired > 0;
}

static void run_call(enum call call)
{
	static const int errors[] = { EIO, ENOSPC, EROFS, EDQUOT, ENODEV, EINTR };
	const char *dir = kit_dir("calls");

	for (size_t e = 0; e < ARRAY_LEN(errors); e++)
		for (int how = 0; how < 4; how++) {
			/* What to do does not depend on the error much: all calls with two of them,
			 * the first calls with the others. */
			unsigned n = 0, step = 1, end = e < 2 ? 400 : 3;

			if (errors[e] == EINTR && (how & 1))
				continue; /* no kernel does that for ever */
			if ((how & 2) && call != CALL_PREAD && call != CALL_PWRITEV)
				continue;
			for (; n < end && run(dir, call, n, errors[e], how); n += step)
				if (n >= 12) /* all of the first ones, some of the many */
					step = 4;
			printf("# %s, errno %d, %s: to call %u\n", call_names[call], errors[e],
			       how & 1 ? "for good" : "once", n);
			CHECK(n < 400);
			CHECK(n > 0 || call == CALL_UNLINKAT);
		}
}

static void failing_openat(void)
{
	run_call(CALL_OPENAT);
}

static void failing_pread(void)
{
	run_call(CALL_PREAD);
}

static void failing_pwritev(void)
{
	run_call(CALL_PWRITEV);
}

static void failing_fallocate(void)
{
	run_call(CALL_FALLOCATE);
}

static void failing_ftruncate(void)
{
	run_call(CALL_FTRUNCATE);
}

static void failing_fstatvfs(void)
{
	run_call(CALL_FSTATVFS);
}

static void failing_unlinkat(void)
{
	run_call(CALL_UNLINKAT);
}

/* Put after put on a drive that has failed: counted once, not a line each, and back by itself. */
static void switching_off_is_counted_once(void)
{
	const char *dir = kit_dir("calls");
	struct metrics *metrics = metrics_new();
	struct store_params params = params_of(dir, metrics);
	struct store_status status;
	struct store *store;

	kit_clear(dir);
	params.retry_ns = 3600ull * 1000000000;
	CHECK_INT(store_open_with(&params, &fault_sys, &store, NULL), 0);
	CHECK_INT(kit_put_file(store, (struct kit_file){ 1, 0 }), 0);
	set_fault(CALL_PWRITEV, 0, EIO, true, false);
	CHECK_INT(kit_put_file(store, (struct kit_file){ 1, 1 }), -EIO);
	for (uint32_t i = 2; i < 10; i++)
		CHECK_INT(kit_put_file(store, (struct kit_file){ 1, i }), -EAGAIN);
	CHECK_U64(metrics_get(metrics, METRIC_STORE_ERRORS), 1);
	store_get_status(store, &status);
	CHECK(status.why[0] && !status.is_full);
	CHECK(!store_is_full(store));
	CHECK_INT(kit_get(store, (struct kit_file){ 1, 0 }, 0), 0);
	(void)end_fault();
	store_close(store);
	metrics_free(metrics);
}

static const struct check_test tests[] = {
	{ "failing_openat", failing_openat },
	{ "failing_pread", failing_pread },
	{ "failing_pwritev", failing_pwritev },
	{ "failing_fallocate", failing_fallocate },
	{ "failing_ftruncate", failing_ftruncate },
	{ "failing_fstatvfs", failing_fstatvfs },
	{ "failing_unlinkat", failing_unlinkat },
	{ "switching_off_is_counted_once", switching_off_is_counted_once },
};

CHECK_MAIN(tests)
