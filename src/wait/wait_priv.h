/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the runner show each other. */
#ifndef CLAIRFS_WAIT_PRIV_H
#define CLAIRFS_WAIT_PRIV_H

#include <limits.h>
#include <sys/types.h>

#include "clairfs/wait.h"
#include "sampling.h"
#include "source_pages.h"
#include "verdicts.h"

/* What observed, settled and load of the probe do. */
void wait_reads(struct wait *w, const struct read_facts *facts, uint32_t n);
void wait_settled(struct wait *w, uint64_t before_ns);
void wait_load(struct wait *w, const struct gate_load *load);
struct sampling *wait_sampling(struct wait *w);
/* For any thread. */
struct verdicts *wait_verdicts(struct wait *w);

/* --- machine.c --- */
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

struct wait_machine {
	const struct dataset *dataset; /* borrowed; NULL: the source is not asked */
	struct source_pages *asked;    /* NULL: that is over */
	struct wait_pages pages;
	pid_t reader[CROWD_READERS]; /* of this second: a thread of each rank; 0: none */
	struct crowds crowds;
};
/* Before the reads of this second are fed. True: `pages` is another. */
bool wait_machine_pages(struct wait_machine *m, struct stall *s);
/* A thread of the job that is accounted for has read. */
void wait_machine_saw(struct wait_machine *m, uint32_t rank_index, uint32_t reader);
/* After they are fed. */
void wait_machine_feed(struct wait_machine *m, struct stall *s, uint64_t now_ns);
/* The thread's; for tests, when that has ended. */
const struct wait_machine *wait_machine_of(const struct wait *w);

/* --- words_switch.c: what switchback has measured --- */
/* Appends to a text that ends within size. */
void wait_switch_words(const struct wait_view *v, char *text, size_t size);
json_t *wait_switch_json(const struct wait_view *v);
json_t *wait_switch_of_rank(const struct stall_switchback *s);
void wait_switch_publish(struct metrics *m, const struct stall_node *node);
void wait_switch_publish_rank(struct metrics *m, const struct stall_numbers *n);

#endif
