/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the arena costs: pairs of release and alloc in a full arena, sizes around 110 KiB as of
 * photographs, victims at random; and how much of the budget is payload then. Memory is not
 * touched, so no page fault is in the figures; giving back chunks is, where it happens. Prints JSON
 * lines.
 *
 *	bench_arena [PAIRS [MIB]]     default: 2000000 pairs, 4096 MiB
 *
 * What distorts it: victims at random miss the CPU's caches in the tags, as real ones do; with
 * several threads the lock is the limit, and real users do much else in between.
 */
#include <stdio.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/thr.h"
#include "clairfs/tier.h"

#define MAX_THREADS 4

struct block {
	void *mem;
	uint32_t length;
};

struct bench {
	struct arena *arena;
	uint64_t pairs, seed, payload, refused;
	struct block *blocks;
	size_t n_blocks;
};

static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static uint32_t next_size(uint64_t *state)
{
	uint64_t a = next_random(state), sum = 20000;

	sum += (a & 0xffff) + (a >> 16 & 0xffff) + (a >> 32 & 0xffff);
	return (uint32_t)(a >> 48 < 3277 ? sum * 4 : sum); /* one in twenty is a big one */
}

/* Fills this thread's share of the arena. */
static int bench_fill(struct bench *b, uint64_t share)
{
	uint64_t room = share / 65536;

	b->blocks = calloc(room, sizeof(b->blocks[0]));
	if (!b->blocks)
		return -1;
	for (uint64_t used = 0; b->n_blocks < room;) {
		uint32_t length = next_size(&b->seed);
		void *mem = NULL;

		used += arena_cost(length);
		if (used <= share)
			mem = arena_alloc(b->arena, length);
		if (!mem)
			break;
		b->blocks[b->n_blocks++] = (struct block){ mem, length };
		b->payload += length;
	}
	return b->n_blocks ? 0 : -1;
}

static void *bench_run(void *arg)
{
	struct bench *b = arg;

	for (uint64_t i = 0; i < b->pairs && b->n_blocks > 0; i++) {
		struct block *block = &b->blocks[next_random(&b->seed) % b->n_blocks];
		uint32_t length = next_size(&b->seed);
		void *mem;

		arena_release(b->arena, block->mem, block->length);
		b->payload -= block->length;
		mem = arena_alloc(b->arena, length);
		if (mem) {
			*block = (struct block){ mem, length };
			b->payload += length;
		} else {
			*block = b->blocks[--b->n_blocks];
			b->refused++;
			/* One more may fit now and then: keeps the arena full. */
			length = next_size(&b->seed) / 4 + 1;
			mem = arena_alloc(b->arena, length);
			if (mem) {
				b->blocks[b->n_blocks++] = (struct block){ mem, length };
				b->payload += length;
			}
		}
	}
	return NULL;
}

static int bench_threads(unsigned n, uint64_t pairs, uint64_t limit)
{
	struct bench benches[MAX_THREADS] = { { .pairs = 0 } };
	struct thr threads[MAX_THREADS] = { { .is_started = false } };
	struct clock *clock = clock_monotonic();
	uint64_t started, ns, payload = 0, refused = 0;
	struct arena *arena;
	int rc = 0;

	if (arena_new(limit, &arena, NULL) < 0)
		return -1;
	for (unsigned i = 0; i < n && rc == 0; i++) {
		benches[i] = (struct bench){ .arena = arena, .pairs = pairs / n, .seed = i + 1 };
		rc = bench_fill(&benches[i], limit / n);
	}
	started = clock_now(clock);
	for (unsigned i = 0; i < n && rc == 0; i++)
		rc = thr_start(&threads[i], "bench", bench_run, &benches[i], NULL);
	for (unsigned i = 0; i < n; i++)
		thr_join(&threads[i]);
	ns = clock_now(clock) - started;
	for (unsigned i = 0; i < n; i++) {
		payload += benches[i].payload;
		refused += benches[i].refused;
		free(benches[i].blocks);
	}
	arena_free(arena);
	if (rc < 0)
		return rc;
	printf("{\"name\": \"arena_pair\", \"unit\": \"ns\", \"value\": %.1f, \"n\": %llu, "
	       "\"config\": {\"threads\": %u, \"bytes\": %llu, \"refused\": %llu}}\n",
	       (double)ns / (double)pairs, (unsigned long long)pairs, n, (unsigned long long)limit,
	       (unsigned long long)refused);
	printf("{\"name\": \"arena_utilisation\", \"unit\": \"ratio\", \"value\": %.4f, "
	       "\"n\": %llu, \"config\": {\"threads\": %u, \"bytes\": %llu}}\n",
	       (double)payload / (double)limit, (unsigned long long)pairs, n,
	       (unsigned long long)limit);
	return 0;
}

int main(int argc, char **argv)
{
	uint64_t pairs = argc > 1 ? strtoull(argv[1], NULL, 10) : 2000000;
	uint64_t mib = argc > 2 ? strtoull(argv[2], NULL, 10) : 4096;

	for (unsigned n = 1; n <= MAX_THREADS; n *= 2) {
		if (bench_threads(n, pairs, mib << 20) < 0) {
			fprintf(stderr, "bench_arena: out of memory or threads\n");
			return 1;
		}
	}
	return 0;
}
