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

#define ROUNDS 5
#define SEED 42

struct bench {
	const char *name, *spec;
};

static const struct bench benches[] = {
	{ "order_epoch_new", "torch-distributed:seed=42:world=1" },
	{ "order_epoch_new_8_ranks", "torch-distributed:seed=42:world=8" },
	{ "order_epoch_new_1_of_8_ranks", "torch-distributed:seed=42:world=8:rank=3" },
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

static uint32_t *plain_permutation(uint32_t n)
{
	uint32_t *r = malloc(n * sizeof(*r));
	struct mt19937 rng;

	if (!r)
		abort();
	mt19937_seed(&rng, SEED);
	for (uint32_t i = 0; i < n; i++)
		r[i] = i;
	for (uint32_t i = 0; i + 1 < n; i++) {
		uint32_t z = i + mt19937_u32(&rng) % (n - i), t = r[i];

		r[i] = r[z];
		r[z] = t;
	}
	return r;
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
		uint32_t *permutation = plain_permutation(n);
		struct order_epoch *e;

		plain[i] = now_ms() - start;
		start = now_ms();
		if (order_epoch_new(order, 0, &e, &err) < 0)
			fail(&err);
		ours[i] = now_ms() - start;
		/* Where all of the permutation is read in its order, it must be the same one. */
		if (e->length == n &&
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
