/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a rank: what is kept of them against a plain array, however long the job; the C side
 * of the hook without a mount. */
#include <errno.h>
#include <string.h>

#include "check.h"
#include "clairfs/hint.h"
#include "clairfs/report.h"

static void sums_are_those_of_an_array(void)
{
	enum { STEPS = 5000 };
	static uint64_t wait[STEPS], span[STEPS];
	static bool has[STEPS];
	uint64_t state = check_seed();

	for (uint32_t limit = 2; limit <= 8192; limit *= 4) {
		struct step_log log = { .limit = limit };

		memset(has, 0, sizeof(has));
		for (unsigned i = 0; i < STEPS; i++) { /* in any order, with gaps */
			uint64_t k = check_rand_below(&state, STEPS);

			if (has[k])
				continue;
			has[k] = true;
			wait[k] = check_rand_below(&state, 1000);
			span[k] = wait[k] + check_rand_below(&state, 1000);
			CHECK_INT(step_log_add(&log, k, wait[k] * 1000, span[k] * 1000), 0);
		}
		CHECK(log.n <= limit && log.capacity <= limit);
		for (uint64_t i = 0; i < log.n; i++) {
			uint64_t w = 0, s = 0, n = 0;

			for (uint64_t k = i * log.every; k < MIN((i + 1) * log.every, STEPS); k++) {
				w += has[k] ? wait[k] : 0;
				s += has[k] ? span[k] : 0;
				n += has[k];
			}
			CHECK_U64(log.wait_us[i], n ? w : STEP_UNKNOWN);
			CHECK_U64(log.span_us[i], n ? s : STEP_UNKNOWN);
		}
		step_log_fini(&log);
	}
}

static void a_far_step_takes_no_more_memory(void)
{
	struct step_log log = { 0 };

	CHECK_INT(step_log_add(&log, 0, 7000, 9000), 0);
	CHECK_INT(step_log_add(&log, STEP_MAX - 1, 1000, 2000), 0);
	CHECK_INT(step_log_add(&log, STEP_MAX, 1000, 2000), -EINVAL);
	CHECK(log.n <= STEP_LOG_ENTRIES);
	CHECK_U64(log.wait_us[0], 7);
	CHECK_U64(log.wait_us[log.n - 1], 1);
	step_log_fini(&log);
}

static void sums_that_do_not_fit_stay_below_unknown(void)
{
	struct step_log log = { .limit = 2 };

	for (uint64_t i = 0; i < 4; i++)
		CHECK_INT(step_log_add(&log, i, UINT64_MAX / 2, UINT64_MAX / 2), 0);
	CHECK_U64(log.every, 2);
	CHECK_U64(log.wait_us[0], STEP_UNKNOWN - 1);
	step_log_fini(&log);
}

static void sums_of_short_steps_do_not_drift(void)
{
	struct step_log log = { 0 };
	uint64_t sum = 0;

	for (uint64_t i = 0; i < 1000; i++)
		CHECK_INT(step_log_add(&log, i, 700, 700), 0);
	for (uint64_t i = 0; i < log.n; i++)
		sum += log.wait_us[i];
	CHECK_U64(sum, 700);
	step_log_fini(&log);
}

static struct clairfs_step_record record(void)
{
	return (struct clairfs_step_record){
		.rank = 3, .step = 5, .t_request = 100, .t_ready = 130, .t_next = 200
	};
}

static void implausible_records_are_seen(void)
{
	struct clairfs_step_record r = record();

	CHECK(step_is_plausible(&r, 4));
	CHECK(!step_is_plausible(&r, 3));
	CHECK(!step_is_plausible(&r, 0));
	r.t_ready = 99;
	CHECK(!step_is_plausible(&r, 4));
	r = record();
	r.t_next = 129;
	CHECK(!step_is_plausible(&r, 4));
	r = record();
	r.t_request = 0;
	CHECK(!step_is_plausible(&r, 4));
	r = record();
	r.step = STEP_MAX;
	CHECK(!step_is_plausible(&r, 4));
	r = record();
	r.flags = 1u << 15;
	CHECK(!step_is_plausible(&r, 4));
	r.flags = CLAIRFS_STEP_FLAGS | 77u << CLAIRFS_STEP_LOADER_SHIFT;
	CHECK(step_is_plausible(&r, 4));
}

static void inner_steps_wait_within_the_time_of_others(void)
{
	struct clairfs_step_record outer = record(), inner = record();
	struct step_totals t = { 0 };

	CHECK(step_au_percent(&t) == 0);
	outer.t_next = 1100;
	outer.flags = CLAIRFS_STEP_FIRST;
	inner.flags = CLAIRFS_STEP_INNER;
	step_totals_add(&t, &outer);
	step_totals_add(&t, &inner);
	CHECK_U64(t.steps, 2);
	CHECK_U64(t.outer, 1);
	CHECK_U64(t.wait_ns, 60);
	CHECK_U64(t.first_wait_ns, 30);
	CHECK_U64(t.span_ns, 1000);
	CHECK(step_au_percent(&t) > 93.9 && step_au_percent(&t) < 94.1);
}

static void names_of_jobs_are_harmless(void)
{
	char out[8];

	job_name_clean("../x/y", 6, out, sizeof(out));
	CHECK_STR(out, "..");
	job_name_clean("12345_6.batch", 13, out, sizeof(out));
	CHECK_STR(out, "12345_6");
	job_name_clean("ab", 1, out, sizeof(out));
	CHECK_STR(out, "a");
	job_name_clean("\n", 1, out, sizeof(out));
	CHECK_STR(out, "");
}

static void a_hook_without_a_mount_counts_what_it_lost(void)
{
	static struct clairfs_hook hook;
	uint64_t now;

	clairfs_hook_open(&hook, check_tmpdir(), 1, 2, "job");
	now = hook.sent_ns;
	for (int i = 0; i < CLAIRFS_STEPS - 1; i++)
		clairfs_hook_step(&hook, 0, now, now, now);
	CHECK_U64(hook.steps.count, CLAIRFS_STEPS - 1);
	CHECK_U64(hook.steps.step[7].step, 7);
	CHECK_U64(hook.steps.step[7].rank, 1);
	clairfs_hook_step(&hook, 0, now, now, now);
	CHECK_U64(hook.steps.count, 0);
	CHECK_U64(hook.steps.lost, CLAIRFS_STEPS);
	clairfs_hook_step(&hook, 0, hook.sent_ns, hook.sent_ns, hook.sent_ns + 1000000000u);
	CHECK_U64(hook.steps.lost, CLAIRFS_STEPS + 1);
	CHECK_INT(clairfs_hook_flush(&hook), 0);
	clairfs_hook_open(&hook, NULL, 0, 1, NULL);
	clairfs_hook_step(&hook, 0, 1, 2, 3);
	CHECK(clairfs_hook_flush(&hook) < 0);
	clairfs_hook_close(&hook);
}

static const struct check_test tests[] = {
	{ "sums_are_those_of_an_array", sums_are_those_of_an_array },
	{ "a_far_step_takes_no_more_memory", a_far_step_takes_no_more_memory },
	{ "sums_that_do_not_fit_stay_below_unknown", sums_that_do_not_fit_stay_below_unknown },
	{ "sums_of_short_steps_do_not_drift", sums_of_short_steps_do_not_drift },
	{ "implausible_records_are_seen", implausible_records_are_seen },
	{ "inner_steps_wait_within_the_time_of_others",
	  inner_steps_wait_within_the_time_of_others },
	{ "names_of_jobs_are_harmless", names_of_jobs_are_harmless },
	{ "a_hook_without_a_mount_counts_what_it_lost",
	  a_hook_without_a_mount_counts_what_it_lost },
};
CHECK_MAIN(tests)
