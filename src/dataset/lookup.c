/* SPDX-License-Identifier: Apache-2.0 */
/* Names and numbers of an open dataset. All of this is immutable once the dataset is open, so there
 * is no lock: the FUSE threads look names up and list directories side by side. A lookup is a
 * binary search among the children of a directory, which are kept sorted by bytes (the kernel asks
 * by name, and a hash table would cost 8 bytes an entry). Must never touch attributes: attr.c has
 * those, under locks. Any thread. */
#include <string.h>

#include "dataset_priv.h"

enum entry_kind dataset_kind(const struct dataset *ds, struct entry_id e)
{
	return table_is_dir(&ds->t, dataset_slot(ds, e)) ? ENTRY_KIND_DIR : ENTRY_KIND_FILE;
}

struct entry_id dataset_parent(const struct dataset *ds, struct entry_id e)
{
	return dataset_entry_of(ds, ds->t.parent[dataset_slot(ds, e)]);
}

const char *dataset_name(const struct dataset *ds, struct entry_id e, size_t *ret_len)
{
	uint32_t len;
	const char *name = table_name(&ds->t, dataset_slot(ds, e), &len);

	*ret_len = len;
	return name;
}

int dataset_path(const struct dataset *ds, struct entry_id e, char *out, size_t size)
{
	return table_path(&ds->t, dataset_slot(ds, e), out, size);
}

struct entry_id dataset_lookup(const struct dataset *ds, struct entry_id dir, const char *name,
			       size_t len)
{
	uint32_t slot = table_lookup(&ds->t, dataset_slot(ds, dir), name, len);

	return slot == UINT32_MAX ? ENTRY_NONE : (struct entry_id){ slot };
}

struct entry_id dataset_resolve(const struct dataset *ds, const char *path, size_t len)
{
	uint32_t slot = table_resolve(&ds->t, path, len);

	return slot == UINT32_MAX ? ENTRY_NONE : dataset_entry_of(ds, slot);
}

uint32_t dataset_n_children(const struct dataset *ds, struct entry_id dir)
{
	uint32_t slot = dataset_slot(ds, dir), no;

	if (!table_is_dir(&ds->t, slot))
		return 0;
	no = table_dir_no(&ds->t, slot);
	return ds->t.dir_first[no + 1] - ds->t.dir_first[no];
}

struct entry_id dataset_child(const struct dataset *ds, struct entry_id dir, uint32_t i)
{
	uint32_t no = table_dir_no(&ds->t, dataset_slot(ds, dir));

	return (struct entry_id){ ds->t.child[ds->t.dir_first[no] + i] };
}
