/* SPDX-License-Identifier: Apache-2.0 */
/* One finder of several (untold.c): what it may ask, what becomes of what it finds, and what is said of
 * it. An order that it finds is one more job's, the next one of its own job, or that of ranks of
 * another finder's job: then it has nothing more to do.
 *
 * A finder makes what it found on its own thread, as that may take a file, and sends it to the owner,
 * which decides what becomes of it. untold_json runs on the reactor: it has u->mu for a moment. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "clairfs/base/log.h"
#include "untold_priv.h"

#define FRESH_LOOKS 5   /* after an order was found, to see the opens that it was found by */
#define NUMBERINGS_SHARE 256u /* of ram, for numberings that each keeps */
#define EPOCH_BYTES 16u /* per sample, of an epoch that is computed whole */

struct finder *finder_of(struct untold *u, uint32_t id)
{
	for (uint32_t i = 0; i < FINDERS; i++)
		if (u->finder[i] && atomic_load(&u->finder[i]->id) == id && id != DRIVE_NO_JOB)
			return u->finder[i];
	return NULL;
}

/* One search of all seeds at a time. */
static bool is_another_searching(struct finder *f)
{
	struct untold *u = f->u;
	struct infer_status st;
	bool is_searching = false;

	mutex_lock(&u->mu);
	for (uint32_t i = 0; i < f->index; i++) {
		if (!u->finder[i])
			continue;
		infer_get_status(u->finder[i]->infer, &st);
		is_searching = is_searching || (st.is_full && !st.is_held);
	}
	mutex_unlock(&u->mu);
	return is_searching;
}

static const char *waits_until(void *ctx)
{
	struct finder *f = ctx;
	const struct orders_watch *watch = &f->u->o->watch;
	pid_t reader = watch->last_reader ? (pid_t)watch->last_reader(watch->ctx) : 0;
	bool is_crowded = crowd_look(&f->crowd, reader); /* at each call: it measures */

	if (is_another_searching(f))
		return "the search for another job's order is over";
	return is_crowded ? "others do not wait for the CPUs" : NULL;
}

static bool is_order_of(const struct finder *f, const char *text)
{
	const struct jobs *jobs = &f->u->o->jobs;

	for (uint32_t i = 0; i < jobs->n; i++)
		if (jobs->job[i].id == atomic_load(&f->id))
			return strcmp(jobs->job[i].text, text) == 0;
	return false;
}

/* What was found is the order of another job's ranks: all of them are one. That one's finder may
 * have forgotten it since, as it looks for the next pass. */
static bool has_joined(struct finder *f, const char *text)
{
	struct untold *u = f->u;
	struct infer_answer answer;

	if (f->index == EVERYBODY || atomic_load(&f->id) != DRIVE_NO_JOB ||
	    !infer_get_answer(f->infer, &answer))
		return false;
	for (uint32_t i = 0; i < FINDERS; i++) {
		struct finder *other = u->finder[i];

		if (!other || other == f || atomic_load(&other->id) == DRIVE_NO_JOB ||
		    other->is_over ||
		    (other->who.id.pid && !teller_has_common(&other->who, &f->who)) ||
		    (!infer_add_ranks(other->infer, &answer) && !is_order_of(other, text)))
			continue;
		f->joins = i;
		f->is_joined = f->is_over = true;
		return true;
	}
	return false;
}

/* The job is followed no more, and what is found is another one's order: by opens of that one which
 * nobody could tell apart. */
static bool is_anothers(const struct finder *f, const char *text)
{
	const struct jobs *jobs = &f->u->o->jobs;
	uint32_t id = atomic_load(&f->id);

	for (uint32_t i = 0; i < jobs->n && id != DRIVE_NO_JOB; i++)
		if (jobs->job[i].id != id && strcmp(jobs->job[i].text, text) == 0)
			return true;
	return false;
}

/* Readers were told apart, and the order of one of them was found before that of all. */
static bool is_late(const struct finder *f)
{
	bool is_found = false;

	for (uint32_t i = 1; i < FINDERS; i++)
		is_found |= f->u->finder[i] && atomic_load(&f->u->finder[i]->id) != DRIVE_NO_JOB;
	return is_found && f->index == EVERYBODY && atomic_load(&f->id) == DRIVE_NO_JOB;
}

/* A file that such a job reads has other units than orders of files put in force before had. */
static bool are_records_read(const struct orders *o)
{
	for (uint32_t i = 0; i < o->jobs.n; i++)
		if (o->jobs.job[i].is_of_records)
			return true;
	return false;
}

/* The pass that was found, to see who reads it; NULL: then it is seen by what is read later. */
static struct order_epoch *epoch_of(const struct orders *o, const struct order *order)
{
	const struct order_info *info = order_info(order);
	struct order_epoch *epoch = NULL;
	struct err err = { 0 };

	if (info->n * EPOCH_BYTES > o->search.ram / 4 ||
	    order_epoch_new(order, info->start_epoch, &epoch, &err) < 0)
		return NULL;
	return epoch;
}

int untold_found(struct message *m)
{
	struct finder *f = m->finder;
	struct untold *u = f->u;
	const char *text = order_spec_text(m->spec);
	bool is_only = f->index == EVERYBODY && !atomic_load(&u->is_sorted);
	uint32_t id = atomic_load(&f->id);
	int rc;

	assert(u->finder[f->index] == f && m->take_order);
	if (!infer_is_current(f->infer, m->stamp) || f->is_over || is_late(f) ||
	    are_records_read(u->o) || is_anothers(f, text) || has_joined(f, text))
		return -ECANCELED;
	order_epoch_free(f->epoch);
	f->ranks = order_info(m->take_order)->n_ranks;
	f->epoch = TAKE(m->take_epoch);
	rc = jobs_put_found(u->o, &id, is_only, m->spec, TAKE(m->take_order), &m->err);
	if (rc < 0)
		return rc;
	atomic_store(&f->id, id);
	f->is_fresh = FRESH_LOOKS;
	return 0;
}

/* On the finder's thread. */
static int found(void *ctx, const char *text, uint64_t stamp)
{
	struct finder *f = ctx;
	struct orders *o = f->u->o;
	struct order_spec *spec = NULL;
	struct message m = { .kind = MESSAGE_FOUND, .finder = f, .stamp = stamp };
	int rc = order_spec_parse(text, &spec, &m.err);

	m.spec = spec;
	if (rc == 0)
		rc = orders_make(o, spec, &m.take_order, &m.err);
	if (rc == 0 && orders_is_unshuffled(text))
		order_may_be_left(m.take_order);
	if (rc == 0) {
		m.take_epoch = epoch_of(o, m.take_order);
		inbox_post(&o->inbox, &m);
		rc = inbox_await(&o->inbox, &m);
	}
	order_spec_free(spec);
	if (rc < 0 && rc != -ECANCELED)
		log_warn("%s: the order %s cannot be followed: %s", o->mountpoint, text, m.err.msg);
	return rc;
}

/* --- making one --- */

void finder_free(struct finder *f)
{
	if (!f)
		return;
	infer_free(f->infer);
	infer_numberings_free(f->parts);
	order_epoch_free(f->epoch);
	free(f);
}

int finder_new(struct untold *u, uint32_t index, const struct teller *who, struct finder **ret,
	       struct err *err)
{
	struct finder *f = calloc(1, sizeof(*f));
	struct infer_params params = u->params;
	int rc;

	*ret = NULL;
	if (!f)
		return err_set(err, -ENOMEM, "out of memory");
	*f = (struct finder){ .u = u, .index = index, .id = DRIVE_NO_JOB };
	if (who)
		f->who = *who;
	rc = infer_numberings_new(u->o->dataset, u->o->search.ram / NUMBERINGS_SHARE, &f->parts, err);
	params.numbers = rc == 0 ? infer_numberings_numbers(f->parts) : NULL;
	params.found = found;
	params.waits_until = waits_until;
	params.ctx = f;
	if (rc == 0)
		rc = infer_new(&params, &f->infer, err);
	if (rc < 0) {
		finder_free(f);
		return rc;
	}
	*ret = f;
	return 0;
}

/* --- what is said of it --- */

static json_t *finder_json(struct infer *infer)
{
	struct infer_status st;

	infer_get_status(infer, &st);
	return json_pack("{s:s, s:s, s:b, s:b, s:b, s:b, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I}",
			 "doing", st.words, "found", st.found, "is_searching", st.is_searching,
			 "is_full", st.is_full, "is_waiting", st.is_held, "is_saving", st.is_saving,
			 "progress", st.progress, "seconds_left", st.left_s, "cpu_seconds",
			 st.cpu_s, "vain_cpu_seconds", st.vain_cpu_s, "job_seconds", st.job_s,
			 "searches", (json_int_t)st.searches, "orders_found",
			 (json_int_t)st.orders_found, "found_after_opens",
			 (json_int_t)st.found_after);
}

/* The finder that the order in force is of, or everybody's. */
static uint32_t find_main(struct untold *u)
{
	uint32_t first = DRIVE_NO_JOB;
	struct finder *f;

	mutex_lock(&u->o->order_mu);
	if (u->o->jobs.n)
		first = u->o->jobs.job[0].id;
	mutex_unlock(&u->o->order_mu);
	mutex_lock(&u->mu);
	f = finder_of(u, first);
	first = f ? f->index : EVERYBODY;
	mutex_unlock(&u->mu);
	return first;
}

json_t *untold_json(struct untold *u)
{
	uint32_t main = find_main(u);
	json_t *json = NULL, *others = json_array();

	mutex_lock(&u->mu);
	if (!u->finder[main])
		main = EVERYBODY;
	json = finder_json(u->finder[main]->infer);
	for (uint32_t i = 0; i < FINDERS; i++) {
		struct finder *f = u->finder[i];
		/* The opens of nobody are not spoken of. */
		bool is_idle = i == EVERYBODY && f && atomic_load(&f->id) == DRIVE_NO_JOB;

		if (f && i != main && !is_idle)
			(void)json_array_append_new(others, finder_json(f->infer));
	}
	if (json && u->gone[0])
		(void)json_object_set_new(json, "ended", json_string(u->gone));
	mutex_unlock(&u->mu);
	(void)json_object_set_new(json, "others", others);
	return json;
}
