/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The jobs whose orders are in force. Each is one of the plan's, with its order and what is known
 * of its reads. The table has them in the order they came; the place of the first one stays with
 * that job when it tells its next order, so "the order" of status and accounting does not change
 * hands while its job is at work. Whoever comes, changes its order or goes, the plan goes on, and
 * what it has in memory and on its way stays.
 *
 * Planner thread, but for planned_start and planned_publish before it runs, and planned_free. It
 * must never wait for I/O, and never keep an order that an epoch may still be asked of without its
 * reference.
 */
#include <string.h>

#include "cache_priv.h"

struct planned_job *planned_at(struct cache *c, uint32_t index)
{
	for (uint32_t i = 0; i < c->n_jobs; i++)
		if (c->jobs[i].index == index)
			return &c->jobs[i];
	return NULL;
}

static struct planned_job *planned_find(struct cache *c, uint32_t id)
{
	for (uint32_t i = 0; i < c->n_jobs; i++)
		if (c->jobs[i].id == id)
			return &c->jobs[i];
	return NULL;
}

static void let_go_of(struct order_ref *order)
{
	atomic_store(&order->is_over, true);
	order_ref_put(order);
}

static void planned_remove(struct cache *c, struct planned_job *job)
{
	uint32_t at = (uint32_t)(job - c->jobs);

	let_go_of(job->order);
	memmove(job, job + 1, (c->n_jobs - at - 1) * sizeof(*job));
	c->n_jobs--;
}

void planned_free(struct cache *c)
{
	while (c->n_jobs)
		planned_remove(c, &c->jobs[c->n_jobs - 1]);
}

void planned_start(struct cache *c, struct order_ref *take_order, uint64_t now_ns)
{
	if (take_order)
		c->jobs[c->n_jobs++] = (struct planned_job){ .order = take_order,
							     .id = atomic_load(&c->orders),
							     .told_ns = now_ns };
	atomic_store(&c->has_order, take_order != NULL);
}

/* After the last one. */
static void planned_none(struct cache *c, const char *why)
{
	c->why_none = why ? why : "the order was taken back";
	atomic_fetch_add(&c->orders, 1);
	atomic_store(&c->has_order, false);
	switch_pages(c, true);
}

void planned_add(struct cache *c, struct order_request *request, uint64_t now_ns)
{
	struct planned_job *job = planned_find(c, request->job);
	const struct order_info *info = order_info(request->order->order);
	int index = job ? (int)job->index : plan_add_job(c->plan, info);

	request->status = job ? plan_change_job(c->plan, job->index, info) : MIN(index, 0);
	if (request->status < 0)
		return;
	if (job)
		let_go_of(job->order);
	else
		job = &c->jobs[c->n_jobs++];
	request->job = atomic_fetch_add(&c->orders, 1) + 1;
	*job = (struct planned_job){ .order = TAKE(request->order),
				     .id = request->job,
				     .index = (uint32_t)index,
				     .told_ns = now_ns };
	c->why_none = NULL;
	atomic_store(&c->has_order, true);
	switch_pages(c, false);
	switch_look_again(c, c->n_jobs == 1);
}

static void planned_end_at(struct cache *c, uint32_t at)
{
	plan_end_job(c->plan, c->jobs[at].index);
	planned_remove(c, &c->jobs[at]);
}

void planned_end(struct cache *c, struct order_request *request)
{
	struct planned_job *job = planned_find(c, request->job);

	request->status = job || !c->n_jobs ? 0 : -ENOENT;
	if (!job)
		return;
	planned_end_at(c, (uint32_t)(job - c->jobs));
	if (!c->n_jobs)
		planned_none(c, request->why);
}

void planned_set(struct cache *c, struct order_request *request, uint64_t now_ns)
{
	uint32_t left = request->order != NULL, had = c->n_jobs;

	request->status = 0;
	if (left) {
		request->job = c->n_jobs ? c->jobs[0].id : CACHE_NO_JOB;
		planned_add(c, request, now_ns);
	}
	if (request->status < 0)
		return;
	while (c->n_jobs > left)
		planned_end_at(c, c->n_jobs - 1);
	if (left)
		return;
	planned_none(c, NULL);
	if (!had)
		c->why_none = NULL;
}

/* --- what is said of them --- */

/* Counters of the plan's job: the metrics get the differences. */
static void count(struct cache *c, struct planned_job *job, const struct plan_status *st,
		  uint64_t now_ns)
{
	metrics_add(c->p.metrics, METRIC_RESYNCS, st->resyncs - job->counted_resyncs);
	metrics_add(c->p.metrics, METRIC_ORDER_MISMATCHES,
		    st->mismatches - job->counted_mismatches);
	job->counted_resyncs = st->resyncs;
	job->counted_mismatches = st->mismatches;
	if (st->placed != job->placed)
		job->read_ns = now_ns;
	job->placed = st->placed;
}

void planned_publish(struct cache *c, uint64_t now_ns)
{
	struct cache_job shown[PLAN_JOBS];
	struct plan_status st, first;
	uint32_t i = 0;

	plan_get_status(c->plan, &first); /* also without any */
	atomic_store(&c->plan_bytes, plan_table_bytes(c->plan));
	while (i < c->n_jobs) {
		struct planned_job *job = &c->jobs[i];

		if (!plan_get_job_status(c->plan, job->index, &st) || st.is_over) {
			planned_end_at(c, i); /* all its epochs are read, and others are at work */
			continue;
		}
		count(c, job, &st, now_ns);
		shown[i++] = (struct cache_job){
			.id = job->id, .plan = st, .told_ns = job->told_ns, .read_ns = job->read_ns
		};
	}
	if (!i && atomic_load(&c->has_order))
		planned_none(c, NULL);
	if (i)
		first = shown[0].plan;
	else if (c->why_none)
		first.why = c->why_none;
	mutex_lock(&c->status_mu);
	c->status = first;
	memcpy(c->shown, shown, i * sizeof(*shown));
	c->n_shown = i;
	mutex_unlock(&c->status_mu);
}

enum plan_state planned_state(const struct cache *c)
{
	for (uint32_t i = 1; i < c->n_jobs; i++)
		if (c->shown[i].plan.state == PLAN_FOLLOWING)
			return PLAN_FOLLOWING;
	return c->status.state;
}
