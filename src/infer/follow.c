/* SPDX-License-Identifier: Apache-2.0 */
/* Whether records are still read as an order says. Readers are near one place of the epoch, ahead of it and behind, as far
 * as there are workers; a record that is not near is a miss. One that is near the last miss moves the place:
 * the order may have been found long after it began to be read.
 *
 *	of 64 reads half are hits       followed (by chance: once in 10^5 times)
 *	fewer                           lost; near the end of the epoch the next one is tried before
 *
 * It says how an order does that was found. Whether it is one, the search has decided by its own evidence. */
#include <errno.h>

#include "clairfs/order.h"
#include "records_priv.h"

#define EPOCH_BYTES 16u /* per record */
#define NEAR_SHARE 16u
#define NEAR_MOST 4096u
#define WINDOW 64u /* bits of hits */
#define TURN_MISSES 8u

struct follow {
	struct order *order;
	struct order_epoch *epoch;
	uint64_t n, at, missed; /* at: where readers are; missed: the last miss, or UINT64_MAX */
	uint64_t hits;          /* of the last reads, the youngest is bit 0 */
	uint32_t n_reads, misses; /* misses: one after the other */
	bool has_turned; /* the next epoch is the one that was computed last */
};

void follow_free(struct follow *f)
{
	if (!f)
		return;
	order_epoch_free(f->epoch);
	order_free(f->order);
	free(f);
}

static int make(struct follow *f, const char *spec)
{
	const struct order_params params = { .n = f->n };
	struct order_spec *parsed = NULL;
	struct err err = { 0 };
	int rc = order_spec_parse(spec, &parsed, &err);

	if (rc == 0)
		rc = order_new(parsed, &params, &f->order, &err);
	order_spec_free(parsed);
	if (rc == 0)
		rc = order_epoch_new(f->order, order_info(f->order)->start_epoch, &f->epoch, &err);
	return rc;
}

int follow_new(const char *spec, uint64_t n, uint64_t memory, struct follow **ret)
{
	struct follow *f;
	int rc;

	*ret = NULL;
	if (memory && n > memory / EPOCH_BYTES)
		return -E2BIG;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->n = n;
	f->missed = UINT64_MAX;
	rc = make(f, spec);
	if (rc < 0) {
		follow_free(f);
		return rc;
	}
	*ret = f;
	return 0;
}

static uint64_t near_of(const struct follow *f)
{
	return MAX(MIN(f->epoch->length / NEAR_SHARE, (uint64_t)NEAR_MOST), 1u);
}

static bool is_near(const struct follow *f, uint64_t a, uint64_t b)
{
	return MAX(a, b) - MIN(a, b) <= near_of(f);
}

/* The epoch seems to be over: the next one, if there is one. */
static void turn(struct follow *f)
{
	struct order_epoch *next = NULL;
	struct err err = { 0 };

	if (order_epoch_new(f->order, f->epoch->epoch + 1, &next, &err) < 0)
		return;
	order_epoch_free(f->epoch);
	f->epoch = next;
	f->at = 0;
	f->missed = UINT64_MAX;
}

static bool is_hit(struct follow *f, uint32_t record)
{
	uint64_t at = record < f->epoch->n ? f->epoch->first[record] : UINT32_MAX;

	if (at == UINT32_MAX)
		return false;
	if (is_near(f, at, f->at)) {
		f->at = MAX(f->at, at);
		return true;
	}
	if (f->missed != UINT64_MAX && is_near(f, at, f->missed)) {
		f->at = at;
		return true;
	}
	f->missed = at;
	return false;
}

enum infer_plan follow_read(struct follow *f, uint32_t record)
{
	bool hit = is_hit(f, record);

	f->misses = hit ? 0 : f->misses + 1;
	if (hit && f->at > 2 * near_of(f))
		f->has_turned = false;
	if (f->misses >= TURN_MISSES && !f->has_turned && f->at + near_of(f) >= f->epoch->length) {
		f->has_turned = true;
		turn(f);
		hit = is_hit(f, record);
	}
	f->hits = f->hits << 1 | hit;
	f->n_reads = MIN(f->n_reads + 1, WINDOW);
	if (f->n_reads < WINDOW)
		return INFER_PLAN_BUSY;
	return (uint32_t)__builtin_popcountll(f->hits) * 2 >= WINDOW ? INFER_PLAN_FOLLOWED : INFER_PLAN_LOST;
}

double follow_match(const struct follow *f)
{
	return f->n_reads < WINDOW ? -1 : (double)__builtin_popcountll(f->hits) / WINDOW;
}
