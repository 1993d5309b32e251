/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does any byte string crash the snapshot parser, or the index that it lets through? The input is
 * parsed as it is, and once more with magic, size and checksum made right, since nothing would get
 * past the checksum otherwise. What is accepted is used: every name is looked up by its path.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "src/dataset/dataset_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
