/* SPDX-License-Identifier: Apache-2.0 */
/* The table of jobs and of what changes it: orders that are put in force, taken back, or over. The drive
 * plans for them; here is what it does not know, their names and processes. An order that is told twice,
 * by two ranks or once more, is recognised by jobs_put. Which of them an order is of: whose.c. When one
 * is over: over.c.
 *
 * Only the owner changes the table (orders.c: one thread), and for the moment of the change it holds
 * order_mu, under which anybody may read. It must never be changed before the drive has agreed, nor
 * order_mu be held over anything that waits. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "clairfs/base/log.h"
#include "clairfs/order/records.h"
#include "orders_priv.h"

#define WHY_GONE "its job has ended: its processes are gone"
#define WHY_QUIET "its job has ended: nothing of it was opened for a minute"

void jobs_init(struct jobs *jobs)
{
	jobs->accounted = DRIVE_NO_JOB;
}

static void job_clear(struct job *job)
{
	free(job->text);
	free((char *)job->by.name);
	free(job->ranks);
	*job = (struct job){ .text = NULL };
}

void jobs_fini(struct jobs *jobs)
{
	for (uint32_t i = 0; i < jobs->n; i++)
		job_clear(&jobs->job[i]);
	free((char *)jobs->away.name);
}

/* Of what the drive plans: records, where these are units. Its ranks stay. */
static void set_info(const struct orders *o, const struct order *order, struct job *job)
{
	job->is_in_records = order_is_in_records(order, dataset_unit_map(o->dataset));
	job->info = job->is_in_records ? *order_records_info(order) : *order_info(order);
	job->info.ranks = job->ranks;
	job->info.outside = NULL;
}

/* like: whose it is, and what is known of that. */
static int job_make(const struct orders *o, const struct order_spec *spec, const struct job *like,
		    const struct order *order, struct job *ret)
{
	const struct order_info *info = order_info(order);
	const char *name = like->by.name;

	*ret = *like;
	ret->state = JOB_TOLD;
	ret->is_resident = false;
	ret->gone_ns = 0;
	ret->by.name = name ? strdup(name) : NULL;
	ret->text = strdup(order_spec_text(spec));
	ret->ranks = calloc(MAX(info->n_ranks, 1u), sizeof(*ret->ranks));
	if (!ret->text || !ret->ranks || (name && !ret->by.name)) {
		job_clear(ret);
		return -ENOMEM;
	}
	memcpy(ret->ranks, info->ranks, info->n_ranks * sizeof(*ret->ranks));
	set_info(o, order, ret);
	return 0;
}

/* --- the table --- */

bool jobs_is_told_list(const char *text)
{
	static const char told[] = "list:path=told";
	size_t n = sizeof(told) - 1;

	return strncmp(text, told, n) == 0 && (text[n] == '\0' || text[n] == ':');
}

void jobs_cut(struct orders *o)
{
	if (o->jobs.n && o->order)
		set_info(o, o->order, &o->jobs.job[0]);
}

/* Also one whose next epoch is waited for. */
static bool is_any_told(const struct jobs *t)
{
	for (uint32_t i = 0; i < t->n; i++)
		if (!t->job[i].is_found)
			return true;
	return t->is_first_away;
}

void jobs_account(struct orders *o)
{
	const struct orders_watch *watch = &o->watch;
	struct jobs *t = &o->jobs;
	uint32_t id = t->n ? t->job[0].id : DRIVE_NO_JOB;

	if (watch->told)
		watch->told(watch->ctx, is_any_told(t));
	if (t->is_first_away && t->n && teller_is_alive(&t->away.process))
		return; /* its next epoch is what is waited for */
	t->is_first_away = false;
	if (watch->first && (id != t->accounted || id == DRIVE_NO_JOB))
		watch->first(watch->ctx, t->n ? &t->job[0].info : NULL, t->n && t->job[0].is_in_records,
			     t->n ? id : o->carrier->generation(o->carrier_ctx));
	t->accounted = id;
	for (uint32_t i = 1; watch->others && i < t->n; i++)
		watch->others(watch->ctx, t->job[i].id);
}

/* What is true of the table between two changes. */
static void check_table(const struct jobs *t)
{
	assert(t->n <= PLAN_JOBS);
	for (uint32_t i = 0; i < t->n; i++) {
		assert(t->job[i].text && t->job[i].id != DRIVE_NO_JOB);
		for (uint32_t k = 0; k < i; k++)
			assert(t->job[i].id != t->job[k].id);
	}
}

/* ret_by: gets who told it, or NULL. */
static void table_remove(struct orders *o, uint32_t at, struct announcer *ret_by)
{
	struct jobs *t = &o->jobs;
	struct job gone;

	assert(at < t->n);
	mutex_lock(&o->order_mu);
	gone = t->job[at];
	memmove(&t->job[at], &t->job[at + 1], (t->n - at - 1) * sizeof(gone));
	t->n--;
	mutex_unlock(&o->order_mu);
	if (ret_by) {
		*ret_by = gone.by;
		gone.by.name = NULL;
	}
	job_clear(&gone);
	check_table(t);
}

/* At its place, or behind the others (at == NOBODY), where it is not the first one come back. */
static void table_put(struct orders *o, uint32_t at, const struct job *take_job)
{
	struct jobs *t = &o->jobs;
	struct job old = { .text = NULL };

	assert(at == NOBODY ? t->n < PLAN_JOBS : at < t->n);
	mutex_lock(&o->order_mu);
	if (at != NOBODY) {
		old = t->job[at];
	} else if (t->is_first_away && announcer_is_same(&take_job->by, &t->away)) {
		memmove(&t->job[1], &t->job[0], t->n++ * sizeof(t->job[0]));
		at = 0;
		t->is_first_away = false;
	} else {
		at = t->n++;
	}
	t->job[at] = *take_job;
	mutex_unlock(&o->order_mu);
	job_clear(&old);
	check_table(t);
}

const struct drive_job *jobs_view_of(const struct drive_job *views, uint32_t n, uint32_t id)
{
	for (uint32_t i = 0; i < n; i++)
		if (views[i].id == id)
			return &views[i];
	return NULL;
}

/* Those that have read all their epochs have left the drive. */
static uint32_t table_sync(struct orders *o, struct drive_job views[PLAN_JOBS])
{
	struct jobs *t = &o->jobs;
	uint32_t n = o->carrier->get_jobs(o->carrier_ctx, views);

	for (uint32_t i = t->n; i-- > 0;) {
		const struct job *job = &t->job[i];
		bool goes_away = i == 0 && !t->is_first_away && job->by.process.is_itself &&
				 !job->by.is_given && jobs_is_told_list(job->text);

		if (jobs_view_of(views, n, job->id))
			continue;
		if (goes_away)
			free((char *)t->away.name);
		t->is_first_away |= goes_away;
		if (!t->is_first_away)
			log_info("%s: a job has read all its epochs: %s", o->mountpoint, job->text);
		table_remove(o, i, goes_away ? &t->away : NULL);
	}
	jobs_account(o);
	return n;
}

/* The same order told by another process of the job, as its ranks do one after the other. False: one
 * of them is gone, is not known, or tells it once more, so the job begins again. */
static bool take_beside(struct orders *o, struct job *job, const struct teller *who)
{
	bool is_begun_again = !who->id.pid || teller_is_itself(who, &job->by.process) ||
			      job_count_alive(job) < job->n_beside + 1;

	for (uint32_t i = 0; i < job->n_beside; i++)
		is_begun_again |= job->beside[i].pid == who->id.pid;
	if (is_begun_again)
		return false;
	mutex_lock(&o->order_mu);
	if (who->is_itself && !job->by.process.is_itself)
		job->by.process = *who; /* which had it told by a command */
	else if (who->is_itself && job->n_beside < TELLERS_BESIDE)
		job->beside[job->n_beside++] = who->id;
	mutex_unlock(&o->order_mu);
	return true;
}

/* Also when it is the only one. */
static uint32_t find_over(struct orders *o, const struct drive_job *views, uint32_t n_views)
{
	for (uint32_t i = 0; i < o->jobs.n; i++) {
		const struct drive_job *view = jobs_view_of(views, n_views, o->jobs.job[i].id);

		job_see(&o->jobs.job[i], view, o->now_ns);
		if (view && job_is_over(&o->jobs.job[i], view, o->now_ns))
			return i;
	}
	return NOBODY;
}

static int end_at(struct orders *o, uint32_t at, const char *why)
{
	int rc = o->carrier->end(o->carrier_ctx, o->jobs.job[at].id, why);

	if (rc < 0 && rc != -ENOENT)
		return rc;
	table_remove(o, at, NULL);
	jobs_account(o);
	return 0;
}

/* --- orders --- */

int jobs_begin(struct orders *o, const struct order_spec *spec, const struct order *order,
	       struct err *err)
{
	const char *name = order_spec_job(spec);
	const struct job like = { .by = { .uid = geteuid(), .name = name, .is_given = name },
				  .is_own_words = true };
	struct job job;

	if (job_make(o, spec, &like, order, &job) < 0)
		return err_set(err, -ENOMEM, "out of memory");
	table_put(o, NOBODY, &job); /* its id is 0 */
	return 0;
}

/* like->id: of the job from here on. */
static int put_at(struct orders *o, uint32_t at, const struct order_spec *spec, struct job *like,
		  struct order *take_order, struct err *err)
{
	struct job job;
	int rc = job_make(o, spec, like, take_order, &job);

	assert(at == NOBODY || at < o->jobs.n);
	if (rc < 0) {
		order_free(take_order);
		return err_set_errno(err, rc, "the order stays as it was");
	}
	rc = o->carrier->add(o->carrier_ctx, take_order,
			   at == NOBODY ? DRIVE_NO_JOB : o->jobs.job[at].id, &job.id);
	if (rc < 0) {
		job_clear(&job);
		return err_set_errno(err, rc, "the order stays as it was");
	}
	like->id = job.id;
	table_put(o, at, &job);
	jobs_account(o);
	return 0;
}

/* Of all that there may be the one that gives way, or NOBODY. */
static uint32_t make_room(struct orders *o, const struct drive_job *views, uint32_t n_views,
			  const struct announcer *by, const char *text)
{
	uint32_t at = jobs_find_quietest(o, views, n_views, by->uid);

	if (at != NOBODY)
		log_limited(LOG_LEVEL_WARN,
			    "%s: %d jobs read at the same time, which is all there is room for: %s gives way to %s",
			    o->mountpoint, PLAN_JOBS, o->jobs.job[at].text, text);
	return at;
}

int jobs_put(struct orders *o, const struct order_spec *spec, const struct announcer *by,
	     struct order *take_order, struct err *err)
{
	const char *text = order_spec_text(spec);
	struct drive_job views[PLAN_JOBS];
	uint32_t n = table_sync(o, views), at = jobs_find(&o->jobs, by);
	struct job *job = at == NOBODY ? NULL : &o->jobs.job[at], like = { .by = *by };

	/* A list that was told has no name of its own: the next one has the same text. */
	if (job && announcer_is_same(&job->by, by) && strcmp(job->text, text) == 0 &&
	    !jobs_is_told_list(text) && take_beside(o, job, &by->process)) {
		order_free(take_order);
		return 0;
	}
	if (at == NOBODY)
		at = find_over(o, views, n);
	if (at == NOBODY && o->jobs.n == PLAN_JOBS) {
		at = make_room(o, views, n, by, text);
		if (at == NOBODY) {
			order_free(take_order);
			return err_set(err, -ENOSPC,
				       "%d jobs of other users are at work, which is all there is room for",
				       PLAN_JOBS);
		}
	}
	if (at == NOBODY && o->jobs.n && !o->jobs.is_first_away && !o->jobs.job[0].is_of_records)
		log_info("%s: one more job, which reads in the order %s", o->mountpoint, text);
	return put_at(o, at, spec, &like, take_order, err);
}

int jobs_put_first(struct orders *o, const char *before, const struct order_spec *spec,
		   struct order *take_order, struct err *err)
{
	struct drive_job views[PLAN_JOBS];
	struct job like;

	(void)table_sync(o, views); /* it may have read all its epochs */
	if (!o->jobs.n || strcmp(o->jobs.job[0].text, before) != 0) {
		order_free(take_order);
		return -EAGAIN;
	}
	like = o->jobs.job[0];
	if (like.is_found && orders_is_unshuffled(order_spec_text(spec)))
		order_may_be_left(take_order);
	return put_at(o, 0, spec, &like, take_order, err);
}

static uint32_t find_id(const struct jobs *t, uint32_t id)
{
	for (uint32_t i = 0; i < t->n; i++)
		if (t->job[i].id == id)
			return i;
	return NOBODY;
}

static int put_found(struct orders *o, uint32_t *id, bool is_only, bool is_of_records,
		     const struct order_spec *spec, struct order *take_order, struct err *err)
{
	struct job like = { .by.uid = NOBODY };
	struct drive_job views[PLAN_JOBS];
	uint32_t at;
	int rc;

	(void)table_sync(o, views);
	at = find_id(&o->jobs, *id);
	if (at == NOBODY && is_only && o->jobs.n)
		at = 0;
	if (at == NOBODY && o->jobs.n == PLAN_JOBS) {
		order_free(take_order);
		return err_set(err, -ENOSPC, "%d jobs are at work already", PLAN_JOBS);
	}
	if (at != NOBODY)
		like = o->jobs.job[at];
	like.is_found = true;
	like.is_of_records = is_of_records;
	rc = put_at(o, at, spec, &like, take_order, err);
	if (rc == 0)
		*id = like.id;
	return rc;
}

int jobs_put_found(struct orders *o, uint32_t *id, bool is_only, const struct order_spec *spec,
		   struct order *take_order, struct err *err)
{
	return put_found(o, id, is_only, false, spec, take_order, err);
}

int jobs_put_records(struct orders *o, uint32_t *id, const struct order_spec *spec,
		     struct order *take_order, struct err *err)
{
	return put_found(o, id, false, true, spec, take_order, err);
}

void jobs_add_reader(struct orders *o, uint32_t id, const struct teller *reader)
{
	uint32_t at = find_id(&o->jobs, id), to = 0;
	struct job *job;

	if (at == NOBODY)
		return;
	job = &o->jobs.job[at];
	while (to < job->n_readers && job->reader[to].pid != reader->id.pid)
		to++;
	for (uint32_t i = 0; to == JOB_READERS && i < JOB_READERS; i++)
		if (!process_is_alive(&job->reader[i]))
			to = i;
	if (to == JOB_READERS)
		return;
	mutex_lock(&o->order_mu);
	job->reader[to] = reader->id;
	job->spawner[to] = reader->is_spawned ? reader->above[0] : (struct process_id){ 0, 0 };
	job->n_readers = MAX(job->n_readers, to + 1);
	mutex_unlock(&o->order_mu);
}

int jobs_end_records(struct orders *o, const char *why, struct err *err)
{
	int n = 0, rc;

	for (uint32_t i = o->jobs.n; i-- > 0;) {
		if (!o->jobs.job[i].is_of_records)
			continue;
		rc = end_at(o, i, why);
		if (rc < 0)
			return err_set_errno(err, rc, "orders of records that were found stay");
		n++;
	}
	return n;
}

int jobs_withdraw(struct orders *o, const struct announcer *by, struct err *err)
{
	struct drive_job views[PLAN_JOBS];
	uint32_t at;
	int rc = 0;

	(void)table_sync(o, views);
	if (!by->is_given)
		rc = jobs_end_records(o, NULL, err); /* there are no others beside them */
	if (rc != 0)
		return MIN(rc, 0);
	at = jobs_find(&o->jobs, by);
	if (at == NOBODY && !by->is_given && o->jobs.n == 1 &&
	    (o->jobs.job[0].by.uid == by->uid || job_is_untold(&o->jobs.job[0])))
		at = 0; /* the order, whichever of this user's it is */
	if (at == NOBODY && by->is_given)
		return err_set(err, -ENOENT, "no job of that name has told an order");
	if (at == NOBODY && o->jobs.n)
		return err_set(err, -ENOENT,
			       "%s%s has told no order, but others have: none:job=NAME takes back "
			       "that of a job",
			       by->name ? "job " : "the job without a name",
			       by->name ? by->name : "");
	if (at != NOBODY)
		rc = end_at(o, at, NULL);
	else
		rc = o->carrier->clear(o->carrier_ctx);
	return rc < 0 ? err_set_errno(err, rc, "the order stays as it was") : 0;
}

/* --- once a second --- */

void jobs_look(struct orders *o)
{
	struct drive_job views[PLAN_JOBS];
	uint32_t n;

	n = table_sync(o, views);
	for (uint32_t i = 0; i < o->jobs.n; i++) {
		struct job *job = &o->jobs.job[i];
		const struct drive_job *view = jobs_view_of(views, n, job->id);

		job_see(job, view, o->now_ns);
	}
	for (uint32_t i = o->jobs.n; i-- > 0;) {
		const struct drive_job *view = jobs_view_of(views, n, o->jobs.job[i].id);
		uint32_t id = o->jobs.job[i].id;
		bool is_unseen;

		is_unseen = job_is_unseen(&o->jobs.job[i]);
		if (!view || !job_is_over(&o->jobs.job[i], view, o->now_ns) ||
		    (o->jobs.n == 1 && !o->jobs.job[i].n_readers && !is_unseen))
			continue;
		log_info("%s: a job is gone: %s", o->mountpoint, o->jobs.job[i].text);
		if (end_at(o, i, is_unseen ? WHY_QUIET : WHY_GONE) < 0)
			break; /* it is being taken down */
		untold_gone(o->untold, id, is_unseen ? "nothing of it was opened for a minute"
						     : "its processes are gone");
	}
}
