/* SPDX-License-Identifier: Apache-2.0 */
/* Who won a bench, in one sentence: the epochs that were measured on both sides, the first against
 * the source alone and later ones against the page cache. */
#include <stdlib.h>
#include <string.h>

#include "../../src/cli/bench.h"
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

static const struct check_test tests[] = {
	{ "who_won_and_by_how_much", who_won_and_by_how_much },
	{ "what_was_not_measured_on_both_sides", what_was_not_measured_on_both_sides },
};
CHECK_MAIN(tests)
