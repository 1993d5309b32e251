/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that change, shrink, grow, vanish or stop being files while the cache holds or reads them:
 * no answer mixes versions, and the kernel's copies are invalidated in the order that it needs.
 */
#include <stdio.h>
#include <sys/stat.h>

#include "cache_rig.h"
#include "src/cache/cache_priv.h"

#define MIB (1u << 20)

/* One READ that is in flight while the file is replaced by one of another size. */
static struct rig *change_under_a_read(uint64_t before, uint64_t after)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1, .size = before });
	struct rig_read *r;

	fault_io_pause(rig->io);
	r = rig_read_start(rig, 0, 0, 131072);
	fault_io_wait_held(rig->io, 1);
	rig_replace(rig, 0, after);
	fault_io_resume(rig->io);
	rig_read_wait(r);
	rig_check_bytes(r, 1, after);
	CHECK_INT(r->read.read_class, READ_MISS);
	rig_read_free(r);
	CHECK_U64(dataset_size(rig->dataset, (struct entry_id){ 0 }), after);
	RIG_UNTIL(rig_find(rig, RIG_INVAL, 0, 0) >= 0);
	return rig;
}

static void grown_file_loses_attributes_before_and_pages_after_the_answer(void)
{
	struct rig *rig = change_under_a_read(5000, 9000);
	int attr = rig_find(rig, RIG_ATTR, 0, 0), answer = rig_find(rig, RIG_ANSWER, 0, 0);

	CHECK(attr >= 0 && attr < answer);
	CHECK(rig_find(rig, RIG_INVAL, 0, 0) > answer);
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_CHANGED), 1);
	rig_free(rig);
}

static void shrunk_file_is_invalidated_after_the_answer_only(void)
{
	struct rig *rig = change_under_a_read(9000, 5000);

	CHECK_INT(rig_find(rig, RIG_ATTR, 0, 0), -1);
	CHECK(rig_find(rig, RIG_INVAL, 0, 0) > rig_find(rig, RIG_ANSWER, 0, 0));
	rig_free(rig);
}

static void invalidation_waits_for_every_read_that_was_in_flight(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1, .size = 3 * MIB });
	struct rig_read *first, *second;

	fault_io_pause(rig->io);
	first = rig_read_start(rig, 0, 0, 4096);
	second = rig_read_start(rig, 0, 2 * MIB, 4096);
	fault_io_wait_held(rig->io, 2);
	rig_replace(rig, 0, 3 * MIB);
	fault_io_resume(rig->io);
	rig_read_wait(first);
	rig_read_wait(second);
	rig_check_bytes(first, 1, 3 * MIB);
	rig_check_bytes(second, 1, 3 * MIB);
	RIG_UNTIL(rig_find(rig, RIG_INVAL, 0, 0) >= 0);
	CHECK_INT(rig_find(rig, RIG_ANSWER, 0, (uint32_t)rig_find(rig, RIG_INVAL, 0, 0)), -1);
	rig_read_free(first);
	rig_read_free(second);
	rig_free(rig);
}

static void read_of_a_grown_file_does_not_wait_for_stagers(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 4, .size = 5000 });
	struct rig_read *r;

	/* Both stagers hang in an invalidation of pages. */
	rig_hold_stage(rig, true);
	for (uint32_t f = 0; f < 3; f++) {
		rig_remove(rig, f);
		CHECK_INT(rig_read_status(rig, f, 0, 4096), -ENOENT);
	}
	rig_wait_held(rig, 2);
	rig_replace(rig, 3, 9000);
	r = rig_read_start(rig, 3, 0, 65536);
	rig_read_wait(r); /* or the test hangs, as the kernel would */
	rig_check_bytes(r, 1, 9000);
	rig_read_free(r);
	rig_hold_stage(rig, false);
	rig_free(rig);
}

static void pieces_of_two_versions_do_not_meet_in_one_answer(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1, .size = 9 * MIB });

	rig_read_check(rig, 0, 0, 4096);
	rig_replace(rig, 0, 9 * MIB);
	rig_read_check(rig, 0, MIB - 4096, 8192); /* one piece is here, the other is not */
	CHECK_INT(rig_read_check(rig, 0, 0, 4096), READ_ARENA); /* the new version */
	rig_read_check(rig, 0, 7 * MIB, 4096);
	rig_replace(rig, 0, 8 * MIB + 7);
	rig_read_check(rig, 0, 8 * MIB - 4096, 8192);
	rig_free(rig);
}

static void all_who_joined_get_the_new_version(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1, .size = 5000 });
	struct rig_read *reads[50];

	fault_io_pause(rig->io);
	for (int i = 0; i < 50; i++)
		reads[i] = rig_read_start(rig, 0, (uint64_t)i * 64, 65536);
	fault_io_wait_held(rig->io, 1);
	rig_replace(rig, 0, 70000);
	fault_io_resume(rig->io);
	for (int i = 0; i < 50; i++) {
		rig_read_wait(reads[i]);
		rig_check_bytes(reads[i], 1, 70000);
		rig_read_free(reads[i]);
	}
	CHECK_U64(fault_io_seen(rig->io), 2);
	rig_free(rig);
}

static void vanished_file_is_gone_and_may_come_back(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 2, .size = 3 * MIB });

	rig_read_check(rig, 0, 0, 4096);
	rig_remove(rig, 0);
	CHECK_INT(rig_read_status(rig, 0, MIB, 4096), -ENOENT);
	CHECK_INT(rig_read_status(rig, 0, 0, 4096), -ENOENT); /* the arena has let go of it */
	RIG_UNTIL(rig_find(rig, RIG_INVAL, 0, 0) >= 0);
	rig_read_check(rig, 1, 0, 4096);
	rig_replace(rig, 0, 2 * MIB);
	rig_read_check(rig, 0, 0, 4096);
	rig_free(rig);
}

static void directory_in_place_of_a_file_is_an_error(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1, .size = 5000 });
	AUTO_FREE char *path = rig_path(rig, 0);

	rig_remove(rig, 0);
	CHECK_INT(mkdir(path, 0755), 0);
	CHECK_INT(rig_read_status(rig, 0, 0, 4096), -EISDIR);
	CHECK_INT(rmdir(path), 0);
	rig_replace(rig, 0, 6000);
	rig_read_check(rig, 0, 0, 4096);
	rig_free(rig);
}

static void revalidation_finds_what_the_kernel_would_hide(void)
{
	struct rig *rig =
		rig_new(&(struct rig_options){ .n = 3, .size = 5000, .revalidate_ns = NS_PER_MS });

	for (uint32_t f = 0; f < 3; f++)
		rig_read_check(rig, f, 0, 4096);
	rig_replace(rig, 0, 5000);
	rig_remove(rig, 1);
	rig_wait_metric(rig, METRIC_SOURCE_CHANGED, 2);
	RIG_UNTIL(rig_count(rig, RIG_INVAL, 0) >= 1 && rig_count(rig, RIG_INVAL, 1) >= 1);
	rig_read_check(rig, 0, 0, 4096);
	CHECK_INT(rig_read_status(rig, 1, 0, 4096), -ENOENT);
	CHECK_INT(rig_read_check(rig, 2, 0, 4096), READ_ARENA);
	CHECK_U64(rig_count(rig, RIG_INVAL, 2), 0);
	rig_free(rig);
}

static void stop_does_not_lose_a_read_that_waits_for_attributes(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 8, .size = 5000 });
	struct rig_read *reads[8];

	fault_io_pause(rig->io);
	for (uint32_t f = 0; f < 8; f++)
		reads[f] = rig_read_start(rig, f, 0, 65536);
	fault_io_wait_held(rig->io, 8);
	for (uint32_t f = 0; f < 8; f++)
		rig_replace(rig, f, 50000);
	fault_io_resume(rig->io);
	cache_stop(rig->cache);
	for (uint32_t f = 0; f < 8; f++) {
		CHECK_INT(reads[f]->n_done, 1);
		rig_check_bytes(reads[f], 1, 50000);
		rig_read_free(reads[f]);
	}
	rig_free(rig);
}

static void estale_of_the_source_is_an_errno_like_any_other(void)
{
	struct fault_io_rule fail = { .kind = FAULT_IO_FAIL, .status = -ESTALE };
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1, .size = 5000 });

	fault_io_set(rig->io, &fail);
	CHECK_INT(rig_read_status(rig, 0, 0, 4096), -ESTALE);
	CHECK_U64(fault_io_seen(rig->io), 2);
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_CHANGED), 0);
	fault_io_set(rig->io, NULL);
	rig_read_check(rig, 0, 0, 4096);
	rig_free(rig);
}

/* The kernel sends no READ for an empty file, so its open is all there is. */
static void empty_file_that_was_opened_is_seen_to_grow(void)
{
	struct rig *rig =
		rig_new(&(struct rig_options){ .n = 2, .size = 0, .revalidate_ns = NS_PER_MS });

	cache_note_open(rig->cache, rig_entry(rig, 1));
	rig_replace(rig, 1, 5000);
	rig_wait_metric(rig, METRIC_SOURCE_CHANGED, 1);
	RIG_UNTIL(rig_count(rig, RIG_ATTR, 1) >= 1);
	CHECK_U64(dataset_size(rig->dataset, rig_entry(rig, 1)), 5000);
	rig_free(rig);
}

static void revalidation_is_spread_over_its_interval(void)
{
	CHECK_U64(revalidate_gap_ns(300 * NS_PER_S, 0), 300 * NS_PER_S);
	CHECK_U64(revalidate_gap_ns(300 * NS_PER_S, 1), 300 * NS_PER_S);
	CHECK_U64(revalidate_gap_ns(300 * NS_PER_S, 3000), NS_PER_S / 10);
	CHECK_U64(revalidate_gap_ns(300 * NS_PER_S, 300000), NS_PER_MS);
	CHECK_U64(revalidate_gap_ns(300 * NS_PER_S, 100000000), NS_PER_MS); /* the most there is */
	CHECK_U64(revalidate_gap_ns(NS_PER_S, 1u << 31), NS_PER_MS);
}

/* Files are counted as touched once, however often they are read, opened and forgotten. */
static void touched_files_are_counted_once(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 4, .size = 0 });

	for (uint32_t i = 0; i < 12; i++)
		cache_note_open(rig->cache, rig_entry(rig, i % 4));
	CHECK_U64(atomic_load(&rig->cache->n_touched), 4);
	cache_note_forget(rig->cache, rig_entry(rig, 2));
	cache_note_forget(rig->cache, rig_entry(rig, 2));
	CHECK_U64(atomic_load(&rig->cache->n_touched), 3);
	rig_free(rig);
}

/* Of a sample that the plan fetches, the first piece waits for a slot and the second is here: the
 * change ends the fetch while its pieces are being dropped. */
static void change_of_a_sample_that_waits_for_its_first_piece(void)
{
	const uint64_t sample_sizes[] = { 8 * MIB, 2 * MIB };
	struct fault_io_rule hold = { .kind = FAULT_IO_HOLD, .repeat = 8 };
	struct rig *rig = rig_new(&(struct rig_options){ .n = 2,
							 .sizes = sample_sizes,
							 .order = "sequential",
							 .sample_max = 8 * MIB,
							 .arena_limit = 128 * MIB,
							 .threads = 16,
							 .is_not_started = true });
	struct cache_status status;
	struct stat st;
	struct err err;

	fault_io_set(rig->io, &hold);
	CHECK_INT(cache_start(rig->cache, &err), 0);
	fault_io_wait_held(rig->io, 8); /* all slots are sample 0's */
	RIG_UNTIL((cache_get_status(rig->cache, &status), status.objects == 10));
	CHECK_INT(rig_read_check(rig, 1, MIB, 4096), READ_LATE);
	rig_replace(rig, 1, 2 * MIB);
	AUTO_FREE char *path = rig_path(rig, 1);

	CHECK_INT(stat(path, &st), 0);
	change_file(rig->cache, rig_entry(rig, 1), &st);
	CHECK_U64(rig_metric(rig, METRIC_SOURCE_CHANGED), 1);
	fault_io_resume(rig->io);
	rig_read_check(rig, 1, MIB - 4096, 8192);
	rig_read_check(rig, 0, 0, 4096);
	rig_free(rig);
}

static const struct check_test tests[] = {
	{ "grown_file_loses_attributes_before_and_pages_after_the_answer",
	  grown_file_loses_attributes_before_and_pages_after_the_answer },
	{ "shrunk_file_is_invalidated_after_the_answer_only",
	  shrunk_file_is_invalidated_after_the_answer_only },
	{ "invalidation_waits_for_every_read_that_was_in_flight",
	  invalidation_waits_for_every_read_that_was_in_flight },
	{ "read_of_a_grown_file_does_not_wait_for_stagers",
	  read_of_a_grown_file_does_not_wait_for_stagers },
	{ "pieces_of_two_versions_do_not_meet_in_one_answer",
	  pieces_of_two_versions_do_not_meet_in_one_answer },
	{ "all_who_joined_get_the_new_version", all_who_joined_get_the_new_version },
	{ "vanished_file_is_gone_and_may_come_back", vanished_file_is_gone_and_may_come_back },
	{ "directory_in_place_of_a_file_is_an_error", directory_in_place_of_a_file_is_an_error },
	{ "revalidation_finds_what_the_kernel_would_hide",
	  revalidation_finds_what_the_kernel_would_hide },
	{ "estale_of_the_source_is_an_errno_like_any_other",
	  estale_of_the_source_is_an_errno_like_any_other },
	{ "empty_file_that_was_opened_is_seen_to_grow",
	  empty_file_that_was_opened_is_seen_to_grow },
	{ "revalidation_is_spread_over_its_interval", revalidation_is_spread_over_its_interval },
	{ "touched_files_are_counted_once", touched_files_are_counted_once },
	{ "change_of_a_sample_that_waits_for_its_first_piece",
	  change_of_a_sample_that_waits_for_its_first_piece },
	{ "stop_does_not_lose_a_read_that_waits_for_attributes",
	  stop_does_not_lose_a_read_that_waits_for_attributes },
};
CHECK_MAIN(tests)
