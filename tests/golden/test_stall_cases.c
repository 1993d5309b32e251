/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of the accounting beside the truth, for jobs of every shape: the same pass simulated
 * with and without the cache by PyTorch's own queues. Twenty seeds each, the same in every run, so
 * this neither depends on luck nor on the machine. The printed table is the one to look at when a
 * formula changes. */
#include <math.h>
#include <stdio.h>

#include "stall_kit.h"

enum { SEEDS = 20 };

struct sums {
	double with, without, truth, latency, lower, estimate, hook, upper, page_cache;
	double worst_estimate, worst_hook; /* furthest from the truth, as share of the pass */
	uint32_t too_high, too_low;        /* seeds with lower > truth, upper < truth */
};

static double seconds(uint64_t t)
{
	return (double)t / 1e9;
}

static void judge_seed(const struct stall_case *c, uint64_t seed, bool with_hook, struct sums *sum)
{
	struct stall_params params = { .n_units = c->steps * c->batch,
				       .ghost_bytes = c->is_ghost ? 1ull << 40 : 0 };
	struct stall_job job = {
		.n_ranks = 1, .workers = c->workers, .prefetch = c->prefetch, .batch = c->batch
	};
	struct stall_numbers got;
	struct stall_truth t;
	struct stall *s;
	double truth;

	CHECK_INT(stall_new(&params, &s), 0);
	CHECK_INT(stall_set_job(s, &job), 0);
	stall_case_controls(s, c, seed);
	stall_case_play(s, c, 1, seed, with_hook, &t);
	stall_judge(s, UINT64_MAX, true);
	stall_get_rank(s, 0, &got);
	CHECK_U64(got.judged, 1);
	CHECK_U64(got.judged_hook, with_hook);
	truth = t.without_s - t.with_s;
	sum->with += t.with_s;
	sum->without += t.without_s;
	sum->truth += truth;
	sum->latency += t.saved_latency_s;
	sum->lower += seconds(got.lower_ns);
	sum->estimate += seconds(got.estimate_ns);
	sum->hook += seconds(got.estimate_hook_ns);
	sum->upper += seconds(got.upper_ns);
	sum->page_cache += seconds(got.page_cache_ns);
	sum->worst_estimate =
		fmax(sum->worst_estimate, fabs(seconds(got.estimate_ns) - truth) / t.without_s);
	if (with_hook)
		sum->worst_hook = fmax(sum->worst_hook,
				       fabs(seconds(got.estimate_hook_ns) - truth) / t.without_s);
	sum->too_high += seconds(got.lower_ns) > truth * 1.02 + 0.002 * t.with_s;
	sum->too_low += seconds(got.upper_ns) < truth * 0.98 - 0.002 * t.with_s;
	CHECK(got.lower_ns <= got.estimate_ns && got.estimate_ns <= got.upper_ns);
	CHECK(got.estimate_hook_ns <= got.upper_ns);
	stall_free(s);
}

static void judge_case(const struct stall_case *c, struct sums *plain, struct sums *hook)
{
	*plain = *hook = (struct sums){ 0 };
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		judge_seed(c, seed * 7919, false, plain);
		judge_seed(c, seed * 7919, true, hook);
	}
	printf("# %-22s %6.1f -> %6.1f s  truth %6.1f  latency %6.1f  lower %6.1f (hook %6.1f)  "
	       "replay %6.1f  hook %6.1f  upper %6.1f  worst %.3f %.3f  beyond %u %u\n",
	       c->name, plain->without / SEEDS, plain->with / SEEDS, plain->truth / SEEDS,
	       plain->latency / SEEDS, plain->lower / SEEDS, hook->lower / SEEDS,
	       plain->estimate / SEEDS, hook->hook / SEEDS, plain->upper / SEEDS,
	       plain->worst_estimate, hook->worst_hook, plain->too_high + hook->too_high,
	       plain->too_low + hook->too_low);
	/* The promises: 95 % of the runs, on both sides. */
	CHECK(plain->too_high <= 1 && hook->too_high <= 1);
	CHECK(plain->too_low <= 1 && hook->too_low <= 1);
}

/* How far the mean over the seeds is from the truth, in parts of the truth. */
static void check_near(double got, double truth, double part, double slack)
{
	CHECK(fabs(got - truth) <= part * truth + slack * SEEDS);
}

#define UNET .workers = 4, .prefetch = 2, .batch = 7, .steps = 297, .compute_s = 0.323
#define RESNET .workers = 8, .prefetch = 2, .batch = 400, .steps = 99, .compute_s = 0.224
#define CONTROLS .compute_cv = 0.02, .controls = 1000

static void slow_source_is_removed_almost_fully(void)
{
	static const struct stall_case c = { "unet3d, slow source",
					     UNET,
					     CONTROLS,
					     .decode_s = 0.1,
					     .decode_cv = 0.2,
					     .source_s = 0.282,
					     .source_cv = 0.5 };
	struct sums plain, hook;

	judge_case(&c, &plain, &hook);
	check_near(plain.estimate, plain.truth, 0.05, 0);
	check_near(hook.hook, hook.truth, 0.05, 0);
	CHECK(plain.lower > 0.8 * plain.truth);
	CHECK(plain.latency > 4 * plain.truth);
}

static void source_that_was_fast_enough_gives_nothing(void)
{
	static const struct stall_case c = { "unet3d, fast source",
					     UNET,
					     CONTROLS,
					     .decode_s = 0.1,
					     .decode_cv = 0.2,
					     .source_s = 0.051,
					     .source_cv = 0.5 };
	struct sums plain, hook;

	judge_case(&c, &plain, &hook);
	CHECK(plain.lower == 0 && hook.lower == 0);
	check_near(plain.estimate, plain.truth, 0, 0.01 * plain.with / SEEDS);
	check_near(hook.hook, hook.truth, 0, 0.01 * hook.with / SEEDS);
}

static void marginal_case_lives_of_the_spread(void)
{
	static const struct stall_case c = {
		"marginal, heavy tail", UNET,          CONTROLS, .decode_s = 0.08, .decode_cv = 0.2,
		.source_s = 0.111,      .source_cv = 2
	};
	struct sums plain, hook;

	judge_case(&c, &plain, &hook);
	check_near(plain.estimate, plain.truth, 0.1, 0.2);
	check_near(hook.hook, hook.truth, 0.1, 0.2);
}

static void decoding_is_not_claimed(void)
{
	static const struct stall_case c = { "prep-bound",     UNET,
					     CONTROLS,         .decode_s = 0.4,
					     .decode_cv = 0.2, .source_s = 0.08,
					     .source_cv = 0.5 };
	struct sums plain, hook;

	judge_case(&c, &plain, &hook);
	check_near(plain.estimate, plain.truth, 0.1, 0);
	check_near(hook.hook, hook.truth, 0.1, 0);
	CHECK(plain.upper < 0.5 * plain.with);
}

static void small_files(void)
{
	static const struct stall_case c = {
		"resnet50, small files", RESNET,           CONTROLS,
		.decode_s = 0.00176,     .decode_cv = 0.2, .source_s = 0.0038,
		.source_cv = 0.5
	};
	struct sums plain, hook;

	judge_case(&c, &plain, &hook);
	check_near(plain.estimate, plain.truth, 0.1, 0.1);
	check_near(hook.hook, hook.truth, 0.1, 0.1);
}

static void compute_bound_gives_nothing(void)
{
	static const struct stall_case c = {
		"resnet50, compute-bound", RESNET,           CONTROLS,
		.decode_s = 0.00176,       .decode_cv = 0.2, .source_s = 0.00083,
		.source_cv = 0.5
	};
	struct sums plain, hook;

	judge_case(&c, &plain, &hook);
	CHECK(plain.lower == 0 && hook.lower == 0);
	check_near(plain.estimate, plain.truth, 0, 0.01 * plain.with / SEEDS);
	check_near(hook.hook, hook.truth, 0, 0.01 * hook.with / SEEDS);
}

static void batches_of_one(void)
{
	static const struct stall_case c = {
		"cosmoflow, batch 1", CONTROLS,           .workers = 4,        .prefetch = 2,
		.batch = 1,           .steps = 3022,      .compute_s = 0.0035, .decode_s = 0.004,
		.decode_cv = 0.2,     .source_s = 0.0285, .source_cv = 0.8
	};
	struct sums plain, hook;

	judge_case(&c, &plain, &hook);
	check_near(plain.estimate, plain.truth, 0.1, 0);
	check_near(hook.hook, hook.truth, 0.1, 0);
}

static void half_of_it_misses(void)
{
	static const struct stall_case c = { "half misses",    UNET,
					     CONTROLS,         .decode_s = 0.1,
					     .decode_cv = 0.2, .source_s = 0.282,
					     .source_cv = 0.5, .miss_share = 0.5 };
	struct sums plain, hook;

	judge_case(&c, &plain, &hook);
	check_near(plain.estimate, plain.truth, 0.1, 0);
	check_near(hook.hook, hook.truth, 0.1, 0);
}

static void what_fits_into_memory_gives_nothing(void)
{
	static const struct stall_case c = { "fits into memory", UNET,
					     CONTROLS,           .decode_s = 0.1,
					     .decode_cv = 0.2,   .source_s = 0.282,
					     .source_cv = 0.5,   .is_ghost = true };
	struct sums plain, hook;

	judge_case(&c, &plain, &hook);
	CHECK(plain.lower == 0 && plain.estimate < 0.001 * plain.with);
	/* Whoever doubts that it does has a bound, which says whose it would be. */
	CHECK(plain.upper > 0.9 * plain.with && plain.page_cache > 0.5 * plain.with);
	CHECK(plain.page_cache <= plain.upper);
}

static void no_hits_give_nothing(void)
{
	static const struct stall_case c = { "no hits (A/A)",  UNET,
					     CONTROLS,         .decode_s = 0.1,
					     .decode_cv = 0.2, .source_s = 0.282,
					     .source_cv = 0.5, .miss_share = 1 };
	struct sums plain, hook;

	judge_case(&c, &plain, &hook);
	CHECK(plain.lower == 0 && plain.estimate == 0 && plain.upper == 0);
	CHECK(hook.lower == 0 && hook.hook == 0 && hook.upper == 0);
}

static void one_worker(void)
{
	static const struct stall_case c = {
		"one worker",     CONTROLS,          .workers = 1,       .prefetch = 2,
		.batch = 7,       .steps = 297,      .compute_s = 0.323, .decode_s = 0.015,
		.decode_cv = 0.2, .source_s = 0.092, .source_cv = 0.5
	};
	struct sums plain, hook;

	judge_case(&c, &plain, &hook);
	check_near(plain.estimate, plain.truth, 0.05, 0);
	CHECK(plain.lower > 0.8 * plain.truth);
}

static void twenty_control_reads_claim_little_but_nothing_false(void)
{
	static const struct stall_case c = { "20 control reads", UNET,
					     .compute_cv = 0.02, .decode_s = 0.1,
					     .decode_cv = 0.2,   .source_s = 0.282,
					     .source_cv = 1,     .controls = 20 };
	struct sums plain, hook;

	judge_case(&c, &plain, &hook);
	CHECK(plain.lower > 0 && plain.lower < 0.9 * plain.truth);
}

static const struct check_test tests[] = {
	{ "a_slow_source_is_removed_almost_fully", slow_source_is_removed_almost_fully },
	{ "a_source_that_was_fast_enough_gives_nothing",
	  source_that_was_fast_enough_gives_nothing },
	{ "the_marginal_case_lives_of_the_spread", marginal_case_lives_of_the_spread },
	{ "decoding_is_not_claimed", decoding_is_not_claimed },
	{ "small_files", small_files },
	{ "compute_bound_gives_nothing", compute_bound_gives_nothing },
	{ "batches_of_one", batches_of_one },
	{ "half_of_it_misses", half_of_it_misses },
	{ "what_fits_into_memory_gives_nothing", what_fits_into_memory_gives_nothing },
	{ "no_hits_give_nothing", no_hits_give_nothing },
	{ "one_worker", one_worker },
	{ "twenty_control_reads_claim_little_but_nothing_false",
	  twenty_control_reads_claim_little_but_nothing_false },
};

CHECK_MAIN(tests)
