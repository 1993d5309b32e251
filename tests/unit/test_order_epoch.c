/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs at the edges: no samples, one sample, more ranks than samples, numbers that do not fit,
 * and what order_info says. What a merged epoch must look like in general is
 * tests/model/test_order_merge.c. */
#include "clairfs/order.h"

#include <errno.h>
#include <string.h>

#include "check.h"
#include "clairfs/base/ids.h"

static struct order *open_order(const char *text, uint64_t n)
{
	struct err err = { 0 };
	struct order_spec *spec;
	struct order *order = NULL;

	if (order_spec_parse(text, &spec, &err) == 0) {
		(void)!order_new(spec, &(struct order_params){ .n = n }, &order, &err);
		order_spec_free(spec);
	}
	CHECK_STR(err.msg, "");
	return order;
}

static struct order_epoch *epoch_of(const char *text, uint64_t n, uint64_t epoch)
{
	struct order *order = open_order(text, n);
	struct err err = { 0 };
	struct order_epoch *e = NULL;

	(void)!order_epoch_new(order, epoch, &e, &err);
	CHECK_STR(err.msg, "");
	CHECK_U64(e->epoch, epoch);
	CHECK_U64(e->n, n);
	order_free(order); /* an epoch outlives its order */
	return e;
}

static void fails_with(const char *text, uint64_t n, const char *message)
{
	struct err err = { 0 };
	struct order_spec *spec;
	struct order *order;
	int rc = order_spec_parse(text, &spec, &err);

	CHECK_INT(rc, 0);
	CHECK_INT(order_new(spec, &(struct order_params){ .n = n }, &order, &err), -EINVAL);
	CHECK(order == NULL);
	CHECK_STR(err.msg, message);
	order_spec_free(spec);
}

static void no_samples(void)
{
	static const char *const specs[] = { "sequential",
					     "torch-randperm:seed=1",
					     "torch-distributed:world=3",
					     "torch-distributed:world=3:drop_last=1:rank=1",
					     "torch-loader:seed=1",
					     "torch-generator:seed=1:replacement=1",
					     "torch-subset:seed=1",
					     "torchdata-loader:seed=1:workers=2:generator=1",
					     "detectron2-training:seed=1:world=3",
					     "timm-repeataug:world=3",
					     "timm-repeataug:world=3:selected_round=0:shuffle=0",
					     "numpy-legacy:seed=1",
					     "numpy-generator:seed=1",
					     "python-random:seed=1",
					     "accelerate:world=3:batch=2",
					     "accelerate:world=3:batch=2:even_batches=0",
					     "megatron:documents=3:document_epochs=2",
					     "mosaic-naive:world=3",
					     "ffcv:seed=1",
					     "ffcv:seed=1:world=3:batch=2",
					     "webdataset:seed=1:shardshuffle=10:world=3:workers=2",
					     "grain:seed=1:world=3",
					     "tf-shuffle:seed=1:buffer=10",
					     "tf-list-files:seed=1:world=3",
					     "dali-file:world=3:random_shuffle=1",
					     "dali-file:shuffle_after_epoch=1:libstdcxx=10",
					     "dlio-v0.5:world=3",
					     "dlio-v1:world=3",
					     "dlio-v1:world=3:own_block=1",
					     "dlio-v2:world=3" };

	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		struct order_epoch *e = epoch_of(specs[i], 0, 0);

		CHECK_U64(e->length, 0);
		CHECK(e->sample && e->first && !e->next_same);
		order_epoch_free(e);
	}
}

static void one_sample(void)
{
	struct order_epoch *e = epoch_of("torch-randperm:seed=1", 1, 3);

	CHECK_U64(e->length, 1);
	CHECK_U64(e->sample[0], 0);
	CHECK_U64(e->first[0], 0);
	CHECK(e->next_same == NULL);
	order_epoch_free(e);

	e = epoch_of("torch-distributed:world=3", 1,
		     0); /* padded: every rank reads the one sample */
	CHECK_U64(e->length, 3);
	CHECK_U64(e->first[0], 0);
	CHECK_U64(e->next_same[0], 1);
	CHECK_U64(e->next_same[1], 2);
	CHECK_U64(e->next_same[2], SAMPLE_NONE);
	order_epoch_free(e);

	e = epoch_of("torch-distributed:world=3:drop_last=1", 1,
		     0); /* dropped: no rank reads anything */
	CHECK_U64(e->length, 0);
	CHECK_U64(e->first[0], SAMPLE_NONE);
	order_epoch_free(e);
	order_epoch_free(NULL);
	order_free(NULL);
}

static void sequential_is_ascending(void)
{
	struct order_epoch *e = epoch_of("sequential", 1000, 77);

	CHECK_U64(e->length, 1000);
	for (uint32_t i = 0; i < 1000; i++)
		CHECK(e->sample[i] == i && e->first[i] == i);
	CHECK(e->next_same == NULL);
	order_epoch_free(e);
}

/* 0 1 2 | 3 4 5 | 6 7 8 | 9 0 1: ranks 0 and 2 of three, in step. */
static void local_ranks_run_in_step(void)
{
	static const uint32_t want[] = { 0, 2, 3, 5, 6, 8, 9, 1 };
	struct order_epoch *e = epoch_of("torch-distributed:world=3:ranks=2+0:shuffle=0", 10, 0);

	CHECK_U64(e->length, ARRAY_LEN(want));
	CHECK_BYTES(e->sample, want, sizeof(want));
	CHECK_U64(e->first[1], 7);
	CHECK_U64(e->first[4], SAMPLE_NONE);
	CHECK(e->next_same == NULL); /* the padding 0 is read by rank 1 */
	order_epoch_free(e);
}

static void info_says_what_the_spec_says(void)
{
	struct order *order = open_order(
		"torch-distributed:seed=1:world=16:ranks=4-6:epochs=90:start_epoch=3:start_step=2:"
		"batch=256:workers=8:prefetch_factor=4",
		1 << 20);
	const struct order_info *info = order_info(order);

	CHECK_U64(info->n, 1 << 20);
	CHECK_U64(info->epochs, 90);
	CHECK_U64(info->start_epoch, 3);
	CHECK_U64(info->start_step, 2);
	CHECK_U64(info->world, 16);
	CHECK_U64(info->n_ranks, 3);
	CHECK_BYTES(info->ranks, ((const uint32_t[]){ 4, 5, 6 }), 12);
	CHECK_U64(info->batch, 256);
	CHECK_U64(info->workers, 8);
	CHECK_U64(info->prefetch_factor, 4);
	CHECK(!info->is_same_every_epoch);
	order_free(order);

	order = open_order("sequential", 5);
	info = order_info(order);
	CHECK_U64(info->world, 1);
	CHECK_U64(info->n_ranks, 1);
	CHECK_U64(info->ranks[0], 0);
	CHECK_U64(info->epochs | info->start_epoch | info->start_step, 0);
	CHECK_U64(info->batch | info->workers | info->prefetch_factor, 0);
	order_free(order);
}

static void is_same(const char *text, bool want)
{
	struct order *order = open_order(text, 100);
	struct err err = { 0 };
	struct order_epoch *a, *b;

	CHECK_INT(order_info(order)->is_same_every_epoch, want);
	CHECK_INT(order_epoch_new(order, 1, &a, &err), 0);
	CHECK_INT(order_epoch_new(order, 2, &b, &err), 0);
	CHECK_INT(memcmp(a->sample, b->sample, 100 * sizeof(*a->sample)) == 0, want);
	order_epoch_free(a);
	order_epoch_free(b);
	order_free(order);
}

static void same_every_epoch(void)
{
	is_same("sequential", true);
	is_same("torch-randperm:seed=3", true);
	is_same("torch-distributed", false);
	is_same("torch-distributed:shuffle=0", true);
	is_same("torch-loader:seed=3", false);
	is_same("torch-generator:seed=3", false);
	is_same("torch-subset:seed=3", false);
	is_same("torchdata-loader:seed=3", false);
	is_same("detectron2-training:seed=3", false);
	is_same("detectron2-training:seed=3:shuffle=0", true);
	is_same("timm-repeataug:selected_ratio=1:selected_round=0", false);
	is_same("timm-repeataug:selected_ratio=1:selected_round=0:shuffle=0", true);
	is_same("numpy-legacy:seed=3", true);
	is_same("numpy-legacy:seed=3:add_epoch=1", false);
	is_same("numpy-generator:seed=3", true);
	is_same("numpy-generator:seed=3:add_epoch=1", false);
	is_same("python-random:seed=3", true);
	is_same("python-random:seed=3:add_epoch=1", false);
	is_same("accelerate", false);
	is_same("accelerate:shuffle=0", true);
	is_same("mosaic-naive", false);
	is_same("mosaic-naive:shuffle=0", true);
	is_same("ffcv:seed=3", false);
	is_same("webdataset:seed=3:shardshuffle=10", true);
	is_same("webdataset:seed=3:shardshuffle=10:detshuffle=1", false);
	is_same("webdataset:seed=3:shardshuffle=10:detshuffle=1:workers=2", true);
	is_same("webdataset:seed=3:shardshuffle=10:detshuffle=1:workers=2:persistent=1", false);
	is_same("grain:seed=3", false);
	is_same("grain:seed=3:shuffle=0", true);
	is_same("tf-shuffle:seed=3:buffer=10", false);
	is_same("tf-shuffle:seed=3:buffer=10:reshuffle_each_iteration=0", true);
	is_same("tf-list-files:seed=3", false);
	is_same("dali-file", true);
	is_same("dali-file:random_shuffle=1", true);
	is_same("dali-file:shuffle_after_epoch=1", false);
	is_same("dlio-v0.5", false);
	is_same("dlio-v0.5:file_shuffle=0:sample_shuffle=0", true);
	is_same("dlio-v1", false);
	is_same("dlio-v1:sample_shuffle=0", true);
	is_same("dlio-v2", true);
}

/* Epochs that no job gets to are answered all the same, and at once: what comes before them is
 * skipped. */
static void epochs_far_away(void)
{
	static const char *const specs[] = {
		"torch-loader:seed=1",
		"torch-generator:seed=1",
		"torch-generator:seed=1:num_samples=9:replacement=1:persistent=1",
		"torch-subset:seed=1",
		"torchdata-loader:seed=1:workers=2",
		"detectron2-training:seed=1:world=3",
		"detectron2-training:seed=1:world=3:shuffle=0",
		"timm-repeataug:world=3",
		"numpy-generator:seed=18446744073709551615:add_epoch=1",
		"python-random:seed=18446744073709551615:add_epoch=1",
		"accelerate:seed=-1",
		"mosaic-naive:seed=18446744073709551615:world=3",
		"ffcv:seed=18446744073709551615",
		"webdataset:seed=18446744073709551615:shardshuffle=10:detshuffle=1",
		"grain:seed=4294967295:world=3",
		"tf-shuffle:seed=1:buffer=7",
		"tf-list-files:seed=1:world=3",
		"dali-file:shuffle_after_epoch=1:checkpointing=1",
		"dali-file:random_shuffle=1:world=3",
		"dlio-v0.5:file_shuffle=0",
		"dlio-v1:world=3",
	};

	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		struct order_epoch *e = epoch_of(specs[i], 100, UINT64_MAX);

		CHECK(e->length > 0);
		for (uint64_t pos = 0; pos < e->length; pos++)
			CHECK(e->sample[pos] < 100);
		order_epoch_free(e);
	}
}

static void no_such_epoch(const char *text, uint64_t n, uint64_t epoch, const char *message)
{
	struct order *order = open_order(text, n);
	struct err err = { 0 };
	struct order_epoch *e;

	CHECK_INT(order_epoch_new(order, epoch, &e, &err), -ENOENT);
	CHECK_STR(err.msg, message);
	CHECK(e == NULL);
	order_free(order);
}

/* Said when the order is told. */
static void no_such_order(const char *text, uint64_t n, const char *words)
{
	struct order_params op = { .n = n };
	struct order_spec *spec = NULL;
	struct order *order = NULL;
	struct err err = { 0 };

	CHECK_INT(order_spec_parse(text, &spec, &err), 0);
	CHECK(order_new(spec, &op, &order, &err) < 0);
	CHECK_CONTAINS(err.msg, words);
	CHECK(order == NULL);
	order_spec_free(spec);
}

static void epochs_that_do_not_exist(void)
{
	no_such_epoch("numpy-legacy:seed=4294967290:add_epoch=1", 10, 6,
		      "epoch 6: numpy takes seeds below 2^32 only");
	order_epoch_free(epoch_of("numpy-legacy:seed=4294967290:add_epoch=1", 10, 5));
	order_epoch_free(epoch_of("numpy-legacy:seed=4294967290", 10, 6));
	no_such_epoch("dlio-v0.5", 10, 65536,
		      "epoch 65536 is not computed: each epoch goes on from the one before, and no "
		      "more than 65536 are repeated");
	no_such_epoch("dali-file:shuffle_after_epoch=1", 10, 65536,
		      "epoch 65536 is not computed: each epoch goes on from the one before, and no "
		      "more than 65536 are repeated");
	/* 8192 shuffles of 2^20 are 2^33 draws. */
	no_such_epoch("dlio-v0.5", 1 << 20, 8192,
		      "epoch 8192 is not computed: each epoch goes on from the one before, and of "
		      "1048576 samples no more than 8192 are repeated; announce the order as a "
		      "list");
	no_such_epoch("dali-file:shuffle_after_epoch=1", 1 << 20, 60000,
		      "epoch 60000 is not computed: each epoch goes on from the one before, and of "
		      "1048576 samples no more than 8192 are repeated; announce the order as a "
		      "list");
	order_epoch_free(epoch_of("dali-file:shuffle_after_epoch=1:checkpointing=1", 1000, 70000));
	no_such_order("dlio-v0.5:start_epoch=8192", 1 << 20, "no more than 8192 are repeated");
	no_such_order("dali-file:shuffle_after_epoch=1:start_epoch=8192", 1 << 20,
		      "no more than 8192 are repeated");
	order_free(open_order("dlio-v0.5:start_epoch=8191", 1 << 20));
	no_such_epoch("megatron:documents=3", 10, 1, "no epoch 1: Megatron reads its index once");
}

/* n = 5, world 2: the ranks go on where they were in the epoch before. */
static void detectron2_crosses_the_seam(void)
{
	static const uint32_t even[] = { 0, 2, 4 }, odd[] = { 1, 3 };

	for (uint64_t epoch = 0; epoch < 4; epoch++) {
		struct order_epoch *e =
			epoch_of("detectron2-training:seed=0:shuffle=0:world=2:rank=0", 5, epoch);

		CHECK_U64(e->length, epoch % 2 ? 2 : 3);
		CHECK_BYTES(e->sample, epoch % 2 ? odd : even, e->length * sizeof(*odd));
		order_epoch_free(e);
	}
}

static void specs_that_do_not_fit(void)
{
	fails_with(
		"accelerate:world=2", 10,
		"order accelerate: key \"batch\" is missing: the ranks take whole batches in turn");
	fails_with(
		"megatron:documents=1:world=2", 10,
		"order megatron: key \"batch\" is missing: the ranks take whole batches in turn");
	fails_with(
		"accelerate:batch=16777217", 10,
		"order accelerate: key \"batch\": 16777217 is out of range, allowed: 1-16777216");
	fails_with("torch-loader:seed=1:num_samples=5", 0,
		   "order torch-loader: key \"num_samples\": the dataset has no samples");
	fails_with("torchdata-loader:seed=1:persistent=1", 10,
		   "order torchdata-loader: key \"persistent\" needs key \"workers\"");
	fails_with("megatron", 10, "order megatron: key \"path\" or key \"documents\" is missing");
	fails_with("megatron:path=/x:documents=1", 10,
		   "order megatron: keys \"path\" and \"documents\" exclude each other");
	fails_with(
		"megatron:documents=65536:document_epochs=65536", 10,
		"order megatron: keys \"documents\" and \"document_epochs\": more than 4294967293 "
		"entries");
	fails_with("megatron:documents=5:document_epochs=2:separate=11", 10,
		   "order megatron: key \"separate\": 11 of 10 samples");
	fails_with("megatron:documents=5:separate=3", 10,
		   "order megatron: key \"separate\" needs key \"document_epochs\", 2 or more");
}

static void a_rank_outside_the_world(void)
{
	struct order *order = open_order("torch-distributed:world=4:rank=0", 100);
	struct err err = { 0 };
	uint32_t *sample;
	uint64_t length;

	CHECK_INT(order_rank_epoch(order, 0, 4, &sample, &length, &err), -EINVAL);
	CHECK_STR(err.msg, "rank 4 is outside the world of 4, ranks count from 0");
	CHECK(sample == NULL);
	CHECK_INT(order_rank_epoch(order, 0, 3, &sample, &length, &err),
		  0); /* any rank, not only local ones */
	CHECK_U64(length, 25);
	free(sample);
	order_free(order);
}

static void too_many_samples(void)
{
	fails_with("sequential", UINT32_MAX - 1,
		   "order sequential: 4294967294 samples are too many, at most 4294967293");
	fails_with(
		"sequential", UINT64_MAX,
		"order sequential: 18446744073709551615 samples are too many, at most 4294967293");
	order_free(open_order("sequential", UINT32_MAX - 2));
}

static void start_step_behind_the_end(void)
{
	order_free(open_order("torch-distributed:world=4:rank=1:batch=10:start_step=3", 100));
	fails_with(
		"torch-distributed:world=4:rank=1:batch=10:start_step=4", 100,
		"order torch-distributed: key \"start_step\": 4 is behind the end of the epoch, which has "
		"3 batches of 10 "
		"per rank");
}

struct computer {
	pthread_t thread;
	const struct order *order;
	uint64_t hash; /* of all samples of epochs 0..7 */
};

/* FNV-1a over numbers, good enough to tell permutations apart. */
static void *compute_epochs(void *arg)
{
	struct computer *c = arg;

	c->hash = 14695981039346656037u;
	for (uint64_t epoch = 0; epoch < 8; epoch++) {
		struct order_epoch *e = NULL;

		if (order_epoch_new(c->order, epoch, &e, NULL) < 0)
			return NULL;
		for (uint64_t pos = 0; pos < e->length; pos++)
			c->hash = (c->hash ^ e->sample[pos]) * 1099511628211u;
		order_epoch_free(e);
	}
	return c;
}

static void threads_share_an_order(void)
{
	struct order *order = open_order("torch-distributed:seed=5:world=8:ranks=1-3", 10000);
	struct computer c[4];

	for (size_t i = 0; i < ARRAY_LEN(c); i++) {
		c[i].order = order;
		CHECK_INT(pthread_create(&c[i].thread, NULL, compute_epochs, &c[i]), 0);
	}
	for (size_t i = 0; i < ARRAY_LEN(c); i++) {
		void *done;

		CHECK_INT(pthread_join(c[i].thread, &done), 0);
		CHECK(done);
		CHECK_U64(c[i].hash, c[0].hash);
	}
	order_free(order);
}

static const struct check_test tests[] = {
	{ "no_samples", no_samples },
	{ "one_sample", one_sample },
	{ "sequential_is_ascending", sequential_is_ascending },
	{ "local_ranks_run_in_step", local_ranks_run_in_step },
	{ "info_says_what_the_spec_says", info_says_what_the_spec_says },
	{ "same_every_epoch", same_every_epoch },
	{ "epochs_far_away", epochs_far_away },
	{ "epochs_that_do_not_exist", epochs_that_do_not_exist },
	{ "detectron2_crosses_the_seam", detectron2_crosses_the_seam },
	{ "specs_that_do_not_fit", specs_that_do_not_fit },
	{ "a_rank_outside_the_world", a_rank_outside_the_world },
	{ "too_many_samples", too_many_samples },
	{ "threads_share_an_order", threads_share_an_order },
	{ "start_step_behind_the_end", start_step_behind_the_end },
};

CHECK_MAIN(tests)
