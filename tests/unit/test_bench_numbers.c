/* SPDX-License-Identifier: Apache-2.0 */
/* From times to figures: an epoch of two ranks that can be followed by hand, and what the cache
 * has removed of it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/bench/bench_priv.h"
#include "check.h"
#include "dataset_kit.h"

#define MS UINT64_C(1000000)
#define NEAR(a, b) CHECK(fabs((a) - (b)) < 1e-9)

enum { RANKS = 2, STEPS = 3, EACH = 4 };

struct bed {
	struct bench_args args;
	struct bench_setup setup;
	struct bench_block *block;
	struct bench_result result;
	struct bench_step step[RANKS][STEPS];
	struct bench_read read[RANKS][EACH];
};

/* Rank 0 waits 10, 0 and 20 ms, rank 1 30, 0 and 0; each step computes 100 ms. */
static const uint64_t waits[RANKS][STEPS] = { { 10, 0, 20 }, { 30, 0, 0 } };
/* Samples 1 and 2 are read by both, the second one twice. */
static const uint32_t samples[RANKS][EACH] = { { 0, 1, 2, 2 }, { 1, 2, 3, 0 } };

static void fill_rank(struct bed *bed, uint32_t r)
{
	struct bench_rank *rank = &bed->block->rank[r];
	uint64_t at = (1000 + r) * MS; /* the second one begins a millisecond later */

	*rank = (struct bench_rank){ .t_start = at,
				     .n_samples = EACH,
				     .n_steps = STEPS,
				     .sample = samples[r],
				     .step = bed->step[r],
				     .read = bed->read[r] };
	for (uint32_t k = 0; k < STEPS; k++) {
		struct bench_step *t = &bed->step[r][k];

		t->t_request = at;
		t->t_ready = at + waits[r][k] * MS;
		t->t_computed = t->t_ready + 100 * MS;
		t->t_synced = t->t_computed + 5 * MS; /* for the other rank */
		at = t->t_synced;
	}
	rank->t_end = at;
	for (uint32_t p = 0; p < EACH; p++)
		bed->read[r][p] = (struct bench_read){ .t_start = 1000 * MS,
						       .t_end = (1000 + r * EACH + p) * MS,
						       .bytes = 1000,
						       .sum = 1u << p,
						       .sample = samples[r][p] };
}

static struct bed *bed_new(void)
{
	static const char *const none[] = { NULL };
	static unsigned n_trees;
	AUTO_FREE char *root = NULL;
	char name[16];
	struct bed *bed = calloc(1, sizeof(*bed));

	snprintf(name, sizeof(name), "dataset%u", n_trees++);
	root = kit_tree(name, none);
	kit_file(root, "a", 1000);
	kit_file(root, "b", 2000);
	kit_file(root, "c", 4000);
	kit_file(root, "d", 8000);
	kit_file(root, "e", 16000); /* nobody reads it */
	bed->setup = (struct bench_setup){ .args = &bed->args,
					   .ds = kit_open(root, (struct kit_open){ 0 }),
					   .ranks = RANKS };
	bed->setup.n_units = dataset_n_samples(bed->setup.ds);
	bed->block = calloc(1, sizeof(*bed->block) + RANKS * sizeof(bed->block->rank[0]));
	bed->block->n_ranks = RANKS;
	for (uint32_t r = 0; r < RANKS; r++)
		fill_rank(bed, r);
	return bed;
}

static void bed_free(struct bed *bed)
{
	dataset_free(bed->setup.ds);
	free(bed->result.rank_stall);
	free(bed->block);
	free(bed);
}

static const struct bench_result *run(struct bed *bed)
{
	CHECK_INT(bench_numbers(&bed->setup, bed->block, &bed->result), 0);
	return &bed->result;
}

static void waits_are_from_asking_to_having(void)
{
	struct bed *bed = bed_new();
	const struct bench_result *r = run(bed);

	CHECK_U64(r->steps, RANKS * STEPS);
	NEAR(r->rank_stall[0], 0.030);
	NEAR(r->rank_stall[1], 0.030);
	NEAR(r->stall_seconds, 0.030); /* mean of ranks */
	NEAR(r->first_wait, 0.030);    /* the longer one */
	NEAR(r->stall_p50, 0);
	NEAR(r->stall_p99, 0.030);
	NEAR(r->stall_max, 0.030);
	NEAR(r->compute_seconds, 0.300);
	NEAR(r->sync_seconds, 0.015);
	bed_free(bed);
}

static void an_epoch_is_from_the_first_to_the_last(void)
{
	struct bed *bed = bed_new();
	const struct bench_result *r = run(bed);

	CHECK_U64(r->t_begin, 1000 * MS);
	NEAR(r->seconds, 0.346); /* rank 1 begins and ends a millisecond later */
	bed_free(bed);
}

/* Of rank 0: 200 of 230 ms after the first step; of rank 1: 200 of 210. */
static void accelerator_use_without_the_first_step(void)
{
	struct bed *bed = bed_new();
	double want = (100 * 200.0 / 230 + 100 * 200.0 / 210) / 2;

	NEAR(run(bed)->au_percent, want);
	bed_free(bed);
}

static void one_step_says_nothing_of_use(void)
{
	struct bed *bed = bed_new();

	bed->block->rank[0].n_steps = bed->block->rank[1].n_steps = 1;
	CHECK(isnan(run(bed)->au_percent));
	bed_free(bed);
}

static void reads_one_by_one(void)
{
	struct bed *bed = bed_new();
	const struct bench_result *r = run(bed);
	uint64_t n = 0;

	CHECK_U64(r->samples, RANKS * EACH);
	NEAR(r->bytes, 8000); /* as read() said, whatever the files' sizes */
	CHECK_U64(r->sum, 2 * 15);
	NEAR(r->read_seconds, 0.028); /* 0 to 7 ms */
	NEAR(r->read_p50, 0.003);
	NEAR(r->read_p99, 0.007);
	for (uint32_t i = 0; i < BENCH_LATENCIES; i++)
		n += r->latency[i];
	CHECK_U64(n, RANKS * EACH);
	CHECK_U64(r->latency[0], 1); /* the one of no time */
	bed_free(bed);
}

static void each_byte_once_is_what_the_source_must_give(void)
{
	struct bed *bed = bed_new();

	NEAR(run(bed)->unique_bytes, 15000); /* a to d, e never */
	bed_free(bed);
}

static void waits_fall_into_their_part_of_the_epoch(void)
{
	struct bed *bed = bed_new();
	const struct bench_result *r = run(bed);
	double sum = 0, begin = 0, middle = 0;

	for (uint32_t b = 0; b < BENCH_BINS; b++) {
		sum += r->stall_bin[b];
		begin += b < BENCH_BINS / 10 ? r->stall_bin[b] : 0;
		middle += b >= BENCH_BINS / 10 && b < BENCH_BINS / 2 ? r->stall_bin[b] : 0;
	}
	NEAR(sum, 0.030);   /* of rank 0, all of it */
	NEAR(begin, 0.010); /* its first wait */
	NEAR(middle, 0);
	bed_free(bed);
}

static void bins_of_latencies_grow_by_quarters(void)
{
	NEAR(bench_latency_edge(0), 0);
	NEAR(bench_latency_edge(4), 2e-6);
	NEAR(bench_latency_edge(40), 1024e-6);
	for (uint32_t i = 1; i < BENCH_LATENCIES; i++)
		CHECK(bench_latency_edge(i) > bench_latency_edge(i - 1));
	CHECK(bench_latency_edge(BENCH_LATENCIES - 1) > 10); /* seconds: a source that hangs */
}

/* --- what was removed --- */

static struct bench_result stalled(enum bench_side side, uint64_t epoch, double stall, double sync)
{
	return (struct bench_result){
		.side = side, .epoch = epoch, .stall_seconds = stall, .sync_seconds = sync
	};
}

static void the_first_epoch_is_held_against_a_cold_source(void)
{
	struct bench_setup setup = { .ranks = 1, .epochs = 2, .first_epoch = 3 };
	struct bench_result all[] = {
		stalled(SIDE_SOURCE, 3, 10, 0),   stalled(SIDE_SOURCE, 4, 9, 0),
		stalled(SIDE_PAGECACHE, 3, 8, 0), stalled(SIDE_PAGECACHE, 4, 2, 0),
		stalled(SIDE_CLAIRFS, 3, 1, 0),   stalled(SIDE_CLAIRFS, 4, 0.5, 0)
	};
	struct bench_report r = { .setup = &setup, .result = all, .n_results = ARRAY_LEN(all) };

	NEAR(bench_removed(&r, 3), 9);   /* not 7: nobody had it before */
	NEAR(bench_removed(&r, 4), 1.5); /* not 8.5: Linux would have kept some */
	NEAR(bench_removed_total(&r), 10.5);
	all[0].epoch = 99; /* without a cold one there is the other */
	NEAR(bench_removed(&r, 3), 7);
	all[3].epoch = 99;
	NEAR(bench_removed(&r, 4), 8.5);
}

static void the_cache_may_have_cost_something(void)
{
	struct bench_setup setup = { .ranks = 1, .epochs = 1 };
	struct bench_result all[] = { stalled(SIDE_SOURCE, 0, 1, 0),
				      stalled(SIDE_CLAIRFS, 0, 3, 0) };
	struct bench_report r = { .setup = &setup, .result = all, .n_results = ARRAY_LEN(all) };

	NEAR(bench_removed(&r, 0), -2);
}

/* One's stall is the others' wait. */
static void waits_for_other_ranks_count_where_there_are_some(void)
{
	struct bench_setup setup = { .ranks = 1, .epochs = 1 };
	struct bench_result all[] = { stalled(SIDE_SOURCE, 0, 5, 3),
				      stalled(SIDE_CLAIRFS, 0, 1, 0.5) };
	struct bench_report r = { .setup = &setup, .result = all, .n_results = ARRAY_LEN(all) };

	NEAR(bench_removed(&r, 0), 4);
	setup.ranks = 2;
	NEAR(bench_removed(&r, 0), 6.5);
}

static void what_was_not_measured_is_not_known(void)
{
	struct bench_setup setup = { .ranks = 1, .epochs = 2 };
	struct bench_result all[] = { stalled(SIDE_SOURCE, 0, 5, 0), stalled(SIDE_CLAIRFS, 0, 1, 0),
				      stalled(SIDE_CLAIRFS, 1, 1, 0) };
	struct bench_report r = { .setup = &setup, .result = all, .n_results = ARRAY_LEN(all) };

	NEAR(bench_removed(&r, 0), 4);
	CHECK(isnan(bench_removed(&r, 1)));
	CHECK(isnan(bench_removed_total(&r)));
	r.n_results = 1;
	CHECK(isnan(bench_removed(&r, 0)));
}

static void numbers_that_are_none(void)
{
	json_t *o = json_pack("{s:f, s:i, s:s, s:n}", "real", 1.5, "whole", 3, "text", "4", "null");

	NEAR(bench_number(o, "real"), 1.5);
	NEAR(bench_number(o, "whole"), 3);
	CHECK(isnan(bench_number(o, "text")) && isnan(bench_number(o, "null")));
	CHECK(isnan(bench_number(o, "absent")) && isnan(bench_number(NULL, "real")));
	json_decref(o);
}

static const struct check_test tests[] = {
	{ "waits_are_from_asking_to_having", waits_are_from_asking_to_having },
	{ "an_epoch_is_from_the_first_to_the_last", an_epoch_is_from_the_first_to_the_last },
	{ "accelerator_use_without_the_first_step", accelerator_use_without_the_first_step },
	{ "one_step_says_nothing_of_use", one_step_says_nothing_of_use },
	{ "reads_one_by_one", reads_one_by_one },
	{ "each_byte_once_is_what_the_source_must_give",
	  each_byte_once_is_what_the_source_must_give },
	{ "waits_fall_into_their_part_of_the_epoch", waits_fall_into_their_part_of_the_epoch },
	{ "bins_of_latencies_grow_by_quarters", bins_of_latencies_grow_by_quarters },
	{ "the_first_epoch_is_held_against_a_cold_source",
	  the_first_epoch_is_held_against_a_cold_source },
	{ "the_cache_may_have_cost_something", the_cache_may_have_cost_something },
	{ "waits_for_other_ranks_count_where_there_are_some",
	  waits_for_other_ranks_count_where_there_are_some },
	{ "what_was_not_measured_is_not_known", what_was_not_measured_is_not_known },
	{ "numbers_that_are_none", numbers_that_are_none },
};

CHECK_MAIN(tests)
