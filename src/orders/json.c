/* SPDX-License-Identifier: Apache-2.0 */
/* What stats.json says of jobs and of what was told. Runs on the reactor: nothing waits but for a
 * moment, under order_mu. */
#include <string.h>

#include "clairfs/base/text.h"
#include "orders_priv.h"

/* Names that are no UTF-8 are shown escaped. */
static json_t *json_text(const char *text)
{
	char escaped[4096 * 4];

	return json_string(text_escape(text, strlen(text), escaped, sizeof(escaped)));
}

static json_t *job_json(const struct job *job, const struct cache_job *view, bool is_accounted)
{
	struct plan_status st = view->plan;
	const struct plan_status *p = &st;
	uint64_t now = clock_now(clock_monotonic());
	int pid = job->n_readers ? job->reader[0].pid : job->who.id.pid;
	char doing[PLAN_TEXT];

	st.is_found = job->is_found;
	plan_status_text(p, doing);
	return json_pack(
		"{s:I, s:o, s:o*, s:o*, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:i, s:I, s:f, s:b, s:b}",
		"id", (json_int_t)job->id, "spec", json_text(job->text), "name",
		job->name ? json_text(job->name) : NULL, "pid",
		pid ? json_integer(pid) : NULL, "state",
		plan_state_names[p->state], "why", plan_status_why(p), "doing", doing, "epoch",
		(json_int_t)p->epoch, "position", (json_int_t)p->position, "length",
		(json_int_t)p->length, "lead", (json_int_t)p->lead, "match_percent",
		(int)p->match_percent, "reads", (json_int_t)p->placed, "quiet_seconds",
		view->read_ns ? (double)(now - MIN(view->read_ns, now)) / 1e9 : 0.0, "is_accounted",
		is_accounted, "is_found", job->is_found);
}

/* In the order they came: GPU wait is accounted for the first. */
json_t *orders_jobs_json(struct orders *o)
{
	struct cache_job views[PLAN_JOBS];
	uint32_t n = o->drive->get_jobs(o->drive_ctx, views);
	const struct jobs *t = &o->jobs;
	json_t *list = json_array();

	mutex_lock(&o->order_mu);
	for (uint32_t i = 0; list && i < t->n; i++)
		for (uint32_t k = 0; k < n; k++)
			if (views[k].id == t->job[i].id)
				(void)json_array_append_new(list, job_json(&t->job[i], &views[k],
									   i == 0));
	mutex_unlock(&o->order_mu);
	return list;
}

json_t *orders_announced_json(struct orders *o)
{
	struct told_last told;
	json_t *json;

	orders_get_told(o, &told);
	json = json_pack("{s:I, s:I, s:o*, s:b}", "count", (json_int_t)told.n, "refused",
			 (json_int_t)told.n_refused, "answer",
			 told.answer ? json_text(told.answer) : NULL, "is_refused",
			 told.is_refused);
	free(told.answer);
	return json;
}

json_t *orders_search_json(struct orders *o)
{
	return untold_json(o->untold);
}
