/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does any byte string crash the snapshot parser, or the index that it lets through? The input is
 * parsed as it is, and once more with magic, size and checksum made right, since nothing would get
 * past the checksum otherwise. What is accepted is used: every name is looked up by its path, and
 * every record by its number and its place.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "clairfs/dataset/records.h"
#include "src/dataset/dataset_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Each record is in a file, and its first byte is that of it, or of the first row of its extent. */
static void use_records(const struct dataset *ds)
{
	uint32_t n = dataset_n_records(ds);

	for (uint32_t i = 0; i < n && i < 1000; i++) {
		struct dataset_extent x = dataset_locate(ds, (struct record_no){ i });
		struct record_no at = dataset_record_at(ds, x.entry, x.offset);

		if (dataset_kind(ds, x.entry) != ENTRY_KIND_FILE || x.offset + x.length < x.offset)
			abort();
		if (x.length > 0 && at.v > i)
			abort();
	}
}

static void use(struct snapshot *snap)
{
	struct dataset *ds = NULL;
	char path[PATH_MAX];
	struct stat st;

	if (dataset_of_snapshot(snap, -1, &ds) < 0)
		abort();
	for (uint32_t i = 0; i < dataset_n_entries(ds); i++) {
		struct entry_id e = { i };

		dataset_stat(ds, e, &st);
		if (dataset_path(ds, e, path, sizeof(path)) == 0 &&
		    !entry_eq(dataset_resolve(ds, path, strlen(path)), e))
			abort();
	}
	for (uint32_t i = 0; i < dataset_n_children(ds, ENTRY_ROOT); i++)
		if (!entry_eq(dataset_parent(ds, dataset_child(ds, ENTRY_ROOT, i)), ENTRY_ROOT))
			abort();
	use_records(ds);
	dataset_free(ds);
}

static void parse(const uint8_t *data, size_t size, bool is_repaired)
{
	uint8_t *copy = malloc(size + 1);
	struct snapshot snap;
	uint64_t file_size = size, sum;

	if (!copy)
		abort();
	if (size > 0)
		memcpy(copy, data, size);
	if (is_repaired && size >= 40) {
		memcpy(copy, "CLAIRDIX", 8);
		memcpy(copy + 32, &file_size, 8);
		sum = XXH3_64bits(copy + 16, size - 16);
		memcpy(copy + 8, &sum, 8);
	}
	if (snapshot_parse(copy, size, NULL, &snap) == 0)
		use(&snap);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	parse(data, size, false);
	parse(data, size, true);
	return 0;
}
