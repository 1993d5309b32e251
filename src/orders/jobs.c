/* SPDX-License-Identifier: Apache-2.0 */
/* The table of jobs and of what changes it: orders that are put in force, taken back, or over. The drive
 * plans for them; here is what it does not know, their names and processes. Which of them an order is
 * of: whose.c. When one is over: over.c.
 *
 * Only the owner changes the table (orders.c: one thread), and for the moment of the change it holds
 * order_mu, under which anybody may read. It must never be changed before the drive has agreed, nor
 * order_mu be held over anything that waits. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "clairfs/base/log.h"
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
	free(job->name);
	free(job->ranks);
	*job = (struct job){ .text = NULL };
}

void jobs_fini(struct jobs *jobs)
{
	for (uint32_t i = 0; i < jobs->n; i++)
		job_clear(&jobs->job[i]);
}

static int job_make(const struct order_spec *spec, const struct teller *who,
		    const struct order *order, struct job *ret)
{
	const struct order_info *info = order_info(order);
	const char *name = order_spec_job(spec);

	*ret = (struct job){ .who = who ? *who : (struct teller){ .session = 0 },
				  .info = *info };
	ret->text = strdup(order_spec_text(spec));
	ret->name = name ? strdup(name) : NULL;
	ret->ranks = calloc(MAX(info->n_ranks, 1u), sizeof(*ret->ranks));
	if (!ret->text || !ret->ranks || (name && !ret->name)) {
		job_clear(ret);
		return -ENOMEM;
	}
	memcpy(ret->ranks, info->ranks, info->n_ranks * sizeof(*ret->ranks));
	ret->info.ranks = ret->ranks;
	ret->info.outside = NULL;
	return 0;
}

/* --- the table --- */

/* A list that was told has no name of its own: the next one has the same text. */
bool jobs_is_told_list(const char *text)
{
	static const char told[] = "list:path=told";
	size_t n = sizeof(told) - 1;

	return strncmp(text, told, n) == 0 && (text[n] == '\0' || text[n] == ':');
}

void jobs_account(struct orders *o)
{
	const struct orders_watch *watch = &o->watch;
	struct jobs *t = &o->jobs;
	uint32_t id = t->n ? t->job[0].id : DRIVE_NO_JOB;

	if (t->is_first_away && t->n && process_is_alive(&t->away))
		return; /* its next epoch is what is waited for */
	t->is_first_away = false;
	if (watch->first && (id != t->accounted || id == DRIVE_NO_JOB))
		watch->first(watch->ctx, t->n ? &t->job[0].info : NULL,
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

static void table_remove(struct orders *o, uint32_t at)
{
	struct jobs *t = &o->jobs;
	struct job gone;

	assert(at < t->n);
	mutex_lock(&o->order_mu);
	gone = t->job[at];
	memmove(&t->job[at], &t->job[at + 1], (t->n - at - 1) * sizeof(gone));
	t->n--;
	mutex_unlock(&o->order_mu);
	job_clear(&gone);
	check_table(t);
}

/* The first one tells each epoch as a list of its own, and this is its next one. */
static bool is_first_back(const struct jobs *t, const struct job *job)
{
	return t->is_first_away && !job->name && job->who.is_itself &&
	       job->who.id.pid == t->away.pid && job->who.id.start == t->away.start;
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
	} else if (is_first_back(t, take_job)) {
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
		if (jobs_view_of(views, n, t->job[i].id))
			continue;
		if (i == 0 && !t->is_first_away && t->job[0].who.is_itself && !t->job[0].name &&
		    jobs_is_told_list(t->job[0].text)) {
			t->away = t->job[0].who.id;
			t->is_first_away = true;
		}
		if (!t->is_first_away)
			log_info("%s: a job has read all its epochs: %s", o->mountpoint,
				 t->job[i].text);
		table_remove(o, i);
	}
	jobs_account(o);
	return n;
}

/* False: one of its processes is gone, or tells it once more, so the job begins again. */
static bool take_beside(struct orders *o, struct job *job, const struct teller *who)
{
	bool is_begun_again = job_count_alive(job) < job->n_beside + 1;

	for (uint32_t i = 0; i < job->n_beside; i++)
		is_begun_again |= job->beside[i].pid == who->id.pid;
	if (is_begun_again)
		return false;
	mutex_lock(&o->order_mu);
	if (who->is_itself && !job->who.is_itself)
		job->who = *who; /* which had it told by a command */
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
	table_remove(o, at);
	jobs_account(o);
	return 0;
}

/* --- orders --- */

int jobs_begin(struct orders *o, const struct order_spec *spec, const struct order *order,
	       struct err *err)
{
	struct job job;

	if (job_make(spec, NULL, order, &job) < 0)
		return err_set(err, -ENOMEM, "out of memory");
	job.is_own_words = true;
	table_put(o, NOBODY, &job); /* its id is 0 */
	return 0;
}

static int put_at(struct orders *o, uint32_t at, const struct order_spec *spec,
		  const struct teller *who, struct order *take_order, struct err *err)
{
	struct job job;
	int rc = job_make(spec, who, take_order, &job);

	assert(at == NOBODY || at < o->jobs.n);
	if (rc < 0) {
		order_free(take_order);
		return err_set_errno(err, rc, "the order stays as it was");
	}
	rc = o->carrier->add(o->carrier_ctx, take_order,
			   at == NOBODY ? DRIVE_NO_JOB : o->jobs.job[at].id, &job.id);
	if (rc < 0) {
		job_clear(&job);
		if (rc == -ENOSPC) /* a job more than the table knows of */
			return err_set(err, rc,
				       "an epoch of a job that has left is still being computed; "
				       "tell it again in a moment");
		return err_set_errno(err, rc, "the order stays as it was");
	}
	table_put(o, at, &job);
	jobs_account(o);
	return 0;
}

int jobs_put(struct orders *o, const struct order_spec *spec, const struct teller *who,
	     struct order *take_order, struct err *err)
{
	const char *text = order_spec_text(spec);
	struct drive_job views[PLAN_JOBS];
	uint32_t n = table_sync(o, views);
	uint32_t at = jobs_find_told(&o->jobs, text, who);

	if (at != NOBODY && take_beside(o, &o->jobs.job[at], who)) {
		order_free(take_order);
		return 0;
	}
	if (at == NOBODY)
		at = jobs_find(o, order_spec_job(spec), text, who, views, n);
	if (at == NOBODY)
		at = find_over(o, views, n);
	if (at == NOBODY && o->jobs.n == PLAN_JOBS) {
		at = jobs_find_quietest(o, views, n);
		log_limited(LOG_LEVEL_WARN,
			    "%s: %d jobs read at the same time, which is all there is room for: "
			    "the one that was quiet the longest gives way to %s: %s",
			    o->mountpoint, PLAN_JOBS, text, o->jobs.job[at].text);
	}
	if (at == NOBODY && o->jobs.n && !o->jobs.is_first_away)
		log_info("%s: one more job, which reads in the order %s", o->mountpoint, text);
	return put_at(o, at, spec, who, take_order, err);
}

/* The job that was put in force last. */
static struct job *newest(struct jobs *t)
{
	struct job *job = &t->job[0];

	assert(t->n > 0);
	for (uint32_t i = 1; i < t->n; i++)
		if (t->job[i].id > job->id)
			job = &t->job[i];
	return job;
}

/* Another order of the same job, or one more's, which nobody told. */
static int put_own(struct orders *o, uint32_t at, bool is_found, const struct order_spec *spec,
		   struct order *take_order, struct err *err)
{
	struct job was = { .is_found = is_found }, *now;
	int rc;

	if (at != NOBODY)
		was = o->jobs.job[at];
	rc = put_at(o, at, spec, &was.who, take_order, err);
	if (rc < 0)
		return rc;
	mutex_lock(&o->order_mu);
	now = newest(&o->jobs);
	now->is_own_words = was.is_own_words;
	now->is_found = was.is_found || is_found;
	memcpy(now->reader, was.reader, sizeof(now->reader));
	memcpy(now->spawner, was.spawner, sizeof(now->spawner));
	now->n_readers = was.n_readers;
	mutex_unlock(&o->order_mu);
	return 0;
}

int jobs_put_first(struct orders *o, const struct order_spec *spec, struct order *take_order,
		   struct err *err)
{
	struct drive_job views[PLAN_JOBS];

	(void)table_sync(o, views);
	return put_own(o, o->jobs.n ? 0 : NOBODY, false, spec, take_order, err);
}

static uint32_t find_id(const struct jobs *t, uint32_t id)
{
	for (uint32_t i = 0; i < t->n; i++)
		if (t->job[i].id == id)
			return i;
	return NOBODY;
}

int jobs_put_found(struct orders *o, uint32_t *id, bool is_only, const struct order_spec *spec,
		   struct order *take_order, struct err *err)
{
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
	rc = put_own(o, at, true, spec, take_order, err);
	if (rc == 0)
		*id = newest(&o->jobs)->id;
	return rc;
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

int jobs_withdraw(struct orders *o, const char *name, const struct teller *who, struct err *err)
{
	struct drive_job views[PLAN_JOBS];
	uint32_t n = table_sync(o, views), at = jobs_find(o, name, NULL, who, views, n);
	int rc = 0;

	if (at == NOBODY && !name && o->jobs.n == 1)
		at = 0; /* the order, whoever it is */
	if (at == NOBODY && name)
		return err_set(err, -ENOENT, "no job of that name has told an order");
	if (at == NOBODY && o->jobs.n)
		return err_set(err, -ENOENT,
			       "this process has told no order, but %u jobs have: orders that have "
			       "job=NAME are taken back with none:job=NAME",
			       o->jobs.n);
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
