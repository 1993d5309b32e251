/* SPDX-License-Identifier: Apache-2.0 */
/* The table of records against a plain list: random files with records of every kind, told file by
 * file or to and fro, and then every number and random offsets are asked of both. The same table is
 * read back from its bytes, numbered anew, and damaged: what is let through must still answer
 * within its files. */
#include <errno.h>
#include <string.h>

#include "check.h"
#include "src/dataset/dataset_priv.h"

#define FILES 12u
#define EXTENTS_MAX 400u
#define ROUNDS 150

struct extent {
	uint32_t slot;
	uint64_t offset, length, rows;
	bool is_whole;
};

struct model {
	struct extent extent[FILES * EXTENTS_MAX + 1];
	uint32_t n;
	uint64_t size[FILES];
	uint64_t random;
};

static struct model m;

static uint64_t below(uint64_t n)
{
	return check_rand_below(&m.random, n);
}

/* Lengths, gaps and rows as files have them. */
static void make_file(uint32_t slot, bool has_rows)
{
	enum { ALIKE, PACKED, GAPS, EMPTY_ONES, WHOLE, ROWS, STYLES } style =
		below(has_rows ? STYLES : ROWS);
	uint64_t at = below(3) == 0 ? below(5000) : 0, length = 1 + below(3000), gap = below(2) * below(500);
	uint32_t n = 1 + (uint32_t)below(below(2) ? 4 : EXTENTS_MAX);

	if (style == WHOLE) {
		m.extent[m.n++] = (struct extent){ .slot = slot, .length = UINT64_MAX, .rows = 1,
						   .is_whole = true };
		m.size[slot] = below(1 << 20);
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		uint64_t this_length = style == ALIKE ? length :
				       style == EMPTY_ONES && below(3) == 0 ? 0 : 1 + below(3000);
		uint64_t this_gap = style == ALIKE ? gap : style == GAPS ? below(3) * below(900) : 0;

		if (style != ALIKE && below(200) == 0)
			this_length += (uint64_t)below(5) << 31;
		m.extent[m.n++] = (struct extent){ .slot = slot, .offset = at, .length = this_length,
						   .rows = style == ROWS ? 1 + below(30) : 1 };
		at += this_length + this_gap;
	}
	m.size[slot] = at + below(2) * below(100);
}

static void swap(uint32_t a, uint32_t b)
{
	struct extent x = m.extent[a];

	m.extent[a] = m.extent[b];
	m.extent[b] = x;
}

/* All files; told in their order, or to and fro. */
static void make_model(void)
{
	bool is_told_in_order = below(3) > 0; /* rows always are */

	m.n = 0;
	for (uint32_t slot = 0; slot < FILES; slot++)
		if (below(5) > 0)
			make_file(slot, is_told_in_order);
	if (m.n == 0)
		make_file(0, is_told_in_order);
	if (is_told_in_order)
		return;
	for (uint64_t i = below(20); i-- > 0;)
		swap((uint32_t)below(m.n), (uint32_t)below(m.n));
}

static int add(struct records_part *p, const struct extent *x, uint32_t last)
{
	struct file_identity identity = { .ino = 100 + x->slot, .size = m.size[x->slot] };
	struct format_range range = { x->offset, x->length };
	int rc = 0;

	if (x->is_whole)
		return records_part_whole(p, x->slot);
	if (x->slot != last)
		rc = records_part_file(p, x->slot, &identity);
	return rc < 0 ? rc : records_part_add(p, &range, x->rows);
}

/* In one part, or in one for each run of a file, as files that are read side by side. */
static int make_records(struct records *ret)
{
	static struct records_part parts[FILES * EXTENTS_MAX + 1];
	bool is_split = below(2);
	uint32_t complaint, last = UINT32_MAX;
	size_t n = 0;
	int rc = 0;

	memset(parts, 0, sizeof(parts));
	for (uint32_t i = 0; i < m.n; i++) {
		if (i > 0 && is_split && m.extent[i].slot != m.extent[i - 1].slot) {
			n++;
			last = UINT32_MAX;
		}
		CHECK_INT(add(&parts[n], &m.extent[i], last), 0);
		last = m.extent[i].is_whole ? UINT32_MAX : m.extent[i].slot;
	}
	/* Settled or not, what is joined is the same. */
	for (size_t i = 0; i <= n && below(2) && rc == 0; i++)
		rc = records_part_settle(&parts[i], &complaint);
	if (rc == 0)
		rc = records_join(parts, n + 1, ret, &complaint);
	for (size_t i = 0; i <= n; i++)
		records_part_fini(&parts[i]);
	return rc;
}

static uint32_t slot_after(const uint32_t *map, uint32_t slot)
{
	return map ? map[slot] : slot;
}

/* The first record of the first extent that has the byte. */
static uint32_t brute_at(const uint32_t *map, uint32_t slot, uint64_t offset)
{
	uint64_t number = 0;

	for (uint32_t i = 0; i < m.n; number += m.extent[i++].rows) {
		const struct extent *x = &m.extent[i];

		if (slot_after(map, x->slot) == slot &&
		    (x->is_whole || (offset >= x->offset && offset - x->offset < x->length)))
			return (uint32_t)number;
	}
	return UINT32_MAX;
}

static void compare_offsets(const struct records *r, const uint32_t *map)
{
	for (int i = 0; i < 300; i++) {
		const struct extent *x = &m.extent[below(m.n)];
		uint64_t offset = below(10) == 0 ? check_rand_u64(&m.random) :
				  x->offset + below(MIN(x->length, UINT32_MAX) + 3) - (x->offset > 0);
		uint32_t slot = slot_after(map, below(20) ? x->slot : (uint32_t)below(FILES));

		CHECK_U64(records_at(r, slot, offset), brute_at(map, slot, offset));
	}
}

static void compare(const struct records *r, const uint32_t *map)
{
	uint64_t number = 0;

	for (uint32_t i = 0; i < m.n; i++) {
		const struct extent *x = &m.extent[i];

		for (uint64_t row = 0; row < x->rows; row++, number++) {
			struct format_range range;
			uint32_t slot;

			records_locate(r, (uint32_t)number, &slot, &range);
			CHECK_U64(slot, slot_after(map, x->slot));
			CHECK_U64(range.offset, x->offset);
			CHECK_U64(range.length, x->length);
		}
	}
	CHECK_U64(records_count(r), number);
	compare_offsets(r, map);
}

static struct table table_of_files(void)
{
	return (struct table){ .n_samples = FILES, .n_entries = FILES };
}

/* From its bytes, as a snapshot has them. */
static void reads_back(const struct records *r, const struct table *t)
{
	AUTO_FREE uint8_t *copy = malloc(r->blob_bytes);
	struct records again;

	memcpy(copy, r->blob, r->blob_bytes);
	CHECK(records_place(&again, copy, r->blob_bytes) && records_is_valid(&again, t));
	compare(&again, NULL);
	CHECK(!records_place(&again, copy, r->blob_bytes - 8) || !records_is_valid(&again, t));
}

static void tables_answer_as_plain_lists_do(void)
{
	struct table t = table_of_files();

	m.random = check_seed();
	for (int round = 0; round < ROUNDS; round++) {
		struct records r = { 0 };

		make_model();
		CHECK_INT(make_records(&r), 0);
		CHECK(records_is_valid(&r, &t));
		compare(&r, NULL);
		reads_back(&r, &t);
		records_fini(&r);
	}
}

/* Where each file is now, and which one is another one. */
struct moved {
	uint32_t map[FILES];
	uint32_t lost;
	bool is_asked;
};

static uint32_t map_slot(void *ctx, uint32_t slot, const struct file_identity *identity)
{
	struct moved *moved = ctx;

	CHECK(!identity || identity->ino == 100 + slot);
	moved->is_asked |= slot == moved->lost;
	return slot == moved->lost ? UINT32_MAX : moved->map[slot];
}

static void tables_follow_files_to_other_numbers(void)
{
	m.random = check_seed();
	for (int round = 0; round < ROUNDS; round++) {
		struct moved moved = { .lost = UINT32_MAX };
		struct records r = { 0 }, fresh = { 0 };
		int rc;

		for (uint32_t i = 0; i < FILES; i++)
			moved.map[i] = i;
		for (uint32_t i = FILES; i > 1; i--) {
			uint32_t k = (uint32_t)below(i), x = moved.map[i - 1];

			moved.map[i - 1] = moved.map[k];
			moved.map[k] = x;
		}
		make_model();
		CHECK_INT(make_records(&r), 0);
		CHECK_INT(records_renumber(&r, map_slot, &moved, &fresh), 0);
		compare(&fresh, moved.map);
		records_fini(&fresh);
		moved.lost = (uint32_t)below(FILES);
		rc = records_renumber(&r, map_slot, &moved, &fresh);
		CHECK_INT(rc, moved.is_asked ? -ESTALE : 0);
		records_fini(&fresh);
		records_fini(&r);
	}
}

/* Two extents that share a byte. */
static void records_that_overlap_are_refused(void)
{
	m.random = check_seed();
	for (int round = 0; round < ROUNDS; round++) {
		struct records r = { 0 };
		const struct extent *x;

		make_model();
		x = &m.extent[below(m.n)];
		if (x->length == 0)
			continue;
		m.extent[m.n++] = x->is_whole ? *x :
						(struct extent){ .slot = x->slot,
								 .offset = x->offset + x->length - 1,
								 .length = 1, .rows = 1 };
		CHECK_INT(make_records(&r), -EEXIST);
	}
}

/* Answers within the files, whatever the table says. */
static void use(const struct records *r, const struct table *t)
{
	uint64_t n = records_count(r);

	CHECK(n <= RECORDS_MAX);
	for (int i = 0; i < 50; i++) {
		struct format_range range;
		uint32_t slot, at;

		records_locate(r, (uint32_t)below(n), &slot, &range);
		CHECK(slot < t->n_entries);
		CHECK(range.length == UINT64_MAX || range.offset + range.length >= range.offset);
		at = records_at(r, (uint32_t)below(FILES), below(1 << 20));
		CHECK(at == UINT32_MAX || at < n);
	}
}

static void damaged_tables_are_refused_or_answer_within_their_files(void)
{
	struct table t = table_of_files();
	unsigned refused = 0;

	m.random = check_seed();
	for (int round = 0; round < ROUNDS; round++) {
		struct records r = { 0 }, bad;
		AUTO_FREE uint8_t *copy = NULL;

		make_model();
		CHECK_INT(make_records(&r), 0);
		copy = malloc(r.blob_bytes);
		for (int k = 0; k < 60; k++) {
			memcpy(copy, r.blob, r.blob_bytes);
			for (uint64_t n = 1 + below(3); n-- > 0;)
				copy[below(below(2) ? MIN(r.blob_bytes, 300) : r.blob_bytes)] =
					below(2) ? 0xff : (uint8_t)below(256);
			if (records_place(&bad, copy, r.blob_bytes) && records_is_valid(&bad, &t))
				use(&bad, &t);
			else
				refused++;
		}
		records_fini(&r);
	}
	CHECK(refused > ROUNDS);
}

/* Each turn costs a run: no more than there may be, and one error then. */
static void turns_are_bounded(void)
{
	const struct file_identity identity = { .size = 1000 };
	struct records_part p = { .runs_max = 8 };
	struct records r = { 0 };
	uint32_t complaint;

	for (uint64_t fit = 8; fit <= 10; fit++) {
		int rc = records_part_file(&p, 0, &identity);

		/* The last turn is a run when another follows, or when the part is settled. */
		for (uint64_t i = 0; i < fit && rc == 0; i++) {
			struct format_range range = { 900 - 2 * i, 1 };

			rc = records_part_add(&p, &range, 1);
			CHECK_INT(rc, i < 9 ? 0 : -E2BIG);
		}
		if (rc == 0)
			rc = records_part_settle(&p, &complaint);
		CHECK_INT(rc, fit == 8 ? 0 : -E2BIG);
		CHECK_U64(fit == 9 ? records_part_count(&p) : 0, 0); /* nothing is left of it */
		records_part_clear(&p);
	}
	CHECK_INT(records_part_whole(&p, 0), 0); /* and it can be used again */
	CHECK_INT(records_part_settle(&p, &complaint), 0);
	CHECK_INT(records_join(&p, 1, &r, &complaint), 0);
	CHECK_U64(records_count(&r), 1);
	records_fini(&r);
	records_part_fini(&p);
}

static const struct check_test tests[] = {
	{ "turns_are_bounded", turns_are_bounded },
	{ "tables_answer_as_plain_lists_do", tables_answer_as_plain_lists_do },
	{ "tables_follow_files_to_other_numbers", tables_follow_files_to_other_numbers },
	{ "records_that_overlap_are_refused", records_that_overlap_are_refused },
	{ "damaged_tables_are_refused_or_answer_within_their_files",
	  damaged_tables_are_refused_or_answer_within_their_files },
};
CHECK_MAIN(tests)
