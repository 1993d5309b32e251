/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of training loops (hint.h: struct clairfs_steps), which say how long each rank waited for
 * its data: ground truth for the accounting of GPU wait, and the only thing that the nodes of a job
 * can be merged by.
 *
 * Everything in a record may be wrong or made up, so each is judged by itself:
 *
 *   - the rank is below the world, the times are in order;
 *   - they lie between the mount and now: a container with a clock of its own (a time namespace)
 *     shows here;
 *   - steps of one rank that are not within another one do not overlap, and a rank has not waited
 *     longer than the time that has passed;
 *   - there is at most one a microsecond.
 *
 * What fails is counted and left out. A rank belongs to the process that began last: a job that was
 * started again takes it over, and one that still sends under the same rank is refused.
 *
 * Only who may change the order may tell steps: others are refused before, and root cannot take the
 * ranks of the user who mounted it. The reactor adds (hook_take), so nothing here may block: the lock
 * is a leaf and held for microseconds. Renderers and the report read under it.
 */
#include <errno.h>
#include <string.h>

#include "clairfs/base/log.h"
#include "clairfs/publish/hook.h"

#define STEPS_AT_ONCE 4096 /* that one may be ahead of one a microsecond */

void hook_init(struct hook *h, struct clock *clock)
{
	*h = (struct hook){ .clock = clock, .start_ns = clock_now(clock) };
	mutex_init(&h->mu);
}

void hook_fini(struct hook *h)
{
	for (uint32_t i = 0; i < h->n_ranks; i++)
		step_log_fini(&h->ranks[i].log);
	free(h->ranks);
	mutex_fini(&h->mu);
}

/* The rank's place, a new one if there is none yet, or NULL: there are too many of this user, or no
 * memory. */
static struct hook_rank *find_rank(struct hook *h, uint32_t uid, uint32_t rank) REQUIRES(h->mu)
{
	struct hook_rank *more;
	uint32_t n_own = 0;

	for (uint32_t i = 0; i < h->n_ranks; i++) {
		if (h->ranks[i].rank == rank)
			return &h->ranks[i];
		n_own += h->ranks[i].uid == uid;
	}
	if (n_own == HOOK_MAX_RANKS)
		return NULL;
	more = realloc(h->ranks, (h->n_ranks + 1) * sizeof(*more));
	if (!more)
		return NULL;
	h->ranks = more;
	more = &h->ranks[h->n_ranks++];
	*more = (struct hook_rank){ .rank = rank, .uid = uid };
	return more;
}

/* Another process has begun as this rank: what the one before waited stays in the totals. */
static void take_over(struct hook_rank *r, const struct clairfs_steps *steps)
{
	if (r->run)
		r->n_runs++;
	r->run = steps->run;
	r->world = steps->world;
	step_log_fini(&r->log);
}

static bool is_step_right(const struct hook *h, const struct clairfs_step_record *step, uint32_t world,
			  uint64_t now)
{
	return step_is_plausible(step, world) && step->t_request >= h->start_ns &&
	       step->t_next <= now;
}

/* False when it was left out. */
static bool hook_take_step(struct hook *h, uint32_t uid, const struct clairfs_steps *steps,
			   const struct clairfs_step_record *step, uint64_t now) REQUIRES(h->mu)
{
	bool is_inner = step->flags & CLAIRFS_STEP_INNER;
	struct hook_rank *r;

	if (!is_step_right(h, step, steps->world, now))
		return false;
	r = find_rank(h, uid, step->rank);
	if (!r || steps->run < r->run || steps->run > now)
		return false;
	if (r->totals.steps >= (now - h->start_ns) / 1000 + STEPS_AT_ONCE)
		return false;
	if (step->t_ready - step->t_request > now - h->start_ns - r->totals.wait_ns)
		return false;
	if (!is_inner && step->t_request < r->last_ns)
		return false;
	if (steps->run > r->run)
		take_over(r, steps);
	if (!is_inner)
		r->last_ns = step->t_next;
	step_totals_add(&r->totals, step);
	if (step_log_add(&r->log, step->step, step->t_ready - step->t_request,
			 is_inner ? 0 : step->t_next - step->t_request) < 0)
		log_limited(LOG_LEVEL_WARN,
			    "out of memory: a step of rank %u is in the totals only", step->rank);
	return true;
}

uint32_t hook_take(struct hook *h, uint32_t uid, const struct clairfs_steps *steps,
		   struct clairfs_step_record taken[CLAIRFS_STEPS])
{
	uint64_t now = clock_now(h->clock);
	uint32_t n = 0;

	mutex_lock(&h->mu);
	for (uint32_t i = 0; i < steps->count; i++)
		if (hook_take_step(h, uid, steps, &steps->step[i], now))
			taken[n++] = steps->step[i];
	if (n)
		job_name_clean(steps->job, sizeof(steps->job), h->job, sizeof(h->job));
	mutex_unlock(&h->mu);
	return n;
}

void hook_job(struct hook *h, char out[CLAIRFS_JOB_NAME])
{
	mutex_lock(&h->mu);
	memcpy(out, h->job, sizeof(h->job));
	mutex_unlock(&h->mu);
}

static json_t *hook_rank_json(const struct hook_rank *r)
{
	const struct step_totals *t = &r->totals;

	return json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f}", "rank",
			 (json_int_t)r->rank, "world", (json_int_t)r->world, "steps",
			 (json_int_t)t->steps, "restarts", (json_int_t)r->n_runs, "wait_seconds",
			 (double)t->wait_ns / 1e9, "first_wait_seconds",
			 (double)t->first_wait_ns / 1e9, "max_wait_seconds",
			 (double)t->max_wait_ns / 1e9, "span_seconds", (double)t->span_ns / 1e9,
			 "au_percent", step_au_percent(t));
}

json_t *hook_report_json(struct hook *h)
{
	json_t *ranks = json_array();

	mutex_lock(&h->mu);
	for (uint32_t i = 0; ranks && i < h->n_ranks; i++) {
		json_t *rank = hook_rank_json(&h->ranks[i]);
		json_t *log = step_log_to_json(&h->ranks[i].log, step_log_names,
					       REPORT_STEPS / h->n_ranks);

		if (json_object_set_new(rank, "log", log) < 0 ||
		    json_array_append_new(ranks, rank) < 0) {
			json_decref(ranks);
			ranks = NULL;
		}
	}
	mutex_unlock(&h->mu);
	return ranks;
}

json_t *hook_json(struct hook *h)
{
	json_t *ranks = json_array(), *root = NULL;

	mutex_lock(&h->mu);
	for (uint32_t i = 0; ranks && i < h->n_ranks; i++)
		if (json_array_append_new(ranks, hook_rank_json(&h->ranks[i])) < 0)
			break;
	root = json_pack("{s:s, s:o}", "job", h->job, "ranks", ranks);
	mutex_unlock(&h->mu);
	return root;
}
