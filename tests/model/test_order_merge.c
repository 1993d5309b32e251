/* SPDX-License-Identifier: Apache-2.0 */
/* Merged epochs of random orders against the naive meaning of struct order_epoch: the ranks' own
 * sequences (from order_rank_epoch, which tests/golden compares with the framework), dealt out one
 * by one. Ranks of kinds that exist differ in length by little; the header promises more, so one
 * test merges ranks of random lengths through a kind made here. */
#include "clairfs/order.h"

#include <inttypes.h>
#include <string.h>

#include "check.h"
#include "src/order/order_priv.h"

#define RANKS_MAX 40

struct sequences {
	uint32_t *sample[RANKS_MAX];
	uint64_t length[RANKS_MAX];
};

/* Fails unless `e` is the local ranks' sequences dealt out in step. */
static void check_merged(const struct order_epoch *e, const struct sequences *ranks,
			 uint32_t n_ranks)
{
	uint64_t pos = 0, longest = 0;

	for (uint32_t r = 0; r < n_ranks; r++)
		longest = MAX(longest, ranks->length[r]);
	for (uint64_t i = 0; i < longest; i++)
		for (uint32_t r = 0; r < n_ranks; r++)
			if (i < ranks->length[r]) {
				CHECK(pos < e->length);
				CHECK_U64(e->sample[pos], ranks->sample[r][i]);
				pos++;
			}
	CHECK_U64(pos, e->length);
}

/* first and next_same are the inverse of sample: walking every sample's chain visits every position
 * once, ascending. */
static void check_chains(const struct order_epoch *e)
{
	uint64_t visited = 0, longest = 0;

	for (uint32_t s = 0; s < e->n; s++) {
		uint64_t chain = 0;
		uint32_t pos = e->first[s];

		while (pos != SAMPLE_NONE) {
			uint32_t next = e->next_same ? e->next_same[pos] : SAMPLE_NONE;

			CHECK(pos < e->length);
			CHECK_U64(e->sample[pos], s);
			CHECK(next > pos);
			chain++;
			pos = next;
		}
		visited += chain;
		longest = MAX(longest, chain);
	}
	CHECK_U64(visited, e->length);
	CHECK_INT(e->next_same != NULL, longest > 1);
}

/* n and world small, and sometimes larger than what is merged at a time. */
static uint64_t random_n(uint64_t *random)
{
	return check_rand_below(random, check_rand_below(random, 4) ? 40 : 3000);
}

static void random_spec(uint64_t *random, char *text, size_t size)
{
	uint64_t world = 1 + check_rand_below(random, RANKS_MAX), seed = check_rand_u64(random);
	int flag = (int)check_rand_below(random, 2), shuffle = check_rand_below(random, 5) > 0;
	bool has_rank = false;

	switch (check_rand_below(random, 5)) {
	case 0:
		snprintf(text, size, "detectron2-training:seed=%" PRIu64 ":shuffle=%d", seed,
			 shuffle);
		break;
	case 1:
		snprintf(text, size, "timm-repeataug:num_repeats=%d:selected_round=%d",
			 1 + (int)check_rand_below(random, 4), (int)check_rand_below(random, 300));
		break;
	case 2:
		snprintf(text, size,
			 "accelerate:seed=%" PRIu64
			 ":shuffle=%d:even_batches=%d:drop_last=%d:batch=%d",
			 seed, shuffle, flag, (int)check_rand_below(random, 3) == 0,
			 1 + (int)check_rand_below(random, 50));
		break;
	default:
		snprintf(text, size, "torch-distributed:seed=%" PRIu64 ":shuffle=%d:drop_last=%d",
			 seed, shuffle, flag);
	}
	snprintf(text + strlen(text), size - strlen(text), ":world=%" PRIu64, world);
	if (check_rand_below(random, 3) == 0)
		return;
	for (uint64_t r = 0; r < world; r++) {
		if (check_rand_below(random, 2))
			continue;
		snprintf(text + strlen(text), size - strlen(text), "%s%" PRIu64,
			 has_rank ? "+" : ":ranks=", r);
		has_rank = true;
	}
}

static void one_random_order(uint64_t *random)
{
	struct err err = { 0 };
	struct order_spec *spec;
	struct order *order;
	struct order_epoch *e;
	struct sequences ranks = { 0 };
	uint64_t n = random_n(random), epoch = check_rand_below(random, 100);
	char text[400];

	random_spec(random, text, sizeof(text));
	CHECK_INT(order_spec_parse(text, &spec, &err), 0);
	CHECK_INT(order_new(spec, &(struct order_params){ .n = n }, &order, &err), 0);
	CHECK_INT(order_epoch_new(order, epoch, &e, &err), 0);
	for (uint32_t r = 0; r < order_info(order)->n_ranks; r++)
		CHECK_INT(order_rank_epoch(order, epoch, order_info(order)->ranks[r],
					   &ranks.sample[r], &ranks.length[r], &err),
			  0);
	check_merged(e, &ranks, order_info(order)->n_ranks);
	check_chains(e);
	for (uint32_t r = 0; r < order_info(order)->n_ranks; r++)
		free(ranks.sample[r]);
	order_epoch_free(e);
	order_free(order);
	order_spec_free(spec);
}

static void merged_epochs(void)
{
	uint64_t random = check_seed();

	for (int i = 0; i < 1500; i++)
		one_random_order(&random);
}

/* A kind whose ranks have the lengths and samples of a struct sequences. */
static uint64_t uneven_rank_length(const struct order *order, uint64_t epoch, uint64_t length,
				   uint64_t rank)
{
	return ((const struct sequences *)order->state)->length[rank];
}

static void uneven_rank_read(const struct order *order, const struct order_span *common,
			     uint64_t rank, uint64_t from, uint32_t count, uint32_t *out)
{
	const struct sequences *ranks = order->state;

	CHECK(from + count <= ranks->length[rank]);
	memcpy(out, ranks->sample[rank] + from, count * sizeof(*out));
}

static int uneven_common_length(const struct order *order, uint64_t epoch, uint64_t *ret,
				struct err *err)
{
	*ret = 0;
	return 0;
}

static int uneven_common_fill(const struct order *order, uint64_t epoch, uint64_t length,
			      uint32_t *out, struct err *err)
{
	return 0;
}

static void uneven_close(struct order *order)
{
}

static const struct order_kind uneven = {
	.close = uneven_close,
	.common_length = uneven_common_length,
	.common_fill = uneven_common_fill,
	.rank_length = uneven_rank_length,
	.rank_read = uneven_rank_read,
};

static void one_uneven_merge(uint64_t *random)
{
	struct sequences ranks = { 0 };
	uint32_t n_ranks = 1 + (uint32_t)check_rand_below(random, RANKS_MAX),
		 n = 1 + (uint32_t)check_rand_below(random, 500);
	struct order *order = calloc(1, sizeof(*order));
	struct order_epoch *e;
	struct err err = { 0 };

	order->ranks = order_alloc_u32(n_ranks);
	order->kind = &uneven;
	order->state = &ranks;
	order->info = (struct order_info){ .n = n, .world = n_ranks, .n_ranks = n_ranks };
	order->shown = order->info;
	for (uint32_t r = 0; r < n_ranks; r++) {
		order->ranks[r] = r;
		ranks.length[r] = check_rand_below(random, check_rand_below(random, 3) ? 20 : 900);
		ranks.sample[r] = order_alloc_u32(ranks.length[r]);
		for (uint64_t i = 0; i < ranks.length[r]; i++)
			ranks.sample[r][i] = (uint32_t)check_rand_below(random, n);
	}
	CHECK_INT(order_epoch_new(order, 0, &e, &err), 0);
	check_merged(e, &ranks, n_ranks);
	check_chains(e);
	order_epoch_free(e);
	for (uint32_t r = 0; r < n_ranks; r++)
		free(ranks.sample[r]);
	order_free(order);
}

static void ranks_of_different_lengths(void)
{
	uint64_t random = check_seed();

	for (int i = 0; i < 300; i++)
		one_uneven_merge(&random);
}

static const struct check_test tests[] = {
	{ "merged_epochs", merged_epochs },
	{ "ranks_of_different_lengths", ranks_of_different_lengths },
};

CHECK_MAIN(tests)
