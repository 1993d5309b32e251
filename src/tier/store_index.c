/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index of the store: which piece of which version of which file is in which segment at which
 * block.
 *
 * Tables of 16-byte slots with linear probing, filled to at most 7/8 before they double: 18 to 37
 * bytes per record. A slot has 94 bits of a keyed sum over the identity and the piece, not the
 * identity itself. The key is random for each process, so two pieces with one tag can neither be
 * made nor be expected; and what is found is compared with the record once before it is believed.
 *
 * 64 shards, each with a lock of its own: doubling a table of ten million pieces takes half a
 * second, and a handler that asks store_has() must not wait for that; a shard takes milliseconds.
 * Any thread. Removing closes the gap by moving later slots of the run up, so there are no
 * tombstones.
 *
 * A segment that goes is swept out of all shards first. Who looks a piece up takes a reference of
 * its segment under the lock of the shard, so after the sweep nobody can come upon it any more.
 */
#include <assert.h>
#include <errno.h>
#include <xxhash.h>

#include "store_priv.h"

#define FIRST_SLOTS 16u

struct store_tag store_tag_of(const struct store_index *index, uint64_t fsid,
			      const struct file_identity *identity, uint32_t piece)
{
	uint64_t words[6] = { fsid,
			      identity->ino,
			      identity->size,
			      (uint64_t)identity->mtime_ns,
			      (uint64_t)identity->ctime_ns,
			      piece };
	XXH128_hash_t sum = XXH3_128bits_withSeed(words, sizeof(words), index->key);

	return (struct store_tag){ sum.high64, (uint32_t)sum.low64 & ~STORE_FLAGS };
}

static struct store_shard *index_shard(struct store_index *index, const struct store_tag *tag)
{
	return &index->shards[tag->high >> 58];
}

void store_index_init(struct store_index *index, uint64_t key)
{
	index->key = key;
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

/* The slot of the tag, or the empty one where it would be; NULL without a table. */
static struct store_slot *probe_slots(struct store_slot *slots, uint32_t n_slots,
				      const struct store_tag *tag)
{
	uint32_t at = (uint32_t)tag->high;

	if (n_slots == 0)
		return NULL;
	for (;; at++) {
		struct store_slot *slot = &slots[at & (n_slots - 1)];

		if (slot->place == STORE_NO_PLACE ||
		    (slot->high == tag->high && (slot->low & ~STORE_FLAGS) == tag->low))
			return slot;
	}
}

static struct store_slot *index_find_locked(struct store_shard *shard, const struct store_tag *tag)
	REQUIRES(shard->mu)
{
	struct store_slot *slot = probe_slots(shard->slots, shard->n_slots, tag);

	return slot && slot->place != STORE_NO_PLACE ? slot : NULL;
}

bool store_index_find(struct store_index *index, const struct store_tag *tag,
		      struct store_segment *const *segments, struct store_found *ret)
{
	struct store_shard *shard = index_shard(index, tag);
	const struct store_slot *slot;

	mutex_lock(&shard->mu);
	slot = index_find_locked(shard, tag);
	if (slot) {
		ret->place = slot->place;
		ret->flags = slot->low & STORE_FLAGS;
		ret->segment = segments ? segments[store_place_slot(slot->place)] : NULL;
		if (ret->segment)
			atomic_fetch_add_explicit(&ret->segment->refs, 1, memory_order_relaxed);
	}
	mutex_unlock(&shard->mu);
	return slot;
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
		slots[i].place = STORE_NO_PLACE;
	for (uint32_t i = 0; i < shard->n_slots; i++) {
		const struct store_slot *old = &shard->slots[i];
		struct store_tag tag = { old->high, old->low & ~STORE_FLAGS };

		if (old->place != STORE_NO_PLACE)
			*probe_slots(slots, n, &tag) = *old;
	}
	assert((n & (n - 1)) == 0); /* probing masks */
	free(shard->slots);
	shard->slots = slots;
	shard->n_slots = n;
	return 0;
}

static int add_locked(struct store_shard *shard, const struct store_tag *tag, uint32_t place,
		      uint32_t flags) REQUIRES(shard->mu)
{
	struct store_slot *slot = probe_slots(shard->slots, shard->n_slots, tag);

	assert(place != STORE_NO_PLACE && !(tag->low & STORE_FLAGS) && !(flags & ~STORE_FLAGS));
	if (slot && slot->place != STORE_NO_PLACE)
		return -EEXIST;
	if (shard->n_used >= shard->n_slots / 8 * 7) {
		int rc = grow_locked(shard);

		if (rc < 0)
			return rc;
		slot = probe_slots(shard->slots, shard->n_slots, tag);
	}
	*slot = (struct store_slot){ tag->high, tag->low | flags, place };
	shard->n_used++;
	assert(shard->n_used < shard->n_slots); /* a search ends at an empty slot */
	return 0;
}

int store_index_add(struct store_index *index, const struct store_tag *tag, uint32_t place,
		    uint32_t flags)
{
	struct store_shard *shard = index_shard(index, tag);
	int rc;

	mutex_lock(&shard->mu);
	rc = add_locked(shard, tag, place, flags);
	mutex_unlock(&shard->mu);
	return rc;
}

static bool mark_locked(struct store_shard *shard, const struct store_tag *tag, uint32_t place,
			uint32_t flag) REQUIRES(shard->mu)
{
	struct store_slot *slot = index_find_locked(shard, tag);

	if (!slot || slot->place != place || (slot->low & flag))
		return false;
	slot->low |= flag;
	return true;
}

bool store_index_mark(struct store_index *index, const struct store_tag *tag, uint32_t place,
		      uint32_t flag)
{
	struct store_shard *shard = index_shard(index, tag);
	bool is_new;

	mutex_lock(&shard->mu);
	is_new = mark_locked(shard, tag, place, flag);
	mutex_unlock(&shard->mu);
	return is_new;
}

bool store_index_verify(struct store_index *index, const struct store_tag *tag, uint32_t place,
			const _Atomic uint32_t *round, uint32_t expected)
{
	struct store_shard *shard = index_shard(index, tag);
	bool is_new;

	mutex_lock(&shard->mu);
	/* If it changes after this look, the doubt comes to this shard after us. */
	is_new = atomic_load(round) == expected && mark_locked(shard, tag, place, STORE_VERIFIED);
	mutex_unlock(&shard->mu);
	return is_new;
}

bool store_index_unmark(struct store_index *index, const struct store_tag *tag, uint32_t place,
			uint32_t flag)
{
	struct store_shard *shard = index_shard(index, tag);
	struct store_slot *slot;
	bool is_set;

	mutex_lock(&shard->mu);
	slot = index_find_locked(shard, tag);
	is_set = slot && slot->place == place && (slot->low & flag);
	if (is_set)
		slot->low &= ~flag;
	mutex_unlock(&shard->mu);
	return is_set;
}

bool store_index_move(struct store_index *index, const struct store_tag *tag, uint32_t place,
		      struct store_found *ret)
{
	struct store_shard *shard = index_shard(index, tag);
	struct store_slot *slot;
	bool is_there;

	mutex_lock(&shard->mu);
	slot = index_find_locked(shard, tag);
	is_there = slot && slot->place == ret->place;
	if (is_there) {
		ret->flags = slot->low & STORE_FLAGS;
		assert(place != STORE_NO_PLACE);
		slot->low &= ~(uint32_t)STORE_VERIFIED;
		slot->place = place;
	}
	mutex_unlock(&shard->mu);
	return is_there;
}

/* Empties a slot; later ones of the run that would no longer be found move up. */
static void close_gap_locked(struct store_shard *shard, uint32_t gap) REQUIRES(shard->mu)
{
	uint32_t mask = shard->n_slots - 1, at = gap;

	assert(shard->n_used > 0 && shard->slots[gap].place != STORE_NO_PLACE);
	for (;;) {
		struct store_slot *slot;
		uint32_t home;

		at = (at + 1) & mask;
		slot = &shard->slots[at];
		if (slot->place == STORE_NO_PLACE)
			break;
		home = (uint32_t)slot->high & mask;
		if (((at - home) & mask) < ((at - gap) & mask))
			continue; /* its home is behind the gap */
		shard->slots[gap] = *slot;
		gap = at;
	}
	shard->slots[gap].place = STORE_NO_PLACE;
	shard->n_used--;
}

bool store_index_remove(struct store_index *index, const struct store_tag *tag, uint32_t place,
			struct store_found *ret)
{
	struct store_shard *shard = index_shard(index, tag);
	struct store_slot *slot;
	bool is_found;

	mutex_lock(&shard->mu);
	slot = index_find_locked(shard, tag);
	is_found = slot && (place == STORE_NO_PLACE || slot->place == place);
	if (is_found) {
		ret->place = slot->place;
		ret->flags = slot->low & STORE_FLAGS;
		close_gap_locked(shard, (uint32_t)(slot - shard->slots));
	}
	mutex_unlock(&shard->mu);
	return is_found;
}

void store_index_sweep(struct store_index *index, uint32_t segment_slot)
{
	for (size_t i = 0; i < STORE_SHARDS; i++) {
		struct store_shard *shard = &index->shards[i];

		mutex_lock(&shard->mu);
		/* A gap is filled from behind, so the same slot is looked at again; one that moved
		 * around the end of the table to a place already passed is met in a second round.
		 */
		for (bool is_again = true; is_again;) {
			is_again = false;
			for (uint32_t at = 0; at < shard->n_slots; at++) {
				while (shard->slots[at].place != STORE_NO_PLACE &&
				       store_place_slot(shard->slots[at].place) == segment_slot) {
					close_gap_locked(shard, at);
					is_again = true;
				}
			}
		}
		mutex_unlock(&shard->mu);
	}
}

uint32_t store_index_doubt(struct store_index *index, uint32_t segment_slot)
{
	uint32_t n = 0;

	for (size_t i = 0; i < STORE_SHARDS; i++) {
		struct store_shard *shard = &index->shards[i];

		mutex_lock(&shard->mu);
		for (uint32_t at = 0; at < shard->n_slots; at++) {
			struct store_slot *slot = &shard->slots[at];

			if (slot->place == STORE_NO_PLACE ||
			    store_place_slot(slot->place) != segment_slot ||
			    !(slot->low & STORE_VERIFIED))
				continue;
			slot->low &= ~(uint32_t)STORE_VERIFIED;
			n++;
		}
		mutex_unlock(&shard->mu);
	}
	return n;
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
