/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is asked of the planner by other threads: another order, one more, one less, the last opens.
 * The request lies on the stack of who asks and is answered between two rounds. One request at a
 * time (order_mu), one change of orders at a time (make_mu): while one is made nobody else adds
 * any, so who is alone at the start is alone at the end, as jobs leave by themselves but never come
 * so.
 *
 * The order of the only job comes with a plan of its own, made here while the old one goes on; that
 * of one job of several is given to the plan there is. Any thread but the reactor; it must never be
 * called with a lock of the data path held.
 */
#include "cache_priv.h"

int planner_ask(struct cache *c, struct order_request *request)
{
	struct notes *n = &c->notes;
	int status;

	mutex_lock(&c->order_mu);
	mutex_lock(&n->mu);
	if (n->is_planning) {
		n->request = request;
		notes_wake_locked(n);
		while (!request->is_done)
			cond_wait(&n->answer_cv, &n->mu);
	}
	status = request->status;
	mutex_unlock(&n->mu);
	mutex_unlock(&c->order_mu);
	return status;
}

/* The plan is made and the old one freed here: with many samples each takes seconds. */
static int set_order(struct cache *c, struct order_request *request) REQUIRES(c->make_mu)
{
	int status;

	atomic_store(&c->notes.is_making_plan, true);
	status = plan_make(c, request->order, &request->plan);
	if (status == 0)
		status = planner_ask(c, request);
	atomic_store(&c->notes.is_making_plan, false);
	plan_free(request->plan);
	return status;
}

int cache_set_order(struct cache *c, struct order *take_order)
{
	struct order_request request = { .kind = REQUEST_SET, .status = -ECANCELED };
	int status;

	if (take_order) {
		request.order = order_ref_new(take_order, true);
		if (!request.order) {
			order_free(take_order);
			return -ENOMEM;
		}
	}
	mutex_lock(&c->make_mu);
	status = set_order(c, &request);
	mutex_unlock(&c->make_mu);
	order_ref_put(request.order); /* left there when it was not taken */
	return status;
}

/* Whether no other job than this is at work; or none is. Jobs come under make_mu only. */
static bool is_alone(struct cache *c, uint32_t id)
{
	struct cache_job jobs[PLAN_JOBS];
	uint32_t n = cache_get_jobs(c, jobs);

	return n == 0 || (n == 1 && jobs[0].id == id);
}

int cache_add_order(struct cache *c, struct order *take_order, uint32_t instead_of,
		    uint32_t *ret_id)
{
	struct order_request request = { .kind = REQUEST_ADD,
					 .job = instead_of,
					 .status = -ECANCELED };
	int status;

	request.order = order_ref_new(take_order, true);
	if (!request.order) {
		order_free(take_order);
		return -ENOMEM;
	}
	mutex_lock(&c->make_mu);
	if (is_alone(c, instead_of)) {
		request.kind = REQUEST_SET;
		status = set_order(c, &request);
	} else {
		status = planner_ask(c, &request);
	}
	mutex_unlock(&c->make_mu);
	*ret_id = request.job;
	order_ref_put(request.order);
	return status;
}

int cache_end_order(struct cache *c, uint32_t id, const char *why)
{
	struct order_request request = {
		.kind = REQUEST_END, .job = id, .why = why, .status = -ECANCELED
	};
	int status;

	mutex_lock(&c->make_mu);
	if (is_alone(c, id)) {
		request.kind = REQUEST_SET;
		status = set_order(c, &request);
	} else {
		status = planner_ask(c, &request);
	}
	mutex_unlock(&c->make_mu);
	return status;
}

uint32_t cache_last_opens(struct cache *c, uint32_t *ret_sample, uint32_t max)
{
	struct order_request request = {
		.kind = REQUEST_OPENS, .status = -ECANCELED, .opens = ret_sample, .max_opens = max
	};

	return planner_ask(c, &request) == 0 ? request.n_opens : 0;
}
