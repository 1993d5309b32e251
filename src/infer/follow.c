/* SPDX-License-Identifier: Apache-2.0 */
/* Whether records are still read as an order says. Readers are near one place of the epoch, ahead of it and behind,
 * as far as there are workers; a record that is not near is a miss. One that is near the last miss moves the place:
 * the order may have been found long after it began to be read. Near the end of an epoch some may read the next one
 * already, so a record counts that is near its beginning; when most are it is the one that is read. Computing an epoch
 * is dear, so between two that there are hits for a tenth of one: who turns epochs faster is not followed.
 *
 *	of 64 reads 40 are hits         followed (by chance, of all records: once in a million times at most)
 *	fewer                           lost
 *
 * Where many of the READs begin at no record 20 are enough.
 *
 * It says how an order does that was found. Whether it is one, the search has decided by its own evidence. */
#include <errno.h>
#include <string.h>

#include "clairfs/order.h"
#include "records_priv.h"

#define EPOCH_BYTES 24u /* per record, of two epochs */
#define RECORDS_MOST 20000000u /* an epoch of more takes seconds */
#define HITS_SHARE 10u
#define NEAR_SHARE 32u
#define NEAR_MOST 4096u
#define NEAR_LEAST 128u /* workers read so far apart, ... */
#define LEAST_SHARE 8u  /* ... if there are enough records for that to say anything */
#define WINDOW 64u      /* bits of hits */
#define ENOUGH 40u
#define ENOUGH_LOOSE 20u /* by chance, of all records: once in 10^8 times */
#define TURN_OF 0xffffu /* of the last 16, so many in the next epoch: it has begun */
#define TURN_ENOUGH 10

/* Where readers are. */
struct place {
	struct order_epoch *epoch;
	uint64_t at, missed; /* missed: the last one that was not near, or UINT64_MAX */
};

struct follow {
	struct order *order;
	struct place now, next; /* next.epoch NULL: this one is not near its end */
	uint64_t n, shift;
	uint64_t hits, next_hits; /* of the last reads, the youngest is bit 0 */
	uint64_t n_hits;   /* since an epoch was computed on the way */
	uint64_t spent_ns; /* on these, not taken yet */
	uint32_t n_reads, last;    /* last: record */
	uint32_t enough;           /* hits */
	bool has_no_next, has_made; /* has_made: one on the way */
};

void follow_free(struct follow *f)
{
	if (!f)
		return;
	order_epoch_free(f->now.epoch);
	order_epoch_free(f->next.epoch);
	order_free(f->order);
	free(f);
}

static int follow_make(struct follow *f, const char *spec)
{
	const struct order_params params = { .n = f->n };
	struct order_spec *parsed = NULL;
	struct err err = { 0 };
	int rc = order_spec_parse(spec, &parsed, &err);

	if (rc == 0)
		rc = order_new(parsed, &params, &f->order, &err);
	order_spec_free(parsed);
	if (rc == 0)
		rc = order_epoch_new(f->order, order_info(f->order)->start_epoch, &f->now.epoch, &err);
	return rc;
}

uint64_t follow_records_most(uint64_t memory)
{
	return memory ? MIN(memory / EPOCH_BYTES, (uint64_t)RECORDS_MOST) : RECORDS_MOST;
}

int follow_new(const char *spec, uint64_t n, uint64_t shift, uint64_t memory, struct follow **ret)
{
	struct follow *f;
	int rc;

	*ret = NULL;
	if (n > follow_records_most(memory))
		return -E2BIG;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->n = n;
	f->shift = shift;
	f->enough = ENOUGH;
	f->now.missed = UINT64_MAX;
	f->last = UINT32_MAX;
	rc = follow_make(f, spec);
	if (rc < 0) {
		follow_free(f);
		return rc;
	}
	*ret = f;
	return 0;
}

bool follow_is_alike(const struct follow *a, const struct follow *b)
{
	const struct order_epoch *x = a->now.epoch, *y = b->now.epoch;

	return x->length == y->length && memcmp(x->sample, y->sample, x->length * sizeof(*x->sample)) == 0;
}

void follow_loosely(struct follow *f)
{
	f->enough = ENOUGH_LOOSE;
}

static uint64_t near_of(const struct place *p)
{
	uint64_t n = p->epoch->length;

	return MAX(MAX(MIN(n / NEAR_SHARE, (uint64_t)NEAR_MOST), MIN(n / LEAST_SHARE, (uint64_t)NEAR_LEAST)), 1u);
}

static bool is_near(const struct place *p, uint64_t a, uint64_t b)
{
	return MAX(a, b) - MIN(a, b) <= near_of(p);
}

/* By two records that are near each other the place moves to them. */
static bool is_hit(struct place *p, uint64_t record)
{
	uint64_t at = record < p->epoch->n ? p->epoch->first[record] : UINT32_MAX;

	if (at == UINT32_MAX)
		return false;
	if (is_near(p, at, p->at)) {
		p->at = MAX(p->at, at);
		return true;
	}
	if (p->missed != UINT64_MAX && is_near(p, at, p->missed)) {
		p->at = at;
		return true;
	}
	p->missed = at;
	return false;
}

/* Of an epoch that may not have begun: those at the end of the one before it are anywhere in this one, so nothing that
 * they hit moves its place. */
static bool is_beginning(const struct place *p, uint64_t record)
{
	return record < p->epoch->n && p->epoch->first[record] != UINT32_MAX && is_near(p, p->epoch->first[record], 0);
}

static void make_next(struct follow *f)
{
	struct err err = { 0 };
	uint64_t cpu_ns = guess_cpu_ns();

	f->next = (struct place){ .missed = UINT64_MAX };
	f->next_hits = 0;
	if (order_epoch_new(f->order, f->now.epoch->epoch + 1, &f->next.epoch, &err) < 0)
		f->has_no_next = true;
	f->spent_ns += guess_cpu_ns() - cpu_ns;
	f->n_hits = 0;
	f->has_made = true;
}

/* The next epoch may have begun, and it may be computed. */
static bool is_next_due(const struct follow *f)
{
	uint64_t length = f->now.epoch->length;

	return !f->next.epoch && !f->has_no_next && f->now.at + near_of(&f->now) >= length &&
	       (!f->has_made || f->n_hits >= length / HITS_SHARE);
}

/* Whether it is a hit in the next epoch, where that may have begun. */
static bool is_next(struct follow *f, uint64_t record)
{
	bool hit;

	if (is_next_due(f))
		make_next(f);
	if (!f->next.epoch)
		return false;
	hit = is_beginning(&f->next, record);
	f->next_hits = f->next_hits << 1 | hit;
	if (__builtin_popcountll(f->next_hits & TURN_OF) < TURN_ENOUGH)
		return hit;
	order_epoch_free(f->now.epoch);
	f->now = f->next;
	f->next.epoch = NULL;
	return true;
}

static uint32_t hits_of(const struct follow *f)
{
	return (uint32_t)__builtin_popcountll(f->hits);
}

enum infer_plan follow_read(struct follow *f, uint32_t record)
{
	bool hit;

	if (record != f->last) { /* the same once more says nothing */
		hit = is_hit(&f->now, record + f->shift);
		hit |= is_next(f, record + f->shift);
		f->hits = f->hits << 1 | hit;
		f->n_hits += hit;
		f->n_reads = MIN(f->n_reads + 1, WINDOW);
		f->last = record;
	}
	if (f->n_reads < WINDOW)
		return INFER_PLAN_BUSY;
	return hits_of(f) >= f->enough ? INFER_PLAN_FOLLOWED : INFER_PLAN_LOST;
}

uint64_t follow_take_cpu(struct follow *f)
{
	uint64_t spent_ns = f->spent_ns;

	f->spent_ns = 0;
	return spent_ns;
}

double follow_match(const struct follow *f)
{
	return f->n_reads < WINDOW ? -1 : (double)hits_of(f) / WINDOW;
}
