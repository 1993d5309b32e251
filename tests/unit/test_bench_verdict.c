/* SPDX-License-Identifier: Apache-2.0 */
/* Which epoch of the bench gets which verdict of the mount, whenever it is told and whoever else
 * reads in the mount. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/bench/bench_priv.h"
#include "check.h"
#include "clairfs/base/clock.h"

enum { EPOCHS = 3, RANKS = 2, SIDES_OF = 2, RESULTS = EPOCHS * SIDES_OF };
static const uint32_t ranks[RANKS] = { 4, 7 };

/* Epoch e: the source for ten seconds from 100 * e on, then the mount from 100 * e + 50 on. */
static struct bench_result *results(void)
{
	struct bench_result *r = calloc(RESULTS + 1, sizeof(*r));

	for (uint64_t i = 0; i <= RESULTS; i++) {
		r[i].epoch = i / 2;
		r[i].t_begin = (100 * (i / 2) + 50 * (i % 2) + 1000) * NS_PER_S;
		r[i].counts.is_known = i % 2 == 1 || i == RESULTS;
		r[i].counts.removed_lower = r[i].counts.removed_estimate =
			r[i].counts.removed_upper = NAN;
	}
	return r;
}

static json_t *verdict(json_int_t order, json_int_t pass, double began, double removed)
{
	return json_pack("{s:I, s:I, s:f, s:s, s:f, s:f, s:f, s:n}", "order", order, "pass", pass,
			 "began_seconds", began, "why", "judged", "removed_lower_seconds", removed,
			 "removed_replay_seconds", 2 * removed, "removed_upper_seconds",
			 3 * removed, "removed_hook_seconds");
}

static json_t *unjudged(double began, const char *why)
{
	return json_pack("{s:I, s:I, s:f, s:s, s:n, s:n, s:n, s:n}", "order", (json_int_t)1, "pass",
			 (json_int_t)0, "began_seconds", began, "why", why, "removed_lower_seconds",
			 "removed_replay_seconds", "removed_upper_seconds", "removed_hook_seconds");
}

/* Of two ranks; the lists are taken over. */
static json_t *said(json_t *first, json_t *second)
{
	return json_pack("{s:[{s:i, s:o}, {s:i, s:o}, {s:i, s:[]}]}", "ranks", "rank", ranks[1],
			 "verdicts", second, "rank", ranks[0], "verdicts", first, "rank", 99,
			 "verdicts");
}

static void give(struct bench_result *r, json_t *take_said)
{
	bench_verdicts_give(take_said, r, RESULTS, ranks, RANKS);
	json_decref(take_said);
}

static bool has_none(const struct bench_result *r)
{
	return isnan(r->counts.removed_lower) && isnan(r->counts.removed_estimate) &&
	       isnan(r->counts.removed_upper);
}

static json_t *pass_of_epoch(uint64_t epoch, double removed)
{
	return verdict(1, (json_int_t)epoch, 1000 + 100 * (double)epoch + 51, removed);
}

static void each_epoch_gets_its_own_in_any_order(void)
{
	struct bench_result *r = results();
	struct bench_counts total;

	/* One rank before the other, the second epoch before the first, all again at the end. */
	give(r, said(json_pack("[o]", pass_of_epoch(1, 3)), json_array()));
	CHECK(has_none(&r[3]));
	give(r, said(json_pack("[o]", pass_of_epoch(1, 3)), json_pack("[o]", pass_of_epoch(1, 5))));
	CHECK(r[3].counts.removed_lower == 4 && r[3].counts.removed_estimate == 8);
	CHECK(r[3].counts.removed_upper == 24 && !r[3].why[0]);
	CHECK(has_none(&r[1]) && has_none(&r[5]));
	bench_verdicts_end(NULL, r, RESULTS, &total);
	CHECK(total.is_known && isnan(total.removed_lower));
	CHECK_STR(r[1].why, "it was not yet");
	give(r, said(json_pack("[o, o]", pass_of_epoch(0, 1), pass_of_epoch(2, 7)),
		     json_pack("[o, o]", pass_of_epoch(0, 1), pass_of_epoch(2, 7))));
	CHECK(r[1].counts.removed_lower == 1 && r[5].counts.removed_lower == 7);
	CHECK(r[3].counts.removed_lower == 4); /* kept */
	CHECK(!r[1].why[0] && !r[5].why[0]);
	bench_verdicts_end(NULL, r, RESULTS, &total);
	CHECK(total.is_known && total.removed_lower == 12 && total.removed_upper == 72);
	for (int i = 0; i < RESULTS; i += 2)
		CHECK(isnan(r[i].counts.removed_lower)); /* the source has no verdict */
	CHECK(has_none(&r[RESULTS]));                    /* behind the last one */
	free(r);
}

static void parts_of_a_pass_are_added_up(void)
{
	struct bench_result *r = results();

	give(r, said(json_pack("[o, o]", verdict(1, 0, 1050.5, 1), verdict(1, 0, 1060, 2)),
		     json_pack("[o]", verdict(1, 0, 1050.5, 3))));
	CHECK(r[1].counts.removed_lower == 3 && r[1].counts.removed_upper == 18);
	free(r);
}

static void what_the_job_told_is_better(void)
{
	struct bench_result *r = results();
	json_t *first = pass_of_epoch(0, 1), *second = pass_of_epoch(0, 1);

	json_object_set_new(first, "removed_hook_seconds", json_real(10));
	json_object_set_new(second, "removed_hook_seconds", json_real(20));
	give(r, said(json_pack("[o]", first), json_pack("[o]", second)));
	CHECK(r[1].counts.removed_estimate == 15);
	free(r);
}

static void an_unjudged_pass_says_why(void)
{
	struct bench_result *r = results();

	give(r, said(json_pack("[o]", pass_of_epoch(0, 1)),
		     json_pack("[o]", unjudged(1051, "too few"))));
	CHECK(has_none(&r[1]));
	CHECK_STR(r[1].why, "too few");
	free(r);
}

static void what_may_be_anothers_is_nobodys(void)
{
	static const struct {
		json_int_t order, pass;
		double began;
	} others[] = { { 1, 1, 1052 }, { 2, 0, 1149 }, { 1, 7, 1051 } };

	for (size_t i = 0; i < ARRAY_LEN(others); i++) {
		struct bench_result *r = results();

		give(r,
		     said(json_pack("[o, o]", pass_of_epoch(0, 1),
				    verdict(others[i].order, others[i].pass, others[i].began, 1)),
			  json_pack("[o]", pass_of_epoch(0, 1))));
		CHECK(has_none(&r[1]));
		CHECK_CONTAINS(r[1].why, "others have read");
		free(r);
	}
}

static void what_was_before_is_nobodys(void)
{
	struct bench_result *r = results();

	give(r, said(json_pack("[o, o]", verdict(1, 0, 1049.9, 50), pass_of_epoch(0, 1)),
		     json_pack("[o, o]", verdict(1, 0, 3, 50), pass_of_epoch(0, 1))));
	CHECK(r[1].counts.removed_lower == 1);
	free(r);
}

/* A stats.json of anybody's. */
static void anything_can_be_told(void)
{
	static const char *const odd[] = {
		"{}",
		"{\"ranks\": 7}",
		"{\"ranks\": [1, null, {\"rank\": 4}, {\"rank\": \"x\", \"verdicts\": []}]}",
		"{\"ranks\": [{\"rank\": 4, \"verdicts\": {\"a\": 1}}, {\"rank\": 7, \"verdicts\": [[]]}]}",
		"{\"ranks\": [{\"rank\": 4, \"verdicts\": [{\"began_seconds\": 1051}]},"
		" {\"rank\": 7, \"verdicts\": [{\"began_seconds\": 1051, \"why\": 9}]}]}",
		"{\"ranks\": [{\"rank\": 4, \"verdicts\": [{\"began_seconds\": 1051, \"why\": \"\\u0007"
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}]},"
		" {\"rank\": 7, \"verdicts\": [{\"began_seconds\": 1051}]}]}",
	};

	for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
		struct bench_result *r = results();
		json_t *json = json_loads(odd[i], 0, NULL);

		CHECK(json);
		give(r, json);
		for (int k = 0; k <= RESULTS; k++) {
			CHECK(has_none(&r[k]));
			CHECK(!strchr(r[k].why, 7));
		}
		free(r);
	}
	bench_verdicts_give(NULL, NULL, 0, ranks, RANKS);
}

static const struct check_test tests[] = {
	{ "each_epoch_gets_its_own_in_any_order", each_epoch_gets_its_own_in_any_order },
	{ "parts_of_a_pass_are_added_up", parts_of_a_pass_are_added_up },
	{ "what_the_job_told_is_better", what_the_job_told_is_better },
	{ "an_unjudged_pass_says_why", an_unjudged_pass_says_why },
	{ "what_may_be_anothers_is_nobodys", what_may_be_anothers_is_nobodys },
	{ "what_was_before_is_nobodys", what_was_before_is_nobodys },
	{ "anything_can_be_told", anything_can_be_told },
};
CHECK_MAIN(tests)
