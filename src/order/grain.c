/* SPDX-License-Identifier: Apache-2.0 */
/* Google grain's IndexSampler (and MapDataset.shuffle). A shard owns a contiguous range of the
 * records, the remainder spread over the first shards or dropped, and the range is shuffled in
 * itself by index_shuffle: a block cipher on just enough bits (Simon, 4 rounds, keys from
 * std::seed_seq) whose results beyond the range are encrypted again. So each position is computed
 * alone and nothing needs an array. grain's workers take elements in turn and its consumer takes
 * them back in turn: the sequence of a rank is the sequence of its shard.
 *
 * One property is copied because it is what jobs read: with 2^k + 1 records in a shard, k even and
 * >= 16, the block is one bit too small. The last record is never read and another is read twice.
 *
 * It must not use the shard's number in the seed: grain does not. Pure; any thread. */
#include <errno.h>
#include <string.h>

#include "order_priv.h"
#include "perm.h"

#define ROUNDS 4
#define BLOCK_MIN 16 /* bits */

#define LANES 4   /* of a vector that every 64-bit machine has */
#define BATCH 256 /* positions computed together, a multiple of LANES */

typedef uint32_t lanes __attribute__((vector_size(4 * LANES)));

struct grain {
	uint32_t seed;
	bool is_shuffled, has_drop_remainder;
};

/* A shuffle of 0..last, ready to be asked for positions. */
struct index_shuffle {
	uint32_t last;
	uint32_t mask; /* of a half block */
	unsigned half; /* bits of it, 8..16 */
	uint32_t key[ROUNDS];
};

static const struct order_key grain_keys[] = {
	{ .name = "seed", .type = ORDER_KEY_U64, .is_required = true, .max = UINT32_MAX },
	ORDER_KEY_ROW_WORLD,
	ORDER_KEY_ROW_RANK,
	ORDER_KEY_ROW_RANKS,
	{ .name = "shuffle", .type = ORDER_KEY_BOOL, .def = 1 },
	{ .name = "drop_remainder", .type = ORDER_KEY_BOOL, .def = 0 },
	{ .name = NULL },
};

static uint32_t seed_seq_mix(uint32_t x)
{
	return x ^ x >> 27;
}

/* std::seed_seq{seed}.generate of four words: the standard's algorithm with n = m = 4, p = 1,
 * q = 2 and one word of seed. */
static void seed_seq(uint32_t seed, uint32_t key[ROUNDS])
{
	for (unsigned k = 0; k < ROUNDS; k++)
		key[k] = 0x8b8b8b8b;
	for (unsigned k = 0; k < ROUNDS; k++) {
		uint32_t *a = &key[k], *b = &key[(k + 1) % ROUNDS], *c = &key[(k + 2) % ROUNDS];
		uint32_t r1 = 1664525 * seed_seq_mix(*a ^ *b ^ key[(k + 3) % ROUNDS]);
		uint32_t r2 = r1 + (k == 0 ? 1 : k == 1 ? 1 + seed : k);

		*b += r1;
		*c += r2;
		*a = r2;
	}
	for (unsigned k = 0; k < ROUNDS; k++) {
		uint32_t *a = &key[k], *b = &key[(k + 1) % ROUNDS], *c = &key[(k + 2) % ROUNDS];
		uint32_t r3 = 1566083941 * seed_seq_mix(*a + *b + key[(k + 3) % ROUNDS]);
		uint32_t r4 = r3 - k;

		*b ^= r3;
		*c ^= r4;
		*a = r4;
	}
}

/* n > 0 */
static void index_shuffle_init(struct index_shuffle *s, uint64_t n, uint32_t seed)
{
	unsigned bits = 0;

	s->last = (uint32_t)(n - 1);
	while (1ull << bits < s->last)
		bits++; /* one too few when last is a power of two, as in grain */
	bits = MAX(bits + bits % 2, BLOCK_MIN);
	s->half = bits / 2;
	s->mask = (1U << s->half) - 1;
	seed_seq(seed, s->key);
}

static inline lanes rotate(const struct index_shuffle *s, lanes x, unsigned by)
{
	return (x << by | x >> (s->half - by)) & s->mask;
}

static inline lanes simon(const struct index_shuffle *s, lanes x)
{
	return (rotate(s, x, 1) & rotate(s, x, 8)) ^ rotate(s, x, 2);
}

static inline lanes encrypt(const struct index_shuffle *s, lanes x)
{
	lanes left = x >> s->half & s->mask, right = x & s->mask;

	for (unsigned i = 0; i < ROUNDS; i += 2) {
		left ^= simon(s, right) ^ (s->key[i] & s->mask);
		right ^= simon(s, left) ^ (s->key[i + 1] & s->mask);
	}
	return left << s->half | right;
}

/* Encrypts index[0, n) until each is in range. What is not yet is gathered and encrypted on, a
 * vector at a time, so that none waits for the slowest. */
static void index_shuffle_all(const struct index_shuffle *s, uint32_t *index, uint32_t n)
{
	uint32_t todo[BATCH], place[BATCH], left = n;

	for (uint32_t i = 0; i < n; i++)
		place[i] = i;
	memcpy(todo, index, n * sizeof(*todo));
	while (left > 0) {
		uint32_t more = 0;

		memset(todo + left, 0, (-left % LANES) * sizeof(*todo));
		for (uint32_t i = 0; i < left; i += LANES) {
			lanes x;

			memcpy(&x, todo + i, sizeof(x));
			x = encrypt(s, x);
			memcpy(todo + i, &x, sizeof(x));
		}
		for (uint32_t i = 0; i < left; i++) {
			uint32_t x = todo[i];

			index[place[i]] = x; /* again if it is out of range */
			todo[more] = x;
			place[more] = place[i];
			more += x > s->last;
		}
		left = more;
	}
}

static int grain_open(struct order *order, const struct order_spec *spec,
		      const struct order_params *params, struct err *err)
{
	struct grain *grain = calloc(1, sizeof(*grain));

	if (!grain)
		return err_set(err, -ENOMEM, "out of memory");
	grain->seed = (uint32_t)order_spec_u64(spec, "seed");
	grain->is_shuffled = order_spec_u64(spec, "shuffle");
	grain->has_drop_remainder = order_spec_u64(spec, "drop_remainder");
	order->state = grain;
	order->info.is_same_every_epoch = !grain->is_shuffled;
	return 0;
}

/* Nothing is shared: every rank computes its own. */
static int grain_common_length(const struct order *order, uint64_t epoch, uint64_t *ret,
			       struct err *err)
{
	*ret = 0;
	return 0;
}

static int grain_common_fill(const struct order *order, uint64_t epoch, uint64_t length,
			     uint32_t *out, struct err *err)
{
	return 0;
}

static uint64_t grain_rank_length(const struct order *order, uint64_t epoch, uint64_t length,
				  uint64_t rank)
{
	const struct grain *grain = order->state;
	uint64_t n = order->info.n, world = order->info.world;

	return n / world + (!grain->has_drop_remainder && rank < n % world);
}

static void grain_rank_read(const struct order *order, const struct order_span *common,
			    uint64_t rank, uint64_t from, uint32_t count, uint32_t *out)
{
	const struct grain *grain = order->state;
	uint64_t n = order->info.n, world = order->info.world;
	uint64_t start = n / world * rank,
		 length = grain_rank_length(order, common->epoch, 0, rank);
	struct index_shuffle s;

	if (!grain->has_drop_remainder)
		start += MIN(rank, n % world);
	index_shuffle_init(&s, length, (uint32_t)(grain->seed + common->epoch));
	while (count > 0) {
		uint32_t now = MIN(count, BATCH);

		for (uint32_t i = 0; i < now; i++)
			out[i] = (uint32_t)from + i;
		if (grain->is_shuffled && length > 1)
			index_shuffle_all(&s, out, now);
		for (uint32_t i = 0; i < now; i++)
			out[i] += (uint32_t)start;
		from += now;
		out += now;
		count -= now;
	}
}

const struct order_kind order_kind_grain = {
	.help = "Google grain's IndexSampler with a shard per rank; keys: seed world(1) rank or "
		"ranks=0-3+6(all) shuffle(1) drop_remainder(0)" ORDER_HELP_COMMON,
	.keys = grain_keys,
	.numbers = ORDER_NUMBERS_EITHER,
	.open = grain_open,
	.common_length = grain_common_length,
	.common_fill = grain_common_fill,
	.rank_length = grain_rank_length,
	.rank_read = grain_rank_read,
};
