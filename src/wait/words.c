/* SPDX-License-Identifier: Apache-2.0 */
/* What stall accounting has found, for people and for stats.json.
 *
 * Of a node with several ranks: a job is as fast as its slowest rank, so the node's lower bound and
 * estimate are those of the rank with most, and never a sum. At most removed is the sum, because
 * the slowest rank may be another one at each step. The words are those of a report. Any thread. */
#include <stdio.h>
#include <string.h>

#include "wait_priv.h"
#include "clairfs/report.h"

struct node_numbers {
	double lower, replay, hook, upper, page_cache, judged, wait, compute;
	uint64_t passes, unjudged, with_replay, with_hook, steps;
};

static void node_add(struct node_numbers *n, const struct stall_numbers *r)
{
	n->lower = MAX(n->lower, in_seconds(r->lower_ns));
	n->replay = MAX(n->replay, in_seconds(r->estimate_ns));
	n->hook = MAX(n->hook, in_seconds(r->estimate_hook_ns));
	n->upper += in_seconds(r->upper_ns);
	n->page_cache += in_seconds(r->page_cache_ns);
	n->judged = MAX(n->judged, in_seconds(r->judged_ns));
	n->wait = MAX(n->wait, in_seconds(r->gpu_wait_ns));
	n->compute = MAX(n->compute, in_seconds(r->compute_ns));
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

static double estimate_of(const struct node_numbers *n)
{
	return strcmp(estimate_source(n), "hook") == 0 ? n->hook : n->replay;
}

static const char *source_words(const struct node_numbers *n)
{
	const char *source = estimate_source(n);

	if (strcmp(source, "none") == 0)
		return NULL;
	return strcmp(source, "hook") == 0 ? REMOVED_BY_HOOK : REMOVED_BY_REPLAY;
}

static void wait_words(const struct wait_view *v, const struct node_numbers *n, char *out,
		       size_t size)
{
	bool has_none = v->node.why == STALL_NO_CONTROLS && !(v->params.control_share > 0);
	struct removed_numbers r = {
		.lower_s = n->lower,
		.upper_s = n->upper,
		.page_cache_s = n->page_cache,
		.estimate_s = estimate_of(n),
		.source = source_words(n),
		.judged_s = n->judged,
		.passes = n->passes,
		.unjudged = n->unjudged,
		.open = v->node.open,
		.why = has_none ? "there are no control reads (control_reads=off)"
				: stall_why_words[v->node.why],
		.reads = v->node.reads,
		.unplaced = v->node.unplaced_reads,
	};

	if (n->unjudged && (n->passes || v->node.unjudged_why != v->node.why))
		r.unjudged_why = stall_why_words[v->node.unjudged_why];
	removed_words(&r, out, size);
	wait_switch_words(v, out, size);
}

static json_t *wait_rank_json(struct verdicts *verdicts, const struct stall_numbers *r)
{
	double au = stall_au_percent(r);
	json_t *json = json_pack(
		"{s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I}", "rank",
		(json_int_t)r->rank, "removed_lower_seconds", in_seconds(r->lower_ns),
		"removed_replay_seconds", in_seconds(r->estimate_ns), "removed_hook_seconds",
		in_seconds(r->estimate_hook_ns), "removed_upper_seconds", in_seconds(r->upper_ns),
		"read_latency_saved_seconds", in_seconds(r->latency_saved_ns), "prep_wait_seconds",
		in_seconds(r->prep_wait_ns), "judged_seconds", in_seconds(r->judged_ns), "passes_judged",
		(json_int_t)r->judged, "passes_unjudged", (json_int_t)r->unjudged, "reads",
		(json_int_t)r->reads, "ghost_reads", (json_int_t)r->ghost_reads);
	json_t *job =
		json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:o}", "workers", (json_int_t)r->workers,
			  "prefetch", (json_int_t)r->prefetch, "batch", (json_int_t)r->batch,
			  "steps", (json_int_t)r->steps, "gpu_wait_seconds",
			  in_seconds(r->gpu_wait_ns), "compute_seconds", in_seconds(r->compute_ns),
			  "au_percent", au < 0 ? json_null() : json_real(au));

	if (json && job)
		json_object_update(json, job);
	json_object_set_new(json, "page_cache_seconds", json_real(in_seconds(r->page_cache_ns)));
	json_object_set_new(json, "switchback", wait_switch_of_rank(&r->switchback));
	json_object_set_new(json, "verdicts", verdicts_json(verdicts, r->rank));
	json_decref(job);
	return json;
}

static json_t *control_json(const struct wait_view *v)
{
	return json_pack("{s:f, s:I, s:I, s:f, s:I, s:I, s:I}", "share", v->params.control_share,
			 "reads", (json_int_t)v->node.control_reads, "bytes",
			 (json_int_t)v->node.control_bytes, "cost_seconds",
			 in_seconds(v->node.control_cost_ns), "used",
			 (json_int_t)v->node.controls_used, "needed",
			 (json_int_t)v->node.controls_needed, "unplaced_reads",
			 (json_int_t)v->node.unplaced_reads);
}

/* What is known of the page cache that the job would have had. */
static json_t *page_cache_json(const struct wait_view *v, const struct node_numbers *n)
{
	static const char *const keeps[] = { [STALL_PAGES_UNKNOWN] = "unknown",
					     [STALL_PAGES_KEPT] = "yes",
					     [STALL_PAGES_NOT_KEPT] = "no" };

	return json_pack("{s:I, s:s, s:o, s:f}", "ghost_bytes", (json_int_t)v->params.ghost_bytes,
			 "source_keeps_pages", keeps[v->pages.pages], "warm_percent",
			 v->pages.warm_share < 0 ? json_null()
						 : json_real(100 * v->pages.warm_share),
			 "saved_seconds", n->page_cache);
}

json_t *wait_json(struct wait *a)
{
	struct wait_view v;
	struct node_numbers n = { 0 };
	json_t *ranks = json_array(), *switchback;
	char text[512];

	wait_look(a, &v);
	for (uint32_t i = 0; i < v.n_ranks; i++) {
		node_add(&n, &v.rank[i]);
		json_array_append_new(ranks, wait_rank_json(wait_verdicts(a), &v.rank[i]));
	}
	wait_words(&v, &n, text, sizeof(text));
	switchback = wait_switch_json(&v);
	free(v.rank);
	return json_pack(
		"{s:s, s:s, s:o, s:f, s:f, s:s, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, "
		"s:o}",
		"words", text, "why", stall_why_words[v.node.why], "unjudged_why",
		n.unjudged ? json_string(stall_why_words[v.node.unjudged_why]) : json_null(),
		"removed_lower_seconds", n.lower, "removed_estimate_seconds", estimate_of(&n),
		"removed_estimate_source", estimate_source(&n), "removed_upper_seconds", n.upper,
		"judged_seconds", n.judged, "passes_judged", (json_int_t)n.passes,
		"passes_unjudged", (json_int_t)n.unjudged, "passes_open", (json_int_t)v.node.open,
		"reads", (json_int_t)v.node.reads, "dropped", (json_int_t)v.dropped, "ghost_bytes",
		(json_int_t)v.params.ghost_bytes, "control", control_json(&v), "switchback",
		switchback, "ranks", ranks, "page_cache", page_cache_json(&v, &n));
}
