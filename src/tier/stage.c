/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rule of pushing pages into the kernel's cache of a FUSE inode. The kernel marks a pushed page
 * as valid only if the push covers it whole, or ends exactly where the file ends; anything else
 * leaves pages behind that are read again by an upcall. A push beyond the end makes the file longer
 * for everybody. So a part starts at a page and is either whole pages or ends at the size.
 *
 * Pieces make that easy: they start at multiples of 1 MiB (of every page size there is), and only
 * the last one of a file is shorter. Parts of records are made of whole pages by who holds them. One push
 * per piece: the kernel takes 1 MiB as well as 4 KiB, and each call costs a system call and the inode's
 * lookup.
 *
 * Runs on stager threads only, with no lock held: a push waits for pages that an unanswered READ
 * has locked. Must never be called with bytes that are not wholly those of the piece.
 */
#include <assert.h>
#include <errno.h>

#include "clairfs/tier.h"

#define PAGE_LEAST 4096u

int stage_push(const struct stage_ops *ops, void *ctx, const struct stage_piece *p)
{
	uint64_t end = p->offset + p->length;

	if (p->offset % PAGE_LEAST || end > p->size || p->length > PIECE_BYTES ||
	    (end % PAGE_LEAST && end != p->size))
		return -EINVAL;
	if (!p->length)
		return 0; /* an empty file has no page */
	assert(p->data);
	return ops->store(ctx, p->file, p->offset, p->data, p->length);
}
