/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is asked of the planner by other threads: another order, one more, one less, the last opens.
 * The request lies on the stack of who asks and is answered between two rounds, one at a time. Any
 * thread but the reactor; it must never be called with a lock of the data path held.
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
	status = planner_ask(c, &request);
	order_ref_put(request.order); /* left there when it was not taken */
	return status;
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
	status = planner_ask(c, &request);
	*ret_id = request.job;
	order_ref_put(request.order);
	return status;
}

int cache_end_order(struct cache *c, uint32_t id, const char *why)
{
	struct order_request request = {
		.kind = REQUEST_END, .job = id, .why = why, .status = -ECANCELED
	};

	return planner_ask(c, &request);
}

uint32_t cache_last_opens(struct cache *c, uint32_t *ret_sample, uint32_t max)
{
	struct order_request request = {
		.kind = REQUEST_OPENS, .status = -ECANCELED, .opens = ret_sample, .max_opens = max
	};

	return planner_ask(c, &request) == 0 ? request.n_opens : 0;
}
