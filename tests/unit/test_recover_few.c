/* SPDX-License-Identifier: Apache-2.0 */
/* Seeds of datasets of few samples: found by the order in which shards are opened, by workers side by side, some
 * opens not heard of, one pass or several; and never where there is none. */
#include <errno.h>

#include "check.h"
#include "clairfs/order.h"
#include "clairfs/recover.h"

#define MOST RECOVER_FEW_MAX

struct job {
	uint32_t n, workers, batch;
	uint32_t jitter; /* of 16 times a worker takes its turn out of turn */
	uint32_t lost;	 /* of 64 opens are not heard of */
};

/* The permutation of a spec in an epoch, as this project makes orders; those are held to PyTorch's elsewhere. */
static void permute(const char *text, uint64_t epoch, uint32_t n, uint32_t *ret, uint32_t *ret_n)
{
	struct order_params params = { .n = n };
	struct order_epoch *ep = NULL;
	struct order_spec *spec = NULL;
	struct order *order = NULL;
	struct err err = { 0 };

	if (order_spec_parse(text, &spec, &err) < 0 || order_new(spec, &params, &order, &err) < 0 ||
	    order_epoch_new(order, epoch, &ep, &err) < 0)
		CHECK_STR(err.msg, "");
	*ret_n = (uint32_t)ep->length;
	for (uint32_t i = 0; i < *ret_n; i++)
		ret[i] = ep->sample[i];
	order_epoch_free(ep);
	order_free(order);
	order_spec_free(spec);
}

/* As workers open it; returns how many opens are heard of. */
static uint32_t open_all(const struct job *job, const uint32_t *perm, uint32_t n, uint64_t *random, uint32_t *ret)
{
	uint32_t head[64] = { 0 }, done = 0, heard = 0;

	while (done < n) {
		uint32_t turn = UINT32_MAX, active[64], n_active = 0, pos;

		for (uint32_t w = 0; w < job->workers; w++) {
			pos = (head[w] / job->batch * job->workers + w) * job->batch + head[w] % job->batch;
			if (pos >= n)
				continue;
			active[n_active++] = w;
			if (turn == UINT32_MAX || head[w] < head[turn])
				turn = w;
		}
		if (check_rand_below(random, 16) < job->jitter)
			turn = active[check_rand_below(random, n_active)];
		pos = (head[turn] / job->batch * job->workers + turn) * job->batch + head[turn] % job->batch;
		head[turn]++;
		done++;
		if (check_rand_below(random, 64) >= job->lost)
			ret[heard++] = perm[pos];
	}
	return heard;
}

static struct recover_params params_of(uint32_t n, const uint32_t *seen, size_t n_seen, uint32_t typed)
{
	struct recover_params p;

	recover_params_init(&p);
	p.n = n;
	p.seen = seen;
	p.n_seen = n_seen;
	p.typed = typed;
	return p;
}

/* The fewest opens of the pass that the seed is found by, 0: none; what is found must be right. */
static uint32_t found_by(const struct job *job, const char *text, uint32_t seed, uint32_t step, uint64_t *random)
{
	uint32_t perm[MOST], seen[MOST], n, heard;
	struct recover_found found;

	permute(text, 0, job->n, perm, &n);
	heard = open_all(job, perm, n, random, seen);
	for (uint32_t i = 8; i <= heard; i += MAX(step, 1)) {
		struct recover_params p = params_of(job->n, seen, i, 1024);
		int rc = recover_few(&p, NULL, 0, &found);

		CHECK(rc == 0 || rc == -ENOENT);
		if (rc < 0)
			continue;
		CHECK_U64(found.seed, seed);
		CHECK_U64(found.world, 1);
		CHECK(found.bits >= found.bits_needed);
		return i;
	}
	return 0;
}

static void shards_in_order_are_found_within_a_third_of_them(void)
{
	uint64_t random = check_seed();

	for (uint32_t n = 24; n <= MOST; n += 8) {
		struct job job = { n, 1, 1, 0, 0 };
		uint32_t opens = found_by(&job, "torch-distributed:seed=42", 42, 1, &random);

		CHECK(opens >= 8 && opens <= 10);
	}
}

/* The seed behind manual_seed(42) of a loader. */
static void a_loaders_word_is_named(void)
{
	uint64_t random = check_seed();
	struct job job = { 24, 2, 1, 4, 0 };
	uint32_t perm[MOST], seen[MOST], n, heard;
	struct recover_found found;
	struct recover_params p;

	permute("torch-loader:seed=42", 0, 24, perm, &n);
	heard = open_all(&job, perm, n, &random, seen);
	p = params_of(24, seen, heard, 1024);
	CHECK_INT(recover_few(&p, NULL, 0, &found), 0);
	CHECK(found.is_chain);
	CHECK_U64(found.manual_seed, 42);
	CHECK_U64(found.word, 3);
	CHECK_U64(found.seed, recover_word(42, 3));
}

/* Two to eight workers, batches of 1 to 4, out of turn now and then, an open in 32 lost. */
static void workers_side_by_side_are_followed(void)
{
	static const struct job jobs[] = {
		{ 24, 2, 1, 4, 0 }, { 24, 2, 4, 4, 0 }, { 24, 4, 1, 2, 0 },  { 32, 4, 2, 4, 0 },  { 48, 4, 1, 8, 2 },
		{ 48, 8, 1, 4, 2 }, { 64, 8, 2, 4, 2 }, { 100, 12, 1, 4, 2 }, { 100, 8, 4, 8, 2 }, { 100, 1, 1, 0, 2 },
	};
	uint64_t random = check_seed();
	uint32_t found = 0, asked = 0;

	for (size_t i = 0; i < ARRAY_LEN(jobs); i++)
		for (uint32_t seed = 0; seed < 2; seed++) {
			char text[64];

			snprintf(text, sizeof(text), "torch-distributed:seed=%u", seed * 17);
			found += found_by(&jobs[i], text, seed * 17, jobs[i].n / 4, &random) > 0;
			asked++;
		}
	if (found * 10 < asked * 9)
		CHECK_U64(found, asked);
}

/* 8 to 12 shards have too few orders for one pass; the third one tells, whichever way the seed goes. */
static void several_passes_tell_what_one_cannot(void)
{
	static const struct {
		const char *spec;
		uint32_t n;
		bool is_chain;
		enum recover_next next;
	} jobs[] = { { "torch-distributed:seed=7", 8, false, RECOVER_NEXT_ONE },
		     { "torch-distributed:seed=7", 12, false, RECOVER_NEXT_ONE },
		     { "torch-loader:seed=7", 10, true, RECOVER_NEXT_FOUR },
		     { "torch-loader:seed=7:persistent=1", 12, true, RECOVER_NEXT_TWO } };

	for (size_t i = 0; i < ARRAY_LEN(jobs); i++) {
		uint32_t perm[4][MOST], n;
		struct recover_pass pass[4];
		struct recover_found found;
		struct recover_params p;

		for (uint64_t epoch = 0; epoch < 4; epoch++) {
			permute(jobs[i].spec, epoch, jobs[i].n, perm[epoch], &n);
			pass[epoch] = (struct recover_pass){ perm[epoch], n };
		}
		p = params_of(jobs[i].n, perm[0], n, 1024);
		CHECK_INT(recover_few(&p, NULL, 0, &found), -ENOENT);
		p = params_of(jobs[i].n, perm[3], n, 1024);
		CHECK_INT(recover_few(&p, pass, 3, &found), 0);
		CHECK_INT(found.is_chain, jobs[i].is_chain);
		CHECK_INT(found.next, jobs[i].next);
		if (jobs[i].is_chain)
			CHECK_U64(found.manual_seed, 7);
		else
			CHECK_U64(found.seed, 10);
	}
}

/* Whoever reads in one order that nobody shuffled has the same luck in each pass. */
static void one_order_again_and_again_is_none(void)
{
	uint64_t random = check_seed();

	for (uint32_t n = 8; n <= 12; n++) {
		uint32_t perm[MOST];
		struct recover_pass pass[3] = { { perm, n }, { perm, n }, { perm, n } };
		struct recover_found found;
		struct recover_params p = params_of(n, perm, n, RECOVER_TYPED);

		for (uint32_t i = 0; i < n; i++) {
			uint32_t at = check_rand_below(&random, i + 1);

			perm[i] = perm[at];
			perm[at] = i;
		}
		CHECK_INT(recover_few(&p, pass, ARRAY_LEN(pass), &found), -ENOENT);
	}
}

/* A rank of two reads half of the shards, in several passes. */
static void a_rank_is_told(void)
{
	uint32_t perm[2][MOST], n;
	struct recover_pass before;
	struct recover_found found;
	struct recover_params p;

	permute("torch-distributed:seed=3:world=2:rank=1", 0, 24, perm[0], &n);
	before = (struct recover_pass){ perm[0], n };
	permute("torch-distributed:seed=3:world=2:rank=1", 1, 24, perm[1], &n);
	p = params_of(24, perm[1], n, 1024);
	CHECK_INT(recover_few(&p, &before, 1, &found), 0);
	CHECK_U64(found.seed, 4);
	CHECK_U64(found.world, 2);
	CHECK_U64(found.rank[0], 1);
}

/* 25 shards for 4 ranks: each reads 7, so the last three read one of the first ones as well. One reads these
 * with two workers, and the end of its part is what both of them come to last. */
static void a_padded_rank_is_told(void)
{
	uint64_t random = check_seed();

	for (uint32_t i = 0; i < 6; i++) {
		const struct job job = { 25, 1 + i % 2, 1, 0, 0 };
		const uint32_t rank = 1 + i / 2;
		uint32_t perm[MOST], seen[3][MOST], n;
		struct recover_pass pass[3];
		struct recover_found found;
		struct recover_params p;
		char text[64];

		snprintf(text, sizeof(text), "torch-distributed:seed=3:world=4:rank=%u", rank);
		for (uint32_t epoch = 0; epoch < 3; epoch++) {
			permute(text, epoch, 25, perm, &n);
			CHECK_U64(n, 7);
			pass[epoch].seen = seen[epoch];
			pass[epoch].n_seen = open_all(&job, perm, n, &random, seen[epoch]);
		}
		p = params_of(25, seen[2], n, 1024);
		CHECK_INT(recover_few(&p, pass, 2, &found), 0);
		CHECK_U64(found.seed, 5);
		CHECK_U64(found.world, 4);
		CHECK_U64(found.rank[0], rank);
		CHECK_INT(found.next, RECOVER_NEXT_ONE);
		printf("# rank %u, %u workers: %.1f bits beyond those needed\n", rank, job.workers,
		       found.bits - found.bits_needed);
		CHECK(found.bits - found.bits_needed > (job.workers == 1 ? 25 : 0));
	}
}

/* Drawn from a generator that is none of those that are asked about. */
static void draw(uint32_t n, uint64_t *random, uint32_t *ret)
{
	for (uint32_t i = 0; i < n; i++)
		ret[i] = i;
	for (uint32_t i = 0; i + 1 < n; i++) {
		uint32_t j = i + (uint32_t)check_rand_below(random, n - i), was = ret[i];

		ret[i] = ret[j];
		ret[j] = was;
	}
}

#define ORDERS 16 /* in a run; any number of runs has other ones */

static void no_random_order_is_ever_found(void)
{
	uint64_t random = check_seed();

	for (uint32_t i = 0; i < ORDERS; i++) {
		uint32_t n = 8 + (uint32_t)check_rand_below(&random, 93), seen[4][MOST];
		struct recover_pass before[3];
		struct recover_found found;
		struct recover_params p;
		size_t n_before = check_rand_below(&random, 4);

		for (uint32_t pass = 0; pass < 4; pass++)
			draw(n, &random, seen[pass]);
		for (size_t k = 0; k < n_before; k++)
			before[k] = (struct recover_pass){ seen[k], n };
		p = params_of(n, seen[3], n, 1024);
		CHECK_INT(recover_few(&p, before, n_before, &found), -ENOENT);
	}
}

/* Nor what is no shuffle at all: in order, backwards, by twos. */
static void no_plain_order_is_found(void)
{
	for (uint32_t n = 8; n <= MOST; n += 1 + n / 4)
		for (uint32_t how = 0; how < 3; how++) {
			uint32_t seen[MOST];
			struct recover_found found;
			struct recover_params p;

			for (uint32_t i = 0; i < n; i++)
				seen[i] = how == 0   ? i
					  : how == 1 ? n - 1 - i
						     : (i < (n + 1) / 2 ? 2 * i : 2 * (i - (n + 1) / 2) + 1);
			p = params_of(n, seen, n, 1024);
			CHECK_INT(recover_few(&p, NULL, 0, &found), -ENOENT);
		}
}

static void what_is_wrong_is_refused(void)
{
	uint32_t seen[MOST] = { 0, 1, 2, 3, 4, 5, 6, 7 };
	struct recover_found found;
	struct recover_params p = params_of(7, seen, 7, 1024);

	CHECK_INT(recover_few(&p, NULL, 0, &found), -EINVAL);
	p = params_of(MOST + 1, seen, 8, 1024);
	CHECK_INT(recover_few(&p, NULL, 0, &found), -EINVAL);
	p = params_of(8, seen, 8, 1024);
	seen[3] = 8;
	CHECK_INT(recover_few(&p, NULL, 0, &found), -EINVAL);
	seen[3] = 2;
	CHECK_INT(recover_few(&p, NULL, 0, &found), -EINVAL);
	p.n_seen = 9;
	CHECK_INT(recover_few(&p, NULL, 0, &found), -EINVAL);
}

static void it_ends_when_it_is_cancelled(void)
{
	const atomic_bool yes = true;
	uint32_t seen[MOST];
	uint64_t random = check_seed();
	struct recover_found found;
	struct recover_params p = params_of(64, seen, 64, RECOVER_TYPED);

	draw(64, &random, seen);
	p.cancel = &yes;
	CHECK_INT(recover_few(&p, NULL, 0, &found), -ECANCELED);
}

/* Seeds above 1024, and words of manual seeds above it, take the longer search. */
static void unlikely_seeds_are_found_too(void)
{
	uint32_t perm[MOST], n;
	struct recover_found found;
	struct recover_params p;

	permute("torch-distributed:seed=54321", 0, 24, perm, &n);
	p = params_of(24, perm, 14, 1024);
	CHECK_INT(recover_few(&p, NULL, 0, &found), -ENOENT);
	p.typed = RECOVER_TYPED;
	CHECK_INT(recover_few(&p, NULL, 0, &found), 0);
	CHECK_U64(found.seed, 54321);
	permute("torch-loader:seed=9000", 0, 24, perm, &n);
	CHECK_INT(recover_few(&p, NULL, 0, &found), 0);
	CHECK_U64(found.manual_seed, 9000);
}

static const struct check_test tests[] = {
	{ "shards_in_order_are_found_within_a_third_of_them", shards_in_order_are_found_within_a_third_of_them },
	{ "a_loaders_word_is_named", a_loaders_word_is_named },
	{ "workers_side_by_side_are_followed", workers_side_by_side_are_followed },
	{ "one_order_again_and_again_is_none", one_order_again_and_again_is_none },
	{ "several_passes_tell_what_one_cannot", several_passes_tell_what_one_cannot },
	{ "a_rank_is_told", a_rank_is_told },
	{ "a_padded_rank_is_told", a_padded_rank_is_told },
	{ "no_random_order_is_ever_found", no_random_order_is_ever_found },
	{ "no_plain_order_is_found", no_plain_order_is_found },
	{ "what_is_wrong_is_refused", what_is_wrong_is_refused },
	{ "it_ends_when_it_is_cancelled", it_ends_when_it_is_cancelled },
	{ "unlikely_seeds_are_found_too", unlikely_seeds_are_found_too },
};

CHECK_MAIN(tests)
