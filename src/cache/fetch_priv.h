/* SPDX-License-Identifier: Apache-2.0 */
/* A fetch of one piece: fetch.c. Included by cache_priv.h. */
#ifndef CLAIRFS_CACHE_FETCH_PRIV_H
#define CLAIRFS_CACHE_FETCH_PRIV_H

#include "clairfs/cache/probe.h"
#include "clairfs/tier/chain.h"

struct fetch {
	struct walk walk;
	struct cache *cache;
	struct object *object;
	uint64_t begin_ns; /* while somebody traces, else 0 */
	uint64_t asked_ns; /* somebody waits since then, else 0 */
	uint32_t trace_group;
	struct probe_request request;
	char path[];
};

/* QUEUED -> FETCHING with the references of a fetch; fetch_start must follow without the lock. */
void fetch_claim_locked(struct shard *s, struct object *obj) REQUIRES(s->mu);
void fetch_start(struct cache *c, struct object *obj);

/* Whether the store keeps these pieces of this version, and may be asked. Any thread. */
bool store_keeps(struct cache *c, struct entry_id entry, const struct file_identity *id,
		 const struct piece_span *span);
/* Likewise one piece. */
bool store_keeps_piece(struct cache *c, struct entry_id entry, const struct file_identity *id,
		       uint32_t piece);

#endif
