/* SPDX-License-Identifier: Apache-2.0 */
/* Making a table of records. What is known of a file is put into a part, one record after another;
 * each run of records that rise becomes a run, in the smallest form that holds it: computed if
 * all are alike, without lengths if they follow each other, in 4 bytes a number if that suffices.
 * Parts of files that were read side by side are then joined in the order of their numbers. Pure
 * but for the allocations. One thread per part. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "dataset_priv.h"

#define HEADER_BYTES 16u

/* Makes room for one more item of an array. */
static int grow(void **items, uint64_t n, uint64_t *capacity, size_t size)
{
	uint64_t more = *capacity ? *capacity * 2 : 16;
	void *bigger;

	if (n < *capacity)
		return 0;
	bigger = reallocarray(*items, more, size);
	if (!bigger)
		return -ENOMEM;
	*items = bigger;
	*capacity = more;
	return 0;
}

static int put_run(struct records_part *p, const struct run *s)
{
	uint32_t most = p->runs_max ? p->runs_max : RECORDS_RUNS_MAX;
	uint64_t capacity = p->capacity;
	void *items = p->run;
	int rc = p->n_runs >= most ? -E2BIG : grow(&items, p->n_runs, &capacity, sizeof(*s));

	if (rc < 0)
		return rc;
	p->run = items;
	p->capacity = (uint32_t)MIN(capacity, UINT32_MAX);
	p->run[p->n_runs++] = *s;
	return 0;
}

/* Room for the data of the next run, cleared. */
static uint8_t *part_reserve(struct records_part *p, uint64_t bytes)
{
	uint64_t capacity = MAX(p->data_capacity, 64);
	uint8_t *at;

	while (capacity - p->data_bytes < bytes)
		capacity *= 2;
	if (capacity != p->data_capacity) {
		uint8_t *bigger = realloc(p->data, capacity);

		if (!bigger)
			return NULL;
		p->data = bigger;
		p->data_capacity = capacity;
	}
	at = p->data + p->data_bytes;
	memset(at, 0, bytes);
	p->data_bytes += bytes;
	return at;
}

static void put_numbers(uint8_t *to, const uint64_t *numbers, uint64_t n, unsigned width)
{
	for (uint64_t i = 0; i < n; i++)
		memcpy(to + i * width, &numbers[i], width); /* little-endian: the low bytes first */
}

/* The table of the open run. */
static int put_table(struct records_part *p, struct run *s)
{
	uint64_t bytes = s->end - s->offset;
	uint8_t *to;

	s->width = bytes > UINT32_MAX ? 8 : 4;
	s->has_gaps = p->length != NULL;
	s->kind = p->rows ? RECORDS_ROWS : RECORDS_TABLE;
	s->stride = s->length = 0;
	s->data_at = p->data_bytes;
	to = part_reserve(p, records_run_data(s));
	if (!to)
		return -ENOMEM;
	put_numbers(to, p->start, p->n, s->width);
	if (s->has_gaps)
		put_numbers(to + ALIGN_UP(p->n * s->width, 8), p->length, p->n, s->width);
	else
		put_numbers(to + p->n * s->width, &bytes, 1, s->width);
	if (!p->rows)
		return 0;
	to += records_run_data(s) - ALIGN_UP(4 * (s->units + 1), 8);
	for (uint64_t i = 0, before = 0; i <= p->n; i++) {
		memcpy(to + 4 * i, &before, 4);
		before += i < p->n ? p->rows[i] : 0;
	}
	return 0;
}

static void forget_open(struct records_part *p)
{
	free(p->length);
	free(p->rows);
	p->length = p->rows = NULL;
	p->lengths_capacity = p->rows_capacity = 0;
	p->n = 0;
}

static int close_run(struct records_part *p)
{
	struct run *s = &p->open;
	int rc = 0;

	if (p->n == 0)
		return 0;
	s->units = p->n;
	s->data_at = 0;
	if (p->is_uniform && !p->rows) {
		s->kind = RECORDS_AFFINE;
		s->stride = p->n == 1 ? s->length : s->stride;
		s->width = s->has_gaps = 0;
	} else {
		rc = put_table(p, s);
	}
	if (rc == 0)
		rc = put_run(p, s);
	forget_open(p);
	return rc;
}

int records_part_file(struct records_part *p, uint32_t slot, const struct file_identity *identity)
{
	int rc = close_run(p);

	p->open = (struct run){ .slot = slot, .identity = *identity };
	return rc;
}

/* An array that so far followed from the starts. */
static int spell_out(uint64_t **array, uint64_t *capacity, uint64_t n)
{
	*array = calloc(MAX(n, 16), sizeof(**array));
	*capacity = *array ? MAX(n, 16) : 0;
	return *array ? 0 : -ENOMEM;
}

static int keep_length(struct records_part *p, uint64_t length, bool is_gap)
{
	void *items;
	int rc;

	if (!p->length && !is_gap)
		return 0;
	if (!p->length) {
		rc = spell_out(&p->length, &p->lengths_capacity, p->n);
		if (rc < 0)
			return rc;
		for (uint64_t i = 0; i < p->n; i++)
			p->length[i] = (i + 1 < p->n ? p->start[i + 1] : p->open.end - p->open.offset) -
				       p->start[i];
	}
	items = p->length;
	rc = grow(&items, p->n, &p->lengths_capacity, sizeof(*p->length));
	p->length = items;
	if (rc == 0)
		p->length[p->n] = length;
	return rc;
}

static int keep_rows(struct records_part *p, uint64_t rows)
{
	void *items;
	int rc;

	if (!p->rows && rows == 1)
		return 0;
	if (!p->rows) {
		rc = spell_out(&p->rows, &p->rows_capacity, p->n);
		if (rc < 0)
			return rc;
		for (uint64_t i = 0; i < p->n; i++)
			p->rows[i] = 1;
	}
	items = p->rows;
	rc = grow(&items, p->n, &p->rows_capacity, sizeof(*p->rows));
	p->rows = items;
	if (rc == 0)
		p->rows[p->n] = rows;
	return rc;
}

/* Whether the run is still one of equal records at equal distances. */
static bool stays_uniform(const struct records_part *p, const struct format_range *range)
{
	const struct run *s = &p->open;
	uint64_t start = range->offset - s->offset;

	if (!p->is_uniform || range->length != s->length)
		return false;
	return p->n == 1 || start - p->start[p->n - 1] == s->stride;
}

int records_part_add(struct records_part *p, const struct format_range *range, uint64_t rows)
{
	struct run *s = &p->open;
	void *items = p->start;
	uint64_t end;
	int rc = 0;

	if (rows == 0 || rows > RECORDS_MAX || s->count > RECORDS_MAX - rows ||
	    __builtin_add_overflow(range->offset, range->length, &end))
		return rows == 0 ? -EBADMSG : -EOVERFLOW;
	if (p->n > 0 && range->offset < s->end) {
		rc = close_run(p);
		s->count = 0;
	}
	if (p->n == 0) {
		s->offset = s->end = range->offset;
		s->length = range->length;
		s->count = 0;
		p->is_uniform = range->length > 0;
	} else {
		p->is_uniform = stays_uniform(p, range);
		if (p->n == 1)
			s->stride = range->offset - s->offset;
	}
	if (rc == 0)
		rc = grow(&items, p->n, &p->n_capacity, sizeof(*p->start));
	p->start = items;
	if (rc == 0)
		rc = keep_length(p, range->length, p->n > 0 && range->offset != s->end);
	if (rc == 0)
		rc = keep_rows(p, rows);
	if (rc < 0)
		return rc;
	p->start[p->n++] = range->offset - s->offset;
	s->count += rows;
	s->end = end;
	return 0;
}

int records_part_affine(struct records_part *p, const struct format_affine *a)
{
	struct run s = p->open;
	uint64_t last;
	int rc = close_run(p);

	if (rc < 0 || a->count == 0)
		return rc;
	if (a->length == 0 || a->stride < a->length || a->count > RECORDS_MAX ||
	    __builtin_mul_overflow(a->count - 1, a->stride, &last) ||
	    __builtin_add_overflow(last, a->offset, &last) ||
	    __builtin_add_overflow(last, a->length, &s.end))
		return -EOVERFLOW;
	s.kind = RECORDS_AFFINE;
	s.count = s.units = a->count;
	s.offset = a->offset;
	s.stride = a->stride;
	s.length = a->length;
	s.width = s.has_gaps = 0;
	return put_run(p, &s);
}

int records_part_whole(struct records_part *p, uint32_t slot)
{
	struct run s = { .kind = RECORDS_WHOLE, .slot = slot, .count = 1, .units = 1 };
	struct run *last;
	int rc = close_run(p);

	if (rc < 0)
		return rc;
	last = p->n_runs ? &p->run[p->n_runs - 1] : NULL;
	if (!last || last->kind != RECORDS_WHOLE || last->slot + last->count != slot)
		return put_run(p, &s);
	last->units = ++last->count;
	return 0;
}

uint64_t records_part_count(const struct records_part *p)
{
	uint64_t n = p->n > 0 ? p->open.count : 0;

	for (uint32_t i = 0; i < p->n_runs; i++)
		n += p->run[i].count;
	return n;
}

void records_part_clear(struct records_part *p)
{
	forget_open(p);
	p->n_runs = 0;
	p->data_bytes = 0;
}

void records_part_fini(struct records_part *p)
{
	forget_open(p);
	free(p->start);
	free(p->run);
	free(p->data);
	*p = (struct records_part){ 0 };
}

static int by_file_cmp(const void *a, const void *b, void *arg)
{
	const struct run *all = arg, *x = &all[*(const uint32_t *)a], *y = &all[*(const uint32_t *)b];

	if (x->slot != y->slot)
		return x->slot < y->slot ? -1 : 1;
	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	if (x->end != y->end)
		return x->end < y->end ? -1 : 1;
	return (x->first > y->first) - (x->first < y->first);
}

/* The list by file of these runs. -EEXIST: some reach into each other. */
static int sort_by_file(struct run *run, uint32_t n, uint32_t *by_file, uint32_t *ret_slot)
{
	for (uint32_t i = 0; i < n; i++)
		by_file[i] = i;
	qsort_r(by_file, n, sizeof(*by_file), by_file_cmp, run);
	for (uint32_t i = 1; i < n; i++) {
		if (records_are_apart(&run[by_file[i - 1]], &run[by_file[i]]))
			continue;
		*ret_slot = run[by_file[i]].slot;
		return -EEXIST;
	}
	return 0;
}

/* An empty table of these counts. */
static int alloc(struct records *r, uint64_t n_runs, uint64_t data_bytes)
{
	uint64_t bytes = HEADER_BYTES + n_runs * sizeof(struct run) +
			 ALIGN_UP(4 * n_runs, 8) + data_bytes;
	uint32_t n = (uint32_t)n_runs;
	uint8_t *blob;

	if (n_runs > UINT32_MAX)
		return -EOVERFLOW;
	blob = malloc(bytes);
	if (!blob)
		return -ENOMEM;
	memset(blob, 0, bytes - data_bytes);
	memcpy(blob, &n, sizeof(n));
	memcpy(blob + 8, &data_bytes, 8);
	if (!records_place(r, blob, bytes)) {
		free(blob);
		return -ENODATA;
	}
	r->memory = blob;
	return 0;
}

/* Appends a part, with its numbers behind those before. */
static int append(struct records *r, const struct records_part *p, uint64_t *n, uint64_t *data_at,
		  uint64_t *count)
{
	for (uint32_t i = 0; i < p->n_runs; i++) {
		struct run *s = &r->run[(*n)++];

		*s = p->run[i];
		s->first = *count;
		if (records_run_data(s) > 0)
			s->data_at += *data_at;
		if (s->count > RECORDS_MAX - *count)
			return -EOVERFLOW;
		*count += s->count;
	}
	if (p->data_bytes > 0)
		memcpy(r->data + *data_at, p->data, p->data_bytes);
	*data_at += p->data_bytes;
	return 0;
}

static int join(struct records_part *parts, size_t n, struct records *ret, uint32_t *ret_slot)
{
	uint64_t runs = 0, bytes = 0, at = 0, data_at = 0, count = 0;
	int rc = 0;

	*ret_slot = UINT32_MAX;
	for (size_t i = 0; i < n && rc == 0; i++) {
		rc = close_run(&parts[i]);
		runs += parts[i].n_runs;
		bytes += parts[i].data_bytes;
	}
	if (rc == 0)
		rc = alloc(ret, runs, bytes);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < n && rc == 0; i++) {
		rc = append(ret, &parts[i], &at, &data_at, &count);
		records_part_fini(&parts[i]);
	}
	return rc < 0 ? rc : sort_by_file(ret->run, ret->n_runs, ret->by_file, ret_slot);
}

/* A table whose runs reach into each other as a part whose runs do not. */
static int untangle(struct records *take_tangled, struct records_part *ret, uint32_t *ret_slot)
{
	int rc = records_untangle(take_tangled, ret, ret_slot);

	records_fini(take_tangled);
	return rc < 0 ? rc : close_run(ret);
}

int records_join(struct records_part *parts, size_t n, struct records *ret, uint32_t *ret_slot)
{
	struct records_part p = { .runs_max = n == 1 ? parts[0].runs_max : 0 };
	int rc = join(parts, n, ret, ret_slot);

	if (rc == -EEXIST) {
		rc = untangle(ret, &p, ret_slot);
		if (rc == 0)
			rc = join(&p, 1, ret, ret_slot);
		records_part_fini(&p);
	}
	if (rc < 0)
		records_fini(ret);
	return rc;
}

/* Numbers within the part, by which two empty records of one place are told apart. */
static void number_runs(struct records_part *p)
{
	uint64_t count = 0;

	for (uint32_t i = 0; i < p->n_runs; i++) {
		p->run[i].first = count;
		count += p->run[i].count;
	}
}

static bool has_rising_runs(const struct records_part *p)
{
	for (uint32_t i = 1; i < p->n_runs; i++)
		if (!records_are_apart(&p->run[i - 1], &p->run[i]))
			return false;
	return true;
}

/* Whether the runs reach into each other, which costs a sort of them. */
static int check_runs(struct records_part *p, uint32_t *ret_slot)
{
	AUTO_FREE uint32_t *by_file = NULL;

	if (has_rising_runs(p))
		return 0;
	by_file = reallocarray(NULL, p->n_runs, sizeof(*by_file));
	return by_file ? sort_by_file(p->run, p->n_runs, by_file, ret_slot) : -ENOMEM;
}

int records_part_settle(struct records_part *p, uint32_t *ret_slot)
{
	struct records tangled = { 0 };
	uint32_t runs_max = p->runs_max;
	int rc = close_run(p);

	*ret_slot = p->open.slot;
	number_runs(p);
	if (rc == 0)
		rc = check_runs(p, ret_slot);
	if (rc == -EEXIST) {
		rc = join(p, 1, &tangled, ret_slot); /* which empties it */
		assert(rc != 0);		     /* it is as was found just now */
		p->runs_max = runs_max;
		if (rc == -EEXIST)
			rc = untangle(&tangled, p, ret_slot);
		records_fini(&tangled);
	}
	if (rc < 0)
		records_part_clear(p);
	return rc;
}

/* A run of whole files, whose new slots may lie elsewhere. */
static int renumber_whole(struct records_part *p, const struct run *s,
			  uint32_t (*map)(void *ctx, uint32_t slot, const struct file_identity *id),
			  void *ctx)
{
	for (uint64_t i = 0; i < s->count; i++) {
		uint32_t slot = map(ctx, s->slot + (uint32_t)i, NULL);
		int rc = slot == UINT32_MAX ? -ESTALE : records_part_whole(p, slot);

		if (rc < 0)
			return rc;
	}
	return 0;
}

int records_renumber(const struct records *old,
		     uint32_t (*map)(void *ctx, uint32_t slot, const struct file_identity *identity),
		     void *ctx, struct records *ret)
{
	struct records_part p = { .runs_max = UINT32_MAX }; /* it was a table before */
	uint32_t complaint;
	int rc = 0;

	for (uint32_t i = 0; i < old->n_runs && rc == 0; i++) {
		struct run s = old->run[i];

		if (s.kind == RECORDS_WHOLE) {
			rc = renumber_whole(&p, &s, map, ctx);
			continue;
		}
		s.slot = map(ctx, s.slot, &s.identity);
		rc = s.slot == UINT32_MAX ? -ESTALE : put_run(&p, &s);
	}
	/* The data is the same, in the same sequence. */
	if (rc == 0 && old->data_bytes > 0) {
		uint8_t *to = part_reserve(&p, old->data_bytes);

		if (to)
			memcpy(to, old->data, old->data_bytes);
		else
			rc = -ENOMEM;
	}
	if (rc == 0)
		rc = records_join(&p, 1, ret, &complaint);
	records_part_fini(&p);
	return rc;
}
