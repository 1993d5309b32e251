/* SPDX-License-Identifier: Apache-2.0 */
/* Policy "lru": what was read longest ago leaves first, with the same prefetching window as the
 * others. Shuffled epochs defeat it: a sample is read again on average one whole epoch later, so it
 * hits f + (1 - f) ln(1 - f) of the reads with a share f of the dataset cached. */
#include "cached.h"

static void lru_used(struct model *m, uint32_t sample)
{
	arrivals_remove(m->policy, sample);
	arrivals_append(m->policy, sample);
}

const struct policy_ops policy_lru = {
	.name = "lru",
	.driver = &cached_driver,
	.is_ahead = true,
	.init = arrivals_policy_init,
	.fini = arrivals_policy_fini,
	.keep = arrivals_policy_keep,
	.used = lru_used,
	.drop = arrivals_policy_drop,
	.victim = arrivals_policy_victim,
};

/* What Linux does without clairfs, with all of the memory as page cache. */
const struct policy_ops policy_pagecache = {
	.name = "pagecache",
	.driver = &cached_driver,
	.init = arrivals_policy_init,
	.fini = arrivals_policy_fini,
	.keep = arrivals_policy_keep,
	.used = lru_used,
	.drop = arrivals_policy_drop,
	.victim = arrivals_policy_victim,
};
