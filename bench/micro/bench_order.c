/* SPDX-License-Identifier: Apache-2.0 */
/* What an epoch costs: order_epoch_new for 10^7 samples beside a plain Fisher-Yates loop over the
 * same generator, which is the work that cannot be left out (it has neither first positions nor
 * ranks). Two such loops where the framework shuffles twice. Kinds without a generator stand beside
 * torch's loop. The two alternate, so that a machine that slows down slows both; printed is the
 * median of 5.
 *
 * One JSON line per result; value and plain in milliseconds, ratio = value / plain (the aim: below
 * 2). Every kind has a row: a new one without is an error. */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "clairfs/order.h"
#include "src/order/rng_mt19937.h"
#include "src/order/rng_mt19937_64.h"
#include "src/order/rng_pcg64.h"
#include "src/order/rng_philox.h"

#define ROUNDS 5
#define SEED 42

typedef void plain_fn(uint32_t *r, uint32_t n);

struct bench {
	const char *name, *spec;
	plain_fn *plain;
	bool is_same;
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

static void plain_philox(uint32_t *r, uint32_t n)
{
	struct philox rng;

	philox_init(&rng, SEED, SEED, 0);
	for (uint32_t i = 0; i < n; i++)
		r[i] = i;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t z = i + philox_u32(&rng) % (n - i), t = r[i];

		r[i] = r[z];
		r[z] = t;
	}
}

/* Upwards, a word made a number by a multiplication, as libstdc++ does. */
static void plain_libstdcxx(uint32_t *r, uint32_t n)
{
	struct mt19937 rng;

	mt19937_seed(&rng, SEED);
	for (uint32_t i = 0; i < n; i++)
		r[i] = i;
	for (uint32_t i = 1; i < n; i++) {
		uint32_t z = (uint32_t)((uint64_t)mt19937_u32(&rng) * (i + 1ull) >> 32), t = r[i];

		r[i] = r[z];
		r[z] = t;
	}
}

static void plain_libstdcxx_64(uint32_t *r, uint32_t n)
{
	struct mt19937_64 rng;

	mt19937_64_seed(&rng, SEED);
	for (uint32_t i = 0; i < n; i++)
		r[i] = i;
	for (uint32_t i = 1; i < n; i++) {
		unsigned __int128 product = (unsigned __int128)mt19937_64_u64(&rng) * (i + 1ull);
		uint32_t z = (uint32_t)(product >> 64), t = r[i];

		r[i] = r[z];
		r[z] = t;
	}
}

/* DLIO 0.5 shuffles the files, then the places. */
static void plain_python_torch(uint32_t *r, uint32_t n)
{
	plain_python(r, n);
	plain_torch(r, n);
}

/* Megatron shuffles documents, here as many as samples, then samples. */
static void plain_numpy_legacy_twice(uint32_t *r, uint32_t n)
{
	plain_numpy_legacy(r, n);
	plain_numpy_legacy(r, n);
}

/* Streaming's py2s shuffles all samples for the run, then for the epoch. */
static void plain_numpy_generator_twice(uint32_t *r, uint32_t n)
{
	plain_numpy_generator(r, n);
	plain_numpy_generator(r, n);
}

/* "@n@" stands for n, "@shards@" for shards of 1000 samples. is_same: all of the permutation is
 * read in its order, so it must be the plain loop's. */
static const struct bench benches[] = {
	{ "sequential", "sequential", plain_torch, false },
	{ "torch_randperm", "torch-randperm:seed=42", plain_torch, true },
	{ "torch_distributed", "torch-distributed:seed=42:world=1", plain_torch, true },
	{ "torch_distributed_8_ranks", "torch-distributed:seed=42:world=8", plain_torch, true },
	{ "torch_distributed_1_of_8", "torch-distributed:seed=42:world=8:rank=3", plain_torch,
	  false },
	{ "torch_loader", "torch-loader:seed=42", plain_torch, false },
	{ "torch_loader_epoch_9", "torch-loader:seed=42:start_epoch=9", plain_torch, false },
	{ "torch_generator", "torch-generator:seed=42", plain_torch, false },
	{ "torch_generator_epoch_9", "torch-generator:seed=42:start_epoch=9", plain_torch, false },
	{ "torch_subset", "torch-subset:seed=42", plain_torch, false },
	{ "torchdata_loader", "torchdata-loader:seed=42:workers=4", plain_torch, false },
	{ "detectron2_training", "detectron2-training:seed=42:world=8:rank=3", plain_torch, false },
	{ "timm_repeataug", "timm-repeataug:world=8", plain_torch, false },
	{ "numpy_legacy", "numpy-legacy:seed=42", plain_numpy_legacy, true },
	{ "numpy_generator", "numpy-generator:seed=42", plain_numpy_generator, true },
	{ "python_random", "python-random:seed=42", plain_python, true },
	{ "accelerate", "accelerate:seed=42:world=8:batch=256", plain_torch, false },
	{ "megatron", "megatron:documents=@n@:world=8:batch=8", plain_numpy_legacy_twice, false },
	{ "mosaic_naive", "mosaic-naive:seed=42", plain_numpy_generator, true },
	{ "mosaic_py1s", "mosaic-py1s:shards=@shards@", plain_numpy_generator, false },
	{ "mosaic_py2s", "mosaic-py2s:shards=@shards@", plain_numpy_generator_twice, false },
	{ "mosaic_py1br", "mosaic-py1br:shards=@shards@", plain_numpy_generator, false },
	{ "mosaic_py1e", "mosaic-py1e:shards=@shards@", plain_numpy_generator, false },
	{ "litdata", "litdata:shards=@shards@:world=8:batch=256:workers=4", plain_numpy_legacy,
	  false },
	{ "ffcv", "ffcv:seed=42", plain_numpy_generator, true },
	{ "ffcv_8_ranks", "ffcv:seed=42:world=8", plain_torch, true },
	{ "webdataset", "webdataset:seed=42:shardshuffle=1000", plain_python, false },
	{ "grain", "grain:seed=42:world=8", plain_torch, false },
	{ "tf_shuffle", "tf-shuffle:seed=42:buffer=10000", plain_philox, false },
	{ "tf_shuffle_whole", "tf-shuffle:seed=42:buffer=@n@", plain_philox, false },
	{ "tf_list_files", "tf-list-files:seed=42:world=8", plain_philox, false },
	{ "dali_file", "dali-file:random_shuffle=1:world=8", plain_libstdcxx, false },
	{ "dali_file_gcc10", "dali-file:random_shuffle=1:world=8:libstdcxx=10", plain_libstdcxx,
	  false },
	{ "dali_file_after_epoch", "dali-file:shuffle_after_epoch=1:world=8", plain_libstdcxx_64,
	  false },
	{ "dlio_v0.5", "dlio-v0.5:world=8", plain_python_torch, false },
	{ "dlio_v1", "dlio-v1:world=8", plain_numpy_legacy, false },
	{ "dlio_v1_epoch_9", "dlio-v1:world=8:start_epoch=9", plain_numpy_legacy, false },
	{ "dlio_v2", "dlio-v2:world=8", plain_torch, false },
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

/* The spec of a row for n samples; heap. */
static char *spec_text(const struct bench *bench, uint32_t n)
{
	const char *from = bench->spec, *at = strchr(from, '@');
	char *text;

	if (!at)
		return strdup(from);
	if (asprintf(&text, at[1] == 'n' ? "%.*s%" PRIu32 "%s" : "%.*s1000x%" PRIu32 "%s",
		     (int)(at - from), from, at[1] == 'n' ? n : n / 1000,
		     strchr(at + 1, '@') + 1) < 0)
		abort();
	return text;
}

static void measure(const struct bench *bench, const struct order *order, uint32_t n,
		    double *ret_ours, double *ret_plain)
{
	uint32_t *permutation = malloc(n * sizeof(*permutation));
	double start = now_ms();
	struct err err = { 0 };
	struct order_epoch *e;

	if (!permutation)
		abort();
	bench->plain(permutation, n);
	*ret_plain = now_ms() - start;
	start = now_ms();
	if (order_epoch_new(order, order_info(order)->start_epoch, &e, &err) < 0)
		fail(&err);
	*ret_ours = now_ms() - start;
	if (bench->is_same &&
	    (e->length != n || memcmp(permutation, e->sample, n * sizeof(*permutation)) != 0)) {
		err_set(&err, -1, "%s: the permutations differ", bench->name);
		fail(&err);
	}
	order_epoch_free(e);
	free(permutation);
}

static void run(const struct bench *bench, uint32_t n)
{
	char *text AUTO_FREE = spec_text(bench, n);
	double ours[ROUNDS], plain[ROUNDS], value, base;
	struct err err = { 0 };
	struct order_spec *spec;
	struct order *order;

	if (order_spec_parse(text, &spec, &err) < 0 ||
	    order_new(spec, &(struct order_params){ .n = n }, &order, &err) < 0)
		fail(&err);
	for (int i = 0; i < ROUNDS; i++)
		measure(bench, order, n, &ours[i], &plain[i]);
	value = median(ours);
	base = median(plain);
	printf("{\"name\": \"order_epoch_new_%s\", \"unit\": \"ms\", \"value\": %.2f, \"plain\": %.2f, "
	       "\"ratio\": %.3f, \"n\": %" PRIu32 ", \"rounds\": %d, \"spec\": \"%s\"}\n",
	       bench->name, value, base, value / base, n, ROUNDS, text);
	fflush(stdout);
	order_free(order);
	order_spec_free(spec);
}

/* Every kind but the one that reads a file. */
static void check_rows(void)
{
	for (const char *const *kind = order_kinds(); *kind; kind++) {
		size_t i = 0, length = strlen(*kind);
		struct err err = { 0 };

		while (i < ARRAY_LEN(benches) && (strncmp(benches[i].spec, *kind, length) != 0 ||
						  !strchr(":", benches[i].spec[length])))
			i++;
		if (i < ARRAY_LEN(benches) || strcmp(*kind, "list") == 0)
			continue;
		err_set(&err, -1, "no row for %s", *kind);
		fail(&err);
	}
}

/* bench_order [N [PART OF A NAME]] */
int main(int argc, char **argv)
{
	uint32_t n = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 10000000;

	check_rows();
	n = MAX(n / 1000, 1) * 1000; /* whole shards */
	for (size_t i = 0; i < ARRAY_LEN(benches); i++)
		if (argc < 3 || strstr(benches[i].name, argv[2]))
			run(&benches[i], n);
	return 0;
}
