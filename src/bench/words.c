/* SPDX-License-Identifier: Apache-2.0 */
/* The result of a bench in one sentence, for whoever reads no further: who won, by how much. With
 * and without clairfs the same epochs are compared, and as bench_removed does: the first one with
 * the source alone, later ones with the page cache that the epoch before has left, where that was
 * measured. A difference below two in a hundred is none.
 *
 * And whether the mount's own account agrees with the stopwatch. Where it does not the stopwatch is
 * right, at least of this run, and the report must not say two things at once. Pure. */
#include <inttypes.h>
#include <math.h>

#include "bench_priv.h"

#define SAME 1.02
enum { CONTROLS_WANTED = 32, CONTROLS_DEFAULT = 1024, CONTROLS_MOST = 8 };

struct sums {
	double with, without;
	uint32_t epochs;
	bool is_warm;
};

static struct sums sums_of(const struct bench_report *r)
{
	struct sums s = { .with = 0 };

	for (uint64_t e = 0; e < r->setup->epochs; e++) {
		uint64_t epoch = r->setup->first_epoch + e;
		const struct bench_result *with = bench_find(r, SIDE_CLAIRFS, epoch);
		const struct bench_result *cold = bench_find(r, SIDE_SOURCE, epoch);
		const struct bench_result *kept = bench_find(r, SIDE_PAGECACHE, epoch);
		const struct bench_result *without = cold && (e == 0 || !kept) ? cold : kept;

		if (!with || !without)
			continue;
		s.with += with->seconds;
		s.without += without->seconds;
		s.epochs++;
		s.is_warm = s.is_warm || with->is_warm || without->is_warm;
	}
	return s;
}

void bench_winner(const struct bench_report *r, char out[BENCH_WINNER])
{
	struct sums s = sums_of(r);
	const char *epochs = s.epochs == 1 ? "epoch" : "epochs";
	int n;

	if (s.epochs == 0) {
		snprintf(out, BENCH_WINNER,
			 "Nothing was compared: an epoch with clairfs and one without it are "
			 "needed.");
		return;
	}
	if (s.without >= s.with * SAME)
		n = snprintf(out, BENCH_WINNER,
			     "clairfs won: %" PRIu32 " %s took %.1f s instead of %.1f s, "
			     "%.2f times as fast",
			     s.epochs, epochs, s.with, s.without, s.without / s.with);
	else if (s.with >= s.without * SAME)
		n = snprintf(out, BENCH_WINNER,
			     "clairfs lost: %" PRIu32 " %s took %.1f s instead of %.1f s, "
			     "%.2f times as long",
			     s.epochs, epochs, s.with, s.without, s.with / s.without);
	else
		n = snprintf(out, BENCH_WINNER,
			     "Nobody won: %" PRIu32 " %s took %.1f s with clairfs and %.1f s "
			     "without it",
			     s.epochs, epochs, s.with, s.without);
	snprintf(out + n, BENCH_WINNER - (size_t)n, "%s.",
		 s.is_warm ? ", but caches could not be dropped" : "");
}

/* --- the mount's account --- */

struct account {
	double measured, lower, estimate, upper, slack;
	uint32_t epochs;
};

static struct account account_of(const struct bench_report *r)
{
	struct account a = { .measured = 0 };

	for (uint64_t e = 0; e < r->setup->epochs; e++) {
		uint64_t epoch = r->setup->first_epoch + e;
		const struct bench_result *with = bench_find(r, SIDE_CLAIRFS, epoch);
		double measured = bench_removed(r, epoch);

		if (!with || !isfinite(measured) || !isfinite(with->counts.removed_lower) ||
		    !isfinite(with->counts.removed_upper))
			continue;
		a.measured += measured;
		a.lower += with->counts.removed_lower;
		a.estimate += with->counts.removed_estimate;
		a.upper += with->counts.removed_upper;
		a.slack += (SAME - 1) * (with->seconds + fmax(measured, 0));
		a.epochs++;
	}
	return a;
}

bool bench_account(const struct bench_report *r, char out[BENCH_ACCOUNT])
{
	struct account a = account_of(r);
	bool agrees = a.lower <= a.measured + a.slack && a.upper >= a.measured - a.slack;
	char about[64] = "";

	out[0] = '\0';
	if (a.epochs == 0)
		return true;
	if (isfinite(a.estimate))
		snprintf(about, sizeof(about), "about %.2f s, ", a.estimate);
	snprintf(out, BENCH_ACCOUNT,
		 "stall removed in %" PRIu32 " epoch%s: stopwatch %.2f s; the mount's account at "
		 "least %.2f s, %sat most %.2f s%s",
		 a.epochs, a.epochs == 1 ? "" : "s", a.measured, a.lower, about, a.upper,
		 agrees ? "" : ", which is wrong here: the stopwatch counts");
	return agrees;
}

uint64_t bench_control_reads(uint64_t samples, uint64_t epochs)
{
	uint64_t one_of = samples * epochs / CONTROLS_WANTED;

	return one_of >= CONTROLS_DEFAULT ? 0 : MAX(one_of, CONTROLS_MOST);
}
