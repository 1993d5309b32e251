/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that take samples in turn, one at a time like torch's DistributedSampler (a batch of 1
 * here, whatever the job's is) or by whole batches, as accelerate and Megatron deal them out:
 *
 *   batch 2, world 3    a a b b c c  a a b b c c  a a b        the last round is short
 *
 * Sample i of rank r is sample (i / batch * world + r) * batch + i % batch of the common sequence,
 * whether the job cuts a large batch into slices or gives each rank batches of its own. Only the
 * tail differs, see enum turns_tail; padding goes around the sequence as often as it takes. Kinds
 * differ in what they deal out, so it must know nothing of that. Pure; any thread. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "turns.h"

int turns_init(struct turns *t, const struct order_spec *spec, enum turns_tail tail,
	       struct err *err)
{
	t->batch = order_spec_u64(spec, "batch");
	t->world = spec->world;
	t->tail = tail;
	if (t->batch == 0 && t->world > 1)
		return err_set(err, -EINVAL,
			       "key \"batch\" is missing: the ranks take whole batches in turn");
	if (t->batch > TURNS_BATCH_MAX)
		return err_set(err, -EINVAL,
			       "key \"batch\": %" PRIu64 " is out of range, allowed: 1-%" PRIu64,
			       t->batch, TURNS_BATCH_MAX);
	t->batch = MAX(t->batch, 1);
	return 0;
}

uint64_t turns_rank_length(const struct order *order, uint64_t epoch, uint64_t length,
			   uint64_t rank)
{
	const struct turns *t = order->state;
	uint64_t round = t->batch * t->world, rest = length % round;
	uint64_t whole = length / round * t->batch, before = rank * t->batch;

	switch (t->tail) {
	case TURNS_TAIL_PAD:
		return rest > 0 ? whole + t->batch : whole;
	case TURNS_TAIL_UNEVEN:
		return rest > before ? whole + MIN(rest - before, t->batch) : whole;
	case TURNS_TAIL_DROP:
		break;
	}
	return whole;
}

/* Batches of one: every world-th sample. */
static void read_singles(const struct turns *t, const struct order_span *common, uint64_t at,
			 uint32_t count, uint32_t *out)
{
	for (uint32_t i = 0; i < count; i++, at += t->world)
		out[i] = common->sample[at < common->length ? at : at % common->length];
}

void turns_rank_read(const struct order *order, const struct order_span *common, uint64_t rank,
		     uint64_t from, uint32_t count, uint32_t *out)
{
	const struct turns *t = order->state;
	uint64_t in_batch = from % t->batch;
	uint64_t at = (from / t->batch * t->world + rank) * t->batch + in_batch;

	if (t->batch == 1) {
		read_singles(t, common, at, count, out);
		return;
	}
	while (count > 0) {
		uint64_t start = at % common->length;
		uint32_t run = (uint32_t)MIN(count, t->batch - in_batch);

		run = (uint32_t)MIN(run, common->length - start);
		memcpy(out, common->sample + start, run * sizeof(*out));
		out += run;
		count -= run;
		at += run;
		in_batch += run;
		if (in_batch == t->batch) {
			in_batch = 0;
			at += (t->world - 1) * t->batch;
		}
	}
}

uint64_t turns_head_reach(const struct order *order, uint64_t length, uint64_t rows)
{
	const struct turns *t = order->state;

	return DIV_ROUND_UP(rows, t->batch) * t->batch * t->world;
}
