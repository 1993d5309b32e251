/* SPDX-License-Identifier: Apache-2.0 */
/* Permutations as the frameworks' generators make them. */
#ifndef CLAIRFS_ORDER_PERM_H
#define CLAIRFS_ORDER_PERM_H

#include <stdbool.h>
#include <stdint.h>

#include "rng_mt19937.h"

/* From this n on torch draws 64 bits per sample (UINT32_MAX / 20). */
#define PERM_TORCH_LARGE 214748364

/* torch.randperm(n) on the CPU: takes the large branch if has_large (torch >= 2.6) and n >=
 * PERM_TORCH_LARGE. */
void perm_torch(uint32_t *out, uint32_t n, bool has_large, struct mt19937 *rng);
/* Its two branches, for any n. */
void perm_torch_small(uint32_t *out, uint32_t n, struct mt19937 *rng);
void perm_torch_large(uint32_t *out, uint32_t n, struct mt19937 *rng);

#endif
