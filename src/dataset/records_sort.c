/* SPDX-License-Identifier: Apache-2.0 */
/* Records that are numbered to and fro within a file. Offsets rise within a run, and two
 * runs may reach into each other though no record does: 0, 20 and then 10 of one file. Offsets
 * could not be searched in such runs, so the runs are made anew here: a run ends where another
 * record of the file lies in between. That takes a sort of all records, which is why it is done
 * only when it must be. Pure but for the allocations. */
#include <errno.h>

#include "dataset_priv.h"

struct item {
	uint64_t offset, length;
	uint32_t slot, number;
};

static int item_cmp(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	if (x->slot != y->slot)
		return x->slot < y->slot ? -1 : 1;
	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	if (x->length != y->length)
		return x->length < y->length ? -1 : 1;
	return (x->number > y->number) - (x->number < y->number);
}

/* Which records follow the one before them in number and in the file: *ret, a byte each. -EEXIST:
 * records overlap. */
static int find_runs(const struct records *r, uint8_t **ret, uint32_t *ret_slot)
{
	uint64_t n = records_count(r);
	AUTO_FREE struct item *items = NULL;
	AUTO_FREE uint8_t *follows = NULL;

	if (n > RECORDS_TANGLED_MAX)
		return -E2BIG;
	items = reallocarray(NULL, n, sizeof(*items));
	follows = calloc(n, 1);
	if (!items || !follows)
		return -ENOMEM;
	for (uint64_t i = 0; i < n; i++) {
		struct format_range range;

		records_locate(r, (uint32_t)i, &items[i].slot, &range);
		items[i].offset = range.offset;
		items[i].length = range.length;
		items[i].number = (uint32_t)i;
	}
	qsort(items, n, sizeof(*items), item_cmp);
	for (uint64_t i = 1; i < n; i++) {
		const struct item *a = &items[i - 1], *b = &items[i];

		if (a->slot != b->slot)
			continue;
		*ret_slot = b->slot;
		if (b->offset - a->offset < a->length)
			return -EEXIST;
		follows[b->number] = b->number == a->number + 1;
	}
	*ret = TAKE(follows);
	return 0;
}

static int add_run(const struct records *r, const struct run *s, const uint8_t *follows,
		       struct records_part *p)
{
	int rc = 0;

	for (uint64_t i = s->first; i < s->first + s->count && rc == 0; i++) {
		struct format_range range;
		uint32_t slot;

		records_locate(r, (uint32_t)i, &slot, &range);
		if (s->kind == RECORDS_WHOLE) {
			rc = records_part_whole(p, slot);
			continue;
		}
		if (i == s->first || !follows[i])
			rc = records_part_file(p, slot, &s->identity);
		if (rc == 0)
			rc = records_part_add(p, &range, 1);
	}
	return rc;
}

int records_untangle(const struct records *r, struct records_part *ret, uint32_t *ret_slot)
{
	AUTO_FREE uint8_t *follows = NULL;
	int rc = 0;

	for (uint32_t i = 0; i < r->n_runs; i++)
		if (r->run[i].kind == RECORDS_ROWS)
			return -EEXIST; /* no list has rows */
	rc = find_runs(r, &follows, ret_slot);
	for (uint32_t i = 0; i < r->n_runs && rc == 0; i++)
		rc = add_run(r, &r->run[i], follows, ret);
	return rc;
}
