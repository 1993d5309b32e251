/* SPDX-License-Identifier: Apache-2.0 */
/* Do the real searches find the order of jobs whose opens come as they do on a node? Ranks, each
 * with loader workers that read batches side by side at their own pace; files opened twice; samples
 * of somebody else; a look at a few files, or a validation set, before the epoch. The spec found
 * must make the same epoch for this node as the one the opens were made of.
 *
 * Opens are noted as fast as they come, so how many a look has varies; what it finds must not. */
#include <string.h>

#include "check.h"
#include "clairfs/base/thr.h"
#include "clairfs/order.h"
#include "src/infer/infer_priv.h"

#define N 20000
#define PATIENCE_NS (300 * NS_PER_S)
#define OPENS 3000
#define RANKS_MAX 8
#define WORKERS 4
#define BATCH 16

static struct bed {
	struct mutex mu;
	struct cond changed;
	struct infer *infer;
	char spec[INFER_SPEC_MAX]; /* mu */
	unsigned founds;         /* mu */
} bed;

static int note_found(void *ctx, const char *spec, uint64_t stamp)
{
	mutex_lock(&bed.mu);
	snprintf(bed.spec, sizeof(bed.spec), "%s", spec);
	bed.founds++;
	cond_broadcast(&bed.changed);
	mutex_unlock(&bed.mu);
	return 0;
}

static struct order *order_of(const char *text)
{
	struct order_params params = { .n = N };
	struct order_spec *spec = NULL;
	struct order *order = NULL;
	struct err err = { 0 };

	if (order_spec_parse(text, &spec, &err) < 0 || order_new(spec, &params, &order, &err) < 0)
		CHECK_STR(err.msg, "");
	order_spec_free(spec);
	return order;
}

static struct order_epoch *epoch_of(const char *text, uint64_t epoch)
{
	struct order *order = order_of(text);
	struct order_epoch *ep = NULL;
	struct err err = { 0 };

	if (order_epoch_new(order, epoch, &ep, &err) < 0)
		CHECK_STR(err.msg, "");
	order_free(order);
	return ep;
}

static void note_foreign(uint32_t sample, uint64_t *random)
{
	if (check_rand_below(random, 25) == 0)
		infer_note_open(bed.infer, (uint32_t)check_rand_below(random, N));
	if (check_rand_below(random, 5) == 0)
		infer_note_open(bed.infer, sample);
}

/* Opens of an epoch; every rank has its workers. */
static void read_epoch(const char *text, uint64_t epoch, uint32_t n_ranks, uint64_t *random)
{
	struct order_epoch *ep = epoch_of(text, epoch);
	uint32_t at[RANKS_MAX][WORKERS] = { { 0 } };

	for (uint32_t i = 0; i < OPENS; i++) {
		uint32_t r = (uint32_t)check_rand_below(random, n_ranks);
		uint32_t w = (uint32_t)check_rand_below(random, WORKERS), nth = at[r][w]++;
		uint64_t pos = (nth / BATCH * WORKERS + w) * BATCH + nth % BATCH;

		pos = pos * n_ranks + r; /* of the node */
		if (pos >= ep->length)
			continue;
		infer_note_open(bed.infer, ep->sample[pos]);
		note_foreign(ep->sample[pos], random);
	}
	order_epoch_free(ep);
}

static bool is_same_epoch(const char *want, uint64_t epoch, const char *found)
{
	struct order_epoch *a = epoch_of(want, epoch), *b;
	struct order *order = order_of(found);
	bool is_same;

	b = epoch_of(found, order_info(order)->start_epoch);
	is_same = a->length == b->length &&
		  memcmp(a->sample, b->sample, a->length * sizeof(*a->sample)) == 0;
	order_epoch_free(a);
	order_epoch_free(b);
	order_free(order);
	return is_same;
}

/* What the job says the order is must become the order: the first opens may not have shown every
 * rank yet, and more of them do. */
static void check_found(const char *want, uint64_t epoch)
{
	char found[INFER_SPEC_MAX] = "";
	unsigned seen = 0;

	for (;;) {
		mutex_lock(&bed.mu);
		while (bed.founds == seen &&
		       !cond_wait_for(&bed.changed, &bed.mu, PATIENCE_NS))
			;
		CHECK(bed.founds > seen); /* else the last finding stays, and it is wrong */
		seen = bed.founds;
		memcpy(found, bed.spec, sizeof(found));
		mutex_unlock(&bed.mu);
		printf("# %s: %s\n", want, found);
		if (is_same_epoch(want, epoch, found))
			break;
	}
	infer_stop(bed.infer);
}

static void run(const char *text, uint64_t epoch, uint32_t n_ranks, bool has_strays)
{
	struct infer_params p = { .n = N,
				.effort = INFER_QUICK,
				.clock = clock_monotonic(),
				.metrics = metrics_new(),
				.found = note_found };
	uint64_t random = check_seed();
	struct err err = { 0 };

	memset(&bed, 0, sizeof(bed));
	mutex_init(&bed.mu);
	cond_init(&bed.changed);
	CHECK(p.metrics != NULL);
	CHECK_INT(infer_new(&p, &bed.infer, &err), 0);
	CHECK_INT(infer_start(bed.infer, &err), 0);
	for (uint32_t i = 0; has_strays && i < 12; i++)
		infer_note_open(bed.infer, (uint32_t)check_rand_below(&random, N));
	read_epoch(text, epoch, n_ranks, &random);
	check_found(text, epoch);
	infer_free(bed.infer);
	metrics_free(p.metrics);
}

static void distributed_sampler(void)
{
	run("torch-distributed:seed=0", 3, 1, false);
	run("torch-distributed:seed=12345:world=2:rank=1", 0, 1, true);
	run("torch-distributed:seed=7:world=8:ranks=4-7", 5, 4, false);
}

static void manual_seed(void)
{
	run("torch-loader:seed=42", 0, 1, true);
	run("torch-loader:seed=60000", 0, 1, false);
	run("torch-loader:seed=42", 2, 1, false);
}

static void other_orders(void)
{
	run("sequential", 0, 1, true);
	run("numpy-legacy:seed=42", 0, 1, false);
}

static const struct check_test tests[] = {
	{ "distributed_sampler", distributed_sampler },
	{ "manual_seed", manual_seed },
	{ "other_orders", other_orders },
};

CHECK_MAIN(tests)
