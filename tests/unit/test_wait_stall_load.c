/* SPDX-License-Identifier: Apache-2.0 */
/* GPU wait removed where more than latency counts: workers that share CPUs, reads that share a
 * link, misses among prefetches. */
#include <math.h>
#include <stdlib.h>

#include "src/wait/stall_priv.h"
#include "stall_kit.h"

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

/* Four workers, 120 ms of decoding per sample each. */
static void tell_decoding(struct stall *s)
{
	for (uint64_t i = 0; i < 700; i++) {
		uint64_t batch = i / 7, at = (batch / 4 * 7 + i % 7) * 120000000;
		struct stall_read read = staged(0, i, at);

		tell(s, &read);
	}
}

/* Decoding that takes all CPUs all the time: without the cache the workers would wait for reads and
 * decode faster in between, and the pass would take as long. */
static void busy_cpus_are_not_credited(void)
{
	struct stall_params params = { .n_units = 1000, .cpus = 1 };
	struct stall_job job = some_job();
	struct stall_numbers got;
	struct stall_node node;
	struct stall *s;

	for (int cpus = 1; cpus <= 4; cpus += 3) {
		params.cpus = (uint32_t)cpus;
		CHECK_INT(stall_new(&params, &s), 0);
		CHECK_INT(stall_set_job(s, &job), 0);
		stall_case_controls(s, &some_case, 3); /* 60 ms */
		tell_decoding(s);
		stall_judge(s, 0, true);
		numbers(s, &got, &node);
		CHECK_U64(got.judged, 1);
		if (cpus == 1)
			CHECK(got.lower_ns == 0 && got.estimate_ns < 1000000000ull);
		else
			CHECK(got.lower_ns > 8000000000ull && got.estimate_ns > 8000000000ull);
		stall_free(s);
	}
}

/* The same on one CPU that was idle most of the time: the workers waited for something else, and
 * would have waited on top of their reads. Only the lower bound stays on the safe side. */
static void idle_cpus_did_not_slow_decoding(void)
{
	struct stall_params params = { .n_units = 1000, .cpus = 1 };
	struct stall_job job = some_job();
	struct stall_numbers got;
	struct stall_node node;
	struct stall *s;

	for (int busy = 0; busy <= 1; busy++) {
		CHECK_INT(stall_new(&params, &s), 0);
		CHECK_INT(stall_set_job(s, &job), 0);
		for (uint64_t t = 0; t < 3000; t++) /* more than there are points for */
			stall_cpu(s, t * 10000000, t * (busy ? 9900000 : 3000000));
		stall_case_controls(s, &some_case, 3);
		tell_decoding(s);
		stall_judge(s, 0, true);
		numbers(s, &got, &node);
		CHECK_U64(got.judged, 1);
		CHECK_U64(got.lower_ns, 0);
		if (busy)
			CHECK(got.estimate_ns < 1000000000ull);
		else
			CHECK(got.estimate_ns > 8000000000ull);
		stall_free(s);
	}
}

/* Reads and decoding were slow because tasks waited for a CPU: what of it was the source's nobody
 * can tell. The pass is left out, and its control reads are no measure for others. */
static void crowded_passes_are_not_judged(void)
{
	struct stall_params params = { .n_units = 1000, .crowded_share = 0.3 };
	struct stall_job job = some_job();
	struct stall_numbers got;
	struct stall_node node;
	struct stall *s;

	for (int percent = 29; percent <= 31; percent += 2) {
		CHECK_INT(stall_new(&params, &s), 0);
		CHECK_INT(stall_set_job(s, &job), 0);
		for (uint64_t t = 0; t < 30; t++)
			stall_crowd(s, t * 1000000000, t * 10000000 * (uint64_t)percent);
		stall_case_controls(s, &some_case, 3);
		tell_decoding(s);
		stall_judge(s, 0, true);
		numbers(s, &got, &node);
		CHECK_U64(got.judged, percent < 30);
		CHECK_U64(got.unjudged, percent > 30);
		CHECK_U64(node.controls_used, percent < 30 ? some_case.controls : 0);
		CHECK_U64(node.control_reads, some_case.controls);
		if (percent > 30)
			CHECK_INT(node.unjudged_why, STALL_CROWDED);
		stall_free(s);
	}
}

/* A CPU that was crowded for a while says nothing of the time before and after. */
static void only_the_time_of_the_pass_counts(void)
{
	struct stall_params params = { .n_units = 1000, .crowded_share = 0.3 };
	struct stall_job job = some_job();
	struct stall_numbers got;
	struct stall_node node;
	struct stall *s;

	CHECK_INT(stall_new(&params, &s), 0);
	CHECK_INT(stall_set_job(s, &job), 0);
	for (uint64_t t = 0; t < 100; t++) /* from the 40th second on */
		stall_crowd(s, t * 1000000000, t < 40 ? 0 : (t - 40) * 1000000000);
	stall_case_controls(s, &some_case, 3);
	tell_decoding(s); /* 21 s */
	stall_judge(s, 0, true);
	numbers(s, &got, &node);
	CHECK_U64(got.judged, 1);
	stall_free(s);
}

/* A read that this mount was slow to answer itself would have been faster without it. */
static void way_through_this_mount_is_not_the_sources(void)
{
	struct stall_job job = some_job();
	struct stall_numbers got;
	struct stall_node node;
	double lower[2];

	for (int slow = 0; slow < 2; slow++) {
		struct stall *s = stall_for(&job);

		stall_case_controls(s, &some_case, 3);
		for (uint64_t i = 0; i < 700; i++) { /* every other one was a miss */
			uint64_t batch = i / 7, at = (batch / 4 * 7 + i % 7) * 40000000;
			struct stall_read read = staged(0, i, at);

			read.bytes = 100000;
			read.read_class = i % 2 ? READ_STAGED : READ_MISS;
			read.wait_ns = i % 2 ? 0 : 30000000;
			read.held_ns = slow && !(i % 2) ? 29000000 : 0;
			tell(s, &read);
		}
		stall_judge(s, 0, true);
		numbers(s, &got, &node);
		CHECK_U64(got.judged, 1);
		lower[slow] = (double)got.lower_ns;
		stall_free(s);
	}
	CHECK(lower[0] > 1e9);
	/* 350 reads of 29 ms less, by four workers. */
	CHECK(fabs(lower[0] - lower[1] - 350 * 29e6 / 4) < 1e7 || lower[1] == 0);
	CHECK(lower[1] < lower[0]);
}

/* Each READ costs 2 ms on its way to this mount and back, which shows in the gap behind it only. */
static void way_to_this_mount_is_no_decoding(void)
{
	struct stall_job job = some_job();
	struct stall_numbers got[2];
	struct stall_node node;

	for (int far = 0; far < 2; far++) {
		struct stall *s = stall_for(&job);

		stall_case_controls(s, &some_case, 3);
		for (uint64_t k = 0; k < 100; k++) {
			uint64_t at = k / 4 * 100000000;

			for (uint64_t i = 0; i < 7; i++) {
				struct stall_read read = staged(0, k * 7 + i, at);

				read.bytes = 100000;
				if (i < 5 && far)
					read.read_class = READ_ARENA;
				read.wait_ns = i < 5 && far ? 1000000 : 0;
				tell(s, &read);
				at += 5000000 + (i < 5 && far ? 3000000 : 0);
			}
		}
		stall_judge(s, 0, true);
		numbers(s, &got[far], &node);
		CHECK_U64(got[far].judged, 1);
		stall_free(s);
	}
	CHECK(got[0].lower_ns > 0);
	/* 5 ms are decoding in both. */
	CHECK(got[1].lower_ns <= got[0].lower_ns + 10000000);
}

static void a_time_told_twice_is_one_point(void)
{
	struct stall_params params = { .n_units = 1, .cpus = 1 };
	struct stall *s;
	double share;

	CHECK_INT(stall_new(&params, &s), 0);
	stall_cpu(s, 1000000000, 500);
	stall_cpu(s, 1000000000, 500);
	stall_cpu(s, 1000000000, 900);
	stall_cpu(s, 2000000000, 500000500);
	stall_cpu(s, 2000000000, 600000500);
	share = stall_cpu_share(s, 1000000000, 2000000000);
	CHECK(fabs(share - 0.5) < 1e-6);
	stall_free(s);
}

/* Control reads of 40 ms, apart from 10 ms before they were sent. */
static void tell_link(struct stall *s, uint64_t samples_per_s)
{
	for (uint32_t i = 0; i < 100; i++) {
		struct stall_read read = { .is_control = true,
					   .read_class = READ_MISS,
					   .unit = { i },
					   .bytes = 100000,
					   .wait_ns = 50000000,
					   .held_ns = 10000000 };

		tell(s, &read);
	}
	if (samples_per_s) /* with 8 requests in flight */
		stall_load(s, 1000000000, 1000000000, samples_per_s * 100000);
}

/* 1400 samples, 4 ms of decoding each, by four workers: 1.4 s. Every n-th was a miss of 200 ms,
 * among prefetches, which nobody had to wait for. */
static void tell_fast_pass(struct stall *s, uint32_t miss_every)
{
	for (uint64_t i = 0; i < 1400; i++) {
		uint64_t batch = i / 7, at = (batch / 4 * 7 + i % 7) * 4000000;
		struct stall_read read = staged(0, i, at);

		read.bytes = 100000;
		if (miss_every && i % miss_every == 0) {
			read.read_class = READ_MISS;
			read.wait_ns = 200000000;
			read.is_loaded = true;
		}
		tell(s, &read);
	}
}

/* Without us the job would have had a hundred samples a second whatever its workers decode: 14 s
 * instead of 1.4. With a link that has twice as much to give, decoding comes on top: 15.4 s. */
static void full_link_sets_the_pace(void)
{
	static const uint64_t link[] = { 100, 200, 0 };
	struct stall_job job = some_job();
	struct stall_numbers got[3];
	struct stall_node node;

	for (int i = 0; i < 3; i++) {
		struct stall *s = stall_for(&job);

		tell_link(s, link[i]);
		tell_fast_pass(s, 0);
		stall_judge(s, 0, true);
		numbers(s, &got[i], &node);
		CHECK_U64(got[i].judged, 1);
		CHECK(got[i].lower_ns <= got[i].estimate_ns);
		stall_free(s);
	}
	CHECK(fabs((double)got[0].estimate_ns - 12.6e9) < 0.5e9);
	CHECK(fabs((double)got[1].estimate_ns - 14e9) < 0.5e9);
	CHECK(fabs((double)got[0].lower_ns - 12.6e9) < 0.5e9);
	CHECK(fabs((double)got[1].lower_ns - 14e9) < 0.5e9);
	/* not known: decoding is no part of what is certain */
	CHECK(fabs((double)got[2].lower_ns - 12.6e9) < 0.5e9);
}

/* A miss that prefetches made slow is our own doing: without us it takes what other reads take. */
static void misses_among_prefetches_claim_no_more_than_other_reads(void)
{
	struct stall_job job = some_job();
	struct stall_numbers plain, with_misses;
	struct stall_node node;

	for (int i = 0; i < 2; i++) {
		struct stall *s = stall_for(&job);

		tell_link(s, 100);
		tell_fast_pass(s, i ? 10 : 0);
		stall_judge(s, 0, true);
		numbers(s, i ? &with_misses : &plain, &node);
		stall_free(s);
	}
	CHECK_U64(with_misses.judged, 1);
	CHECK(with_misses.lower_ns > 0);
	CHECK(with_misses.lower_ns <= plain.lower_ns + 100000000);
	CHECK(with_misses.estimate_ns <= plain.estimate_ns + 100000000);
}

/* What the source gave in better times is no proof that its link is not full now. */
static void link_that_others_fill_meanwhile_is_no_wide_one(void)
{
	struct stall_job job = some_job();
	struct stall *s = stall_for(&job);
	struct stall_numbers got;
	struct stall_node node;

	tell_link(s, 200);
	stall_load(s, 1400000000, 1000000000, 10000000);
	tell_fast_pass(s, 0);
	stall_judge(s, 0, true);
	numbers(s, &got, &node);
	CHECK(fabs((double)got.lower_ns - 12.6e9) < 0.5e9);
	stall_free(s);
}

static void loads_of_hours_ago_are_forgotten(void)
{
	struct stall_job job = some_job();
	struct stall *s = stall_for(&job);
	double least = 0, most = 0;

	CHECK(!stall_load_rates(s, 0, UINT64_MAX, &least, &most));
	for (uint64_t t = 1; t <= 20000; t++)
		stall_load(s, t * 1000000000, 1000000000, t * 1000000);
	CHECK(stall_load_rates(s, 0, UINT64_MAX, &least, &most));
	CHECK(most * 1000 > 19999 && least * 1000 > 18900 && least * 1000 < 19000);
	CHECK(!stall_load_rates(s, 0, 18000000000000, &least, &most));
	CHECK(stall_load_rates(s, 19500000000000, 19510000000000, &least, &most));
	CHECK(least * 1000 > 19490 && most * 1000 < 19520);
	stall_free(s);
}

/* CPUs that were nearly busy: what is left of decoding never says that the pass took longer. */
static void nearly_busy_cpus_leave_something(void)
{
	struct stall_params params = { .n_units = 1000, .cpus = 1 };
	struct stall_job job = some_job();
	struct stall_numbers got, idle;
	struct stall_node node;
	struct stall *s;

	for (uint64_t busy = 30; busy <= 87; busy += 57) {
		CHECK_INT(stall_new(&params, &s), 0);
		CHECK_INT(stall_set_job(s, &job), 0);
		for (uint64_t t = 0; t < 100; t++)
			stall_cpu(s, t * 1000000000, t * busy * 10000000);
		stall_case_controls(s, &some_case, 3);
		tell_decoding(s);
		stall_judge(s, 0, true);
		numbers(s, busy == 30 ? &idle : &got, &node);
		stall_free(s);
	}
	CHECK(got.judged_ns < idle.judged_ns + 1000000000);
	CHECK(got.estimate_ns > 0 && got.estimate_ns < idle.estimate_ns);
}

/* A job that may use one of many CPUs is crowded, however idle the others are. */
static void quota_of_the_job_counts(void)
{
	struct stall_params params = { .n_units = 1000, .cpus = 64 };
	struct stall_job job = some_job();
	struct stall_numbers got;
	struct stall_node node;
	struct stall *s;

	CHECK_INT(stall_new(&params, &s), 0);
	CHECK_INT(stall_set_job(s, &job), 0);
	stall_set_cpus(s, 1);
	for (uint64_t t = 0; t < 100; t++)
		stall_cpu(s, t * 1000000000, t * 1000000000);
	stall_case_controls(s, &some_case, 3);
	tell_decoding(s);
	stall_judge(s, 0, true);
	numbers(s, &got, &node);
	CHECK(got.lower_ns == 0 && got.estimate_ns < 1000000000ull);
	stall_free(s);
}

static const struct check_test tests[] = {
	{ "crowded_passes_are_not_judged", crowded_passes_are_not_judged },
	{ "only_the_time_of_the_pass_counts", only_the_time_of_the_pass_counts },
	{ "way_through_this_mount_is_not_the_sources", way_through_this_mount_is_not_the_sources },
	{ "way_to_this_mount_is_no_decoding", way_to_this_mount_is_no_decoding },
	{ "a_time_told_twice_is_one_point", a_time_told_twice_is_one_point },
	{ "busy_cpus_are_not_credited", busy_cpus_are_not_credited },
	{ "idle_cpus_did_not_slow_decoding", idle_cpus_did_not_slow_decoding },
	{ "a_full_link_sets_the_pace", full_link_sets_the_pace },
	{ "misses_among_prefetches_claim_no_more_than_other_reads",
	  misses_among_prefetches_claim_no_more_than_other_reads },
	{ "a_link_that_others_fill_meanwhile_is_no_wide_one",
	  link_that_others_fill_meanwhile_is_no_wide_one },
	{ "loads_of_hours_ago_are_forgotten", loads_of_hours_ago_are_forgotten },
	{ "nearly_busy_cpus_leave_something", nearly_busy_cpus_leave_something },
	{ "the_quota_of_the_job_counts", quota_of_the_job_counts },
};

CHECK_MAIN(tests)
