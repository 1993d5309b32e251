/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of a record's payload, XXH3 with 64 bits, made with the widest vectors of the processor
 * it runs on. The library's plain function is built for the oldest processor of the distribution,
 * and took four to twenty times as long for bytes that a drive has just written into memory; the
 * choice at run time is the library's too, and the sums are the same. Elsewhere than on x86 there
 * is no choice to make. Only this file may ask how the library was built. Any thread; no state. */
#include "store_format.h"

#if HAVE_XXH_DISPATCH
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

uint64_t store_payload_sum(const void *payload, size_t length)
{
#if HAVE_XXH_DISPATCH
	return XXH3_64bits_dispatch(payload, length);
#else
	return XXH3_64bits(payload, length);
#endif
}
