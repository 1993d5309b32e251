/* SPDX-License-Identifier: Apache-2.0 */
/* Records that are found in a file while its units are in use: numbers behind all others, old ones that mean
 * what they meant, and extents that have all that may be a record's, as its place is known to some bytes only. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clairfs/base/thr.h"
#include "clairfs/dataset/units.h"
#include "dataset_kit.h"

#define MIB ((uint64_t)1 << 20)
#define PAGE 4096u
#define PATHS(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define STRIDE 100000u

static struct dataset *ds_new_of(const char *name, uint64_t size, uint32_t page, uint64_t most)
{
	char *root = kit_tree(name, PATHS("a", "c", "d"));
	struct dataset *ds;

	kit_file(root, "b", size);
	kit_file(root, "d", 40 * MIB);
	ds = kit_open(root, (struct kit_open){ .threads = 1 });
	dataset_reserve_units(ds, page, most);
	free(root);
	return ds;
}

static struct dataset *ds_new(const char *name, uint64_t size, uint64_t most)
{
	return ds_new_of(name, size, PAGE, most);
}

static struct dataset_found found_of(const struct dataset *ds, const char *path, uint64_t low, uint64_t high)
{
	return (struct dataset_found){ .entry = dataset_resolve(ds, path, strlen(path)),
				       .stride = STRIDE,
				       .low = low,
				       .at = (low + high) / 2,
				       .high = high };
}

static int cut(struct dataset *ds, struct dataset_found found, uint32_t *ret_first)
{
	return dataset_cut_found(ds, &found, ret_first);
}

static void check_part(struct dataset_extent x, uint64_t offset, uint64_t end)
{
	CHECK_U64(x.offset, offset);
	CHECK_U64(x.offset + x.length, end);
}

static void nothing_is_reserved_where_no_file_is_cut(void)
{
	char *root = kit_tree("found_small", PATHS("a", "b"));
	struct dataset *ds = kit_open(root, (struct kit_open){ .threads = 1 });
	uint32_t first;

	dataset_reserve_units(ds, PAGE, UINT64_MAX);
	CHECK_U64(dataset_n_reserved(ds), 0);
	CHECK_U64(dataset_n_units(ds), 2);
	CHECK(!dataset_unit_map(ds)->later);
	CHECK_INT(cut(ds, found_of(ds, "a", 0, 0), &first), -ENOTSUP);
	dataset_free(ds);
	free(root);
}

static void records_get_numbers_behind_all_others(void)
{
	uint64_t size = 300 * (uint64_t)STRIDE + 128;
	struct dataset *ds = ds_new("found_numbers", size, UINT64_MAX);
	const struct unit_map *map = dataset_unit_map(ds);
	uint32_t from = dataset_n_file_units(ds), first, n;
	struct entry_id b = dataset_resolve(ds, "b", 1);
	struct unit_id unit, old, was = dataset_unit_at(ds, b, 9 * MIB);

	CHECK_U64(from, 2 + 8 + 10);
	CHECK_U64(dataset_n_reserved(ds), size / UNIT_RECORD_LEAST + 40 * MIB / UNIT_RECORD_LEAST);
	CHECK_U64(dataset_n_units(ds), from + dataset_n_reserved(ds));
	CHECK(!dataset_is_in_records(ds, b) && !dataset_unit_is_record(ds, was));
	CHECK_U64(dataset_old_units(ds, b, &old), 0);
	CHECK_INT(cut(ds, found_of(ds, "b", 128, 128), &first), 0);
	CHECK_U64(first, 0);
	CHECK(dataset_is_in_records(ds, b));
	n = dataset_units_of(ds, b, &unit);
	CHECK_U64(unit.v, from);
	CHECK_U64(n, 300);
	CHECK_U64(unit_count(map, (struct sample_id){ b.v }), 300);
	CHECK(unit_eq(unit_first(map, (struct sample_id){ b.v }), unit) && unit_is_first(map, unit));
	/* The old ones are what they were, and nobody comes to them any more. */
	CHECK_U64(dataset_old_units(ds, b, &old), 8);
	CHECK(unit_eq(was, (struct unit_id){ old.v + 2 }));
	check_part(dataset_unit_extent(ds, was), 8 * MIB, 12 * MIB);
	CHECK(!dataset_unit_is_record(ds, was) && !dataset_unit_is_found(ds, was));
	CHECK(entry_eq(dataset_unit_entry(ds, was), b));
	CHECK_U64(dataset_unit_at(ds, b, 128 + 7 * (uint64_t)STRIDE).v, from + 7);
	CHECK(unit_eq(dataset_unit_at(ds, b, 127), UNIT_NONE));
	/* Other files stay as they were. */
	CHECK_U64(dataset_units_of(ds, dataset_resolve(ds, "d", 1), &unit), 10);
	CHECK(!dataset_is_in_records(ds, dataset_resolve(ds, "d", 1)));
	dataset_free(ds);
}

static void a_record_has_all_pages_that_may_be_its_own(void)
{
	struct dataset *ds = ds_new("found_pages", 30 * MIB, UINT64_MAX);
	struct entry_id b = dataset_resolve(ds, "b", 1);
	struct unit_id unit;
	uint32_t first;

	CHECK_INT(cut(ds, found_of(ds, "b", 4000, 4100), &first), 0); /* around the beginning of a page */
	(void)dataset_units_of(ds, b, &unit);
	CHECK(dataset_unit_is_record(ds, unit));
	check_part(dataset_unit_extent(ds, unit), 0, 106496);
	check_part(dataset_unit_own(ds, unit), 8192, 102400);
	CHECK_U64(dataset_unit_bytes(ds, unit), STRIDE);
	CHECK_U64(dataset_found_start(ds, unit), 4050);
	unit.v += 1; /* 104000..104100 to 204000..204100 */
	check_part(dataset_unit_extent(ds, unit), 102400, 204800);
	check_part(dataset_unit_own(ds, unit), 106496, 200704);
	/* Whatever a READ begins with is found from there. */
	CHECK_U64(dataset_unit_before(ds, b, 102400).v, unit.v);
	CHECK_U64(dataset_unit_before(ds, b, 102399).v, unit.v - 1);
	CHECK_U64(dataset_unit_of_read(ds, b, 102400, 100000).v, unit.v);
	CHECK(unit_eq(dataset_unit_at(ds, b, 3999), UNIT_NONE));
	CHECK_U64(dataset_unit_before(ds, b, 0).v, unit.v - 1);
	dataset_free(ds);
}

static void records_of_several_units_are_cut_like_files(void)
{
	struct dataset *ds = ds_new("found_large", 60 * MIB, UINT64_MAX);
	struct dataset_found found = found_of(ds, "b", 0, 0);
	struct unit_map *map = NULL;
	struct unit_id unit;
	uint32_t first;

	found.stride = 18 * MIB;
	CHECK_INT(cut(ds, found, &first), 0);
	CHECK_U64(dataset_units_of(ds, found.entry, &unit), 3 * 5);
	unit.v += 5 + 4; /* the last one of record 1 */
	check_part(dataset_unit_extent(ds, unit), 34 * MIB, 36 * MIB);
	unit.v--;
	check_part(dataset_unit_own(ds, unit), 30 * MIB, 34 * MIB);
	CHECK_U64(dataset_unit_at(ds, found.entry, 33 * MIB).v, unit.v);
	CHECK_INT(dataset_found_map(ds, found.entry, 1, 2, &map), 0);
	CHECK_U64(unit_first(map, (struct sample_id){ 0 }).v, unit.v - 3);
	CHECK_U64(unit_count(map, (struct sample_id){ 1 }), 5);
	free(map);
	CHECK_INT(dataset_found_map(ds, found.entry, 2, 2, &map), -EINVAL);
	dataset_free(ds);
}

/* Another order of them may begin elsewhere, and number others. */
static void a_file_is_cut_once(void)
{
	struct dataset *ds = ds_new("found_again", 30 * MIB, UINT64_MAX);
	struct dataset_found found = found_of(ds, "b", 128, 128);
	struct unit_map *map = NULL;
	uint32_t first, n = dataset_n_file_units(ds);

	CHECK_INT(cut(ds, found, &first), 0);
	CHECK_INT(cut(ds, found_of(ds, "b", 128 + 4 * STRIDE, 4000 + 4 * STRIDE), &first), 0);
	CHECK_U64(first, 4);
	CHECK_INT(dataset_found_map(ds, found.entry, first, 100, &map), 0);
	CHECK_U64(map->n_units, dataset_n_units(ds));
	CHECK_U64(map->first[0], n + 4);
	CHECK_U64(map->past[99], n + 104);
	free(map);
	CHECK(dataset_is_cut_so(ds, &found, &first));
	CHECK_U64(first, 0);
	found.n = 315; /* as many as there are, and one */
	CHECK(!dataset_is_cut_so(ds, &found, &first));
	found.n = 0;
	CHECK_INT(cut(ds, found_of(ds, "b", 50000, 50000), &first), -EEXIST);
	found.stride = 2 * STRIDE;
	CHECK_INT(cut(ds, found, &first), -EEXIST);
	/* Beside another one. */
	CHECK_INT(cut(ds, found_of(ds, "d", 3 * STRIDE, 3 * STRIDE), &first), 0);
	CHECK_U64(first, 3);
	CHECK_U64(dataset_unit_at(ds, dataset_resolve(ds, "d", 1), 0).v, n + 314);
	dataset_free(ds);
}

/* With pages of 64 KiB several begin on each, and an order may begin with any of them. */
static void small_records_are_told_apart_on_large_pages(void)
{
	enum { SMALL = UNIT_RECORD_LEAST };
	struct dataset *ds = ds_new_of("found_large_pages", 30 * MIB, 65536, UINT64_MAX);
	struct dataset_found found = found_of(ds, "b", 100, 100);
	uint32_t first;

	found.stride = SMALL;
	CHECK_INT(cut(ds, found, &first), 0);
	for (uint32_t i = 0; i < 40; i++) {
		found.low = found.at = found.high = 100 + i * SMALL;
		CHECK_INT(cut(ds, found, &first), 0);
		CHECK_U64(first, i);
		found.low = found.at -= i ? SMALL / 2 - 1 : 0;
		CHECK(dataset_is_cut_so(ds, &found, &first));
		CHECK_U64(first, i);
	}
	dataset_free(ds);
}

static void what_cannot_be_is_refused(void)
{
	struct dataset *ds = ds_new("found_bad", 30 * MIB, 100);
	struct dataset_found found = found_of(ds, "b", 0, 0);
	uint32_t first;

	CHECK_U64(dataset_n_reserved(ds), 100);
	CHECK_INT(cut(ds, found, &first), -E2BIG);
	found.stride = UNIT_RECORD_LEAST - 1;
	CHECK_INT(cut(ds, found, &first), -EINVAL);
	found.stride = 16 * MIB;
	CHECK_INT(cut(ds, found, &first), -EINVAL); /* one, and a part of another */
	CHECK_INT(cut(ds, found_of(ds, "a", 0, 0), &first), -ENOTSUP);
	found = found_of(ds, "b", 0, 0);
	found.entry = dataset_resolve(ds, "", 0);
	CHECK_INT(cut(ds, found, &first), -ENOTSUP);
	CHECK(!dataset_is_in_records(ds, dataset_resolve(ds, "b", 1)));
	dataset_free(ds);
}

/* A reader of units beside who cuts. */
struct beside {
	struct dataset *ds;
	struct entry_id b;
	_Atomic bool is_over;
	_Atomic uint32_t n_looked;
};

static void *look(void *arg)
{
	struct beside *x = arg;
	uint64_t at = 0;

	while (!atomic_load(&x->is_over)) {
		struct unit_id unit = dataset_unit_at(x->ds, x->b, at);
		struct dataset_extent e;

		at = (at + 777777) % (30 * MIB);
		atomic_fetch_add(&x->n_looked, 1);
		if (unit_eq(unit, UNIT_NONE))
			continue;
		e = dataset_unit_extent(x->ds, unit);
		CHECK(entry_eq(e.entry, x->b) && e.length > 0);
		(void)dataset_unit_own(x->ds, unit);
	}
	return NULL;
}

static void others_may_look_meanwhile(void)
{
	for (int i = 0; i < 100; i++) {
		struct thr thr = { .is_started = false };
		struct beside x = { .ds = NULL };
		struct err err = { 0 };
		uint32_t first;
		char name[32];

		snprintf(name, sizeof(name), "found_beside%d", i);
		x.ds = ds_new(name, 30 * MIB, UINT64_MAX);
		x.b = dataset_resolve(x.ds, "b", 1);
		CHECK_INT(thr_start(&thr, "look", look, &x, &err), 0);
		while (!atomic_load(&x.n_looked))
			;
		CHECK_INT(cut(x.ds, found_of(x.ds, "d", 0, 0), &first), 0);
		CHECK_INT(cut(x.ds, found_of(x.ds, "b", 0, 0), &first), 0);
		atomic_store(&x.is_over, true);
		thr_join(&thr);
		dataset_free(x.ds);
	}
}

static const struct check_test tests[] = {
	{ "nothing_is_reserved_where_no_file_is_cut", nothing_is_reserved_where_no_file_is_cut },
	{ "records_get_numbers_behind_all_others", records_get_numbers_behind_all_others },
	{ "a_record_has_all_pages_that_may_be_its_own", a_record_has_all_pages_that_may_be_its_own },
	{ "records_of_several_units_are_cut_like_files", records_of_several_units_are_cut_like_files },
	{ "a_file_is_cut_once", a_file_is_cut_once },
	{ "small_records_are_told_apart_on_large_pages", small_records_are_told_apart_on_large_pages },
	{ "what_cannot_be_is_refused", what_cannot_be_is_refused },
	{ "others_may_look_meanwhile", others_may_look_meanwhile },
};
CHECK_MAIN(tests)
