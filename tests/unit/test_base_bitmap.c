/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bitmap against an array of bools, at the sizes where words begin and end, and with random
 * operations.
 */
#include "clairfs/base/bitmap.h"

#include <errno.h>

#include "check.h"

static void set_and_clear_report_changes(void)
{
	struct bitmap b;

	CHECK_INT(bitmap_init(&b, 130), 0);
	CHECK(!bitmap_get(&b, 129));
	CHECK(bitmap_set(&b, 129));
	CHECK(!bitmap_set(&b, 129));
	CHECK(bitmap_get(&b, 129));
	CHECK(!bitmap_get(&b, 128));
	CHECK_U64(b.count, 1);
	CHECK(bitmap_clear(&b, 129));
	CHECK(!bitmap_clear(&b, 129));
	CHECK_U64(b.count, 0);
	bitmap_fini(&b);
}

static void clear_all_clears_all(void)
{
	struct bitmap b;

	CHECK_INT(bitmap_init(&b, 200), 0);
	for (uint64_t i = 0; i < 200; i += 3)
		bitmap_set(&b, i);
	bitmap_clear_all(&b);
	CHECK_U64(b.count, 0);
	for (uint64_t i = 0; i < 200; i++)
		CHECK(!bitmap_get(&b, i));
	bitmap_fini(&b);
}

static void empty_bitmap_has_no_bits(void)
{
	struct bitmap b;

	CHECK_INT(bitmap_init(&b, 0), 0);
	CHECK_U64(bitmap_next_clear(&b, 0), 0);
	bitmap_clear_all(&b);
	bitmap_fini(&b);
}

static void full_bitmap_has_no_clear_bit(void)
{
	static const uint64_t sizes[] = { 1, 63, 64, 65, 127, 128, 129 };

	for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
		struct bitmap b;

		CHECK_INT(bitmap_init(&b, sizes[s]), 0);
		for (uint64_t i = 0; i < sizes[s]; i++)
			bitmap_set(&b, i);
		CHECK_U64(b.count, sizes[s]);
		CHECK_U64(bitmap_next_clear(&b, 0), sizes[s]);
		CHECK(bitmap_get(&b, sizes[s] - 1));
		bitmap_fini(&b);
	}
}

static void search_from_the_end_is_size(void)
{
	struct bitmap b;

	CHECK_INT(bitmap_init(&b, 64), 0);
	CHECK_U64(bitmap_next_clear(&b, 64), 64);
	CHECK_U64(bitmap_next_clear(&b, UINT64_MAX), 64);
	bitmap_fini(&b);
}

static uint64_t model_next_clear(const bool *model, uint64_t size, uint64_t from)
{
	while (from < size && model[from])
		from++;
	return from;
}

static void agrees_with_an_array(void)
{
	uint64_t rng = check_seed();

	for (int round = 0; round < 50; round++) {
		uint64_t size = 1 + check_rand_below(&rng, 300), count = 0;
		bool model[300] = { false };
		struct bitmap b;

		CHECK_INT(bitmap_init(&b, size), 0);
		for (int step = 0; step < 400; step++) {
			uint64_t bit = check_rand_below(&rng, size);
			bool value = check_rand_below(&rng, 100) < (round % 2 ? 80 : 20);

			CHECK_INT(value ? bitmap_set(&b, bit) : bitmap_clear(&b, bit),
				  model[bit] != value);
			if (model[bit] != value)
				count += value ? 1 : UINT64_MAX;
			model[bit] = value;
			CHECK_U64(b.count, count);
			bit = check_rand_below(&rng, size);
			CHECK_INT(bitmap_get(&b, bit), model[bit]);
			CHECK_U64(bitmap_next_clear(&b, bit), model_next_clear(model, size, bit));
		}
		bitmap_fini(&b);
	}
}

static void out_of_memory_is_reported(void)
{
	struct bitmap b;

	CHECK_INT(bitmap_init(&b, UINT64_MAX), -ENOMEM);
	CHECK_INT(bitmap_init(&b, UINT64_MAX - 63), -ENOMEM);
	bitmap_fini(&b);
}

static const struct check_test tests[] = {
	{ "set_and_clear_report_changes", set_and_clear_report_changes },
	{ "clear_all_clears_all", clear_all_clears_all },
	{ "empty_bitmap_has_no_bits", empty_bitmap_has_no_bits },
	{ "full_bitmap_has_no_clear_bit", full_bitmap_has_no_clear_bit },
	{ "search_from_the_end_is_size", search_from_the_end_is_size },
	{ "agrees_with_an_array", agrees_with_an_array },
	{ "out_of_memory_is_reported", out_of_memory_is_reported },
};

CHECK_MAIN(tests)
