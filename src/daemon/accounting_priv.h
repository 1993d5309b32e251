/* SPDX-License-Identifier: Apache-2.0 */
/* What accounting.c shows to accounting_words.c and report.c. */
#ifndef CLAIRFS_DAEMON_ACCOUNTING_PRIV_H
#define CLAIRFS_DAEMON_ACCOUNTING_PRIV_H

#include <limits.h>
#include <stdio.h>

#include "accounting.h"
#include "source_pages.h"
#include "verdicts.h"

struct accounting_view {
	struct accounting_params params;
	struct stall_node node;
	uint64_t dropped;
	struct source_pages_found pages;
	struct stall_numbers *rank; /* [n_ranks], heap, the caller's; NULL and 0: no memory */
	uint32_t n_ranks;
};
/* A copy of the numbers of a moment ago. Any thread. */
void accounting_look(struct accounting *a, struct accounting_view *ret);
/* For any thread. */
struct verdicts *accounting_verdicts(struct accounting *a);

/* --- accounting_machine.c --- */
enum { CROWDS_MAX = 4, CROWD_READERS = 8 };
/* Cgroups that the job's own readers are in: its ranks may be in several. */
struct crowds {
	struct crowd_source {
		char file[PATH_MAX + 64]; /* that says how long its tasks have waited for a CPU */
		uint64_t us, seen_ns;     /* what it said last; a reader was in it last */
	} source[CROWDS_MAX];
	uint32_t n;
	uint64_t waited_ns; /* so far, of any of them: each second those who waited most */
};
/* A reader is in it. Files that nobody was in for a minute go, and those that are not there. */
void crowds_add(struct crowds *c, const char *file, uint64_t now_ns);
/* Looks into all of them. */
void crowds_look(struct crowds *c);

struct accounting_machine {
	const struct dataset *dataset; /* borrowed; NULL: the source is not asked */
	struct source_pages *asked;    /* NULL: that is over */
	struct source_pages_found pages;
	pid_t reader[CROWD_READERS]; /* of this second: a thread of each rank; 0: none */
	struct crowds crowds;
};
/* Before the reads of this second are fed. True: `pages` is another. */
bool accounting_machine_pages(struct accounting_machine *m, struct stall *s);
/* A thread of the job that is accounted for has read. */
void accounting_machine_saw(struct accounting_machine *m, uint32_t rank_index, uint32_t reader);
/* After they are fed. */
void accounting_machine_feed(struct accounting_machine *m, struct stall *s, uint64_t now_ns);
/* The thread's; for tests, when that has ended. */
const struct accounting_machine *accounting_machine_of(const struct accounting *a);

/* --- cpus.c --- */
uint32_t cpus_allowed(void); /* 0: not known */
/* CPUs that a process (or thread) may use: its affinity, or the quota of its cgroup or of one above
 * it, rounded up. 0: not known, or it is gone. */
uint32_t cpus_of(pid_t pid);
/* Of a cgroup's cpu.max: "QUOTA PERIOD" or "max PERIOD"; UINT32_MAX: no limit. */
uint32_t cpus_quota(const char *text);
/* Time that those have been busy, all together, by what /proc/stat says. False: not known. */
bool cpus_busy(FILE *stat, uint64_t *ret_ns);

/* --- accounting_switch.c: what switchback has measured --- */
/* Appends to a text that ends within size. */
void accounting_switch_words(const struct accounting_view *v, char *text, size_t size);
json_t *accounting_switch_json(const struct accounting_view *v);
json_t *accounting_switch_of_rank(const struct stall_switchback *s);
void accounting_switch_publish(struct metrics *m, const struct stall_node *node);
void accounting_switch_publish_rank(struct metrics *m, const struct stall_numbers *n);

#endif
