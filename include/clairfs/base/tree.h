/* SPDX-License-Identifier: Apache-2.0 */
/* A set of numbers with "first member from here on" and "last member": the structure under every
 * decision of the plan, and under exact MIN in the simulator. Not thread-safe. */
#ifndef CLAIRFS_BASE_TREE_H
#define CLAIRFS_BASE_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "clairfs/base/cleanup.h"

#define NO_POS UINT64_MAX

/* A set of numbers below `size` as a 64-ary tree of bitmaps: set, clear, next and last cost one
 * word per level. */
#define TREE_LEVELS 6
struct tree {
	uint64_t *level[TREE_LEVELS]; /* level[0] has one bit per number; one allocation */
	uint64_t size, count;
	uint32_t levels;
};
int tree_init(struct tree *t, uint64_t size) MUST_USE;
void tree_fini(struct tree *t);
void tree_clear_all(struct tree *t);
void tree_set(struct tree *t, uint64_t bit);
void tree_clear(struct tree *t, uint64_t bit);
static inline bool tree_get(const struct tree *t, uint64_t bit)
{
	return t->level[0][bit / 64] >> bit % 64 & 1;
}
/* First member >= from, or NO_POS. */
uint64_t tree_next(const struct tree *t, uint64_t from);
/* Last member, or NO_POS. */
uint64_t tree_max(const struct tree *t);

#endif
