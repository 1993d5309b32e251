/* SPDX-License-Identifier: Apache-2.0 */
/* When a job whose order was found is over: its processes, where they are known, and else that
 * nothing is opened any more. */
#include <unistd.h>

#include "check.h"
#include "src/orders/orders_priv.h"

#define GONE_PID 0x3fffffff

static const uint64_t now = 1000 * NS_PER_S;

static bool is_over(const struct job *job, uint64_t quiet_s)
{
	const struct drive_job view = { .told_ns = NS_PER_S, .read_ns = now - quiet_s * NS_PER_S };

	return job_is_over(job, &view, now);
}

/* All that it reads is in the kernel's page cache: there is no READ that says who it is. */
static void nobody_was_seen_to_read(void)
{
	const struct job job = { .is_found = true };

	CHECK(job_is_unseen(&job));
	CHECK(!is_over(&job, 0));
	CHECK(!is_over(&job, 59));
	CHECK(is_over(&job, 60));
}

static void an_order_that_was_told_stays(void)
{
	const struct job job = { .is_found = false };

	CHECK(!job_is_unseen(&job));
	CHECK(!is_over(&job, 900));
}

static void readers_that_are_known(void)
{
	struct job job = { .is_found = true, .n_readers = 1 };

	CHECK(!job_is_unseen(&job));
	CHECK(!is_over(&job, 900)); /* one is there */
	job.reader[0] = (struct process_id){ GONE_PID, 1 };
	job.state = JOB_GONE;
	job.gone_ns = now - NS_PER_S;
	CHECK(!is_over(&job, 900));
	job.gone_ns = now - 2 * NS_PER_S;
	CHECK(is_over(&job, 900));
	CHECK(!is_over(&job, 1)); /* others read what it would */
	job.gone_ns = now - 5 * NS_PER_S;
	CHECK(is_over(&job, 1));
}

static const struct check_test tests[] = {
	{ "nobody_was_seen_to_read", nobody_was_seen_to_read },
	{ "an_order_that_was_told_stays", an_order_that_was_told_stays },
	{ "readers_that_are_known", readers_that_are_known },
};

CHECK_MAIN(tests)
