/* SPDX-License-Identifier: Apache-2.0 */
/* Switchback: which blocks are chosen, what the interval is worth, and whole passes of a simulated
 * loader in which the cache steps aside now and then. The truth is the same loader run twice, with
 * and without a cache; where nothing differs, the interval must hold 0 as often as it says. */
#include <math.h>

#include "clairfs/wait/switchback.h"
#include "stall_kit.h"

static const struct switchback_loader loader = {
	.n_samples = 5000, .workers = 2, .prefetch = 2, .batch = 2
};

/* --- which blocks --- */

/* 200,000 blocks: the share has a deviation of less than .0007. */
static void share_is_what_was_asked_for(void)
{
	enum { PASSES = 200, BLOCKS = 1000 };
	static const double shares[] = { 0.01, 0.05, 0.1 };

	for (size_t i = 0; i < ARRAY_LEN(shares); i++) {
		struct switchback s;
		uint64_t n = 0;

		CHECK(switchback_init(&s, shares[i], &loader));
		for (uint64_t pass = 0; pass < PASSES; pass++)
			for (uint64_t b = 0; b < BLOCKS; b++)
				n += switchback_is_chosen(&s, pass, b);
		CHECK(fabs((double)n / (PASSES * BLOCKS) - shares[i]) < 0.005);
	}
}

static void blocks_stand_alone_and_passes_differ(void)
{
	struct switchback s;
	uint64_t same = 0, n = 0;

	CHECK(switchback_init(&s, 0.1, &loader));
	for (uint64_t pass = 0; pass < 200; pass++) {
		uint64_t last = 0;

		for (uint64_t b = 0; b < 500; b++) {
			if (!switchback_is_chosen(&s, pass, b))
				continue;
			CHECK(b >= last + (last ? 3 : 1));
			last = b;
			n++;
			same += switchback_is_chosen(&s, pass + 1, b);
		}
	}
	CHECK(n > 5000 && same < n / 4);
}

static void every_node_chooses_the_same(void)
{
	struct switchback_loader other = loader;
	struct switchback a, b;
	uint64_t differ = 0;

	CHECK(switchback_init(&a, 0.1, &loader) && switchback_init(&b, 0.1, &other));
	for (uint64_t i = 0; i < 10000; i++)
		CHECK_INT(switchback_has(&a, 3, i), switchback_has(&b, 3, i));
	other.n_samples++;
	CHECK(switchback_init(&b, 0.1, &other));
	for (uint64_t i = 0; i < 10000; i++)
		differ += switchback_has(&a, 3, i) != switchback_has(&b, 3, i);
	CHECK(differ > 0);
}

static void samples_of_a_block_are_held_together(void)
{
	struct switchback s;
	uint32_t reads;

	CHECK(switchback_init(&s, 0.1, &loader));
	reads = s.block * s.batch;
	CHECK_INT((int)s.wash, 4); /* workers * prefetch */
	CHECK(s.block >= 3 * s.wash && s.block % s.workers == 0);
	for (uint64_t i = 0; i < 100ull * reads; i++)
		CHECK_INT(switchback_has(&s, 1, i), switchback_is_chosen(&s, 1, i / reads));
}

static void without_a_loader_there_are_no_blocks(void)
{
	struct switchback_loader none = loader;
	struct switchback s;

	CHECK(!switchback_init(&s, 0, &loader));
	CHECK(!switchback_has(&s, 0, 1));
	none.workers = 0;
	CHECK(!switchback_init(&s, 0.1, &none));
	none = loader;
	none.batch = 0;
	CHECK(!switchback_init(&s, 0.1, &none));
	none = loader;
	none.workers = none.prefetch = none.batch = UINT64_MAX;
	CHECK(!switchback_init(&s, 0.1, &none));
	none = loader;
	none.prefetch = 0; /* not told: 2 */
	CHECK(switchback_init(&s, 0.1, &none));
	CHECK_INT((int)s.wash, 4);
}

/* --- the interval --- */

static void interval_is_students(void)
{
	struct switchback_sum sum = { 0 };
	double mean, margin;

	for (int i = 0; i < 3; i++)
		switchback_add(&sum, i);
	CHECK(!switchback_limits(&sum, &mean, &margin));
	switchback_add(&sum, 3);
	CHECK(switchback_limits(&sum, &mean, &margin));
	/* 0 1 2 3: deviation 1.29099, t of 3 degrees of freedom 3.18245 */
	CHECK(fabs(mean - 1.5) < 1e-12);
	CHECK(fabs(margin - 3.18245 * 1.29099 / 2) < 0.005);
	for (int i = 0; i < 26; i++)
		switchback_add(&sum, i % 2 ? 0 : 3);
	CHECK(switchback_limits(&sum, &mean, &margin));
	CHECK(fabs(margin - 2.0452 * sqrt(sum.m2 / 29 / 30)) < 0.001);
}

/* Of `runs` sets of n differences, how many have an interval without the true mean. */
static uint32_t intervals_beyond(uint64_t *rnd, uint32_t runs, uint32_t n, double cv)
{
	uint32_t beyond = 0;

	for (uint32_t run = 0; run < runs; run++) {
		struct switchback_sum sum = { 0 };
		double mean, margin;

		for (uint32_t i = 0; i < n; i++)
			switchback_add(&sum,
				       stall_rand_time(rnd, 1, cv) - (stall_rand_time(rnd, 1, cv) +
								      stall_rand_time(rnd, 1, cv)) /
									     2);
		CHECK(switchback_limits(&sum, &mean, &margin));
		beyond += fabs(mean) > margin;
	}
	return beyond;
}

/* 4000 sets each: 5 % are 200 with a deviation of 14. 290 is six deviations away, so that no seed
 * ever fails, while an interval of 92 % would; and one that is too wide has fewer than 100. */
static void interval_holds_the_truth_in_95_of_100_sets(void)
{
	uint64_t rnd = check_seed();
	uint32_t n;

	n = intervals_beyond(&rnd, 4000, 4, 0.1);
	CHECK(n > 100 && n < 290);
	n = intervals_beyond(&rnd, 4000, 10, 0.3);
	CHECK(n > 100 && n < 290);
	n = intervals_beyond(&rnd, 4000, 50, 0.3);
	CHECK(n > 100 && n < 290);
}

/* --- whole passes --- */

struct job {
	uint32_t batches, passes;
	double source_s, source_cv, decode_s, compute_s;
	bool is_aa; /* nothing is served by the cache, ever */
	bool has_hook;
	bool is_ghost; /* Linux would have had all of it */
	bool is_deaf;  /* the cache goes on in blocks that are chosen */
	uint32_t hole; /* one of so many reads is not told; 0: none */
};

enum { SAMPLES = 5000, SHIFT_S = 1000 };

static struct stall *stall_with(double share, uint32_t batch, uint64_t ghost_bytes)
{
	struct stall_params params = { .n_units = SAMPLES,
				       .ghost_bytes = ghost_bytes,
				       .switchback_share = share };
	struct stall_job job = { .n_ranks = 1, .workers = 2, .prefetch = 2, .batch = batch };
	struct stall *s;

	CHECK_INT(stall_new(&params, &s), 0);
	CHECK_INT(stall_set_job(s, &job), 0);
	return s;
}

static uint64_t ns(double s)
{
	return (uint64_t)(s * 1e9);
}

static void tell_reads(struct stall *s, const struct job *j, uint64_t pass, const double *io,
		       const double *began, const bool *is_source)
{
	double origin = (double)(pass + 1) * SHIFT_S;
	uint32_t batch = (uint32_t)loader.batch;

	for (uint32_t i = 0; i < j->batches * batch; i++) {
		uint32_t k = i / batch, at = i % batch;
		double opened = origin + began[k] + at * (io[k] / batch + j->decode_s);
		struct stall_read read = {
			.has_place = true,
			.read_class = is_source[k] ? READ_MISS : READ_STAGED,
			.is_switchback = is_source[k] && !j->is_aa,
			.is_kernels = j->is_ghost,
			.unit = { i },
			.pass = pass,
			.index = i,
			.length = j->batches * batch,
			.bytes = 100000,
			.opened_ns = ns(opened),
			.wait_ns = ns(io[k] / batch),
		};

		if (!j->hole || i % j->hole)
			CHECK_INT(stall_read(s, &read), 0);
	}
}

static void tell_steps(struct stall *s, const struct job *j, uint64_t pass, const double *taken)
{
	double origin = (double)(pass + 1) * SHIFT_S;

	for (uint32_t k = 0; j->has_hook && k < j->batches; k++) {
		struct clairfs_step_record step = {
			.flags = (k == 0 ? CLAIRFS_STEP_FIRST : 0) |
				 (k + 1 == j->batches ? CLAIRFS_STEP_LEFT : 0),
			.t_request = ns(origin + (k ? taken[k - 1] + j->compute_s : 0)),
			.t_ready = ns(origin + taken[k]),
			.t_next = ns(origin + taken[k] + j->compute_s),
		};

		step.t_ready = MAX(step.t_ready, step.t_request);
		CHECK(stall_step(s, &step));
	}
}

/* Wall time of a pass; of one told to s, if there is one. */
static double play(struct stall *s, const struct job *j, uint64_t pass, uint64_t *rnd,
		   bool is_direct)
{
	uint32_t n = j->batches, batch = (uint32_t)loader.batch;
	double *all = calloc(5ul * n, sizeof(*all)), wall;
	double *io = all, *decode = io + n, *compute = decode + n, *began = compute + n;
	struct stall_plan plan = { .workers = (uint32_t)loader.workers,
				   .prefetch = (uint32_t)loader.prefetch,
				   .n = n,
				   .io = io,
				   .decode = decode,
				   .compute = compute,
				   .began = began,
				   .taken = began + n };
	bool *is_source = calloc(n, sizeof(*is_source));
	struct switchback sb;

	CHECK(switchback_init(&sb, SWITCHBACK_SHARE_MAX, &loader));
	for (uint32_t k = 0; k < n; k++) {
		is_source[k] = is_direct || j->is_aa ||
			       (!j->is_deaf && switchback_has(&sb, pass, (uint64_t)k * batch));
		for (uint32_t i = 0; i < batch; i++)
			io[k] += is_source[k] ? stall_rand_time(rnd, j->source_s, j->source_cv)
					      : 0.00005;
		decode[k] = batch * j->decode_s;
		compute[k] = j->compute_s;
	}
	wall = stall_loader(&plan);
	if (s) {
		tell_reads(s, j, pass, io, began, is_source);
		tell_steps(s, j, pass, plan.taken);
	}
	free(all);
	free(is_source);
	return wall;
}

static struct stall_numbers numbers_of(struct stall *s)
{
	struct stall_numbers n;

	stall_judge(s, UINT64_MAX, true);
	stall_get_rank(s, 0, &n);
	return n;
}

static struct stall_numbers run_job(const struct job *j, uint64_t *rnd)
{
	struct stall *s = stall_with(SWITCHBACK_SHARE_MAX, (uint32_t)loader.batch,
				     j->is_ghost ? 1u << 30 : 0);
	struct stall_numbers n;

	for (uint64_t pass = 0; pass < j->passes; pass++)
		(void)play(s, j, pass, rnd, false);
	n = numbers_of(s);
	stall_free(s);
	return n;
}

/* What a pass takes longer without the cache, in steps with it. */
static double truth(const struct job *j, uint64_t *rnd)
{
	struct job never = *j;

	never.is_deaf = true;
	return play(NULL, j, 0, rnd, true) - play(NULL, &never, 0, rnd, false);
}

/* 600 jobs: 5 % are 30 with a deviation of 5.3; 62 is six away. Their blocks are between 15 and
 * 30, so one of too few is as unlikely. */
static void aa(bool has_hook)
{
	uint64_t rnd = check_seed();
	uint32_t beyond = 0;

	for (int i = 0; i < 600; i++) {
		struct job j = { .batches = 800,
				 .passes = 4,
				 .source_s = 0.01,
				 .source_cv = 0.8,
				 .decode_s = 0.001,
				 .compute_s = i % 2 ? 0.004 : 0.012,
				 .is_aa = true,
				 .has_hook = has_hook };
		struct stall_numbers n = run_job(&j, &rnd);

		CHECK(n.switchback.is_known);
		beyond += fabs(n.switchback.removed_ns) > n.switchback.margin_ns;
	}
	CHECK(beyond < 62);
}

static void aa_by_opens(void)
{
	aa(false);
}

static void aa_by_the_hook(void)
{
	aa(true);
}

/* A source that is far too slow for the job; and one that is fast enough for its workers. */
static void difference_is_found(bool has_hook)
{
	uint64_t rnd = check_seed();
	struct job j = { .batches = 4000,
			 .passes = 2,
			 .source_s = 0.01,
			 .source_cv = 0.5,
			 .decode_s = 0.001,
			 .compute_s = 0.004,
			 .has_hook = has_hook };
	struct stall_numbers n = run_job(&j, &rnd);
	double share, found, margin;

	CHECK(n.switchback.is_known && n.switchback.blocks > 20);
	CHECK_U64(n.switchback.spoiled, 0);
	CHECK_U64(n.switchback.steps + n.switchback.steps_through, 8000);
	share = (double)n.switchback.steps / 4000;
	found = n.switchback.removed_ns / 1e9 / share;
	/* Six deviations are three times what the interval is wide to one side, and a loader that
	 * delivers in order needs a little longer than a block to be as slow as it will be. */
	margin = n.switchback.margin_ns / n.switchback.removed_ns;
	CHECK(margin < 0.2);
	CHECK(fabs(found / truth(&j, &rnd) - 1) < 3 * margin + 0.05);
	CHECK(n.switchback.cost_ns > 0 && n.switchback_cost_ns > 0);
	/* The first of the two passes is counted with the mean of its own blocks, half of all: its
	 * half of the sum is off by a deviation of a quarter of the interval. Six of them. */
	CHECK(fabs((double)n.estimate_switchback_ns / n.switchback.removed_ns - 1) <
	      1.5 * margin + 0.02);
	j.source_s = 0.001;
	n = run_job(&j, &rnd);
	CHECK(n.switchback.is_known);
	CHECK(fabs(n.switchback.removed_ns) < 0.01 * 8000 * 4e6);
}

static void difference_is_found_by_opens(void)
{
	difference_is_found(false);
}

static void difference_is_found_by_the_hook(void)
{
	difference_is_found(true);
}

/* Without control reads the passes are not judged: what switchback says does not need them. */
static void needs_no_control_reads(void)
{
	uint64_t rnd = check_seed();
	struct job j = { .batches = 800, .passes = 4, .source_s = 0.01, .compute_s = 0.004 };
	struct stall_numbers n = run_job(&j, &rnd);

	CHECK_U64(n.judged, 0);
	CHECK(n.switchback.is_known && n.switchback.removed_ns > 0);
}

static void blocks_that_were_served_all_the_same_are_spoiled(void)
{
	uint64_t rnd = check_seed();
	struct job j = { .batches = 800, .passes = 4, .compute_s = 0.004, .is_deaf = true };
	struct stall_numbers n = run_job(&j, &rnd);

	CHECK(!n.switchback.is_known);
	CHECK_U64(n.switchback.blocks, 0);
	CHECK(n.switchback.spoiled > 4);
	CHECK_U64(n.estimate_switchback_ns, 0);
}

static void what_linux_would_have_had_says_nothing(void)
{
	uint64_t rnd = check_seed();
	struct job j = {
		.batches = 800, .passes = 4, .source_s = 0.01, .compute_s = 0.004, .is_ghost = true
	};
	struct stall_numbers n = run_job(&j, &rnd);

	CHECK(!n.switchback.is_known);
	CHECK_U64(n.switchback.blocks + n.switchback.steps, 0);
	CHECK_U64(n.switchback.steps_ghost + n.switchback.steps_through, 3200);
}

static void a_few_holes_do_no_harm_and_many_spoil(void)
{
	uint64_t rnd = check_seed();
	struct job j = {
		.batches = 800, .passes = 4, .source_s = 0.01, .compute_s = 0.004, .hole = 31
	};
	struct stall_numbers n = run_job(&j, &rnd);

	CHECK(n.switchback.is_known && n.switchback.blocks > 4);
	j.hole = 11;
	n = run_job(&j, &rnd);
	CHECK_U64(n.switchback.blocks, 0);
}

/* The same loader told again, as jobs do at each epoch; then one with other batches. */
static void another_shape_of_the_loader_begins_anew(void)
{
	uint64_t rnd = check_seed();
	struct job j = { .batches = 800, .passes = 1, .source_s = 0.01, .compute_s = 0.004 };
	struct stall_job shape = { .n_ranks = 1, .workers = 2, .prefetch = 2, .batch = 2 };
	struct stall *s = stall_with(SWITCHBACK_SHARE_MAX, 2, 0);
	struct stall_numbers n;
	uint64_t blocks = 0, total;

	for (uint64_t pass = 0; pass < 4; pass++) {
		(void)play(s, &j, pass, &rnd, false);
		n = numbers_of(s);
		CHECK(n.switchback.blocks > blocks);
		blocks = n.switchback.blocks;
		CHECK_INT(stall_set_job(s, &shape), 0);
	}
	CHECK(n.switchback.is_known);
	total = n.estimate_switchback_ns;
	CHECK(total > 0);
	shape.batch = 3;
	CHECK_INT(stall_set_job(s, &shape), 0);
	j.batches = 100;
	(void)play(s, &j, 4, &rnd, false);
	n = numbers_of(s);
	CHECK(!n.switchback.is_known && n.switchback.blocks + n.switchback.spoiled < 4);
	CHECK(n.switchback.steps > 0 && n.switchback.steps <= 100);
	CHECK_U64(n.estimate_switchback_ns, total);
	stall_free(s);
}

static void without_it_nothing_is_counted(void)
{
	uint64_t rnd = check_seed();
	struct job j = { .batches = 200, .source_s = 0.01, .compute_s = 0.004 };
	struct stall *s = stall_with(0, 2, 0);
	struct stall_node node;
	struct stall_numbers n;

	(void)play(s, &j, 0, &rnd, false);
	n = numbers_of(s);
	stall_get_node(s, &node);
	CHECK(!node.has_switchback);
	CHECK_U64(n.switchback.blocks + n.switchback.spoiled + n.switchback.steps, 0);
	stall_free(s);
}

static const struct check_test tests[] = {
	{ "share_is_what_was_asked_for", share_is_what_was_asked_for },
	{ "blocks_stand_alone_and_passes_differ", blocks_stand_alone_and_passes_differ },
	{ "every_node_chooses_the_same", every_node_chooses_the_same },
	{ "samples_of_a_block_are_held_together", samples_of_a_block_are_held_together },
	{ "without_a_loader_there_are_no_blocks", without_a_loader_there_are_no_blocks },
	{ "interval_is_students", interval_is_students },
	{ "interval_holds_the_truth_in_95_of_100_sets",
	  interval_holds_the_truth_in_95_of_100_sets },
	{ "without_a_difference_the_interval_holds_0_by_opens", aa_by_opens },
	{ "without_a_difference_the_interval_holds_0_by_the_hook", aa_by_the_hook },
	{ "a_difference_is_found_by_opens", difference_is_found_by_opens },
	{ "a_difference_is_found_by_the_hook", difference_is_found_by_the_hook },
	{ "needs_no_control_reads", needs_no_control_reads },
	{ "blocks_that_were_served_all_the_same_are_spoiled",
	  blocks_that_were_served_all_the_same_are_spoiled },
	{ "what_linux_would_have_had_says_nothing", what_linux_would_have_had_says_nothing },
	{ "a_few_holes_do_no_harm_and_many_spoil", a_few_holes_do_no_harm_and_many_spoil },
	{ "another_shape_of_the_loader_begins_anew", another_shape_of_the_loader_begins_anew },
	{ "without_it_nothing_is_counted", without_it_nothing_is_counted },
};

CHECK_MAIN(tests)
