/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays with an element per sample are read in shuffled order: each look is a cache miss, and in
 * pages of 4 KiB often one of the TLB too, which on virtual machines costs as much again. So from 3
 * MiB on they begin at a large page and the kernel is advised to use such. Below, the rounding
 * would cost more than a third of the array. It is only advice: without large pages everything is
 * slower, not wrong. Any thread. */
#include "clairfs/base/mem.h"

#include <string.h>
#include <sys/mman.h>

#define LARGE_PAGE ((size_t)2 << 20)

void *mem_alloc(uint64_t n, size_t size)
{
	size_t bytes;
	void *p;

	if (__builtin_mul_overflow(n, size, &bytes) || bytes >= SIZE_MAX / 2)
		return NULL;
	if (bytes < LARGE_PAGE * 3 / 2)
		return malloc(MAX(bytes, sizeof(uint64_t)));
	bytes = ALIGN_UP(bytes, LARGE_PAGE);
	p = aligned_alloc(LARGE_PAGE, bytes);
	if (p)
		(void)madvise(p, bytes, MADV_HUGEPAGE);
	return p;
}

void *mem_alloc_zero(uint64_t n, size_t size)
{
	void *p = mem_alloc(n, size);

	if (p)
		memset(p, 0, (size_t)n * size);
	return p;
}
