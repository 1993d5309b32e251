/* SPDX-License-Identifier: Apache-2.0 */
/* The finished index: one array per attribute, all in one allocation, in the order of FORMAT.md, so
 * that a snapshot is written and read in one piece and a million entries cost 55 bytes each besides
 * their names.
 *
 *   slots   0 .. n_samples | .. directories (pre-order) | .. other files | root
 *
 * Directories come in pre-order, so a parent has a smaller slot than its child: table_is_valid
 * relies on it to refuse cycles. Whatever passed table_is_valid may be used without further checks;
 * nothing else may. Immutable but for attributes, which attr.c guards. Any thread. */
#include <errno.h>
#include <string.h>

#include "dataset_priv.h"

/* Attributes are read while they are replaced (attr.c): who sees one that is new sees as well what
 * was done before it was stored. */
#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define STORE(x, value) __atomic_store_n(&(x), (value), __ATOMIC_RELEASE)

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	       "snapshots are little-endian and used as they are");

uint64_t table_blob_bytes(const struct table *t)
{
	uint64_t n = (uint64_t)t->n_samples + t->n_dirs + t->n_others;
	uint64_t d = t->n_dirs;

	return (n + 1) * (4 * 8 + 3 * 4 + 2 + 1) + (n + 2) * 4 + n * 4 + (d + 2) * 4 + (d + 1) * 4 +
	       t->names_bytes;
}

void table_place(struct table *t, void *blob)
{
	size_t n = (size_t)t->n_samples + t->n_dirs + t->n_others, d = t->n_dirs;

	t->n_entries = (uint32_t)n;
	t->blob = blob;
	t->size = blob;
	t->ino = t->size + n + 1;
	t->mtime_ns = (int64_t *)(t->ino + n + 1);
	t->ctime_ns = t->mtime_ns + n + 1;
	t->uid = (uint32_t *)(t->ctime_ns + n + 1);
	t->gid = t->uid + n + 1;
	t->parent = t->gid + n + 1;
	t->name_off = t->parent + n + 1;
	t->child = t->name_off + n + 2;
	t->dir_first = t->child + n;
	t->dir_skipped = t->dir_first + d + 2;
	t->mode = (uint16_t *)(t->dir_skipped + d + 1);
	t->flags = (uint8_t *)(t->mode + n + 1);
	t->names = (char *)(t->flags + n + 1);
}

int table_alloc(struct table *t)
{
	t->memory = malloc(table_blob_bytes(t));
	if (!t->memory)
		return -ENOMEM;
	table_place(t, t->memory);
	return 0;
}

void table_fini(struct table *t)
{
	free(t->memory);
	*t = (struct table){ 0 };
}

int name_cmp(const char *a, size_t a_len, const char *b, size_t b_len)
{
	int order = memcmp(a, b, MIN(a_len, b_len));

	return order ? order : (a_len > b_len) - (a_len < b_len);
}

static bool is_name(const char *name, uint32_t len)
{
	if (len == 0 || len > DATASET_NAME_MAX || memchr(name, '/', len) || memchr(name, '\0', len))
		return false;
	return !(name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')));
}

static bool has_valid_names(const struct table *t)
{
	uint32_t n = t->n_entries, len;

	if (t->name_off[0] != 0 || t->name_off[n] != t->names_bytes ||
	    t->name_off[n + 1] != t->names_bytes)
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (t->name_off[i] > t->name_off[i + 1])
			return false;
	for (uint32_t i = 0; i < n; i++) {
		const char *name = table_name(t, i, &len);

		if (!is_name(name, len))
			return false;
	}
	return true;
}

static bool has_valid_entries(const struct table *t)
{
	uint32_t root = t->n_entries;

	if (t->parent[root] != root)
		return false;
	for (uint32_t i = 0; i <= root; i++) {
		bool is_dir = table_is_dir(t, i);

		if (!table_is_dir(t, t->parent[i]) || t->flags[i] & ~SLOT_FLAGS_ALL)
			return false;
		if (is_dir ? !S_ISDIR(t->mode[i]) : !S_ISREG(t->mode[i]))
			return false;
		if (is_dir && i != root && t->parent[i] != root && t->parent[i] >= i)
			return false;
	}
	return true;
}

/* Each child names this directory as its parent and the names rise strictly, so no child is there
 * twice; the ranges hold as many children as there are entries, so none is missing. */
static bool has_valid_children(const struct table *t)
{
	if (t->dir_first[0] != 0 || t->dir_first[t->n_dirs + 1] != t->n_entries)
		return false;
	for (uint32_t d = 0; d <= t->n_dirs; d++)
		if (t->dir_first[d] > t->dir_first[d + 1])
			return false;
	for (uint32_t d = 0; d <= t->n_dirs; d++) {
		uint32_t slot = table_dir_slot(t, d), last_len = 0, len;
		const char *last = NULL;

		for (uint32_t i = t->dir_first[d]; i < t->dir_first[d + 1]; i++) {
			uint32_t c = t->child[i];
			const char *name;

			if (c >= t->n_entries || t->parent[c] != slot)
				return false;
			name = table_name(t, c, &len);
			if (last && name_cmp(last, last_len, name, len) >= 0)
				return false;
			last = name;
			last_len = len;
		}
	}
	return true;
}

bool table_is_valid(const struct table *t)
{
	return has_valid_names(t) && has_valid_entries(t) && has_valid_children(t);
}

uint64_t table_get_size(const struct table *t, uint32_t slot)
{
	return LOAD(t->size[slot]);
}

void table_get_attr(const struct table *t, uint32_t slot, struct slot_attr *ret)
{
	*ret = (struct slot_attr){ .size = LOAD(t->size[slot]),
				   .ino = LOAD(t->ino[slot]),
				   .mtime_ns = LOAD(t->mtime_ns[slot]),
				   .ctime_ns = LOAD(t->ctime_ns[slot]),
				   .uid = LOAD(t->uid[slot]),
				   .gid = LOAD(t->gid[slot]),
				   .mode = LOAD(t->mode[slot]) };
}

void table_set_attr(struct table *t, uint32_t slot, const struct slot_attr *attr)
{
	STORE(t->size[slot], attr->size);
	STORE(t->ino[slot], attr->ino);
	STORE(t->mtime_ns[slot], attr->mtime_ns);
	STORE(t->ctime_ns[slot], attr->ctime_ns);
	STORE(t->uid[slot], attr->uid);
	STORE(t->gid[slot], attr->gid);
	STORE(t->mode[slot], attr->mode);
}

uint32_t table_lookup(const struct table *t, uint32_t dir, const char *name, size_t len)
{
	uint32_t d, low, high, middle_len;

	if (!table_is_dir(t, dir))
		return UINT32_MAX;
	d = table_dir_no(t, dir);
	low = t->dir_first[d];
	high = t->dir_first[d + 1];
	while (low < high) {
		uint32_t middle = low + (high - low) / 2, slot = t->child[middle];
		const char *middle_name = table_name(t, slot, &middle_len);
		int order = name_cmp(middle_name, middle_len, name, len);

		if (order == 0)
			return slot;
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return UINT32_MAX;
}

int table_path(const struct table *t, uint32_t slot, char *out, size_t size)
{
	uint32_t len;
	size_t total = 0;
	char *at;

	if (slot == t->n_entries) {
		if (size < sizeof("."))
			return -ENAMETOOLONG;
		memcpy(out, ".", sizeof("."));
		return 0;
	}
	for (uint32_t s = slot; s != t->n_entries; s = t->parent[s]) {
		table_name(t, s, &len);
		total += len + 1;
	}
	if (total > size)
		return -ENAMETOOLONG;
	at = out + total;
	*--at = '\0';
	for (uint32_t s = slot; s != t->n_entries; s = t->parent[s]) {
		const char *name = table_name(t, s, &len);

		at -= len;
		memcpy(at, name, len);
		if (at > out)
			*--at = '/';
	}
	return 0;
}
