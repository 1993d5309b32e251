/* SPDX-License-Identifier: Apache-2.0 */
/* Is the seed found whatever the loader does? A model of PyTorch's DataLoader makes the opens:
 * batch b goes to worker b % workers, a worker reads its batches one sample after the other,
 * prefetch_factor batches per worker are out at the start and one more for each that the training
 * has taken, in their order. Workers start one after the other and run at speeds that differ and
 * change; some opens are not seen, some are somebody else's; several ranks may run on the node.
 * The search is told n and the world, nothing else.
 *
 * Printed is how many opens it took; checked is that no search ever answers wrong, that 64 opens
 * per rank are mostly enough and 512 nearly always (not where so many workers read so small a
 * dataset that all of it is open at once), and that the answer has the right ranks. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "check.h"
#include "clairfs/order.h"
#include "clairfs/recover.h"

#define OPENS_MAX 4096
#define PREFETCH 2
#define RANKS_MAX 4
#define WORKERS_MAX 16
#define TRIALS 100

struct loader {
	const uint32_t *sample; /* the rank's sequence */
	uint64_t length;
	uint32_t batch, workers;
	uint64_t at[WORKERS_MAX];    /* samples a worker has read */
	uint32_t speed[WORKERS_MAX]; /* share of turns */
	uint64_t start[WORKERS_MAX]; /* turn it starts with */
	uint64_t taken;              /* batches taken by the training */
};

struct trial {
	uint64_t n;
	uint32_t seed, world, n_ranks, first_rank, batch, workers;
	uint32_t opens[OPENS_MAX];
	size_t n_opens;
};

static void loader_init(struct loader *l, const struct trial *t, uint64_t *random)
{
	l->batch = t->batch;
	l->workers = t->workers;
	for (uint32_t w = 0; w < t->workers; w++) {
		l->speed[w] = 4 + (uint32_t)check_rand_below(random, 13);
		l->start[w] = w * check_rand_below(random, 4);
	}
}

/* Position the worker reads next; false: it waits for a batch, or the epoch is over. */
static bool loader_next(const struct loader *l, uint32_t worker, uint64_t *ret_pos)
{
	uint64_t nth = l->at[worker] / l->batch * l->workers + worker;

	*ret_pos = nth * l->batch + l->at[worker] % l->batch;
	return nth < PREFETCH * (uint64_t)l->workers + l->taken && *ret_pos < l->length;
}

/* The training takes every batch that is complete, in their order. */
static void loader_train(struct loader *l)
{
	while (l->at[l->taken % l->workers] >= (l->taken / l->workers + 1) * l->batch)
		l->taken++;
}

/* Runs all ranks' loaders until enough was opened. */
static void make_opens(struct trial *t, struct loader *loaders, uint64_t *random)
{
	uint64_t lost = check_rand_below(random, 3) == 0 ? 4 : 0; /* of 100 */
	uint64_t foreign = check_rand_below(random, 3) == 0 ? 4 : 0;

	for (uint64_t turn = 0; turn < 100 * OPENS_MAX && t->n_opens < OPENS_MAX; turn++) {
		struct loader *l = &loaders[check_rand_below(random, t->n_ranks)];
		uint32_t w = (uint32_t)check_rand_below(random, l->workers);
		uint64_t pos;

		if (turn < l->start[w] || check_rand_below(random, 16) >= l->speed[w] ||
		    !loader_next(l, w, &pos))
			continue;
		l->at[w]++;
		loader_train(l);
		if (check_rand_below(random, 400) == 0) /* a worker meets a slow disk */
			l->speed[w] = 1 + (uint32_t)check_rand_below(random, 16);
		if (check_rand_below(random, 100) < foreign)
			t->opens[t->n_opens++] = (uint32_t)check_rand_below(random, t->n);
		else if (check_rand_below(random, 100) >= lost)
			t->opens[t->n_opens++] = l->sample[pos];
	}
}

static void trial_init(struct trial *t, uint64_t *random)
{
	static const uint32_t ns[] = { 2000, 10000, 50000, 100000, 400000 };
	static const uint32_t worlds[] = { 1, 1, 2, 4, 8 };
	struct loader loaders[RANKS_MAX] = { 0 };
	uint32_t *owned[RANKS_MAX] = { NULL };
	struct order_spec *spec;
	struct order *order;
	struct err err = { 0 };
	char text[128];

	*t = (struct trial){ .n = ns[check_rand_below(random, ARRAY_LEN(ns))],
			     .seed = (uint32_t)check_rand_u64(random),
			     .world = worlds[check_rand_below(random, ARRAY_LEN(worlds))],
			     .batch = 1u << check_rand_below(random, 9),
			     .workers = 1 + (uint32_t)check_rand_below(random, WORKERS_MAX) };
	t->n_ranks = 1 + (uint32_t)check_rand_below(random, MIN(t->world, RANKS_MAX));
	t->first_rank = (uint32_t)check_rand_below(random, t->world - t->n_ranks + 1);
	if (check_rand_below(random, 4) == 0) /* batch sizes that are no power of two */
		t->batch = 1 + (uint32_t)check_rand_below(random, 256);
	snprintf(text, sizeof(text), "torch-distributed:seed=%" PRIu32 ":world=%" PRIu32, t->seed,
		 t->world);
	if (order_spec_parse(text, &spec, &err) < 0 ||
	    order_new(spec, &(struct order_params){ .n = t->n }, &order, &err) < 0)
		CHECK_STR(err.msg, "");
	for (uint32_t r = 0; r < t->n_ranks; r++) {
		loader_init(&loaders[r], t, random);
		if (order_rank_epoch(order, 0, t->first_rank + r, &owned[r], &loaders[r].length,
				     &err) < 0)
			CHECK_STR(err.msg, "");
		loaders[r].sample = owned[r];
	}
	make_opens(t, loaders, random);
	for (uint32_t r = 0; r < t->n_ranks; r++)
		free(owned[r]);
	order_free(order);
	order_spec_free(spec);
}

/* Is it found from the first n_seen opens? A wrong answer ends the test. With several worlds to
 * choose from, *is_right tells whether world and ranks are the job's. */
static bool is_found(const struct trial *t, size_t n_seen, const uint32_t *worlds, size_t n_worlds,
		     bool *is_right)
{
	struct recover_params params;
	struct recover_found found;
	struct err err = { 0 };
	int rc;

	recover_params_init(&params);
	params.n = t->n;
	params.seen = t->opens;
	params.n_seen = MIN(n_seen, t->n_opens);
	params.worlds = worlds;
	params.n_worlds = n_worlds;
	params.threads = 1;
	params.effort = RECOVER_RANGE;
	params.first_seed = t->seed < 100 ? 0 : t->seed - 100;
	params.last_seed = t->seed > UINT32_MAX - 100 ? UINT32_MAX : t->seed + 100;
	rc = recover_search(&params, &found, &err);
	if (rc < 0) {
		if (rc != -ENOENT)
			CHECK_CONTAINS(err.msg, "are needed");
		return false;
	}
	CHECK_U64(found.seed, t->seed);
	*is_right = found.world == t->world && found.n_ranks == t->n_ranks &&
		    found.rank[0] == t->first_rank;
	if (t->n_ranks == t->world) /* the same samples by another name */
		*is_right |= found.n_ranks == found.world;
	for (uint32_t i = 0; n_worlds == 1 && i < found.n_ranks; i++)
		CHECK(found.rank[i] >= t->first_rank && found.rank[i] < t->first_rank + t->n_ranks);
	return true;
}

static void seeds_behind_loaders(void)
{
	static const size_t steps[] = { 4, 8, 16, 32, 64, 128, 256, 512 };
	uint64_t random = check_seed();
	unsigned found[ARRAY_LEN(steps)] = { 0 };

	for (int i = 0; i < TRIALS; i++) {
		struct trial t;
		size_t needed = 0;

		trial_init(&t, &random);
		for (size_t k = 0; k < ARRAY_LEN(steps); k++) {
			bool is_right;
			bool is = is_found(&t, steps[k] * t.n_ranks, &t.world, 1, &is_right);

			found[k] += is;
			if (is && !needed)
				needed = steps[k];
		}
		if (needed == 0 || needed > 64)
			printf("# n %" PRIu64 " world %" PRIu32 " ranks %" PRIu32 " batch %" PRIu32
			       " workers %" PRIu32 ": %zu opens a rank\n",
			       t.n, t.world, t.n_ranks, t.batch, t.workers, needed);
	}
	for (size_t k = 0; k < ARRAY_LEN(steps); k++)
		printf("# %3zu opens a rank: %5.1f %% found\n", steps[k],
		       100.0 * found[k] / TRIALS);
	CHECK(found[4] >= TRIALS * 8 / 10);
	CHECK(found[ARRAY_LEN(steps) - 1] >= TRIALS * 9 / 10);
}

/* Which world it is, several ranks of it or one. */
static void worlds_behind_loaders(void)
{
	static const uint32_t worlds[] = { 1, 2, 3, 4, 6, 8, 12, 16, 24, 32 };
	static const size_t steps[] = { 64, 256 };
	uint64_t random = check_seed();
	unsigned found[ARRAY_LEN(steps)] = { 0 }, right[ARRAY_LEN(steps)] = { 0 };

	for (int i = 0; i < TRIALS / 4; i++) {
		struct trial t;

		trial_init(&t, &random);
		for (size_t k = 0; k < ARRAY_LEN(steps); k++) {
			bool is_right = false;

			found[k] += is_found(&t, steps[k] * t.n_ranks, worlds, ARRAY_LEN(worlds),
					     &is_right);
			right[k] += is_right;
		}
	}
	for (size_t k = 0; k < ARRAY_LEN(steps); k++)
		printf("# %3zu opens a rank: %u found, %u of them with the right world\n", steps[k],
		       found[k], right[k]);
	for (size_t k = 0; k < ARRAY_LEN(steps); k++)
		CHECK(right[k] * 10 >= found[k] * 7);
	CHECK(found[ARRAY_LEN(steps) - 1] >= TRIALS / 4 * 8 / 10);
}

static const struct check_test tests[] = {
	{ "seeds_behind_loaders", seeds_behind_loaders },
	{ "worlds_behind_loaders", worlds_behind_loaders },
};

CHECK_MAIN(tests)
