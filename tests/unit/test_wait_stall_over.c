/* SPDX-License-Identifier: Apache-2.0 */
/* When a pass is over: as soon as it can be, however many opens were lost, and not before. The
 * numbers of a pass: test_wait_stall.c. */
#include <string.h>

#include "check.h"
#include "clairfs/wait/stall.h"

enum { N = 10000, BATCH = 16, MS = 1000000 };
#define SECOND 1000000000ull

static struct stall *stall_for(void)
{
	static const struct stall_params params = { .n_units = N };
	struct stall_job job = {
		.id = 1, .n_ranks = 1, .workers = 4, .prefetch = 2, .batch = BATCH
	};
	struct stall *s;

	CHECK_INT(stall_new(&params, &s), 0);
	CHECK_INT(stall_set_job(s, &job), 0);
	return s;
}

/* Misses [from, to) of a pass of N, a millisecond apart. */
static void reads_are(struct stall *s, uint64_t pass, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++) {
		struct stall_read read = { .has_place = true,
					   .order = 1,
					   .read_class = READ_MISS,
					   .pass = pass,
					   .index = i,
					   .length = N,
					   .unit = { i },
					   .bytes = 1000,
					   .opened_ns = (100 * pass + 1) * SECOND + i * (uint64_t)MS };

		CHECK_INT(stall_read(s, &read), 0);
	}
}

/* When that read was opened. */
static uint64_t when(uint64_t pass, uint32_t i)
{
	return (100 * pass + 1) * SECOND + i * (uint64_t)MS;
}

static uint64_t judged(const struct stall *s)
{
	struct stall_numbers n;

	stall_get_rank(s, 0, &n);
	CHECK_U64(n.unjudged, 0);
	return n.judged;
}

static enum stall_why why(const struct stall *s)
{
	struct stall_node node;

	stall_get_node(s, &node);
	return node.why;
}

/* The next pass has begun and no read before it is undecided: there is nothing to wait for. */
static void lost_open_does_not_hold_up_a_pass(void)
{
	struct stall *s = stall_for();

	reads_are(s, 0, 0, 4000);
	reads_are(s, 0, 4001, N);
	stall_settled(s, when(0, N - 1));
	stall_judge(s, when(0, N - 1) + SECOND, false);
	CHECK_U64(judged(s), 0);
	CHECK_INT(why(s), STALL_NOTHING_READ);
	reads_are(s, 1, 0, 100);
	CHECK_INT(why(s), STALL_SETTLING);
	stall_settled(s, when(0, N - 1) + SECOND - 1);
	stall_judge(s, when(0, N - 1) + 3 * SECOND, false);
	CHECK_U64(judged(s), 0);
	stall_settled(s, when(0, N - 1) + SECOND);
	stall_judge(s, when(0, N - 1) + 3 * SECOND, false);
	CHECK_U64(judged(s), 1);
	CHECK_INT(why(s), STALL_JUDGED);
	stall_free(s);
}

/* An order that is found after some reads, a job that goes on in the middle: nobody waits for what came
 * before. */
static void pass_that_began_in_the_middle_is_no_lack(void)
{
	struct stall *s = stall_for();

	reads_are(s, 0, 6000, 6100);
	stall_settled(s, when(0, 6100) + 2 * SECOND);
	stall_judge(s, when(0, 6100) + 2 * SECOND, false);
	CHECK_U64(judged(s), 0);
	reads_are(s, 0, 6100, N);
	reads_are(s, 1, 0, 100);
	stall_settled(s, when(0, N - 1) + SECOND);
	stall_judge(s, when(0, N - 1) + 2 * SECOND, false);
	CHECK_U64(judged(s), 1);
	stall_free(s);
}

/* A read that happened to stand near the end of a pass, when the mount ends: it is all of what was told
 * from there on, but no pass. */
static void a_stray_read_is_no_pass(void)
{
	static const uint32_t reads[] = { 1, 63, 99, 100 };

	for (size_t i = 0; i < ARRAY_LEN(reads); i++) {
		struct stall *s = stall_for();
		struct stall_numbers n;

		reads_are(s, 0, 9000, 9000 + reads[i]);
		stall_judge(s, when(0, N - 1) + 100 * SECOND, true);
		stall_get_rank(s, 0, &n);
		CHECK_U64(n.judged, reads[i] == 100);
		CHECK_U64(n.unjudged, reads[i] != 100);
		CHECK_INT(why(s), reads[i] == 100 ? STALL_JUDGED : STALL_HOLES);
		stall_free(s);
	}
}

/* The last pass has none behind it. */
static void job_that_has_finished_is_judged_likewise(void)
{
	for (int finished = 0; finished < 2; finished++) {
		struct stall *s = stall_for();

		reads_are(s, 0, 1, N);
		stall_finished(s, finished);
		stall_settled(s, when(0, N - 1) + SECOND);
		stall_judge(s, when(0, N - 1) + 2 * SECOND, false);
		CHECK_U64(judged(s), finished);
		CHECK_INT(why(s), finished ? STALL_JUDGED : STALL_NOTHING_READ);
		stall_judge(s, when(0, N - 1) + STALL_QUIET_NS - 1, false);
		CHECK_U64(judged(s), finished);
		stall_judge(s, when(0, N - 1) + STALL_QUIET_NS, false);
		CHECK_U64(judged(s), 1);
		stall_free(s);
	}
}

/* A read that is under way for long is part of its pass, though it began after all that were told. */
static void quiet_is_not_what_is_still_undecided(void)
{
	struct stall *s = stall_for();

	reads_are(s, 0, 0, N - 1);
	stall_settled(s, when(0, N - 2));
	stall_judge(s, when(0, N - 2) + STALL_QUIET_NS, false);
	CHECK_U64(judged(s), 0);
	stall_settled(s, when(0, N - 2) + SECOND - 1);
	stall_judge(s, when(0, N - 2) + 2 * STALL_QUIET_NS - 1, false);
	CHECK_U64(judged(s), 0);
	stall_settled(s, when(0, N - 2) + SECOND);
	stall_judge(s, when(0, N - 2) + STALL_QUIET_NS, false);
	CHECK_U64(judged(s), 1);
	stall_free(s);
}

/* One read near the end is no pass that began there: it is judged when the rest of it is told. */
static void stray_read_near_the_end_is_no_pass(void)
{
	struct stall *s = stall_for();

	reads_are(s, 0, N - 1, N);
	stall_settled(s, when(0, N) + 100 * SECOND);
	stall_judge(s, when(0, N) + 100 * SECOND, false);
	CHECK_U64(judged(s), 0);
	stall_free(s);
}

static void half_a_pass_is_not_over_when_the_job_pauses(void)
{
	struct stall *s = stall_for();

	reads_are(s, 0, 0, N / 2);
	stall_settled(s, when(0, N));
	stall_judge(s, when(0, N) + 100 * SECOND, false);
	CHECK_U64(judged(s), 0);
	CHECK_INT(why(s), STALL_NOTHING_READ);
	reads_are(s, 1, 0, 1); /* and what comes of the next one by chance ends it late only */
	stall_settled(s, when(0, N) + 5 * SECOND);
	stall_judge(s, when(0, N / 2 - 1) + STALL_LATE_NS - 1, false);
	CHECK_U64(judged(s), 0);
	stall_judge(s, when(0, N / 2 - 1) + STALL_LATE_NS, false);
	CHECK_U64(judged(s), 1);
	stall_free(s);
}

/* Steps of four seconds: nothing is opened for longer than the limit while they last. */
static void slow_steps_are_no_quiet(void)
{
	struct stall *s = stall_for();
	enum { STEPS = 200 };

	for (uint64_t i = 0; i < STEPS * BATCH - BATCH; i++) {
		struct stall_read read = { .has_place = true,
					   .order = 1,
					   .read_class = READ_MISS,
					   .index = i,
					   .length = STEPS * BATCH,
					   .bytes = 1000,
					   .opened_ns = (1 + i / BATCH * 4) * SECOND };

		CHECK_INT(stall_read(s, &read), 0);
	}
	stall_judge(s, (1 + (STEPS - 2) * 4 + 10) * SECOND, false);
	CHECK_U64(judged(s), 0);
	stall_judge(s, (1 + (STEPS - 2) * 4 + 12) * SECOND, false);
	CHECK_U64(judged(s), 1);
	stall_free(s);
}

/* drop_last leaves a sixth of a small set unread. */
static void last_batch_may_be_left_out(void)
{
	struct stall *s = stall_for();

	for (uint64_t i = 0; i < 5 * BATCH; i++) {
		struct stall_read read = { .has_place = true,
					   .order = 1,
					   .read_class = READ_MISS,
					   .index = i,
					   .length = 6 * BATCH - 1,
					   .bytes = 1000,
					   .opened_ns = SECOND + i * MS };

		CHECK_INT(stall_read(s, &read), 0);
	}
	stall_judge(s, SECOND + (5 * BATCH - 1) * (uint64_t)MS + STALL_QUIET_NS, false);
	CHECK_U64(judged(s), 1);
	stall_free(s);
}

static const struct check_test tests[] = {
	{ "a_stray_read_is_no_pass", a_stray_read_is_no_pass },
	{ "lost_open_does_not_hold_up_a_pass", lost_open_does_not_hold_up_a_pass },
	{ "pass_that_began_in_the_middle_is_no_lack", pass_that_began_in_the_middle_is_no_lack },
	{ "job_that_has_finished_is_judged_likewise", job_that_has_finished_is_judged_likewise },
	{ "quiet_is_not_what_is_still_undecided", quiet_is_not_what_is_still_undecided },
	{ "stray_read_near_the_end_is_no_pass", stray_read_near_the_end_is_no_pass },
	{ "half_a_pass_is_not_over_when_the_job_pauses",
	  half_a_pass_is_not_over_when_the_job_pauses },
	{ "slow_steps_are_no_quiet", slow_steps_are_no_quiet },
	{ "last_batch_may_be_left_out", last_batch_may_be_left_out },
};

CHECK_MAIN(tests)
