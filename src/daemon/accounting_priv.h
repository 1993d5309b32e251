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
struct accounting_machine {
	const struct dataset *dataset; /* borrowed; NULL: the source is not asked */
	struct source_pages *asked;    /* NULL: that is over */
	struct source_pages_found pages;
	char whose[PATH_MAX + 64]; /* the file that says how crowded the CPUs are; "": none yet */
	uint64_t waited_ns, offset_ns; /* all so far; of that, what that file does not say */
};
/* Before the reads of this second are fed. reader: a thread of the job, 0: none has read. True:
 * `pages` is another. */
bool accounting_machine_feed(struct accounting_machine *m, struct stall *s, pid_t reader,
			     uint64_t now_ns);

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
