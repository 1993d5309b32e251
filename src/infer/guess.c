/* SPDX-License-Identifier: Apache-2.0 */
/* Orders that are no torch permutation: files in their order (shuffle=False, also shared out over
 * ranks), and the kinds of module order that are made from one small seed. The first is a matter of
 * microseconds. The others have to be computed whole before their first position is known (numpy
 * shuffles from the back), so only a few seeds are tried, and no longer than the caller allows.
 *
 * Evidence is asked for as for a million hypotheses, although far fewer are tried. Any thread. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "clairfs/base/ids.h"
#include "clairfs/order.h"
#include "infer_priv.h"

#define NEEDED_BITS 40.0 /* 2^20 hypotheses, wrong once in 2^20 searches */
#define RANK_BITS 12.0   /* for a further rank */
#define ORDER_BITS 24.0 /* that files are read in their order, and not only the first of them */
#define SEEN_LEAST 32
#define PARTS 4        /* a quarter of the samples, half of them, all */
#define PARTS_BITS 1.6 /* that one of these was chosen */
#define SEEDS_MAX 1024

static const uint16_t strides[] = { 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 48, 56, 64 };

/* Small seeds in the order people like them. */
static const uint32_t liked[GUESS_LIKED] = { 0,    42,   1,    1234, 123,  2,    3,    7,     1337,
				  2023, 2024, 2025, 2026, 2022, 2021, 2020, 12345, 10,
				  100,  1000, 999,  777,  666,  31,   17,   13,    11,
				  3407 };

static const char *const kinds[] = { "numpy-legacy", "python-random", "numpy-generator",
				     "torch-generator" };

/* --- files in their order */

struct stride {
	double bits, sum, order; /* order: that it is read from low to high */
	struct infer_answer answer;
};

/* Positions of the samples of one rank, when rank r reads r, r + world, r + 2 world... */
static double rank_bits(const struct infer_question *q, uint32_t world, uint32_t rank, uint32_t *pos,
			double *ret_order)
{
	uint32_t n = 0;

	for (size_t i = 0; i < q->n_seen; i++)
		if (q->seen[i] % world == rank)
			pos[n++] = q->seen[i] / world;
	*ret_order = evidence_order_bits(pos, n);
	return evidence_bits(pos, n, (uint32_t)q->n_seen, q->n);
}

static void weigh_stride(const struct infer_question *q, uint32_t world, uint32_t *pos,
			 struct stride *ret)
{
	*ret = (struct stride){ .answer.world = world };
	for (uint32_t rank = 0; rank < world; rank++) {
		double order, bits = rank_bits(q, world, rank, pos, &order);

		if (bits < RANK_BITS + log2(world) ||
		    ret->answer.n_ranks == ARRAY_LEN(ret->answer.rank))
			continue;
		ret->bits = MAX(ret->bits, bits);
		ret->order += order;
		ret->sum += bits - RANK_BITS;
		ret->answer.rank[ret->answer.n_ranks++] = rank;
	}
}

static void put_sequential(struct infer_answer *a)
{
	size_t at;

	if (a->n_ranks == a->world) {
		snprintf(a->spec, sizeof(a->spec), "sequential");
		return;
	}
	at = (size_t)snprintf(a->spec, sizeof(a->spec),
			      "torch-distributed:shuffle=0:world=%" PRIu32 ":ranks=", a->world);
	for (uint32_t i = 0; i < a->n_ranks && at < sizeof(a->spec); i++)
		at += (size_t)snprintf(a->spec + at, sizeof(a->spec) - at, "%s%" PRIu32,
				       i ? "+" : "", a->rank[i]);
}

/* By so many of the first opens. */
static void weigh_first(const struct infer_question *all, size_t n_seen, uint32_t *pos, struct stride *best)
{
	struct infer_question first = *all;
	struct stride one;

	first.n_seen = MIN(all->n_seen, n_seen);
	for (size_t i = 0; i < ARRAY_LEN(strides) && strides[i] < first.n; i++) {
		weigh_stride(&first, strides[i], pos, &one);
		one.bits -= PARTS_BITS;
		if (one.bits >= NEEDED_BITS && one.order >= ORDER_BITS && one.sum > best->sum)
			*best = one;
	}
}

int guess_sequential(const struct infer_question *all, struct infer_answer *ret)
{
	uint32_t *pos AUTO_FREE = calloc(MAX(all->n_seen, 1), sizeof(*pos));
	struct stride best = { 0 };

	if (!pos)
		return -ENOMEM;
	/* When all was seen, it says nothing which samples came first; when a worker began some batches after the
	 * others, few opens have holes in them. */
	for (unsigned part = PARTS; part >= 1 && best.sum <= 0; part /= 2)
		weigh_first(all, MAX(all->n / part, SEEN_LEAST), pos, &best);
	if (best.sum <= 0)
		return -ENOENT;
	*ret = best.answer;
	ret->margin = best.bits - NEEDED_BITS;
	put_sequential(ret);
	return 0;
}

/* --- kinds of module order */

uint64_t guess_cpu_ns(void)
{
	struct timespec now = { 0 };

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint32_t guess_places(const struct infer_question *q, const char *text, uint32_t *pos)
{
	struct order_params params = { .n = q->n };
	struct order_epoch *epoch = NULL;
	struct order_spec *spec = NULL;
	struct order *order = NULL;
	struct err err = { 0 };
	uint32_t n = 0;

	if (order_spec_parse(text, &spec, &err) == 0 &&
	    order_new(spec, &params, &order, &err) == 0 &&
	    order_epoch_new(order, 0, &epoch, &err) == 0)
		for (size_t i = 0; i < q->n_seen; i++)
			if (epoch->first[q->seen[i]] != SAMPLE_NONE)
				pos[n++] = epoch->first[q->seen[i]];
	order_epoch_free(epoch);
	order_free(order);
	order_spec_free(spec);
	return n;
}

/* Bits for the first epoch of a spec, 0 when there is no such order. */
static double spec_bits(const struct infer_question *q, const char *text, uint32_t *pos)
{
	uint32_t n = guess_places(q, text, pos);

	return evidence_bits(pos, n, (uint32_t)q->n_seen, q->n);
}

uint32_t guess_seed(uint32_t i)
{
	return i < ARRAY_LEN(liked) ? liked[i] : i - (uint32_t)ARRAY_LEN(liked);
}

int guess_kinds(const struct infer_question *q, uint32_t n_seeds, uint64_t cpu_ns,
		struct infer_answer *ret)
{
	uint32_t *pos AUTO_FREE = calloc(MAX(q->n_seen, 1), sizeof(*pos));
	uint64_t start_ns = guess_cpu_ns();
	const struct timespec hold = { .tv_nsec = 50 * NS_PER_MS };

	if (!pos)
		return -ENOMEM;
	for (uint32_t i = 0; i < MIN(n_seeds, SEEDS_MAX); i++)
		for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
			char text[64];
			double bits;

			while (q->hold && atomic_load(q->hold) && !atomic_load(q->cancel))
				(void)clock_nanosleep(CLOCK_MONOTONIC, 0, &hold, NULL);
			if (atomic_load(q->cancel))
				return -ECANCELED;
			if (guess_cpu_ns() - start_ns > cpu_ns)
				return -ENOENT;
			snprintf(text, sizeof(text), "%s:seed=%" PRIu32, kinds[k], guess_seed(i));
			bits = spec_bits(q, text, pos);
			if (bits < NEEDED_BITS)
				continue;
			*ret = (struct infer_answer){ .world = 1,
						    .n_ranks = 1,
						    .margin = bits - NEEDED_BITS };
			snprintf(ret->spec, sizeof(ret->spec), "%s", text);
			return 0;
		}
	return -ENOENT;
}
