/* SPDX-License-Identifier: Apache-2.0 */
/* Does a search keep the contract of recover.h? What is seen comes from module order, which is
 * checked against PyTorch itself; ranges of seeds are short, so that sanitizers take seconds. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/resource.h>

#include "check.h"
#include "clairfs/order.h"
#include "clairfs/recover.h"
#include "src/recover/recover_priv.h"

#define N 1281167
#define SEEN_MAX 64

/* The first `count` samples of a rank's epoch. */
static uint32_t *first_of(const char *text, uint64_t n, uint64_t rank, uint32_t count)
{
	struct err err = { 0 };
	struct order_spec *spec = NULL;
	struct order *order = NULL;
	uint32_t *sample = NULL;
	uint64_t length = 0;

	if (order_spec_parse(text, &spec, &err) < 0 ||
	    order_new(spec, &(struct order_params){ .n = n }, &order, &err) < 0 ||
	    order_rank_epoch(order, 0, rank, &sample, &length, &err) < 0)
		CHECK_STR(err.msg, "");
	CHECK(length >= count);
	order_free(order);
	order_spec_free(spec);
	return sample;
}

static struct recover_params params_of(uint64_t n, const uint32_t *seen, size_t n_seen)
{
	struct recover_params params;

	recover_params_init(&params);
	params.n = n;
	params.seen = seen;
	params.n_seen = n_seen;
	params.threads = 2;
	return params;
}

static void set_range(struct recover_params *params, uint32_t around)
{
	params->effort = RECOVER_RANGE;
	params->first_seed = around < 20000 ? 0 : around - 20000;
	params->last_seed = around > UINT32_MAX - 20000 ? UINT32_MAX : around + 20000;
}

static void seeds_at_the_ends(void)
{
	static const uint32_t seeds[] = { 0,          1,          2147483647, 2147483648,
					  2147483649, 4294967294, 4294967295 };

	for (size_t i = 0; i < ARRAY_LEN(seeds); i++) {
		struct recover_params params;
		struct recover_found found;
		struct err err = { 0 };
		uint32_t *seen;
		char text[64];

		snprintf(text, sizeof(text), "torch-randperm:seed=%" PRIu32, seeds[i]);
		seen = first_of(text, N, 0, SEEN_MAX);
		params = params_of(N, seen, 3);
		set_range(&params, seeds[i]);
		CHECK_INT(recover_search(&params, &found, &err), 0);
		CHECK_U64(found.seed, seeds[i]);
		CHECK_U64(found.world, 1);
		CHECK_U64(found.n_ranks, 1);
		CHECK_U64(found.rank[0], 0);
		CHECK(recover_spec(&found, N, 0, text, sizeof(text)));
		CHECK(strncmp(text, "torch-randperm:seed=", 20) == 0);
		CHECK_U64(strtoull(text + 20, NULL, 10), seeds[i]);
		CHECK(!recover_spec(&found, N, 1, text, sizeof(text)));
		free(seen);
	}
}

static void world_and_rank_are_found(void)
{
	static const uint32_t worlds[] = { 16, 2, 1, 8, 3 };
	uint32_t *seen = first_of("torch-distributed:seed=77777:world=8", N, 5, SEEN_MAX);
	struct recover_params params = params_of(N, seen, 8);
	struct recover_found found;
	struct err err = { 0 };
	char text[128];

	params.worlds = worlds;
	params.n_worlds = ARRAY_LEN(worlds);
	set_range(&params, 77777);
	CHECK_INT(recover_search(&params, &found, &err), 0);
	CHECK(recover_spec(&found, N, 0, text, sizeof(text)));
	CHECK_STR(text, "torch-distributed:seed=77777:world=8:rank=5");
	CHECK_U64(found.n_explained, 8);
	CHECK(found.bits >= found.bits_needed);
	params.rank = 5;
	params.worlds = &worlds[3];
	params.n_worlds = 1;
	CHECK_INT(recover_search(&params, &found, &err), 0);
	CHECK_U64(found.rank[0], 5);
	params.rank = 4;
	CHECK_INT(recover_search(&params, &found, &err), -ENOENT);
	free(seen);
}

/* Ranks whose first places are behind the first 227 or 624 words of the generator. */
static void far_ranks(void)
{
	static const uint32_t worlds[] = { 1024 }, ranks[] = { 0, 225, 226, 227, 300, 623, 1000 };

	for (size_t i = 0; i < ARRAY_LEN(ranks); i++) {
		uint32_t *seen =
			first_of("torch-distributed:seed=1000:world=1024", N, ranks[i], 16);
		struct recover_params params = params_of(N, seen, 16);
		struct recover_found found;
		struct err err = { 0 };

		params.worlds = worlds;
		params.n_worlds = 1;
		params.rank = ranks[i];
		set_range(&params, 0);
		CHECK_INT(recover_search(&params, &found, &err), 0);
		CHECK_U64(found.seed, 1000);
		CHECK_U64(found.rank[0], ranks[i]);
		params.rank = RECOVER_UNKNOWN;
		params.last_seed = params.first_seed + 1200;
		CHECK_INT(recover_search(&params, &found, &err), 0);
		CHECK_U64(found.seed, 1000);
		CHECK_U64(found.rank[0], ranks[i]);
		free(seen);
	}
}

static void local_ranks_mixed(void)
{
	static const uint32_t worlds[] = { 8 };
	uint32_t seen[SEEN_MAX];
	struct recover_params params = params_of(100000, seen, SEEN_MAX);
	struct recover_found found;
	struct err err = { 0 };
	char text[128];

	for (uint32_t r = 0; r < 4; r++) {
		uint32_t *one = first_of("torch-distributed:seed=5:world=8", 100000, r + 2, 16);

		for (uint32_t i = 0; i < 16; i++)
			seen[i * 4 + r] = one[i];
		free(one);
	}
	params.worlds = worlds;
	params.n_worlds = 1;
	set_range(&params, 0);
	CHECK_INT(recover_search(&params, &found, &err), 0);
	CHECK(recover_spec(&found, 100000, 0, text, sizeof(text)));
	CHECK_STR(text, "torch-distributed:seed=5:world=8:ranks=2-5");
	CHECK_U64(found.n_explained, SEEN_MAX);
}

/* The ranks of a node, in step, first..first + ranks - 1 of the world. */
static void fill_ranks(const char *spec, uint32_t first, uint32_t ranks, uint32_t *seen, uint32_t n)
{
	for (uint32_t r = 0; r < ranks; r++) {
		uint32_t *one = first_of(spec, 100000, first + r, n / ranks);

		for (uint32_t i = 0; i < n / ranks; i++)
			seen[i * ranks + r] = one[i];
		free(one);
	}
}

/* Half of the ranks of a world look like ranks of smaller worlds, read with holes, and each like
 * two of a larger one. */
static void world_of_several_ranks(void)
{
	static const uint32_t worlds[] = { 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64 };
	static const struct {
		uint32_t world, first, ranks;
		const char *want;
	} cases[] = {
		{ 8, 0, 4, "world=8:ranks=0-3" }, { 16, 8, 8, "world=16:ranks=8-15" },
		{ 4, 2, 2, "world=4:ranks=2-3" }, { 32, 4, 4, "world=32:ranks=4-7" },
		{ 2, 1, 1, "world=2:rank=1" },    { 64, 56, 8, "world=64:ranks=56-63" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		uint32_t seen[128];
		struct recover_params params = params_of(100000, seen, ARRAY_LEN(seen));
		struct recover_found found;
		struct err err = { 0 };
		char spec[64], text[128];

		snprintf(spec, sizeof(spec), "torch-distributed:seed=5:world=%" PRIu32,
			 cases[i].world);
		fill_ranks(spec, cases[i].first, cases[i].ranks, seen, ARRAY_LEN(seen));
		params.worlds = worlds;
		params.n_worlds = ARRAY_LEN(worlds);
		params.effort = RECOVER_RANGE;
		params.last_seed = 30;
		CHECK_INT(recover_search(&params, &found, &err), 0);
		CHECK(recover_spec(&found, 100000, 0, text, sizeof(text)));
		CHECK_CONTAINS(text, cases[i].want);
	}
}

/* The number recover_needed says is enough, and one less is refused with that number. */
static void as_many_as_needed(void)
{
	static const uint32_t ns[] = { 20, 30, 50, 100, 1000, 10000, N, 100000000 };

	for (size_t i = 0; i < ARRAY_LEN(ns); i++) {
		struct recover_params params = params_of(ns[i], NULL, 0);
		uint64_t needed = recover_needed(&params);
		struct recover_found found;
		struct err err = { 0 };
		uint32_t seen[32];
		struct head head;
		char part[32];

		CHECK(needed >= 2 && needed <= 20);
		CHECK_INT(head_init(&head, ns[i], 32), 0);
		head_seed(&head, 4000000000);
		for (uint32_t k = 0; k < needed; k++)
			seen[k] = head_next(&head);
		head_fini(&head);
		params.seen = seen;
		params.n_seen = needed;
		set_range(&params, 4000000000);
		params.first_seed = 4000000000 - 500;
		CHECK_INT(recover_search(&params, &found, &err), 0);
		CHECK_U64(found.seed, 4000000000);
		params.n_seen = needed - 1;
		CHECK_INT(recover_search(&params, &found, &err), -EINVAL);
		snprintf(part, sizeof(part), "at least %" PRIu64 " ", needed);
		CHECK_CONTAINS(err.msg, part);
	}
}

static void too_few_samples(void)
{
	static const uint32_t seen[] = { 1, 0 };
	struct recover_params params = params_of(2, seen, 2);
	struct recover_found found;
	struct err err = { 0 };

	CHECK_U64(recover_needed(&params), 0);
	CHECK_INT(recover_search(&params, &found, &err), -EINVAL);
	CHECK_CONTAINS(err.msg, "too few to tell seeds apart");
	for (uint64_t n = 0; n < 18; n++) { /* log2(17!) < 32 + 20 */
		params.n = n;
		params.n_seen = 0;
		CHECK_U64(recover_needed(&params), 0);
		CHECK_INT(recover_search(&params, &found, &err), -EINVAL);
	}
}

static int refused(struct recover_params params, const char *part)
{
	struct recover_found found;
	struct err err = { 0 };
	int rc = recover_search(&params, &found, &err);

	CHECK_CONTAINS(err.msg, part);
	CHECK(!strchr(err.msg, '\n'));
	return rc;
}

static void hostile_input(void)
{
	static const uint32_t seen[] = { 1, 2, 3, 999, 5, 6, 7, 8, 9, 10, 1000 };
	static const uint32_t zero[] = { 0 }, huge[] = { RECOVER_WORLD_MAX + 1 }, two[] = { 2, 4 };
	struct recover_params good = params_of(1000, seen, 10), bad;

	good.effort = RECOVER_RANGE;
	good.last_seed = 1000;
	CHECK_INT(refused(good, "no seed fits"), -ENOENT);
	bad = good;
	bad.n_seen = 11;
	CHECK_INT(refused(bad, "index 1000 is outside the dataset of 1000"), -EINVAL);
	bad = good;
	bad.n = 0;
	CHECK_INT(refused(bad, "outside the dataset"), -EINVAL);
	bad = good;
	bad.n = UINT32_MAX;
	CHECK_INT(refused(bad, "too many"), -EINVAL);
	bad = good;
	bad.n = UINT64_MAX;
	CHECK_INT(refused(bad, "too many"), -EINVAL);
	bad = good;
	bad.batch = 0;
	CHECK_INT(refused(bad, "batch"), -EINVAL);
	bad = good;
	bad.first_seed = 2;
	bad.last_seed = 1;
	CHECK_INT(refused(bad, "range"), -EINVAL);
	bad = good;
	bad.rank = 3;
	CHECK_INT(refused(bad, "needs the world"), -EINVAL);
	bad.worlds = two;
	bad.n_worlds = 2;
	CHECK_INT(refused(bad, "rank 3 is outside the world of 2"), -EINVAL);
	bad = good;
	bad.worlds = zero;
	bad.n_worlds = 1;
	CHECK_INT(refused(bad, "world size 0"), -EINVAL);
	bad.worlds = huge;
	CHECK_INT(refused(bad, "world size 4097"), -EINVAL);
	bad.n_worlds = RECOVER_WORLDS_MAX + 1;
	CHECK_INT(refused(bad, "at most"), -EINVAL);
}

static void repeats_count_once(void)
{
	static const uint32_t same[] = { 7, 7, 7, 7, 7, 7, 7, 7, 7, 7 };
	uint32_t *first = first_of("torch-randperm:seed=9", 1000, 0, 12), seen[24];
	struct recover_params params = params_of(1000, same, ARRAY_LEN(same));
	struct recover_found found;
	struct err err = { 0 };

	CHECK_INT(refused(params, "1 were given"), -EINVAL);
	for (int i = 0; i < 24; i++)
		seen[i] = first[i / 2];
	params = params_of(1000, seen, 24);
	set_range(&params, 0);
	CHECK_INT(recover_search(&params, &found, &err), 0);
	CHECK_U64(found.seed, 9);
	CHECK_U64(found.n_explained, 12);
	free(first);
}

static void foreign_and_missing_opens(void)
{
	uint32_t *first = first_of("torch-randperm:seed=31000", N, 0, SEEN_MAX), seen[40];
	struct recover_params params = params_of(N, seen, 40);
	struct recover_found found;
	struct err err = { 0 };

	/* A look at sample 0 before the epoch, something else every 8 opens, position 1 unseen. */
	for (uint32_t i = 0, from = 0; i < 40; i++) {
		from += from == 1;
		seen[i] = i % 8 == 0 ? i : first[from++];
	}
	set_range(&params, 31000);
	CHECK_INT(recover_search(&params, &found, &err), 0);
	CHECK_U64(found.seed, 31000);
	free(first);
}

/* Samples at random belong to no seed, however few or many were seen. */
static void chance_finds_nothing(void)
{
	static const uint32_t worlds[] = { 1, 2, 4, 8 };
	uint64_t random = check_seed();

	for (int i = 0; i < 40; i++) {
		uint32_t seen[256], n = 20 + (uint32_t)check_rand_below(&random, 5000);
		struct recover_params params = params_of(n, seen, 256);
		struct recover_found found;
		struct err err = { 0 };
		int rc;

		params.n_seen = 20 + check_rand_below(&random, MIN(n, 256) - 19);
		for (size_t k = 0; k < params.n_seen; k++)
			seen[k] = (uint32_t)check_rand_below(&random, n);
		params.worlds = worlds;
		params.n_worlds = check_rand_below(&random, ARRAY_LEN(worlds) + 1);
		params.effort = RECOVER_RANGE;
		params.last_seed = 4000;
		rc = recover_search(&params, &found, &err);
		if (rc == -EINVAL)
			CHECK_CONTAINS(err.msg, "needed");
		else
			CHECK_INT(rc, -ENOENT);
	}
}

static int by_number(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static int search_first(uint64_t n, const uint32_t *seen, uint32_t n_seen, uint32_t *ret_seed)
{
	struct recover_params params = params_of(n, seen, n_seen);
	struct recover_found found = { 0 };
	struct err err = { 0 };
	int rc;

	params.effort = RECOVER_RANGE;
	params.last_seed = 4000;
	rc = recover_search(&params, &found, &err);
	*ret_seed = found.seed;
	return rc;
}

/* A random split by a seed is the beginning of that seed's permutation. Who shuffles it does not read by
 * this seed, though nothing but the sequence tells. */
static void a_shuffled_split_is_no_order(void)
{
	uint32_t *split = first_of("torch-randperm:seed=7", 2000, 0, 400), seen[276], seed;
	uint32_t *mixed = first_of("torch-randperm:seed=6", 400, 0, 400);

	for (uint32_t i = 0; i < ARRAY_LEN(seen); i++)
		seen[i] = split[mixed[i]];
	CHECK_INT(search_first(2000, seen, ARRAY_LEN(seen), &seed), -ENOENT);
	/* By three workers with batches of 16, side by side. */
	for (uint32_t i = 0; i < ARRAY_LEN(seen); i++)
		seen[i] = split[(i / 48 * 3 + i % 3) * 16 + i % 48 / 3];
	CHECK_INT(search_first(2000, seen, ARRAY_LEN(seen), &seed), 0);
	CHECK_U64(seed, 7);
	free(split);
	free(mixed);
}

/* Within a batch there may be no sequence of positions: who reads one file sorts it, a pool of threads reads it at
 * once. */
static void batches_in_another_sequence(void)
{
	static const struct {
		uint32_t workers, batch, n_seen;
		bool is_sorted;
	} cases[] = { { 8, 256, 1024, true },  { 1, 1024, 1024, true },   { 4, 128, 512, true },
		      { 1, 256, 256, false }, { 1, 1024, 1024, false }, { 2, 512, 1024, false } };
	uint32_t *first = first_of("torch-randperm:seed=7", N, 0, 2048);

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		uint32_t workers = cases[i].workers, batch = cases[i].batch, seed, part[2048], seen[1024];
		uint32_t *mixed = first_of("torch-randperm:seed=6", workers * batch, 0, cases[i].n_seen);

		memcpy(part, first, sizeof(part));
		for (uint32_t w = 0; w < workers; w++)
			qsort(part + w * batch, batch, sizeof(*part), by_number);
		for (uint32_t k = 0; k < cases[i].n_seen; k++) {
			uint32_t at = k % workers * batch + k / workers;

			seen[k] = cases[i].is_sorted ? part[at] : first[mixed[k]];
		}
		free(mixed);
		CHECK_INT(search_first(N, seen, cases[i].n_seen, &seed), 0);
		CHECK_U64(seed, 7);
	}
	free(first);
}

static uint32_t word_of(uint32_t manual_seed, uint32_t word)
{
	struct mt mt;

	mt_seed(&mt, manual_seed);
	while (word--)
		(void)mt_u32(&mt);
	return mt_u32(&mt);
}

static void quick_hypotheses(void)
{
	static const struct {
		uint32_t manual_seed, word, hint;
	} cases[] = { { 42, 3, 7 },
		      { 1234567, 7, 1234567 },
		      { 123456789, 127, 7 },
		      { 65535, 7, 7 },
		      { 10000, 3, 7 } };
	uint32_t *seen = first_of("torch-randperm:seed=3000000123", N, 0, 8);
	const uint32_t hint = 3000000000;
	struct recover_params params = params_of(N, seen, 8);
	struct recover_found found;
	struct err err = { 0 };

	params.effort = RECOVER_QUICK;
	CHECK_INT(recover_search(&params, &found, &err), -ENOENT);
	CHECK_CONTAINS(err.msg, "of the likely ones");
	params.hints = &hint;
	params.n_hints = 1;
	CHECK_INT(recover_search(&params, &found, &err), 0);
	CHECK_U64(found.seed, 3000000123);
	CHECK(!found.is_chain);
	free(seen);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char text[64];

		snprintf(text, sizeof(text), "torch-randperm:seed=%" PRIu32,
			 word_of(cases[i].manual_seed, cases[i].word));
		seen = first_of(text, N, 0, 8);
		params.seen = seen;
		params.hints = &cases[i].hint;
		CHECK_INT(recover_search(&params, &found, &err), 0);
		CHECK(found.is_chain);
		CHECK_U64(found.manual_seed, cases[i].manual_seed);
		CHECK_U64(found.word, cases[i].word);
		free(seen);
	}
}

/* What a caller leaves out is not tried, and to try less asks for less evidence. */
static void fewer_hypotheses(void)
{
	uint32_t *seen = first_of("torch-randperm:seed=5000", N, 0, 8);
	struct recover_params params = params_of(N, seen, 8);
	struct recover_found found;
	struct err err = { 0 };
	double bits;
	char text[64];

	params.effort = RECOVER_QUICK;
	CHECK_INT(recover_search(&params, &found, &err), 0);
	bits = found.bits_needed;
	params.is_plain = true;
	CHECK_INT(recover_search(&params, &found, &err), 0);
	CHECK(found.bits_needed < bits - 4);
	params.typed = 5000;
	CHECK_INT(recover_search(&params, &found, &err), -ENOENT);
	params.typed = 0;
	CHECK_INT(recover_search(&params, &found, &err), -ENOENT);
	params.typed = UINT32_MAX;
	CHECK_INT(recover_search(&params, &found, &err), 0);
	free(seen);
	snprintf(text, sizeof(text), "torch-randperm:seed=%" PRIu32, word_of(42, 3));
	seen = first_of(text, N, 0, 8);
	params.seen = seen;
	CHECK_INT(recover_search(&params, &found, &err), -ENOENT);
	params.is_plain = false;
	CHECK_INT(recover_search(&params, &found, &err), 0);
	CHECK_U64(found.manual_seed, 42);
	free(seen);
}

static void cancel_when_asked(void *ctx, const struct recover_progress *progress)
{
	atomic_store((atomic_bool *)ctx, true);
}

static void can_be_cancelled(void)
{
	static const uint32_t seen[] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	struct recover_params params = params_of(N, seen, ARRAY_LEN(seen));
	struct recover_found found;
	struct err err = { 0 };
	atomic_bool cancel = false;
	int nice = getpriority(PRIO_PROCESS, 0);

	params.effort = RECOVER_RANGE;
	params.nice = 19;
	params.cancel = &cancel;
	params.progress = cancel_when_asked;
	params.progress_ctx = &cancel;
	CHECK_INT(recover_search(&params, &found, &err), -ECANCELED);
	params.progress = NULL;
	CHECK_INT(recover_search(&params, &found, &err), -ECANCELED);
	CHECK_INT(getpriority(PRIO_PROCESS, 0), nice);
}

static void count_progress(void *ctx, const struct recover_progress *progress)
{
	struct recover_progress *last = ctx;

	CHECK(progress->done >= last->done && progress->done <= progress->total);
	*last = *progress;
}

static void progress_ends_at_the_end(void)
{
	static const uint32_t seen[] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	struct recover_params params = params_of(N, seen, ARRAY_LEN(seen));
	struct recover_progress last = { 0 };
	struct recover_found found;
	struct err err = { 0 };

	set_range(&params, 0);
	params.progress = count_progress;
	params.progress_ctx = &last;
	CHECK_INT(recover_search(&params, &found, &err), -ENOENT);
	CHECK(last.is_full);
	CHECK_U64(last.total, 20001);
	CHECK_U64(last.done, last.total);
}

static void check_spec(const struct recover_found *found, uint64_t n, const char *want)
{
	struct err err = { 0 };
	struct order_spec *spec;
	char text[128];

	CHECK(recover_spec(found, n, 0, text, sizeof(text)));
	CHECK_STR(text, want);
	if (order_spec_parse(text, &spec, &err) < 0)
		CHECK_STR(err.msg, "");
	order_spec_free(spec);
}

static void specs_can_be_parsed(void)
{
	struct recover_found found = { .seed = UINT32_MAX, .world = 1, .n_ranks = 1 };

	check_spec(&found, 1000, "torch-randperm:seed=4294967295");
	check_spec(&found, 214748363, "torch-randperm:seed=4294967295");
	check_spec(&found, 214748364, "torch-randperm:seed=4294967295:large=0");
	found.world = 16;
	found.n_ranks = 5;
	memcpy(found.rank, (uint32_t[]){ 0, 1, 2, 7, 9 }, 5 * sizeof(uint32_t));
	check_spec(&found, 1000, "torch-distributed:seed=4294967295:world=16:ranks=0-2+7+9");
	found.n_ranks = 1;
	check_spec(&found, 1000, "torch-distributed:seed=4294967295:world=16:rank=0");
	/* A word of a chain that is no epoch of a loader says nothing about later ones. */
	found.world = 1;
	found.is_chain = true;
	found.word = 10;
	check_spec(&found, 1000, "torch-randperm:seed=4294967295");
}

static const struct check_test tests[] = {
	{ "seeds_at_the_ends", seeds_at_the_ends },
	{ "world_and_rank_are_found", world_and_rank_are_found },
	{ "far_ranks", far_ranks },
	{ "local_ranks_mixed", local_ranks_mixed },
	{ "world_of_several_ranks", world_of_several_ranks },
	{ "as_many_as_needed", as_many_as_needed },
	{ "too_few_samples", too_few_samples },
	{ "hostile_input", hostile_input },
	{ "repeats_count_once", repeats_count_once },
	{ "foreign_and_missing_opens", foreign_and_missing_opens },
	{ "chance_finds_nothing", chance_finds_nothing },
	{ "a_shuffled_split_is_no_order", a_shuffled_split_is_no_order },
	{ "batches_in_another_sequence", batches_in_another_sequence },
	{ "quick_hypotheses", quick_hypotheses },
	{ "fewer_hypotheses", fewer_hypotheses },
	{ "can_be_cancelled", can_be_cancelled },
	{ "progress_ends_at_the_end", progress_ends_at_the_end },
	{ "specs_can_be_parsed", specs_can_be_parsed },
};

CHECK_MAIN(tests)
