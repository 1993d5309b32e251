/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arena against a model: a map of its pages that says which block owns each. Random allocs and
 * releases must never hand out a page twice, never pass the budget in what they count nor in what
 * is resident, and refuse only what the model agrees has no hole long enough. Then the same from
 * several threads, where every block carries its owner's mark in each page.
 */
#include <string.h>
#include <sys/mman.h>

#include "check.h"
#include "clairfs/base/thr.h"
#include "clairfs/tier.h"

#define PAGE 4096u
#define MAX_BLOCKS 4096

struct block {
	uint8_t *mem;
	uint32_t length;
	uint32_t mark;
};

struct model {
	struct arena *arena;
	uint8_t *base; /* first page, found by filling the arena once */
	uint32_t n_pages;
	uint32_t *owner; /* mark of the block that has the page, 0 = free */
	struct block blocks[MAX_BLOCKS];
	size_t n_blocks;
	uint32_t next_mark, n_refused;
};

/* The lowest address the arena ever hands out: all of it is taken once, in single pages. */
static uint8_t *find_base(struct arena *arena, uint32_t n_pages)
{
	void **pages = calloc(n_pages, sizeof(*pages));
	uint8_t *base = (uint8_t *)UINTPTR_MAX;

	CHECK(pages != NULL);
	for (uint32_t i = 0; i < n_pages; i++) {
		pages[i] = arena_alloc(arena, 1);
		CHECK(pages[i] != NULL);
		base = MIN(base, (uint8_t *)pages[i]);
	}
	CHECK(arena_alloc(arena, 1) == NULL);
	for (uint32_t i = 0; i < n_pages; i++)
		arena_release(arena, pages[i], 1);
	free(pages);
	return base;
}

static uint32_t longest_hole(const struct model *m)
{
	uint32_t longest = 0, run = 0;

	for (uint32_t i = 0; i < m->n_pages; i++) {
		run = m->owner[i] ? 0 : run + 1;
		longest = MAX(longest, run);
	}
	return longest;
}

static void own(struct model *m, const struct block *block, uint32_t from, uint32_t to)
{
	size_t first = (size_t)(block->mem - m->base) / PAGE;
	size_t n = arena_cost(block->length) / PAGE;

	CHECK(block->mem >= m->base && (size_t)(block->mem - m->base) % PAGE == 0);
	CHECK(first + n <= m->n_pages);
	for (size_t i = first; i < first + n; i++) {
		CHECK_U64(m->owner[i], from);
		m->owner[i] = to;
	}
}

static void model_alloc(struct model *m, uint32_t length)
{
	struct block block = { arena_alloc(m->arena, length), length, ++m->next_mark };

	if (!block.mem) {
		CHECK(longest_hole(m) < arena_cost(length) / PAGE);
		m->n_refused++;
		return;
	}
	own(m, &block, 0, block.mark);
	memset(block.mem, (int)block.mark, length);
	m->blocks[m->n_blocks++] = block;
}

static void model_release(struct model *m, size_t at)
{
	struct block *block = &m->blocks[at];

	for (uint32_t i = 0; i < block->length; i += 997)
		CHECK_INT(block->mem[i], (uint8_t)block->mark);
	CHECK_INT(block->mem[block->length - 1], (uint8_t)block->mark);
	own(m, block, block->mark, 0);
	arena_release(m->arena, block->mem, block->length);
	*block = m->blocks[--m->n_blocks];
}

/* Counts are right, and no more than the budget is resident: in the range itself, and nothing of
 * the arena is outside of it. */
static void model_check(const struct model *m)
{
	unsigned char *map = malloc(m->n_pages);
	uint64_t used = 0, resident = 0;

	for (size_t i = 0; i < m->n_blocks; i++)
		used += arena_cost(m->blocks[i].length);
	CHECK_U64(arena_used(m->arena), used);
	CHECK(used <= (uint64_t)m->n_pages * PAGE);
	CHECK(map != NULL);
	CHECK_INT(mincore(m->base, (size_t)m->n_pages * PAGE, map), 0);
	for (uint32_t i = 0; i < m->n_pages; i++)
		resident += map[i] & 1 ? PAGE : 0;
	free(map);
	CHECK(resident <= (uint64_t)m->n_pages * PAGE);
	if (m->n_blocks == 0) /* no more than the chunks that may stay */
		CHECK(resident <= 4 * (2u << 20));
}

static uint32_t any_length(uint64_t *seed, uint32_t max)
{
	uint32_t high = 1u << (6 + check_rand_below(seed, 15));

	return (uint32_t)check_rand_below(seed, MIN(high, max)) + 1;
}

static void run_model(uint64_t limit, uint64_t *seed)
{
	static struct model model;
	struct model *m = &model;

	memset(m, 0, sizeof(*m));
	m->n_pages = (uint32_t)(limit / PAGE);
	m->owner = calloc(m->n_pages, sizeof(m->owner[0]));
	CHECK(m->owner != NULL);
	CHECK_INT(arena_new(limit, &m->arena, NULL), 0);
	m->base = find_base(m->arena, m->n_pages);
	for (unsigned step = 0; step < 6000; step++) {
		/* Waves: mostly filling, then mostly emptying, down to nothing. */
		bool is_filling = step / 1000 % 2 == 0;
		uint64_t die = check_rand_below(seed, 10);

		if (m->n_blocks == 0 ||
		    (m->n_blocks < MAX_BLOCKS && (is_filling ? die < 9 : die < 1)))
			model_alloc(m, any_length(seed, PIECE_BYTES));
		else
			model_release(m, check_rand_below(seed, m->n_blocks));
		if (step % 250 == 249)
			model_check(m);
	}
	while (m->n_blocks > 0)
		model_release(m, check_rand_below(seed, m->n_blocks));
	model_check(m);
	CHECK_U64(longest_hole(m), m->n_pages);
	find_base(m->arena, m->n_pages); /* all of it can be had again */
	arena_free(m->arena);
	free(m->owner);
	printf("# %u pages: %u allocs, %u refused\n", m->n_pages, m->next_mark, m->n_refused);
}

static void arena_agrees_with_a_map_of_its_pages(void)
{
	static const uint64_t limits[] = {
		PAGE,       300 * PAGE, 2u << 20,          (2u << 20) + PAGE,
		511 * PAGE, 24u << 20,  (64u << 20) - PAGE
	};
	uint64_t seed = check_seed();

	for (size_t i = 0; i < ARRAY_LEN(limits); i++)
		run_model(limits[i], &seed);
}

enum { N_THREADS = 4, N_HELD = 64, N_ROUNDS = 3000 };

struct worker {
	struct thr thr;
	struct arena *arena;
	uint64_t seed, limit;
	uint32_t mark;
	unsigned n_refused;
	bool is_wrong;
};

static void put_mark(uint8_t *mem, uint32_t length, uint32_t mark)
{
	for (uint32_t i = 0; i < length; i += PAGE)
		memcpy(mem + i, &mark, MIN((uint32_t)sizeof(mark), length - i));
}

static bool has_mark(const uint8_t *mem, uint32_t length, uint32_t mark)
{
	bool ok = true;

	for (uint32_t i = 0; i < length; i += PAGE)
		ok &= memcmp(mem + i, &mark, MIN((uint32_t)sizeof(mark), length - i)) == 0;
	return ok;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct block held[N_HELD] = { { NULL, 0, 0 } };

	for (unsigned i = 0; i < N_ROUNDS + N_HELD; i++) {
		struct block *block = &held[i % N_HELD];

		if (block->mem) {
			w->is_wrong |= !has_mark(block->mem, block->length, block->mark);
			arena_release(w->arena, block->mem, block->length);
			block->mem = NULL;
		}
		if (i >= N_ROUNDS)
			continue;
		block->length = any_length(&w->seed, PIECE_BYTES);
		block->mark = w->mark + i;
		block->mem = arena_alloc(w->arena, block->length);
		if (block->mem)
			put_mark(block->mem, block->length, block->mark);
		else
			w->n_refused++;
		w->is_wrong |= arena_used(w->arena) > w->limit;
	}
	return NULL;
}

/* Small enough that chunks empty, allocations fail, and threads meet in the same extents. */
static void threads_never_share_a_page(void)
{
	struct worker workers[N_THREADS];
	uint64_t seed = check_seed(), limit = 5u << 20;
	struct arena *arena;
	unsigned n_refused = 0;

	CHECK_INT(arena_new(limit, &arena, NULL), 0);
	for (uint32_t i = 0; i < N_THREADS; i++) {
		workers[i] = (struct worker){ .arena = arena,
					      .seed = check_rand_u64(&seed),
					      .limit = limit,
					      .mark = (i + 1) << 24 };
		CHECK_INT(thr_start(&workers[i].thr, "arena", work, &workers[i], NULL), 0);
	}
	for (size_t i = 0; i < N_THREADS; i++) {
		thr_join(&workers[i].thr);
		CHECK(!workers[i].is_wrong);
		n_refused += workers[i].n_refused;
	}
	printf("# %u of %u refused\n", n_refused, N_THREADS * N_ROUNDS);
	CHECK_U64(arena_used(arena), 0);
	find_base(arena, (uint32_t)(limit / PAGE));
	arena_free(arena);
}

static const struct check_test tests[] = {
	{ "arena_agrees_with_a_map_of_its_pages", arena_agrees_with_a_map_of_its_pages },
	{ "threads_never_share_a_page", threads_never_share_a_page },
};

CHECK_MAIN(tests)
