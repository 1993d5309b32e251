/* SPDX-License-Identifier: Apache-2.0 */
/* Permutations as the frameworks' generators make them. */
#ifndef CLAIRFS_ORDER_PERM_H
#define CLAIRFS_ORDER_PERM_H

#include <stdbool.h>
#include <stdint.h>

#include "rng_mt19937.h"
#include "rng_pcg64.h"

/* From this n on torch draws 64 bits per sample (UINT32_MAX / 20). */
#define PERM_TORCH_LARGE 214748364

/* torch.randperm(n) on the CPU: takes the large branch if has_large (torch >= 2.6) and n >=
 * PERM_TORCH_LARGE. */
void perm_torch(uint32_t *out, uint32_t n, bool has_large, struct mt19937 *rng);
/* Its two branches, for any n. */
void perm_torch_small(uint32_t *out, uint32_t n, struct mt19937 *rng);
void perm_torch_large(uint32_t *out, uint32_t n, struct mt19937 *rng);

/* The first `count` <= n of perm_torch_large; draws all n. */
void perm_torch_large_head(uint32_t *out, uint32_t count, uint32_t n, struct mt19937 *rng);
/* The first `count` <= n of perm_torch, in memory for about as many (large: draws all n, small: as
 * many as it gives). The generator is of no use afterwards. -ENOMEM. */
int perm_torch_head(uint32_t *out, uint32_t count, uint32_t n, bool has_large,
		    struct mt19937 *rng);

/* Words perm_torch draws. */
uint64_t perm_torch_words(uint32_t n, bool has_large);

/* From this n on torch.randint draws 64 bits per number. */
#define DRAW_TORCH_LARGE (1U << 28)
/* torch.randint(n, (count,)), n > 0; has_large as above. */
void draw_torch(uint32_t *out, uint64_t count, uint32_t n, bool has_large, struct mt19937 *rng);

/* 0..n-1 */
void perm_identity(uint32_t *out, uint32_t n);

/* Shuffles in place, n < 2^32 - 1. RandomState.shuffle (and .permutation, after perm_identity): */
void shuffle_numpy_mt19937(uint32_t *x, uint32_t n, struct mt19937 *rng);
/* Generator.shuffle of numpy's default_rng. */
void shuffle_numpy_pcg64(uint32_t *x, uint32_t n, struct pcg64 *rng);
/* random.shuffle of Python. */
void shuffle_python(uint32_t *x, uint32_t n, struct mt19937 *rng);

#endif
