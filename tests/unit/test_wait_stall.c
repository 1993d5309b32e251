/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of stall accounting against models of their own: the recurrence against the loader's
 * queues, the ghost page cache against a list, the limits of control reads against the truth they
 * are of, and what happens to passes that come late, twice, in parts, in another order or with
 * holes. The numbers of whole jobs: tests/golden/test_stall_cases.c. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "src/wait/stall_priv.h"
#include "stall_kit.h"

/* --- the recurrence --- */

enum { BATCHES_MAX = 200 };

static void replay_is_what_the_queues_do(void)
{
	uint64_t rnd = check_seed();

	for (int round = 0; round < 2000; round++) {
		uint32_t n = 1 + (uint32_t)check_rand_below(&rnd, BATCHES_MAX);
		struct stall_plan plan = { .workers = 1 + (uint32_t)check_rand_below(&rnd, 9),
					   .prefetch = 1 + (uint32_t)check_rand_below(&rnd, 4),
					   .n = n };
		double io[BATCHES_MAX], decode[BATCHES_MAX], compute[BATCHES_MAX];
		double done[BATCHES_MAX], taken[BATCHES_MAX], wait, waits = 0, last = 0;
		struct stall_batch batch[BATCHES_MAX];
		struct stall_play play = { .batch = batch,
					   .decode_share = 1,
					   .compute_ns = STALL_NO_COMPUTE };
		uint64_t got[BATCHES_MAX];
		struct stall_schedule s;

		for (uint32_t k = 0; k < n; k++) {
			batch[k].io_ns = check_rand_below(&rnd, 1000);
			batch[k].decode_ns = check_rand_below(&rnd, round % 2 ? 1000 : 10);
			batch[k].compute_ns = check_rand_below(&rnd, round % 3 ? 300 : 1);
			io[k] = (double)batch[k].io_ns;
			decode[k] = (double)batch[k].decode_ns;
			compute[k] = (double)batch[k].compute_ns;
		}
		plan.io = io;
		plan.decode = decode;
		plan.compute = compute;
		plan.done = done;
		plan.taken = taken;
		play.workers = plan.workers;
		play.prefetch = plan.prefetch;
		play.n = n;
		CHECK_INT(stall_play_init(&play), 0);
		stall_play_run(&play, got, &s);
		stall_play_fini(&play);
		CHECK_U64(s.end_ns, (uint64_t)stall_loader(&plan));
		for (uint32_t k = 0; k < n; k++) {
			wait = taken[k] - (k ? taken[k - 1] + compute[k - 1] : 0);
			CHECK_U64(got[k], (uint64_t)wait);
			waits += wait;
			last = fmax(last, done[k]);
		}
		CHECK_U64(s.wait_ns, (uint64_t)waits);
		CHECK_U64(s.fetched_ns, (uint64_t)last);
	}
}

static void no_batches_take_no_time(void)
{
	struct stall_play play = { .workers = 2, .prefetch = 2 };
	struct stall_schedule s;

	CHECK_INT(stall_play_init(&play), 0);
	stall_play_run(&play, NULL, &s);
	stall_play_fini(&play);
	CHECK_U64(s.end_ns, 0);
}

/* --- the ghost page cache --- */

static void ghost_is_a_list_of_the_files_read_last(void)
{
	enum { N = 60, PAGES = 100 };
	uint64_t rnd = check_seed();
	uint32_t order[N], n = 0; /* the model, youngest first */
	uint64_t pages[N] = { 0 };
	struct stall_ghost g;

	CHECK_INT(stall_ghost_init(&g, N, PAGES * 4096), 0);
	for (int i = 0; i < 20000; i++) {
		uint32_t sample = (uint32_t)check_rand_below(&rnd, N), at = 0;
		uint64_t bytes = check_rand_below(&rnd, i % 50 ? 20 * 4096 : 120 * 4096), used = 0;
		bool is_hit;

		while (at < n && order[at] != sample)
			at++;
		is_hit = at < n;
		if (is_hit)
			memmove(&order[at], &order[at + 1], (--n - at) * sizeof(*order));
		CHECK_INT(stall_ghost_read(&g, (struct unit_id){ sample }, bytes), is_hit);
		pages[sample] = MAX((bytes + 4095) / 4096, 1);
		if (pages[sample] > PAGES)
			continue;
		memmove(&order[1], &order[0], n++ * sizeof(*order));
		order[0] = sample;
		for (at = 0; at < n && used + pages[order[at]] <= PAGES; at++)
			used += pages[order[at]];
		n = at;
		CHECK_U64(g.used, used);
	}
	stall_ghost_fini(&g);
}

static void ghost_of_no_size_has_nothing(void)
{
	struct stall_ghost g;

	CHECK_INT(stall_ghost_init(&g, 5, 0), 0);
	CHECK(!stall_ghost_read(&g, (struct unit_id){ 1 }, 10));
	CHECK(!stall_ghost_read(&g, (struct unit_id){ 1 }, 10));
	stall_ghost_fini(&g);
}

/* --- control reads --- */

/* Of `runs` independent sets of control reads: those whose lower (upper) limit for the time of n
 * reads is beyond the time that n reads took. */
static void limits_beyond(uint32_t controls, double cv, uint64_t *rnd, uint32_t runs,
			  uint32_t ret_beyond[2])
{
	enum { N = 400 };

	ret_beyond[0] = ret_beyond[1] = 0;
	for (uint32_t run = 0; run < runs; run++) {
		static const struct stall_params params = { .n_units = 1 };
		uint64_t n[STALL_SIZE_CLASSES] = { N };
		struct stall_groups groups;
		double mean, margin, truth = 0;
		struct stall *s;

		CHECK_INT(stall_new(&params, &s), 0);
		for (uint32_t i = 0; i < controls; i++)
			CHECK_INT(
				stall_control_add(s, 100000,
						  (uint64_t)(1e9 * stall_rand_time(rnd, 0.01, cv))),
				0);
		for (uint32_t i = 0; i < N; i++)
			truth += 1e9 * stall_rand_time(rnd, 0.01, cv);
		CHECK(stall_groups_make(s, &groups));
		CHECK_INT((int)groups.n, 1);
		stall_groups_sum(&groups, n, &mean, &margin);
		ret_beyond[0] += mean - margin > truth;
		ret_beyond[1] += mean + margin < truth;
		stall_free(s);
	}
}

/* 4000 sets each: 5 % are 200 with a deviation of 14; 290 is six deviations away, so that no seed
 * ever fails, while a limit of 92 % would. The upper limit of skewed times is known to be too low
 * (from 200 reads of these it holds in 93.9 of 100 sets: 246, deviation 15); it is checked where
 * it nearly holds. */
static void limits_hold_in_95_of_100_sets(void)
{
	uint64_t rnd = check_seed();
	uint32_t beyond[2];

	limits_beyond(8, 0.3, &rnd, 4000, beyond);
	CHECK(beyond[0] < 290 && beyond[0] > 10);
	limits_beyond(20, 2, &rnd, 4000, beyond);
	CHECK(beyond[0] < 290);
	limits_beyond(200, 0.5, &rnd, 4000, beyond);
	CHECK(beyond[0] < 290 && beyond[1] < 340 && beyond[0] > 60 && beyond[1] > 60);
}

static void classes_with_few_reads_share(void)
{
	static const struct stall_params params = { .n_units = 1 };
	struct stall_groups g;
	struct stall *s;
	double sum = 0;

	CHECK_INT(stall_new(&params, &s), 0);
	CHECK(!stall_groups_make(s, &g));
	for (int i = 0; i < 20; i++) /* two groups: up to 1000 bytes, and above */
		CHECK_INT(stall_control_add(s, 1000, 1000000), 0);
	for (int i = 0; i < 6; i++)
		CHECK_INT(stall_control_add(s, 5000, 2000000), 0);
	for (int i = 0; i < 12; i++)
		CHECK_INT(stall_control_add(s, 100000, 5000000), 0);
	CHECK(stall_groups_make(s, &g));
	CHECK_INT((int)g.n, 2);
	CHECK_U64(g.group[0].n, 20);
	CHECK_U64(g.group[1].n, 18);
	CHECK(fabs(g.group[1].mean - 4000000) < 1);
	CHECK(fabs(g.group[1].variance - 72e12 * 0.5 / 17) < 1e9);
	CHECK_INT((int)g.of[stall_size_class(1)], 0);
	CHECK_INT((int)g.of[stall_size_class(1000)], 0);
	CHECK_INT((int)g.of[stall_size_class(5000)], 1);
	CHECK_INT((int)g.of[stall_size_class(UINT64_MAX)], 1);
	for (uint64_t i = 0; i < 9000; i++)
		sum += (double)stall_group_draw(s, &g.group[1], i);
	CHECK(fabs(sum / 9000 - 4000000) < 200000);
	stall_free(s);
}

static void control_reads_have_an_end(void)
{
	static const struct stall_params params = { .n_units = 1 };
	struct stall_node node;
	struct stall *s;

	CHECK_INT(stall_new(&params, &s), 0);
	for (uint32_t i = 0; i < STALL_CONTROLS_MAX + 5; i++) {
		CHECK_INT(stall_wants_control(s, 1000), i < STALL_CONTROLS_MAX);
		CHECK_INT(stall_read(s, &(struct stall_read){ .is_control = true,
							      .read_class = READ_MISS,
							      .bytes = 1000,
							      .wait_ns = 10 }),
			  0);
	}
	CHECK(stall_wants_control(s, 5000));
	stall_get_node(s, &node);
	CHECK_U64(node.control_reads, STALL_CONTROLS_MAX + 5);
	CHECK_U64(node.controls_used, STALL_CONTROLS_MAX);
	CHECK_U64(node.control_bytes, 1000 * (STALL_CONTROLS_MAX + 5));
	CHECK_U64(node.control_cost_ns, 10 * (STALL_CONTROLS_MAX + 5));
	stall_free(s);
}

/* --- passes --- */

static struct stall *stall_for(const struct stall_job *job)
{
	static const struct stall_params params = { .n_units = 1000000 };
	struct stall *s;

	CHECK_INT(stall_new(&params, &s), 0);
	CHECK_INT(stall_set_job(s, job), 0);
	return s;
}

static struct stall_job some_job(void)
{
	return (struct stall_job){ .n_ranks = 1, .workers = 4, .prefetch = 2, .batch = 7 };
}

/* A read of rank 0 that was staged. */
static struct stall_read staged(uint64_t pass, uint64_t index, uint64_t opened_ns)
{
	return (struct stall_read){ .has_place = true,
				    .read_class = READ_STAGED,
				    .pass = pass,
				    .index = index,
				    .unit = { (uint32_t)index },
				    .bytes = 1000,
				    .opened_ns = opened_ns };
}

static void tell(struct stall *s, const struct stall_read *read)
{
	CHECK_INT(stall_read(s, read), 0);
}

static void numbers(const struct stall *s, struct stall_numbers *got, struct stall_node *node)
{
	stall_get_rank(s, 0, got);
	stall_get_node(s, node);
}

static void order_of_telling_does_not_matter(void)
{
	struct stall_job job = some_job();
	struct stall *a = stall_for(&job), *b = stall_for(&job);
	struct stall_numbers na, nb;
	enum { N = 420 };
	struct stall_read reads[N];
	uint64_t rnd = check_seed();

	stall_case_controls(a, &some_case, 1);
	stall_case_controls(b, &some_case, 1);
	for (uint32_t i = 0; i < N; i++) {
		reads[i] = staged(0, i, 1000000000ull + (i + check_rand_below(&rnd, 20)) * 1000000);
		tell(a, &reads[i]);
	}
	for (uint32_t i = N; i > 1; i--) {
		uint32_t k = (uint32_t)check_rand_below(&rnd, i);
		struct stall_read r = reads[k];

		reads[k] = reads[i - 1];
		reads[i - 1] = r;
	}
	for (uint32_t i = 0; i < N; i++)
		tell(b, &reads[i]);
	stall_judge(a, 0, true);
	stall_judge(b, 0, true);
	stall_get_rank(a, 0, &na);
	stall_get_rank(b, 0, &nb);
	CHECK_U64(na.judged, 1);
	CHECK_U64(na.latency_saved_ns, nb.latency_saved_ns);
	CHECK_U64(na.upper_ns, nb.upper_ns);
	/* Opens are rounded to their unit, and once more when an earlier one comes later. */
	CHECK(fabs((double)na.lower_ns - (double)nb.lower_ns) < 1e-3 * (double)na.lower_ns);
	CHECK(na.lower_ns > 0);
	stall_free(a);
	stall_free(b);
}

static void pass_is_over_when_complete_or_left(void)
{
	struct stall_job job = some_job();
	struct stall *s = stall_for(&job);
	struct stall_numbers got;
	struct stall_node node;
	struct stall_read read;

	for (uint64_t i = 0; i < 70; i++) { /* complete: judged whatever time it is */
		read = staged(0, i, 100 + i);
		read.read_class = READ_MISS;
		read.length = 70;
		stall_judge(s, 0, false);
		numbers(s, &got, &node);
		CHECK_U64(got.judged, 0);
		CHECK_INT(node.why, STALL_NOTHING_READ);
		tell(s, &read);
	}
	stall_judge(s, 0, false);
	numbers(s, &got, &node);
	CHECK_U64(got.judged, 1);
	CHECK_INT(node.why, STALL_JUDGED);
	for (uint64_t i = 0; i < 60; i++) { /* not complete: not before a later one has begun */
		read = staged(1, i, 1000 + i);
		read.read_class = READ_MISS;
		read.length = 70;
		tell(s, &read);
	}
	stall_judge(s, 1059 + 2 * STALL_LATE_NS, false);
	numbers(s, &got, &node);
	CHECK_U64(got.judged, 1);
	read = staged(2, 0, 2000);
	read.length = 70;
	read.read_class = READ_MISS;
	tell(s, &read);
	stall_judge(s, 1058 + STALL_LATE_NS, false);
	numbers(s, &got, &node);
	CHECK_U64(got.judged, 1);
	stall_judge(s, 1059 + STALL_LATE_NS, false);
	numbers(s, &got, &node);
	CHECK_U64(got.judged, 2);
	CHECK_U64(got.reads, 130);
	read = staged(1, 69, 3000); /* too late */
	tell(s, &read);
	numbers(s, &got, &node);
	CHECK_U64(node.unplaced_reads, 1);
	for (uint64_t i = 0; i < 67; i++) { /* nearly complete: when nothing comes any more */
		read = staged(2, i, 5000 + i);
		read.read_class = READ_MISS;
		read.length = 70;
		tell(s, &read);
	}
	stall_judge(s, 5065 + STALL_QUIET_NS, false);
	numbers(s, &got, &node);
	CHECK_U64(got.judged, 2);
	stall_judge(s, 5066 + STALL_QUIET_NS, false);
	numbers(s, &got, &node);
	CHECK_U64(got.judged, 3);
	stall_free(s);
}

static void pass_waits_for_control_reads(void)
{
	struct stall_job job = some_job();
	struct stall *s = stall_for(&job);
	struct stall_truth truth;
	struct stall_numbers got;
	struct stall_node node;

	stall_case_play(s, &some_case, 0, 1, false, &truth);
	stall_case_play(s, &some_case, 1, 2, false, &truth);
	stall_judge(s, 0, false);
	numbers(s, &got, &node);
	CHECK_U64(got.judged + got.unjudged, 0);
	CHECK_INT(node.why, STALL_NO_CONTROLS);
	stall_case_controls(s, &some_case, 3);
	stall_judge(s, 0, false);
	numbers(s, &got, &node);
	CHECK_U64(got.judged, 2);
	CHECK_INT(node.why, STALL_JUDGED);
	CHECK(got.lower_ns > 0);
	stall_free(s);
}

static void end_without_control_reads_says_why(void)
{
	struct stall_job job = some_job();
	struct stall *s = stall_for(&job);
	struct stall_truth truth;
	struct stall_numbers got;
	struct stall_node node;

	stall_case_play(s, &some_case, 0, 1, false, &truth);
	stall_judge(s, 0, true);
	numbers(s, &got, &node);
	CHECK_U64(got.judged, 0);
	CHECK_U64(got.unjudged, 1);
	CHECK_U64(got.lower_ns + got.estimate_ns + got.upper_ns + got.latency_saved_ns, 0);
	CHECK_STR(stall_why_words[node.why], "too few control reads so far");
	stall_free(s);
}

static void holes_make_a_pass_unjudged(void)
{
	struct stall_job job = some_job();
	struct stall *s = stall_for(&job);
	struct stall_numbers got;
	struct stall_node node;
	struct stall_read read;

	stall_case_controls(s, &some_case, 3);
	for (uint64_t i = 0; i < 1000; i++) {
		read = staged(0, i, i * 1000000);
		if (i % 10)
			tell(s, &read);
		read = staged(1, i, 10000000000ull + i * 1000000);
		if (i % 100)
			tell(s, &read);
	}
	stall_judge(s, 0, true);
	numbers(s, &got, &node);
	CHECK_U64(got.unjudged, 1);
	CHECK_U64(got.judged, 1);
	CHECK_U64(got.reads, 990);
	stall_free(s);
}

static void workers_are_counted_when_not_told(void)
{
	struct stall_job job = { .n_ranks = 1, .batch = 7 };
	struct stall *s = stall_for(&job);
	struct stall_case c = some_case;
	struct stall_truth truth;
	struct stall_numbers got;
	struct stall_node node;

	stall_case_controls(s, &c, 3);
	c.miss_share = 0.2;
	stall_case_play(s, &c, 0, 1, false, &truth);
	stall_judge(s, 0, true);
	numbers(s, &got, &node);
	CHECK_U64(got.judged, 1);
	CHECK_U64(got.workers, 4);
	CHECK_U64(got.prefetch, 2);
	CHECK(got.lower_ns > 0);
	stall_free(s);

	s = stall_for(&job);
	stall_case_controls(s, &c, 3);
	for (uint64_t i = 0; i < 70; i++) {
		struct stall_read read = staged(0, i, i * 1000000);

		read.reader = i < 8 ? 1 + i / 2 : 0; /* four, but each seen twice only */
		tell(s, &read);
	}
	stall_judge(s, 0, true);
	numbers(s, &got, &node);
	CHECK_U64(got.unjudged, 1);
	CHECK_INT(node.why, STALL_NO_WORKERS);
	stall_free(s);
}

static void without_batch_there_is_no_estimate(void)
{
	struct stall_job job = { .n_ranks = 1, .workers = 4 };
	struct stall *s = stall_for(&job);
	struct stall_truth first, second;
	struct stall_numbers got;
	struct stall_node node;

	stall_case_controls(s, &some_case, 3);
	stall_case_play(s, &some_case, 0, 1, false, &first);
	stall_case_play(s, &some_case, 1, 2, false, &second);
	stall_judge(s, 0, true);
	numbers(s, &got, &node);
	CHECK_U64(got.judged, 2);
	CHECK_U64(got.judged_replay, 0);
	CHECK_U64(got.estimate_ns, 0);
	CHECK((double)got.upper_ns > 0.9e9 * (first.saved_latency_s + second.saved_latency_s));
	stall_free(s);
}

static void long_passes_are_judged_in_parts(void)
{
	struct stall_job job = { .n_ranks = 1, .workers = 2, .prefetch = 1, .batch = 100000 };
	struct stall *s = stall_for(&job);
	struct stall_numbers got;
	struct stall_node node;
	const uint64_t part = 2000000, n = part + 300000;

	stall_case_controls(s, &some_case, 3);
	for (uint64_t i = 0; i < n; i++) {
		struct stall_read read = staged(3, i, i * 1000);

		read.length = n;
		tell(s, &read);
		if (i == part) {
			stall_judge(s, 0, false);
			numbers(s, &got, &node);
			CHECK_U64(got.judged, 1);
			CHECK_U64(got.reads, part);
		}
	}
	stall_judge(s, 0, false);
	numbers(s, &got, &node);
	CHECK_U64(got.judged, 2);
	CHECK_U64(got.reads, n);
	stall_free(s);
}

static void job_that_resumes_begins_in_the_middle(void)
{
	struct stall_job job = some_job();
	struct stall *s = stall_for(&job);
	struct stall_numbers got;
	struct stall_node node;

	stall_case_controls(s, &some_case, 3);
	for (uint64_t i = 0; i < 350; i++) {
		struct stall_read read = staged(0, 700 + i, i * 1000000);

		tell(s, &read);
	}
	stall_judge(s, 0, true);
	numbers(s, &got, &node);
	CHECK_U64(got.judged, 1);
	CHECK_U64(got.reads, 350);
	stall_free(s);
}

static void totals_survive_another_job(void)
{
	static const uint32_t ranks[] = { 5, 7 };
	struct stall_job job = some_job();
	struct stall *s = stall_for(&job);
	struct stall_numbers before, got;
	struct stall_truth truth;
	struct stall_read read;
	struct stall_node node;

	stall_case_controls(s, &some_case, 3);
	stall_case_play(s, &some_case, 4, 1, false, &truth);
	job.n_ranks = 2;
	job.ranks = ranks;
	CHECK_INT(stall_set_job(s, &job), 0);
	stall_judge(s, 0, false);
	numbers(s, &before, &node);
	CHECK_U64(before.judged, 1);
	CHECK_INT((int)stall_n_ranks(s), 3);
	for (uint64_t i = 0; i < 70; i++) { /* pass numbers begin again */
		read = staged(0, i, i * 1000000);
		read.rank_index = 1;
		tell(s, &read);
	}
	read = staged(0, 0, 0);
	read.rank_index = 2; /* no such rank */
	tell(s, &read);
	stall_judge(s, 0, true);
	stall_get_rank(s, 2, &got);
	CHECK_INT((int)got.rank, 7);
	CHECK_U64(got.judged, 1);
	stall_get_rank(s, 0, &got);
	CHECK_U64(got.lower_ns, before.lower_ns);
	stall_get_node(s, &node);
	CHECK_U64(node.unplaced_reads, some_case.controls + 1);
	job.n_ranks = STALL_RANKS_MAX + 1;
	job.ranks = NULL;
	CHECK_INT(stall_set_job(s, &job), -EINVAL);
	read.rank_index = 0;
	tell(s, &read);
	stall_free(s);
}

static void steps_are_counted_and_nonsense_is_not(void)
{
	struct clairfs_step_record step = { .rank = 3,
					    .flags = CLAIRFS_STEP_FIRST,
					    .t_request = 100,
					    .t_ready = 130,
					    .t_next = 200 };
	struct stall_job job = some_job();
	struct stall *s = stall_for(&job);
	struct stall_numbers got;

	CHECK(stall_step(s, &step));
	step.flags = 1u << CLAIRFS_STEP_LOADER_SHIFT; /* another loader, its start not told */
	CHECK(stall_step(s, &step));
	step.t_ready = 99;
	CHECK(!stall_step(s, &step));
	step.t_ready = 250;
	CHECK(!stall_step(s, &step));
	stall_get_rank(s, 1, &got);
	CHECK_INT((int)got.rank, 3);
	CHECK_U64(got.steps, 2);
	CHECK_U64(got.gpu_wait_ns, 60);
	CHECK_U64(got.compute_ns, 140);
	CHECK(fabs(stall_au_percent(&got) - 70) < 1e-9);
	stall_get_rank(s, 0, &got);
	CHECK(stall_au_percent(&got) < 0);
	step.t_ready = 150;
	for (step.rank = 0; step.rank < STALL_RANKS_MAX; step.rank++)
		CHECK(stall_step(s, &step));
	CHECK(!stall_step(s, &step));
	CHECK_INT((int)stall_n_ranks(s), STALL_RANKS_MAX);
	stall_free(s);
}

/* A step of rank 0; flags and a loader. */
static void step_is(struct stall *s, uint32_t flags, uint32_t loader, uint64_t request,
		    uint64_t ready, uint64_t next)
{
	struct clairfs_step_record step = { .flags = flags | loader << CLAIRFS_STEP_LOADER_SHIFT,
					    .t_request = request,
					    .t_ready = ready,
					    .t_next = next };

	CHECK(stall_step(s, &step));
}

static void steps_add_up_to(const struct stall *s, uint64_t wait_ns, uint64_t compute_ns)
{
	struct stall_numbers got;

	stall_get_rank(s, 0, &got);
	CHECK_U64(got.gpu_wait_ns, wait_ns);
	CHECK_U64(got.compute_ns, compute_ns);
	CHECK(fabs(stall_au_percent(&got) -
		   100.0 * (double)compute_ns / (double)(wait_ns + compute_ns)) < 1e-9);
}

static void loops_within_a_step_count_once(void)
{
	struct stall_job job = some_job();
	struct stall *s = stall_for(&job);

	step_is(s, CLAIRFS_STEP_FIRST, 0, 1000, 1100, 1200);
	steps_add_up_to(s, 100, 100);
	/* A validation of two batches in the compute of the next: waits of 50 and 20. */
	step_is(s, CLAIRFS_STEP_INNER | CLAIRFS_STEP_FIRST, 1, 1300, 1350, 1400);
	step_is(s, CLAIRFS_STEP_INNER | CLAIRFS_STEP_LEFT, 1, 1400, 1420, 1500);
	steps_add_up_to(s, 170, 230); /* its compute is no news to come */
	step_is(s, 0, 0, 1200, 1210, 1600);
	steps_add_up_to(s, 180, 420); /* all of the 600 since the first request */
	step_is(s, 0, 0, 1600, 1600, 1700);
	steps_add_up_to(s, 180, 520);
	/* Within a validation that is within a step, another one. */
	step_is(s, CLAIRFS_STEP_INNER | CLAIRFS_STEP_FIRST, 2, 1820, 1830, 1840);
	step_is(s, CLAIRFS_STEP_INNER | CLAIRFS_STEP_FIRST, 1, 1800, 1810, 1850);
	step_is(s, 0, 0, 1700, 1750, 2000);
	steps_add_up_to(s, 250, 750);
	stall_free(s);
}

static void inner_steps_of_a_lost_one_take_nothing(void)
{
	struct stall_job job = some_job();
	struct stall *s = stall_for(&job);

	step_is(s, CLAIRFS_STEP_INNER, 1, 1000, 1100, 1200);
	steps_add_up_to(s, 100, 100);
	step_is(s, CLAIRFS_STEP_FIRST, 0, 1200, 1300, 1600);
	steps_add_up_to(s, 200, 400);
	/* More than the step has, from whoever: nothing falls below. */
	step_is(s, CLAIRFS_STEP_INNER, 1, 1000, 1000, 1700);
	step_is(s, 0, 0, 1600, 1650, 1700);
	steps_add_up_to(s, 250, 1100);
	stall_free(s);
}

static const struct check_test tests[] = {
	{ "replay_is_what_the_queues_do", replay_is_what_the_queues_do },
	{ "no_batches_take_no_time", no_batches_take_no_time },
	{ "ghost_is_a_list_of_the_files_read_last", ghost_is_a_list_of_the_files_read_last },
	{ "ghost_of_no_size_has_nothing", ghost_of_no_size_has_nothing },
	{ "limits_hold_in_95_of_100_sets", limits_hold_in_95_of_100_sets },
	{ "classes_with_few_reads_share", classes_with_few_reads_share },
	{ "control_reads_have_an_end", control_reads_have_an_end },
	{ "order_of_telling_does_not_matter", order_of_telling_does_not_matter },
	{ "pass_is_over_when_complete_or_left", pass_is_over_when_complete_or_left },
	{ "pass_waits_for_control_reads", pass_waits_for_control_reads },
	{ "end_without_control_reads_says_why", end_without_control_reads_says_why },
	{ "holes_make_a_pass_unjudged", holes_make_a_pass_unjudged },
	{ "workers_are_counted_when_not_told", workers_are_counted_when_not_told },
	{ "without_batch_there_is_no_estimate", without_batch_there_is_no_estimate },
	{ "long_passes_are_judged_in_parts", long_passes_are_judged_in_parts },
	{ "job_that_resumes_begins_in_the_middle", job_that_resumes_begins_in_the_middle },
	{ "totals_survive_another_job", totals_survive_another_job },
	{ "loops_within_a_step_count_once", loops_within_a_step_count_once },
	{ "inner_steps_of_a_lost_one_take_nothing", inner_steps_of_a_lost_one_take_nothing },
	{ "steps_are_counted_and_nonsense_is_not", steps_are_counted_and_nonsense_is_not },
};

CHECK_MAIN(tests)
