/* SPDX-License-Identifier: Apache-2.0 */
/* Which epoch of the bench gets a verdict of the mount, however many there are: a mount that others
 * use, too, judges more than the bench's epochs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/cli/bench.h"
#include "check.h"

enum { EPOCHS = 3, RANKS = 2 };

static struct bench_counts counts(double passes, double judged, double removed)
{
	return (struct bench_counts){ .is_known = true,
				      .passes = passes,
				      .passes_judged = judged,
				      .removed_lower = removed,
				      .removed_estimate = 2 * removed,
				      .removed_upper = 3 * removed };
}

/* As many as there are, and one behind that is not the bench's. */
static struct bench_result *results(uint32_t n_known)
{
	struct bench_result *r = calloc(EPOCHS + 1, sizeof(*r));

	for (uint32_t i = 0; r && i <= EPOCHS; i++) {
		r[i].counts.is_known = i < n_known || i == EPOCHS;
		r[i].counts.removed_lower = r[i].counts.removed_estimate =
			r[i].counts.removed_upper = NAN;
	}
	return r;
}

static bool has_none(const struct bench_result *r)
{
	return isnan(r->counts.removed_lower) && isnan(r->counts.removed_estimate) &&
	       isnan(r->counts.removed_upper);
}

static void take(struct bench_verdict *v, struct bench_result *r, struct bench_counts now)
{
	bench_verdict_take(v, r, EPOCHS, RANKS, &now);
}

static void each_epoch_gets_its_own(void)
{
	struct bench_verdict v = { .judged = counts(10, 10, 100) };
	struct bench_result *r = results(0);
	double total = 100;

	for (uint32_t i = 0; i < EPOCHS; i++) {
		r[i].counts.is_known = true;
		take(&v, r, counts(11 + RANKS * i, 11 + RANKS * i, total + 0.5)); /* one rank */
		CHECK(has_none(&r[i]));
		total += i + 1;
		take(&v, r, counts(10 + RANKS * (i + 1), 10 + RANKS * (i + 1), total));
		CHECK(r[i].counts.removed_lower == (i + 1) / 2.0); /* mean of ranks */
		CHECK(r[i].counts.removed_estimate == i + 1);
		CHECK(r[i].counts.removed_upper == 3 * (i + 1)); /* sum */
	}
	CHECK_INT((int)v.passes, EPOCHS * RANKS);
	free(r);
}

static void what_may_be_anothers_is_nobodys(void)
{
	/* passes after each look while two epochs are due; the last one has caught up */
	static const double ways[][4] = {
		{ 4, 4, 4, 4 }, { 2, 4, 4, 4 }, { 1, 2, 3, 4 }, { 3, 3, 4, 4 }
	};

	for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
		struct bench_verdict v = { .judged = counts(0, 0, 0) };
		struct bench_result *r = results(2);

		for (int i = 0; i < 4; i++)
			take(&v, r, counts(ways[w][i], ways[w][i], ways[w][i]));
		CHECK(has_none(&r[0]) && has_none(&r[1]));
		CHECK(!v.is_mixed);
		r[2].counts.is_known = true;
		take(&v, r, counts(6, 6, 10));
		CHECK(r[2].counts.removed_lower == 3);
		free(r);
	}
}

static void an_unjudged_pass_leaves_no_zero(void)
{
	for (int judged = 0; judged <= RANKS; judged++) {
		struct bench_verdict v = { .judged = counts(0, 0, 0) };
		struct bench_result *r = results(1);

		take(&v, r, counts(RANKS, judged, 7));
		CHECK(has_none(&r[0]) == (judged < RANKS));
		free(r);
	}
}

/* The row behind the last one looks like an epoch and must stay as it is. */
static void others_passes_touch_nothing(void)
{
	for (uint32_t n_known = 0; n_known <= EPOCHS; n_known++) {
		struct bench_verdict v = { .judged = counts(0, 0, 0) };
		struct bench_result *r = results(n_known);

		for (uint32_t i = 1; i <= EPOCHS + 3; i++)
			take(&v, r, counts(RANKS * i, RANKS * i, i));
		for (uint32_t i = n_known; i <= EPOCHS; i++)
			CHECK(has_none(&r[i]));
		CHECK_INT((int)v.passes, (int)n_known * RANKS);
		free(r);
	}
}

static void a_total_is_of_all_passes_or_none(void)
{
	struct bench_counts from = counts(10, 8, 100), ret;

	for (int more = -1; more <= 1; more++)
		for (int unjudged = 0; unjudged <= 1; unjudged++) {
			int n = EPOCHS * RANKS + more;
			struct bench_counts to = counts(10 + n, 8 + n - unjudged, 112);

			bench_verdict_total(&from, &to, EPOCHS * RANKS, RANKS, &ret);
			CHECK(ret.is_known);
			CHECK(isnan(ret.removed_lower) == (more || unjudged));
			CHECK(isnan(ret.removed_upper) == (more || unjudged));
		}
	from = counts(0, 0, 0);
	bench_verdict_total(&from,
			    &(struct bench_counts){ .passes = 4,
						    .passes_judged = 4,
						    .removed_lower = 6,
						    .removed_estimate = 8,
						    .removed_upper = 10 },
			    4, 2, &ret);
	CHECK(!ret.is_known && ret.removed_lower == 3 && ret.removed_estimate == 4);
	CHECK(ret.removed_upper == 10);
	bench_verdict_total(&from, &(struct bench_counts){ .passes = NAN, .passes_judged = NAN }, 4,
			    2, &ret);
	CHECK(isnan(ret.removed_lower));
}

static void any_number_can_be_told(void)
{
	static const double odd[] = { NAN, -1, -INFINITY, INFINITY, 1e300, 0 };

	for (size_t first = 0; first < ARRAY_LEN(odd); first++) {
		struct bench_verdict v = { .judged = counts(0, 0, 0) };
		struct bench_result *r = results(EPOCHS);

		for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
			double n = odd[(first + i) % ARRAY_LEN(odd)];

			take(&v, r, counts(n, n, n));
			CHECK(v.passes <= EPOCHS * RANKS);
		}
		CHECK(has_none(&r[EPOCHS]));
		free(r);
	}
}

static const struct check_test tests[] = {
	{ "each_epoch_gets_its_own", each_epoch_gets_its_own },
	{ "what_may_be_anothers_is_nobodys", what_may_be_anothers_is_nobodys },
	{ "an_unjudged_pass_leaves_no_zero", an_unjudged_pass_leaves_no_zero },
	{ "others_passes_touch_nothing", others_passes_touch_nothing },
	{ "a_total_is_of_all_passes_or_none", a_total_is_of_all_passes_or_none },
	{ "any_number_can_be_told", any_number_can_be_told },
};
CHECK_MAIN(tests)
