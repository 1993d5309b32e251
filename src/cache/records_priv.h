/* SPDX-License-Identifier: Apache-2.0 */
/* Units that are records of a file, in the object table: records.c. Included by cache_priv.h. */
#ifndef CLAIRFS_CACHE_RECORDS_PRIV_H
#define CLAIRFS_CACHE_RECORDS_PRIV_H

#include "clairfs/cache.h"

struct object;

/* The numbers of the parts of a unit that is a record, of a file that has this size. None where it has become a
 * file of one piece: any READ of that fetches it whole. */
struct piece_span records_parts(const struct cache *c, struct unit_id unit, uint64_t size);
/* The number in the table of the one with that byte, which is not before the unit. */
uint64_t records_part_at(const struct cache *c, struct unit_id unit, uint64_t at);
/* The number in the table of one of cache_unit_pieces, of any unit: no part has that of a piece, which
 * may be any of 32 bits. */
uint64_t records_key(const struct cache *c, struct unit_id unit, uint32_t number);
/* Whose part it is, or whose tracer page. */
struct unit_id records_unit(const struct cache *c, const struct object *obj);
/* Likewise of any object; of one that is no record the unit that has its beginning, or its middle. */
struct unit_id unit_of_object(const struct cache *c, const struct object *obj);
/* As object_new_locked, of one of records_parts. */
struct object *records_new_locked(struct cache *c, struct shard *s, struct entry_state *es,
				 const struct file_identity *id, struct unit_id unit, uint32_t part)
	REQUIRES(s->mu);
/* A tracer page that is kept when the rest has gone; of those there is one of a unit. */
struct object *records_tracer_find_locked(struct cache *c, struct shard *s, struct entry_state *es,
					 struct unit_id unit) REQUIRES(s->mu);
struct object *records_tracer_new_locked(struct cache *c, struct shard *s, struct entry_state *es,
					const struct file_identity *id, struct unit_id unit,
					uint64_t from, uint32_t length) REQUIRES(s->mu);
/* What there is of that byte, of any unit; NULL: nothing, or the file is not in records. */
struct object *records_find_locked(struct cache *c, struct shard *s, struct entry_state *es,
				  uint64_t at) REQUIRES(s->mu);
/* As ranges_gap_locked, of what is held. */
uint64_t records_gap_locked(struct cache *c, struct shard *s, struct entry_state *es, uint64_t at,
			   uint64_t end) REQUIRES(s->mu);

/* --- reached.c --- */
/* Whether it has the pages of that record and no others, but for those that it shares. */
bool reached_is_alone(struct cache *c, const struct cache_read *r, struct unit_id unit);

#endif
