/* SPDX-License-Identifier: Apache-2.0 */
/* Choices by chance that are the same in every run and on every node: splitmix64. Pure. */
#ifndef CLAIRFS_WAIT_MIX_H
#define CLAIRFS_WAIT_MIX_H

#include <stdint.h>

static inline uint64_t mix_bits(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* Of bits that were mixed: 0 <= it < 1. */
static inline double mix_share(uint64_t bits)
{
	return (double)(bits >> 11) / 9007199254740992.0;
}

#endif
