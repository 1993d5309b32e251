/* SPDX-License-Identifier: Apache-2.0 */
/* The 64-ary set under the plan's decisions against an array of flags, at sizes around the powers
 * of its fan-out. */
#include "check.h"
#include "src/plan/plan_priv.h"

static void compare(const struct tree *t, const bool *has, uint64_t size, uint64_t from)
{
	uint64_t next = NO_POS, last = NO_POS;

	for (uint64_t i = size; i-- > 0;) {
		if (has[i] && i >= from)
			next = i;
		if (has[i] && last == NO_POS)
			last = i;
	}
	CHECK_U64(tree_next(t, from), next);
	CHECK_U64(tree_max(t), last);
}

static void finds_what_an_array_of_flags_finds(void)
{
	static const uint64_t sizes[] = { 1, 2, 63, 64, 65, 4095, 4096, 4097, 70000 };
	uint64_t rnd = check_seed();

	for (uint32_t s = 0; s < ARRAY_LEN(sizes); s++) {
		uint64_t size = sizes[s], count = 0;
		bool *has = calloc(size, sizeof(*has));
		struct tree t;

		CHECK_INT(tree_init(&t, size), 0);
		for (int i = 0; i < 3000; i++) {
			/* mostly near one another, so that words fill and empty */
			uint64_t bit = check_rand_below(&rnd, i % 3 ? MIN(size, 200) : size);

			if (has[bit])
				tree_clear(&t, bit);
			else
				tree_set(&t, bit);
			has[bit] = !has[bit];
			count += has[bit] ? 1 : (uint64_t)-1;
			CHECK_U64(t.count, count);
			if (i % 16 == 0)
				compare(&t, has, size, check_rand_below(&rnd, size));
		}
		tree_clear_all(&t);
		CHECK_U64(tree_max(&t), NO_POS);
		CHECK_U64(tree_next(&t, 0), NO_POS);
		tree_fini(&t);
		free(has);
	}
}

static void an_empty_range_has_no_members(void)
{
	struct tree t;

	CHECK_INT(tree_init(&t, 0), 0);
	CHECK_U64(tree_max(&t), NO_POS);
	CHECK_U64(tree_next(&t, 0), NO_POS);
	tree_fini(&t);
}

static const struct check_test tests[] = {
	{ "finds_what_an_array_of_flags_finds", finds_what_an_array_of_flags_finds },
	{ "an_empty_range_has_no_members", an_empty_range_has_no_members },
};
CHECK_MAIN(tests)
