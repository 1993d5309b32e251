/* SPDX-License-Identifier: Apache-2.0 */
/* Which job an order is of; "Whose order it is" in src/README.md has the rules.
 *
 * Whoever tells an order says who it is: the user (the kernel's word) and a name (its own). The same
 * two are the same job. An order that nobody told, of an option or found, is that of the next one who
 * tells its own, as far as it can be meant: where several were found, of the process that reads by it. */
#include <assert.h>
#include <string.h>

#include "orders_priv.h"

bool announcer_is_same(const struct announcer *a, const struct announcer *b)
{
	bool is_same = a->name && b->name ? strcmp(a->name, b->name) == 0 : a->name == b->name;

	return is_same && a->uid == b->uid;
}

bool job_is_untold(const struct job *job)
{
	return job->by.uid == NOBODY || (job->is_own_words && !job->by.name);
}

/* It was found for the process that tells, which reads by it; and is no other user's. */
static bool is_read_by(const struct job *job, const struct announcer *by)
{
	bool is_anothers = job->by.uid != NOBODY && job->by.uid != by->uid;

	for (uint32_t i = 0; i < job->n_readers; i++)
		if (teller_is_of(&by->process, &job->reader[i]))
			return job->is_found && !is_anothers;
	return false;
}

uint32_t jobs_find(const struct jobs *t, const struct announcer *by)
{
	for (uint32_t i = 0; i < t->n; i++)
		if (announcer_is_same(&t->job[i].by, by))
			return i;
	for (uint32_t i = 0; i < t->n && !by->is_given; i++)
		if (is_read_by(&t->job[i], by))
			return i;
	for (uint32_t i = 0; i < t->n && !by->is_given; i++)
		if (job_is_untold(&t->job[i]) && (!t->job[i].is_found || t->n == 1))
			return i;
	return NOBODY;
}

/* How much less it is to go than others; 0: it stays. view NULL: it has left the drive. */
static uint32_t gives_way_to(const struct job *job, const struct drive_job *view, uint32_t uid)
{
	if (!view)
		return 4;
	if (job->by.uid == uid)
		return 3;
	if (job->by.uid == NOBODY)
		return 2;
	return view->plan.state == PLAN_LOST ? 1 : 0; /* it has no use of its order */
}

uint32_t jobs_find_quietest(struct orders *o, const struct drive_job *views, uint32_t n_views, uint32_t uid)
{
	uint32_t found = NOBODY, most = 1;
	uint64_t longest = 0;

	assert(uid != NOBODY && n_views <= PLAN_JOBS);
	for (uint32_t i = 0; i < o->jobs.n; i++) {
		const struct drive_job *view = jobs_view_of(views, n_views, o->jobs.job[i].id);
		uint32_t way = gives_way_to(&o->jobs.job[i], view, uid);
		uint64_t quiet = view ? job_quiet_ns(view, o->now_ns) : UINT64_MAX;

		if (way < most || (way == most && found != NOBODY && quiet < longest))
			continue;
		most = way;
		longest = quiet;
		found = i;
	}
	assert(found == NOBODY || found < o->jobs.n);
	return found;
}

/* One of the job's processes is known, and this is none of them. */
static bool is_others(const struct job *job, const struct teller *who)
{
	bool is_known = job->by.process.id.pid || job->n_readers;

	if (!is_known || teller_is_of(who, &job->by.process.id) ||
	    teller_is_of(&job->by.process, &who->id))
		return false;
	for (uint32_t i = 0; i < job->n_beside; i++)
		if (teller_is_of(who, &job->beside[i]))
			return false;
	for (uint32_t i = 0; i < job->n_readers; i++)
		if (teller_is_of(who, &job->reader[i]))
			return false;
	return true;
}

bool jobs_is_stranger(struct orders *o, const struct teller *who)
{
	for (uint32_t i = 0; i < o->jobs.n; i++)
		if (!is_others(&o->jobs.job[i], who))
			return false;
	return who->id.pid != 0;
}
