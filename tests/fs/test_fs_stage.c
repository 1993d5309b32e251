/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The point of the whole: a file whose pages were pushed costs no upcall, and its open is seen all
 * the same, once and in order. Also what the stage operations do with inodes that the kernel has
 * forgotten, with changed files and with files whose pages were dropped.
 *
 * The kernel may drop pages and inodes at any time (others on the machine may even ask it to), so
 * "no upcall" is checked over several attempts, of which one must be undisturbed.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_cache.h"
#include "fs_kit.h"

#define ATTEMPTS 20

static void shuffle(uint32_t *v, uint32_t n, uint64_t *state)
{
	for (uint32_t i = n; i > 1; i--) {
		uint32_t j = (uint32_t)check_rand_below(state, i), t = v[i - 1];

		v[i - 1] = v[j];
		v[j] = t;
	}
}

/* A permutation of the samples, and a file with their paths in that order. */
static char *write_list(struct kit *k, uint32_t *samples, uint64_t *state)
{
	uint32_t n = dataset_n_samples(k->dataset);
	struct buf_writer w;
	char rel[256];
	char *path;

	for (uint32_t i = 0; i < n; i++)
		samples[i] = i;
	shuffle(samples, n, state);
	buf_writer_init(&w);
	for (uint32_t i = 0; i < n; i++) {
		CHECK_INT(dataset_path(k->dataset, (struct entry_id){ samples[i] }, rel,
				       sizeof(rel)),
			  0);
		buf_printf(&w, "%s/%s\n", k->mountpoint, rel);
	}
	path = check_write_file("list", w.data, w.size);
	buf_writer_fini(&w);
	return path;
}

static int push(struct kit *k, struct entry_id e)
{
	uint64_t size = dataset_size(k->dataset, e);
	AUTO_FREE char *bytes = malloc(size + 1);
	AUTO_FREE char *full = NULL;
	AUTO_FILE FILE *f = NULL;
	char rel[256];

	CHECK_INT(dataset_path(k->dataset, e, rel, sizeof(rel)), 0);
	CHECK(asprintf(&full, "%s/%s", k->source, rel) > 0);
	f = fopen(full, "re");
	CHECK(f && fread(bytes, 1, size, f) == size);
	return stage_push(fs_stage_ops(), k->fs,
			  &(struct stage_piece){ .file = { e, dataset_renewal(k->dataset, e) },
						 .length = (uint32_t)size,
						 .data = bytes,
						 .size = size });
}

static int push_known(struct kit *k, struct entry_id e)
{
	int rc = push(k, e);

	if (rc != -ENOENT)
		return rc;
	CHECK_INT(fs_stage_ops()->lookup(k->fs, e), 0);
	return push(k, e);
}

static uint64_t all_upcalls(struct kit *k)
{
	uint64_t n = 0;

	for (int id = METRIC_UPCALL_LOOKUP; id <= METRIC_UPCALL_OTHER; id++)
		n += id == METRIC_UPCALL_FORGET ? 0 : kit_counter(k, (enum metric)id);
	return n;
}

static void test_staged_files_cost_no_upcall(void)
{
	AUTO_FREE uint32_t *order = NULL;
	AUTO_FREE char *list = NULL;
	uint64_t state = check_seed(), before = 0, after = 1;
	struct fs_status status;
	static struct kit k;

	kit_init(&k);
	kit_add_samples(&k, 3, 40, 112640);
	kit_add_file(&k, "d1/odd", 77777);
	kit_mount(&k, NULL);
	order = calloc(dataset_n_samples(k.dataset), sizeof(*order));
	list = write_list(&k, order, &state);
	atomic_store(&k.cache->may_refuse_open, true);
	CHECK_INT(kit_child(&k, "read-list", list, NULL), 0);
	fs_get_status(k.fs, &status);
	CHECK(status.is_open_refused && status.is_watch_complete);
	CHECK_INT(status.watches, 3);
	for (int i = 0; i < ATTEMPTS && after != before; i++) {
		for (uint32_t s = 0; s < dataset_n_samples(k.dataset); s++)
			CHECK_INT(push_known(&k, (struct entry_id){ s }), 0);
		before = all_upcalls(&k);
		CHECK_INT(kit_child(&k, "read-list", list, NULL), 0);
		after = all_upcalls(&k);
	}
	CHECK_U64(after, before);
	CHECK_INT(kit_child(&k, "compare", k.source, k.mountpoint), 0);
	kit_fini(&k);
}

static void check_opens(struct kit *k, const uint32_t *order, const char *list)
{
	uint32_t n = dataset_n_samples(k->dataset);

	fake_cache_forget_notes(k->cache);
	CHECK_INT(kit_child(k, "read-list", list, NULL), 0);
	CHECK(fake_cache_wait_opened(k->cache, n));
	/* One more open, at the end, drives out events that would be too many. */
	CHECK_INT(kit_child(k, "read-list", list, NULL), 0);
	CHECK(fake_cache_wait_opened(k->cache, 2 * (size_t)n));
	mutex_lock(&k->cache->mu);
	CHECK_U64(k->cache->n_opened, 2 * (uint64_t)n);
	for (uint32_t i = 0; i < 2 * n; i++)
		CHECK_INT(k->cache->opened[i], order[i % n]);
	mutex_unlock(&k->cache->mu);
	CHECK_INT(atomic_load(&k->cache->blinds), 0);
}

static void test_every_open_is_seen_once_and_in_order(void)
{
	AUTO_FREE uint32_t *order = NULL;
	AUTO_FREE char *list = NULL;
	uint64_t state = check_seed(), opens;
	struct fs_status status;
	static struct kit k;

	kit_init(&k);
	kit_add_samples(&k, 5, 200, 100);
	kit_add_file(&k, "top", 100);
	kit_mount(&k, NULL);
	order = calloc(dataset_n_samples(k.dataset), sizeof(*order));
	list = write_list(&k, order, &state);
	/* OPEN answered: the watcher tells, not the upcall too. */
	check_opens(&k, order, list);
	CHECK_U64(kit_counter(&k, METRIC_UPCALL_OPEN), 2002);
	fs_get_status(k.fs, &status);
	CHECK(!status.is_open_refused);
	/* OPEN refused: one more upcall, then none. */
	atomic_store(&k.cache->may_refuse_open, true);
	CHECK_INT(kit_child(&k, "read-list", list, NULL), 0);
	opens = kit_counter(&k, METRIC_UPCALL_OPEN);
	CHECK_U64(opens, 2003);
	fake_cache_wait_opened(k.cache, 3003);
	check_opens(&k, order, list);
	CHECK_U64(kit_counter(&k, METRIC_UPCALL_OPEN), opens);
	fs_get_status(k.fs, &status);
	CHECK(status.is_open_refused);
	CHECK_INT(status.watches, 6);
	kit_fini(&k);
}

static void test_open_answered_by_force_stays_answered(void)
{
	static const struct kit_options options = { .force_open_answered = true };
	AUTO_FREE uint32_t *order = NULL;
	AUTO_FREE char *list = NULL;
	uint64_t state = check_seed();
	struct fs_status status;
	static struct kit k;

	kit_init(&k);
	kit_add_samples(&k, 2, 20, 100);
	kit_mount(&k, &options);
	atomic_store(&k.cache->may_refuse_open, true);
	order = calloc(dataset_n_samples(k.dataset), sizeof(*order));
	list = write_list(&k, order, &state);
	CHECK_INT(kit_child(&k, "read-list", list, NULL), 0);
	CHECK_INT(kit_child(&k, "read-list", list, NULL), 0);
	CHECK_U64(kit_counter(&k, METRIC_UPCALL_OPEN), 80);
	fs_get_status(k.fs, &status);
	CHECK(!status.is_open_refused);
	kit_fini(&k);
}

static void test_forgotten_inodes_are_told_and_can_be_found_again(void)
{
	struct fs_status status;
	uint32_t n;
	static struct kit k;

	kit_init(&k);
	kit_add_samples(&k, 2, 50, 5000);
	kit_mount(&k, NULL);
	n = dataset_n_samples(k.dataset);
	fs_get_status(k.fs, &status);
	CHECK(status.inodes_known <= dataset_n_entries(k.dataset));
	CHECK_INT(kit_child(&k, "compare", k.source, k.mountpoint), 0);
	for (uint32_t s = 0; s < n; s++)
		CHECK_INT(push_known(&k, (struct entry_id){ s }), 0);
	fake_cache_forget_notes(k.cache);
	CHECK_INT(kit_child(&k, "forget", k.mountpoint, NULL), 0);
	for (uint32_t s = 0; s < n; s++) {
		CHECK(fake_cache_wait_forgotten(k.cache, (struct entry_id){ s }, 1));
		CHECK_INT(push(&k, (struct entry_id){ s }), -ENOENT);
	}
	/* What a watch holds on to, the kernel cannot forget. */
	fs_get_status(k.fs, &status);
	CHECK_U64(status.inodes_known, 2);
	CHECK_U64(kit_counter(&k, METRIC_KERNEL_INODES), 2);
	CHECK_U64(kit_counter(&k, METRIC_KERNEL_INODE_BYTES), 2048);
	for (uint32_t s = 0; s < n; s++)
		CHECK_INT(push_known(&k, (struct entry_id){ s }), 0);
	CHECK_INT(kit_child(&k, "compare", k.source, k.mountpoint), 0);
	kit_fini(&k);
}

static void test_opens_are_seen_also_after_the_kernel_forgot_everything(void)
{
	AUTO_FREE uint32_t *order = NULL;
	AUTO_FREE char *list = NULL;
	uint64_t state = check_seed();
	static struct kit k;

	kit_init(&k);
	kit_add_samples(&k, 4, 30, 100);
	kit_mount(&k, NULL);
	atomic_store(&k.cache->may_refuse_open, true);
	order = calloc(dataset_n_samples(k.dataset), sizeof(*order));
	list = write_list(&k, order, &state);
	CHECK_INT(kit_child(&k, "read-list", list, NULL), 0);
	CHECK(fake_cache_wait_opened(k.cache, 120));
	CHECK_INT(kit_child(&k, "forget", k.mountpoint, NULL), 0);
	check_opens(&k, order, list);
	kit_fini(&k);
}

static void test_dropped_pages_are_asked_for_again(void)
{
	AUTO_FREE char *file = NULL;
	struct entry_id e;
	uint64_t reads = 0;
	static struct kit k;

	kit_init(&k);
	kit_add_samples(&k, 1, 2, 112640);
	kit_mount(&k, NULL);
	file = kit_path(&k, "d0/s1");
	e = kit_entry(&k, "d0/s1");
	CHECK_INT(push_known(&k, e), 0);
	CHECK_INT(fs_stage_ops()->inval(k.fs, (struct stage_file){ .entry = e }, 0, 0), 0);
	reads = kit_counter(&k, METRIC_UPCALL_READ);
	CHECK_INT(kit_child(&k, "print", file, NULL), 0);
	CHECK(kit_counter(&k, METRIC_UPCALL_READ) > reads);
	kit_fini(&k);
}

static void test_a_changed_size_is_shown_after_inval_attr(void)
{
	AUTO_FREE char *file = NULL;
	AUTO_FREE char *behind = NULL;
	struct kit_child child;
	struct entry_id e;
	struct stat st;
	char line[64];
	static struct kit k;

	kit_init(&k);
	kit_add_samples(&k, 1, 2, 5000);
	kit_mount(&k, NULL);
	file = kit_path(&k, "d0/s1");
	e = kit_entry(&k, "d0/s1");
	CHECK_INT(kit_child(&k, "compare", k.source, k.mountpoint), 0);
	kit_add_file(&k, "d0/s1", 9000);
	CHECK(asprintf(&behind, "%s/d0/s1", k.source) > 0);
	CHECK_INT(stat(behind, &st), 0);
	dataset_update(k.dataset, e, &st);
	CHECK_INT(fs_stage_ops()->inval(k.fs, (struct stage_file){ .entry = e }, 0, 0), 0);
	CHECK_INT(fs_stage_ops()->inval_attr(k.fs, e), 0);
	kit_child_start(&child, "stat", file, NULL);
	kit_child_line(&k, &child, line, sizeof(line));
	CHECK_CONTAINS(line, "9000 ");
	CHECK_INT(kit_child_wait(&k, &child), 0);
	CHECK_INT(kit_child(&k, "compare", k.source, k.mountpoint), 0);
	kit_fini(&k);
}

/* A push while a READ of the same pages waits must wait too, and nobody else with it. */
static void test_a_push_beside_a_waiting_read_ends(void)
{
	AUTO_FREE char *file = NULL;
	AUTO_FREE char *other = NULL;
	struct kit_child child;
	struct entry_id e;
	static struct kit k;

	kit_init(&k);
	kit_add_samples(&k, 1, 2, 112640);
	kit_mount(&k, NULL);
	file = kit_path(&k, "d0/s0");
	other = kit_path(&k, "d0/s1");
	e = kit_entry(&k, "d0/s1");
	atomic_store(&k.cache->is_holding, true);
	kit_child_start(&child, "print", file, NULL);
	CHECK(fake_cache_wait_held(k.cache, 1));
	/* Other files can be looked up, pushed and read meanwhile. */
	CHECK_INT(push_known(&k, e), 0);
	CHECK_INT(kit_child(&k, "stat", other, NULL), 0);
	fake_cache_release(k.cache);
	CHECK_INT(kit_child_wait(&k, &child), 0);
	CHECK_INT(push_known(&k, kit_entry(&k, "d0/s0")), 0);
	kit_fini(&k);
}

static void refused(struct kit *k, uint32_t from, uint32_t to)
{
	for (uint32_t s = from; s < to; s++) {
		CHECK_INT(push(k, (struct entry_id){ s }), -ENOENT);
		CHECK_INT(fs_stage_ops()->lookup(k->fs, (struct entry_id){ s }), -ENOBUFS);
	}
}

/* The warm thread lists at least one part of a directory: here that is one of many small ones. */
static void test_lookups_for_pushes_are_bounded(void)
{
	static const struct kit_options options = { .inodes_ahead = 1, .lookups_ahead = 10 };
	AUTO_FREE char *list = NULL;
	struct buf_writer w;
	struct fs_status before, after;
	static struct kit k;
	char path[256];

	kit_init(&k);
	kit_add_samples(&k, 2, 1, 5000);
	for (int i = 0; i < 40; i++) {
		snprintf(path, sizeof(path), "d1/x%02d", i);
		kit_add_file(&k, path, 5000);
	}
	kit_mount(&k, &options);
	CHECK_INT(dataset_n_samples(k.dataset), 42);
	fs_get_status(k.fs, &before);
	for (uint32_t s = 2; s < 12; s++)
		CHECK_INT(push_known(&k, (struct entry_id){ s }), 0);
	refused(&k, 12, 42);
	CHECK_U64(kit_counter(&k, METRIC_STAGE_LOOKUPS_REFUSED), 30);
	fs_get_status(k.fs, &after);
	CHECK(after.inodes_known <= before.inodes_known + 10);
	/* The reader opens five of them: there is room for five more. */
	buf_writer_init(&w);
	for (uint32_t s = 2; s < 7; s++) {
		CHECK_INT(dataset_path(k.dataset, (struct entry_id){ s }, path, sizeof(path)), 0);
		buf_printf(&w, "%s/%s\n", k.mountpoint, path);
	}
	list = check_write_file("list", w.data, w.size);
	buf_writer_fini(&w);
	CHECK_INT(kit_child(&k, "read-list", list, NULL), 0);
	CHECK(fake_cache_wait_opened(k.cache, 5));
	for (uint32_t s = 12; s < 17; s++)
		CHECK_INT(push_known(&k, (struct entry_id){ s }), 0);
	refused(&k, 17, 42);
	/* What the kernel forgets makes room for all ten. */
	CHECK_INT(kit_child(&k, "forget", k.mountpoint, NULL), 0);
	for (uint32_t s = 2; s < 17; s++)
		CHECK(fake_cache_wait_forgotten(k.cache, (struct entry_id){ s }, 1));
	for (uint32_t s = 17; s < 27; s++)
		CHECK_INT(push_known(&k, (struct entry_id){ s }), 0);
	refused(&k, 27, 42);
	kit_fini(&k);
}

static const struct check_test tests[] = {
	{ "staged_files_cost_no_upcall", test_staged_files_cost_no_upcall },
	{ "every_open_is_seen_once_and_in_order", test_every_open_is_seen_once_and_in_order },
	{ "open_answered_by_force_stays_answered", test_open_answered_by_force_stays_answered },
	{ "forgotten_inodes_are_told_and_can_be_found_again",
	  test_forgotten_inodes_are_told_and_can_be_found_again },
	{ "opens_are_seen_also_after_the_kernel_forgot_everything",
	  test_opens_are_seen_also_after_the_kernel_forgot_everything },
	{ "dropped_pages_are_asked_for_again", test_dropped_pages_are_asked_for_again },
	{ "a_changed_size_is_shown_after_inval_attr",
	  test_a_changed_size_is_shown_after_inval_attr },
	{ "lookups_for_pushes_are_bounded", test_lookups_for_pushes_are_bounded },
	{ "a_push_beside_a_waiting_read_ends", test_a_push_beside_a_waiting_read_ends },
};

KIT_MAIN(tests)
