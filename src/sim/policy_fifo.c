/* SPDX-License-Identifier: Apache-2.0 */
/* Policy "fifo": what came first leaves first, whether it was used meanwhile or not. Better than
 * LRU on shuffled epochs, because being used says that a sample is NOT needed soon. */
#include "cached.h"

const struct policy_ops policy_fifo = {
	.name = "fifo",
	.driver = &cached_driver,
	.is_ahead = true,
	.init = arrivals_policy_init,
	.fini = arrivals_policy_fini,
	.keep = arrivals_policy_keep,
	.drop = arrivals_policy_drop,
	.victim = arrivals_policy_victim,
};
