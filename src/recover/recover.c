/* SPDX-License-Identifier: Apache-2.0 */
/* A search from end to end: check the question, build the sieve, try the cheap hypotheses, then all
 * seeds. The two phases differ in how many seeds they try, so in how much evidence they ask for.
 *
 * It must never hold a lock of anybody else's or touch a clock of the plan's: it is called for
 * minutes, from a thread that has nothing better to do. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>

#include "recover_priv.h"

#define FULL_BITS 32.0

void recover_params_init(struct recover_params *params)
{
	*params = (struct recover_params){ .rank = RECOVER_UNKNOWN,
					   .batch = RECOVER_UNKNOWN,
					   .workers = RECOVER_UNKNOWN,
					   .typed = RECOVER_TYPED,
					   .last_seed = UINT32_MAX };
}

static double hypotheses(const struct recover_params *p)
{
	return p->effort == RECOVER_QUICK ? log2((double)chain_count(p)) : FULL_BITS;
}

uint64_t recover_needed(const struct recover_params *p)
{
	double choices = 0, needed, bits;

	for (size_t i = 0; i < p->n_worlds; i++)
		choices += p->rank == RECOVER_UNKNOWN ? p->worlds[i] : 1;
	needed = judge_needed(hypotheses(p), log2(MAX(choices, 1)));
	bits = judge_bits_in_order(p->n, 0);
	for (uint64_t c = 0; c < p->n; c++) { /* a few dozen times at most */
		if (bits >= needed)
			return c;
		bits += log2((double)(p->n - c));
	}
	return bits >= needed ? p->n : 0;
}

/* 1: found. */
static int search_cheap(struct search search, struct recover_found *ret, struct err *err)
{
	struct chain *chain;
	uint64_t at = 0;
	int rc = chain_new(search.params, &chain, err);

	if (rc < 0)
		return rc;
	search.list = chain->seed;
	search.total = chain->n;
	search.hypotheses = log2((double)chain->n);
	rc = search_run(&search, ret, &at, err);
	if (rc == 1)
		chain_name(chain, at, ret);
	chain_free(chain);
	return rc;
}

/* A DistributedSampler draws from no generator that lives on. */
static bool has_streams(const struct recover_params *p)
{
	return p->n_worlds == 0 || (p->n_worlds == 1 && p->worlds[0] == 1);
}

static uint64_t count_words(const struct recover_stream *streams, size_t n)
{
	uint64_t words = 0;

	for (size_t i = 0; i < n; i++)
		words += streams[i].count;
	return words;
}

static int search_streams(struct search search, const struct recover_stream *streams, size_t n,
			  struct recover_found *ret, struct err *err)
{
	uint64_t at;

	search.streams = streams;
	search.n_streams = n;
	search.hypotheses = FULL_BITS;
	search.total = count_words(streams, n);
	return n > 0 && has_streams(search.params) ? search_run(&search, ret, &at, err) : 0;
}

static int search_given(struct search search, struct recover_found *ret, struct err *err)
{
	return search_streams(search, search.params->streams, search.params->n_streams, ret, err);
}

static int search_likely(struct search search, struct recover_found *ret, struct err *err)
{
	int rc = 0;

	for (int depth = RECOVER_SHALLOW; depth <= RECOVER_DEEP && rc == 0; depth++) {
		struct recover_stream *streams AUTO_FREE = NULL;
		size_t n;

		if (recover_streams_new((enum recover_depth)depth, &streams, &n) < 0)
			return err_set(err, -ENOMEM, "out of memory");
		rc = search_streams(search, streams, n, ret, err);
	}
	return rc;
}

static int recover_all_seeds(struct search search, struct recover_found *ret, struct err *err)
{
	uint64_t at;

	search.is_full = true;
	search.first = search.params->first_seed;
	search.total = (uint64_t)search.params->last_seed - search.params->first_seed + 1;
	search.hypotheses = FULL_BITS;
	return search_run(&search, ret, &at, err);
}

typedef int phase_fn(struct search search, struct recover_found *ret, struct err *err);

/* One phase, with a sieve for so many seeds. */
static int run_search(const struct recover_params *params, phase_fn *phase, uint64_t seeds,
		      struct recover_found *ret, struct err *err)
{
	struct search search = { .params = params, .isa = recover_isa_best() };
	struct problem *problem;
	struct sieve *sieve = NULL;
	int rc = problem_new(params, seeds, &problem, err);

	if (rc < 0)
		return rc;
	rc = sieve_new(problem, &sieve, err);
	search.problem = problem;
	search.sieve = sieve;
	if (rc == 0)
		rc = phase(search, ret, err);
	sieve_free(sieve);
	problem_free(problem);
	return rc;
}

int recover_search(const struct recover_params *params, struct recover_found *ret, struct err *err)
{
	uint64_t range = (uint64_t)params->last_seed - params->first_seed + 1;
	int rc = 0;

	*ret = (struct recover_found){ 0 };
	if (params->effort == RECOVER_STREAMS)
		rc = run_search(params, search_given,
				count_words(params->streams, params->n_streams), ret, err);
	if (params->effort == RECOVER_FULL || params->effort == RECOVER_QUICK)
		rc = run_search(params, search_cheap, chain_count(params), ret, err);
	if (rc == 0 && params->effort == RECOVER_FULL)
		rc = run_search(params, search_likely, UINT64_MAX, ret, err);
	if (rc == 0 && (params->effort == RECOVER_FULL || params->effort == RECOVER_RANGE))
		rc = run_search(params, recover_all_seeds, range, ret, err);
	if (rc == 0)
		return err_set(err, -ENOENT,
			       "no seed%s fits: these are not the first samples of an epoch of "
			       "RandomSampler or DistributedSampler with %" PRIu64
			       " samples and this world and rank",
			       params->effort == RECOVER_QUICK || params->effort == RECOVER_STREAMS
				       ? " of the likely ones"
				       : "",
			       params->n);
	return rc < 0 ? rc : 0;
}

int recover_find(const struct recover_params *params, uint32_t seed, struct recover_place *ret,
		 size_t max, size_t *ret_n, struct err *err)
{
	struct places places = { .max = max, .place = ret };
	struct search search = { .params = params,
				 .streams = params->streams,
				 .n_streams = params->n_streams,
				 .places = &places,
				 .first = seed };
	struct recover_found none;
	uint64_t at;
	int rc;

	*ret_n = 0;
	if (params->n_streams == 0 || max == 0)
		return 0;
	places.at = calloc(max, sizeof(*places.at));
	if (!places.at)
		return err_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < params->n_streams; i++)
		search.total += params->streams[i].count;
	rc = search_run(&search, &none, &at, err);
	*ret_n = rc < 0 ? 0 : places.n;
	free(places.at);
	return rc;
}

int recover_isa_run(const struct recover_isa *isa, const struct recover_params *params,
		    uint32_t first, uint64_t count, uint64_t *ret_left, struct err *err)
{
	uint32_t seed[4096], left[4096];
	struct problem *problem;
	struct sieve *sieve = NULL;
	int rc = problem_new(params, count, &problem, err);

	*ret_left = 0;
	if (rc < 0)
		return rc;
	rc = sieve_new(problem, &sieve, err);
	for (uint64_t at = 0; rc == 0 && at < count; at += ARRAY_LEN(seed)) {
		size_t n = (size_t)MIN(count - at, ARRAY_LEN(seed));

		for (size_t i = 0; i < n; i++)
			seed[i] = first + (uint32_t)(at + i);
		*ret_left += scan_seeds(isa, sieve, seed, n, left);
	}
	sieve_free(sieve);
	problem_free(problem);
	return rc;
}
