/* SPDX-License-Identifier: Apache-2.0 */
/* The verdicts on the last passes of each rank, for stats.json: totals do not say which pass they
 * grew by, and who compares with another measurement of an epoch needs to know.
 *
 * The waits for each batch, replayed with and without the mount, are kept for the report, where
 * those of all ranks of a job become its estimate: bounded, and coarse when there are many.
 *
 * stats.json is read once a second by whoever watches, so there are at most a thousand of them in
 * it, however many ranks a node has. The accounting's thread adds, any thread reads; the lock is a
 * leaf. */
#include <assert.h>
#include <stdlib.h>

#include "clairfs/base/cleanup.h"
#include "clairfs/base/log.h"
#include "clairfs/report.h"
#include "verdicts.h"

enum { SHOWN = 1024, SHOWN_MIN = 8, REPLAY_MAX = 1 << 16 };

struct rank_verdicts {
	uint32_t rank;
	uint64_t n; /* so far; the last ones are kept */
	struct stall_verdict kept[VERDICTS_KEPT];
	struct step_log replay; /* waits with (wait_us) and without the mount (span_us) */
};

void verdicts_init(struct verdicts *v)
{
	mutex_init(&v->mu);
}

void verdicts_fini(struct verdicts *v)
{
	for (uint32_t i = 0; i < v->n_ranks; i++) {
		step_log_fini(&v->rank[i]->replay);
		free(v->rank[i]);
	}
	mutex_fini(&v->mu);
}

static struct rank_verdicts *verdicts_find_locked(struct verdicts *v, uint32_t rank) REQUIRES(v->mu)
{
	for (uint32_t i = 0; i < v->n_ranks; i++)
		if (v->rank[i]->rank == rank)
			return v->rank[i];
	return NULL;
}

static struct rank_verdicts *get_locked(struct verdicts *v, uint32_t rank) REQUIRES(v->mu)
{
	struct rank_verdicts *r = verdicts_find_locked(v, rank);

	if (r || v->n_ranks == STALL_RANKS_MAX)
		return r;
	r = calloc(1, sizeof(*r));
	if (!r)
		return NULL;
	assert(v->n_ranks < STALL_RANKS_MAX);
	r->rank = rank;
	r->replay.limit = REPLAY_MAX;
	v->rank[v->n_ranks++] = r;
	return r;
}

/* False: out of memory. */
static bool add_replay(struct step_log *log, const struct stall_verdict *verdict)
{
	for (uint64_t i = 0; verdict->with_ns && i < verdict->n_batches; i++)
		if (step_log_add(log, verdict->first_batch + i, verdict->with_ns[i],
				 verdict->without_ns[i]) < 0)
			return false;
	return true;
}

void verdicts_add(void *verdicts, const struct stall_verdict *verdict)
{
	struct verdicts *v = verdicts;
	struct stall_verdict *kept;
	struct rank_verdicts *r;
	bool is_kept;

	mutex_lock(&v->mu);
	r = get_locked(v, verdict->rank);
	is_kept = r && add_replay(&r->replay, verdict);
	if (r) {
		kept = &r->kept[r->n++ % VERDICTS_KEPT];
		*kept = *verdict;
		kept->with_ns = kept->without_ns = NULL;
	}
	mutex_unlock(&v->mu);
	if (!is_kept)
		log_limited(LOG_LEVEL_WARN, "a verdict on GPU wait is not kept: out of memory");
}

static json_t *seconds_json(uint64_t ns, bool is_known)
{
	return is_known ? json_real((double)ns / 1e9) : json_null();
}

static json_t *one_json(const struct stall_verdict *v)
{
	bool is_judged = v->why == STALL_JUDGED;

	return json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "order",
			 (json_int_t)v->order, "pass", (json_int_t)v->pass, "part",
			 (json_int_t)v->part, "reads", (json_int_t)v->reads, "began_seconds",
			 (double)v->began_ns / 1e9, "ended_seconds", (double)v->ended_ns / 1e9,
			 "why", stall_why_words[v->why], "took_seconds",
			 seconds_json(v->took_ns, is_judged), "removed_lower_seconds",
			 seconds_json(v->lower_ns, is_judged), "removed_replay_seconds",
			 seconds_json(v->estimate_ns, v->has_estimate), "removed_hook_seconds",
			 seconds_json(v->estimate_hook_ns, v->has_hook), "removed_upper_seconds",
			 seconds_json(v->upper_ns, is_judged), "page_cache_seconds",
			 seconds_json(v->page_cache_ns, is_judged));
}

json_t *verdicts_replay_json(struct verdicts *v, uint32_t rank)
{
	json_t *json = NULL;
	struct rank_verdicts *r;

	mutex_lock(&v->mu);
	r = verdicts_find_locked(v, rank);
	if (r && r->replay.n)
		json = step_log_to_json(&r->replay, replay_log_names, REPORT_STEPS / v->n_ranks);
	mutex_unlock(&v->mu);
	return json;
}

json_t *verdicts_json(struct verdicts *v, uint32_t rank)
{
	json_t *list = json_array();
	struct rank_verdicts *r;
	uint64_t shown;

	mutex_lock(&v->mu);
	r = verdicts_find_locked(v, rank);
	shown = MIN(MAX(SHOWN / MAX(v->n_ranks, 1), SHOWN_MIN), VERDICTS_KEPT);
	for (uint64_t i = r && r->n > shown ? r->n - shown : 0; r && i < r->n; i++)
		json_array_append_new(list, one_json(&r->kept[i % VERDICTS_KEPT]));
	mutex_unlock(&v->mu);
	return list;
}
