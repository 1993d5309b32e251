/* SPDX-License-Identifier: Apache-2.0 */
/* What the page cache that Linux would have had does to the numbers of stall accounting, where the
 * source's client keeps pages, where it keeps none, and where that is not known. */
#include <string.h>

#include "stall_kit.h"

/* Two passes over the same samples. */
static void play(uint64_t ghost_bytes, enum stall_pages pages, bool is_warm,
		 struct stall_numbers *ret)
{
	struct stall_params params = { .n_units = 1000, .ghost_bytes = ghost_bytes };
	struct stall_job job = { .n_ranks = 1, .workers = 4, .prefetch = 2, .batch = 7 };
	struct stall_truth truth;
	struct stall *s;

	CHECK_INT(stall_new(&params, &s), 0);
	CHECK_INT(stall_set_job(s, &job), 0);
	for (uint32_t i = 0; is_warm && i < some_case.steps * some_case.batch; i++)
		stall_had_pages(s, (struct unit_id){ i }, 100000);
	stall_case_controls(s, &some_case, 3);
	stall_case_play(s, &some_case, 0, 1, false, &truth);
	stall_case_play(s, &some_case, 1, 2, false, &truth);
	stall_set_pages(s, pages); /* known late: it counts when a pass is judged */
	stall_judge(s, 0, true);
	stall_get_rank(s, 0, ret);
	CHECK_U64(ret->judged, 2);
	CHECK(ret->lower_ns <= ret->estimate_ns && ret->estimate_ns <= ret->upper_ns);
	CHECK(ret->page_cache_ns <= ret->upper_ns);
	stall_free(s);
}

static void source_that_keeps_no_pages_has_no_page_cache(void)
{
	struct stall_numbers none, not_kept;

	play(0, STALL_PAGES_UNKNOWN, false, &none);
	play(1ull << 40, STALL_PAGES_NOT_KEPT, true, &not_kept);
	CHECK(none.lower_ns > 0 && none.page_cache_ns == 0);
	CHECK_U64(not_kept.lower_ns, none.lower_ns);
	CHECK_U64(not_kept.estimate_ns, none.estimate_ns);
	CHECK_U64(not_kept.upper_ns, none.upper_ns);
	CHECK_U64(not_kept.page_cache_ns, 0);
	CHECK_U64(not_kept.ghost_reads, 0);
}

/* Lower bound and estimate take off what Linux may have kept, the upper bound does not. */
static void upper_bound_holds_whatever_linux_keeps(void)
{
	struct stall_numbers none, kept, unknown;

	play(0, STALL_PAGES_UNKNOWN, false, &none);
	play(1ull << 40, STALL_PAGES_KEPT, false, &kept);
	play(1ull << 40, STALL_PAGES_UNKNOWN, false, &unknown);
	CHECK(kept.lower_ns < none.lower_ns && kept.estimate_ns < none.estimate_ns);
	CHECK_U64(kept.upper_ns, none.upper_ns);
	CHECK_U64(kept.estimate_ns + kept.page_cache_ns, none.estimate_ns);
	CHECK_U64(kept.ghost_reads, some_case.steps * some_case.batch + some_case.controls);
	CHECK_U64(unknown.lower_ns, kept.lower_ns);
	CHECK_U64(unknown.estimate_ns, kept.estimate_ns);
	CHECK_U64(unknown.upper_ns, kept.upper_ns);
}

static void pages_of_before_are_no_merit_of_the_first_pass(void)
{
	struct stall_numbers cold, warm;

	play(1ull << 40, STALL_PAGES_KEPT, false, &cold);
	play(1ull << 40, STALL_PAGES_KEPT, true, &warm);
	CHECK(cold.lower_ns > 0);
	CHECK_U64(warm.lower_ns, 0);
	CHECK_U64(warm.estimate_ns, 0);
	CHECK_U64(warm.upper_ns, cold.upper_ns);
	CHECK(warm.page_cache_ns > cold.page_cache_ns);
}

/* The kernel read on: nobody came for that, and Linux would have it. */
static void pages_that_nobody_came_for_are_no_reads(void)
{
	struct stall_params params = { .n_units = 1000, .ghost_bytes = 1ull << 40 };
	struct stall_job job = { .n_ranks = 1, .workers = 4, .prefetch = 2, .batch = 7 };
	struct stall_numbers cold, warm;
	struct stall_truth truth;
	struct stall_node node;
	struct stall *s;

	play(1ull << 40, STALL_PAGES_KEPT, false, &cold);
	CHECK_INT(stall_new(&params, &s), 0);
	CHECK_INT(stall_set_job(s, &job), 0);
	for (uint32_t i = 0; i < some_case.steps * some_case.batch; i++)
		CHECK_INT(stall_read(s, &(struct stall_read){ .is_nobodys = true,
							      .is_record = true,
							      .is_control = true,
							      .read_class = READ_MISS,
							      .unit = { i },
							      .bytes = 100000 }),
			  0);
	stall_get_node(s, &node);
	CHECK_U64(node.reads + node.control_reads + node.unplaced_reads, 0);
	stall_case_controls(s, &some_case, 3);
	stall_case_play(s, &some_case, 0, 1, false, &truth);
	stall_set_pages(s, STALL_PAGES_KEPT);
	stall_judge(s, 0, true);
	stall_get_rank(s, 0, &warm);
	CHECK_U64(warm.judged, 1);
	CHECK(cold.lower_ns > 0);
	CHECK_U64(warm.lower_ns + warm.estimate_ns, 0);
	stall_free(s);
}

/* 700 samples of which every tenth is waited for, batches of 20 ms a sample. */
static void play_late(bool is_late, struct stall_numbers *ret)
{
	struct stall_params params = { .n_units = 1000 };
	struct stall_job job = { .n_ranks = 1, .workers = 4, .prefetch = 2, .batch = 7 };
	struct stall *s;

	CHECK_INT(stall_new(&params, &s), 0);
	CHECK_INT(stall_set_job(s, &job), 0);
	stall_case_controls(s, &some_case, 3);
	for (uint64_t i = 0; i < 700; i++) {
		struct stall_read read = { .has_place = true,
					   .is_late = is_late && i % 10,
					   .read_class = i % 10 ? READ_STAGED : READ_MISS,
					   .index = i,
					   .length = 700,
					   .unit = { (uint32_t)i },
					   .bytes = 100000,
					   .opened_ns = 1000000000 + (i / 28 * 7 + i % 7) * 20000000,
					   .wait_ns = i % 10 ? 0 : 15000000 };

		CHECK_INT(stall_read(s, &read), 0);
	}
	stall_judge(s, 0, true);
	stall_get_rank(s, 0, ret);
	CHECK_U64(ret->judged, 1);
	stall_free(s);
}

/* Gaps between those are no time of decoding: less is claimed, and what no schedule exceeds is the same. */
static void late_opens_say_nothing_of_decoding(void)
{
	struct stall_numbers seen, late;

	play_late(false, &seen);
	play_late(true, &late);
	CHECK(seen.prep_wait_ns > 0);
	CHECK_U64(late.prep_wait_ns, 0);
	CHECK(late.estimate_ns < seen.estimate_ns);
	CHECK(late.lower_ns <= seen.lower_ns);
	CHECK_U64(late.upper_ns, seen.upper_ns);
}

/* Each sample is opened again right away: told with the first open, or as one more, or not at all
 * (0), or of seven in ten, as inotify has hidden the others (3), or of every tenth only (4), or of
 * those whose READ took its time, as inotify has hidden all others (5). */
static void play_twice(uint64_t ghost_bytes, enum stall_pages pages, int how,
		       struct stall_numbers *ret, struct stall_node *node)
{
	struct stall_params params = { .n_units = 1000, .ghost_bytes = ghost_bytes };
	struct stall_job job = { .n_ranks = 1, .workers = 4, .prefetch = 2, .batch = 7 };
	struct stall *s;

	CHECK_INT(stall_new(&params, &s), 0);
	CHECK_INT(stall_set_job(s, &job), 0);
	stall_case_controls(s, &some_case, 3);
	for (uint64_t i = 0; i < 700; i++) {
		uint64_t at = (i / 28 * 7 + i % 7) * 20000000;
		struct stall_read read = { .has_place = true,
					   .read_class = i % 10 ? READ_STAGED : READ_MISS,
					   .index = i,
					   .length = 700,
					   .unit = { (uint32_t)i % 1000 },
					   .bytes = 100000,
					   .opened_ns = 1000000000 + at,
					   .wait_ns = i % 10 ? 0 : 15000000,
					   .again = how == 1 || (how == 3 && i % 10 < 7) ||
						    (how == 4 && i % 10 == 3) ||
						    (how == 5 && i % 10 == 0) };

		CHECK_INT(stall_read(s, &read), 0);
		read.is_again = true;
		read.wait_ns = 0;
		if (how == 2)
			CHECK_INT(stall_read(s, &read), 0);
	}
	stall_set_pages(s, pages);
	stall_judge(s, 0, true);
	stall_get_rank(s, 0, ret);
	stall_get_node(s, node);
	CHECK_U64(ret->judged, 1);
	CHECK_U64(ret->reads, 700);
	CHECK(ret->lower_ns <= ret->estimate_ns && ret->estimate_ns <= ret->upper_ns);
	stall_free(s);
}

/* A source whose client keeps no pages would have been read twice for each. */
static void sample_that_is_opened_again_is_read_again_without_us(void)
{
	struct stall_numbers once, twice, later, most, few, slow, kept;
	struct stall_node node;

	play_twice(0, STALL_PAGES_UNKNOWN, 0, &once, &node);
	play_twice(0, STALL_PAGES_UNKNOWN, 1, &twice, &node);
	play_twice(0, STALL_PAGES_UNKNOWN, 2, &later, &node);
	CHECK_U64(node.reads, 700 + some_case.controls);
	play_twice(0, STALL_PAGES_UNKNOWN, 3, &most, &node);
	play_twice(0, STALL_PAGES_UNKNOWN, 4, &few, &node);
	play_twice(0, STALL_PAGES_UNKNOWN, 5, &slow, &node);
	CHECK_U64(later.upper_ns, twice.upper_ns);
	CHECK_U64(most.upper_ns, twice.upper_ns);
	CHECK_U64(slow.upper_ns, twice.upper_ns);
	CHECK_U64(slow.estimate_ns, twice.estimate_ns);
	/* A tenth again is a tenth again. */
	CHECK(few.upper_ns > once.upper_ns);
	CHECK(few.upper_ns - once.upper_ns < (twice.upper_ns - once.upper_ns) / 4);
	CHECK(few.estimate_ns - once.estimate_ns < (twice.estimate_ns - once.estimate_ns) / 4);
	CHECK_U64(later.estimate_ns, twice.estimate_ns);
	/* 60 ms for each of 700, by four workers. */
	CHECK(twice.estimate_ns > once.estimate_ns + 9000000000ull);
	CHECK(twice.upper_ns > once.upper_ns + 9000000000ull);
	CHECK_U64(twice.lower_ns, once.lower_ns);
	play_twice(1ull << 40, STALL_PAGES_KEPT, 1, &kept, &node);
	CHECK_U64(kept.upper_ns, twice.upper_ns);
	CHECK(kept.estimate_ns <= once.estimate_ns);
}

static const struct check_test tests[] = {
	{ "pages_that_nobody_came_for_are_no_reads", pages_that_nobody_came_for_are_no_reads },
	{ "late_opens_say_nothing_of_decoding", late_opens_say_nothing_of_decoding },
	{ "sample_that_is_opened_again_is_read_again_without_us",
	  sample_that_is_opened_again_is_read_again_without_us },
	{ "source_that_keeps_no_pages_has_no_page_cache",
	  source_that_keeps_no_pages_has_no_page_cache },
	{ "upper_bound_holds_whatever_linux_keeps", upper_bound_holds_whatever_linux_keeps },
	{ "pages_of_before_are_no_merit_of_the_first_pass",
	  pages_of_before_are_no_merit_of_the_first_pass },
};

CHECK_MAIN(tests)
