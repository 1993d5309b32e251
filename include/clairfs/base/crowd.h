/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a job's workers wait for a CPU. */
#ifndef CLAIRFS_BASE_CROWD_H
#define CLAIRFS_BASE_CROWD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct crowd {
	bool is_crowded;
	uint64_t since_ns;          /* it is so, or not */
	uint64_t at_ns, stalled_us; /* the last sum that was looked at; 0: none yet */
	char whose[256];            /* the file that it was in, or its beginning */
};
/* The file that says how long tasks of the cgroup of a thread have waited for a CPU. False: there is
 * none, or the thread is gone. */
#define CROWD_MACHINE "/proc/pressure/cpu"
bool crowd_file_of(pid_t reader, char *file, size_t size);
/* Microseconds, as such a file says; CGROUP_NONE: it does not. */
uint64_t crowd_sum_in(const char *file);
/* Takes the sum of the times that somebody waited, of any clock in microseconds, and says whether a
 * search should wait. Pure. */
bool crowd_step(struct crowd *crowd, uint64_t stalled_us, uint64_t now_ns);
/* The same for the cgroup of a thread (0: not known), or the machine where that does not say; not
 * crowded where nothing does. */
bool crowd_look(struct crowd *crowd, pid_t reader);

#endif
