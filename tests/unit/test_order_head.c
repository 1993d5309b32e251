/* SPDX-License-Identifier: Apache-2.0 */
/* The beginning of an epoch is that of the whole epoch: for every kind that computes it alone and
 * for some that do not, for one rank and for several, for random n, counts and seeds. And it does
 * not take the memory of the whole. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "clairfs/order.h"
#include "src/order/perm.h"

#define WORLD_KEYS "world=5:ranks=1-2+4"

/* A number follows what ends with '='. */
static const char *const specs[] = {
	"sequential",
	"torch-randperm:seed=",
	"torch-distributed:seed=",
	"torch-distributed:" WORLD_KEYS ":seed=",
	"torch-distributed:drop_last=1:" WORLD_KEYS ":seed=",
	"torch-distributed:shuffle=0:" WORLD_KEYS ":seed=",
	"torch-loader:seed=",
	"torch-loader:num_samples=700:seed=",
	"torch-loader:replacement=1:seed=",
	"torch-generator:seed=",
	"torch-subset:seed=",
	"torchdata-loader:workers=2:seed=",
	"detectron2-training:" WORLD_KEYS ":seed=",
	"timm-repeataug:world=3:ranks=0+2:start_epoch=",
	"accelerate:batch=4:" WORLD_KEYS ":seed=",
	"accelerate:batch=7:even_batches=0:" WORLD_KEYS ":seed=",
	"numpy-legacy:seed=",
	"python-random:seed=",
	"grain:" WORLD_KEYS ":seed=",
	"ffcv:world=2:seed=",
};

static uint64_t random_u64(void)
{
	static uint64_t state;

	if (state == 0)
		state = check_seed() | 1;
	return check_rand_u64(&state);
}

static struct order *order_of(const char *text, uint64_t n)
{
	struct order_params params = { .n = n };
	struct order_spec *spec;
	struct order *order;
	struct err err = { 0 };

	if (order_spec_parse(text, &spec, &err) < 0 ||
	    order_new(spec, &params, &order, &err) < 0) {
		fprintf(stderr, "%s: %s\n", text, err.msg);
		CHECK(false);
		return NULL;
	}
	order_spec_free(spec);
	return order;
}

static void is_head(const struct order *order, const struct order_part *part, const uint32_t *whole,
		    uint64_t length)
{
	uint32_t *head = NULL;
	uint64_t n_head = 0;
	struct err err = { 0 };

	CHECK_INT(order_head(order, part, &head, &n_head, &err), 0);
	CHECK_U64(n_head, MIN(part->count, length));
	CHECK(n_head == 0 || memcmp(head, whole, n_head * sizeof(*head)) == 0);
	free(head);
}

static void spec_text(const char *spec, char *out, size_t size)
{
	bool wants_number = spec[strlen(spec) - 1] == '=';
	unsigned number = wants_number ? (unsigned)(random_u64() % 60000) : 0;

	snprintf(out, size, "%s%.*u", spec, wants_number ? 1 : 0, number);
}

static void heads_of(const struct order *order, uint64_t epoch, uint64_t count)
{
	struct order_part part = { .epoch = epoch, .count = count };
	struct order_epoch *whole;
	struct err err = { 0 };

	CHECK_INT(order_epoch_new(order, epoch, &whole, &err), 0);
	is_head(order, &part, whole->sample, whole->length);
	order_epoch_free(whole);
	for (part.has_rank = true; part.rank < order_info(order)->world; part.rank++) {
		uint32_t *one = NULL;
		uint64_t length = 0;

		CHECK_INT(order_rank_epoch(order, epoch, part.rank, &one, &length, &err), 0);
		is_head(order, &part, one, length);
		free(one);
	}
}

static void a_head_is_the_beginning_of_the_epoch(void)
{
	uint64_t counts[] = { 0, 1, 2, 13, 100, 400, 2000, UINT64_MAX };

	for (size_t i = 0; i < ARRAY_LEN(specs); i++)
		for (size_t k = 0; k < ARRAY_LEN(counts); k++) {
			uint64_t n = 1 + random_u64() % 1500, epoch = random_u64() % 4;
			char text[128];
			struct order *order;

			spec_text(specs[i], text, sizeof(text));
			order = order_of(text, n);
			if (order)
				heads_of(order, epoch, counts[k]);
			order_free(order);
		}
}

static void torch_heads_are_those_of_the_permutation(void)
{
	static uint32_t whole[5000], head[5000];

	for (int i = 0; i < 2000; i++) {
		uint32_t n = 1 + (uint32_t)(random_u64() % 5000);
		uint32_t count = (uint32_t)(random_u64() % (i % 2 ? n + 1 : MIN(n, 30)));
		uint32_t seed = (uint32_t)random_u64();
		struct mt19937 rng;

		mt19937_seed(&rng, seed);
		perm_torch_small(whole, n, &rng);
		mt19937_seed(&rng, seed);
		CHECK_INT(perm_torch_head(head, count, n, true, &rng), 0);
		CHECK(memcmp(head, whole, count * sizeof(*head)) == 0);
		mt19937_seed(&rng, seed);
		perm_torch_large(whole, n, &rng);
		mt19937_seed(&rng, seed);
		perm_torch_large_head(head, count, n, &rng);
		CHECK(memcmp(head, whole, count * sizeof(*head)) == 0);
	}
}

/* Four billion samples take 16 GiB as a whole. */
static void a_head_does_not_take_the_whole(void)
{
	static const char *const heads[] = { "sequential", "torch-randperm:seed=1:large=0",
					     "torch-distributed:large=0:seed=2:world=8",
					     "torch-loader:seed=3:large=0" };
	struct order_part part = { .count = 10 };
	struct err err = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(heads); i++) {
		struct order *order = order_of(heads[i], 4000000000);
		uint32_t *head = NULL;
		uint64_t length = 0;

		CHECK(order_head_bytes(order, &part) < 4096);
		CHECK_INT(order_head(order, &part, &head, &length, &err), 0);
		CHECK_U64(length, 10);
		free(head);
		order_free(order);
	}
}

static void what_needs_the_whole_says_so(void)
{
	struct order_part head = { .count = 10 }, all = { .count = UINT64_MAX };
	struct order *order = order_of("numpy-legacy:seed=1", 1000000);

	CHECK_U64(order_head_bytes(order, &head), 4000000);
	order_free(order);
	order = order_of("torch-distributed:seed=1:world=4:rank=1", 1000000);
	CHECK(order_head_bytes(order, &head) < 1000);
	CHECK_U64(order_head_bytes(order, &all), 5000000); /* all, and the rank's quarter */
	order_free(order);
}

static const struct check_test tests[] = {
	{ "a_head_is_the_beginning_of_the_epoch", a_head_is_the_beginning_of_the_epoch },
	{ "torch_heads_are_those_of_the_permutation", torch_heads_are_those_of_the_permutation },
	{ "a_head_does_not_take_the_whole", a_head_does_not_take_the_whole },
	{ "what_needs_the_whole_says_so", what_needs_the_whole_says_so },
};
CHECK_MAIN(tests)
