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

static void each_epoch_gets_its_own(void)
{
	struct bench_verdict v = { .judged = counts(10, 10, 100) };
	struct bench_result *r = results(EPOCHS);
	struct bench_counts now;

	for (uint32_t i = 0; i < EPOCHS; i++) {
		now = counts(10 + RANKS * i + 1, 10 + i, 100 + i); /* of one rank only: not yet */
		bench_verdict_take(&v, r, EPOCHS, RANKS, &now);
		CHECK(isnan(r[i].counts.removed_lower));
		now = counts(10 + RANKS * (i + 1), 11 + i, 100 + (i + 1) * (i + 2) / 2.0);
		bench_verdict_take(&v, r, EPOCHS, RANKS, &now);
		CHECK(r[i].counts.removed_lower == i + 1);
		CHECK(r[i].counts.removed_estimate == 2 * (i + 1));
		CHECK(r[i].counts.removed_upper == 3 * (i + 1));
	}
	CHECK_INT((int)v.n, EPOCHS);
	free(r);
}

static void two_at_once_and_unjudged_ones_are_nobodys(void)
{
	struct bench_verdict v = { .judged = counts(0, 0, 0) };
	struct bench_result *r = results(EPOCHS);
	struct bench_counts now = counts(2 * RANKS, 4, 9);

	bench_verdict_take(&v, r, EPOCHS, RANKS, &now);
	CHECK(isnan(r[0].counts.removed_lower) && isnan(r[1].counts.removed_lower));
	now = counts(3 * RANKS, 4, 9);
	bench_verdict_take(&v, r, EPOCHS, RANKS, &now);
	CHECK(isnan(r[2].counts.removed_lower));
	CHECK_INT((int)v.n, EPOCHS);
	free(r);
}

static void more_than_epochs_touch_nothing(void)
{
	for (uint32_t n_known = 0; n_known <= EPOCHS; n_known++) {
		struct bench_verdict v = { .judged = counts(0, 0, 0) };
		struct bench_result *r = results(n_known);

		for (uint32_t i = 1; i <= EPOCHS + 3; i++) {
			struct bench_counts now = counts(RANKS * i, i, i);

			bench_verdict_take(&v, r, EPOCHS, RANKS, &now);
		}
		for (uint32_t i = 0; i <= EPOCHS; i++)
			CHECK(isnan(r[i].counts.removed_lower) == (i >= n_known));
		free(r);
	}
}

static void any_number_can_be_told(void)
{
	const double odd[] = { NAN, -1, -INFINITY, INFINITY, 1e300, 0 };
	struct bench_verdict v = { .judged = counts(0, 0, 0) };
	struct bench_result *r = results(EPOCHS);

	for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
		struct bench_counts now = counts(odd[i], odd[i], odd[i]);

		bench_verdict_take(&v, r, EPOCHS, RANKS, &now);
	}
	CHECK(isnan(r[EPOCHS].counts.removed_lower));
	free(r);
}

static const struct check_test tests[] = {
	{ "each_epoch_gets_its_own", each_epoch_gets_its_own },
	{ "two_at_once_and_unjudged_ones_are_nobodys", two_at_once_and_unjudged_ones_are_nobodys },
	{ "more_than_epochs_touch_nothing", more_than_epochs_touch_nothing },
	{ "any_number_can_be_told", any_number_can_be_told },
};
CHECK_MAIN(tests)
