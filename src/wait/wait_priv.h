/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the runner show each other. */
#ifndef CLAIRFS_WAIT_PRIV_H
#define CLAIRFS_WAIT_PRIV_H

#include "clairfs/wait.h"
#include "machine.h"
#include "sampling.h"
#include "verdicts.h"

/* What observed and settled of the probe do; wait is a struct wait. */
void wait_reads(void *wait, const struct read_facts *facts, uint32_t n);
void wait_settled(void *wait, uint64_t before_ns);
struct sampling *wait_sampling(struct wait *w);
/* For any thread. */
struct verdicts *wait_verdicts(struct wait *w);

static inline double in_seconds(double ns)
{
	return ns / 1e9;
}

/* --- figures.c --- */
void wait_publish(struct metrics *m, const struct stall *s);

/* The thread's; for tests, when that has ended. */
const struct machine *wait_machine(const struct wait *w);

/* --- words_switch.c: what switchback has measured --- */
/* Appends to a text that ends within size. */
void wait_switch_words(const struct wait_view *v, char *text, size_t size);
json_t *wait_switch_json(const struct wait_view *v);
json_t *wait_switch_of_rank(const struct stall_switchback *s);
void wait_switch_publish(struct metrics *m, const struct stall_node *node);
void wait_switch_publish_rank(struct metrics *m, const struct stall_numbers *n);

#endif
