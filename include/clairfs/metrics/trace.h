/* SPDX-License-Identifier: Apache-2.0 */
/* Single reads, fetches, pushes and writes, for somebody who is looking right now (`clairfs
 * trace`): a ring of fixed size that exists only then. Whoever takes from it keeps it alive; five
 * seconds after the last time it is gone by itself. Off, it costs a branch. */
#ifndef CLAIRFS_METRICS_TRACE_H
#define CLAIRFS_METRICS_TRACE_H

#include <sys/ioctl.h>

#include "clairfs/metrics.h"

/* X(identifier, name, category) */
#define TRACE_LIST(X)                                                                              \
	X(READ, "read", "READ")                   /* a READ of the kernel */                       \
	X(PREFETCH, "prefetch", "FETCH")          /* a piece fetched ahead... */                   \
	X(FETCH, "fetch", "FETCH")                /* ... or because somebody waits */              \
	X(SOURCE_READ, "source_read", "SOURCE")   /* within one of those */                        \
	X(SOURCE_CHECK, "source_check", "SOURCE") /* likewise: is the file still the same? */      \
	X(STORE_READ, "store_read", "STORE")      /* likewise */                                   \
	X(STORE_WRITE, "store_write", "STORE")                                                     \
	X(STAGE, "stage", "STAGE") /* a sample pushed into the kernel */

/* clang-format off */
enum trace_kind {
#define TRACE_ENUM(id, name, category) TRACE_##id,
	TRACE_LIST(TRACE_ENUM)
#undef TRACE_ENUM
	TRACE_KINDS
};
/* clang-format on */

/* Handed to another process of the same build: see version below. */
struct trace_event {
	uint64_t begin_ns, end_ns; /* CLOCK_MONOTONIC */
	uint32_t kind;             /* enum trace_kind */
	uint32_t file;             /* entry number of the dataset index */
	uint32_t piece, bytes;
	uint32_t group; /* of a fetch and what is within it: the same number; else 0 */
	int16_t status; /* 0 or a negative errno */
	uint16_t how;   /* enum read_class of a READ */
};

#define TRACE_VERSION 1
#define TRACE_CHUNK 400
/* In: version, cursor (0: from now on). Out: events from the cursor on, the next cursor, and how
 * many were overwritten before they could be taken. */
struct trace_chunk {
	uint32_t version, n;
	uint64_t cursor, lost;
	struct trace_event event[TRACE_CHUNK];
};
/* On <mountpoint>/.clairfs/control, for the mounting user and root. */
#define TRACE_IOC_TAKE _IOWR(0xCF, 16, struct trace_chunk)

/* Records an event; nothing when nobody looks. Any thread, no lock may be held that is a leaf. */
void metrics_trace(struct metrics *m, const struct trace_event *event);
/* A number for trace_event.group, never 0. */
uint32_t metrics_trace_group(struct metrics *m);
/* Fills io and starts tracing when it is off. -ENOMEM; -EPROTO: another version. */
int metrics_trace_take(struct metrics *m, uint64_t now_ns, struct trace_chunk *io) MUST_USE;

#endif
