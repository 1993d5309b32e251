/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room in a store: what several daemons have written twice goes, what is wanted little goes, what
 * was used last stays longest, and a store that was full takes more when there is room again.
 * Several stores of one process stand for daemons: locks belong to descriptors. Their background
 * threads sleep through most of these tests; what they would do is done here, one step at a time.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "clairfs/base/clock.h"
#include "src/tier/store_priv.h"
#include "store_kit.h"

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
	struct store_params params = kit_params(dir);

	params.retry_ns = 3600 * NS_PER_S;
	return params;
}

static void put_files(struct store *store, uint32_t set, uint32_t first, uint32_t n)
{
	for (uint32_t i = first; i < first + n; i++)
		CHECK_INT(kit_put_file(store, (struct kit_file){ set, i }), 0);
}

static bool has(struct store *store, uint32_t set, uint32_t n)
{
	struct kit_file file = { set, n };
	struct file_identity id = kit_identity(file);

	return store_has(store, (struct piece_key){ { n }, 0 }, &id);
}

static uint32_t count(struct store *store, uint32_t set, uint32_t first, uint32_t n)
{
	uint32_t found = 0;

	for (uint32_t i = first; i < first + n; i++)
		found += has(store, set, i);
	return found;
}

/* What the background thread does every few seconds. */
static void look_again(struct store *store)
{
	mutex_lock(&store->space_mu);
	CHECK_INT(store_load(store, true), 0);
	mutex_unlock(&store->space_mu);
	store_unshare_all(store);
}

/* Number of the segment that the file is read from. */
static uint64_t segment_of(struct store *store, uint32_t set, uint32_t n)
{
	struct kit_file file = { set, n };
	struct file_identity id = kit_identity(file);
	struct store_tag tag = store_tag_of(&store->index, KIT_FSID, &id, 0);
	struct store_found found;
	uint64_t number;

	CHECK(store_index_find(&store->index, &tag, store->segments, &found));
	number = found.segment->header.segment;
	store_segment_put(store, found.segment);
	return number;
}

enum { DAEMONS = 6, SAME = 12 };

/* A segment of each daemon: the same files in all of them, and one that only it has. */
static void write_copies(const char *dir)
{
	struct store_params params = params_of(dir);
	struct store *store[DAEMONS];

	params.segment_bytes = 1u << 20;
	for (uint32_t d = 0; d < DAEMONS; d++)
		store[d] = kit_open(&params);
	for (uint32_t d = 0; d < DAEMONS; d++) {
		put_files(store[d], 0, 0, 1); /* its segment is there, and nobody's is sealed */
		CHECK(store[d]->open);
	}
	for (uint32_t d = 0; d < DAEMONS; d++) {
		put_files(store[d], 0, 1, SAME - 1);
		put_files(store[d], 1, d, 1);
	}
	for (uint32_t d = 0; d < DAEMONS; d++)
		store_close(store[d]);
}

static void copies_make_room(void)
{
	const char *dir = kit_dir("copies");
	struct store_params params = params_of(dir);
	struct store *store;
	struct store_status st;

	write_copies(dir);
	store = kit_open(&params);
	params.limit_bytes = store_bytes(store);
	store_close(store);
	store = kit_open(&params);
	CHECK_U64(count(store, 0, 0, SAME), SAME);
	CHECK_U64(count(store, 1, 0, DAEMONS), DAEMONS);
	store_claimed(store);
	put_files(store, 2, 0, 2 * SAME);
	store_get_status(store, &st);
	CHECK(!st.is_full);
	CHECK_U64(kit_served(store, 0, SAME), SAME);
	CHECK_U64(kit_served(store, 2, 2 * SAME), 2 * SAME);
	/* What was in a segment that has gone is missed, and can be written again. */
	for (uint32_t i = 0; i < DAEMONS; i++)
		if (!has(store, 1, i))
			put_files(store, 1, i, 1);
	CHECK_U64(kit_served(store, 1, DAEMONS), DAEMONS);
	store_close(store);
}

static void daemons_agree_which_copy_they_use(void)
{
	const char *dir = kit_dir("agree");
	struct store_params params = params_of(dir);
	struct store *a = kit_open(&params), *b = kit_open(&params), *c;

	put_files(a, 0, 0, 1);
	put_files(b, 0, 0, 1);
	put_files(a, 0, 1, 5);
	put_files(b, 0, 1, 5);
	store_claimed(a);
	store_claimed(b);
	store_close_open(b); /* the later one is sealed first */
	look_again(a);
	store_close_open(a);
	look_again(b);
	look_again(a);
	for (uint32_t i = 0; i < 6; i++)
		CHECK_U64(segment_of(a, 0, i), segment_of(b, 0, i));
	CHECK_U64(kit_served(a, 0, 6), 6);
	CHECK_U64(kit_served(b, 0, 6), 6);
	/* So nobody holds the other one, while both go on. */
	params.limit_bytes = store_bytes(a);
	CHECK_U64(store_bytes(b), params.limit_bytes);
	c = kit_open(&params);
	CHECK_U64(count(c, 0, 0, 6), 6);
	store_claimed(c);
	put_files(c, 1, 0, 1);
	store_close(c);
	CHECK_U64(kit_served(a, 0, 6), 6);
	CHECK_U64(kit_served(b, 0, 6), 6);
	store_close(a);
	store_close(b);
}

/* Not shadowed by the damaged one in every mount to come, and written in each. */
static void what_was_written_again_is_what_counts(void)
{
	const char *dir = kit_dir("repaired");
	struct store_params params = params_of(dir);
	struct kit_file file = { 0, 0 };
	struct store *store = kit_open(&params);
	uint8_t block[KIT_BLOCK];
	uint64_t number;
	char name[STORE_NAME_SIZE];
	AUTO_FREE char *path = NULL;
	AUTO_FD int fd = -1;

	put_files(store, 0, 0, 1);
	number = segment_of(store, 0, 0);
	store_close(store);
	store_segment_name(number, name);
	CHECK(asprintf(&path, "%s/%s", dir, name) > 0);
	fd = open(path, O_RDWR);
	CHECK_INT(pread(fd, block, KIT_BLOCK, KIT_BLOCK), KIT_BLOCK);
	block[0] ^= 1;
	CHECK_INT(pwrite(fd, block, KIT_BLOCK, KIT_BLOCK), KIT_BLOCK);
	store = kit_open(&params);
	CHECK_INT(kit_get(store, file, 0), -EIO);
	put_files(store, 0, 0, 1);
	store_close(store);
	for (int i = 0; i < 4; i++) {
		store = kit_open(&params);
		CHECK_INT(kit_get(store, file, 0), 0);
		CHECK(segment_of(store, 0, 0) != number);
		store_close(store);
	}
}

/* A read that was under way when the lock was lost and taken again has seen what was there before:
 * it waits for a buffer here, which files of this length need (one page for the seal alone). */
static void reads_under_way_vouch_for_nothing_that_came_after(void)
{
	const char *dir = kit_dir("vouch");
	struct store_params params = params_of(dir);
	struct file_identity id[2] = { kit_identity((struct kit_file){ 0, 7 }),
				       kit_identity((struct kit_file){ 0, 23 }) };
	struct waited_read *early, *late;
	struct store *store;
	struct store_segment *segment;

	params.max_inflight = 1;
	store = kit_open(&params);
	put_files(store, 0, 7, 1);
	put_files(store, 0, 23, 1);
	store_close(store);
	store = kit_open(&params);
	CHECK(has(store, 0, 7) && has(store, 0, 23));
	segment = store->segments[0];
	early = waited_read_new((struct entry_id){ 7 }, 0, NULL, &id[0]);
	late = waited_read_new((struct entry_id){ 23 }, 0, NULL, &id[1]);
	store->reader.n_buffers = 1; /* somebody has the only one */
	tier_read(store_tier(store), &early->read);
	atomic_store(&segment->is_shared, false);
	store_segment_share(store, segment);
	CHECK(segment->is_shared);
	store->reader.n_buffers = 0;
	CHECK_INT(waited_read_run(store_tier(store), late), 0);
	CHECK_INT(waited_read_wait(early), 0);
	CHECK_U64(segment->n_unverified, 1);
	CHECK_INT(waited_read_run(store_tier(store), late), 0);
	CHECK_INT(waited_read_run(store_tier(store), early), 0);
	CHECK_U64(segment->n_unverified, 0);
	waited_read_free(early);
	waited_read_free(late);
	store_close(store);
}

/* A segment of copies that two daemons hold for the little that only it has. */
static void held_copies_are_let_go(void)
{
	const char *dir = kit_dir("held");
	struct store_params params = params_of(dir);
	struct store *store[2], *c;
	uint64_t bytes;

	write_copies(dir);
	c = kit_open(&params);
	params.limit_bytes = bytes = store_bytes(c);
	store_close(c);
	for (int i = 0; i < 2; i++) {
		store[i] = kit_open(&params);
		CHECK_U64(count(store[i], 0, 0, SAME), SAME);
		CHECK_U64(count(store[i], 1, 0, DAEMONS), DAEMONS);
		store_claimed(store[i]);
	}
	CHECK_U64(store_bytes(store[0]), bytes);
	for (int i = 0; i < 2; i++)
		for (uint32_t d = 0; d < DAEMONS; d++)
			store_tend_space(store[i]);
	c = kit_open(&params);
	CHECK(store_bytes(c) < bytes);
	CHECK_U64(count(c, 0, 0, SAME), SAME);
	store_claimed(c);
	put_files(c, 2, 0, 1);
	for (int i = 0; i < 2; i++) {
		CHECK_U64(kit_served(store[i], 0, SAME), SAME);
		store_close(store[i]);
	}
	store_close(c);
}

static void what_is_wanted_little_makes_room(void)
{
	for (int is_persistent = 0; is_persistent < 2; is_persistent++) {
		struct store_params params = params_of(kit_dir(is_persistent ? "little" : "own"));
		struct store *store;
		uint32_t n = 0;
		int rc = 0;

		params.limit_bytes = 1u << 20;
		params.is_persistent = is_persistent;
		store = kit_open(&params);
		store_claimed(store);
		while (rc == 0)
			rc = kit_put_file(store, (struct kit_file){ 0, n++ });
		CHECK_INT(rc, -ENOSPC);
		CHECK(store_is_full(store) && !store_takes_more(store));
		/* Nothing of it may go. */
		store_tend_space(store);
		CHECK(store_is_full(store));
		/* All files but every eighth have changed. */
		for (uint32_t i = 0; i < n; i++) {
			struct file_identity id = kit_identity((struct kit_file){ 0, i });

			if (i % 8 != 0)
				store_forget(store, &id, 0, piece_count(id.size));
		}
		store_tend_space(store);
		CHECK(!store_is_full(store) && store_takes_more(store));
		put_files(store, 1, 0, n / 2);
		CHECK_U64(kit_served(store, 1, n / 2), n / 2);
		CHECK(store_bytes(store) <= params.limit_bytes);
		store_close(store);
	}
}

static void what_others_have_sealed_is_found_when_a_segment_is_made(void)
{
	const char *dir = kit_dir("found");
	struct store_params params = params_of(dir);
	struct store *a = kit_open(&params), *b = kit_open(&params);

	put_files(a, 0, 0, 10);
	store_close(a);
	put_files(b, 1, 0, 1); /* makes b's first segment */
	CHECK_U64(count(b, 0, 0, 10), 10);
	for (uint32_t i = 0; i < 10; i++)
		CHECK_INT(kit_put(b, (struct kit_file){ 0, i }, 0), -EEXIST);
	store_close(b);
}

static void full_store_takes_more_when_others_have_made_room(void)
{
	const char *dir = kit_dir("again");
	struct store_params params = params_of(dir);
	struct store *a, *b;
	uint32_t n = 0;

	params.limit_bytes = 1u << 20;
	a = kit_open(&params);
	store_claimed(a);
	while (kit_put_file(a, (struct kit_file){ 0, n }) == 0)
		n++;
	params.retry_ns = 2 * NS_PER_MS;
	b = kit_open(&params);
	CHECK_U64(count(b, 0, 0, 1), 1);
	store_claimed(b);
	CHECK_INT(kit_put(b, (struct kit_file){ 1, 0 }, 0), -ENOSPC);
	CHECK(store_is_full(b));
	store_close(a); /* b wants one record only */
	UNTIL(!store_is_full(b));
	put_files(b, 1, 0, 1);
	CHECK_U64(kit_served(b, 1, 1), 1);
	store_close(b);
}

/* Two jobs share a store: one is told that the other has what it puts, and counts on it. */
static void what_was_put_again_is_wanted(void)
{
	const char *dir = kit_dir("put_again");
	struct store_params params = params_of(dir);
	struct store *a, *b;
	uint32_t n = 100;

	params.limit_bytes = 1u << 20;
	a = kit_open(&params);
	b = kit_open(&params);
	store_claimed(a);
	store_claimed(b);
	put_files(a, 0, 0, 8);
	store_close_open(a);
	look_again(b);
	for (uint32_t i = 0; i < 8; i++)
		CHECK_INT(kit_put_file(b, (struct kit_file){ 0, i }), -EEXIST);
	store_close(a);
	while (kit_put_file(b, (struct kit_file){ 0, n }) == 0)
		n++;
	CHECK(store_is_full(b));
	CHECK_U64(count(b, 0, 0, 8), 8);
	store_close(b);
}

static void age(const char *dir, uint64_t number, time_t seconds)
{
	const struct timespec times[2] = { { .tv_sec = seconds }, { .tv_sec = seconds } };
	char name[STORE_NAME_SIZE];
	AUTO_FREE char *path = NULL;

	store_segment_name(number, name);
	CHECK(asprintf(&path, "%s/%s", dir, name) > 0);
	CHECK_INT(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void what_was_used_last_stays_longest(void)
{
	const char *dir = kit_dir("used");
	struct store_params params = params_of(dir);
	struct store *store;

	for (uint32_t set = 0; set < 3; set++) { /* a segment each */
		store = kit_open(&params);
		put_files(store, set, 0, 8);
		store_close(store);
	}
	store = kit_open(&params);
	for (uint32_t set = 0; set < 3; set++)
		age(dir, segment_of(store, set, 0), 1000000 + 1000 * (time_t)set);
	params.limit_bytes = store_bytes(store);
	store_close(store);
	store = kit_open(&params); /* a job that wants the one written first */
	CHECK_U64(count(store, 0, 0, 8), 8);
	store_claimed(store);
	store_close(store);
	params.segment_bytes = 64u << 10;
	store = kit_open(&params);
	store_claimed(store);
	put_files(store, 3, 0, 1);
	CHECK_U64(count(store, 0, 0, 8), 8);
	CHECK_U64(count(store, 1, 0, 8), 0);
	store_close(store);
}

static void filling_of_segments_is_counted(void)
{
	const char *dir = kit_dir("filling");
	struct metrics *metrics = metrics_new();
	struct store_params params = params_of(dir);
	struct store *store;
	uint64_t bytes = 0;

	params.metrics = metrics;
	store = kit_open(&params);
	for (uint32_t i = 0; i < 3; i++) {
		put_files(store, 0, i, 1);
		bytes += store_cost(kit_size((struct kit_file){ 0, i }));
		store_close_open(store);
	}
	/* Header, footer and trailer are pages, too. */
	CHECK_U64(metrics_get(metrics, METRIC_STORE_SEALED_BYTES), bytes + 9ull * STORE_BLOCK);
	CHECK_U64(metrics_get(metrics, METRIC_STORE_RESERVED_BYTES), 3 * params.segment_bytes);
	CHECK_U64(metrics_get(metrics, METRIC_STORE_BYTES_WRITTEN), bytes + 9ull * STORE_BLOCK);
	store_close(store);
	metrics_free(metrics);
	CHECK_U64(store_cost(0), 4096);
	CHECK_U64(store_cost(4000), 4096);
	CHECK_U64(store_cost(4001), 8192);
	CHECK_U64(store_cost(3u << 20), 3 * ((1u << 20) + 4096));
	CHECK_U64(store_cost((1u << 20) + 1), (1u << 20) + 2 * 4096);
}

/* A drive with less room than the budget: this much, less what files of the directory have. */
static struct {
	int dirfd;
	uint64_t bytes;
	bool is_quota; /* says that all is free */
} drive;

static int add_bytes(void *bytes, uint64_t id)
{
	char name[STORE_NAME_SIZE];
	struct stat st;

	store_segment_name(id, name);
	CHECK_INT(fstatat(drive.dirfd, name, &st, 0), 0);
	*(uint64_t *)bytes += MAX((uint64_t)st.st_size, (uint64_t)st.st_blocks * 512);
	return 0;
}

static uint64_t on_drive(void)
{
	AUTO_FD int fd = openat(drive.dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct store_dir dir = { .fd = fd };
	uint64_t bytes = 0;

	CHECK_INT(store_dir_each(&dir, add_bytes, &bytes), 0);
	return bytes;
}

static int drive_statvfs(int fd, struct statvfs *st)
{
	uint64_t used = drive.is_quota ? 0 : on_drive();

	memset(st, 0, sizeof(*st));
	st->f_frsize = 4096;
	st->f_bavail = (drive.bytes - MIN(drive.bytes, used)) / 4096;
	return 0;
}

static int drive_fallocate(int fd, int mode, off_t offset, off_t length)
{
	if (on_drive() + (uint64_t)length > drive.bytes) {
		errno = EDQUOT;
		return -1;
	}
	return fallocate(fd, mode, offset, length);
}

/* What two jobs with different datasets get of a drive of 1 MiB, with a budget of 64. */
static void fill_drive(const char *name, bool is_quota, uint64_t keep_free)
{
	struct store_params params = params_of(kit_dir(name));
	struct store_sys sys = store_sys_real;
	AUTO_FD int dirfd = open(params.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct store *store;
	uint32_t n = 0;

	sys.fstatvfs = drive_statvfs;
	sys.fallocate = drive_fallocate;
	drive.dirfd = dirfd;
	drive.bytes = (1u << 20) + keep_free;
	drive.is_quota = is_quota;
	params.keep_free_bytes = keep_free;
	CHECK_INT(store_open_with(&params, &sys, &store, NULL), 0);
	store_claimed(store);
	while (kit_put_file(store, (struct kit_file){ 0, n }) == 0)
		n++;
	CHECK(n > 16);
	CHECK(!store_is_full(store) && !store_takes_more(store));
	CHECK_U64(count(store, 0, 0, n), n); /* what is wanted stays */
	store_close(store);
	drive.bytes -= keep_free / 2; /* others have taken it meanwhile */
	params.fsid++;
	params.metrics = metrics_new();
	CHECK_INT(store_open_with(&params, &sys, &store, NULL), 0);
	store_claimed(store);
	put_files(store, 0, 0, n / 4);
	CHECK(store_takes_more(store));
	CHECK_U64(kit_served(store, 0, n / 4), kit_pieces(0, n / 4));
	CHECK(metrics_get(params.metrics, METRIC_STORE_RECLAIMED) > 0);
	CHECK(on_drive() + keep_free <= drive.bytes);
	store_close(store);
	metrics_free(params.metrics);
}

static void full_drive_has_room_for_the_next_dataset(void)
{
	fill_drive("drive", false, 0);
	fill_drive("keep_free", false, 1u << 20);
	fill_drive("quota", true, 0);
}

/* --- what a killed daemon has left, on a drive that fails or is slow --- */

static struct {
	struct store *store; /* stopped at the first part of a scan; NULL: such reads fail */
	uint32_t n_parts;
} leftover;

static ssize_t leftover_pread(int fd, void *bytes, size_t n, off_t offset)
{
	if (offset == 0)
		return pread(fd, bytes, n, offset);
	leftover.n_parts += n > KIT_BLOCK;
	if (!leftover.store) {
		errno = EIO;
		return -1;
	}
	store_stop(leftover.store);
	return pread(fd, bytes, n, offset);
}

static struct store *open_then_leave(const char *name, const struct store_sys *sys, uint32_t n)
{
	struct store_params params = params_of(kit_dir(name));
	struct store *store;

	CHECK_INT(store_open_with(&params, sys, &store, NULL), 0);
	leftover.n_parts = 0;
	for (uint32_t i = 0; i < n; i++) {
		struct kit_record records[2] = { { .file = { i, 0 } }, { .file = { i, 1 } } };
		AUTO_FREE char *path = NULL;
		struct kit_image image;

		kit_image_make(&image, 77 + i, records, 2, false);
		kit_image_write(&image, params.dir);
		free(image.bytes);
		CHECK(asprintf(&path, "%s/seg-%016x", params.dir, 77 + i) > 0);
		CHECK_INT(truncate(path, 16 << 20), 0); /* four parts */
	}
	return store;
}

static int load(struct store *store)
{
	int rc;

	mutex_lock(&store->space_mu);
	rc = store_load(store, true);
	mutex_unlock(&store->space_mu);
	return rc;
}

static void what_cannot_be_read_is_tried_once(void)
{
	struct store_sys sys = store_sys_real;
	struct store *store;

	sys.pread = leftover_pread;
	store = open_then_leave("unreadable", &sys, 1);
	leftover.store = NULL;
	for (int i = 0; i < 4; i++)
		CHECK_INT(load(store), 0);
	CHECK_U64(leftover.n_parts, 4);
	store_close(store);
}

static void end_waits_for_no_scan(void)
{
	struct store_sys sys = store_sys_real;
	struct store_params params;
	struct store *store;

	sys.pread = leftover_pread;
	store = open_then_leave("stopped", &sys, 3);
	leftover.store = store;
	CHECK_INT(load(store), -ECANCELED);
	CHECK(leftover.n_parts <= 1);
	store_close(store);
	/* Nothing was made of what was read in part. */
	params = params_of(kit_dir("stopped"));
	store = kit_open(&params);
	CHECK_U64(count(store, 0, 0, 2) + count(store, 1, 0, 2) + count(store, 2, 0, 2), 6);
	store_close(store);
}

static const struct check_test tests[] = {
	{ "copies_make_room", copies_make_room },
	{ "daemons_agree_which_copy_they_use", daemons_agree_which_copy_they_use },
	{ "what_was_written_again_is_what_counts", what_was_written_again_is_what_counts },
	{ "reads_under_way_vouch_for_nothing_that_came_after",
	  reads_under_way_vouch_for_nothing_that_came_after },
	{ "held_copies_are_let_go", held_copies_are_let_go },
	{ "what_is_wanted_little_makes_room", what_is_wanted_little_makes_room },
	{ "what_others_have_sealed_is_found_when_a_segment_is_made",
	  what_others_have_sealed_is_found_when_a_segment_is_made },
	{ "full_store_takes_more_when_others_have_made_room",
	  full_store_takes_more_when_others_have_made_room },
	{ "what_was_put_again_is_wanted", what_was_put_again_is_wanted },
	{ "what_was_used_last_stays_longest", what_was_used_last_stays_longest },
	{ "full_drive_has_room_for_the_next_dataset", full_drive_has_room_for_the_next_dataset },
	{ "filling_of_segments_is_counted", filling_of_segments_is_counted },
	{ "what_cannot_be_read_is_tried_once", what_cannot_be_read_is_tried_once },
	{ "end_waits_for_no_scan", end_waits_for_no_scan },
};

CHECK_MAIN(tests)
