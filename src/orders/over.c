/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a job is over, from what the drive says of its reads and /proc of its processes.
 *
 * A job that was found has told nothing: it has the processes that were seen to read by it, and is over
 * when these are gone, also as the only one. What it would read next is not kept for it. Where none was
 * seen to read, as the kernel has all the pages, it is over when nothing of it was opened for a minute.
 * Where they may be workers that were spawned, they are gone at the end of each epoch: then their parent
 * must be gone as well, or nothing of the order be read for a minute.
 *
 * A job is over when the drive says so (all its epochs were read); when the process that told it
 * itself is gone, whatever seems to be read of it: the reads of others are often where its order
 * has one; when whoever had it told is gone and nothing of its order is read; and the one that was
 * quiet the longest when there is no room for another. The only one that was told is never over but
 * for another one: it costs nobody anything. */
#include <assert.h>

#include "orders_priv.h"

#define GONE_NS (2 * NS_PER_S)           /* the process that read is gone */
#define FOUND_GONE_NS (5 * NS_PER_S)     /* the same, whatever others read */
#define PASSING_QUIET_NS (60 * NS_PER_S) /* whoever told it is gone, others may be reading */
#define RESIDENT_READS 64

uint64_t job_quiet_ns(const struct drive_job *view, uint64_t now_ns)
{
	uint64_t last = MAX(view->read_ns, view->told_ns);

	return now_ns > last ? now_ns - last : 0;
}

uint32_t job_count_alive(const struct job *job)
{
	uint32_t n = teller_is_alive(&job->by.process);

	for (uint32_t i = 0; i < job->n_beside; i++)
		n += process_is_alive(&job->beside[i]);
	return n;
}

static bool has_reader(const struct job *job)
{
	for (uint32_t i = 0; i < job->n_readers; i++)
		if (process_is_alive(&job->reader[i]))
			return true;
	return false;
}

/* Workers that were spawned are gone at the end of each epoch, and come again. */
static bool has_spawner(const struct job *job)
{
	for (uint32_t i = 0; i < job->n_readers; i++)
		if (job->spawner[i].pid && process_is_alive(&job->spawner[i]))
			return true;
	return false;
}

void job_see(struct job *job, const struct drive_job *view, uint64_t now_ns)
{
	bool is_known = job->by.process.id.pid || job->n_readers;
	bool is_read = view && view->plan.placed >= RESIDENT_READS;
	bool is_there = !is_known || job_count_alive(job) || has_reader(job);

	if (is_read && !job->is_resident)
		job->is_resident = job->by.process.is_itself && job_count_alive(job);
	if (is_there) {
		job->state = is_read ? JOB_RUNNING : JOB_TOLD;
		job->gone_ns = 0;
	} else if (job->state != JOB_GONE) {
		job->state = JOB_GONE;
		job->gone_ns = now_ns;
	}
	assert(job->state != JOB_GONE || job->gone_ns <= now_ns);
}

bool job_is_unseen(const struct job *job)
{
	return job->is_found && !job->by.process.id.pid && !job->n_readers;
}

/* For how long its processes must be gone: then the reads are not looked at where they are known to
 * have been its own, as others' are often where its order has one. */
bool job_is_over(const struct job *job, const struct drive_job *view, uint64_t now)
{
	assert(job->state == JOB_GONE || !job->gone_ns);
	if (job_is_unseen(job))
		return job_quiet_ns(view, now) >= PASSING_QUIET_NS;
	if (job->state != JOB_GONE)
		return false;
	/* It may be a script that runs one training after the other as well, so not for ever. */
	if (has_spawner(job) &&
	    (view->plan.state != PLAN_LOST || now < job->gone_ns + FOUND_GONE_NS))
		return job_quiet_ns(view, now) >= PASSING_QUIET_NS;
	/* Another process may read on, which nobody sees where all of it is fetched ahead. */
	if (job->n_readers)
		return now >= job->gone_ns + (job_quiet_ns(view, now) >= GONE_NS ? GONE_NS : FOUND_GONE_NS);
	if (job->is_resident)
		return now >= job->gone_ns + GONE_NS;
	return job_quiet_ns(view, now) >= PASSING_QUIET_NS;
}
