/* SPDX-License-Identifier: Apache-2.0 */
/* Counters, gauges and latency histograms. One table: every name shown by status, stats.json and
 * the Prometheus text comes from METRICS_LIST (metrics/list.h). Fixed memory; counting takes no
 * lock (per-thread-slot cells, summed when read). */
#ifndef CLAIRFS_METRICS_H
#define CLAIRFS_METRICS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "clairfs/base/buf.h"
#include "clairfs/base/cleanup.h"
#include "clairfs/metrics/list.h"

/* How a read was served. Every read (one open of a sample, or one READ of another file) and
 * every byte is in exactly one class. */
enum read_class {
	READ_STAGED, /* from pages pushed ahead: the kernel served it, no upcall */
	READ_ARENA,  /* from the RAM tier */
	READ_LATE,   /* waited for a prefetch in flight */
	READ_STORE,  /* from the NVMe tier */
	READ_PEER,   /* reserved: from another node */
	READ_MISS,   /* from the source, on demand */
	READ_CLASSES
};
/* "staged" "arena" "late" "store" "peer" "miss" */
extern const char *const read_class_names[READ_CLASSES];

/* COUNTER_NS, GAUGE_NS: nanoseconds inside, seconds wherever it is shown. */
enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_COUNTER_NS, METRIC_GAUGE_NS };
static inline bool metric_is_counter(enum metric_kind kind)
{
	return kind == METRIC_COUNTER || kind == METRIC_COUNTER_NS;
}
/* clang-format off */
enum metric {
#define METRICS_ENUM(id, kind, name, labels, help) METRIC_##id,
	METRICS_LIST(METRICS_ENUM)
#undef METRICS_ENUM
	METRICS_COUNT
};
/* clang-format on */
struct metric_info {
	const char *id; /* lower case, the key in stats.json, e.g. "reads_staged" */
	enum metric_kind kind;
	const char *name, *labels, *help;
};
extern const struct metric_info metric_infos[METRICS_COUNT];

/* clang-format off */
enum metric_rank {
#define METRICS_RANK_ENUM(id, kind, name, labels, help) METRIC_RANK_##id,
	METRICS_RANK_LIST(METRICS_RANK_ENUM)
#undef METRICS_RANK_ENUM
	METRIC_RANKS
};
/* clang-format on */
extern const struct metric_info metric_rank_infos[METRIC_RANKS];
#define METRICS_RANKS_MAX 256 /* ranks of a node that are told apart; of others nothing is kept */

/* clang-format off */
enum metric_hist {
#define METRICS_HIST_ENUM(id, name, labels, help) METRIC_HIST_##id,
	METRICS_HIST_LIST(METRICS_HIST_ENUM)
#undef METRICS_HIST_ENUM
	METRIC_HISTS
};
/* clang-format on */

struct metrics;
/* Inside: what a struct metrics begins with, so that asking costs a load and a branch. */
struct metrics_head {
	_Atomic bool is_tracing;
};
/* Whether somebody looks at single events (metrics/trace.h). Any thread; m may be NULL. */
static inline bool metrics_is_tracing(const struct metrics *m)
{
	const struct metrics_head *head = (const struct metrics_head *)m;

	return head &&
	       __builtin_expect(atomic_load_explicit(&head->is_tracing, memory_order_relaxed), 0);
}
/* NULL when out of memory. */
struct metrics *metrics_new(void);
void metrics_free(struct metrics *m);
/* Any thread, no lock. m may be NULL (tests of single modules): nothing happens then. */
void metrics_add(struct metrics *m, enum metric id, uint64_t n);
void metrics_gauge_set(struct metrics *m, enum metric id, uint64_t value);
void metrics_gauge_add(struct metrics *m, enum metric id, int64_t delta);
/* For a counter that somebody else counts, such as the kernel: sets it. The id must not be given to
 * metrics_add. */
void metrics_total_set(struct metrics *m, enum metric id, uint64_t value);
/* Sets a number of one rank; the same rules as for metrics_total_set. Any thread, no lock. */
void metrics_rank_set(struct metrics *m, enum metric_rank id, uint32_t rank, uint64_t value);
void metrics_observe(struct metrics *m, enum metric_hist id, uint64_t ns);
uint64_t metrics_get(const struct metrics *m, enum metric id);
extern const enum metric_hist metrics_hist_of_class[READ_CLASSES]; /* read_seconds{tier} */

struct metrics_hist_view {
	uint64_t count, sum_ns;
	/* upper edges of buckets; relative error <= 1/16 */
	uint64_t p50_ns, p90_ns, p99_ns, max_ns;
};
void metrics_hist_get(const struct metrics *m, enum metric_hist id, struct metrics_hist_view *ret);

/* What clairfs_mount_info says; texts are any bytes, NULL is "". */
struct metrics_mount {
	const char *job, *user, *source, *mountpoint, *version;
};
/* Once, before there are other threads. -ENOMEM. */
int metrics_set_mount(struct metrics *m, const struct metrics_mount *mount) MUST_USE;

/* Prometheus text exposition format 0.0.4: HELP and TYPE once per name, histograms with le=
 * buckets. label: one more for every row, e.g. mount="a" (where several mounts end up in one
 * scrape), or "". */
void metrics_print_prometheus(const struct metrics *m, const char *label, struct buf_writer *out);
/* Members of the objects "counters", "gauges", "histograms" of stats.json; json is a jansson
 * object (json_t *). */
int metrics_to_json(const struct metrics *m, void *json) MUST_USE;

#endif
