/* SPDX-License-Identifier: Apache-2.0 */
/* Whole simulated jobs: what the plan is there for, as counts in virtual time (the same on every
 * machine). 20,000 samples of 108 KiB, 8 workers per rank with 2 batches of 32 ahead, 6400 samples
 * per second; the source takes 3 ms per read. */
#include "check.h"
#include "clairfs/base/clock.h"
#include "plan_sim.h"

#define N 20000u

static struct sim_params params(double fraction)
{
	return (struct sim_params){ .n = N,
				    .sample_bytes = 110592,
				    .arena_samples = (uint64_t)(fraction * N),
				    .stage_samples = 512,
				    .inflight_min = 4,
				    .inflight_max = 128,
				    .info = { .n = N, .world = 1, .n_ranks = 1 },
				    .latency_ns = 3 * NS_PER_MS,
				    .bytes_per_s = 1000000000,
				    .parallel = 64,
				    .ranks = 1,
				    .workers = 8,
				    .prefetch_factor = 2,
				    .batch = 32,
				    .sample_cpu_ns = 500000,
				    .step_ns = 5 * NS_PER_MS,
				    .seed = 1 };
}

static struct sim *start(const struct sim_params *p)
{
	struct sim *sim = sim_new(p);

	sim_pause(sim, NS_PER_S); /* the mount is up a second before the job reads */
	return sim;
}

static uint64_t compute_ns(const struct sim_params *p, uint64_t reads)
{
	return reads / p->ranks / p->batch * p->step_ns;
}

static void a_known_order_removes_the_waiting(void)
{
	struct sim_params p = params(0.5);
	struct sim *sim = start(&p);

	for (uint64_t epoch = 0; epoch < 4; epoch++) {
		struct sim_counts c = sim_epoch(sim, 1, epoch, 0, N);

		CHECK_U64(c.reads, N);
		CHECK(c.staged >= N * 995 / 1000);
		CHECK_U64(c.late + c.missed, 0);
		CHECK(c.stall_ns <= compute_ns(&p, N) / 100);
		/* no more is read than must be, and a window */
		if (epoch)
			CHECK(c.source_reads >= N / 2 - 1000 && c.source_reads <= N / 2 + 1000);
	}
	CHECK_U64(sim_lost_at(sim), UINT64_MAX);
	CHECK_U64(sim_status(sim).resyncs, 0);
	sim_free(sim);
}

static void a_source_half_as_fast_as_the_job_is_enough_with_half_in_memory(void)
{
	struct sim_params p = params(0.5);
	struct sim *sim;

	p.bytes_per_s = 370000000; /* the job reads 708 MB/s */
	sim = start(&p);
	sim_epoch(sim, 1, 0, 0, N);
	sim_epoch(sim, 1, 1, 0, N);
	for (uint64_t epoch = 2; epoch < 6; epoch++) {
		struct sim_counts c = sim_epoch(sim, 1, epoch, 0, N);

		CHECK(c.stall_ns <= compute_ns(&p, N) / 50);
		CHECK(c.source_reads <= N / 2 + 500);
		CHECK(c.late + c.missed <= 100);
	}
	sim_free(sim);
}

static void little_memory_still_hides_the_latency(void)
{
	struct sim_params p = params(0.02);
	struct sim *sim = start(&p);

	sim_epoch(sim, 1, 0, 0, N);
	for (uint64_t epoch = 1; epoch < 4; epoch++) {
		struct sim_counts c = sim_epoch(sim, 1, epoch, 0, N);

		CHECK(c.stall_ns <= compute_ns(&p, N) / 50);
		CHECK(c.source_reads <= N);
	}
	sim_free(sim);
}

static void a_kernel_that_drops_pages_costs_pushes_not_source_reads(void)
{
	struct sim_params p = params(0.5), q = p;
	struct sim *sim, *calm;

	p.stage_samples = q.stage_samples = 2048;
	p.page_drop_ns = 50 * NS_PER_MS;
	sim = start(&p);
	calm = start(&q);
	for (uint64_t epoch = 0; epoch < 3; epoch++) {
		struct sim_counts c = sim_epoch(sim, 1, epoch, 0, N),
				  d = sim_epoch(calm, 1, epoch, 0, N);

		CHECK(c.unstaged > 0);
		printf("# epoch %d: %d source reads, calm %d, unstaged %d\n", (int)epoch,
		       (int)c.source_reads, (int)d.source_reads, (int)c.unstaged);
		/* what a calm kernel holds ready has to be in the arena, at the cost of hits */
		CHECK(c.source_reads <= d.source_reads + N / 2 / 30);
		CHECK(c.staged >= N * 99 / 100);
		if (epoch) /* it has learned how far ahead is too far */
			CHECK(c.stages <= N * 105 / 100);
	}
	sim_free(sim);
	sim_free(calm);
}

/* All of a set of small files fits into arena and stage, and the kernel drops whatever was not read
 * for two seconds; nobody is told before the read. */
static void a_kernel_that_drops_what_is_idle_costs_few_upcalls(void)
{
	struct sim_params p = params(1);
	struct sim_counts all = { 0 };
	struct sim *sim;

	p.arena_samples = p.stage_samples = 2 * N;
	p.page_drop_ns = 2 * NS_PER_S;
	p.is_drop_silent = true;
	p.workers = 2;
	p.step_ns = 20 * NS_PER_MS; /* 1600 a second, so an epoch is 12 of them */
	p.latency_ns = 10 * NS_PER_MS;
	sim = start(&p);
	for (uint64_t epoch = 0; epoch < 6; epoch++) {
		struct sim_counts c = sim_epoch(sim, 1, epoch, 0, N);

		printf("# epoch %d: %d of the arena, %d pushes\n", (int)epoch, (int)c.arena,
		       (int)c.stages);
		all.arena += c.arena;
		all.stages += c.stages;
		CHECK_U64(c.late + c.missed, 0);
	}
	CHECK(all.arena <= 6 * N * 4 / 1000);
	CHECK(all.stages <= 6 * N * 125 / 100);
	sim_free(sim);
}

static void a_wrong_order_is_given_up_within_200_opens(void)
{
	struct sim_params p = params(0.5);
	struct sim *sim = start(&p);
	struct sim_counts c;

	c = sim_epoch(sim, 2, 0, 0, N);
	CHECK(sim_lost_at(sim) <= 200);
	CHECK(c.fetches <= 200);
	/* half the arena was filled and stays useful, as in a cache that never evicts */
	CHECK(c.source_reads <= N - p.arena_samples / 2 + 200);
	CHECK_U64(c.drops, 0);
	for (uint64_t epoch = 1; epoch < 3; epoch++) {
		c = sim_epoch(sim, 2, epoch, 0, N);
		CHECK_U64(c.fetches, 0);
		CHECK_U64(c.source_reads, N - p.arena_samples / 2);
	}
	CHECK_U64(sim_fetches_lost(sim), 0);
	/* the right one again: it is found */
	sim_epoch(sim, 1, 0, 0, N);
	CHECK_INT(sim_status(sim).state, PLAN_FOLLOWING);
	sim_free(sim);
}

static void an_order_that_turns_wrong_is_given_up_within_200_opens(void)
{
	struct sim_params p = params(0.5);
	struct sim *sim = start(&p);
	struct sim_counts c;

	sim_epoch(sim, 1, 0, 0, N);
	c = sim_epoch(sim, 2, 1, 0, N);
	CHECK(sim_lost_at(sim) <= N + 200);
	CHECK(c.fetches <= 400);
	CHECK_U64(sim_fetches_lost(sim), 0);
	c = sim_epoch(sim, 2, 2, 0, N);
	CHECK_U64(c.source_reads, N - p.arena_samples);
	sim_free(sim);
}

static void a_resumed_job_is_found_within_64_reads(void)
{
	struct sim_params p = params(0.5);
	struct sim *sim = start(&p);
	struct sim_counts c = sim_epoch(sim, 1, 0, 7000, N);

	CHECK(c.late + c.missed <= 300);
	CHECK(c.staged >= (N - 7000) * 95 / 100);
	CHECK(sim_status(sim).mismatches <= 64);
	CHECK_U64(sim_lost_at(sim), UINT64_MAX);
	c = sim_epoch(sim, 1, 1, 0, N);
	CHECK_U64(c.late + c.missed, 0);
	sim_free(sim);
}

static void epochs_ended_early_lose_a_few_reads_each(void)
{
	struct sim_params p = params(0.5);
	struct sim *sim = start(&p);

	for (uint64_t epoch = 0; epoch < 4; epoch++) {
		struct sim_counts c = sim_epoch(sim, 1, epoch, 0, 7000);

		CHECK(c.late + c.missed <= 100);
		CHECK_INT(sim_status(sim).state, PLAN_FOLLOWING);
	}
	CHECK_U64(sim_lost_at(sim), UINT64_MAX);
	sim_free(sim);
}

static void a_forgotten_set_epoch_is_predicted_from_the_second_pass_on(void)
{
	struct sim_params p = params(0.5);
	struct sim *sim = start(&p);

	for (int pass = 0; pass < 4; pass++) {
		struct sim_counts c = sim_epoch(sim, 1, 0, 0, N);

		printf("# pass %d: late %d, missed %d, source %d\n", pass, (int)c.late,
		       (int)c.missed, (int)c.source_reads);
		CHECK(c.late + c.missed <= (pass == 1 ? 100 : 0));
		if (pass > 1)
			CHECK(c.source_reads <= N / 2 + 1500);
	}
	CHECK_U64(sim_lost_at(sim), UINT64_MAX);
	CHECK_U64(sim_status(sim).resyncs, 1);
	CHECK_STR(sim_status(sim).why, "reads epoch 0 again: set_epoch is not called");
	sim_free(sim);
}

static void two_ranks_on_a_node_are_one_stream(void)
{
	struct sim_params p = params(0.5);
	struct sim *sim;

	p.ranks = 2;
	p.bytes_per_s = 3000000000;
	p.info.world = p.info.n_ranks = 2;
	p.info.batch = 32;
	p.info.workers = 8;
	sim = start(&p);
	for (uint64_t epoch = 0; epoch < 3; epoch++) {
		struct sim_counts c = sim_epoch(sim, 1, epoch, 0, N);

		CHECK(c.late + c.missed <= 50);
		CHECK(c.stall_ns <= compute_ns(&p, N) / 20);
	}
	CHECK_U64(sim_lost_at(sim), UINT64_MAX);
	CHECK_U64(sim_status(sim).mismatches, 0);
	sim_free(sim);
}

static void a_second_job_is_served_like_the_first(void)
{
	struct sim_params p = params(0.5);
	struct sim *sim;

	p.info.epochs = 2;
	sim = start(&p);
	for (int job = 0; job < 3; job++) {
		for (uint64_t epoch = 0; epoch < 2; epoch++) {
			struct sim_counts c = sim_epoch(sim, 1, epoch, 0, N);

			CHECK_U64(c.late + c.missed, 0);
		}
		CHECK_INT(sim_status(sim).state, PLAN_FINISHED);
		sim_pause(sim, 100 * NS_PER_S);
	}
	CHECK_U64(sim_lost_at(sim), UINT64_MAX);
	sim_free(sim);
}

static void files_opened_twice_change_nothing(void)
{
	struct sim_params p = params(0.5);
	struct sim *sim;

	p.opens_per_read = 2;
	sim = start(&p);
	for (uint64_t epoch = 0; epoch < 3; epoch++) {
		struct sim_counts c = sim_epoch(sim, 1, epoch, 0, N);

		CHECK_U64(c.late + c.missed, 0);
		CHECK(c.source_reads <= (epoch ? N / 2 + 1000 : N));
	}
	CHECK_U64(sim_lost_at(sim), UINT64_MAX);
	sim_free(sim);
}

static void the_store_adds_to_the_memory(void)
{
	struct sim_params p = params(0.1);
	struct sim *sim;

	p.store_samples = N / 2;
	sim = start(&p);
	sim_epoch(sim, 1, 0, 0, N);
	for (uint64_t epoch = 1; epoch < 4; epoch++) {
		struct sim_counts c = sim_epoch(sim, 1, epoch, 0, N);

		CHECK_U64(c.pins, 0); /* write once */
		CHECK(c.late + c.missed <= 20);
		CHECK(c.source_reads <= N - N / 2 - N / 10 + 1500);
		CHECK(c.store_reads <= N / 2 + 500);
	}
	sim_free(sim);
}

static const struct check_test tests[] = {
	{ "a_known_order_removes_the_waiting", a_known_order_removes_the_waiting },
	{ "a_source_half_as_fast_as_the_job_is_enough_with_half_in_memory",
	  a_source_half_as_fast_as_the_job_is_enough_with_half_in_memory },
	{ "little_memory_still_hides_the_latency", little_memory_still_hides_the_latency },
	{ "a_kernel_that_drops_pages_costs_pushes_not_source_reads",
	  a_kernel_that_drops_pages_costs_pushes_not_source_reads },
	{ "a_kernel_that_drops_what_is_idle_costs_few_upcalls",
	  a_kernel_that_drops_what_is_idle_costs_few_upcalls },
	{ "a_wrong_order_is_given_up_within_200_opens",
	  a_wrong_order_is_given_up_within_200_opens },
	{ "an_order_that_turns_wrong_is_given_up_within_200_opens",
	  an_order_that_turns_wrong_is_given_up_within_200_opens },
	{ "a_resumed_job_is_found_within_64_reads", a_resumed_job_is_found_within_64_reads },
	{ "epochs_ended_early_lose_a_few_reads_each", epochs_ended_early_lose_a_few_reads_each },
	{ "a_forgotten_set_epoch_is_predicted_from_the_second_pass_on",
	  a_forgotten_set_epoch_is_predicted_from_the_second_pass_on },
	{ "two_ranks_on_a_node_are_one_stream", two_ranks_on_a_node_are_one_stream },
	{ "a_second_job_is_served_like_the_first", a_second_job_is_served_like_the_first },
	{ "files_opened_twice_change_nothing", files_opened_twice_change_nothing },
	{ "the_store_adds_to_the_memory", the_store_adds_to_the_memory },
};
CHECK_MAIN(tests)
