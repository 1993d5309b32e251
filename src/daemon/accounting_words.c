/* SPDX-License-Identifier: Apache-2.0 */
/* What stall accounting has found, for people and for stats.json.
 *
 * Of a node with several ranks: a job is as fast as its slowest rank, so the node's lower bound and
 * estimate are those of the rank with most, and never a sum. At most removed is the sum, because
 * the slowest rank may be another one at each step. Words must never say more than the numbers do:
 * "it would not have helped" is one of the answers. Any thread. */
#include <stdio.h>
#include <string.h>

#include "accounting_priv.h"

struct node_numbers {
	double lower, replay, hook, upper, judged, wait, compute;
	uint64_t passes, unjudged, with_replay, with_hook, steps;
};

static double seconds(uint64_t ns)
{
	return (double)ns / 1e9;
}

static void node_add(struct node_numbers *n, const struct stall_numbers *r)
{
	n->lower = MAX(n->lower, seconds(r->lower_ns));
	n->replay = MAX(n->replay, seconds(r->estimate_ns));
	n->hook = MAX(n->hook, seconds(r->estimate_hook_ns));
	n->upper += seconds(r->upper_ns);
	n->judged = MAX(n->judged, seconds(r->judged_ns));
	n->wait = MAX(n->wait, seconds(r->gpu_wait_ns));
	n->compute = MAX(n->compute, seconds(r->compute_ns));
	n->passes += r->judged;
	n->unjudged += r->unjudged;
	n->with_replay += r->judged_replay;
	n->with_hook += r->judged_hook;
	n->steps += r->steps;
}

/* The estimate of the better source, if that has judged everything. */
static const char *estimate_source(const struct node_numbers *n)
{
	if (n->passes && n->with_hook == n->passes)
		return "hook";
	return n->passes && n->with_replay == n->passes ? "replay" : "none";
}

static double estimate(const struct node_numbers *n)
{
	return strcmp(estimate_source(n), "hook") == 0 ? n->hook : n->replay;
}

static void words(const struct node_numbers *n, const struct stall_node *node, double share,
		  char *out, size_t size)
{
	bool has_estimate = strcmp(estimate_source(n), "none") != 0;
	int len;

	if (n->passes == 0) {
		snprintf(out, size, "not known: %s",
			 share > 0 || node->why != STALL_NO_CONTROLS
				 ? stall_why_words[node->why]
				 : "there are no control reads (control_reads=off)");
		return;
	}
	if (n->upper < 0.01 * n->judged)
		len = snprintf(out, size,
			       "it would not have helped: at most %.1f s of GPU wait in %.1f s",
			       n->upper, n->judged);
	else if (n->lower > 0)
		len = snprintf(out, size, "removed at least %.1f s of GPU wait, at most %.1f s",
			       n->lower, n->upper);
	else if (has_estimate && estimate(n) < 0.01 * n->judged)
		len = snprintf(out, size,
			       "it would hardly have helped: about %.1f s of GPU wait in %.1f s, "
			       "at most %.1f s",
			       estimate(n), n->judged, n->upper);
	else
		len = snprintf(out, size, "no GPU wait that is certain; at most %.1f s in %.1f s",
			       n->upper, n->judged);
	if (len > 0 && (size_t)len < size && n->lower > 0 && has_estimate)
		len += snprintf(out + len, size - (size_t)len, "; about %.1f s (%s)", estimate(n),
				strcmp(estimate_source(n), "hook") == 0 ? "by the job's own times"
									: "loader replayed");
	if (len > 0 && (size_t)len < size && n->unjudged)
		snprintf(out + len, size - (size_t)len, "; %llu passes not judged: %s",
			 (unsigned long long)n->unjudged,
			 stall_why_words[node->why ? node->why : STALL_HOLES]);
}

static json_t *rank_json(const struct stall_numbers *r)
{
	double au = stall_au_percent(r);
	json_t *json = json_pack(
		"{s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I}", "rank",
		(json_int_t)r->rank, "removed_lower_seconds", seconds(r->lower_ns),
		"removed_replay_seconds", seconds(r->estimate_ns), "removed_hook_seconds",
		seconds(r->estimate_hook_ns), "removed_upper_seconds", seconds(r->upper_ns),
		"read_latency_saved_seconds", seconds(r->latency_saved_ns), "prep_wait_seconds",
		seconds(r->prep_wait_ns), "judged_seconds", seconds(r->judged_ns), "passes_judged",
		(json_int_t)r->judged, "passes_unjudged", (json_int_t)r->unjudged, "reads",
		(json_int_t)r->reads, "ghost_reads", (json_int_t)r->ghost_reads);
	json_t *job =
		json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:o}", "workers", (json_int_t)r->workers,
			  "prefetch", (json_int_t)r->prefetch, "batch", (json_int_t)r->batch,
			  "steps", (json_int_t)r->steps, "gpu_wait_seconds",
			  seconds(r->gpu_wait_ns), "compute_seconds", seconds(r->compute_ns),
			  "au_percent", au < 0 ? json_null() : json_real(au));

	if (json && job)
		json_object_update(json, job);
	json_object_set_new(json, "switchback", accounting_switch_of_rank(&r->switchback));
	json_decref(job);
	return json;
}

static json_t *control_json(const struct accounting_view *v)
{
	return json_pack("{s:f, s:I, s:I, s:f, s:I, s:I, s:I}", "share", v->params.control_share,
			 "reads", (json_int_t)v->node.control_reads, "bytes",
			 (json_int_t)v->node.control_bytes, "cost_seconds",
			 seconds(v->node.control_cost_ns), "used",
			 (json_int_t)v->node.controls_used, "needed",
			 (json_int_t)v->node.controls_needed, "unplaced_reads",
			 (json_int_t)v->node.unplaced_reads);
}

json_t *accounting_json(struct accounting *a)
{
	struct accounting_view v;
	struct node_numbers n = { 0 };
	json_t *ranks = json_array(), *switchback;
	char text[512];

	accounting_look(a, &v);
	for (uint32_t i = 0; i < v.n_ranks; i++) {
		node_add(&n, &v.rank[i]);
		json_array_append_new(ranks, rank_json(&v.rank[i]));
	}
	words(&n, &v.node, v.params.control_share, text, sizeof(text));
	accounting_switch_words(&v, text, sizeof(text));
	switchback = accounting_switch_json(&v);
	free(v.rank);
	return json_pack("{s:s, s:s, s:f, s:f, s:s, s:f, s:f, s:I, s:I, s:I, s:I, s:o, s:o, s:o}",
			 "words", text, "why", stall_why_words[v.node.why], "removed_lower_seconds",
			 n.lower, "removed_estimate_seconds", estimate(&n),
			 "removed_estimate_source", estimate_source(&n), "removed_upper_seconds",
			 n.upper, "judged_seconds", n.judged, "passes_judged", (json_int_t)n.passes,
			 "passes_unjudged", (json_int_t)n.unjudged, "dropped",
			 (json_int_t)v.dropped, "ghost_bytes", (json_int_t)v.params.ghost_bytes,
			 "control", control_json(&v), "switchback", switchback, "ranks", ranks);
}

static json_t *rank_of_report(json_t *ranks, uint32_t number)
{
	json_t *rank;
	size_t i;

	json_array_foreach(ranks, i, rank)
	{
		if (json_integer_value(json_object_get(rank, "rank")) == number)
			return rank;
	}
	rank = json_pack("{s:I}", "rank", (json_int_t)number);
	return json_array_append_new(ranks, rank) < 0 ? NULL : rank; /* the array's */
}

void accounting_add_removed(struct accounting *a, json_t *ranks)
{
	struct accounting_view v;

	accounting_look(a, &v);
	for (uint32_t i = 0; i < v.n_ranks; i++) {
		const struct stall_numbers *r = &v.rank[i];
		json_t *removed;

		if (!r->judged)
			continue;
		removed = json_pack("{s:f, s:f}", "at_least_seconds", seconds(r->lower_ns),
				    "at_most_seconds", seconds(r->upper_ns));
		if (r->judged_replay == r->judged)
			json_object_set_new(removed, "replay_seconds",
					    json_real(seconds(r->estimate_ns)));
		if (r->judged_hook == r->judged)
			json_object_set_new(removed, "hook_seconds",
					    json_real(seconds(r->estimate_hook_ns)));
		json_object_set_new(rank_of_report(ranks, r->rank), "removed", removed);
	}
	free(v.rank);
}
