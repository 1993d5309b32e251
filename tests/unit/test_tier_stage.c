/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pushing pages, seen from the kernel's side: a fake that records every push and refuses what would
 * leave pages invalid or make the file longer. Also the null tier and the arithmetic of pieces,
 * which have no better place.
 */
#include <errno.h>

#include "tier_reads.h"

struct recorder {
	uint64_t size; /* of the file */
	uint64_t end;  /* of what has been pushed */
	uint64_t n_calls;
	const uint8_t *data; /* expected at the next call */
	int result;
};

static int record_store(void *ctx, struct stage_file file, uint64_t offset, const void *data,
			size_t length)
{
	struct recorder *r = ctx;

	r->n_calls++;
	CHECK_U64(file.entry.v, 5);
	CHECK_U64(file.renewal, 3);
	CHECK_U64(offset % 4096, 0);
	CHECK(length > 0 && length <= PIECE_BYTES);
	CHECK(offset + length <= r->size);
	CHECK(length % 4096 == 0 || offset + length == r->size);
	CHECK_U64(offset, r->end);
	CHECK(data == r->data);
	r->end += length;
	r->data += length;
	return r->result;
}

static const struct stage_ops record_ops = { .store = record_store };
static const uint8_t bytes[PIECE_BYTES];

static int push(struct recorder *r, uint32_t piece, uint32_t length, uint64_t size)
{
	return stage_push(&record_ops, r,
			  &(struct stage_piece){ .file = { .entry = { 5 }, .renewal = 3 },
						 .offset = (uint64_t)piece * PIECE_BYTES,
						 .length = length,
						 .data = bytes,
						 .size = size });
}

/* Pushes a whole file piece by piece. */
static void push_file(uint64_t size)
{
	struct recorder r = { .size = size };

	for (uint32_t piece = 0; piece < piece_count(size); piece++) {
		r.data = bytes;
		CHECK_INT(push(&r, piece, piece_length(size, piece), size), 0);
	}
	CHECK_U64(r.end, size);
	CHECK(size > 0 || r.n_calls == 0);
}

static void pushes_keep_the_page_rule(void)
{
	static const uint64_t borders[] = { 0,
					    4096,
					    8192,
					    65536,
					    PIECE_BYTES - 4096,
					    PIECE_BYTES,
					    PIECE_BYTES + 4096,
					    2 * PIECE_BYTES,
					    5 * PIECE_BYTES / 2,
					    7ull * PIECE_BYTES,
					    (1ull << 33) };

	for (size_t i = 0; i < ARRAY_LEN(borders); i++)
		for (uint64_t delta = 0; delta <= 4; delta++) {
			if (borders[i] + delta >= 2)
				push_file(borders[i] + delta - 2);
		}
	for (uint64_t size = 0; size < 9000; size++)
		push_file(size);
}

static void pushes_that_break_the_rule_are_refused(void)
{
	struct recorder r = { .size = 5000 };

	CHECK_INT(push(&r, 0, 4999, 5000), -EINVAL);
	CHECK_INT(push(&r, 0, 4097, 5000), -EINVAL);
	CHECK_INT(push(&r, 0, 5001, 5000), -EINVAL);
	CHECK_INT(push(&r, 1, 5000, 5000), -EINVAL);
	CHECK_INT(push(&r, 1, 0, 5000), -EINVAL);
	CHECK_INT(push(&r, 0, 1, 0), -EINVAL);
	CHECK_INT(push(&r, 0, PIECE_BYTES - 1, PIECE_BYTES + 1), -EINVAL);
	CHECK_U64(r.n_calls, 0);
}

static void answer_of_the_kernel_is_handed_on(void)
{
	struct recorder r = { .size = 5000, .result = -ENOENT, .data = bytes };

	CHECK_INT(push(&r, 0, 5000, 5000), -ENOENT);
	CHECK_U64(r.n_calls, 1);
}

static void pieces_cover_a_file(void)
{
	static const struct {
		uint64_t size;
		uint32_t count, last;
	} rows[] = { { 0, 1, 0 },
		     { 1, 1, 1 },
		     { PIECE_BYTES - 1, 1, PIECE_BYTES - 1 },
		     { PIECE_BYTES, 1, PIECE_BYTES },
		     { PIECE_BYTES + 1, 2, 1 },
		     { 5 * PIECE_BYTES / 2, 3, PIECE_BYTES / 2 },
		     { 1ull << 40, 1u << 20, PIECE_BYTES } };

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		CHECK_U64(piece_count(rows[i].size), rows[i].count);
		CHECK_U64(piece_length(rows[i].size, rows[i].count - 1), rows[i].last);
		CHECK_U64(piece_length(rows[i].size, rows[i].count), 0);
	}
}

static void null_tier_gives_zeros(void)
{
	static const uint8_t zeros[5000];
	struct file_identity identity = { .ino = 1, .size = 5000 };
	struct waited_read *w = waited_read_new((struct entry_id){ 1 }, 0, "x", &identity);
	struct tier *tier;

	CHECK_INT(tier_null_new(&tier, NULL), 0);
	w->read.answer.has_st = true;
	CHECK_INT(waited_read_run(tier, w), 0);
	CHECK_BYTES(w->read.ask.buf, zeros, 5000);
	CHECK(!w->read.answer.has_st);
	waited_read_free(w);
	tier_free(tier);
	tier_free(NULL);
}

struct chain {
	struct tier_read read;
	struct tier *tier;
	unsigned left, depth, max_depth;
};

static void chain_done(struct tier_read *read)
{
	struct chain *c = container_of(read, struct chain, read);

	c->depth++;
	c->max_depth = MAX(c->max_depth, c->depth);
	if (--c->left)
		tier_read(c->tier, read);
	c->depth--;
}

static void null_tier_does_not_nest(void)
{
	uint8_t buf[8];
	struct chain c = { .left = 1000000,
			   .read = { .ask = { .buf = buf, .length = sizeof(buf) },
				     .done = chain_done } };

	CHECK_INT(tier_null_new(&c.tier, NULL), 0);
	tier_read(c.tier, &c.read);
	CHECK_U64(c.left, 0);
	CHECK_U64(c.max_depth, 1);
	tier_free(c.tier);
}

static const struct check_test tests[] = {
	{ "pushes_keep_the_page_rule", pushes_keep_the_page_rule },
	{ "pushes_that_break_the_rule_are_refused", pushes_that_break_the_rule_are_refused },
	{ "answer_of_the_kernel_is_handed_on", answer_of_the_kernel_is_handed_on },
	{ "pieces_cover_a_file", pieces_cover_a_file },
	{ "null_tier_gives_zeros", null_tier_gives_zeros },
	{ "null_tier_does_not_nest", null_tier_does_not_nest },
};

CHECK_MAIN(tests)
