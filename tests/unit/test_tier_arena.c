/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arena: its costs, its budget, how much of it is usable, and that memory really goes back to
 * the system. What is resident is counted with mincore() over the arena's range, page by page.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"
#include "clairfs/tier.h"

#define MIB (1u << 20)
#define CHUNK (2u * MIB)

static struct arena *new_arena(uint64_t limit)
{
	struct arena *arena;

	CHECK_INT(arena_new(limit, &arena, NULL), 0);
	CHECK_U64(arena_used(arena), 0);
	return arena;
}

/* Resident bytes of [base, base + n); for anonymous memory mincore() tells what is mapped. */
static uint64_t resident(uint8_t *base, size_t n)
{
	size_t pages = n / 4096;
	unsigned char *map = malloc(pages);
	uint64_t sum = 0;

	CHECK(map != NULL);
	CHECK_INT(mincore(base, n, map), 0);
	for (size_t i = 0; i < pages; i++)
		sum += map[i] & 1 ? 4096 : 0;
	free(map);
	return sum;
}

static void cost_is_whole_pages(void)
{
	CHECK_U64(arena_cost(1), 4096);
	CHECK_U64(arena_cost(4095), 4096);
	CHECK_U64(arena_cost(4096), 4096);
	CHECK_U64(arena_cost(4097), 8192);
	CHECK_U64(arena_cost(PIECE_BYTES), PIECE_BYTES);
}

static void limits_are_checked(void)
{
	struct arena *arena;
	struct err err = { 0 };

	CHECK_INT(arena_new(0, &arena, &err), -EINVAL);
	CHECK_INT(arena_new(4095, &arena, &err), -EINVAL);
	CHECK_INT(arena_new(1ull << 60, &arena, &err), -EINVAL);
	CHECK_CONTAINS(err.msg, "arena");
	arena_free(NULL);
	arena = new_arena(4096 + 4095);
	CHECK(arena_alloc(arena, 4097) == NULL);
	CHECK(arena_alloc(arena, PIECE_BYTES + 1) == NULL);
	CHECK(arena_alloc(arena, 1) != NULL);
	CHECK(arena_alloc(arena, 1) == NULL);
	arena_free(arena);
}

static void whole_budget_can_be_used(void)
{
	void *mem[64];
	struct arena *arena = new_arena(64 * MIB);

	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < 64; i++) {
			mem[i] = arena_alloc(arena, PIECE_BYTES - (uint32_t)i);
			CHECK(mem[i] != NULL);
			CHECK_U64((uintptr_t)mem[i] % 4096, 0);
			CHECK_U64(arena_used(arena), (i + 1) * (uint64_t)PIECE_BYTES);
		}
		CHECK(arena_alloc(arena, 1) == NULL);
		for (size_t i = 0; i < 64; i++)
			arena_release(arena, mem[i * 37 % 64],
				      PIECE_BYTES - (uint32_t)(i * 37 % 64));
		CHECK_U64(arena_used(arena), 0);
	}
	arena_free(arena);
}

/* Neighbours merge whatever the order: after all is released, the largest piece fits again. */
static void released_neighbours_merge(void)
{
	static const uint8_t orders[6][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
					      { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
	struct arena *arena = new_arena(PIECE_BYTES);

	for (size_t i = 0; i < ARRAY_LEN(orders); i++) {
		uint32_t sizes[3] = { 4096, 300000, PIECE_BYTES - 4096 - 303104 };
		void *mem[3], *all;

		for (size_t k = 0; k < 3; k++)
			CHECK((mem[k] = arena_alloc(arena, sizes[k])) != NULL);
		CHECK(arena_alloc(arena, 1) == NULL);
		for (size_t k = 0; k < 3; k++)
			arena_release(arena, mem[orders[i][k]], sizes[orders[i][k]]);
		all = arena_alloc(arena, PIECE_BYTES);
		CHECK(all != NULL);
		arena_release(arena, all, PIECE_BYTES);
	}
	arena_free(arena);
}

static void empty_chunks_go_back_to_the_system(void)
{
	enum { N = 256 };
	struct arena *arena = new_arena(N * (uint64_t)PIECE_BYTES);
	uint8_t *base = (uint8_t *)UINTPTR_MAX, *mem[N];

	/* Twice: memory that has gone back comes again, and goes again. */
	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < N; i++) {
			mem[i] = arena_alloc(arena, PIECE_BYTES);
			CHECK(mem[i] != NULL);
			memset(mem[i], (int)i + 1, PIECE_BYTES);
			base = MIN(base, mem[i]);
		}
		CHECK_U64(resident(base, N * (size_t)PIECE_BYTES), N * (uint64_t)PIECE_BYTES);
		/* Every other piece of 1 MiB: no chunk of 2 MiB is empty, nothing can go back. */
		for (size_t i = 0; i < N; i += 2)
			arena_release(arena, mem[i], PIECE_BYTES);
		CHECK_U64(resident(base, N * (size_t)PIECE_BYTES), N * (uint64_t)PIECE_BYTES);
		for (size_t i = 1; i < N; i += 2)
			arena_release(arena, mem[i], PIECE_BYTES);
		CHECK_U64(arena_used(arena), 0);
		/* A few stay, so that filling and emptying does not go to the system each time. */
		CHECK(resident(base, N * (size_t)PIECE_BYTES) <= 4 * CHUNK);
		CHECK(resident(base, N * (size_t)PIECE_BYTES) > 0);
	}
	/* And all of it can be used again. */
	for (size_t i = 0; i < N; i++)
		CHECK((mem[i] = arena_alloc(arena, PIECE_BYTES)) != NULL);
	arena_free(arena);
}

static void a_small_arena_does_not_go_to_the_system_at_all(void)
{
	struct arena *arena = new_arena(4 * CHUNK);
	uint8_t *mem = arena_alloc(arena, PIECE_BYTES);

	CHECK(mem != NULL);
	memset(mem, 1, PIECE_BYTES);
	arena_release(arena, mem, PIECE_BYTES);
	CHECK(resident(mem, PIECE_BYTES) == PIECE_BYTES);
	arena_free(arena);
}

static void freed_arena_leaves_no_mapping(void)
{
	struct arena *arena = new_arena(64 * MIB);
	uint8_t *mem = arena_alloc(arena, 1);
	unsigned char map;

	CHECK(mem != NULL);
	arena_free(arena);
	CHECK_INT(mincore(mem, 4096, &map), -1);
	CHECK_INT(errno, ENOMEM);
}

struct mix {
	const char *name;
	uint32_t (*size)(uint64_t *seed);
};

static uint32_t size_uniform(uint64_t *seed)
{
	return (uint32_t)check_rand_below(seed, PIECE_BYTES) + 1;
}

static uint32_t size_scaled(uint64_t *seed)
{
	uint32_t high = 1u << (12 + check_rand_below(seed, 9));

	return (uint32_t)check_rand_below(seed, high) + 1;
}

/* Sizes of photographs: 110 KiB on average, a long tail. */
static uint32_t size_photo(uint64_t *seed)
{
	uint64_t sum = 20000;

	for (int i = 0; i < 3; i++)
		sum += check_rand_below(seed, 62000);
	return (uint32_t)(check_rand_below(seed, 20) ? sum : sum * 5);
}

static uint32_t size_two_kinds(uint64_t *seed)
{
	return check_rand_below(seed, 2) ? PIECE_BYTES : 5000;
}

/* Share of the budget that is payload while blocks at random are replaced, as a cache does it: what
 * does not fit evicts until it does. The mean over time and the least. Nothing is touched, so the
 * budget may be larger than the machine. */
static double utilisation(uint64_t limit, uint32_t (*size)(uint64_t *), uint64_t *seed,
			  double *ret_least)
{
	enum { MAX_BLOCKS = 65536, ROUNDS = 60000 };
	static struct {
		void *mem;
		uint32_t length;
	} blocks[MAX_BLOCKS];
	struct arena *arena = new_arena(limit);
	uint64_t payload = 0;
	unsigned n_full = 0;
	double sum = 0;
	size_t n = 0;

	*ret_least = 1;
	for (unsigned i = 0; n_full == 0 || i < ROUNDS; i++) {
		uint32_t length = size(seed);
		void *mem;

		for (; !(mem = arena_alloc(arena, length)); n_full++) {
			size_t victim = check_rand_below(seed, n);

			*ret_least = MIN(*ret_least, (double)payload / (double)limit);
			arena_release(arena, blocks[victim].mem, blocks[victim].length);
			payload -= blocks[victim].length;
			blocks[victim] = blocks[--n];
		}
		CHECK(n < MAX_BLOCKS);
		blocks[n].mem = mem;
		blocks[n++].length = length;
		payload += length;
		if (n_full == 0)
			i = 0;
		sum += n_full ? (double)payload / (double)limit : 0;
	}
	arena_free(arena);
	return sum / (ROUNDS - 1);
}

static void four_fifths_of_the_budget_are_payload(void)
{
	static const struct mix mixes[] = { { "uniform 1 B to 1 MiB", size_uniform },
					    { "every scale from 4 KiB to 1 MiB", size_scaled },
					    { "110 KiB", size_photo },
					    { "5000 B and 1 MiB", size_two_kinds } };
	static const unsigned mibs[] = { 128, 2048 };
	uint64_t seed = check_seed();

	for (size_t i = 0; i < ARRAY_LEN(mixes) * ARRAY_LEN(mibs); i++) {
		const struct mix *mix = &mixes[i / ARRAY_LEN(mibs)];
		unsigned mib = mibs[i % ARRAY_LEN(mibs)];
		double least, mean = utilisation((uint64_t)mib * MIB, mix->size, &seed, &least);

		printf("# %s in %u MiB: %.1f %%, at worst %.1f %%\n", mix->name, mib, mean * 100,
		       least * 100);
		CHECK(mean >= 0.80);
	}
}

/* Samples of 110 KiB in no order: no chunk of 2 MiB becomes empty, and still all that is free goes
 * back as long as there is a limit. */
static void under_a_limit_what_is_free_goes_back(void)
{
	enum { N = 1100, LENGTH = 110 << 10, HALF = N / 2 };
	struct arena *arena = new_arena(128 * (uint64_t)MIB);
	uint8_t *base = (uint8_t *)UINTPTR_MAX, *mem[N];
	uint64_t cost = arena_cost(LENGTH);

	for (size_t i = 0; i < N; i++) {
		CHECK((mem[i] = arena_alloc(arena, LENGTH)) != NULL);
		memset(mem[i], (int)i % 251 + 1, LENGTH);
		base = MIN(base, mem[i]);
	}
	base = (uint8_t *)((uintptr_t)base / CHUNK * CHUNK);
	for (size_t i = 0; i < N; i += 2)
		arena_release(arena, mem[i], LENGTH);
	CHECK(resident(base, 128 * MIB) > (N - 50) * cost);
	arena_set_limit(arena, HALF * cost + PIECE_BYTES);
	CHECK(resident(base, 128 * MIB) <= HALF * cost);
	for (size_t i = 1; i < N; i += 2)
		CHECK(mem[i][0] == i % 251 + 1 && mem[i][LENGTH - 1] == i % 251 + 1);
	/* No more than the limit is handed out, whatever is free; and it does not become more with
	 * time, as other pages are used. */
	CHECK(arena_alloc(arena, PIECE_BYTES) != NULL);
	CHECK(arena_alloc(arena, 4096) == NULL);
	for (size_t i = 1; i < N; i += 2) {
		arena_release(arena, mem[i], LENGTH);
		CHECK((mem[i] = arena_alloc(arena, LENGTH)) != NULL);
		memset(mem[i], 1, LENGTH);
	}
	CHECK(resident(base, 128 * MIB) <= HALF * cost);
	arena_set_limit(arena, 128 * (uint64_t)MIB); /* over: all of it can be used again */
	for (size_t i = 0; i < N; i += 2)
		CHECK((mem[i] = arena_alloc(arena, LENGTH)) != NULL);
	for (size_t i = 0; i < N; i++)
		arena_release(arena, mem[i], LENGTH);
	CHECK_U64(arena_used(arena), PIECE_BYTES);
	CHECK(resident(base, 128 * MIB) <= 6 * CHUNK);
	arena_free(arena);
}

static const struct check_test tests[] = {
	{ "cost_is_whole_pages", cost_is_whole_pages },
	{ "limits_are_checked", limits_are_checked },
	{ "whole_budget_can_be_used", whole_budget_can_be_used },
	{ "released_neighbours_merge", released_neighbours_merge },
	{ "empty_chunks_go_back_to_the_system", empty_chunks_go_back_to_the_system },
	{ "under_a_limit_what_is_free_goes_back", under_a_limit_what_is_free_goes_back },
	{ "a_small_arena_does_not_go_to_the_system_at_all",
	  a_small_arena_does_not_go_to_the_system_at_all },
	{ "freed_arena_leaves_no_mapping", freed_arena_leaves_no_mapping },
	{ "four_fifths_of_the_budget_are_payload", four_fifths_of_the_budget_are_payload },
};

CHECK_MAIN(tests)
