/* SPDX-License-Identifier: Apache-2.0 */
/* Units and samples: where samples are cut, and that both ways between their numbers agree. */
#include "check.h"
#include "clairfs/base/units.h"

#define MIB (UINT64_C(1) << 20)

static void large_samples_are_cut(void)
{
	CHECK_U64(unit_cut(0), 1); /* an empty file is something to read, too */
	CHECK_U64(unit_cut(1), 1);
	CHECK_U64(unit_cut(5 * MIB), 1); /* it is read at once: one unit, and not two of 4 MiB */
	CHECK_U64(unit_cut(16 * MIB), 1);
	CHECK_U64(unit_cut(16 * MIB + 1), 5);
	CHECK_U64(unit_cut(20 * MIB), 5);
	CHECK_U64(unit_cut(20 * MIB + 1), 6);
	CHECK_U64(unit_cut(UINT64_MAX - (4 * MIB)), UINT64_MAX / (4 * MIB));
}

static void without_a_table_numbers_are_the_same(void)
{
	static const struct unit_map map = { .n_samples = 3, .n_units = 3 };

	for (uint32_t i = 0; i < 3; i++) {
		CHECK_U64(unit_first(&map, (struct sample_id){ i }).v, i);
		CHECK_U64(unit_count(&map, (struct sample_id){ i }), 1);
		CHECK_U64(unit_sample(&map, (struct unit_id){ i }).v, i);
		CHECK(unit_is_first(&map, (struct unit_id){ i }));
		CHECK(!unit_is_in_records(&map, (struct sample_id){ i }));
	}
}

/* Samples 0, 2 and 3 are one unit, sample 1 is five, the last one two. */
static const uint32_t first[] = { 0, 1, 6, 7, 8, 10 };
static const struct unit_map cut = { .n_samples = 5, .n_units = 10, .first = first };

static void units_of_a_sample_follow_each_other(void)
{
	static const uint32_t sample[] = { 0, 1, 1, 1, 1, 1, 2, 3, 4, 4 };
	static const bool is_first[] = { 1, 1, 0, 0, 0, 0, 1, 1, 1, 0 };

	for (uint32_t i = 0; i < cut.n_units; i++) {
		CHECK_U64(unit_sample(&cut, (struct unit_id){ i }).v, sample[i]);
		CHECK(unit_is_first(&cut, (struct unit_id){ i }) == is_first[i]);
	}
	CHECK_U64(unit_count(&cut, (struct sample_id){ 0 }), 1);
	CHECK_U64(unit_count(&cut, (struct sample_id){ 1 }), 5);
	CHECK_U64(unit_count(&cut, (struct sample_id){ 4 }), 2);
	CHECK_U64(unit_first(&cut, (struct sample_id){ 4 }).v, 8);
}

/* Any sizes: each unit is of the sample that it is counted for. */
static void both_ways_agree(void)
{
	enum { N = 300 };
	uint64_t seed = check_seed();
	uint32_t at[N + 1] = { 0 };
	struct unit_map map = { .n_samples = N, .first = at };

	for (uint32_t s = 0; s < N; s++) {
		uint32_t n =
			1 +
			(uint32_t)(check_rand_below(&seed, 4) ? 0 : check_rand_below(&seed, 40));

		at[s + 1] = at[s] + n;
	}
	map.n_units = at[N];
	for (uint32_t s = 0; s < N; s++) {
		struct unit_id unit = unit_first(&map, (struct sample_id){ s });
		uint32_t n = unit_count(&map, (struct sample_id){ s });

		CHECK(unit_is_first(&map, unit));
		for (uint32_t i = 0; i < n; i++)
			CHECK_U64(unit_sample(&map, (struct unit_id){ unit.v + i }).v, s);
		CHECK(unit.v + n == map.n_units ||
		      unit_is_first(&map, (struct unit_id){ unit.v + n }));
	}
}

/* Records: units of a sample in any sequence, and some that are of none. */
static void a_second_table_says_where_samples_end(void)
{
	static const uint32_t begin[] = { 4, 0, 9 }, past[] = { 6, 3, 9 };
	static const struct unit_map map = {
		.n_samples = 3, .n_units = 9, .first = begin, .past = past
	};

	CHECK_U64(unit_first(&map, (struct sample_id){ 0 }).v, 4);
	CHECK_U64(unit_count(&map, (struct sample_id){ 0 }), 2);
	CHECK_U64(unit_count(&map, (struct sample_id){ 1 }), 3);
	CHECK_U64(unit_count(&map, (struct sample_id){ 2 }), 0); /* one without bytes */
}

static void samples_whose_units_are_records(void)
{
	static const uint64_t bits[] = { UINT64_C(1) << 63, 1 };
	static const struct unit_map map = { .n_samples = 70, .n_units = 70, .in_records = bits };

	CHECK(!unit_is_in_records(&map, (struct sample_id){ 62 }));
	CHECK(unit_is_in_records(&map, (struct sample_id){ 63 }));
	CHECK(unit_is_in_records(&map, (struct sample_id){ 64 }));
	CHECK(!unit_is_in_records(&map, (struct sample_id){ 65 }));
}

static void what_is_none_is_no_number(void)
{
	CHECK(unit_eq(UNIT_NONE, UNIT_NONE) && !unit_eq(UNIT_NONE, (struct unit_id){ 0 }));
	CHECK(entry_eq(ENTRY_ROOT, ENTRY_ROOT) && !entry_eq(ENTRY_ROOT, ENTRY_NONE));
	CHECK(ENTRY_NONE.v != SAMPLE_NONE); /* of a dataset as large as it may be, neither is one */
}

static const struct check_test tests[] = {
	{ "large_samples_are_cut", large_samples_are_cut },
	{ "without_a_table_numbers_are_the_same", without_a_table_numbers_are_the_same },
	{ "units_of_a_sample_follow_each_other", units_of_a_sample_follow_each_other },
	{ "both_ways_agree", both_ways_agree },
	{ "a_second_table_says_where_samples_end", a_second_table_says_where_samples_end },
	{ "samples_whose_units_are_records", samples_whose_units_are_records },
	{ "what_is_none_is_no_number", what_is_none_is_no_number },
};

CHECK_MAIN(tests)
