/* SPDX-License-Identifier: Apache-2.0 */
/* Policies "never-evict" and "window". The first keeps what comes first and never lets it go
 * (MinIO, CoorDL): for one node and one permutation per epoch no policy hits more. Its prefetching
 * window is set aside from the cache. The second keeps nothing and only prefetches: all that a
 * buffer without memory of past epochs can do. */
#include "cached.h"

const struct policy_ops policy_never_evict = {
	.name = "never-evict",
	.driver = &cached_driver,
	.is_ahead = true,
	.is_reserving = true,
};

static bool window_wants(struct model *m, uint32_t sample)
{
	(void)m;
	(void)sample;
	return false;
}

const struct policy_ops policy_window = {
	.name = "window",
	.driver = &cached_driver,
	.is_ahead = true,
	.wants = window_wants,
};
