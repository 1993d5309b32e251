/* SPDX-License-Identifier: Apache-2.0 */
/* The table of records in use: from a number to the bytes and back.
 *
 *   header | runs, by number | their numbers, by file and offset | data
 *
 * Numbers are found in the runs, whose first records rise, offsets in the list by file; within
 * a run an affine one computes, a table is searched. The table comes from the snapshot and may
 * be anybody's bytes: whatever passed records_is_valid may be used without further checks, nothing
 * else may. Immutable, any thread. */
#include <string.h>

#include "dataset_priv.h"

_Static_assert(sizeof(struct run) == 104, "runs are used as the snapshot has them");

const char *const records_kind_names[] = { "whole", "affine", "table", "rows", NULL };

#define HEADER_BYTES 16u

static uint64_t padded(uint64_t bytes)
{
	return ALIGN_UP(bytes, 8);
}

bool records_place(struct records *r, void *blob, uint64_t bytes)
{
	uint64_t n, front;

	*r = (struct records){ .blob = blob, .blob_bytes = bytes };
	if (bytes < HEADER_BYTES)
		return false;
	memcpy(&r->n_runs, r->blob, 4);
	memcpy(&r->data_bytes, r->blob + 8, 8);
	n = r->n_runs;
	front = HEADER_BYTES + n * sizeof(struct run) + padded(4 * n);
	if (n == 0 || front > bytes || r->data_bytes != bytes - front || r->data_bytes % 8 != 0)
		return false;
	r->run = (struct run *)(r->blob + HEADER_BYTES);
	r->by_file = (uint32_t *)(r->run + n);
	r->data = r->blob + front;
	return true;
}

void records_fini(struct records *r)
{
	free(r->memory);
	*r = (struct records){ 0 };
}

static uint64_t table_number_at(const struct records *r, uint64_t at, unsigned width, uint64_t i)
{
	uint64_t wide;
	uint32_t narrow;

	if (width == 8) {
		memcpy(&wide, r->data + at + 8 * i, 8);
		return wide;
	}
	memcpy(&narrow, r->data + at + 4 * i, 4);
	return narrow;
}

/* Bytes of the starts and lengths of a run. */
static uint64_t offsets_bytes(const struct run *s)
{
	return s->has_gaps ? 2 * padded(s->units * s->width) : padded((s->units + 1) * s->width);
}

static uint64_t start_of(const struct records *r, const struct run *s, uint64_t unit)
{
	return table_number_at(r, s->data_at, s->width, unit);
}

static uint64_t length_of(const struct records *r, const struct run *s, uint64_t unit)
{
	if (s->has_gaps)
		return table_number_at(r, s->data_at + padded(s->units * s->width), s->width, unit);
	return start_of(r, s, unit + 1) - start_of(r, s, unit);
}

/* Rows before this unit. */
static uint64_t rows_before(const struct records *r, const struct run *s, uint64_t unit)
{
	return table_number_at(r, s->data_at + offsets_bytes(s), 4, unit);
}

uint64_t records_run_data(const struct run *s)
{
	if (s->kind != RECORDS_TABLE && s->kind != RECORDS_ROWS)
		return 0;
	return offsets_bytes(s) + (s->kind == RECORDS_ROWS ? padded(4 * (s->units + 1)) : 0);
}

/* The starts rise, nothing reaches into what is behind it, the ends are those of the run. */
static bool has_valid_offsets(const struct records *r, const struct run *s)
{
	uint64_t bytes = s->end - s->offset, last = 0;

	if (start_of(r, s, 0) != 0)
		return false;
	if (!s->has_gaps) {
		for (uint64_t i = 1; i <= s->units; i++) {
			uint64_t start = start_of(r, s, i);

			if (start < last)
				return false;
			last = start;
		}
		return last == bytes;
	}
	for (uint64_t i = 0; i < s->units; i++) {
		uint64_t start = start_of(r, s, i), length = length_of(r, s, i);

		if (start < last || !(start <= bytes && length <= bytes - start))
			return false;
		last = start + length;
	}
	return last == bytes;
}

static bool has_valid_rows(const struct records *r, const struct run *s)
{
	if (rows_before(r, s, 0) != 0 || rows_before(r, s, s->units) != s->count)
		return false;
	for (uint64_t i = 0; i < s->units; i++)
		if (rows_before(r, s, i) >= rows_before(r, s, i + 1))
			return false;
	return true;
}

static bool is_valid_affine(const struct run *s)
{
	uint64_t last, end;

	return s->units == s->count && s->length > 0 && s->stride >= s->length &&
	       !__builtin_mul_overflow(s->count - 1, s->stride, &last) &&
	       !__builtin_add_overflow(s->offset, last, &last) &&
	       !__builtin_add_overflow(last, s->length, &end) && end == s->end;
}

static bool is_valid_table(const struct records *r, const struct run *s, uint64_t data_at)
{
	bool has_rows = s->kind == RECORDS_ROWS;

	if ((s->width != 4 && s->width != 8) || s->has_gaps > 1 || s->data_at != data_at ||
	    s->units == 0 || s->units > s->count || (!has_rows && s->units != s->count) ||
	    s->count > RECORDS_MAX || records_run_data(s) > r->data_bytes - data_at)
		return false;
	return has_valid_offsets(r, s) && (!has_rows || has_valid_rows(r, s));
}

static bool is_file_of(const struct table *t, uint64_t slot)
{
	return slot < t->n_entries && !table_is_dir(t, (uint32_t)slot);
}

static bool is_valid_whole(const struct run *s, const struct table *t)
{
	if (s->offset != 0 || s->end != 0 || s->units != s->count || s->count > t->n_entries)
		return false;
	for (uint64_t i = 0; i < s->count; i++)
		if (!is_file_of(t, (uint64_t)s->slot + i))
			return false;
	return true;
}

static bool is_valid_run(const struct records *r, const struct run *s,
			     const struct table *t, uint64_t data_at)
{
	if (s->count == 0 || s->kind >= RECORDS_KINDS || s->zero != 0)
		return false;
	if (s->kind == RECORDS_WHOLE)
		return is_valid_whole(s, t);
	if (!is_file_of(t, s->slot) || s->offset > s->end || s->end > s->identity.size)
		return false;
	return s->kind == RECORDS_AFFINE ? is_valid_affine(s) : is_valid_table(r, s, data_at);
}

bool records_are_apart(const struct run *a, const struct run *b)
{
	uint64_t slots = a->kind == RECORDS_WHOLE ? a->count : 1;

	if (a->slot + slots <= b->slot)
		return true;
	return a->slot == b->slot && a->kind != RECORDS_WHOLE && b->kind != RECORDS_WHOLE &&
	       a->end <= b->offset &&
	       (a->offset < b->offset || a->end < b->end || a->first < b->first);
}

static bool has_valid_order(const struct records *r)
{
	for (uint32_t i = 0; i < r->n_runs; i++)
		if (r->by_file[i] >= r->n_runs)
			return false;
	/* Strictly apart, so no number is there twice and none is missing. */
	for (uint32_t i = 1; i < r->n_runs; i++)
		if (!records_are_apart(&r->run[r->by_file[i - 1]], &r->run[r->by_file[i]]))
			return false;
	return true;
}

bool records_is_valid(const struct records *r, const struct table *t)
{
	uint64_t first = 0, data_at = 0;

	for (uint32_t i = 0; i < r->n_runs; i++) {
		const struct run *s = &r->run[i];

		if (s->first != first || !is_valid_run(r, s, t, data_at) ||
		    s->count > RECORDS_MAX - first)
			return false;
		first += s->count;
		data_at += records_run_data(s);
	}
	return data_at == r->data_bytes && has_valid_order(r);
}

uint64_t records_count(const struct records *r)
{
	const struct run *last;

	if (!r->blob)
		return 0;
	last = &r->run[r->n_runs - 1];
	return last->first + last->count;
}

/* A number of each unit of a run, which never falls. */
typedef uint64_t number_of_fn(const struct records *r, const struct run *s, uint64_t unit);

/* The last unit whose number is no larger than this; the first one's is 0. */
static uint64_t last_unit(const struct records *r, const struct run *s, number_of_fn *number_of,
			  uint64_t most)
{
	uint64_t low = 0, high = s->units;

	while (high - low > 1) {
		uint64_t middle = low + (high - low) / 2;

		if (number_of(r, s, middle) <= most)
			low = middle;
		else
			high = middle;
	}
	return low;
}

static void locate_in(const struct records *r, const struct run *s, uint64_t i,
		      struct format_range *ret)
{
	if (s->kind == RECORDS_WHOLE) {
		*ret = (struct format_range){ 0, UINT64_MAX };
		return;
	}
	if (s->kind == RECORDS_AFFINE) {
		*ret = (struct format_range){ s->offset + i * s->stride, s->length };
		return;
	}
	if (s->kind == RECORDS_ROWS)
		i = last_unit(r, s, rows_before, i);
	*ret = (struct format_range){ s->offset + start_of(r, s, i), length_of(r, s, i) };
}

void records_locate(const struct records *r, uint32_t record, uint32_t *ret_slot,
		    struct format_range *ret)
{
	uint32_t low = 0, high = r->n_runs;
	const struct run *s;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (r->run[middle].first <= record)
			low = middle;
		else
			high = middle;
	}
	s = &r->run[low];
	*ret_slot = s->slot + (s->kind == RECORDS_WHOLE ? (uint32_t)(record - s->first) : 0);
	locate_in(r, s, record - s->first, ret);
}

/* The last run by file that begins at or before this place; NULL: none. */
static const struct run *run_before(const struct records *r, uint32_t slot, uint64_t offset)
{
	uint32_t low = 0, high = r->n_runs;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		const struct run *s = &r->run[r->by_file[middle]];

		if (s->slot < slot || (s->slot == slot && s->offset <= offset))
			low = middle + 1;
		else
			high = middle;
	}
	return low == 0 ? NULL : &r->run[r->by_file[low - 1]];
}

static bool has_file(const struct run *s, uint32_t slot)
{
	return s && slot - s->slot < (s->kind == RECORDS_WHOLE ? s->count : 1);
}

const struct run *records_of_file(const struct records *r, uint32_t slot)
{
	const struct run *s = run_before(r, slot, UINT64_MAX);

	return has_file(s, slot) ? s : NULL;
}

uint32_t records_at(const struct records *r, uint32_t slot, uint64_t offset)
{
	const struct run *s = run_before(r, slot, offset);
	uint64_t at, unit;

	if (!has_file(s, slot))
		return UINT32_MAX;
	if (s->kind == RECORDS_WHOLE)
		return (uint32_t)(s->first + (slot - s->slot));
	if (offset >= s->end)
		return UINT32_MAX;
	at = offset - s->offset;
	if (s->kind == RECORDS_AFFINE)
		return at % s->stride < s->length ? (uint32_t)(s->first + at / s->stride)
						  : UINT32_MAX;
	unit = last_unit(r, s, start_of, at);
	if (at - start_of(r, s, unit) >= length_of(r, s, unit))
		return UINT32_MAX;
	return (uint32_t)(s->first + (s->kind == RECORDS_ROWS ? rows_before(r, s, unit) : unit));
}
