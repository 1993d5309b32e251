/* SPDX-License-Identifier: Apache-2.0 */
/* CPUs: how many may be used, and how busy they are. */
#ifndef CLAIRFS_BASE_CPUS_H
#define CLAIRFS_BASE_CPUS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

uint32_t cpus_allowed(void); /* 0: not known */
/* CPUs that a process (or thread) may use: its affinity, or the quota of its cgroup or of one above
 * it, rounded up. 0: not known, or it is gone. */
uint32_t cpus_of(pid_t pid);
/* Of a cgroup's cpu.max: "QUOTA PERIOD" or "max PERIOD"; UINT32_MAX: no limit. */
uint32_t cpus_quota(const char *text);
/* Time that those have been busy, all together, by what /proc/stat says. False: not known. */
bool cpus_busy(FILE *stat, uint64_t *ret_ns);

#endif
