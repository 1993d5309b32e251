/* SPDX-License-Identifier: Apache-2.0 */
/* The first numbers of torch's permutation without the others.
 *
 * The small branch swaps place i with a place at or behind it, for i from 0 on: the first `count`
 * places are final after as many swaps. What these put behind the head is remembered in a hash
 * table of at most `count` places, all else there still stands where it began.
 *
 * The large branch is the other way round: r[i] = r[z]; r[z] = i with z <= i. Numbers go from the
 * head to the tail and never back, so the head alone is kept, but each of the n draws may change
 * it. Pure; any thread. */
#include <errno.h>
#include <string.h>

#include "clairfs/base/mem.h"
#include "perm.h"

/* Where a whole permutation is as good: it takes less time for each number. */
#define WHOLE_SHARE 8

/* place -> number, for places that do not hold their own number any more. Never more than half
 * full; a place is never 0, which is in every head. */
struct moved {
	struct {
		uint32_t place, number;
	} *slot;
	uint32_t mask;
};

static int moved_init(struct moved *m, uint32_t count)
{
	uint32_t size = 16;

	while (size < count * 2)
		size *= 2;
	m->slot = calloc(size, sizeof(*m->slot));
	m->mask = size - 1;
	return m->slot ? 0 : -ENOMEM;
}

/* What is at the place; `number` takes its place. */
static uint32_t moved_swap(struct moved *m, uint32_t place, uint32_t number)
{
	uint32_t at = place * 0x9e3779b1u & m->mask, was = place;

	while (m->slot[at].place != 0 && m->slot[at].place != place)
		at = (at + 1) & m->mask;
	if (m->slot[at].place == place)
		was = m->slot[at].number;
	m->slot[at].place = place;
	m->slot[at].number = number;
	return was;
}

static int head_small(uint32_t *out, uint32_t count, uint32_t n, struct mt19937 *rng)
{
	struct moved m;

	if (moved_init(&m, count) < 0)
		return -ENOMEM;
	perm_identity(out, count);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t place = i + mt19937_u32(rng) % (n - i), taken = out[i];

		if (place < count) {
			out[i] = out[place];
			out[place] = taken;
		} else {
			out[i] = moved_swap(&m, place, taken);
		}
	}
	free(m.slot);
	return 0;
}

void perm_torch_large_head(uint32_t *out, uint32_t count, uint32_t n, struct mt19937 *rng)
{
	for (uint32_t i = 0; i < count; i++) {
		uint32_t place = (uint32_t)(mt19937_t64(rng) % ((uint64_t)i + 1));

		out[i] = i; /* place may be i */
		out[i] = out[place];
		out[place] = i;
	}
	for (uint32_t i = count; i < n; i++) {
		uint64_t place = mt19937_t64(rng) % ((uint64_t)i + 1);

		if (place < count)
			out[place] = i;
	}
}

static int cut_whole(uint32_t *out, uint32_t count, uint32_t n, struct mt19937 *rng)
{
	uint32_t *whole AUTO_FREE = mem_alloc(n, sizeof(*whole));

	if (!whole)
		return -ENOMEM;
	perm_torch_small(whole, n, rng);
	memcpy(out, whole, count * sizeof(*out));
	return 0;
}

int perm_torch_head(uint32_t *out, uint32_t count, uint32_t n, bool has_large,
		    struct mt19937 *rng)
{
	if (has_large && n >= PERM_TORCH_LARGE) {
		perm_torch_large_head(out, count, n, rng);
		return 0;
	}
	if (count == 0)
		return 0;
	if (count == n) {
		perm_torch_small(out, n, rng);
		return 0;
	}
	return count > n / WHOLE_SHARE ? cut_whole(out, count, n, rng)
				       : head_small(out, count, n, rng);
}
