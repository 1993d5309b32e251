/* SPDX-License-Identifier: Apache-2.0 */
/* Which files only describe others: index.json beside the shards that it lists, NAME.idx beside NAME
 * or NAME.bin. A name alone says nothing, as any dataset may have files of such names: a container
 * with records must be there. Must be right about every file that a job reads as a sample, for it
 * would shift the numbers of all others. Pure, any thread. */
#include <string.h>

#include "dataset_priv.h"

static bool is_name(const char *name, size_t len, const char *other)
{
	return len == strlen(other) && memcmp(name, other, len) == 0;
}

/* Those that are of a directory of containers, not of one. */
static bool is_of_directory(const char *name, size_t len)
{
	return is_name(name, len, "index.json") || is_name(name, len, "_SUCCESS") ||
	       is_name(name, len, "_metadata") || is_name(name, len, "_common_metadata");
}

static bool has_records_beside(const struct records *r, const struct table *t, uint32_t dir)
{
	uint32_t no = table_dir_no(t, dir);

	for (uint32_t i = t->dir_first[no]; i < t->dir_first[no + 1]; i++)
		if (records_of_file(r, t->child[i]))
			return true;
	return false;
}

/* The first child of the directory whose name is not before this one. */
static uint32_t first_from(const struct table *t, uint32_t no, const char *name, size_t len)
{
	uint32_t low = t->dir_first[no], high = t->dir_first[no + 1], middle_len;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		const char *middle_name = table_name(t, t->child[middle], &middle_len);

		if (name_cmp(middle_name, middle_len, name, len) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Whether a container in this directory has the name, or has it without its extension. */
static bool has_container(const struct records *r, const struct table *t, uint32_t dir,
			  const char *name, size_t len)
{
	uint32_t no = table_dir_no(t, dir), same = table_lookup(t, dir, name, len);
	char dotted[DATASET_NAME_MAX + 1];

	if (same != UINT32_MAX && records_of_file(r, same))
		return true;
	memcpy(dotted, name, len);
	dotted[len++] = '.';
	for (uint32_t i = first_from(t, no, dotted, len); i < t->dir_first[no + 1]; i++) {
		uint32_t other_len;
		const char *other = table_name(t, t->child[i], &other_len);

		if (other_len < len || memcmp(other, dotted, len) != 0)
			return false;
		if (!memchr(other + len, '.', other_len - len) && records_of_file(r, t->child[i]))
			return true;
	}
	return false;
}

bool records_is_sidecar(const struct records *r, const struct table *t, uint32_t slot)
{
	uint32_t len, dir = t->parent[slot];
	const char *name = table_name(t, slot, &len), *dot;

	if (!format_is_sidecar(name, len) || records_of_file(r, slot))
		return false;
	if (is_of_directory(name, len))
		return has_records_beside(r, t, dir);
	dot = memrchr(name, '.', len);
	if (!dot || dot == name)
		return false;
	if (has_container(r, t, dir, name, (size_t)(dot - name)))
		return true;
	/* Checksums of Hadoop: .NAME.crc */
	return name[0] == '.' && dot > name + 1 &&
	       has_container(r, t, dir, name + 1, (size_t)(dot - name) - 1);
}
