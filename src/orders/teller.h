/* SPDX-License-Identifier: Apache-2.0 */
/* Who tells an order, or reads; rules: "Whose order it is" in src/README.md. */
#ifndef CLAIRFS_ORDERS_TELLER_H
#define CLAIRFS_ORDERS_TELLER_H

#include <stdbool.h>
#include <stdint.h>

#define TELLER_ABOVE 24

/* With the time of its start a pid is no other process's. */
struct process_id {
	int pid;
	uint64_t start;
};

/* The process that an order is of: the one that told it, or the one that had it told. */
struct teller {
	struct process_id id; /* pid 0: nobody knows (an option, a process out of sight) */
	bool is_itself; /* it told it, not a command that it ran */
	/* Of a reader: its parent has the same name and session, so it may be a worker of that, which
	 * multiprocessing has spawned. */
	bool is_spawned;
	/* Its parent, whoever started that, and so on, but for the first of all. */
	struct process_id above[TELLER_ABOVE];
	uint32_t n_above;
};

/* teller.c: what /proc says. Any thread; never blocks. */
/* is_passing: the thread belongs to a command that is over at once, and its parent is meant. */
void teller_find(int tid, bool is_passing, struct teller *ret);
/* Who reads, from one of its threads: the process, or the one that forked it to read for it (the
 * workers of a loader), as far up as nobody has executed another program since. */
void teller_find_reader(int tid, struct teller *ret);
/* Whether somebody has started both, or one the other. Not of those that nobody knows. */
bool teller_has_common(const struct teller *a, const struct teller *b);
bool teller_is_alive(const struct teller *t);
bool process_is_alive(const struct process_id *id);
/* Whether it is that process, or below it. */
bool teller_is_of(const struct teller *t, const struct process_id *process);
/* Whether it is the same process. */
bool teller_is_itself(const struct teller *now, const struct teller *then);
/* Whether one of them is the other, has started it, or the same process has started both: who tells
 * an order, and who reads by it. Not of those that nobody knows. */
bool teller_is_related(const struct teller *a, const struct teller *b);

#endif
