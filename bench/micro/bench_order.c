/* SPDX-License-Identifier: Apache-2.0 */
/* What an epoch costs: order_epoch_new for 10^7 samples beside a plain Fisher-Yates loop over the
 * same generator, which is the work that cannot be left out (it has neither first positions nor
 * ranks). The two alternate, so that a machine that slows down slows both; printed is the median
 * of 5.
 *
 * One JSON line per result; value and plain in milliseconds, ratio = value / plain (the aim: below
 * 2). */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "clairfs/order.h"
#include "src/order/rng_mt19937.h"
#include "src/order/rng_pcg64.h"

#define ROUNDS 5
#define SEED 42

typedef void plain_fn(uint32_t *r, uint32_t n);

struct bench {
	const char *name, *spec;
	plain_fn *plain;
};

static void plain_torch(uint32_t *r, uint32_t n)
{
	struct mt19937 rng;

	mt19937_seed(&rng, SEED);
	for (uint32_t i = 0; i < n; i++)
		r[i] = i;
	for (uint32_t i = 0; i + 1 < n; i++) {
		uint32_t z = i + mt19937_u32(&rng) % (n - i), t = r[i];

		r[i] = r[z];
		r[z] = t;
	}
}

/* Swaps downwards with a place from 0..i; `next` draws it. */
#define PLAIN_DOWN(r, n, next)                                                                     \
	for (uint32_t i = 0; i < (n); i++)                                                         \
		(r)[i] = i;                                                                        \
	for (uint32_t i = (n); i-- > 1;) {                                                         \
		uint32_t z, t = (r)[i];                                                            \
                                                                                                   \
		do                                                                                 \
			z = (next);                                                                \
		while (z > i);                                                                     \
		(r)[i] = (r)[z];                                                                   \
		(r)[z] = t;                                                                        \
	}

static void plain_numpy_legacy(uint32_t *r, uint32_t n)
{
	struct mt19937 rng;

	mt19937_seed(&rng, SEED);
	PLAIN_DOWN(r, n, mt19937_u32(&rng) & UINT32_MAX >> __builtin_clz(i))
}

static void plain_numpy_generator(uint32_t *r, uint32_t n)
{
	struct pcg64 rng;

	pcg64_seed(&rng, SEED);
	PLAIN_DOWN(r, n, pcg64_u32(&rng) & UINT32_MAX >> __builtin_clz(i))
}

static void plain_python(uint32_t *r, uint32_t n)
{
	struct mt19937 rng;

	mt19937_seed_python(&rng, SEED);
	PLAIN_DOWN(r, n, mt19937_u32(&rng) >> __builtin_clz(i + 1))
}

static const struct bench benches[] = {
	{ "order_epoch_new", "torch-distributed:seed=42:world=1", plain_torch },
	{ "order_epoch_new_8_ranks", "torch-distributed:seed=42:world=8", plain_torch },
	{ "order_epoch_new_1_of_8_ranks", "torch-distributed:seed=42:world=8:rank=3", plain_torch },
	{ "order_epoch_new_accelerate", "accelerate:seed=42:world=8:batch=256", plain_torch },
	{ "order_epoch_new_numpy_legacy", "numpy-legacy:seed=42", plain_numpy_legacy },
	{ "order_epoch_new_numpy_generator", "numpy-generator:seed=42", plain_numpy_generator },
	{ "order_epoch_new_python", "python-random:seed=42", plain_python },
};

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int compare_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values)
{
	qsort(values, ROUNDS, sizeof(*values), compare_double);
	return values[ROUNDS / 2];
}

static void fail(const struct err *err)
{
	fprintf(stderr, "bench_order: %s\n", err->msg);
	exit(1);
}

static void run(const struct bench *bench, uint32_t n)
{
	double ours[ROUNDS], plain[ROUNDS], value, base;
	struct err err = { 0 };
	struct order_spec *spec;
	struct order *order;

	if (order_spec_parse(bench->spec, &spec, &err) < 0 ||
	    order_new(spec, &(struct order_params){ .n = n }, &order, &err) < 0)
		fail(&err);
	for (int i = 0; i < ROUNDS; i++) {
		double start = now_ms();
		uint32_t *permutation = malloc(n * sizeof(*permutation));
		struct order_epoch *e;

		if (!permutation)
			abort();
		bench->plain(permutation, n);
		plain[i] = now_ms() - start;
		start = now_ms();
		if (order_epoch_new(order, 0, &e, &err) < 0)
			fail(&err);
		ours[i] = now_ms() - start;
		/* Where all of the permutation is read in its order, it must be the same one. */
		if (e->length == n && order_info(order)->batch == 0 &&
		    memcmp(permutation, e->sample, n * sizeof(*permutation)) != 0) {
			err_set(&err, -1, "the permutations differ");
			fail(&err);
		}
		order_epoch_free(e);
		free(permutation);
	}
	value = median(ours);
	base = median(plain);
	printf("{\"name\": \"%s\", \"unit\": \"ms\", \"value\": %.2f, \"plain\": %.2f, \"ratio\": %.3f, "
	       "\"n\": %" PRIu32 ", \"rounds\": %d, \"spec\": \"%s\"}\n",
	       bench->name, value, base, value / base, n, ROUNDS, bench->spec);
	order_free(order);
	order_spec_free(spec);
}

/* bench_order [N] */
int main(int argc, char **argv)
{
	uint32_t n = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 10000000;

	for (size_t i = 0; i < ARRAY_LEN(benches); i++)
		run(&benches[i], n);
	return 0;
}
