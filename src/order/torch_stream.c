/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch jobs whose generator lives on from epoch to epoch: epoch e depends on how many words all
 * epochs before it drew. It is computed without them: the words of an epoch are counted, the
 * generator skips them (mt19937_skip, some ten milliseconds for any e), and only epoch e is drawn.
 * The counts per epoch, base = the 2 words a new loader iterator draws for its workers' seeds
 * (persistent workers: in the first epoch only), order = the words of the permutations, including
 * the one that torch draws and throws away at the end:
 *
 *   torch-loader     default generator: base, then 2 words, the seed of a generator for this epoch.
 *                    Who else draws from it is counted by whoever writes the spec: `before` words
 *                    before the first iterator (weights of a model), `draws` words from epoch to
 *                    epoch (validation loaders, dropout) in place of those above
 *   torch-generator  the loader's own generator: base, order (sampler_only: no base)
 *   torch-subset     default generator: base, order
 *   torchdata-loader generator kept by the sampler, seeded by 2 words of the default one when the
 *                    loader is made; a permutation per epoch, and one more that nobody reads for
 *                    each iterator that has workers
 *
 * Only what exhausts its epochs and shares its generator with nobody can be counted. A word too
 * many or too few makes every later epoch wrong. Pure; any thread. */
#include <errno.h>

#include "order_priv.h"
#include "perm.h"

struct stream;
/* Puts a generator where the epoch's first sample is drawn. */
typedef void seek_fn(const struct stream *s, uint64_t epoch, struct mt19937 *rng);

struct stream {
	seek_fn *seek;
	uint64_t seed, n, length;
	uint64_t before, draws; /* torch-loader; draws 0: what the loader itself draws */
	bool is_persistent, is_sampler_only, has_replacement, has_large, has_generator, has_workers;
};

#define KEY_ROW_SEED                                                                               \
	{                                                                                          \
		.name = "seed", .type = ORDER_KEY_SEED, .is_required = true                        \
	}
#define KEY_ROW_FLAG(key)                                                                          \
	{                                                                                          \
		.name = key, .type = ORDER_KEY_BOOL, .def = 0                                      \
	}
#define KEY_ROW_LARGE                                                                              \
	{                                                                                          \
		.name = "large", .type = ORDER_KEY_BOOL, .def = 1                                  \
	}
#define KEY_ROW_WORDS(key)                                                                         \
	{                                                                                          \
		.name = key, .type = ORDER_KEY_U64, .max = UINT32_MAX                              \
	}
#define KEY_ROW_NUM_SAMPLES                                                                        \
	{                                                                                          \
		.name = "num_samples", .type = ORDER_KEY_U64, .max = UINT32_MAX                    \
	}

static const struct order_key loader_keys[] = {
	KEY_ROW_SEED,
	KEY_ROW_FLAG("persistent"),
	KEY_ROW_FLAG("replacement"),
	KEY_ROW_NUM_SAMPLES,
	KEY_ROW_LARGE,
	KEY_ROW_WORDS("before"),
	KEY_ROW_WORDS("draws"),
	{ .name = NULL },
};

static const struct order_key generator_keys[] = {
	KEY_ROW_SEED,
	KEY_ROW_FLAG("persistent"),
	KEY_ROW_FLAG("sampler_only"),
	KEY_ROW_FLAG("replacement"),
	KEY_ROW_NUM_SAMPLES,
	KEY_ROW_LARGE,
	{ .name = NULL },
};

static const struct order_key subset_keys[] = {
	KEY_ROW_SEED,  KEY_ROW_FLAG("persistent"), KEY_ROW_FLAG("sampler_only"),
	KEY_ROW_LARGE, { .name = NULL },
};

static const struct order_key torchdata_keys[] = {
	KEY_ROW_SEED,  KEY_ROW_FLAG("persistent"), KEY_ROW_FLAG("generator"),
	KEY_ROW_LARGE, { .name = NULL },
};

static uint64_t perm_words(const struct stream *s)
{
	return perm_torch_words((uint32_t)s->n, s->has_large);
}

/* Words a RandomSampler draws that is read to its end. */
static uint64_t sampler_words(const struct stream *s)
{
	if (s->n == 0)
		return 0;
	if (s->has_replacement)
		return s->length * (s->has_large && s->n >= DRAW_TORCH_LARGE ? 2 : 1);
	return (s->length / s->n + 1) * perm_words(s);
}

/* The base words of this epoch's iterator and all before it. */
static void skip_base(const struct stream *s, uint64_t epoch, struct mt19937 *rng)
{
	mt19937_skip(rng, 2, 1);
	if (!s->is_persistent)
		mt19937_skip(rng, 2, epoch);
}

static void loader_seek(const struct stream *s, uint64_t epoch, struct mt19937 *rng)
{
	mt19937_skip(rng, s->before, 1);
	if (s->draws > 0) {
		mt19937_skip(rng, 2, 1);
		mt19937_skip(rng, s->draws, epoch);
	} else {
		skip_base(s, epoch, rng);
		mt19937_skip(rng, 2, epoch);
	}
	mt19937_seed(rng, (uint32_t)mt19937_t64(rng));
}

static void generator_seek(const struct stream *s, uint64_t epoch, struct mt19937 *rng)
{
	if (!s->is_sampler_only)
		skip_base(s, epoch, rng);
	mt19937_skip(rng, sampler_words(s), epoch);
}

static void subset_seek(const struct stream *s, uint64_t epoch, struct mt19937 *rng)
{
	if (!s->is_sampler_only)
		skip_base(s, epoch, rng);
	mt19937_skip(rng, perm_words(s), epoch);
}

/* An iterator with workers starts its sampler twice and draws base between. Without workers it
 * draws base after the permutation. */
static void torchdata_seek(const struct stream *s, uint64_t epoch, struct mt19937 *rng)
{
	uint64_t base = s->has_generator ? 2 : 0;

	if (!s->has_generator)
		mt19937_seed(rng, (uint32_t)mt19937_t64(rng));
	mt19937_skip(rng, perm_words(s), epoch);
	if (!s->has_workers) {
		mt19937_skip(rng, base, epoch);
		return;
	}
	mt19937_skip(rng, perm_words(s) + base, 1);
	if (!s->is_persistent)
		mt19937_skip(rng, perm_words(s) + base, epoch);
}

/* What all kinds here have. */
static int stream_new(struct order *order, const struct order_spec *spec, seek_fn *seek,
		      struct err *err)
{
	struct stream *s = calloc(1, sizeof(*s));

	if (!s)
		return err_set(err, -ENOMEM, "out of memory");
	s->seek = seek;
	s->seed = order_spec_u64(spec, "seed");
	s->is_persistent = order_spec_u64(spec, "persistent");
	s->has_large = order_spec_u64(spec, "large");
	s->has_workers = order->info.workers > 0;
	s->n = s->length = order->info.n;
	order->state = s;
	order->info.is_same_every_epoch = false;
	return 0;
}

/* The keys of RandomSampler. */
static int read_random_sampler(struct stream *s, const struct order_spec *spec, struct err *err)
{
	uint64_t num_samples = order_spec_u64(spec, "num_samples");

	s->has_replacement = order_spec_u64(spec, "replacement");
	if (num_samples > 0 && s->n == 0)
		return err_set(err, -EINVAL, "key \"num_samples\": the dataset has no samples");
	if (num_samples > 0)
		s->length = num_samples;
	return 0;
}

static int loader_open(struct order *order, const struct order_spec *spec,
		       const struct order_params *params, struct err *err)
{
	int rc = stream_new(order, spec, loader_seek, err);
	struct stream *s = order->state;

	if (rc < 0)
		return rc;
	s->before = order_spec_u64(spec, "before");
	s->draws = order_spec_u64(spec, "draws");
	return read_random_sampler(s, spec, err);
}

static int generator_open(struct order *order, const struct order_spec *spec,
			  const struct order_params *params, struct err *err)
{
	int rc = stream_new(order, spec, generator_seek, err);

	if (rc < 0)
		return rc;
	((struct stream *)order->state)->is_sampler_only = order_spec_u64(spec, "sampler_only");
	return read_random_sampler(order->state, spec, err);
}

static int subset_open(struct order *order, const struct order_spec *spec,
		       const struct order_params *params, struct err *err)
{
	int rc = stream_new(order, spec, subset_seek, err);

	if (rc == 0)
		((struct stream *)order->state)->is_sampler_only =
			order_spec_u64(spec, "sampler_only");
	return rc;
}

static int torchdata_open(struct order *order, const struct order_spec *spec,
			  const struct order_params *params, struct err *err)
{
	int rc = stream_new(order, spec, torchdata_seek, err);

	if (rc < 0)
		return rc;
	((struct stream *)order->state)->has_generator = order_spec_u64(spec, "generator");
	if (order_spec_u64(spec, "persistent") && order->info.workers == 0)
		return err_set(err, -EINVAL, "key \"persistent\" needs key \"workers\"");
	return 0;
}

static int stream_length(const struct order *order, uint64_t epoch, uint64_t *ret, struct err *err)
{
	*ret = ((const struct stream *)order->state)->length;
	return 0;
}

static int stream_head(const struct order *order, const struct order_span *common, uint64_t count,
		       uint32_t *out, struct err *err)
{
	const struct stream *s = order->state;
	uint32_t n = (uint32_t)s->n;
	struct mt19937 rng;

	mt19937_seed(&rng, (uint32_t)s->seed);
	s->seek(s, common->epoch, &rng);
	if (s->has_replacement) {
		draw_torch(out, count, n, s->has_large, &rng);
		return 0;
	}
	for (; count > 0 && count >= n; count -= n, out += n)
		perm_torch(out, n, s->has_large, &rng);
	return perm_torch_head(out, (uint32_t)count, n, s->has_large, &rng) < 0
		       ? err_set(err, -ENOMEM, "out of memory for an epoch of %u samples", n)
		       : 0;
}

static int stream_fill(const struct order *order, uint64_t epoch, uint64_t length, uint32_t *out,
		       struct err *err)
{
	struct order_span common = { .epoch = epoch, .length = length };

	return stream_head(order, &common, length, out, err);
}

const struct order_kind order_kind_torch_loader = {
	.help = "torch.manual_seed(seed), then a DataLoader with shuffle=True and nothing else that "
		"draws, or what is told of it; keys: seed persistent(0) replacement(0) "
		"num_samples(n) large(1) before(0) draws(4)" ORDER_HELP_COMMON,
	.keys = loader_keys,
	.open = loader_open,
	.common_length = stream_length,
	.common_fill = stream_fill,
	.head_fill = stream_head,
};

const struct order_kind order_kind_torch_generator = {
	.help = "DataLoader with shuffle=True and its own generator, every epoch read to its end; "
		"keys: seed persistent(0) sampler_only(0) replacement(0) num_samples(n) "
		"large(1)" ORDER_HELP_COMMON,
	.keys = generator_keys,
	.open = generator_open,
	.common_length = stream_length,
	.common_fill = stream_fill,
	.head_fill = stream_head,
};

const struct order_kind order_kind_torch_subset = {
	.help = "torch.manual_seed(seed), then a DataLoader with SubsetRandomSampler(range(n)) and "
		"nothing else that draws; keys: seed persistent(0) sampler_only(0) "
		"large(1)" ORDER_HELP_COMMON,
	.keys = subset_keys,
	.open = subset_open,
	.common_length = stream_length,
	.common_fill = stream_fill,
	.head_fill = stream_head,
};

const struct order_kind order_kind_torchdata_loader = {
	.help = "torch.manual_seed(seed), then torchdata's StatefulDataLoader with shuffle=True (or "
		"with its own generator); keys: seed persistent(0) generator(0) "
		"large(1)" ORDER_HELP_COMMON,
	.keys = torchdata_keys,
	.open = torchdata_open,
	.common_length = stream_length,
	.common_fill = stream_fill,
	.head_fill = stream_head,
};
