/* SPDX-License-Identifier: Apache-2.0 */
/* MT19937-64, which is C++'s std::mt19937_64: the recurrence of MT19937 on words of 64 bits. A
 * generator is a value: copy it, keep it on the stack, share it with nobody. */
#ifndef CLAIRFS_ORDER_RNG_MT19937_64_H
#define CLAIRFS_ORDER_RNG_MT19937_64_H

#include <stdint.h>

#define MT19937_64_WORDS 312

struct mt19937_64 {
	uint64_t state[MT19937_64_WORDS];
	uint32_t used; /* words of `state` already handed out */
};

void mt19937_64_seed(struct mt19937_64 *rng, uint64_t seed);
uint64_t mt19937_64_u64(struct mt19937_64 *rng);

#endif
