/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The jobs whose orders are in force. Each is one of the plan's, with its order and what is known
 * of its reads. The table has them in the order they came; the place of the first one stays with
 * that job when it tells its next order, so "the order" of status and accounting does not change
 * hands while its job is at work. Whoever comes, changes its order or goes, the plan goes on, and
 * what it has in memory and on its way stays.
 *
 * PURE. It must never keep an order that an epoch may still be asked of without its reference.
 */
#include "step_priv.h"

#include <stdlib.h>
#include <string.h>

#include "clairfs/order/records.h"

/* What it says of itself, in what it numbers. */
static const struct order_info *info_of(const struct order_ref *ref)
{
	return ref->is_of_records ? order_records_info(ref->order) : order_info(ref->order);
}

/* A file may get other units while an epoch is computed. */
static const struct unit_map *keep_files(struct order_ref *ref)
{
	const struct units_later *later = ref->files->later;
	uint32_t n = later ? atomic_load_explicit(&later->n, memory_order_acquire) : 0;

	if (!later)
		return ref->files;
	ref->files_then = *ref->files;
	ref->files_then.later = &ref->later_then;
	ref->later_then.from = later->from;
	memcpy(ref->later_then.file, later->file, n * sizeof(later->file[0]));
	atomic_init(&ref->later_then.n, n);
	return &ref->files_then;
}

struct order_ref *order_ref_new(struct order *order, const struct unit_map *files, bool is_owned)
{
	struct order_ref *ref = calloc(1, sizeof(*ref));

	if (!ref)
		return NULL;
	ref->order = order;
	ref->is_owned = is_owned;
	ref->is_of_records = order_is_in_records(order, files);
	ref->files = files;
	if (ref->is_of_records)
		ref->map = order_units(order) ? order_units(order) : files->of_records;
	else
		ref->map = keep_files(ref);
	ref->info = *info_of(ref);
	atomic_init(&ref->refs, 1);
	if (ref->map->first &&
	    order_info_expand(info_of(ref), ref->map, &ref->info, &ref->bits) < 0) {
		free(ref);
		return NULL;
	}
	return ref;
}

int order_ref_epoch(const struct order_ref *ref, uint64_t epoch, struct order_epoch **ret,
		    struct err *err)
{
	struct order_epoch *samples;
	int rc = ref->is_of_records ? order_records_epoch_new(ref->order, epoch, &samples, err)
				    : order_epoch_new(ref->order, epoch, &samples, err);

	*ret = NULL;
	if (rc < 0)
		return rc;
	if (!ref->map->first) {
		*ret = samples;
		return 0;
	}
	rc = order_epoch_expand(samples, info_of(ref), ref->map, ret);
	order_epoch_free(samples);
	return rc < 0 ? err_set_errno(err, rc, "epoch in units") : 0;
}

void order_ref_put(struct order_ref *ref)
{
	if (!ref || atomic_fetch_sub(&ref->refs, 1) != 1)
		return;
	if (ref->is_owned)
		order_free(ref->order);
	free(ref->bits);
	free(ref);
}

struct step_job *step_job_at(struct step *s, uint32_t index)
{
	for (uint32_t i = 0; i < s->n_jobs; i++)
		if (s->job[i].index == index)
			return &s->job[i];
	return NULL;
}

static struct step_job *find(struct step *s, uint32_t id)
{
	for (uint32_t i = 0; i < s->n_jobs; i++)
		if (s->job[i].id == id)
			return &s->job[i];
	return NULL;
}

static void let_go_of(struct order_ref *order)
{
	atomic_store(&order->is_over, true);
	order_ref_put(order);
}

static void remove_job(struct step *s, struct step_job *job)
{
	uint32_t at = (uint32_t)(job - s->job);

	let_go_of(job->order);
	memmove(job, job + 1, (s->n_jobs - at - 1) * sizeof(*job));
	s->n_jobs--;
}

void step_jobs_free(struct step *s)
{
	while (s->n_jobs)
		remove_job(s, &s->job[s->n_jobs - 1]);
}

void step_jobs_start(struct step *s, struct order_ref *take_order, uint64_t now_ns)
{
	if (take_order)
		s->job[s->n_jobs++] = (struct step_job){ .order = take_order,
							 .id = s->generation,
							 .told_ns = now_ns };
	s->has_order = take_order != NULL;
}

/* After the last one. */
static void none_left(struct step *s, const char *why)
{
	s->why_none = why ? why : "the order was taken back";
	s->generation++;
	s->has_order = false;
	step_pages(s, true);
}

int step_add_order(struct step *s, struct order_ref **order, uint32_t instead_of, uint64_t now_ns,
		   uint32_t *ret_id)
{
	struct step_job *job = find(s, instead_of);
	const struct order_info *info = &(*order)->info;
	int index = job ? (int)job->index : plan_add_job(s->plan, info);
	int rc = job ? plan_change_job(s->plan, job->index, info) : MIN(index, 0);

	if (rc < 0)
		return rc;
	if (job)
		let_go_of(job->order);
	else
		job = &s->job[s->n_jobs++];
	*job = (struct step_job){ .order = TAKE(*order),
				  .id = ++s->generation,
				  .index = (uint32_t)index,
				  .told_ns = now_ns };
	*ret_id = job->id;
	s->why_none = NULL;
	s->has_order = true;
	step_pages(s, false);
	step_look_again(s, s->n_jobs == 1);
	return 0;
}

static void end_at(struct step *s, uint32_t at)
{
	plan_end_job(s->plan, s->job[at].index);
	remove_job(s, &s->job[at]);
}

int step_end_order(struct step *s, uint32_t id, const char *why)
{
	struct step_job *job = find(s, id);

	if (!job)
		return s->n_jobs ? -ENOENT : 0;
	end_at(s, (uint32_t)(job - s->job));
	if (!s->n_jobs)
		none_left(s, why);
	return 0;
}

int step_set_order(struct step *s, struct order_ref **order, uint64_t now_ns)
{
	uint32_t left = *order != NULL, had = s->n_jobs, id;
	int rc = 0;

	if (left)
		rc = step_add_order(s, order, had ? s->job[0].id : STEP_NO_JOB, now_ns, &id);
	if (rc < 0)
		return rc;
	while (s->n_jobs > left)
		end_at(s, s->n_jobs - 1);
	if (left)
		return 0;
	none_left(s, NULL);
	if (!had)
		s->why_none = NULL;
	return 0;
}

/* --- what is said of them --- */

/* Counters of the plan's job: the sum gets the differences. */
static void count(struct step *s, struct step_job *job, const struct plan_status *st, uint64_t now_ns)
{
	s->resyncs += st->resyncs - job->counted_resyncs;
	s->mismatches += st->mismatches - job->counted_mismatches;
	job->counted_resyncs = st->resyncs;
	job->counted_mismatches = st->mismatches;
	if (st->placed != job->placed)
		job->read_ns = now_ns;
	job->placed = st->placed;
	job->plan = *st;
}

void step_jobs_look(struct step *s, uint64_t now_ns)
{
	struct plan_status st;
	uint32_t i = 0;

	s->first = s->all; /* also without any */
	while (i < s->n_jobs) {
		if (!plan_get_job_status(s->plan, s->job[i].index, &st) || st.is_over)
			end_at(s, i); /* all its epochs are read, and others are at work */
		else
			count(s, &s->job[i++], &st, now_ns);
	}
	if (!i && s->has_order)
		none_left(s, NULL);
	if (i)
		s->first = s->job[0].plan;
	else if (s->why_none)
		s->first.why = s->why_none;
}

enum plan_state step_state(const struct step *s)
{
	for (uint32_t i = 1; i < s->n_jobs; i++)
		if (s->job[i].plan.state == PLAN_FOLLOWING)
			return PLAN_FOLLOWING;
	return s->first.state;
}
