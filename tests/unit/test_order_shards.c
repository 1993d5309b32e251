/* SPDX-License-Identifier: Apache-2.0 */
/* Specs of the kinds for shard loaders that do not fit together or to the dataset: sizes of shards,
 * nodes and ranks, options that exclude each other. That their orders are right is for the golden
 * vectors. */
#include "clairfs/order.h"

#include <errno.h>
#include <string.h>

#include "check.h"

/* What is wrong with a spec for n samples, without its beginning "order KIND: "; "" for nothing. */
static void says(const char *text, uint64_t n, const char *message)
{
	struct err err = { 0 };
	struct order_spec *spec;
	struct order *order = NULL;
	const char *part;
	int rc;

	CHECK_INT(order_spec_parse(text, &spec, &err), 0);
	rc = order_new(spec, &(struct order_params){ .n = n }, &order, &err);
	CHECK_INT(rc, *message ? -EINVAL : 0);
	CHECK((rc == 0) == (order != NULL));
	CHECK(!strchr(err.msg, '\n'));
	part = strncmp(err.msg, "order ", 6) == 0 ? strstr(err.msg, ": ") + 2 : err.msg;
	CHECK_STR(part, message);
	order_free(order);
	order_spec_free(spec);
}

static void sizes_of_shards(void)
{
#define NO_SIZE(item)                                                                              \
	"key \"shards\": \"" item "\" is no size, expected sizes and repeated sizes, for example " \
	"100x20+57 for twenty shards of 100 samples and one of 57"

#define NO_SIZES                                                                                   \
	"key \"shards\" is missing: the samples of each shard, which a table of records says as well " \
	"(clairfs index --records)"

	says("mosaic-py1s:shards=10", 10, "");
	says("mosaic-py1s:shards=3x3+1", 10, "");
	says("litdata:shards=4+6", 10, "");
	says("litdata:shards=ten", 10, NO_SIZE("ten"));
	says("litdata:shards=5x", 10, NO_SIZE("5x"));
	says("litdata:shards=x5", 10, NO_SIZE("x5"));
	says("litdata:shards=5x1x2", 10, NO_SIZE("5x1x2"));
	says("litdata:shards=5++5", 10, NO_SIZE(""));
	says("litdata:shards=10+", 10, NO_SIZE(""));
	says("litdata:shards=-5+15", 10, NO_SIZE("-5"));
	says("litdata:shards=10+0", 10, "key \"shards\": \"0\" is an empty shard");
	says("litdata:shards=10x0", 10, "key \"shards\": \"10x0\" is an empty shard");
	says("litdata:shards=4+5", 10,
	     "key \"shards\": the sizes add up to 9, but the dataset has 10 samples");
	says("litdata:shards=4+7", 10,
	     "key \"shards\": the sizes add up to more than the dataset's 10 samples");
	says("mosaic-py1e", 10, NO_SIZES);
	says("litdata", 10, NO_SIZES);
	says("mosaic-naive", 10, "");
	says("litdata:shards=1", 0,
	     "key \"shards\": the sizes add up to more than the dataset's 0 samples");
}

/* Numbers that ask for more than there is memory, or wrap around, are refused before anything is
 * allocated. */
static void huge_sizes(void)
{
	says("mosaic-py1e:shards=1x18446744073709551615", 10,
	     "key \"shards\": the sizes add up to more than the dataset's 10 samples");
	says("mosaic-py1e:shards=4294967296x4294967296", 10,
	     "key \"shards\": the sizes add up to more than the dataset's 10 samples");
	says("mosaic-py1e:shards=18446744073709551606+20", 10,
	     "key \"shards\": the sizes add up to more than the dataset's 10 samples");
	says("mosaic-py1e:shards=18446744073709551616", 10,
	     "key \"shards\": \"18446744073709551616\" is too large");
}

static void nodes_and_ranks(void)
{
	says("mosaic-naive:world=6:nodes=4", 100,
	     "a world of 6 ranks does not divide into 4 nodes (keys \"world\", \"nodes\")");
	says("litdata:shards=100:world=6:nodes=4", 100,
	     "a world of 6 ranks does not divide into 4 nodes (keys \"world\", \"nodes\")");
	says("mosaic-naive:world=6:nodes=3:canonical_nodes=2", 100,
	     "2 canonical nodes and 3 nodes: one must be a multiple of the other (keys "
	     "\"canonical_nodes\", \"nodes\")");
	says("mosaic-py1e:shards=3:canonical_nodes=4", 3,
	     "3 samples are fewer than 4 canonical nodes, Streaming refuses that");
	says("mosaic-naive:canonical_nodes=4", 3, "");
}

static void options_of_dali(void)
{
	says("dali-file:engine=48", 10, "key \"engine\": 48 is neither 32 nor 64");
	says("dali-file:shuffle_after_epoch=1:random_shuffle=1", 10,
	     "keys \"shuffle_after_epoch\" and \"random_shuffle\" exclude each other, as in DALI");
	says("dali-file:shuffle_after_epoch=1:stick_to_shard=1", 10,
	     "keys \"shuffle_after_epoch\" and \"stick_to_shard\" exclude each other, as in DALI");
}

/* FFCV leaves an incomplete batch out, if it is known how large one is. */
static void incomplete_batches(void)
{
	static const struct {
		const char *spec;
		uint64_t length;
	} cases[] = {
		{ "ffcv:seed=1", 10 },
		{ "ffcv:seed=1:batch=4", 8 },
		{ "ffcv:seed=1:batch=4:drop_last=0", 10 },
		{ "ffcv:seed=1:batch=11", 0 },
		{ "ffcv:seed=1:world=3:batch=3", 9 },
		{ "ffcv:seed=1:world=3:batch=3:drop_last=0", 12 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct err err = { 0 };
		struct order_spec *spec;
		struct order *order;
		struct order_epoch *e;

		CHECK_INT(order_spec_parse(cases[i].spec, &spec, &err), 0);
		CHECK_INT(order_new(spec, &(struct order_params){ .n = 10 }, &order, &err), 0);
		CHECK_INT(order_epoch_new(order, 0, &e, &err), 0);
		CHECK_U64(e->length, cases[i].length);
		order_epoch_free(e);
		order_free(order);
		order_spec_free(spec);
	}
}

static const struct check_test tests[] = {
	{ "sizes_of_shards", sizes_of_shards },       { "huge_sizes", huge_sizes },
	{ "nodes_and_ranks", nodes_and_ranks },       { "options_of_dali", options_of_dali },
	{ "incomplete_batches", incomplete_batches },
};

CHECK_MAIN(tests)
