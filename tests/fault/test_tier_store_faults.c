/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store whose device fails: every system call that takes space, at every moment, with every error
 * that is to be expected; a real limit on file sizes; reads that fail. The rules: what is kept goes
 * on being served, writing ends for the time being, and no put hangs or lies.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include "clairfs/base/clock.h"
#include "src/tier/store_priv.h"
#include "tier_reads.h"

#define MIB (1ull << 20)
#define SIZE 30000u

/* The calls of a store under test. It has one writer, so plain variables will do. */
static struct {
	unsigned countdown; /* calls let through before the one that fails */
	int error;          /* 0: none */
	uint32_t short_by;  /* pwrite writes so much less, once */
	uint64_t free_bytes;
	unsigned n_pwrites, n_fallocates;
} fault;

static bool fails_now(void)
{
	return fault.error && fault.countdown-- == 0;
}

static ssize_t fault_pwritev(int fd, const struct iovec *iov, int n_iov, off_t offset)
{
	struct iovec part[2];
	size_t n = 0;

	fault.n_pwrites++;
	if (fails_now()) {
		errno = fault.error;
		return -1;
	}
	for (int i = 0; i < n_iov; i++)
		n += iov[i].iov_len;
	if (!fault.short_by || fault.short_by >= n)
		return pwritev(fd, iov, n_iov, offset);
	n -= fault.short_by;
	fault.short_by = 0;
	memcpy(part, iov, sizeof(part));
	part[0].iov_len = MIN(part[0].iov_len, n);
	part[1].iov_len = n - part[0].iov_len;
	return pwritev(fd, part, 2, offset);
}

static int fault_fallocate(int fd, int mode, off_t offset, off_t length)
{
	fault.n_fallocates++;
	if (fails_now()) {
		errno = fault.error;
		return -1;
	}
	return 0; /* takes no space: tests are many */
}

static int fault_fstatvfs(int fd, struct statvfs *st)
{
	memset(st, 0, sizeof(*st));
	st->f_frsize = 4096;
	st->f_bavail = fault.free_bytes / 4096;
	return 0;
}

static int failing_fstatvfs(int fd, struct statvfs *st)
{
	errno = EIO;
	return -1;
}

static const struct store_sys *fault_sys(void)
{
	static struct store_sys sys;

	sys = store_sys_real;
	sys.pwritev = fault_pwritev;
	sys.fallocate = fault_fallocate;
	sys.fstatvfs = fault_fstatvfs;
	return &sys;
}

static struct store *open_store(const struct store_sys *sys, uint64_t limit, uint64_t keep_free)
{
	struct store_params params = { .dir = check_tmpdir(),
				       .limit_bytes = limit,
				       .keep_free_bytes = keep_free,
				       .engine = IO_ENGINE_POOL,
				       .max_inflight = 2,
				       .retry_ns = 3600 * NS_PER_S,
				       .metrics = metrics_new() };
	struct store *store;

	memset(&fault, 0, sizeof(fault));
	fault.free_bytes = 1ull << 40;
	CHECK_INT(store_open_with(&params, sys, &store, NULL), 0);
	return store;
}

static void close_store(struct store *store)
{
	struct metrics *metrics = store->metrics;

	store_close(store);
	metrics_free(metrics);
}

static struct file_identity identity(uint32_t entry)
{
	return (struct file_identity){ .ino = entry + 1, .size = SIZE };
}

static int put(struct store *store, uint32_t entry)
{
	AUTO_FREE uint8_t *bytes = version_bytes(entry, 0, SIZE);
	struct file_identity id = identity(entry);

	return store_put(store, (struct piece_key){ { entry }, 0 }, &id, bytes, SIZE);
}

static int get(struct store *store, uint32_t entry)
{
	struct file_identity id = identity(entry);
	struct waited_read *w = waited_read_new((struct entry_id){ entry }, 0, NULL, &id);
	int status = waited_read_run(store_tier(store), w);

	if (status == 0) {
		AUTO_FREE uint8_t *want = version_bytes(entry, 0, SIZE);

		CHECK_BYTES(w->read.ask.buf, want, SIZE);
	}
	waited_read_free(w);
	return status;
}

/* Puts n, n + 1, ... until one fails; the status of that. All that went well is there, and no other
 * put is tried. */
static int fill(struct store *store, uint32_t n, uint32_t max)
{
	unsigned n_calls;
	int status;

	while ((status = put(store, n)) == 0) {
		n++;
		CHECK(n <= max);
	}
	n_calls = fault.n_pwrites + fault.n_fallocates;
	CHECK(store_is_full(store) == (status == -ENOSPC));
	CHECK_INT(put(store, n), status == -ENOSPC ? -ENOSPC : -EAGAIN);
	CHECK_INT(put(store, n + 1), status == -ENOSPC ? -ENOSPC : -EAGAIN);
	CHECK_U64(fault.n_pwrites + fault.n_fallocates, n_calls);
	CHECK(store_bytes(store) >= (uint64_t)n * store_record_bytes(SIZE));
	for (uint32_t i = 0; i < n; i++)
		CHECK_INT(get(store, i), 0);
	CHECK_INT(get(store, n), -ENOENT);
	return status;
}

static void every_failing_call_ends_writing_only(void)
{
	static const struct {
		int error, want;
	} rows[] = { { ENOSPC, -EAGAIN }, { EDQUOT, -EAGAIN }, { EFBIG, -EAGAIN },
		     { EIO, -EIO },       { EROFS, -EROFS },   { ENODEV, -ENODEV } };

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		for (unsigned at = 0; at < 12; at++) {
			struct store *store = open_store(fault_sys(), 1ull << 30, 0);
			bool is_full = rows[i].want == -EAGAIN;

			fault.error = rows[i].error;
			fault.countdown = at;
			if (at == 0 && is_full) {
				/* A segment that is refused is asked for in half the size. */
				CHECK_INT(put(store, 0), 0);
				CHECK_U64(fault.n_fallocates, 2);
			} else {
				CHECK_INT(fill(store, 0, 12), rows[i].want);
				CHECK_U64(metrics_get(store->metrics, METRIC_STORE_ERRORS),
					  is_full ? 0 : 1);
			}
			close_store(store);
		}
}

static void interrupted_and_short_writes_are_completed(void)
{
	struct store *store = open_store(fault_sys(), 1ull << 30, 0);

	CHECK_INT(put(store, 0), 0);
	fault.n_pwrites = 0;
	fault.error = EINTR;
	CHECK_INT(put(store, 1), 0);
	fault.error = 0;
	fault.short_by = 8192;
	CHECK_INT(put(store, 2), 0);
	CHECK_U64(fault.n_pwrites, 4);
	for (uint32_t i = 0; i < 3; i++)
		CHECK_INT(get(store, i), 0);
	close_store(store);
}

static void missing_fallocate_is_no_failure(void)
{
	struct store *store = open_store(fault_sys(), 1ull << 30, 0);

	fault.error = EOPNOTSUPP;
	CHECK_INT(put(store, 0), 0);
	CHECK_INT(get(store, 0), 0);
	close_store(store);
}

static void budget_is_kept_to_the_last_record(void)
{
	uint64_t n = store_record_bytes(SIZE);
	uint64_t around = 3 * STORE_BLOCK; /* header, footer, trailer */
	struct store *store = open_store(fault_sys(), 10 * n + around, 0);

	CHECK_INT(fill(store, 0, 10), -ENOSPC);
	CHECK_U64(store_bytes(store), 10 * n + around);
	close_store(store);
	store = open_store(fault_sys(), 10 * n + around - 1, 0);
	CHECK_INT(fill(store, 0, 9), -ENOSPC);
	CHECK_U64(store_bytes(store), 9 * n + around);
	close_store(store);
	store = open_store(fault_sys(), 4096, 0);
	CHECK_INT(fill(store, 0, 0), -ENOSPC);
	close_store(store);
}

static void free_space_of_others_is_left_alone(void)
{
	uint64_t n = store_record_bytes(SIZE);
	struct store *store = open_store(fault_sys(), 1ull << 30, 100 * MIB);

	fault.free_bytes = 100 * MIB + 5 * n + 3 * STORE_BLOCK;
	/* What a segment takes is not free any more: as a filesystem would say it. */
	CHECK_INT(put(store, 0), 0);
	fault.free_bytes = 100 * MIB;
	CHECK_INT(put(store, 1), 0); /* of the segment */
	CHECK_INT(fill(store, 2, 5), -EAGAIN);
	close_store(store);
	store = open_store(fault_sys(), 1ull << 30, 100 * MIB);
	fault.free_bytes = 100 * MIB;
	CHECK_INT(fill(store, 0, 0), -EAGAIN);
	CHECK_U64(fault.n_fallocates, 0);
	close_store(store);
}

static void unknown_free_space_ends_writing(void)
{
	struct store_sys sys = *fault_sys();
	struct store *store;

	sys.fstatvfs = failing_fstatvfs;
	store = open_store(&sys, 1ull << 30, 0);

	CHECK_INT(fill(store, 0, 0), -EIO);
	close_store(store);
}

/* The kernel's own refusal: the segments become as small as they have to. */
static void real_limit_of_file_size_is_kept(void)
{
	struct rlimit old, limit;
	struct store *store = open_store(&store_sys_real, 1ull << 30, 0);
	struct sigaction ignore = { .sa_handler = SIG_IGN }, before;
	uint32_t n = 0;

	CHECK_INT(getrlimit(RLIMIT_FSIZE, &old), 0);
	CHECK_INT(sigaction(SIGXFSZ, &ignore, &before), 0); /* threads of ours block it */
	limit = old;
	limit.rlim_cur = 1000000;
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
	while (put(store, n) == 0 && n < 100)
		n++;
	CHECK_U64(n, 100);
	CHECK(store->slots_top > 1);
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &old), 0);
	CHECK_INT(sigaction(SIGXFSZ, &before, NULL), 0);
	for (uint32_t i = 0; i < n; i++)
		CHECK_INT(get(store, i), 0);
	close_store(store);
}

/* A device that can't be read any more: each piece fails once, and is then not there. */
static void unreadable_records_are_forgotten(void)
{
	struct store *store = open_store(&store_sys_real, 64 * MIB, 0);
	int fd;

	for (uint32_t i = 0; i < 4; i++)
		CHECK_INT(put(store, i), 0);
	fd = store->open->fd;
	CHECK_INT(ftruncate(fd, STORE_BLOCK + store_record_bytes(SIZE) + 5000),
		  0); /* in the second record */
	CHECK_INT(get(store, 0), 0);
	CHECK_INT(get(store, 1), -EIO);
	CHECK_INT(get(store, 1), -ENOENT);
	CHECK_INT(get(store, 2), -EIO);
	store->open->fd = -1; /* every read is an error */
	CHECK_INT(get(store, 0), -EIO);
	store->open->fd = fd;
	CHECK_INT(get(store, 0), -ENOENT);
	CHECK_U64(metrics_get(store->metrics, METRIC_STORE_ERRORS), 3);
	close_store(store);
}

static const struct check_test tests[] = {
	{ "every_failing_call_ends_writing_only", every_failing_call_ends_writing_only },
	{ "interrupted_and_short_writes_are_completed",
	  interrupted_and_short_writes_are_completed },
	{ "missing_fallocate_is_no_failure", missing_fallocate_is_no_failure },
	{ "budget_is_kept_to_the_last_record", budget_is_kept_to_the_last_record },
	{ "free_space_of_others_is_left_alone", free_space_of_others_is_left_alone },
	{ "unknown_free_space_ends_writing", unknown_free_space_ends_writing },
	{ "real_limit_of_file_size_is_kept", real_limit_of_file_size_is_kept },
	{ "unreadable_records_are_forgotten", unreadable_records_are_forgotten },
};

CHECK_MAIN(tests)
