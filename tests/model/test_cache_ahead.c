/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a miss fetches (src/cache/ahead.c), against a cache that is a set of bytes of 4096: readers
 * of all kinds, alone and mixed. For each kind what it may cost the source, in bytes and in requests
 * that somebody had to wait for, and for random mixtures of them the bound that holds for anything.
 */
#include <stdlib.h>
#include <string.h>

#include "ahead_model.h"
#include "check.h"
#include "clairfs/base/bitmap.h"
#include "clairfs/base/cleanup.h"
#include "clairfs/base/clock.h"

/* --- each kind alone --- */

static void stream_is_fetched_once_and_waits_at_its_beginning(void)
{
	static const uint32_t steps[] = { 4096, 16384, 131072, MIB };

	for (uint32_t i = 0; i < ARRAY_LEN(steps); i++) {
		struct model *m = model_new(256 * MIB);

		file_new(m, 0, 100 * MIB + 5000);
		run_of(m, 0, 0, m->size[0], steps[i]);
		CHECK(m->sent <= m->size[0] + PAGE);
		CHECK(m->n_missed <= 3);
		CHECK(m->n_ahead <= 100 + 16); /* in pieces, but for the beginning */
		CHECK_U64(m->unused, 0);
		model_free(m);
	}
}

static void random_reads_cost_what_they_ask_for(void)
{
	static const uint32_t lengths[] = { 4096, 24 * 4096, 131072, MIB };
	uint64_t seed = check_seed();

	for (uint32_t i = 0; i < ARRAY_LEN(lengths); i++) {
		struct model *m = model_new(64 * MIB);

		for (uint32_t f = 0; f < 4; f++)
			file_new(m, f, 300 * MIB);
		for (uint32_t n = 0; n < 100 * MIB / lengths[i] && n < 1200; n++)
			model_read(m, (uint32_t)check_rand_below(&seed, 4),
				   page_below(&seed, 299 * MIB), lengths[i]);
		/* Of reads as large as that one in some hundred runs begins where another has ended. */
		CHECK(m->sent <= m->asked + m->asked / 20 + (lengths[i] == MIB ? AHEAD_MOST : 2 * MIB));
		model_free(m);
	}
}

static void shuffle(uint64_t *seed, uint32_t *of, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		of[i] = i;
	for (uint32_t i = n; i > 1; i--) {
		uint32_t k = (uint32_t)check_rand_below(seed, i), was = of[i - 1];

		of[i - 1] = of[k];
		of[k] = was;
	}
}

/* Epochs of all records of a file in a new order each, whether it fits or not. In the first one the
 * kernel keeps what it has; it has lost all of it before each of the others. */
static void epochs_of_records_cost_what_they_ask_for(void)
{
	enum { N = 2600, RECORD = 100000 };
	static const uint64_t rooms[] = { 64 * MIB, 512 * MIB };
	uint64_t seed = check_seed();
	uint32_t of[N];

	for (uint32_t i = 0; i < ARRAY_LEN(rooms); i++) {
		struct model *m = model_new(rooms[i]);

		file_new(m, 0, (uint64_t)N * RECORD);
		for (uint32_t epoch = 0; epoch < 4; epoch++) {
			kernel_new(m, 0);
			m->asked = m->sent = 0;
			shuffle(&seed, of, N);
			for (uint32_t n = 0; n < N; n++)
				kernel_read(m, 0, (uint64_t)of[n] * RECORD, RECORD);
			CHECK_U64(m->asked, m->size[0]);
			CHECK(m->sent <= m->asked + m->asked / 10);
		}
		CHECK(m->was_whole > 0 || i == 0);
		model_free(m);
	}
}

/* Every second record of a file, of one READ and of several. */
static void records_that_are_left_out_are_not_fetched(void)
{
	static const uint32_t lengths[] = { 4096, 100000, 131072, 262144, 524288, MIB, 3 * MIB };

	for (uint32_t i = 0; i < ARRAY_LEN(lengths); i++) {
		struct model *m = model_new(512 * MIB);

		file_new(m, 0, 512 * MIB);
		kernel_new(m, 0);
		m->reader = 7;
		for (uint64_t at = 0; at + lengths[i] <= m->size[0]; at += 2ull * lengths[i])
			kernel_read(m, 0, at, lengths[i]);
		/* A first READ like the advice to read all, and what it takes to know better. */
		CHECK(m->sent <= m->asked + AHEAD_MOST / 2 + 4ull * 2 * lengths[i]);
		model_free(m);
	}
}

/* Parts that lie so near to each other that the kernel's READs may be as far apart: in a stream that is
 * fetched ahead what is between would come as well. */
static void small_gaps_are_fetched_only_where_they_are_little(void)
{
	static const uint32_t gaps[] = { 4096, 16384, 65536, 131072, 262144 - 4096 };

	for (uint32_t i = 0; i < ARRAY_LEN(gaps); i++) {
		struct model *m = model_new(512 * MIB);
		uint64_t step = 3ull * 131072 + gaps[i];

		m->reader = 7;
		file_new(m, 0, 256 * MIB);
		for (uint64_t at = MIB; at + step <= m->size[0]; at += step)
			run_of(m, 0, at, at + 3ull * 131072, 131072);
		CHECK(m->sent <= m->asked + m->asked / 20);
		if (gaps[i] == 4096) /* one stream for all that */
			CHECK(m->n_missed <= 8);
		model_free(m);
	}
}

/* From the end to the beginning, in blocks. */
static void backward_reader_costs_what_it_asks_for(void)
{
	static const uint32_t lengths[] = { 4096, 100000, 131072, 262144, MIB, 4 * MIB };

	for (uint32_t i = 0; i < ARRAY_LEN(lengths); i++) {
		struct model *m = model_new(512 * MIB);

		file_new(m, 0, 256 * MIB);
		kernel_new(m, 0);
		m->reader = 7;
		for (uint64_t at = m->size[0] / lengths[i] * lengths[i]; at; at -= lengths[i])
			kernel_read(m, 0, at - lengths[i], lengths[i]);
		CHECK(m->sent <= m->asked + m->asked / 10);
		model_free(m);
	}
}

/* Twelve workers, each in its part of the same file; whose turn it is is random. */
static void streams_of_one_file_are_told_apart(void)
{
	enum { N = 12 };
	struct model *m = model_new(256 * MIB);
	uint64_t seed = check_seed(), at[N], end[N], left = N;

	file_new(m, 0, N * 16ull * MIB);
	for (uint32_t i = 0; i < N; i++) {
		at[i] = i * 16ull * MIB;
		end[i] = at[i] + 16ull * MIB;
	}
	while (left) {
		uint32_t i = (uint32_t)check_rand_below(&seed, N);

		if (at[i] >= end[i])
			continue;
		model_read(m, 0, at[i], 131072);
		at[i] += 131072;
		left -= at[i] >= end[i];
	}
	CHECK_U64(m->sent, m->size[0]);
	CHECK(m->n_missed <= 3 * N);
	model_free(m);
}

/* The kernel's READs of one stream overtake each other. */
static void overtaken_reads_do_not_end_a_stream(void)
{
	struct model *m = model_new(256 * MIB);

	file_new(m, 0, 64 * MIB);
	run_of(m, 0, 0, 4 * MIB, 131072);
	m->n_missed = 0;
	for (uint64_t at = 4 * MIB; at < 60 * MIB; at += 2 * 131072) {
		model_read(m, 0, at + 131072, 131072);
		model_read(m, 0, at, 131072);
	}
	CHECK(m->n_missed <= 2);
	CHECK(m->sent <= 64 * MIB);
	model_free(m);
}

/* LMDB: a value is 25 pages, read one by one, anywhere. */
static void short_runs_are_learned(void)
{
	struct model *m = model_new(256 * MIB);
	uint64_t seed = check_seed(), missed;

	file_new(m, 0, 1024ull * MIB);
	for (uint32_t n = 0; n < 200; n++) {
		uint64_t at = page_below(&seed, 1000ull * MIB);

		run_of(m, 0, at, at + 25 * PAGE, PAGE);
	}
	missed = m->n_missed;
	m->n_missed = m->asked = m->sent = 0;
	for (uint32_t n = 0; n < 200; n++) {
		uint64_t at = page_below(&seed, 1000ull * MIB);

		run_of(m, 0, at, at + 25 * PAGE, PAGE);
	}
	CHECK(m->n_missed <= 200 * 3);
	CHECK(missed <= 200 * 10);
	CHECK(m->sent <= m->asked + m->asked / 10);
	model_free(m);
}

static void row_groups_are_not_passed_by_much(void)
{
	struct model *m = model_new(256 * MIB);
	uint64_t seed = check_seed();

	file_new(m, 0, 2048ull * MIB);
	for (uint32_t n = 0; n < 60; n++) {
		uint64_t at = page_below(&seed, 2000ull * MIB);

		run_of(m, 0, at, at + 8 * MIB, 131072);
	}
	CHECK(m->sent <= m->asked + m->asked / 10);
	CHECK(m->n_missed <= 60 * 6);
	model_free(m);
}

/* Two columns of row groups, as pyarrow reads them: the footer, then in any sequence of a group its small
 * column, and behind one that is left out the large one. Its end is where the next group's small one
 * begins. Whoever asked for the first bytes, a thread of a few goes on. */
static void columns_read(struct model *m, uint32_t file, uint64_t *seed, uint32_t n_groups,
			 uint64_t text)
{
	enum { ID = 8192, LEFT_OUT = 4 * MIB };
	uint64_t group = ID + LEFT_OUT + text;
	uint32_t of[64];

	file_new(m, file, n_groups * group + 16 * PAGE);
	kernel_new(m, file);
	m->reader = 1;
	kernel_read(m, file, n_groups * group, 16 * PAGE);
	shuffle(seed, of, n_groups);
	for (uint32_t i = 0; i < n_groups; i++) {
		uint64_t at = of[i] * group;

		m->reader = 1;
		kernel_read(m, file, at, ID);
		kernel_read(m, file, at + ID + LEFT_OUT, MIN(text, 131072u));
		m->reader = 2 + (uint32_t)check_rand_below(seed, 2);
		kernel_read(m, file, at + ID + LEFT_OUT, text);
	}
}

static void columns_of_row_groups_are_not_passed_by_much(void)
{
	static const uint64_t texts[] = { 24 * PAGE, 109 * PAGE, 160 * PAGE, 2 * MIB };
	uint64_t seed = check_seed();

	for (uint32_t i = 0; i < ARRAY_LEN(texts); i++) {
		struct model *m = model_new(32 * MIB);
		uint32_t n_groups = 8, runs = 3 * n_groups;

		for (uint32_t f = 0; f < 3; f++)
			columns_read(m, f, &seed, n_groups, texts[i]);
		/* What is fetched of a beginning is all that is lost besides. */
		CHECK(m->sent <= m->asked + m->asked / 10 + 3 * AHEAD_FIRST);
		CHECK(m->n_missed <= 3 + 4 * runs);
		model_free(m);
	}
}

static void headers_of_many_files_are_paid_for_to_a_limit(void)
{
	struct model *m = model_new(64 * MIB);

	for (uint32_t n = 0; n < 20 * FILES; n++) {
		file_new(m, n % FILES, 100 * MIB + n * PAGE); /* another size: another file */
		model_read(m, n % FILES, 0, n % 2 ? 16384 : 131072);
	}
	CHECK(m->sent <= m->asked + m->asked / AHEAD_SHARE + 16 * MIB + MIB);
	model_free(m);
}

static void advice_to_read_all_of_it_is_taken(void)
{
	struct model *m = model_new(256 * MIB);

	file_new(m, 0, 12 * MIB);
	model_read(m, 0, 0, 131072);
	CHECK_U64(m->sent, 12 * MIB);
	model_free(m);
}

/* Where a file is known to be read otherwise, a READ of its beginning is one like the others. */
static void file_that_is_read_at_random_is_not_fetched_whole_for_its_first_read(void)
{
	struct model *m = model_new(256 * MIB);
	uint64_t seed = check_seed();

	file_new(m, 0, 200 * MIB);
	for (uint32_t n = 0; n < 60; n++)
		model_read(m, 0, MIB + page_below(&seed, 190 * MIB), 131072);
	m->sent = 0;
	model_read(m, 0, 0, 131072);
	CHECK_U64(m->sent, 131072);
	model_free(m);
}

static void hints_that_nobody_came_for_are_not_taken(void)
{
	struct model *m = model_new(1024ull * MIB);
	uint64_t sent;

	/* The same file: what was fetched for its first one is gone. */
	file_new(m, 0, 12 * MIB);
	model_read(m, 0, 0, 131072);
	CHECK_U64(m->sent, 12 * MIB);
	file_new(m, 0, 12 * MIB);
	model_read(m, 0, 0, 131072);
	CHECK_U64(m->sent, 12 * MIB + 131072);
	/* Headers of 128 KiB, and never more: the next files are others. */
	for (uint32_t n = 0; n < 10; n++) {
		file_new(m, 1, 3 * MIB + n * PAGE);
		model_read(m, 1, 0, 131072);
	}
	sent = m->sent;
	for (uint32_t n = 10; n < 110; n++) {
		file_new(m, 1, 3 * MIB + n * PAGE);
		model_read(m, 1, 0, 131072);
	}
	CHECK(m->sent - sent <= 100 * 131072 + 7 * 3 * MIB);
	/* Readers that do come for all of it: soon they are believed again. */
	for (uint32_t n = 0; n < 300; n++) {
		file_new(m, 1, 3 * MIB + (200 + n) * PAGE);
		model_read(m, 1, 0, 131072);
		for (uint64_t at = m->size[1] / 131072 * 131072; at; at -= 131072)
			if (at < m->size[1])
				model_read(m, 1, at, 131072);
	}
	file_new(m, 1, 4 * MIB);
	sent = m->sent;
	model_read(m, 1, 0, 131072);
	CHECK_U64(m->sent - sent, 4 * MIB);
	model_free(m);
}

/* An arena that is full of the plan's for a while, or a source that errs: nothing ahead comes. */
static void what_did_not_come_is_not_paid_for(void)
{
	struct model *m = model_new(256 * MIB);

	file_new(m, 0, 400 * MIB);
	m->is_failing = true;
	run_of(m, 0, 0, 300 * MIB, 131072);
	CHECK_U64(m->sent, 300 * MIB);
	CHECK(m->n_missed + 8 >= m->n_reads); /* the first one brought a piece */
	m->is_failing = false;
	m->n_missed = 0;
	run_of(m, 0, 300 * MIB, 400 * MIB, 131072);
	CHECK(m->n_missed <= 3);
	CHECK_U64(m->sent, 400 * MIB);
	CHECK_U64(m->ahead.spent, 400 * MIB);
	model_free(m);
}

/* A second reader jumps about in what was fetched ahead of the first one. */
static void reader_further_on_does_not_take_a_stream(void)
{
	struct model *m = model_new(256 * MIB);
	uint64_t seed = check_seed(), n_missed = 0, longest = 0;

	file_new(m, 0, 200 * MIB);
	run_of(m, 0, 0, 20 * MIB, 131072);
	for (uint64_t at = 20 * MIB; at < 180 * MIB; at += 131072) {
		n_missed += model_read(m, 0, at, 131072);
		model_read(m, 0, at + MIB + page_below(&seed, 6 * MIB), PAGE);
	}
	CHECK(n_missed <= 3);
	CHECK(m->sent <= m->asked + AHEAD_MOST);
	for (int set = 0; set < AHEAD_SETS; set++)
		for (int i = 0; i < AHEAD_STREAMS; i++)
			longest = MAX(longest, m->ahead.file[set][0].stream[i].run);
	CHECK_U64(longest, 180 * MIB);
	model_free(m);
}

/* Records that lie one over the other: the kernel has the beginning of the second, and its READ
 * begins where another one's ended. */
static void records_that_overlap_are_no_streams(void)
{
	enum { APART = 64 * PAGE, PLACES = 240 }; /* no third one meets a pair by chance */
	struct model *m = model_new(64 * MIB);
	uint64_t seed = check_seed();
	uint32_t of[PLACES];

	file_new(m, 0, 64 * MIB);
	shuffle(&seed, of, PLACES);
	for (uint32_t n = 0; n < 30; n++) {
		uint64_t at = MIB + (uint64_t)of[n] * APART;

		model_read(m, 0, at, 25 * PAGE);
		if (n >= 8 && n % 4 == 0)
			model_read(m, 0, at + 25 * PAGE, 12 * PAGE);
	}
	CHECK(m->sent <= m->asked + 16 * PAGE);
	model_free(m);
}

/* The memory that it would fit into is taken by others again and again. */
static void pieces_that_are_gone_before_they_are_used_are_given_up(void)
{
	struct model *m = model_new(256 * MIB);
	uint64_t seed = check_seed();

	m->n_pages = 8 * MIB / PAGE;
	file_new(m, 0, 50 * MIB);
	for (uint32_t n = 0; n < 20000; n++)
		model_read(m, 0, page_below(&seed, 50 * MIB - 24 * PAGE), 24 * PAGE);
	CHECK(m->was_whole > 0);
	CHECK(m->sent <= m->asked + m->asked / 10 + 50 * MIB);
	model_free(m);
}

/* The plan takes the room, and gives it back again and again. */
static void room_that_comes_and_goes_is_not_filled_each_time(void)
{
	struct model *m = model_new(256 * MIB);
	uint64_t seed = check_seed();

	file_new(m, 0, 50 * MIB);
	kernel_new(m, 0);
	for (uint32_t n = 0; n < 20000; n++) {
		m->room = n % 600 < 100 ? MIB : 256 * MIB;
		if (n % 600 == 0) { /* with all that was in it */
			file_new(m, 0, 50 * MIB);
			kernel_new(m, 0);
		}
		model_read(m, 0, page_below(&seed, 50 * MIB - 24 * PAGE), 24 * PAGE);
	}
	CHECK(m->was_whole > 0);
	CHECK(m->sent <= m->asked + m->asked / 10 + 50 * MIB);
	model_free(m);
}

/* Once files were read to their end, others are begun with all that is allowed. */
static void files_read_to_their_end_are_expected_to_be(void)
{
	struct model *m = model_new(256 * MIB);

	for (uint32_t f = 0; f < 8; f++) {
		file_new(m, f, 8 * MIB);
		m->n_missed = 0;
		run_of(m, f, 0, 8 * MIB, 16384);
	}
	CHECK_U64(m->n_missed, 1);
	CHECK_U64(m->sent, 8 * 8 * MIB);
	model_free(m);
}

/* It was read whole once, and fits: then each piece of it comes once, and at once. */
static void file_that_fits_and_is_read_again_comes_in_pieces(void)
{
	struct model *m = model_new(256 * MIB);
	uint64_t seed = check_seed();

	file_new(m, 0, 50 * MIB);
	for (uint32_t n = 0; n < 2 * 50 * 11; n++)
		model_read(m, 0, page_below(&seed, 50 * MIB - 24 * PAGE), 24 * PAGE);
	file_new(m, 0, 50 * MIB); /* the same file; the cache has lost it */
	m->n_missed = m->sent = 0;
	for (uint32_t n = 0; n < 50 * 11; n++)
		model_read(m, 0, page_below(&seed, 50 * MIB - 24 * PAGE), 24 * PAGE);
	CHECK(m->sent <= 50 * MIB);
	CHECK(m->n_missed <= 51);
	m->room = 20 * MIB; /* memory is short: it does not fit any more */
	file_new(m, 0, 50 * MIB);
	m->sent = m->asked = 0;
	for (uint32_t n = 0; n < 10; n++)
		model_read(m, 0, page_below(&seed, 40 * MIB), 24 * PAGE);
	CHECK(m->sent <= m->asked + m->asked / 2 + MIB);
	model_free(m);
}

static void reach_follows_the_source_and_is_shared(void)
{
	struct model *m = model_new(1024ull * MIB);
	struct ahead *a = &m->ahead;

	/* 1 GB/s and 5 ms: 20 MB, more than a stream may have */
	for (int i = 0; i < 200; i++) {
		m->now_ns += NS_PER_MS;
		ahead_answered(a, m->now_ns, 1000000, 5 * NS_PER_MS);
	}
	CHECK_U64(ahead_reach(a), AHEAD_MOST);
	a->n_streams = 10;
	CHECK(ahead_reach(a) > 19 * 100000 && ahead_reach(a) < 21 * 100000);
	/* Answers that came from the memory of the source's client say nothing of the source. */
	a->n_streams = 0;
	for (int i = 0; i < 1000; i++) {
		m->now_ns += 50 * NS_PER_MS;
		ahead_answered(a, m->now_ns, i % 20 ? 50000000 : 4096,
			       i % 20 ? 5 * NS_PER_MS : 20000);
	}
	CHECK_U64(ahead_reach(a), AHEAD_MOST);
	/* One that is far away, but slow */
	memset(a, 0, sizeof(*a));
	for (int i = 0; i < 200; i++) {
		m->now_ns += 10 * NS_PER_MS;
		ahead_answered(a, m->now_ns, 100000, 100 * NS_PER_MS);
	}
	CHECK_U64(ahead_reach(a), 4 * MIB);
	model_free(m);
}

/* --- anything --- */

struct any {
	uint64_t seed, at[FILES];
	uint32_t n_files;
	uint64_t most; /* bytes of a file, beyond 2 MiB */
	bool is_scattered; /* no READ goes on where another one ended */
};

static void new_any(struct model *m, struct any *any, uint32_t f)
{
	file_new(m, f,
		 2 * MIB + page_below(&any->seed, any->most) + check_rand_below(&any->seed, PAGE));
	any->at[f] = 0;
}

static void step_any(struct model *m, struct any *any)
{
	uint64_t *seed = &any->seed, *at = any->at;
	uint32_t f = (uint32_t)check_rand_below(seed, any->n_files);
	uint32_t length = (uint32_t)(check_rand_below(seed, 32) + 1) * PAGE;

	switch (check_rand_below(seed, 8)) {
	case 0: /* a new file of that name; of few files seldom */
		if (check_rand_below(seed, FILES) < any->n_files)
			new_any(m, any, f);
		break;
	case 1:
		at[f] = page_below(seed, m->size[f]);
		break;
	case 2:
		at[f] = at[f] > 131072 ? at[f] - 131072 : 0;
		break;
	case 3:
		at[f] += 65536;
		break;
	default:
		break;
	}
	for (uint64_t n = check_rand_below(seed, 40); n && at[f] < m->size[f]; n--) {
		model_read(m, f, at[f], length);
		at[f] = any->is_scattered ? page_below(seed, m->size[f]) : at[f] + length;
	}
}

/* Whatever readers do, and however little of what was fetched is still there when they come, and of
 * the room: what was sent is what was asked for, a part of it, and the credit; and files that were
 * read whole are fetched once more. To be taken for such again they must have been read so often that
 * it is another part of what was asked for. */
static void nothing_costs_more_than_the_bound(void)
{
	struct any any = { .seed = check_seed() };

	for (uint32_t round = 0; round < 24; round++) {
		uint64_t room = (16ull + check_rand_below(&any.seed, 300)) * MIB;
		uint64_t credit = MIN((uint64_t)AHEAD_CREDIT, room / 4);
		struct model *m = model_new(room);

		any.n_files = round % 4 < 2 ? FILES : 3; /* these are read many times */
		any.most = any.n_files == FILES ? 64 * MIB : 6 * MIB;
		if (round % 2) /* others take the rest of it */
			m->n_pages = (1 + check_rand_below(&any.seed, room / MIB)) * MIB / PAGE;
		any.is_scattered = round % 8 == 7;
		if (any.is_scattered)
			m->n_pages = MIB / PAGE;
		for (uint32_t f = 0; f < FILES; f++)
			new_any(m, &any, f);
		for (uint32_t n = 0; n < 600; n++) {
			if (round % 3 == 0) /* the plan takes some, and gives it back */
				m->room = check_rand_below(&any.seed, room) + 1;
			step_any(m, &any);
			CHECK(round % 3 == 0 || m->ahead.whole_bytes <= m->room);
			CHECK(m->sent <= m->asked + m->asked / AHEAD_SHARE + credit +
						 m->was_whole + m->was_whole / 8 +
						 m->asked / 14 + /* 9/8 of one in 16 */
						 m->n_whole * 2 * MIB); /* the last pieces */
			CHECK(m->unused <= room / 2 + PAGE);
		}
		model_free(m);
	}
}

static const struct check_test tests[] = {
	{ "stream_is_fetched_once_and_waits_at_its_beginning",
	  stream_is_fetched_once_and_waits_at_its_beginning },
	{ "random_reads_cost_what_they_ask_for", random_reads_cost_what_they_ask_for },
	{ "epochs_of_records_cost_what_they_ask_for", epochs_of_records_cost_what_they_ask_for },
	{ "records_that_are_left_out_are_not_fetched", records_that_are_left_out_are_not_fetched },
	{ "small_gaps_are_fetched_only_where_they_are_little",
	  small_gaps_are_fetched_only_where_they_are_little },
	{ "backward_reader_costs_what_it_asks_for", backward_reader_costs_what_it_asks_for },
	{ "streams_of_one_file_are_told_apart", streams_of_one_file_are_told_apart },
	{ "overtaken_reads_do_not_end_a_stream", overtaken_reads_do_not_end_a_stream },
	{ "short_runs_are_learned", short_runs_are_learned },
	{ "row_groups_are_not_passed_by_much", row_groups_are_not_passed_by_much },
	{ "columns_of_row_groups_are_not_passed_by_much",
	  columns_of_row_groups_are_not_passed_by_much },
	{ "headers_of_many_files_are_paid_for_to_a_limit",
	  headers_of_many_files_are_paid_for_to_a_limit },
	{ "advice_to_read_all_of_it_is_taken", advice_to_read_all_of_it_is_taken },
	{ "file_that_is_read_at_random_is_not_fetched_whole_for_its_first_read",
	  file_that_is_read_at_random_is_not_fetched_whole_for_its_first_read },
	{ "hints_that_nobody_came_for_are_not_taken", hints_that_nobody_came_for_are_not_taken },
	{ "what_did_not_come_is_not_paid_for", what_did_not_come_is_not_paid_for },
	{ "reader_further_on_does_not_take_a_stream", reader_further_on_does_not_take_a_stream },
	{ "records_that_overlap_are_no_streams", records_that_overlap_are_no_streams },
	{ "pieces_that_are_gone_before_they_are_used_are_given_up",
	  pieces_that_are_gone_before_they_are_used_are_given_up },
	{ "room_that_comes_and_goes_is_not_filled_each_time",
	  room_that_comes_and_goes_is_not_filled_each_time },
	{ "files_read_to_their_end_are_expected_to_be",
	  files_read_to_their_end_are_expected_to_be },
	{ "file_that_fits_and_is_read_again_comes_in_pieces",
	  file_that_fits_and_is_read_again_comes_in_pieces },
	{ "reach_follows_the_source_and_is_shared", reach_follows_the_source_and_is_shared },
	{ "nothing_costs_more_than_the_bound", nothing_costs_more_than_the_bound },
};
CHECK_MAIN(tests)
