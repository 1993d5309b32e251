/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is asked of the planner by other threads: another order, one more, one less, the last opens.
 * The request lies on the stack of who asks and is answered between two rounds, one at a time. Any
 * thread but the reactor; it must never be called with a lock of the data path held.
 */
#include "drive_priv.h"

#include <string.h>

struct order_request *request_take(struct drive *d, bool is_last)
{
	struct order_request *request;

	mutex_lock(&d->ask_mu);
	request = TAKE(d->request);
	if (is_last)
		d->is_planning = false;
	mutex_unlock(&d->ask_mu);
	return request;
}

void request_answer(struct drive *d, struct order_request *request, int status)
{
	mutex_lock(&d->ask_mu);
	assert(!request->is_done && d->request != request);
	request->status = status;
	request->is_done = true;
	cond_broadcast(&d->answer_cv);
	mutex_unlock(&d->ask_mu);
}

/* Waits until the planner has answered; -ECANCELED when it does not run. */
static int planner_ask(struct drive *d, struct order_request *request)
{
	bool is_planning;
	int status;

	mutex_lock(&d->order_mu);
	mutex_lock(&d->ask_mu);
	is_planning = d->is_planning;
	assert(!d->request); /* one at a time: order_mu */
	if (is_planning)
		d->request = request;
	mutex_unlock(&d->ask_mu);
	if (is_planning)
		news_ask(d->news);
	mutex_lock(&d->ask_mu);
	while (is_planning && !request->is_done)
		cond_wait(&d->answer_cv, &d->ask_mu);
	status = request->status;
	mutex_unlock(&d->ask_mu);
	mutex_unlock(&d->order_mu);
	return status;
}

int drive_set_order(struct drive *d, struct order *take_order)
{
	struct order_request request = { .kind = REQUEST_SET, .status = -ECANCELED };
	int status;

	if (take_order) {
		request.order =
			order_ref_new(take_order, dataset_unit_map(d->dataset), true);
		if (!request.order) {
			order_free(take_order);
			return -ENOMEM;
		}
	}
	status = planner_ask(d, &request);
	order_ref_put(request.order); /* left there when it was not taken */
	return status;
}

int drive_add_order(struct drive *d, struct order *take_order, uint32_t instead_of,
		    uint32_t *ret_id)
{
	struct order_request request = { .kind = REQUEST_ADD,
					 .job = instead_of,
					 .status = -ECANCELED };
	int status;

	request.order = order_ref_new(take_order, dataset_unit_map(d->dataset), true);
	if (!request.order) {
		order_free(take_order);
		return -ENOMEM;
	}
	status = planner_ask(d, &request);
	*ret_id = request.job;
	order_ref_put(request.order);
	return status;
}

int drive_end_order(struct drive *d, uint32_t id, const char *why)
{
	struct order_request request = {
		.kind = REQUEST_END, .job = id, .why = why, .status = -ECANCELED
	};

	return planner_ask(d, &request);
}

uint32_t drive_last_opens(struct drive *d, struct sample_id *ret, uint32_t max)
{
	AUTO_FREE struct unit_id *opens = calloc(MAX(max, 1), sizeof(*opens));
	struct order_request request = {
		.kind = REQUEST_OPENS, .status = -ECANCELED, .opens = opens, .max_opens = max
	};

	if (!opens || planner_ask(d, &request) < 0)
		return 0;
	for (uint32_t i = 0; i < request.n_opens; i++)
		ret[i] = unit_sample(dataset_unit_map(d->dataset), opens[i]);
	return request.n_opens;
}

void drive_note_cut(struct drive *d, struct entry_id entry)
{
	cache_note_cut(d->cache, entry);
}

void drive_note_come(struct drive *d, const struct unit_id *unit, size_t n)
{
	cache_note_come(d->cache, unit, n);
}

uint32_t drive_reader_of(struct drive *d, struct sample_id sample)
{
	return cache_reader_of(d->cache, unit_first(dataset_unit_map(d->dataset), sample));
}

uint32_t drive_generation(struct drive *d)
{
	return atomic_load(&d->generation);
}

uint32_t drive_get_jobs(struct drive *d, struct drive_job ret[PLAN_JOBS])
{
	uint32_t n;

	mutex_lock(&d->status_mu);
	n = d->n_shown;
	memcpy(ret, d->shown, n * sizeof(*ret));
	mutex_unlock(&d->status_mu);
	return n;
}
