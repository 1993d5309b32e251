/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index of the store: which piece of which version of a file is at which block.
 *
 * Tables of 20-byte slots with linear probing, filled to at most 7/8 before they double: 23 to 46
 * bytes per piece. A slot has 64 bits that stand for the identity, not the identity itself: two
 * versions of one file with the same 64 bits are told apart by the record, which has all of it.
 *
 * 64 shards, each with a lock of its own: doubling a table of ten million pieces takes half a
 * second, and a handler that asks store_has() must not wait for that; a shard takes milliseconds.
 * Any thread. Removing closes the gap by moving later slots of the run up, so there are no
 * tombstones.
 */
#include <errno.h>
#include <xxhash.h>

#include "store_priv.h"

#define FIRST_SLOTS 16u

static uint64_t hash_of(struct piece_key key)
{
	uint64_t h = (uint64_t)key.entry.v << 32 | key.piece;

	/* The finisher of splitmix64: every bit of the key moves every bit of the hash. */
	h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ull;
	h = (h ^ (h >> 27)) * 0x94d049bb133111ebull;
	return h ^ (h >> 31);
}

static struct store_shard *shard_of(struct store_index *index, uint64_t hash)
{
	return &index->shards[hash >> 58];
}

static uint64_t tag_of(const struct file_identity *identity)
{
	uint64_t words[4] = { identity->ino, identity->size, (uint64_t)identity->mtime_ns,
			      (uint64_t)identity->ctime_ns };

	return XXH3_64bits(words, sizeof(words));
}

void store_index_init(struct store_index *index)
{
	for (size_t i = 0; i < STORE_SHARDS; i++) {
		mutex_init(&index->shards[i].mu);
		index->shards[i].slots = NULL;
		index->shards[i].n_slots = index->shards[i].n_used = 0;
	}
}

void store_index_fini(struct store_index *index)
{
	for (size_t i = 0; i < STORE_SHARDS; i++) {
		mutex_fini(&index->shards[i].mu);
		free(index->shards[i].slots);
	}
}

/* The slot of the key, or the empty one where it would be; NULL without a table. */
static struct store_slot *probe(struct store_slot *slots, uint32_t n_slots, struct piece_key key)
{
	uint32_t at = (uint32_t)hash_of(key);

	if (n_slots == 0)
		return NULL;
	for (;; at++) {
		struct store_slot *slot = &slots[at & (n_slots - 1)];

		if (slot->block == STORE_NO_BLOCK ||
		    (slot->entry == key.entry.v && slot->piece == key.piece))
			return slot;
	}
}

static struct store_slot *find_locked(struct store_shard *shard, struct piece_key key)
	REQUIRES(shard->mu)
{
	struct store_slot *slot = probe(shard->slots, shard->n_slots, key);

	return slot && slot->block != STORE_NO_BLOCK ? slot : NULL;
}

int store_index_find(struct store_index *index, struct piece_key key,
		     const struct file_identity *identity, uint32_t *ret_block)
{
	struct store_shard *shard = shard_of(index, hash_of(key));
	uint64_t tag = tag_of(identity);
	struct store_slot *slot;
	int rc = -ENOENT;

	mutex_lock(&shard->mu);
	slot = find_locked(shard, key);
	if (slot) {
		rc = ((uint64_t)slot->tag_hi << 32 | slot->tag_lo) == tag ? 0 : -ESTALE;
		*ret_block = slot->block;
	}
	mutex_unlock(&shard->mu);
	return rc;
}

static int grow_locked(struct store_shard *shard) REQUIRES(shard->mu)
{
	uint32_t n = shard->n_slots ? shard->n_slots * 2 : FIRST_SLOTS;
	struct store_slot *slots;

	if (n < shard->n_slots)
		return -ENOMEM;
	slots = malloc((size_t)n * sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		slots[i].block = STORE_NO_BLOCK;
	for (uint32_t i = 0; i < shard->n_slots; i++) {
		const struct store_slot *old = &shard->slots[i];

		if (old->block != STORE_NO_BLOCK)
			*probe(slots, n, (struct piece_key){ { old->entry }, old->piece }) = *old;
	}
	free(shard->slots);
	shard->slots = slots;
	shard->n_slots = n;
	return 0;
}

static int set_locked(struct store_shard *shard, const struct store_slot *value) REQUIRES(shard->mu)
{
	struct piece_key key = { { value->entry }, value->piece };
	struct store_slot *slot = find_locked(shard, key);

	if (!slot) {
		if (shard->n_used >= shard->n_slots / 8 * 7) {
			int rc = grow_locked(shard);

			if (rc < 0)
				return rc;
		}
		slot = probe(shard->slots, shard->n_slots, key);
		shard->n_used++;
	}
	*slot = *value;
	return 0;
}

int store_index_set(struct store_index *index, struct piece_key key,
		    const struct file_identity *identity, uint32_t block)
{
	struct store_shard *shard = shard_of(index, hash_of(key));
	uint64_t tag = tag_of(identity);
	struct store_slot value = { .entry = key.entry.v,
				    .piece = key.piece,
				    .block = block,
				    .tag_lo = (uint32_t)tag,
				    .tag_hi = (uint32_t)(tag >> 32) };
	int rc;

	mutex_lock(&shard->mu);
	rc = set_locked(shard, &value);
	mutex_unlock(&shard->mu);
	return rc;
}

/* Empties a slot; later ones of the run that would no longer be found move up. */
static void close_gap_locked(struct store_shard *shard, uint32_t gap) REQUIRES(shard->mu)
{
	uint32_t mask = shard->n_slots - 1, at = gap;

	for (;;) {
		struct store_slot *slot;
		uint32_t home;

		at = (at + 1) & mask;
		slot = &shard->slots[at];
		if (slot->block == STORE_NO_BLOCK)
			break;
		home = (uint32_t)hash_of((struct piece_key){ { slot->entry }, slot->piece }) & mask;
		if (((at - home) & mask) < ((at - gap) & mask))
			continue; /* its home is behind the gap */
		shard->slots[gap] = *slot;
		gap = at;
	}
	shard->slots[gap].block = STORE_NO_BLOCK;
	shard->n_used--;
}

void store_index_remove(struct store_index *index, struct piece_key key, uint32_t block)
{
	struct store_shard *shard = shard_of(index, hash_of(key));
	struct store_slot *slot;

	mutex_lock(&shard->mu);
	slot = find_locked(shard, key);
	if (slot && (block == STORE_NO_BLOCK || slot->block == block))
		close_gap_locked(shard, (uint32_t)(slot - shard->slots));
	mutex_unlock(&shard->mu);
}

void store_index_usage(struct store_index *index, uint64_t *ret_bytes, uint64_t *ret_pieces)
{
	*ret_bytes = *ret_pieces = 0;
	for (size_t i = 0; i < STORE_SHARDS; i++) {
		struct store_shard *shard = &index->shards[i];

		mutex_lock(&shard->mu);
		*ret_bytes += (uint64_t)shard->n_slots * sizeof(struct store_slot);
		*ret_pieces += shard->n_used;
		mutex_unlock(&shard->mu);
	}
}
