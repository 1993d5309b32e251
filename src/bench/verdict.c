/* SPDX-License-Identifier: Apache-2.0 */
/* What the mount's own accounting says of each epoch of the bench. The mount judges a pass of a
 * rank when all of it was told, mostly a second or two after it, while the bench is at another side
 * already and the mount is stopped; one that lacks a few reads only when it is unmounted. So
 * verdicts are taken whenever there are some, the last ones from the report that the mount leaves,
 * and belong to the epoch in which their pass began: both sides have the same clock.
 *
 * The mount may be somebody else's, too: a pass more in the time of an epoch, of whichever order,
 * and nobody knows whose was whose. Then the epoch has no numbers, and says why. What is in the
 * JSON may be anything; nothing of it leads out of the results. Main process; no I/O. */
#include <math.h>
#include <string.h>

#include "bench_priv.h"
#include "clairfs/base/cleanup.h"
#include "clairfs/base/text.h"
#include "clairfs/wait/stall.h"

/* Of one rank in one epoch: its pass, whose parts are added up. */
struct pass {
	bool is_there, is_mixed;
	json_int_t order, pass;
	double lower, estimate, upper; /* NAN: not known */
	const char *why;               /* NULL: all of it was judged */
};

static const json_t *verdicts_of(const json_t *gpu_wait, uint32_t rank)
{
	const json_t *ranks = json_object_get(gpu_wait, "ranks"), *one;
	size_t i;

	json_array_foreach(ranks, i, one)
	{
		if (json_integer_value(json_object_get(one, "rank")) == (json_int_t)rank)
			return json_object_get(one, "verdicts");
	}
	return NULL;
}

static void add_part(struct pass *p, const json_t *verdict)
{
	json_int_t order = json_integer_value(json_object_get(verdict, "order"));
	json_int_t pass = json_integer_value(json_object_get(verdict, "pass"));
	const char *why = json_string_value(json_object_get(verdict, "why"));
	double hook = bench_number(verdict, "removed_hook_seconds");

	p->is_mixed = p->is_mixed || (p->is_there && (p->order != order || p->pass != pass));
	p->is_there = true;
	p->order = order;
	p->pass = pass;
	if (!isfinite(bench_number(verdict, "removed_lower_seconds")))
		p->why = why ? why : "the mount does not say";
	p->lower += bench_number(verdict, "removed_lower_seconds");
	p->estimate += isfinite(hook) ? hook : bench_number(verdict, "removed_replay_seconds");
	p->upper += bench_number(verdict, "removed_upper_seconds");
}

/* What began in [from, to). */
static struct pass pass_of(const json_t *verdicts, double from, double to)
{
	struct pass p = { 0 };
	const json_t *one;
	size_t i;

	json_array_foreach(verdicts, i, one)
	{
		double began = bench_number(one, "began_seconds");

		if (began >= from && began < to)
			add_part(&p, one);
	}
	return p;
}

/* Ranks that wait for each other all gain what one gains, at most all of it together. */
static void give(const struct pass *pass, uint32_t n_ranks, struct bench_result *ret)
{
	struct bench_counts *c = &ret->counts;
	const char *why = NULL;

	for (uint32_t i = 0; i < n_ranks; i++) {
		if (!pass[i].is_there)
			return; /* what is there already stays, else there is nothing yet */
		if (pass[i].is_mixed)
			why = "others have read in the mount at the same time";
		else if (pass[i].why)
			why = pass[i].why;
	}
	c->removed_lower = c->removed_estimate = c->removed_upper = why ? NAN : 0;
	for (uint32_t i = 0; i < n_ranks; i++) {
		c->removed_lower += pass[i].lower / n_ranks;
		c->removed_estimate += pass[i].estimate / n_ranks;
		c->removed_upper += pass[i].upper;
	}
	ret->why[0] = '\0';
	if (why)
		text_escape(why, strlen(why), ret->why, sizeof(ret->why));
}

static bool is_on_mount(const struct bench_result *r)
{
	return r->counts.is_known && r->t_begin;
}

void bench_verdicts_give(const json_t *gpu_wait, struct bench_result *result, size_t n_results,
			 const uint32_t *ranks, uint32_t n_ranks)
{
	for (size_t i = 0; i < n_results; i++) {
		struct pass pass[BENCH_RANKS_MAX];
		double to = INFINITY;

		if (!is_on_mount(&result[i]))
			continue;
		for (size_t k = i + 1; k < n_results && isinf(to); k++)
			if (is_on_mount(&result[k]))
				to = (double)result[k].t_begin / 1e9;
		for (uint32_t r = 0; r < n_ranks; r++)
			pass[r] = pass_of(verdicts_of(gpu_wait, ranks[r]),
					  (double)result[i].t_begin / 1e9, to);
		give(pass, n_ranks, &result[i]);
	}
}

/* Of a mount that goes on; ours has told of all its passes when it is gone. */
static void say_open(const json_t *gpu_wait, struct bench_result *ret)
{
	const char *why = json_string_value(json_object_get(gpu_wait, "why"));
	bool has_reason = why && strcmp(why, stall_why_words[STALL_JUDGED]) != 0;
	int n = snprintf(ret->why, sizeof(ret->why), "it was not yet%s", has_reason ? ": " : "");

	if (has_reason)
		text_escape(why, strlen(why), ret->why + n, sizeof(ret->why) - (size_t)n);
}

void bench_verdicts_end(const json_t *gpu_wait, struct bench_result *result, size_t n_results,
			struct bench_counts *ret)
{
	*ret = (struct bench_counts){ .is_known = false };
	for (size_t i = 0; i < n_results; i++) {
		if (!is_on_mount(&result[i]))
			continue;
		if (isnan(result[i].counts.removed_lower) && !result[i].why[0])
			say_open(gpu_wait, &result[i]);
		ret->is_known = true;
		ret->removed_lower += result[i].counts.removed_lower;
		ret->removed_estimate += result[i].counts.removed_estimate;
		ret->removed_upper += result[i].counts.removed_upper;
	}
}
