/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of memory that this process is under, and the budgets that are derived from them. */
#ifndef CLAIRFS_DAEMON_MEMLIMIT_H
#define CLAIRFS_DAEMON_MEMLIMIT_H

#include <stdbool.h>
#include <stdint.h>

#define MEMLIMIT_NONE UINT64_MAX
#define MEMLIMIT_WORDS 320

/* All in bytes; `used`: what of it this process has now. */
struct memlimits {
	uint64_t machine; /* MEMLIMIT_NONE: not known */
	uint64_t cgroup;  /* the least of those on the way up */
	uint64_t as, data;
	uint64_t resident, as_used, data_used;
	char cgroup_words[MEMLIMIT_WORDS]; /* which one that is */
};
/* Asks the kernel; what it does not say is no limit. */
void memlimit_read(struct memlimits *ret);
/* The limit of the cgroup with this directory, and which file says so (static). */
uint64_t memlimit_of_cgroup(const char *dir, const char **ret_name);
/* Memory of a cgroup that can be had back from nobody but its processes; MEMLIMIT_NONE: not known.
 */
uint64_t memlimit_used_in(const char *dir);
/* A line of /proc/meminfo, in bytes; MEMLIMIT_NONE: there is none. */
uint64_t memlimit_meminfo(const char *key);
/* The most this process ever had in RAM; MEMLIMIT_NONE: not known. */
uint64_t memlimit_peak(void);

/* What was told (CONF_AUTO: nothing; stage 0: a quarter of ram), of a dataset. */
struct memlimit_wish {
	uint64_t ram, stage, inflight, inodes_ahead;
	uint64_t n_units, n_entries;
	uint64_t sample_bytes, index_bytes; /* of all samples; of the index in memory */
};
struct memlimit_budget {
	uint64_t ram, stage, inflight, inodes_ahead;
	uint64_t arena;  /* what samples may have of ram */
	uint64_t tables; /* expected beside the arena: what grows with the dataset */
	uint64_t limit; /* the one that leaves least */
	char from[MEMLIMIT_WORDS];
	bool is_over; /* what was told does not fit into it */
};
/* Pure. */
void memlimit_derive(const struct memlimits *limits, const struct memlimit_wish *wish,
		     struct memlimit_budget *ret);

/* What a mount with this budget is meant to need at most of real memory, page cache of source and
 * store aside. Pure. */
uint64_t memlimit_need(const struct memlimit_budget *budget, uint64_t n_entries);

/* Keeps the address space that malloc reserves for many threads small if that is limited. Before
 * there are threads. */
void memlimit_prepare(void);

#endif
