/* SPDX-License-Identifier: Apache-2.0 */
/* Symbolic links to directories that multiply. Each one shows what is below its target once more;
 * where there are links below it again the number of paths grows as a power: of 24 directories with
 * two links each to the next one there are 2^24. Loops are no help, as there is none.
 *
 * So a path leads through eight such links at most, and when what is found behind two or more of
 * them is too much, the scan begins again and follows half as many. Both say nothing about who
 * found what first: all threads, nodes and mounts come to the same files. What a dataset has,
 * linked classes or a linked split with linked classes in it, is one or two links deep; the files
 * of a hub's cache are links to files, which are not counted here. */
#include <errno.h>

#include "clairfs/base/log.h"
#include "scan_priv.h"

/* Entries of the index: a hundred megabytes, and a second or two to find. */
#define NESTED_ENTRIES_MAX ((uint64_t)1 << 20)
/* Behind a single link each entry costs a link of its own, or it is a large directory linked a few
 * times: that many would be gigabytes of index. */
#define LINKED_ENTRIES_MAX ((uint64_t)1 << 26)

bool scan_links_may_follow(const struct scan *s, const struct scan_node *dir,
			   const struct scan_rec *rec)
{
	return dir->n_links + (rec->is_link ? 1u : 0u) <= s->links_max;
}

int scan_links_count(struct scan *s, const struct scan_node *dir)
{
	uint64_t n = (uint64_t)dir->n_recs + 1;

	if (s->links_max == 0 || dir->n_links < MIN(s->links_max, 2u))
		return 0;
	return atomic_fetch_add(&s->n_linked, n) + n > (s->links_max > 1 ? NESTED_ENTRIES_MAX
									   : LINKED_ENTRIES_MAX)
		       ? -EMLINK
		       : 0;
}

unsigned scan_links_fewer(unsigned links_max)
{
	log_warn("dataset: symbolic links to directories lead to too many files: they are followed "
		 "%u deep, not %u",
		 links_max / 2, links_max);
	return links_max / 2;
}
