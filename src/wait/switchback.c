/* SPDX-License-Identifier: Apache-2.0 */
/* Which blocks are in pass-through, and what may be said of their differences.
 *
 * A block is picked with chance q, whatever its number, and taken unless one of the two before it
 * was picked: q (1 - q)^2 is the share that was asked for. So between two blocks in pass-through
 * there are always two others, each of them compared with one only, and the differences are as good
 * as independent: that is what the interval needs. A block in pass-through is compared with the
 * mean of those beside it, because a source changes over hours and a job over passes; on both sides
 * of it, because such changes are no steps.
 *
 * Four prefetch windows make a block, and the first is never measured: until then the loop is fed
 * with what was loaded before the change. */
#include "clairfs/wait/switchback.h"

#include <assert.h>
#include <math.h>

#include "mix.h"

enum { WASHES_OF_BLOCK = 4, BISECTIONS = 60, PREFETCH_DEFAULT = 2, WASH_MAX = 1 << 24 };

/* The q of q (1 - q)^2 = share; it grows with q up to 1/3, where it is .148. */
static double chance_of(double share)
{
	double low = 0, high = 1.0 / 3, q;

	for (int i = 0; i < BISECTIONS; i++) {
		q = (low + high) / 2;
		*(q * (1 - q) * (1 - q) < share ? &low : &high) = q;
	}
	return low;
}

bool switchback_init(struct switchback *s, double share, const struct switchback_loader *loader)
{
	uint64_t prefetch = loader->prefetch ? loader->prefetch : PREFETCH_DEFAULT, wash;

	*s = (struct switchback){ 0 };
	if (!(share > 0) || !loader->workers || !loader->batch)
		return false;
	if (loader->workers > WASH_MAX || prefetch > WASH_MAX || loader->batch > UINT32_MAX)
		return false;
	wash = loader->workers * prefetch;
	if (wash > WASH_MAX)
		return false;
	s->chance = chance_of(fmin(share, SWITCHBACK_SHARE_MAX));
	s->seed = mix_bits(mix_bits(mix_bits(loader->n_samples) ^ loader->batch) ^ wash);
	s->batch = (uint32_t)loader->batch;
	s->workers = (uint32_t)loader->workers;
	s->wash = (uint32_t)wash;
	s->block = WASHES_OF_BLOCK * s->wash;
	assert(s->chance > 0 && s->batch && s->block > s->wash);
	return true;
}

static bool is_picked(const struct switchback *s, uint64_t pass, uint64_t block)
{
	return mix_share(mix_bits(mix_bits(s->seed ^ mix_bits(pass + 1)) ^ block)) < s->chance;
}

bool switchback_is_chosen(const struct switchback *s, uint64_t pass, uint64_t block)
{
	return block > 0 && is_picked(s, pass, block) && !is_picked(s, pass, block - 1) &&
	       !(block > 1 && is_picked(s, pass, block - 2));
}

bool switchback_has(const struct switchback *s, uint64_t pass, uint64_t index)
{
	assert(s->chance <= 0 || (s->batch && s->block));
	return s->chance > 0 && switchback_is_chosen(s, pass, index / s->batch / s->block);
}

/* --- statistics --- */

void switchback_add(struct switchback_sum *sum, double difference)
{
	double away = difference - sum->mean;

	sum->n++;
	sum->mean += away / (double)sum->n;
	sum->m2 += away * (difference - sum->mean);
}

/* The 97.5 % quantile of Student's t, from the normal one (Cornish and Fisher); 0.1 % off at 3
 * degrees of freedom. */
static double student_975(double df)
{
	const double z = 1.9599639845400545, z2 = z * z;
	double a = (z2 + 1) * z / 4, b = ((5 * z2 + 16) * z2 + 3) * z / 96;
	double c = (((3 * z2 + 19) * z2 + 17) * z2 - 15) * z / 384;
	double d = ((((79 * z2 + 776) * z2 + 1482) * z2 - 1920) * z2 - 945) * z / 92160;

	return z + (a + (b + (c + d / df) / df) / df) / df;
}

bool switchback_limits(const struct switchback_sum *sum, double *ret_mean, double *ret_margin)
{
	double df = (double)sum->n - 1;

	if (sum->n < SWITCHBACK_BLOCKS_MIN)
		return false;
	*ret_mean = sum->mean;
	*ret_margin = student_975(df) * sqrt(sum->m2 / df / (double)sum->n);
	return true;
}
