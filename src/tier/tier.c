/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all tiers share: nothing but the release of one that may be absent. A tier is a table of
 * functions and what its owner keeps behind it; everything else is in the file of the tier, so that
 * a reader of the data path has one indirect call to follow and no layer in between.
 *
 * tier_free() runs on the thread that ends the mount and waits for reads in flight; it must never
 * be called from done().
 */
#include "clairfs/tier.h"

void tier_free(struct tier *tier)
{
	if (tier)
		tier->ops->free(tier);
}
