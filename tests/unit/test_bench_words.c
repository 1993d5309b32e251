/* SPDX-License-Identifier: Apache-2.0 */
/* Who won a bench, in one sentence: the epochs that were measured on both sides, the first against
 * the source alone and later ones against the page cache. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/bench/bench_priv.h"
#include "check.h"

static struct bench_result result(enum bench_side side, uint64_t epoch, double seconds)
{
	return (struct bench_result){ .side = side, .epoch = epoch, .seconds = seconds };
}

static void check_words(struct bench_result *results, uint32_t n, const char *want)
{
	struct bench_setup setup = { .epochs = 3, .first_epoch = 5 };
	struct bench_report r = { .setup = &setup, .result = results, .n_results = n };
	char words[BENCH_WINNER];

	bench_winner(&r, words);
	CHECK_STR(words, want);
}

static void who_won_and_by_how_much(void)
{
	struct bench_result r[] = {
		result(SIDE_SOURCE, 5, 30),    result(SIDE_SOURCE, 6, 99),
		result(SIDE_SOURCE, 7, 99),    result(SIDE_PAGECACHE, 5, 99),
		result(SIDE_PAGECACHE, 6, 20), result(SIDE_PAGECACHE, 7, 10),
		result(SIDE_CLAIRFS, 5, 20),   result(SIDE_CLAIRFS, 6, 5),
		result(SIDE_CLAIRFS, 7, 5),
	};

	check_words(r, 9,
		    "clairfs won: 3 epochs took 30.0 s instead of 60.0 s, 2.00 times as fast.");
	r[6].seconds = 65;
	check_words(r, 9,
		    "clairfs lost: 3 epochs took 75.0 s instead of 60.0 s, 1.25 times as long.");
	r[6].seconds = 50.5;
	check_words(r, 9, "Nobody won: 3 epochs took 60.5 s with clairfs and 60.0 s without it.");
	r[4].is_warm = true;
	check_words(r, 9,
		    "Nobody won: 3 epochs took 60.5 s with clairfs and 60.0 s without it, but "
		    "caches could not be dropped.");
}

static void what_was_not_measured_on_both_sides(void)
{
	struct bench_result r[] = { result(SIDE_SOURCE, 5, 30), result(SIDE_CLAIRFS, 5, 10),
				    result(SIDE_CLAIRFS, 6, 10) };

	static const char nothing[] = "Nothing was compared: an epoch with clairfs and one without "
				      "it are needed.";

	check_words(r, 3,
		    "clairfs won: 1 epoch took 10.0 s instead of 30.0 s, 3.00 times as fast.");
	check_words(r, 1, nothing);
	check_words(r + 1, 2, nothing);
}

/* Two epochs, each with 2 s of stall and 12 without clairfs, of which the account knows these. */
static bool account(double lower, double estimate, double upper, const char *want)
{
	struct bench_result results[4];
	struct bench_setup setup = { .epochs = 2, .first_epoch = 5, .ranks = 1 };
	struct bench_report r = { .setup = &setup, .result = results, .n_results = 4 };
	char words[BENCH_ACCOUNT];
	bool agrees;

	for (int i = 0; i < 4; i++) {
		results[i] = result(i % 2 ? SIDE_SOURCE : SIDE_CLAIRFS, 5 + (uint64_t)i / 2, 20);
		results[i].stall_seconds = i % 2 ? 12 : 2;
		results[i].counts.removed_lower = lower;
		results[i].counts.removed_estimate = estimate;
		results[i].counts.removed_upper = upper;
	}
	results[2].counts.removed_lower = NAN; /* the second epoch was not judged */
	agrees = bench_account(&r, words);
	CHECK_STR(words, want);
	return agrees;
}

/* A report that says 1.53 s were removed and that it would not have helped says nothing. */
static void account_that_the_stopwatch_contradicts_is_wrong(void)
{
	CHECK(account(9.5, 9.9, 14,
		      "stall removed in 1 epoch: stopwatch 10.00 s; the mount's account at least "
		      "9.50 s, about 9.90 s, at most 14.00 s"));
	CHECK(account(10.5, NAN, 14, /* walls differ by chance */
		      "stall removed in 1 epoch: stopwatch 10.00 s; the mount's account at least "
		      "10.50 s, at most 14.00 s"));
	CHECK(!account(10.7, 11, 14,
		       "stall removed in 1 epoch: stopwatch 10.00 s; the mount's account at least "
		       "10.70 s, about 11.00 s, at most 14.00 s, which is wrong here: the stopwatch "
		       "counts"));
	CHECK(!account(0, 0, 0.1,
		       "stall removed in 1 epoch: stopwatch 10.00 s; the mount's account at least "
		       "0.00 s, about 0.00 s, at most 0.10 s, which is wrong here: the stopwatch "
		       "counts"));
	CHECK(account(NAN, NAN, NAN, ""));
}

static void small_datasets_have_control_reads_as_well(void)
{
	CHECK_U64(bench_control_reads(20, 1), 8);
	CHECK_U64(bench_control_reads(200, 3), 18);
	CHECK_U64(bench_control_reads(8121, 3), 761);
	CHECK_U64(bench_control_reads(32768, 1), 0);
	CHECK_U64(bench_control_reads(1000000000, 1000), 0);
}

static const struct check_test tests[] = {
	{ "account_that_the_stopwatch_contradicts_is_wrong",
	  account_that_the_stopwatch_contradicts_is_wrong },
	{ "small_datasets_have_control_reads_as_well", small_datasets_have_control_reads_as_well },
	{ "who_won_and_by_how_much", who_won_and_by_how_much },
	{ "what_was_not_measured_on_both_sides", what_was_not_measured_on_both_sides },
};
CHECK_MAIN(tests)
