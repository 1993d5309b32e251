/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for large arrays that are read in no order. */
#ifndef CLAIRFS_BASE_MEM_H
#define CLAIRFS_BASE_MEM_H

#include <stdint.h>

#include "clairfs/base/cleanup.h"

/* n times `size` bytes, not cleared, for free(); in large pages where there is enough of it and the
 * system has some. NULL: no memory, or more than can be addressed. Any thread. */
void *mem_alloc(uint64_t n, size_t size) MUST_USE;
/* The same, cleared. */
void *mem_alloc_zero(uint64_t n, size_t size) MUST_USE;

#endif
