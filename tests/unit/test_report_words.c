/* SPDX-License-Identifier: Apache-2.0 */
/* GPU wait removed, in words: every case, letter by letter. Who changes a word here changes it in
 * README.md and in the man page of clairfs status, too. */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "clairfs/report.h"

struct word_case {
	struct removed_numbers r;
	const char *words;
};

static const char no_controls[] = "too few control reads so far";
static const char holes[] = "too many reads of the pass were not seen";

static const struct word_case cases[] = {
	/* nothing is known */
	{ { .upper_s = 0,
	    .why = "the order of the job is not known, so nothing was fetched ahead" },
	  "not known: the order of the job is not known, so nothing was fetched ahead" },
	{ { .why = "no pass over the dataset is over yet" },
	  "not known: no pass over the dataset is over yet" },
	{ { .why = "no pass over the dataset is over yet", .open = 1, .reads = 900 },
	  "not known: no pass over the dataset is over yet" },
	{ { .why = no_controls, .open = 1, .reads = 900, .unplaced = 9 },
	  "not known: too few control reads so far" },
	{ { .why = no_controls, .unjudged = 2, .reads = 900 },
	  "not known: too few control reads so far; 2 passes not judged" },
	{ { .why = no_controls, .unjudged = 1, .unjudged_why = holes },
	  "not known: too few control reads so far; 1 pass not judged: too many reads of the pass "
	  "were not seen" },
	{ { .why = "no pass over the dataset is over yet", .reads = 900, .unplaced = 450 },
	  "not known: no pass over the dataset is over yet; 50 % of the reads had no place in the "
	  "order and are not in this" },
	{ { .why = NULL }, "not known: nothing was judged" },
	/* something was removed */
	{ { .passes = 3, .lower_s = 12.39, .upper_s = 20.01, .judged_s = 60, .reads = 100 },
	  "removed at least 12.3 s of GPU wait, at most 20.1 s" },
	{ { .passes = 3,
	    .lower_s = 12.3,
	    .upper_s = 20.1,
	    .estimate_s = 15.96,
	    .source = REMOVED_BY_REPLAY,
	    .judged_s = 60 },
	  "removed at least 12.3 s of GPU wait, at most 20.1 s; about 16.0 s (loader replayed)" },
	{ { .passes = 1,
	    .lower_s = 0.0459,
	    .upper_s = 0.9991,
	    .estimate_s = 0.05,
	    .source = REMOVED_BY_HOOK,
	    .judged_s = 2 },
	  "removed at least 0.045 s of GPU wait, at most 1.000 s; about 0.050 s (by the job's own "
	  "times)" },
	{ { .passes = 1, .lower_s = 5, .upper_s = -1, .judged_s = 20 },
	  "removed at least 5.0 s of GPU wait" },
	/* nothing was, or not much */
	{ { .passes = 1, .lower_s = 0, .upper_s = 0, .judged_s = 60 },
	  "it would not have helped: at most 0 s of GPU wait in 60.0 s" },
	{ { .passes = 1, .lower_s = 0.1, .upper_s = 0.59, .judged_s = 60 },
	  "it would hardly have helped: at least 0.100 s of GPU wait in 60.0 s, at most 0.590 s" },
	{ { .passes = 1, .lower_s = 5, .upper_s = 9.91, .judged_s = 1000 },
	  "it would hardly have helped: at least 5.0 s of GPU wait in 1000.0 s, at most 10.0 s" },
	{ { .passes = 1, .lower_s = 0.0004, .upper_s = 0.59, .judged_s = 60 },
	  "it would not have helped: at most 0.590 s of GPU wait in 60.0 s" },
	{ { .passes = 1,
	    .upper_s = 2.01,
	    .estimate_s = 0.3,
	    .source = REMOVED_BY_REPLAY,
	    .judged_s = 60 },
	  "it would hardly have helped: about 0.300 s of GPU wait in 60.0 s, at most 2.1 s" },
	{ { .passes = 1,
	    .upper_s = 2.01,
	    .estimate_s = 1.3,
	    .source = REMOVED_BY_REPLAY,
	    .judged_s = 60 },
	  "removed about 1.3 s of GPU wait in 60.0 s, not certain (loader replayed); at most 2.1 s" },
	{ { .passes = 1, .upper_s = 2, .judged_s = 60 },
	  "no GPU wait that is certain in 60.0 s; at most 2.0 s" },
	/* bounds that say nothing, and the page cache's share of them */
	{ { .passes = 2,
	    .upper_s = 28.9,
	    .estimate_s = 9.96,
	    .source = REMOVED_BY_REPLAY,
	    .judged_s = 12 },
	  "removed about 10.0 s of GPU wait in 12.0 s, not certain (loader replayed)" },
	{ { .passes = 2, .lower_s = 5, .upper_s = 28.9, .judged_s = 12 },
	  "removed at least 5.0 s of GPU wait" },
	{ { .passes = 2, .lower_s = 14.5, .upper_s = 28.9, .judged_s = 12 },
	  "removed at least 14.5 s of GPU wait, at most 28.9 s" },
	{ { .passes = 2, .lower_s = 14.4, .upper_s = 28.9, .judged_s = 12 },
	  "removed at least 14.4 s of GPU wait" },
	{ { .passes = 2, .upper_s = 28.9, .judged_s = 12 },
	  "no GPU wait that is certain in 12.0 s" },
	{ { .passes = 2,
	    .lower_s = 12.3,
	    .upper_s = 34.61,
	    .page_cache_s = 5.78,
	    .estimate_s = 16,
	    .source = REMOVED_BY_REPLAY,
	    .judged_s = 60 },
	  "removed at least 12.3 s of GPU wait, at most 34.7 s, of which the page cache would have "
	  "saved about 5.8 s; about 16.0 s (loader replayed)" },
	{ { .passes = 2,
	    .upper_s = 10,
	    .page_cache_s = 9.9,
	    .estimate_s = 0.1,
	    .source = REMOVED_BY_REPLAY,
	    .judged_s = 60 },
	  "it would hardly have helped: about 0.100 s of GPU wait in 60.0 s, at most 10.0 s, of "
	  "which the page cache would have saved about 9.9 s" },
	{ { .passes = 2, .lower_s = 12.3, .upper_s = 34.6, .page_cache_s = 0.5, .judged_s = 60 },
	  "removed at least 12.3 s of GPU wait, at most 34.6 s" },
	/* what is left out */
	{ { .passes = 2, .open = 1, .lower_s = 1, .upper_s = 2, .judged_s = 60, .reads = 1000 },
	  "removed at least 1.0 s of GPU wait, at most 2.0 s; 2 of 3 passes judged so far" },
	{ { .passes = 2, .unjudged = 1, .unjudged_why = holes, .upper_s = 2, .judged_s = 60 },
	  "no GPU wait that is certain in 60.0 s; at most 2.0 s; 1 of 3 passes not judged: too "
	  "many reads of the pass were not seen" },
	{ { .passes = 2, .unjudged = 1, .open = 2, .upper_s = 2, .judged_s = 60 },
	  "no GPU wait that is certain in 60.0 s; at most 2.0 s; 2 of 5 passes judged so far; "
	  "1 of 5 passes not judged" },
	{ { .passes = 1, .lower_s = 1, .upper_s = 2, .judged_s = 9, .reads = 1000, .unplaced = 10 },
	  "removed at least 1.0 s of GPU wait, at most 2.0 s" },
	{ { .passes = 1, .lower_s = 1, .upper_s = 2, .judged_s = 9, .reads = 1000, .unplaced = 29 },
	  "removed at least 1.0 s of GPU wait, at most 2.0 s; 2 % of the reads had no place in the "
	  "order and are not in this" },
};

static void every_case_letter_by_letter(void)
{
	char text[512];

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		removed_words(&cases[i].r, text, sizeof(text));
		CHECK_STR(text, cases[i].words);
	}
}

/* Whatever the numbers: what is printed as "at least" is no more, as "at most" no less. */
static void words_never_say_more_than_the_numbers(void)
{
	uint64_t rnd = check_seed();
	char text[512];

	for (int i = 0; i < 20000; i++) {
		double scale = (double)check_rand_below(&rnd, 1000000) / 1e4;
		double lower = (double)check_rand_below(&rnd, 1000000) / 1e6 * scale, low, high;
		double upper = lower + (double)check_rand_below(&rnd, 1000000) / 1e6 * scale;
		struct removed_numbers r = {
			.passes = 1, .lower_s = lower, .upper_s = upper, .judged_s = upper
		};

		removed_words(&r, text, sizeof(text));
		if (sscanf(text, "removed at least %lf s of GPU wait, at most %lf s", &low,
			   &high) != 2)
			continue;
		CHECK(low <= lower + 1e-6 && low > lower - 0.1001);
		CHECK(high >= upper - 1e-6 && high < upper + 0.1001);
	}
}

static void what_does_not_fit_is_cut(void)
{
	for (size_t size = 1; size < 80; size++) {
		char text[80];

		memset(text, 'x', sizeof(text));
		removed_words(&cases[5].r, text, size);
		CHECK_INT((int)strlen(text), (int)MIN(size - 1, strlen(cases[5].words)));
		CHECK(strncmp(text, cases[5].words, strlen(text)) == 0);
		CHECK(size == sizeof(text) || text[size] == 'x');
	}
}

static const struct check_test tests[] = {
	{ "every_case_letter_by_letter", every_case_letter_by_letter },
	{ "words_never_say_more_than_the_numbers", words_never_say_more_than_the_numbers },
	{ "what_does_not_fit_is_cut", what_does_not_fit_is_cut },
};

CHECK_MAIN(tests)
