/* SPDX-License-Identifier: Apache-2.0 */
/* What switchback has measured, for people, for stats.json and for metrics.
 *
 * Of a node with several ranks it is the rank that gained most, as with the other numbers: never a
 * sum. A mean is never said without its interval, and where it is not known that is said, with what
 * is lacking. What it has cost is said as well: it was taken from the job for the sake of the
 * number. Any thread. */
#include <stdio.h>
#include <string.h>

#include "wait_priv.h"

static const struct stall_switchback *of_node(const struct wait_view *v)
{
	const struct stall_switchback *best = NULL;

	for (uint32_t i = 0; i < v->n_ranks; i++) {
		const struct stall_switchback *s = &v->rank[i].switchback;

		if (!best || s->is_known > best->is_known ||
		    (s->is_known == best->is_known &&
		     (s->is_known ? s->removed_ns > best->removed_ns : s->blocks > best->blocks)))
			best = s;
	}
	return best;
}

static void say_switchback(const struct wait_view *v, const struct stall_switchback *s, char *out,
			   size_t size)
{
	if (!v->node.has_switchback)
		snprintf(out, size, "not known: the order does not say batch= and workers=");
	else if (!s || !s->is_known)
		snprintf(out, size,
			 "not known yet: %llu of %u blocks without the cache were measured",
			 (unsigned long long)(s ? s->blocks : 0), SWITCHBACK_BLOCKS_MIN);
	else
		snprintf(out, size,
			 "%.1f s +- %.1f s in %llu steps, from %llu blocks without the cache",
			 in_seconds(s->removed_ns), in_seconds(s->margin_ns),
			 (unsigned long long)s->steps, (unsigned long long)s->blocks);
}

void wait_switch_words(const struct wait_view *v, char *text, size_t size)
{
	size_t len = strlen(text);
	char words[160];

	/* Without an order that is what is said already. */
	if (!(v->params.switchback_share > 0) || v->node.why == STALL_NO_ORDER)
		return;
	say_switchback(v, of_node(v), words, sizeof(words));
	snprintf(text + len, size - len, "; by switchback %s", words);
}

static json_t *known_json(const struct stall_switchback *s, double ns)
{
	return s->is_known ? json_real(in_seconds(ns)) : json_null();
}

json_t *wait_switch_of_rank(const struct stall_switchback *s)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "blocks",
			 (json_int_t)s->blocks, "blocks_spoiled", (json_int_t)s->spoiled, "steps",
			 (json_int_t)s->steps, "steps_through", (json_int_t)s->steps_through,
			 "steps_of_page_cache", (json_int_t)s->steps_ghost, "removed_seconds",
			 known_json(s, s->removed_ns), "low_seconds",
			 known_json(s, s->removed_ns - s->margin_ns), "high_seconds",
			 known_json(s, s->removed_ns + s->margin_ns), "cost_seconds",
			 known_json(s, s->cost_ns));
}

json_t *wait_switch_json(const struct wait_view *v)
{
	static const struct stall_switchback none = { 0 };
	const struct stall_switchback *s = of_node(v);
	json_t *json = wait_switch_of_rank(s ? s : &none), *more;

	more = json_pack("{s:f, s:b, s:I, s:I, s:I, s:f}", "share", v->params.switchback_share,
			 "is_possible", (int)v->node.has_switchback, "blocks_needed",
			 (json_int_t)SWITCHBACK_BLOCKS_MIN, "reads",
			 (json_int_t)v->node.switchback_reads, "read_bytes",
			 (json_int_t)v->node.switchback_bytes, "read_seconds",
			 in_seconds((double)v->node.switchback_wait_ns));
	if (json && more)
		json_object_update(json, more);
	json_decref(more);
	return json;
}

void wait_switch_publish(struct metrics *m, const struct stall_node *node)
{
	metrics_total_set(m, METRIC_SWITCHBACK_READS, node->switchback_reads);
	metrics_total_set(m, METRIC_SWITCHBACK_BYTES, node->switchback_bytes);
}

void wait_switch_publish_rank(struct metrics *m, const struct stall_numbers *n)
{
	metrics_rank_set(m, METRIC_RANK_GPU_WAIT_SWITCHBACK, n->rank, n->estimate_switchback_ns);
	metrics_rank_set(m, METRIC_RANK_SWITCHBACK_COST, n->rank, n->switchback_cost_ns);
}
