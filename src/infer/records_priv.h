/* SPDX-License-Identifier: Apache-2.0 */
/* What the files about records share: READs of a file -> records.c (what its records are) -> records_search.c (the
 * order that they come in) -> follow.c (is it still read so). */
#ifndef CLAIRFS_INFER_RECORDS_PRIV_H
#define CLAIRFS_INFER_RECORDS_PRIV_H

#include "clairfs/infer/records.h"
#include "infer_priv.h"

/* --- follow.c: one order, and the records as they are read. One thread. */
struct follow;
/* n: records; shift: what is added to their numbers as they are told. memory: bytes that its epochs may take, 0: any.
 * -E2BIG: they would take more, or more time than may be spent in a READ; else errors of the order. */
int follow_new(const char *spec, uint64_t n, uint64_t shift, uint64_t memory, struct follow **ret) MUST_USE;
void follow_free(struct follow *f); /* NULL is fine */
/* Many of what is told are no records that were read. Before the first one. */
void follow_loosely(struct follow *f);
/* A record is read. INFER_PLAN_BUSY: too few were to say how it does. Where the epoch is over the next one is computed,
 * up to a second for 10^7 records; where the one before that was computed just now the next is not followed. */
enum infer_plan follow_read(struct follow *f, uint32_t record);
/* CPU time that epochs took since the last call, but for the first one. */
uint64_t follow_take_cpu(struct follow *f);
/* How many records an order can be followed of in so much memory (0: any). */
uint64_t follow_records_most(uint64_t memory);
/* Whether both begin with the same epoch. Before the first READ. */
bool follow_is_alike(const struct follow *a, const struct follow *b);
/* Part of the last records that were where the order has them; below 0: too few were read. */
double follow_match(const struct follow *f);

#define RECORD_SEARCHES_MOST 2u /* that are there at once; they share the memory */

/* --- records_search.c: what looks for the order of the records of one file. */
struct records_search;
/* Starts a thread. view: STRIDE_RECORDS, of a file of `size` bytes; name: of the file, for the log; copied. seen: the
 * records that were read first. params->memory: of all searches, of which it takes a part. -E2BIG: more
 * records than there is memory for; -ENOENT: too few. */
int records_search_new(const struct infer_records_params *params, const struct stride_view *view, uint64_t size,
		       const char *name, const uint32_t *seen, size_t n_seen, struct records_search **ret) MUST_USE;
/* A READ of so many bytes has come to a record. Returns the CPU time that its epoch took, if one was computed. One
 * thread. */
uint64_t records_search_open(struct records_search *s, uint32_t record, uint64_t length);
/* An order was found, and nothing that was read since says otherwise. Any thread. */
bool records_search_is_followed(struct records_search *s);
/* Whether this view of the records, which gives those that were read the same numbers, has the same place for the
 * others. The thread of records_search_open. */
bool records_search_fits(const struct records_search *s, const struct stride_view *view);
/* Fills in what is known of the order; ret->view is what the records are. Any thread. */
void records_search_say(struct records_search *s, struct infer_record_file *ret);
/* Cancels what is under way; any thread, also more than once. */
void records_search_quit(struct records_search *s);
bool records_search_has_ended(const struct records_search *s);
/* Cancels what is under way and waits for it. Once. */
void records_search_free(struct records_search *s);

#endif
