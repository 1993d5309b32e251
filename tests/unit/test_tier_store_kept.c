/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A persistent store over several lives and with several daemons: what was put is there after it
 * was opened again, others find it once it is sealed, segments go when nobody wants them and only
 * then, the budget is kept, the background thread finds damage and switches on again what was off.
 * Several stores of one process stand for daemons: locks belong to descriptors.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/thr.h"
#include "src/tier/store_priv.h"
#include "tier_reads.h"

#define KIB 1024u
#define MIB (1ull << 20)
#define SIZE 20000u
#define FSID 77u
#define SEGMENT (256 * KIB)
#define PATIENCE 60000 /* naps of a millisecond */

/* Waits for something that another thread does. */
#define UNTIL(what)                                                                                \
	do {                                                                                       \
		static const struct timespec nap_ = { .tv_nsec = 1000000 };                        \
		int naps_ = 0;                                                                     \
		while (!(what)) {                                                                  \
			CHECK(naps_++ < PATIENCE);                                                 \
			nanosleep(&nap_, NULL);                                                    \
		}                                                                                  \
	} while (0)

static struct store_params params_of(const char *dir)
{
	return (struct store_params){ .dir = dir,
				      .is_persistent = true,
				      .fsid = FSID,
				      .limit_bytes = 64 * MIB,
				      .segment_bytes = SEGMENT,
				      .retry_ns = 3600 * NS_PER_S,
				      .engine = IO_ENGINE_POOL,
				      .max_inflight = 4 };
}

static struct store *open_params(const struct store_params *params)
{
	struct store *store = NULL;
	struct err err = { 0 };

	if (store_open(params, &store, &err) < 0)
		printf("# %s\n", err.msg);
	CHECK_INT(err.code, 0);
	return store;
}

static struct store *open_dir(const char *dir)
{
	struct store_params params = params_of(dir);

	return open_params(&params);
}

static char *new_dir(const char *name)
{
	char *dir = check_tmpfile(name);

	CHECK_INT(mkdir(dir, 0755), 0);
	return dir;
}

static struct file_identity identity_of(uint32_t file)
{
	return (struct file_identity){ .ino = file + 1, .size = SIZE, .mtime_ns = 5 };
}

static int put(struct store *store, uint32_t file)
{
	AUTO_FREE uint8_t *bytes = version_bytes(file, 0, SIZE);
	struct file_identity id = identity_of(file);

	return store_put(store, (struct piece_key){ { file }, 0 }, &id, bytes, SIZE);
}

static void put_all(struct store *store, uint32_t first, uint32_t n)
{
	for (uint32_t i = first; i < first + n; i++)
		CHECK_INT(put(store, i), 0);
}

/* The entry number is another one than that of the writer: it must not matter. */
static int get(struct store *store, uint32_t file)
{
	struct file_identity id = identity_of(file);
	struct waited_read *w = waited_read_new((struct entry_id){ file + 9 }, 0, NULL, &id);
	int status = waited_read_run(store_tier(store), w);

	if (status == 0) {
		AUTO_FREE uint8_t *want = version_bytes(file, 0, SIZE);

		CHECK_BYTES(w->read.ask.buf, want, SIZE);
	}
	waited_read_free(w);
	return status;
}

static bool has(struct store *store, uint32_t file)
{
	struct file_identity id = identity_of(file);

	return store_has(store, (struct piece_key){ { file + 9 }, 0 }, &id);
}

static uint32_t count(struct store *store, uint32_t first, uint32_t n)
{
	uint32_t found = 0;

	for (uint32_t i = first; i < first + n; i++)
		found += has(store, i);
	return found;
}

static void everything_is_there_again(void)
{
	AUTO_FREE char *dir = new_dir("again");
	struct store *store = open_dir(dir);
	struct store_status st;
	struct stat mode;

	put_all(store, 0, 100);
	store_close(store);
	CHECK_INT(stat(dir, &mode), 0);
	CHECK_INT(mode.st_mode & 07777, 0700);
	store = open_dir(dir);
	store_get_status(store, &st);
	CHECK(st.is_persistent && st.segments > 5 && st.foreign == st.segments);
	CHECK_U64(st.records, 100);
	CHECK_U64(st.record_bytes, 100 * SIZE);
	CHECK_U64(st.unverified, 100);
	for (uint32_t i = 0; i < 100; i++) {
		CHECK_INT(get(store, i), 0);
		CHECK_INT(get(store, i), 0); /* without the seal */
		CHECK_INT(put(store, i), -EEXIST);
	}
	CHECK_INT(get(store, 100), -ENOENT);
	store_get_status(store, &st);
	CHECK_U64(st.unverified, 0);
	put_all(store, 100, 20);
	store_close(store);
	store = open_dir(dir);
	CHECK_U64(count(store, 0, 120), 120);
	store_close(store);
}

static void others_find_what_is_sealed(void)
{
	AUTO_FREE char *dir = new_dir("others");
	struct store_params params = params_of(dir);
	struct store *a, *b;
	struct store_status st;

	params.retry_ns = 5 * NS_PER_MS;
	a = open_params(&params);
	b = open_params(&params);
	put_all(a, 0, 50);
	put_all(b, 50, 50);
	/* Full segments, and then those that nobody writes to. */
	UNTIL(count(b, 0, 50) == 50 && count(a, 50, 50) == 50);
	for (uint32_t i = 0; i < 100; i++) {
		CHECK_INT(get(a, i), 0);
		CHECK_INT(get(b, i), 0);
	}
	CHECK_INT(put(b, 7), -EEXIST);
	store_close(a);
	for (uint32_t i = 0; i < 100; i++)
		CHECK_INT(get(b, i), 0);
	store_get_status(b, &st);
	CHECK(st.foreign > 0 && st.foreign < st.segments);
	store_close(b);
}

/* Fills a store of 2 MiB; the number of records. */
static uint32_t fill(const struct store_params *params, uint32_t first)
{
	struct store *store = open_params(params);
	uint32_t n = 0;
	int rc;

	store_claimed(store);
	while ((rc = put(store, first + n)) == 0)
		n++;
	CHECK_INT(rc, -ENOSPC);
	CHECK(store_is_full(store) && n > 50);
	CHECK(store_bytes(store) <= params->limit_bytes);
	store_close(store);
	return n;
}

static void what_nobody_wants_makes_room(void)
{
	AUTO_FREE char *dir = new_dir("room");
	struct store_params params = params_of(dir);
	struct store *store;
	uint32_t n, more;

	params.limit_bytes = 2 * MIB;
	n = fill(&params, 0);
	store = open_params(&params);
	CHECK_INT(put(store, 5000), -ENOSPC); /* nobody has said what is wanted */
	CHECK_INT(get(store, 0), 0);
	store_close(store);
	more = fill(&params, 1000);
	CHECK(more + 10 >= n);
	store = open_params(&params);
	CHECK_U64(count(store, 1000, more), more);
	CHECK_U64(count(store, 0, n), 0);
	CHECK(store_bytes(store) <= params.limit_bytes);
	store_close(store);
}

static int remove_segments(const char *dir)
{
	DIR *d = opendir(dir);
	const struct dirent *de;
	int rc = 0;

	CHECK(d);
	while ((de = readdir(d)))
		if (strncmp(de->d_name, "seg-", 4) == 0)
			rc |= unlinkat(dirfd(d), de->d_name, 0);
	closedir(d);
	return rc;
}

/* Descriptors of this process whose file has this directory in its path and no name any more. */
static uint32_t count_open(const char *dir, bool is_removed)
{
	DIR *fds = opendir("/proc/self/fd");
	const struct dirent *de;
	uint32_t n = 0;

	CHECK(fds);
	while ((de = readdir(fds))) {
		char to[512] = { 0 };

		if (readlinkat(dirfd(fds), de->d_name, to, sizeof(to) - 1) > 0)
			n += strncmp(to, dir, strlen(dir)) == 0 && strstr(to, "/seg-") &&
			     is_removed == (strstr(to, " (deleted)") != NULL);
	}
	closedir(fds);
	return n;
}

static void what_others_gave_up_is_closed(void)
{
	AUTO_FREE char *dir = new_dir("closed");
	struct store_params params = params_of(dir);
	struct store *a, *b;
	uint32_t n, more = 0;

	params.limit_bytes = 2 * MIB;
	n = fill(&params, 0);
	params.retry_ns = 5 * NS_PER_MS;
	a = open_params(&params);
	CHECK_U64(count(a, 0, 1), 1); /* it wants one record, so one segment stays */
	store_claimed(a);
	b = open_params(&params);
	store_claimed(b);
	while (put(b, 1000 + more) == 0)
		more++;
	CHECK(more > 50);
	store_close(b);
	UNTIL(count_open(dir, true) == 0);
	CHECK_INT(get(a, 0), 0);
	UNTIL(count(a, 1000, more) == more);
	CHECK(count(a, 0, n) < n / 2);
	CHECK(store_bytes(a) <= params.limit_bytes);
	/* All of it, whoever wants it. */
	CHECK_INT(remove_segments(dir), 0);
	UNTIL(count_open(dir, true) == 0);
	CHECK_INT(get(a, 0), -ENOENT);
	store_close(a);
}

static void segments_of_another_filesystem_are_not_kept_open(void)
{
	AUTO_FREE char *dir = new_dir("foreign");
	struct store_params params = params_of(dir);
	struct store *store = open_dir(dir);

	put_all(store, 0, 40);
	store_close(store);
	params.fsid++;
	store = open_params(&params);
	CHECK_U64(count_open(dir, false), 0);
	CHECK_U64(count(store, 0, 40), 0);
	CHECK_INT(put(store, 0), 0);
	store_close(store);
	store = open_dir(dir);
	CHECK_U64(count(store, 0, 40), 40);
	store_close(store);
}

static void what_is_wanted_stays(void)
{
	AUTO_FREE char *dir = new_dir("wanted");
	struct store_params params = params_of(dir);
	struct store *a, *b;
	uint32_t n;

	params.limit_bytes = 2 * MIB;
	n = fill(&params, 0);
	a = open_params(&params);
	CHECK_U64(count(a, 0, n), n);
	store_claimed(a);
	CHECK_INT(put(a, 1000), -ENOSPC);
	b = open_params(&params); /* another daemon, which wants nothing of it */
	store_claimed(b);
	CHECK_INT(put(b, 1000), -ENOSPC);
	store_close(b);
	for (uint32_t i = 0; i < n; i++)
		CHECK_INT(get(a, i), 0);
	store_close(a);
	b = open_params(&params); /* now nobody does */
	store_claimed(b);
	CHECK_INT(put(b, 1000), 0);
	store_close(b);
}

/* More segments than anybody would try one by one, all of them held but one. */
static void segments_that_others_hold_do_not_hide_the_rest(void)
{
	enum { N_HELD = 90 };
	AUTO_FREE char *dir = new_dir("hidden");
	struct store_params params = params_of(dir);
	struct store *a, *b;

	for (uint32_t i = 0; i < N_HELD + 1; i++) { /* a segment each */
		a = open_dir(dir);
		CHECK_INT(put(a, i), 0);
		store_close(a);
	}
	a = open_dir(dir);
	CHECK_U64(count(a, 0, N_HELD), N_HELD); /* the last one is not wanted */
	store_claimed(a);
	params.limit_bytes = store_bytes(a);
	b = open_params(&params);
	store_claimed(b);
	CHECK_INT(put(b, 1000), 0);
	store_close(b);
	CHECK_U64(count(a, 0, N_HELD), N_HELD);
	for (uint32_t i = 0; i < N_HELD; i++)
		CHECK_INT(get(a, i), 0);
	store_close(a);
}

static void lowered_budget_is_kept(void)
{
	AUTO_FREE char *dir = new_dir("lowered");
	struct store_params params = params_of(dir);
	struct store *store;
	uint32_t n, left;

	params.limit_bytes = 2 * MIB;
	n = fill(&params, 0);
	params.limit_bytes = 1 * MIB;
	store = open_params(&params);
	CHECK_U64(count(store, 0, n), n);
	store_claimed(store);
	CHECK(store_bytes(store) <= 1 * MIB);
	left = count(store, 0, n);
	CHECK(left > 20 && left < n);
	for (uint32_t i = 0; i < n; i++)
		CHECK_INT(get(store, i), has(store, i) ? 0 : -ENOENT);
	store_close(store);
}

/* One bit of the payload of a record that is kept. */
static void flip(const char *dir, struct store *store, uint32_t file)
{
	struct file_identity id = identity_of(file);
	struct store_tag tag = store_tag_of(&store->index, FSID, &id, 0);
	char name[STORE_NAME_SIZE];
	AUTO_FREE char *path = NULL;
	struct store_found found;
	AUTO_FD int fd = -1;
	uint8_t byte;
	off_t at;

	CHECK(store_index_find(&store->index, &tag, NULL, &found));
	store_segment_name(store->segments[store_place_slot(found.place)]->header.segment, name);
	CHECK(asprintf(&path, "%s/%s", dir, name) > 0);
	fd = open(path, O_RDWR | O_CLOEXEC);
	at = (off_t)store_place_block(found.place) * STORE_BLOCK + 777;
	CHECK_INT(pread(fd, &byte, 1, at), 1);
	byte ^= 16;
	CHECK_INT(pwrite(fd, &byte, 1, at), 1);
	CHECK_INT(fdatasync(fd), 0);
}

static void records_are_verified_as_often_as_asked(void)
{
	static const struct {
		enum store_verify verify;
		bool is_reopened;
		int first, again; /* status of reads: damaged before the first, before the next */
	} rows[] = {
		{ STORE_VERIFY_FIRST, false, -EIO, 0 },
		{ STORE_VERIFY_FIRST, true, -EIO, 0 },
		{ STORE_VERIFY_ALWAYS, false, -EIO, -EIO },
		{ STORE_VERIFY_ALWAYS, true, -EIO, -EIO },
		{ STORE_VERIFY_OFF, true, -EIO, 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		AUTO_FREE char *name = NULL, *dir = NULL;
		struct store_params params;
		struct store *store;

		CHECK(asprintf(&name, "verify%zu", i) > 0);
		dir = new_dir(name);
		params = params_of(dir);
		params.verify = rows[i].verify;
		store = open_params(&params);
		put_all(store, 0, 2);
		if (rows[i].is_reopened) {
			store_close(store);
			store = open_params(&params);
		}
		flip(dir, store, 0);
		CHECK_INT(get(store, 0), rows[i].first);
		CHECK_INT(get(store, 0), -ENOENT);
		CHECK_INT(get(store, 1), 0);
		if (rows[i].again < 0) { /* else the damaged bytes would be served */
			flip(dir, store, 1);
			CHECK_INT(get(store, 1), rows[i].again);
		}
		store_close(store);
	}
}

static _Atomic int fault_error;

static ssize_t fault_pwritev(int fd, const struct iovec *iov, int n, off_t offset)
{
	if (fault_error) {
		errno = fault_error;
		return -1;
	}
	return pwritev(fd, iov, n, offset);
}

static void what_was_off_comes_back(void)
{
	static const int errors[] = { EIO, ENOSPC, EROFS };
	struct store_sys sys = store_sys_real;

	sys.pwritev = fault_pwritev;
	for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
		AUTO_FREE char *name = NULL, *dir = NULL;
		struct store_params params;
		struct store_status st;
		struct store *store;

		CHECK(asprintf(&name, "off%zu", i) > 0);
		dir = new_dir(name);
		params = params_of(dir);
		params.retry_ns = 5 * NS_PER_MS;
		params.metrics = metrics_new();
		CHECK_INT(store_open_with(&params, &sys, &store, NULL), 0);
		put_all(store, 0, 3);
		fault_error = errors[i];
		CHECK_INT(put(store, 3), errors[i] == ENOSPC ? -EAGAIN : -errors[i]);
		CHECK_INT(put(store, 4), -EAGAIN);
		store_get_status(store, &st);
		CHECK(st.is_write_off && !st.is_off && !st.is_full && st.why[0]);
		CHECK_INT(get(store, 0), 0);
		fault_error = 0;
		UNTIL(put(store, 5) == 0);
		CHECK_U64(metrics_get(params.metrics, METRIC_STORE_OFF_TIMES), 1);
		CHECK_U64(metrics_get(params.metrics, METRIC_STORE_ERRORS),
			  errors[i] == ENOSPC ? 0 : 1);
		store_close(store);
		metrics_free(params.metrics);
		store = open_dir(dir);
		CHECK(has(store, 0) && has(store, 1) && has(store, 2) && has(store, 5));
		store_close(store);
	}
}

/* As on a filesystem that takes O_DIRECT, whatever the one of the tests does. */
static int openat_without_direct(int dirfd, const char *name, int flags, mode_t mode)
{
	return openat(dirfd, name, flags & ~O_DIRECT, mode);
}

static void full_drive_is_no_reason_for_the_page_cache(void)
{
	static const struct {
		int error;
		bool is_direct;
	} rows[] = { { 0, true },      { ENOSPC, true },  { EIO, true },
		     { EDQUOT, true }, { EINVAL, false }, { EOPNOTSUPP, false } };
	AUTO_FREE char *dir = new_dir("direct");
	struct store_params params = params_of(dir);
	struct store_sys sys = store_sys_real;

	store_close(open_params(&params)); /* the marker is there */
	sys.openat = openat_without_direct;
	sys.pwritev = fault_pwritev;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct store *store;

		fault_error = rows[i].error;
		CHECK_INT(store_open_with(&params, &sys, &store, NULL), 0);
		CHECK_INT(store->dir.is_direct, rows[i].is_direct);
		store_close(store);
		fault_error = 0;
	}
}

static _Atomic bool is_footer_unreadable, is_all_unreadable;

static ssize_t pread_without_footer(int fd, void *bytes, size_t n, off_t offset)
{
	if (offset > 0 && (is_all_unreadable || (is_footer_unreadable && n == STORE_BLOCK))) {
		errno = EIO;
		return -1;
	}
	return pread(fd, bytes, n, offset);
}

/* The only segment of the directory. */
static char *segment_path(const char *dir)
{
	DIR *d = opendir(dir);
	const struct dirent *de;
	char *path = NULL;

	CHECK(d);
	while ((de = readdir(d)))
		if (strncmp(de->d_name, "seg-", 4) == 0)
			CHECK(!path && asprintf(&path, "%s/%s", dir, de->d_name) > 0);
	closedir(d);
	CHECK(path);
	return path;
}

static void what_cannot_be_read_is_not_written_over(void)
{
	static const struct timespec old[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };
	AUTO_FREE char *dir = new_dir("unread"), *path = NULL;
	struct store_params params = params_of(dir);
	struct store_sys sys = store_sys_real;
	struct store *store = open_dir(dir);
	struct stat before, after;

	put_all(store, 0, 5);
	store_close(store);
	path = segment_path(dir);
	CHECK_INT(utimensat(AT_FDCWD, path, old, 0), 0);
	CHECK_INT(stat(path, &before), 0);
	sys.pread = pread_without_footer;
	for (int way = 0; way < 2; way++) {
		is_footer_unreadable = way == 0;
		is_all_unreadable = way == 1;
		CHECK_INT(store_open_with(&params, &sys, &store, NULL), 0);
		is_footer_unreadable = is_all_unreadable = false;
		CHECK_U64(count(store, 0, 5), way == 0 ? 5 : 0);
		store_close(store);
		CHECK_INT(stat(path, &after), 0);
		CHECK(after.st_size == before.st_size && after.st_mtim.tv_sec == 1000);
	}
	store = open_dir(dir);
	CHECK_U64(count(store, 0, 5), 5);
	store_close(store);
}

static void records_of_a_lost_lock_are_verified_again(void)
{
	AUTO_FREE char *dir = new_dir("lost");
	struct store *store = open_dir(dir);

	put_all(store, 0, 5);
	store_close(store);
	store = open_dir(dir);
	for (uint32_t i = 0; i < 5; i++)
		CHECK_INT(get(store, i), 0);
	CHECK(store->segments[0]->is_shared);
	CHECK_INT(flock(store->segments[0]->fd, LOCK_UN), 0);
	atomic_store(&store->segments[0]->is_shared, false);
	flip(dir, store, 2);
	CHECK_INT(get(store, 2), -EIO);
	CHECK(store->segments[0]->is_shared); /* it was taken again */
	CHECK_U64(store->segments[0]->n_unverified, 4);
	CHECK_INT(get(store, 1), 0);
	CHECK_U64(store->segments[0]->n_unverified, 3);
	store_close(store);
}

static int failing_unlinkat(int dirfd, const char *name, int flags)
{
	(void)dirfd;
	(void)name;
	(void)flags;
	errno = EIO;
	return -1;
}

static void segment_that_could_not_be_removed_is_free_to_others(void)
{
	AUTO_FREE char *dir = new_dir("unremoved");
	struct store_params params = params_of(dir);
	struct store_sys sys = store_sys_real;
	struct store *a, *b;
	uint32_t n;

	params.limit_bytes = 2 * MIB;
	n = fill(&params, 0);
	sys.unlinkat = failing_unlinkat;
	CHECK_INT(store_open_with(&params, &sys, &a, NULL), 0);
	store_claimed(a);
	CHECK_INT(put(a, 1000), -ENOSPC);
	b = open_params(&params);
	CHECK_U64(count(b, 0, n), n);
	for (uint32_t i = 0; i < b->slots_top; i++)
		CHECK(!b->segments[i] || b->segments[i]->is_shared);
	store_close(a);
	a = open_params(&params);
	store_claimed(a);
	CHECK_INT(put(a, 1000), -ENOSPC);
	store_close(a);
	store_close(b);
}

static void *put_one(void *store)
{
	return (void *)(intptr_t)put(store, 1);
}

static void cap_can_be_interrupted(void)
{
	AUTO_FREE char *dir = new_dir("cap");
	struct store_params params = params_of(dir);
	struct store *store;
	pthread_t thread;
	void *status;

	params.write_bytes_per_s = 1; /* the next one would have to wait for hours */
	store = open_params(&params);
	CHECK_INT(put(store, 0), 0);
	CHECK_INT(pthread_create(&thread, NULL, put_one, store), 0);
	store_stop(store);
	CHECK_INT(pthread_join(thread, &status), 0);
	CHECK_INT((int)(intptr_t)status, -ECANCELED);
	CHECK_INT(get(store, 0), 0);
	store_close(store);
}

static void directory_of_something_else_is_refused(void)
{
	AUTO_FREE char *dir = new_dir("else"), *file = check_tmpfile("else/photo.jpg"),
		       *link = check_tmpfile("elselink");
	struct store_params params = params_of(dir);
	struct store *store;
	struct err err;
	struct stat st;
	AUTO_FD int fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);

	CHECK(fd >= 0);
	CHECK_INT(store_open(&params, &store, &err), -ENOTEMPTY);
	CHECK_CONTAINS(err.msg, "photo.jpg");
	CHECK_INT(stat(dir, &st), 0);
	CHECK_INT(st.st_mode & 07777, 0755); /* it was not touched */
	CHECK_INT(unlink(file), 0);
	CHECK_INT(chmod(dir, 01777), 0);
	CHECK_INT(store_open(&params, &store, &err), -EPERM);
	CHECK_INT(chmod(dir, 0755), 0);
	CHECK_INT(symlink(dir, link), 0);
	params.dir = link;
	CHECK(store_open(&params, &store, &err) < 0);
	params.dir = dir;
	CHECK_INT(store_open(&params, &store, &err), 0);
	store_close(store);
}

static void filesystem_has_one_number(void)
{
	AUTO_FREE char *dir = new_dir("fsid");
	AUTO_FREE char *other = new_dir("fsid-other");
	AUTO_FD int a = open(dir, O_PATH | O_CLOEXEC), b = open(dir, O_RDONLY | O_CLOEXEC),
		    proc = open("/proc", O_PATH | O_CLOEXEC), c = open(other, O_PATH | O_CLOEXEC);

	CHECK_U64(store_fsid(a), store_fsid(b));
	CHECK(store_fsid(a) != store_fsid(proc));
	CHECK(store_fsid(a) != store_fsid(c)); /* two sources may have what looks like one */
}

static const struct check_test tests[] = {
	{ "everything_is_there_again", everything_is_there_again },
	{ "others_find_what_is_sealed", others_find_what_is_sealed },
	{ "what_nobody_wants_makes_room", what_nobody_wants_makes_room },
	{ "what_others_gave_up_is_closed", what_others_gave_up_is_closed },
	{ "segments_of_another_filesystem_are_not_kept_open",
	  segments_of_another_filesystem_are_not_kept_open },
	{ "what_is_wanted_stays", what_is_wanted_stays },
	{ "segments_that_others_hold_do_not_hide_the_rest",
	  segments_that_others_hold_do_not_hide_the_rest },
	{ "lowered_budget_is_kept", lowered_budget_is_kept },
	{ "records_are_verified_as_often_as_asked", records_are_verified_as_often_as_asked },
	{ "what_was_off_comes_back", what_was_off_comes_back },
	{ "full_drive_is_no_reason_for_the_page_cache",
	  full_drive_is_no_reason_for_the_page_cache },
	{ "what_cannot_be_read_is_not_written_over", what_cannot_be_read_is_not_written_over },
	{ "records_of_a_lost_lock_are_verified_again", records_of_a_lost_lock_are_verified_again },
	{ "segment_that_could_not_be_removed_is_free_to_others",
	  segment_that_could_not_be_removed_is_free_to_others },
	{ "cap_can_be_interrupted", cap_can_be_interrupted },
	{ "directory_of_something_else_is_refused", directory_of_something_else_is_refused },
	{ "filesystem_has_one_number", filesystem_has_one_number },
};

CHECK_MAIN(tests)
