/* SPDX-License-Identifier: Apache-2.0 */
/* Counters, gauges and latency histograms. One table: every name shown by status, stats.json and
 * the Prometheus text comes from METRICS_LIST. Fixed memory; counting takes no lock
 * (per-thread-slot cells, summed when read). */
#ifndef CLAIRFS_METRICS_H
#define CLAIRFS_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

#include "clairfs/base/buf.h"
#include "clairfs/base/cleanup.h"

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

/* X(identifier, kind, prometheus name without the prefix clairfs_, labels or "", help) in the
 * order they are shown. Rows of one Prometheus name stand together and share their help. */
#define METRICS_LIST(X)                                                                            \
	X(READS_STAGED, COUNTER, "reads_total", "class=\"staged\"",                                \
	  "Reads of files, by how they were served.")                                              \
	X(READS_ARENA, COUNTER, "reads_total", "class=\"arena\"", "")                              \
	X(READS_LATE, COUNTER, "reads_total", "class=\"late\"", "")                                \
	X(READS_STORE, COUNTER, "reads_total", "class=\"store\"", "")                              \
	X(READS_PEER, COUNTER, "reads_total", "class=\"peer\"", "")                                \
	X(READS_MISS, COUNTER, "reads_total", "class=\"miss\"", "")                                \
	X(READ_BYTES_STAGED, COUNTER, "read_bytes_total", "class=\"staged\"",                      \
	  "Bytes delivered to readers, by class.")                                                 \
	X(READ_BYTES_ARENA, COUNTER, "read_bytes_total", "class=\"arena\"", "")                    \
	X(READ_BYTES_LATE, COUNTER, "read_bytes_total", "class=\"late\"", "")                      \
	X(READ_BYTES_STORE, COUNTER, "read_bytes_total", "class=\"store\"", "")                    \
	X(READ_BYTES_PEER, COUNTER, "read_bytes_total", "class=\"peer\"", "")                      \
	X(READ_BYTES_MISS, COUNTER, "read_bytes_total", "class=\"miss\"", "")                      \
	X(READ_ERRORS, COUNTER, "read_errors_total", "",                                           \
	  "READ upcalls answered with an error of the source.")                                    \
	X(UPCALL_LOOKUP, COUNTER, "upcalls_total", "op=\"lookup\"",                                \
	  "Requests of the kernel, by kind.")                                                      \
	X(UPCALL_FORGET, COUNTER, "upcalls_total", "op=\"forget\"", "")                            \
	X(UPCALL_GETATTR, COUNTER, "upcalls_total", "op=\"getattr\"", "")                          \
	X(UPCALL_OPEN, COUNTER, "upcalls_total", "op=\"open\"", "")                                \
	X(UPCALL_READ, COUNTER, "upcalls_total", "op=\"read\"", "")                                \
	X(UPCALL_RELEASE, COUNTER, "upcalls_total", "op=\"release\"", "")                          \
	X(UPCALL_FLUSH, COUNTER, "upcalls_total", "op=\"flush\"", "")                              \
	X(UPCALL_OPENDIR, COUNTER, "upcalls_total", "op=\"opendir\"", "")                          \
	X(UPCALL_READDIR, COUNTER, "upcalls_total", "op=\"readdir\"", "")                          \
	X(UPCALL_READLINK, COUNTER, "upcalls_total", "op=\"readlink\"", "")                        \
	X(UPCALL_IOCTL, COUNTER, "upcalls_total", "op=\"ioctl\"", "")                              \
	X(UPCALL_STATFS, COUNTER, "upcalls_total", "op=\"statfs\"", "")                            \
	X(UPCALL_XATTR, COUNTER, "upcalls_total", "op=\"xattr\"", "")                              \
	X(UPCALL_OTHER, COUNTER, "upcalls_total", "op=\"other\"", "")                              \
	X(SAMPLE_OPENS, COUNTER, "sample_opens_total", "",                                         \
	  "Opens of samples seen by the watcher or as OPEN upcalls.")                              \
	X(WATCH_OVERFLOWS, COUNTER, "watch_overflows_total", "",                                   \
	  "inotify queue overflows: opens were not seen.")                                         \
	X(PREFETCH_ISSUED, COUNTER, "prefetch_issued_total", "",                                   \
	  "Samples whose prefetch was started.")                                                   \
	X(PREFETCH_USEFUL, COUNTER, "prefetch_useful_total", "",                                   \
	  "Prefetched samples that were complete when opened.")                                    \
	X(PREFETCH_LATE, COUNTER, "prefetch_late_total", "",                                       \
	  "Prefetches that a reader had to wait for.")                                             \
	X(PREFETCH_WASTED, COUNTER, "prefetch_wasted_total", "",                                   \
	  "Prefetched samples dropped before they were read.")                                     \
	X(PREFETCH_FAILED, COUNTER, "prefetch_failed_total", "",                                   \
	  "Prefetches that failed; the reader reads for itself.")                                  \
	X(PREFETCH_BYTES, COUNTER, "prefetch_bytes_total", "", "Bytes prefetched.")                \
	X(STAGE_PUSHED, COUNTER, "stage_pushed_total", "",                                         \
	  "Samples pushed into the kernel's page cache.")                                          \
	X(STAGE_PUSHED_BYTES, COUNTER, "stage_pushed_bytes_total", "",                             \
	  "Bytes pushed into the kernel's page cache.")                                            \
	X(STAGE_UNKNOWN_INODE, COUNTER, "stage_unknown_inode_total", "",                           \
	  "Pushes for inodes the kernel did not know.")                                            \
	X(STAGE_LOOKUPS_REFUSED, COUNTER, "stage_lookups_refused_total", "",                       \
	  "Inodes not made known for a push, because of inodes_ahead.")                            \
	X(STAGE_EVICTED_READS, COUNTER, "stage_evicted_reads_total", "",                           \
	  "READs of pushed pages the kernel had dropped.")                                         \
	X(SOURCE_READS, COUNTER, "source_reads_total", "", "Pieces read from the source.")         \
	X(SOURCE_BYTES, COUNTER, "source_bytes_total", "", "Bytes read from the source.")          \
	X(SOURCE_CHECKS, COUNTER, "source_checks_total", "",                                       \
	  "Files compared with the source before the store's copy was used.")                      \
	X(SOURCE_ERRORS, COUNTER, "source_errors_total", "", "Failed reads of the source.")        \
	X(SOURCE_CHANGED, COUNTER, "source_changed_total", "",                                     \
	  "Files seen to have changed in the source.")                                             \
	X(STORE_READS, COUNTER, "store_reads_total", "", "Pieces read from the store.")            \
	X(STORE_READ_BYTES, COUNTER, "store_read_bytes_total", "", "Bytes read from the store.")   \
	X(STORE_BYTES_WRITTEN, COUNTER, "store_bytes_written_total", "",                           \
	  "Bytes written to the store.")                                                           \
	X(STORE_YOUNG, COUNTER, "store_too_young_total", "",                                       \
	  "Pieces not kept yet: their files had changed just before they were read.")              \
	X(STORE_ERRORS, COUNTER, "store_errors_total", "",                                         \
	  "Failed writes or reads of the store, bad checksums.")                                   \
	X(STORE_OFF_TIMES, COUNTER, "store_switched_off_total", "",                                \
	  "Times the store was switched off by errors or a full filesystem.")                      \
	X(STORE_RECLAIMED, COUNTER, "store_reclaimed_segments_total", "",                          \
	  "Segments of the store given up for new ones.")                                          \
	X(STORE_SCRUB_BYTES, COUNTER, "store_scrub_bytes_total", "",                               \
	  "Bytes of the store read and compared in the background.")                               \
	X(RESYNCS, COUNTER, "order_resyncs_total", "",                                             \
	  "Times the position was found again after it had been lost.")                            \
	X(ORDER_MISMATCHES, COUNTER, "order_mismatches_total", "",                                 \
	  "Opens outside the expected window.")                                                    \
	X(RECOVER_SEARCHES, COUNTER, "recover_searches_total", "",                                 \
	  "Searches for an order that nobody told.")                                               \
	X(RECOVER_FOUND, COUNTER, "recover_found_total", "",                                       \
	  "Orders found and followed from then on.")                                               \
	X(RECOVER_CPU_MS, COUNTER, "recover_cpu_milliseconds_total", "",                           \
	  "CPU time of these searches.")                                                           \
	X(DEMAND_INFLIGHT, GAUGE, "source_demand_inflight", "",                                    \
	  "Demand reads of the source in flight.")                                                 \
	X(PREFETCH_INFLIGHT, GAUGE, "source_prefetch_inflight", "",                                \
	  "Prefetch reads of the source in flight.")                                               \
	X(PREFETCH_LIMIT, GAUGE, "source_prefetch_limit", "",                                      \
	  "Requests in flight that prefetching may use now.")                                      \
	X(ARENA_BYTES, GAUGE, "arena_bytes", "", "Bytes of the arena in use.")                     \
	X(ARENA_LIMIT_BYTES, GAUGE, "arena_limit_bytes", "", "RAM budget of the arena.")           \
	X(STAGE_BYTES, GAUGE, "stage_bytes", "", "Bytes pushed and not opened yet.")               \
	X(STAGE_LIMIT_BYTES, GAUGE, "stage_limit_bytes", "",                                       \
	  "Bytes that may be pushed ahead now.")                                                   \
	X(STORE_BYTES, GAUGE, "store_bytes", "", "Bytes kept in the store.")                       \
	X(STORE_LIMIT_BYTES, GAUGE, "store_limit_bytes", "", "Budget of the store.")               \
	X(STORE_RECORDS, GAUGE, "store_records", "", "Pieces kept in the store.")                  \
	X(STORE_OFF, GAUGE, "store_off", "", "1 while the store is switched off or not written.")  \
	X(KERNEL_INODES, GAUGE, "kernel_inodes", "", "Inodes the kernel holds for this mount.")    \
	X(KERNEL_INODE_BYTES, GAUGE, "kernel_inode_bytes", "",                                     \
	  "Estimate of kernel memory for them.")                                                   \
	X(DATASET_SAMPLES, GAUGE, "dataset_samples", "", "Samples of the dataset.")                \
	X(DATASET_BYTES, GAUGE, "dataset_bytes", "", "Bytes of the samples.")                      \
	X(EPOCH, GAUGE, "epoch", "", "Epoch being read.")                                          \
	X(POSITION, GAUGE, "position", "",                                                         \
	  "First position of the epoch not read yet (low-water mark).")                            \
	X(LEAD, GAUGE, "lead", "",                                                                 \
	  "Positions between the reader and the first sample not in RAM.")                         \
	X(ORDER_FOLLOWED, GAUGE, "order_followed", "", "1 while an order is followed.")

enum metric_kind { METRIC_COUNTER, METRIC_GAUGE };
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

/* X(identifier, prometheus name, help): latency histograms, log-linear, nanoseconds inside,
 * seconds outside. */
#define METRICS_HIST_LIST(X)                                                                       \
	X(SOURCE_LATENCY, "source_read_seconds",                                                   \
	  "Time of one piece read from the source, open included.")                                \
	X(STORE_LATENCY, "store_read_seconds", "Time of one piece read from the store.")           \
	X(READ_WAIT, "read_wait_seconds", "Time from a READ upcall to its answer.")

/* clang-format off */
enum metric_hist {
#define METRICS_HIST_ENUM(id, name, help) METRIC_HIST_##id,
	METRICS_HIST_LIST(METRICS_HIST_ENUM)
#undef METRICS_HIST_ENUM
	METRIC_HISTS
};
/* clang-format on */

struct metrics;
/* NULL when out of memory. */
struct metrics *metrics_new(void);
void metrics_free(struct metrics *m);
/* Any thread, no lock. m may be NULL (tests of single modules): nothing happens then. */
void metrics_add(struct metrics *m, enum metric id, uint64_t n);
void metrics_gauge_set(struct metrics *m, enum metric id, uint64_t value);
void metrics_gauge_add(struct metrics *m, enum metric id, int64_t delta);
void metrics_observe(struct metrics *m, enum metric_hist id, uint64_t ns);
uint64_t metrics_get(const struct metrics *m, enum metric id);

struct metrics_hist_view {
	uint64_t count, sum_ns;
	/* upper edges of buckets; relative error <= 1/16 */
	uint64_t p50_ns, p90_ns, p99_ns, max_ns;
};
void metrics_hist_get(const struct metrics *m, enum metric_hist id, struct metrics_hist_view *ret);

/* Prometheus text exposition format 0.0.4: HELP and TYPE once per name, histograms with le=
 * buckets. */
void metrics_print_prometheus(const struct metrics *m, struct buf_writer *out);
/* Members of the objects "counters", "gauges", "histograms" of stats.json; json is a jansson
 * object (json_t *). */
int metrics_to_json(const struct metrics *m, void *json) MUST_USE;

#endif
