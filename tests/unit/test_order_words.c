/* SPDX-License-Identifier: Apache-2.0 */
/* The words that generators give, from any one on; and the words of a spec that others ask for. */
#include <errno.h>
#include <string.h>

#include "check.h"
#include "clairfs/order.h"

static void words_from(uint32_t seed, bool is_python, uint64_t first, uint32_t *out, size_t n)
{
	struct order_words *words;

	CHECK_INT(order_words_new(seed, is_python, first, &words), 0);
	order_words_take(words, out, n);
	order_words_free(words);
}

/* numpy.random.RandomState(seed).randint(0, 2**32, dtype="u8"), and torch's generator alike. */
static void the_first_words_of_a_seed(void)
{
	static const struct {
		uint32_t seed, word[4];
	} known[] = {
		{ 42, { 1608637542, 3421126067, 4083286876, 787846414 } },
		{ 0, { 2357136044, 2546248239, 3071714933, 3626093760 } },
		{ UINT32_MAX, { 419326371, 479346978, 3918654476, 2416749639 } },
	};
	uint32_t got[4];

	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		words_from(known[i].seed, false, 0, got, 4);
		CHECK_BYTES(got, known[i].word, sizeof(got));
	}
}

/* random.seed(seed); random.getrandbits(32) */
static void the_first_words_of_a_seed_of_python(void)
{
	static const struct {
		uint32_t seed, word[4];
	} known[] = {
		{ 42, { 2746317213, 478163327, 107420369, 3184935163 } },
		{ 0, { 3626764237, 1654615998, 3255389356, 3823568514 } },
		{ UINT32_MAX, { 2728839433, 2661025012, 872737089, 924893097 } },
	};
	uint32_t got[4];

	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		words_from(known[i].seed, true, 0, got, 4);
		CHECK_BYTES(got, known[i].word, sizeof(got));
	}
}

/* Over the end of a state of 624 words, the first time and the second. */
static void words_beyond_a_state(void)
{
	static const uint32_t torch[] = { 1077437785, 108880612, 791707097 };
	static const uint32_t torch_second[] = { 1014112781, 2655384025, 3263983643 };
	static const uint32_t python[] = { 2929454134, 1071722055, 2864457210 };
	static const uint32_t python_second[] = { 3190649866, 2301518177, 4083988011 };
	uint32_t got[3];

	words_from(42, false, 623, got, 3);
	CHECK_BYTES(got, torch, sizeof(got));
	words_from(42, false, 1247, got, 3);
	CHECK_BYTES(got, torch_second, sizeof(got));
	words_from(42, true, 623, got, 3);
	CHECK_BYTES(got, python, sizeof(got));
	words_from(42, true, 1247, got, 3);
	CHECK_BYTES(got, python_second, sizeof(got));
}

/* Whatever is passed over, in however many portions they are taken: one sequence. */
static void one_sequence_in_any_portions(void)
{
	enum { N = 4000 };
	uint64_t seed = check_seed();
	uint32_t all[N], got[N], manual = (uint32_t)check_rand_u64(&seed);

	words_from(manual, false, 0, all, N);
	for (int round = 0; round < 30; round++) {
		uint64_t at = check_rand_below(&seed, N);
		struct order_words *words;

		CHECK_INT(order_words_new(manual, false, at, &words), 0);
		while (at < N) {
			size_t n = 1 + check_rand_below(&seed, MIN(N - at, 900));

			order_words_take(words, got, n);
			CHECK_BYTES(got, all + at, n * sizeof(*got));
			at += n;
		}
		order_words_free(words);
	}
}

/* Far ahead, where the state is jumped to and not walked to. */
static void a_word_far_ahead_is_the_one_that_walking_finds(void)
{
	enum { FAR = 700000 };
	AUTO_FREE uint32_t *walked = calloc(FAR + 8, sizeof(*walked));
	uint32_t got[8];

	words_from(7, false, 0, walked, FAR + 8);
	words_from(7, false, FAR, got, 8);
	CHECK_BYTES(got, walked + FAR, sizeof(got));
	words_from(7, false, FAR - 1, got, 1);
	CHECK_U64(got[0], walked[FAR - 1]);
}

/* --- of a spec --- */

static struct order_spec *parsed(const char *text)
{
	struct order_spec *spec;

	CHECK_INT(order_spec_parse(text, &spec, NULL), 0);
	return spec;
}

static void the_path_of_a_list_and_what_stands_behind_it(void)
{
	struct order_spec *spec = parsed("list:path=/a/b.txt");

	CHECK_STR(order_spec_list_path(spec), "/a/b.txt");
	CHECK_STR(order_spec_list_keys(spec), "");
	order_spec_free(spec);
	spec = parsed("list:path=/a/b.txt:epochs=3:batch=8");
	CHECK_STR(order_spec_list_path(spec), "/a/b.txt");
	CHECK_CONTAINS(order_spec_list_keys(spec), ":epochs=3");
	CHECK_CONTAINS(order_spec_list_keys(spec), ":batch=8");
	CHECK(strstr(order_spec_list_keys(spec), "path") == NULL);
	CHECK_INT(order_spec_list_keys(spec)[0], ':');
	order_spec_free(spec);
	spec = parsed("torch-distributed:seed=1");
	CHECK(order_spec_list_path(spec) == NULL);
	order_spec_free(spec);
}

static void names_of_jobs(void)
{
	char longest[ORDER_JOB_MAX + 2];
	struct err err = { 0 };

	memset(longest, 'j', sizeof(longest));
	longest[ORDER_JOB_MAX] = 0;
	CHECK_INT(order_job_check("a", &err), 0);
	CHECK_INT(order_job_check("4711.0", &err), 0);
	CHECK_INT(order_job_check(" ~", &err), 0); /* the first and the last that are printable */
	CHECK_INT(order_job_check(longest, &err), 0);
	longest[ORDER_JOB_MAX] = 'j';
	longest[ORDER_JOB_MAX + 1] = 0;
	CHECK_INT(order_job_check(longest, &err), -EINVAL);
	CHECK_CONTAINS(err.msg, "64");
	CHECK_INT(order_job_check("", &err), -EINVAL);
	CHECK_INT(order_job_check("a\nb", &err), -EINVAL);
	CHECK_CONTAINS(err.msg, "byte 2");
	CHECK_INT(order_job_check("ab\x7f", &err), -EINVAL);
	CHECK_CONTAINS(err.msg, "byte 3");
	CHECK_INT(order_job_check("\xc3\xa4", &err), -EINVAL);
}

static const struct check_test tests[] = {
	{ "the_first_words_of_a_seed", the_first_words_of_a_seed },
	{ "the_first_words_of_a_seed_of_python", the_first_words_of_a_seed_of_python },
	{ "words_beyond_a_state", words_beyond_a_state },
	{ "one_sequence_in_any_portions", one_sequence_in_any_portions },
	{ "a_word_far_ahead_is_the_one_that_walking_finds",
	  a_word_far_ahead_is_the_one_that_walking_finds },
	{ "the_path_of_a_list_and_what_stands_behind_it",
	  the_path_of_a_list_and_what_stands_behind_it },
	{ "names_of_jobs", names_of_jobs },
};

CHECK_MAIN(tests)
