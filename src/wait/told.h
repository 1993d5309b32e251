/* SPDX-License-Identifier: Apache-2.0 */
/* What is told between two looks of the thread: reads, steps, orders. No locks: its owner has one. */
#ifndef CLAIRFS_WAIT_TOLD_H
#define CLAIRFS_WAIT_TOLD_H

#include <stddef.h>

#include "clairfs/cache/probe.h"
#include "clairfs/hint.h"
#include "clairfs/order.h"
#include "clairfs/wait/stall.h"
#include "gate.h"

struct told_order {
	struct stall_job job;
	uint32_t ranks[STALL_RANKS_MAX];
	uint64_t turn_ns; /* until then another job was accounted for; 0: none was */
};

struct told {
	struct read_facts *read;
	struct clairfs_step_record *step;
	struct told_order *order;
	size_t n_reads, reads_size, n_steps, steps_size, n_orders, orders_size;
	struct gate_load load; /* the last one */
	uint64_t settled_ns;   /* reads opened before are told; 0: not known */
	uint32_t heard;        /* orders up to this one were told, or are of other jobs */
	bool has_heard;
};

/* How many of them found room. */
size_t told_reads(struct told *t, const struct read_facts *reads, size_t n);
size_t told_steps(struct told *t, const struct clairfs_step_record *steps, size_t n);
/* An order is in force (NULL: none). now_ns: if it has been, it was another job's until now. */
void told_set_order(struct told *t, const struct order_info *info, uint32_t generation,
		    uint64_t now_ns);
/* As its order says: workers of all ranks here; 0: not known. */
uint32_t told_readers(const struct order_info *info);
/* Orders up to this one are known from here on. */
void told_hear(struct told *t, uint32_t generation);
bool told_has_heard(const struct told *t, uint32_t generation);
/* Moves all of it out; what was heard of stays. */
struct told told_take(struct told *t);
void told_free(struct told *t);

#endif
