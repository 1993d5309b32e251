/* SPDX-License-Identifier: Apache-2.0 */
/* The first places of torch.randperm(n) for one seed, in time and memory that depend on how many
 * are wanted and not on n: candidates are many and n may be a billion. The shuffle is
 *
 *	r[i] = i;  for i in 0..n-2:  swap(r[i], r[i + u32() % (n - i)])
 *
 * and all that a step can see of the others are places swapped before, so these are kept in a hash
 * table and every other place p still holds p. The table is emptied by changing its `life` number.
 *
 * MT19937 is refilled word by word: most candidates are dropped after a few dozen. The recurrence
 * is the reference generator's (Matsumoto, Nishimura 2002). It must agree bit for bit with module
 * order's torch-randperm; a test compares them. One thread per struct. */
#include <errno.h>
#include <string.h>

#include "recover_priv.h"

void mt_seed(struct mt *mt, uint32_t seed)
{
	mt->state[0] = seed;
	for (uint32_t k = 1; k < MT_WORDS; k++) {
		uint32_t prev = mt->state[k - 1];

		mt->state[k] = MT_SEED_FACTOR * (prev ^ (prev >> 30)) + k;
	}
	mt->at = MT_WORDS - 1;
}

uint32_t mt_u32(struct mt *mt)
{
	uint32_t k = mt->at == MT_WORDS - 1 ? 0 : mt->at + 1;
	uint32_t next = k == MT_WORDS - 1 ? 0 : k + 1;
	uint32_t far = k < MT_WORDS - MT_SHIFT ? k + MT_SHIFT : k + MT_SHIFT - MT_WORDS;
	uint32_t y = (mt->state[k] & 0x80000000) | (mt->state[next] & 0x7fffffff);

	y = mt->state[far] ^ (y >> 1) ^ (-(y & 1) & MT_TWIST);
	mt->state[k] = y;
	mt->at = k;
	y ^= y >> 11;
	y ^= (y << 7) & 0x9d2c5680;
	y ^= (y << 15) & 0xefc60000;
	return y ^ (y >> 18);
}

int head_init(struct head *head, uint32_t n, uint32_t places)
{
	uint32_t size = 16;

	while (size < 2 * (uint64_t)places)
		size *= 2;
	*head = (struct head){ .n = n, .mask = size - 1 };
	head->entry = calloc(size, sizeof(*head->entry));
	return head->entry ? 0 : -ENOMEM;
}

void head_fini(struct head *head)
{
	free(head->entry);
}

void head_seed(struct head *head, uint32_t seed)
{
	mt_seed(&head->mt, seed);
	head->i = 0;
	head->life++;
	if (head->life == 0) { /* entries of 2^32 seeds ago would come back to life */
		memset(head->entry, 0, (head->mask + 1) * sizeof(*head->entry));
		head->life = 1;
	}
}

/* The entry of a place, made if there is none. */
static struct head_entry *head_entry_of(struct head *head, uint32_t place)
{
	uint32_t h = (place * 0x9e3779b1) >> 7;

	for (;; h++) {
		struct head_entry *e = &head->entry[h & head->mask];

		if (e->life != head->life) {
			*e = (struct head_entry){ place, place, head->life };
			return e;
		}
		if (e->place == place)
			return e;
	}
}

/* What stands at a place; does not make an entry. */
static uint32_t sample_at(const struct head *head, uint32_t place)
{
	uint32_t h = (place * 0x9e3779b1) >> 7;

	for (;; h++) {
		const struct head_entry *e = &head->entry[h & head->mask];

		if (e->life != head->life)
			return place;
		if (e->place == place)
			return e->sample;
	}
}

uint32_t head_next(struct head *head)
{
	uint32_t i = head->i++, here = sample_at(head, i), place, taken;
	struct head_entry *e;

	if (i == head->n - 1) /* torch draws nothing for the last place */
		return here;
	place = i + mt_u32(&head->mt) % (head->n - i);
	e = head_entry_of(head, place);
	taken = e->sample;
	e->sample = here;
	return place == i ? here : taken;
}
