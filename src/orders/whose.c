/* SPDX-License-Identifier: Apache-2.0 */
/* Which job an order is of; "Whose order it is" in src/README.md has the rules.
 *
 * An order is the next one of a job when both have the same name (job= in the spec), or are told by
 * processes that belong together (teller.c), or when nobody knows who told one of them: by an
 * option, or found. Else it is one more job's. That may be wrong both ways, and the
 * wrong way that costs less is preferred: a job too many is quiet and over soon, but an order that
 * replaces another job's takes its prefetching away. The same order told by processes that belong
 * together is one job's, and changes nothing: its ranks tell it one after the other, while those
 * that came first read already. */
#include <string.h>

#include "orders_priv.h"

static bool is_same_text(const char *a, const char *b)
{
	return a && b && strcmp(a, b) == 0;
}

uint32_t jobs_find_told(const struct jobs *t, const char *text, const struct teller *who)
{
	for (uint32_t i = 0; i < t->n && !jobs_is_told_list(text); i++)
		if (is_same_text(t->job[i].text, text) && !teller_is_itself(who, &t->job[i].who) &&
		    teller_is_related(who, &t->job[i].who))
			return i;
	return NOBODY;
}

/* The same order told by another process before anything was read of it: a launcher and its job. */
static bool is_told_twice(const struct job *job, const struct drive_job *view, const char *text)
{
	return view && view->plan.placed == 0 && is_same_text(job->text, text);
}

/* An order that was found, for the process that reads by it; else it is anybody's. */
static bool is_found_for(const struct job *job, const struct teller *who)
{
	for (uint32_t i = 0; i < job->n_readers; i++)
		if (teller_is_of(who, &job->reader[i]))
			return job->is_found;
	return false;
}

/* Nobody knows who told it. One that was found is anybody's only while it is the only one. */
static bool is_anybodys(const struct jobs *t, const struct job *job)
{
	return !job->who.id.pid && (!job->is_found || t->n == 1);
}

uint32_t jobs_find(struct orders *o, const char *name, const char *text, const struct teller *who,
		   const struct drive_job *views, uint32_t n_views)
{
	const struct jobs *t = &o->jobs;

	for (uint32_t i = 0; name && i < t->n; i++)
		if (t->job[i].name && strcmp(t->job[i].name, name) == 0)
			return i;
	for (uint32_t i = 0; !name && i < t->n; i++)
		if (!t->job[i].name && (teller_is_itself(who, &t->job[i].who) ||
					is_found_for(&t->job[i], who)))
			return i;
	for (uint32_t i = 0; !name && i < t->n; i++) {
		const struct job *job = &t->job[i];

		if (!job->name &&
		    (!who->id.pid || is_anybodys(t, job) || teller_is_same(who, &job->who) ||
		     is_told_twice(job, jobs_view_of(views, n_views, job->id), text)))
			return i;
	}
	return NOBODY;
}

uint32_t jobs_find_quietest(struct orders *o, const struct drive_job *views, uint32_t n_views)
{
	uint32_t found = 0;
	uint64_t longest = 0, now = o->now_ns;

	for (uint32_t i = 0; i < o->jobs.n; i++) {
		const struct drive_job *view = jobs_view_of(views, n_views, o->jobs.job[i].id);
		uint64_t quiet = view ? job_quiet_ns(view, now) : UINT64_MAX;

		if (quiet < longest)
			continue;
		longest = quiet;
		found = i;
	}
	return found;
}

/* One of the job's processes is known, and this is none of them. */
static bool is_others(const struct job *job, const struct teller *who)
{
	bool is_known = job->who.id.pid || job->n_readers;

	if (!is_known || teller_is_of(who, &job->who.id) || teller_is_of(&job->who, &who->id))
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
