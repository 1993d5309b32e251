/* SPDX-License-Identifier: Apache-2.0 */
/* Orders: from a spec and n to epochs. The kind computes the common sequence and says what a rank
 * reads of it; here the local ranks are merged into the one sequence this node reads, and positions
 * are indexed by sample.
 *
 *   rank a:  s0 s1 s2       merged, a < b:   a0 b0 a1 b1 a2     (b is through: it drops out)
 *   rank b:  s0 s1          first[s], next_same[p]: where s stands first, where it comes again
 *
 * An order never changes after order_new, so any thread may compute any epoch; nothing here may
 * keep state between epochs. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "order_priv.h"

#define REPEATS_MAX 4096
#define PREFETCH 32 /* positions: the first[] of a large dataset is out of the caches */

uint32_t *order_alloc_u32(uint64_t n)
{
	return mem_alloc(MAX(n, 1), sizeof(uint32_t));
}

int order_replay_check(uint64_t epoch, uint64_t n, struct err *err)
{
	if (epoch >= ORDER_REPLAY_MAX)
		return err_set(err, -ENOENT,
			       "epoch %" PRIu64
			       " is not computed: each epoch goes on from the one before, "
			       "and no more than %d are repeated",
			       epoch, ORDER_REPLAY_MAX);
	if (n > 0 && epoch + 1 > ORDER_REPLAY_DRAWS_MAX / n) /* the first of any n is computed */
		return epoch == 0
			       ? 0
			       : err_set(err, -ENOENT,
					 "epoch %" PRIu64
					 " is not computed: each epoch goes on from the one "
					 "before, and of %" PRIu64 " samples no more than %" PRIu64
					 " are repeated; announce the order as a list",
					 epoch, n, MAX(ORDER_REPLAY_DRAWS_MAX / n, 1));
	return 0;
}

static int order_fill_info(struct order *order, const struct order_spec *spec, uint64_t n,
			   struct err *err)
{
	struct order_info *info = &order->info;

	order->kind = spec->kind;
	order->ranks = order_alloc_u32(spec->n_ranks);
	if (!order->ranks)
		return err_set(err, -ENOMEM, "out of memory");
	memcpy(order->ranks, spec->ranks, spec->n_ranks * sizeof(*spec->ranks));
	info->n = n;
	info->start_epoch = order_spec_u64(spec, "start_epoch");
	info->epochs = order_spec_u64(spec, "epochs");
	info->start_step = order_spec_u64(spec, "start_step");
	info->world = spec->world;
	info->n_ranks = spec->n_ranks;
	info->ranks = order->ranks;
	info->batch = order_spec_u64(spec, "batch");
	info->workers = order_spec_u64(spec, "workers");
	info->prefetch_factor = order_spec_u64(spec, "prefetch_factor");
	info->is_same_every_epoch = true;
	return 0;
}

int order_common_length(const struct order *order, uint64_t epoch, uint64_t *ret, struct err *err)
{
	*ret = order->info.n;
	return order->kind->common_length ? order->kind->common_length(order, epoch, ret, err) : 0;
}

/* A resume point behind the epoch's end is a wrong start_step or a wrong batch: nothing would ever
 * be prefetched. */
static int check_start_step(const struct order *order, struct err *err)
{
	const struct order_info *info = &order->info;
	struct order_span common = { .epoch = info->start_epoch };
	uint64_t length;
	int rc;

	if (info->start_step == 0)
		return 0;
	rc = order_common_length(order, common.epoch, &common.length, err);
	if (rc < 0)
		return rc;
	length = order_rank_length(order, &common, info->ranks[0]);
	if (info->start_step > DIV_ROUND_UP(length, info->batch))
		return err_set(err, -EINVAL,
			       "key \"start_step\": %" PRIu64
			       " is behind the end of the epoch, which has %" PRIu64
			       " batches of %" PRIu64 " per rank",
			       info->start_step, DIV_ROUND_UP(length, info->batch), info->batch);
	return 0;
}

static int order_prepare(struct order *order, const struct order_spec *spec,
			 struct order_numbering *num, struct err *err)
{
	int rc = order_fill_info(order, spec, num->inner.n, err);

	if (rc == 0 && order_number_outside(num, &order->outside) < 0)
		rc = err_set(err, -ENOMEM, "out of memory");
	order->sizes = num->sizes;
	num->sizes = (struct order_sizes){ 0 };
	order->records = num->records;
	num->records = (struct order_records){ 0 };
	if (rc == 0 && spec->kind->open)
		rc = spec->kind->open(order, spec, &num->inner, err);
	if (rc == 0)
		rc = check_start_step(order, err);
	order->map = TAKE(num->map);
	order->memory = num->params->memory;
	order->shown = order->info;
	order->shown.n = num->params->n;
	order->shown.outside = order->outside;
	/* These count records, and a position is a file of many. */
	if (spec->kind->numbers == ORDER_NUMBERS_SHARDS)
		order->shown.start_step = order->shown.batch = order->shown.prefetch_factor = 0;
	if (order->records.n > 0) {
		order_records_show(order, &order->shown);
		if (order_records_describe(order) < 0 && rc == 0)
			rc = err_set(err, -ENOMEM, "out of memory");
	}
	if (rc == 0 && order->records.n > 0)
		rc = order_records_check_room(order, num->params, err);
	if (rc == 0 && order_records_note(order, num->params, spec) < 0)
		rc = err_set(err, -ENOMEM, "out of memory");
	return rc;
}

int order_new(const struct order_spec *spec, const struct order_params *params, struct order **ret,
	      struct err *err)
{
	struct order_numbering num = { 0 };
	struct order *order;
	int rc;

	*ret = NULL;
	if (MAX(params->n, params->n_records) > ORDER_SAMPLES_MAX)
		return err_set(err, -EINVAL,
			       "order %s: %" PRIu64 " samples are too many, at most %" PRIu64,
			       spec->name, MAX(params->n, params->n_records), ORDER_SAMPLES_MAX);
	order = calloc(1, sizeof(*order));
	if (!order)
		return err_set(err, -ENOMEM, "order %s: out of memory", spec->name);
	rc = order_number_new(spec, params, &num, err);
	if (rc == 0)
		rc = order_prepare(order, spec, &num, err);
	order_number_fini(&num);
	if (rc < 0) {
		err_prefix(err, "order %s", spec->name);
		order_free(order);
		return rc;
	}
	*ret = order;
	return 0;
}

void order_free(struct order *order)
{
	if (!order)
		return;
	if (order->kind && order->kind->close)
		order->kind->close(order);
	else
		free(order->state);
	free(order->ranks);
	free(order->outside);
	free(order->records_outside);
	free(order->map);
	free(order->units);
	free(order->sizes.size);
	order_records_fini(&order->records);
	free(order->note);
	free(order);
}

const struct order_info *order_info(const struct order *order)
{
	return &order->shown;
}

void order_may_be_left(struct order *order)
{
	order->shown.may_be_left = order->of_records.may_be_left = true;
}

const char *order_note(const struct order *order)
{
	return order->note;
}

/* Positions of samples that come again, as long as there are few: padding. */
struct repeats {
	uint32_t n;
	struct {
		uint32_t pos, next;
	} repeat[REPEATS_MAX];
};

/* Fills first[] and notes repeats; false: there are more than fit, and first[] is not filled.
 * Backwards, so that the entry of a sample is always its next position. */
static bool index_first(struct order_epoch *e, struct repeats *repeats)
{
	repeats->n = 0;
	memset(e->first, 0xff, e->n * sizeof(*e->first)); /* SAMPLE_NONE */
	for (uint64_t pos = e->length; pos-- > 0;) {
		uint32_t *first = &e->first[e->sample[pos]];

		if (pos >= PREFETCH)
			__builtin_prefetch(&e->first[e->sample[pos - PREFETCH]], 1);
		if (*first != SAMPLE_NONE) {
			if (repeats->n == REPEATS_MAX)
				return false;
			repeats->repeat[repeats->n].pos = (uint32_t)pos;
			repeats->repeat[repeats->n++].next = *first;
		}
		*first = (uint32_t)pos;
	}
	return true;
}

/* Fills first[] and next_same[]. */
static void index_all(struct order_epoch *e)
{
	memset(e->first, 0xff, e->n * sizeof(*e->first));
	for (uint64_t pos = e->length; pos-- > 0;) {
		uint32_t *first = &e->first[e->sample[pos]];

		if (pos >= PREFETCH)
			__builtin_prefetch(&e->first[e->sample[pos - PREFETCH]], 1);
		e->next_same[pos] = *first;
		*first = (uint32_t)pos;
	}
}

int order_index_positions(struct order_epoch *e, uint64_t (*memory)(void), struct err *err)
{
	struct repeats repeats;
	bool has_few = index_first(e, &repeats);

	if (has_few && repeats.n == 0)
		return 0;
	if (order_check_memory(memory, e->length * sizeof(*e->next_same), err) < 0)
		return err->code;
	e->next_same = order_alloc_u32(e->length);
	if (!e->next_same)
		return err_set(err, -ENOMEM, "out of memory for an epoch of %" PRIu64 " positions",
			       e->length);
	if (!has_few) {
		index_all(e);
		return 0;
	}
	memset(e->next_same, 0xff, e->length * sizeof(*e->next_same));
	for (uint32_t i = 0; i < repeats.n; i++)
		e->next_same[repeats.repeat[i].pos] = repeats.repeat[i].next;
	return 0;
}

uint64_t order_epoch_start(const struct order_info *info, const struct order_epoch *e)
{
	uint64_t step = MAX(info->batch, 1) * info->n_ranks;

	if (e->epoch != info->start_epoch)
		return 0;
	return info->start_step > e->length / step ? e->length : info->start_step * step;
}

static int epoch_fill(const struct order *order, struct order_epoch *e, struct err *err)
{
	struct order_span common;
	uint32_t *sample AUTO_FREE = NULL;
	int rc = order_common_new(order, e->epoch, &sample, &common, err);

	if (rc < 0)
		return rc;
	if (order_reads_whole(order)) {
		e->length = common.length;
		e->sample = TAKE(sample);
	} else {
		rc = order_merge(order, &common, UINT64_MAX, &e->sample, &e->length, err);
		if (rc < 0)
			return rc;
		free(TAKE(sample)); /* before first[] is made: one transient array, not two */
	}
	order_renumber(order, e->sample, e->length);
	rc = order->records.n > 0 ? order_records_fold(order, e, err) : 0;
	if (rc < 0)
		return rc;
	e->start = order_epoch_start(&order->shown, e);
	e->first = order_alloc_u32(e->n);
	if (!e->first)
		return err_set(err, -ENOMEM, "out of memory for an epoch of %" PRIu64 " positions",
			       e->length);
	return order_index_positions(e, NULL, err);
}

int order_epoch_new(const struct order *order, uint64_t epoch, struct order_epoch **ret,
		    struct err *err)
{
	struct order_epoch *e = calloc(1, sizeof(*e));
	int rc;

	*ret = NULL;
	if (!e)
		return err_set(err, -ENOMEM, "out of memory");
	e->epoch = epoch;
	e->n = (uint32_t)order->shown.n;
	rc = epoch_fill(order, e, err);
	if (rc < 0) {
		order_epoch_free(e);
		return rc;
	}
	*ret = e;
	return 0;
}

void order_epoch_free(struct order_epoch *epoch)
{
	if (!epoch)
		return;
	free(epoch->sample);
	free(epoch->first);
	free(epoch->next_same);
	free(epoch->place);
	free(epoch);
}
