/* SPDX-License-Identifier: Apache-2.0 */
/* How much page cache a job would have without this mount: what the kernel calls available, or less
 * when the cgroup of this process, or one above it, has a limit. Asked once, before the arena is
 * filled. */
#include "clairfs/daemon.h"
#include "memlimit.h"

uint64_t daemon_memory_available(void)
{
	uint64_t available = memlimit_meminfo("MemAvailable");
	struct memlimits limits;

	memlimit_read(&limits);
	return MIN(available == MEMLIMIT_NONE ? 0 : available, limits.cgroup);
}
