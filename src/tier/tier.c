/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of a tier that may be absent, or may keep nothing. A tier is a table of functions and what
 * its owner keeps behind it; everything else is in the file of the tier, so that a reader of the
 * data path has one indirect call to follow and no layer in between.
 *
 * tier_free() runs on the thread that ends the mount and waits for reads in flight; it must never
 * be called from done().
 */
#include "clairfs/tier.h"

#include <assert.h>
#include <errno.h>

void tier_free(struct tier *tier)
{
	if (tier)
		tier->ops->free(tier);
}

static const struct tier_keep_ops *tier_keeps(const struct tier *tier)
{
	return tier ? tier->ops->keep : NULL;
}

void tier_put(struct tier *tier, struct tier_piece *pieces, size_t n)
{
	if (tier_keeps(tier)) {
		tier->ops->keep->put(tier, pieces, n);
		return;
	}
	for (size_t i = 0; i < n; i++)
		pieces[i].status = -ENOSPC;
}

bool tier_takes_more(struct tier *tier)
{
	return tier_keeps(tier) && tier->ops->keep->takes_more(tier);
}

void tier_forget(struct tier *tier, const struct file_identity *identity, uint32_t first,
		 uint32_t end)
{
	assert(first <= end && end <= piece_count(identity->size));
	if (tier_keeps(tier))
		tier->ops->keep->forget(tier, identity, first, end);
}

void tier_unwant(struct tier *tier, const struct file_identity *identity, uint32_t first,
		 uint32_t end)
{
	assert(first <= end && end <= piece_count(identity->size));
	if (tier_keeps(tier))
		tier->ops->keep->unwant(tier, identity, first, end);
}

uint32_t tier_n_found(struct tier *tier)
{
	return tier_keeps(tier) ? tier->ops->keep->n_found(tier) : 0;
}

void tier_get_kept(struct tier *tier, struct tier_kept_status *ret)
{
	*ret = (struct tier_kept_status){ 0 };
	if (tier_keeps(tier))
		tier->ops->keep->get_status(tier, ret);
}

void tier_stop(struct tier *tier)
{
	if (tier_keeps(tier))
		tier->ops->keep->stop(tier);
}
