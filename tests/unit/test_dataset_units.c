/* SPDX-License-Identifier: Apache-2.0 */
/* Files cut into units: which bytes each has, of files that grow and shrink as well, and that every
 * byte of a dataset belongs to exactly one. Large files are holes: they take no room. */
#include <string.h>
#include <sys/stat.h>

#include "clairfs/dataset/units.h"
#include "dataset_kit.h"

#define MIB ((uint64_t)1 << 20)
#define PATHS(...) ((const char *const[]){ __VA_ARGS__, NULL })

static struct unit_id unit_of(const struct dataset *ds, const char *path, uint64_t offset)
{
	return dataset_unit_at(ds, dataset_resolve(ds, path, strlen(path)), offset);
}

static void check_extent(const struct dataset *ds, struct unit_id unit, uint64_t offset,
			 uint64_t length)
{
	struct dataset_extent extent = dataset_unit_extent(ds, unit);

	CHECK_U64(extent.offset, offset);
	CHECK_U64(extent.length, length);
}

static void grow(struct dataset *ds, const char *path, uint64_t size)
{
	struct entry_id e = dataset_resolve(ds, path, strlen(path));
	struct stat st;

	dataset_stat(ds, e, &st);
	st.st_size = (off_t)size;
	dataset_update(ds, e, &st);
}

static void small_files_are_a_unit_each(void)
{
	char *root = kit_tree("units_small", PATHS("a", "b", "c"));
	struct dataset *ds = kit_open(root, (struct kit_open){ .threads = 1 });
	const struct unit_map *map = dataset_unit_map(ds);

	CHECK(!map->first);
	CHECK_U64(dataset_n_units(ds), 3);
	for (uint32_t i = 0; i < 3; i++)
		CHECK_U64(dataset_unit_entry(ds, (struct unit_id){ i }).v, i);
	CHECK(unit_eq(dataset_unit_at(ds, dataset_resolve(ds, "", 0), 0), UNIT_NONE));
	dataset_free(ds);
	free(root);
}

static void a_large_file_is_cut(void)
{
	char *root = kit_tree("units_large", PATHS("a", "c", "d"));
	struct dataset *ds;
	struct unit_id u;

	kit_file(root, "b", 21 * MIB + 5);
	kit_file(root, "c", UNIT_WHOLE_BYTES);
	ds = kit_open(root, (struct kit_open){ .threads = 1 });
	CHECK_U64(dataset_n_units(ds), 3 + 6);
	u = unit_of(ds, "b", 0);
	for (uint32_t k = 0; k < 6; k++) {
		struct unit_id unit = { u.v + k };

		check_extent(ds, unit, k * 4 * MIB, k < 5 ? 4 * MIB : MIB + 5);
		CHECK(unit_eq(unit_of(ds, "b", k * 4 * MIB), unit));
		CHECK(unit_eq(unit_of(ds, "b", k * 4 * MIB + 4 * MIB - 1), unit));
		CHECK_INT(unit_is_first(dataset_unit_map(ds), unit), k == 0);
	}
	CHECK(unit_eq(unit_of(ds, "b", 24 * MIB), UNIT_NONE));
	check_extent(ds, unit_of(ds, "c", 15 * MIB), 0, UNIT_WHOLE_BYTES); /* in one */
	CHECK_U64(dataset_cut_bytes(ds), 21 * MIB + 5);
	dataset_free(ds);
	free(root);
}

static void units_stay_when_files_grow_and_shrink(void)
{
	char *root = kit_tree("units_change", PATHS("a"));
	struct dataset *ds;
	struct unit_id u;

	kit_file(root, "b", 18 * MIB);
	ds = kit_open(root, (struct kit_open){ .threads = 1 });
	CHECK_U64(dataset_n_units(ds), 6);
	u = unit_of(ds, "b", 0);
	grow(ds, "b", 30 * MIB);
	check_extent(ds, (struct unit_id){ u.v + 4 }, 16 * MIB, 4 * MIB);
	CHECK(unit_eq(unit_of(ds, "b", 20 * MIB), UNIT_NONE)); /* nothing was cut there */
	grow(ds, "b", 5 * MIB);
	check_extent(ds, (struct unit_id){ u.v + 1 }, 4 * MIB, MIB);
	check_extent(ds, (struct unit_id){ u.v + 2 }, 8 * MIB, 0);
	grow(ds, "a", 100 * MIB);
	check_extent(ds, unit_of(ds, "a", 0), 0, UNIT_WHOLE_BYTES);
	CHECK(unit_eq(unit_of(ds, "a", 17 * MIB), UNIT_NONE));
	dataset_free(ds);
	free(root);
}

/* A file may claim any size. */
static void a_file_of_any_size_has_so_many_units_and_no_more(void)
{
	char *root = kit_tree("units_huge", PATHS("a"));
	struct dataset *ds;

	kit_file(root, "b", (uint64_t)8 << 40);
	ds = kit_open(root, (struct kit_open){ .threads = 1 });
	CHECK_U64(dataset_n_units(ds), 1 + UNITS_OF_FILE_MAX);
	CHECK(!unit_eq(unit_of(ds, "b", UNITS_OF_FILE_MAX * 4 * MIB - 1), UNIT_NONE));
	CHECK(unit_eq(unit_of(ds, "b", UNITS_OF_FILE_MAX * 4 * MIB), UNIT_NONE));
	dataset_free(ds);
	free(root);
}

static void every_byte_has_one_unit(void)
{
	uint64_t seed = check_seed();
	char *root = kit_tree("units_random", PATHS("z"));
	struct dataset *ds;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < 12; i++) {
		char name[16];

		snprintf(name, sizeof(name), "f%02u", i);
		kit_file(root, name, check_rand_below(&seed, 60 * MIB));
	}
	ds = kit_open(root, (struct kit_open){ .threads = 1 });
	for (uint32_t i = 0; i < dataset_n_units(ds); i++) {
		struct dataset_extent x = dataset_unit_extent(ds, (struct unit_id){ i });
		uint64_t at = x.length ? x.offset + check_rand_below(&seed, x.length) : x.offset;

		CHECK_U64(dataset_unit_at(ds, x.entry, at).v, i);
		CHECK_U64(dataset_unit_entry(ds, (struct unit_id){ i }).v, x.entry.v);
		bytes += x.length;
	}
	CHECK_U64(bytes, dataset_sample_bytes(ds));
	dataset_free(ds);
	free(root);
}

static const struct check_test tests[] = {
	{ "small_files_are_a_unit_each", small_files_are_a_unit_each },
	{ "a_large_file_is_cut", a_large_file_is_cut },
	{ "units_stay_when_files_grow_and_shrink", units_stay_when_files_grow_and_shrink },
	{ "a_file_of_any_size_has_so_many_units_and_no_more",
	  a_file_of_any_size_has_so_many_units_and_no_more },
	{ "every_byte_has_one_unit", every_byte_has_one_unit },
};
CHECK_MAIN(tests)
