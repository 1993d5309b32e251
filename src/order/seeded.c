/* SPDX-License-Identifier: Apache-2.0 */
/* The permutation of torch samplers that make a generator anew in each epoch, from seed + epoch. A
 * torch CPU generator keeps the low 32 bits of its seed, so seeds are 64-bit numbers here only to
 * be added to an epoch and cut then.
 *
 * A sampler whose generator lives on from one epoch to the next is in torch_stream.c; it must not
 * come here, where an epoch knows nothing of those before. Pure; any thread. */
#include "seeded.h"

#include <errno.h>

#include "perm.h"

int seeded_new(struct order *order, size_t size, struct seeded **ret, struct err *err)
{
	struct seeded *s = calloc(1, size);

	if (!s)
		return err_set(err, -ENOMEM, "out of memory");
	s->is_shuffled = s->has_large = s->adds_epoch = true;
	order->state = *ret = s;
	order->info.is_same_every_epoch = false;
	return 0;
}

void seeded_read_keys(struct order *order, const struct order_spec *spec)
{
	struct seeded *s = order->state;

	s->is_shuffled = order_spec_u64(spec, "shuffle");
	s->has_large = order_spec_u64(spec, "large");
	order->info.is_same_every_epoch = !s->is_shuffled;
}

static void seed_epoch(const struct seeded *s, uint64_t epoch, struct mt19937 *rng)
{
	mt19937_seed(rng, (uint32_t)(s->seed + (s->adds_epoch ? epoch : 0)));
}

int seeded_fill(const struct order *order, uint64_t epoch, uint64_t length, uint32_t *out,
		struct err *err)
{
	const struct seeded *s = order->state;
	struct mt19937 rng;

	if (!s->is_shuffled) {
		perm_identity(out, (uint32_t)length);
		return 0;
	}
	seed_epoch(s, epoch, &rng);
	perm_torch(out, (uint32_t)length, s->has_large, &rng);
	return 0;
}

int seeded_head(const struct order *order, const struct order_span *common, uint64_t count,
		uint32_t *out, struct err *err)
{
	const struct seeded *s = order->state;
	struct mt19937 rng;

	if (!s->is_shuffled) {
		perm_identity(out, (uint32_t)count);
		return 0;
	}
	seed_epoch(s, common->epoch, &rng);
	return perm_torch_head(out, (uint32_t)count, (uint32_t)common->length, s->has_large, &rng) < 0
		       ? err_set(err, -ENOMEM, "out of memory")
		       : 0;
}
