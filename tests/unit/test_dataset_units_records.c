/* SPDX-License-Identifier: Apache-2.0 */
/* Units of records: which files are cut so, that every record of a table has its bytes in its units and
 * every byte its unit, held to plain searches for random tables; and that what cannot be cut stays as it
 * was. Files are holes: they take no room. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "clairfs/base/cleanup.h"
#include "clairfs/dataset/units.h"
#include "dataset_kit.h"

#define MIB ((uint64_t)1 << 20)
#define PAGE 4096u
#define FILES 5u
#define RECORDS_EACH 60u

static void import(struct dataset *ds, const char *root, const char *text)
{
	struct dataset_import *import;
	struct err err = { 0 };
	int rc;

	CHECK_INT(dataset_import_new(ds, root, &import, &err), 0);
	rc = dataset_import_add(import, "l", text, strlen(text), &err);
	if (rc == 0)
		rc = dataset_import_finish(import, ds, &err);
	CHECK_STR(err.msg, "");
	CHECK_INT(rc, 0);
	dataset_import_free(import);
}

static struct dataset *open_with(const char *root, const char *text)
{
	struct dataset *ds = kit_open(root, (struct kit_open){ .threads = 1 });

	import(ds, root, text);
	return ds;
}

static struct unit_id at(const struct dataset *ds, const char *path, uint64_t offset)
{
	return dataset_unit_at(ds, kit_find(ds, path), offset);
}

static void check_range(struct dataset_extent x, uint64_t offset, uint64_t length)
{
	CHECK_U64(x.offset, offset);
	CHECK_U64(x.length, length);
}

/* a: small. b: three records, one of them large, and a head. c: small, with records. d: large, none. */
static const char list[] = "b 10000 100000\nb 110000 50000\nb 4194304 20000000\n"
			   "c 0 20000\nc 20000 20000\n";

static char *tree(const char *name)
{
	static const char *const none[] = { NULL };
	char *root = kit_tree(name, none);

	kit_file(root, "a", 5);
	kit_file(root, "b", 30 * MIB);
	kit_file(root, "c", 40000);
	kit_file(root, "d", 21 * MIB);
	return root;
}

static void records_of_larger_files_are_units(void)
{
	AUTO_FREE char *root = tree("units_records");
	struct dataset *ds = open_with(root, list);
	const struct unit_map *map = dataset_unit_map(ds), *records;
	uint32_t b;

	CHECK(!dataset_is_in_records(ds, kit_find(ds, "b")));
	CHECK_INT(dataset_cut_records(ds, PAGE, UINT64_MAX), 0);
	CHECK(!dataset_is_in_records(ds, kit_find(ds, "a")));
	CHECK(dataset_is_in_records(ds, kit_find(ds, "b")));
	CHECK(!dataset_is_in_records(ds, kit_find(ds, "c"))); /* of one piece */
	CHECK(!dataset_is_in_records(ds, kit_find(ds, "d")));
	CHECK(!dataset_is_in_records(ds, dataset_resolve(ds, "", 0)));
	CHECK_U64(dataset_n_units(ds), 1 + (1 + 1 + 5) + 1 + 6);
	b = at(ds, "b", 10000).v;
	CHECK_U64(b, 1);
	CHECK(unit_eq(at(ds, "b", 9999), UNIT_NONE));
	CHECK_U64(at(ds, "b", 109999).v, b);
	CHECK_U64(at(ds, "b", 110000).v, b + 1);
	CHECK(unit_eq(at(ds, "b", 160000), UNIT_NONE));
	CHECK_U64(at(ds, "b", 4194304 + 8 * MIB).v, b + 4);
	check_range(dataset_unit_extent(ds, (struct unit_id){ b }), 8192, 110592 - 8192);
	check_range(dataset_unit_own(ds, (struct unit_id){ b }), 12288, 106496 - 12288);
	check_range(dataset_unit_extent(ds, (struct unit_id){ b + 1 }), 106496, 163840 - 106496);
	check_range(dataset_unit_extent(ds, (struct unit_id){ b + 2 }), 4 * MIB, 4 * MIB);
	check_range(dataset_unit_own(ds, (struct unit_id){ b + 2 }), 4 * MIB, 4 * MIB);
	CHECK(!dataset_records_are_small(ds)); /* five of seven units are not */
	CHECK(dataset_unit_is_small(ds, (struct unit_id){ b }));
	CHECK(!dataset_unit_is_small(ds, (struct unit_id){ b + 2 }));
	CHECK(!dataset_unit_is_small(ds, at(ds, "a", 0))); /* no record */
	CHECK_U64(dataset_unit_before(ds, kit_find(ds, "b"), 8192).v, b);
	CHECK(unit_eq(dataset_unit_before(ds, kit_find(ds, "b"), 8191), UNIT_NONE));
	CHECK_U64(dataset_unit_before(ds, kit_find(ds, "b"), 106496).v, b + 1);
	/* The pages of the second record are those of the first one's end, too. */
	CHECK_U64(dataset_unit_of_read(ds, kit_find(ds, "b"), 106496, 57344).v, b + 1);
	CHECK_U64(dataset_unit_of_read(ds, kit_find(ds, "d"), 4 * MIB, 131072).v, at(ds, "d", 4 * MIB).v);
	CHECK_U64(dataset_cut_bytes(ds), 51 * MIB);
	records = map->of_records;
	CHECK_U64(records->n_samples, 5);
	CHECK_U64(records->n_units, dataset_n_units(ds));
	CHECK_U64(unit_first(records, (struct sample_id){ 2 }).v, b + 2);
	CHECK_U64(unit_count(records, (struct sample_id){ 2 }), 5);
	CHECK_U64(unit_first(records, (struct sample_id){ 3 }).v, at(ds, "c", 0).v);
	CHECK_U64(unit_first(records, (struct sample_id){ 4 }).v, at(ds, "c", 0).v);
	CHECK_U64(unit_count(records, (struct sample_id){ 4 }), 1);
	dataset_free(ds);
}

static void extents_end_with_the_file(void)
{
	AUTO_FREE char *root = tree("units_records_end");
	struct dataset *ds = open_with(root, list);
	struct entry_id e = kit_find(ds, "b");
	struct unit_id second;
	struct stat st;

	CHECK_INT(dataset_cut_records(ds, PAGE, UINT64_MAX), 0);
	second = at(ds, "b", 110000);
	dataset_stat(ds, e, &st);
	st.st_size = 112000;
	dataset_update(ds, e, &st);
	check_range(dataset_unit_extent(ds, second), 106496, 112000 - 106496);
	check_range(dataset_unit_own(ds, second), 110592, 112000 - 110592);
	CHECK_U64(dataset_unit_extent(ds, (struct unit_id){ second.v + 1 }).length, 0);
	CHECK_U64(dataset_unit_own(ds, (struct unit_id){ second.v + 1 }).length, 0);
	dataset_free(ds);
}

static void what_cannot_be_cut_stays_as_it_was(void)
{
	static const struct {
		const char *list;
		int error;
	} cases[] = {
		{ "c 0 20000\nc 20000 20000\n", -ENODATA },       /* of one piece */
		{ "b 0 2000000\n", -ENODATA },                    /* one record is a file */
		{ "b 0 5000\nb 5000 20000\n", -ENOTSUP },         /* small ones */
		{ "b 0 90000\nb 90000 20000\nd 0 9\nd 9 9\n", -ENOTSUP }, /* all or nothing */
	};
	AUTO_FREE char *root = tree("units_records_not");
	struct dataset *ds = kit_open(root, (struct kit_open){ .threads = 1 });

	CHECK_INT(dataset_cut_records(ds, PAGE, UINT64_MAX), -ENODATA); /* no table */
	dataset_free(ds);
	ds = open_with(root, list);
	CHECK_INT(dataset_cut_records(ds, PAGE, 6), -E2BIG);
	CHECK(!dataset_unit_map(ds)->of_records);
	CHECK_INT(dataset_cut_records(ds, PAGE, 7), 0); /* units of records, of which one has five */
	dataset_free(ds);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		ds = open_with(root, cases[i].list);
		CHECK_INT(dataset_cut_records(ds, PAGE, UINT64_MAX), cases[i].error);
		CHECK_U64(dataset_n_units(ds), 1 + 8 + 1 + 6);
		CHECK(!dataset_unit_map(ds)->of_records && !dataset_unit_map(ds)->in_records);
		CHECK_U64(at(ds, "b", 4 * MIB).v, 2);
		dataset_free(ds);
	}
}

struct plain {
	uint32_t file;
	uint64_t offset, length;
};

/* Records of all files, in the sequence of the list: mostly that of the files. */
static uint32_t make_plain(uint64_t *seed, struct plain *out, uint64_t *size)
{
	uint32_t n = 0;

	for (uint32_t f = 0; f < FILES; f++) {
		uint64_t offset = check_rand_below(seed, 2) * check_rand_below(seed, 20000);
		uint32_t count = 2 + (uint32_t)check_rand_below(seed, RECORDS_EACH - 2);

		for (uint32_t i = 0; i < count; i++) {
			uint64_t length = 1 + check_rand_below(seed, i ? 200000 : 20 * MIB);

			if (i % 8 == 3) /* several of a page */
				length = 1 + check_rand_below(seed, 3000);
			out[n++] = (struct plain){ f, offset, length };
			offset += length + check_rand_below(seed, 2) * check_rand_below(seed, 9000);
		}
		size[f] = offset + check_rand_below(seed, 2) * 5000;
	}
	for (uint64_t k = check_rand_below(seed, 2) * 5; k > 0; k--) {
		uint32_t a = (uint32_t)check_rand_below(seed, n), b = (uint32_t)check_rand_below(seed, n);
		struct plain x = out[a];

		out[a] = out[b];
		out[b] = x;
	}
	return n;
}

static struct dataset *open_plain(const struct plain *plain, uint32_t n, const uint64_t *size,
				  char **ret_root)
{
	static const char *const none[] = { NULL };
	AUTO_FREE char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	static unsigned n_trees;
	char name[40];

	snprintf(name, sizeof(name), "units_records_%u", n_trees++);
	*ret_root = kit_tree(name, none);
	for (uint32_t f = 0; f < FILES; f++) {
		snprintf(name, sizeof(name), "f%u", f);
		kit_file(*ret_root, name, size[f]);
	}
	CHECK(out);
	for (uint32_t i = 0; i < n; i++)
		fprintf(out, "f%u %llu %llu\n", plain[i].file, (unsigned long long)plain[i].offset,
			(unsigned long long)plain[i].length);
	fclose(out);
	return open_with(*ret_root, text);
}

static bool is_cut(const struct dataset *ds, uint32_t file)
{
	char name[8];

	snprintf(name, sizeof(name), "f%u", file);
	return dataset_is_in_records(ds, kit_find(ds, name));
}

/* The units of a record have its bytes, each within its pages, and none more than they may. */
static void check_record(const struct dataset *ds, const struct plain *x, uint32_t record)
{
	const struct unit_map *map = dataset_unit_map(ds)->of_records;
	struct unit_id first = unit_first(map, (struct sample_id){ record });
	uint32_t n = unit_count(map, (struct sample_id){ record });
	uint64_t end = 0;

	CHECK_U64(n, unit_cut(x->length));
	for (uint32_t k = 0; k < n; k++) {
		struct unit_id unit = { first.v + k };
		struct dataset_extent extent = dataset_unit_extent(ds, unit);
		struct dataset_extent own = dataset_unit_own(ds, unit);
		uint64_t from = x->offset + k * (uint64_t)UNIT_BYTES;
		uint64_t to = n == 1 ? from + x->length : MIN(from + UNIT_BYTES, x->offset + x->length);

		CHECK(extent.offset <= from && from - extent.offset < PAGE);
		CHECK(extent.offset + extent.length >= to && extent.offset + extent.length - to < PAGE);
		CHECK_U64(extent.offset % PAGE, 0);
		CHECK(own.length == 0 || (own.offset >= from && own.offset + own.length <= to));
		CHECK(own.length == 0 ? to - from < 2 * PAGE : own.offset - from < PAGE);
		CHECK_U64(dataset_unit_at(ds, extent.entry, from).v, unit.v);
		CHECK_U64(dataset_unit_at(ds, extent.entry, to - 1).v, unit.v);
		CHECK_U64(dataset_unit_entry(ds, unit).v, extent.entry.v);
		end = to;
	}
	CHECK_U64(end, x->offset + x->length);
}

/* Against all records, one after the other. */
static void check_offset(const struct dataset *ds, const struct plain *plain, uint32_t n, uint32_t file,
			 uint64_t offset)
{
	const struct unit_map *map = dataset_unit_map(ds)->of_records;
	struct unit_id here = UNIT_NONE, before = UNIT_NONE;
	uint64_t latest = 0;
	char name[8];

	for (uint32_t i = 0; i < n; i++) {
		uint32_t first = unit_first(map, (struct sample_id){ i }).v;
		uint32_t count = unit_count(map, (struct sample_id){ i });

		for (uint32_t k = 0; plain[i].file == file && k < count; k++) {
			uint64_t from = plain[i].offset + k * (uint64_t)UNIT_BYTES;
			uint64_t end = k + 1 < count ? from + UNIT_BYTES
						     : plain[i].offset + plain[i].length;

			if (from <= offset && offset < end)
				here.v = first + k;
			if (from - from % PAGE <= offset && from >= latest) {
				before.v = first + k;
				latest = from;
			}
		}
	}
	snprintf(name, sizeof(name), "f%u", file);
	CHECK_U64(at(ds, name, offset).v, here.v);
	CHECK_U64(dataset_unit_before(ds, kit_find(ds, name), offset).v, before.v);
}

static void tables_of_any_shape(void)
{
	static struct plain plain[FILES * RECORDS_EACH];
	uint64_t seed = check_seed(), size[FILES];
	unsigned n_cut = 0;

	for (int round = 0; round < 12; round++) {
		AUTO_FREE char *root = NULL;
		uint32_t n = make_plain(&seed, plain, size);
		struct dataset *ds = open_plain(plain, n, size, &root);
		int rc = dataset_cut_records(ds, PAGE, UINT64_MAX);

		CHECK(rc == 0 || rc == -ENOTSUP || rc == -ENODATA);
		for (uint32_t i = 0; rc == 0 && i < n; i++)
			if (is_cut(ds, plain[i].file))
				check_record(ds, &plain[i], i);
		for (uint32_t i = 0; rc == 0 && i < 500; i++) {
			uint32_t f = (uint32_t)check_rand_below(&seed, FILES);

			if (is_cut(ds, f))
				check_offset(ds, plain, n, f, check_rand_below(&seed, size[f] + 9000));
		}
		n_cut += rc == 0;
		dataset_free(ds);
	}
	CHECK(n_cut > 4);
}

static const struct check_test tests[] = {
	{ "records_of_larger_files_are_units", records_of_larger_files_are_units },
	{ "extents_end_with_the_file", extents_end_with_the_file },
	{ "what_cannot_be_cut_stays_as_it_was", what_cannot_be_cut_stays_as_it_was },
	{ "tables_of_any_shape", tables_of_any_shape },
};

CHECK_MAIN(tests)
