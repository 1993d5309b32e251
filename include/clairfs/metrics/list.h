/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of what is counted: status, stats.json, the Prometheus text, the dashboard and the
 * alert rules take every name from here, and a test compares them. Names follow the habits of
 * Prometheus: base units, _total for counters only, few labels with few values, no paths and no
 * names of jobs (those are in clairfs_mount_info). A row that is removed or renamed breaks
 * somebody's dashboard: say so in the changelog.
 *
 * The label tier says where the bytes of a read were when it came: ram (the kernel's pages or the
 * arena), nvme (the store), pfs (the source, or on their way from there). */
#ifndef CLAIRFS_METRICS_LIST_H
#define CLAIRFS_METRICS_LIST_H

/* clang-format off */
/* X(identifier, kind, prometheus name without the prefix clairfs_, labels or "", help) in the
 * order they are shown. Rows of one Prometheus name stand together and share their help. Kinds that
 * end in _NS hold nanoseconds and are shown as seconds. */
#define METRICS_LIST(X) \
	X(READS_STAGED, COUNTER, "reads_total", "class=\"staged\",tier=\"ram\"", \
	  "Reads of files, by how they were served and where the bytes were.") \
	X(READS_ARENA, COUNTER, "reads_total", "class=\"arena\",tier=\"ram\"", "") \
	X(READS_LATE, COUNTER, "reads_total", "class=\"late\",tier=\"pfs\"", "") \
	X(READS_STORE, COUNTER, "reads_total", "class=\"store\",tier=\"nvme\"", "") \
	X(READS_PEER, COUNTER, "reads_total", "class=\"peer\",tier=\"peer\"", "") \
	X(READS_MISS, COUNTER, "reads_total", "class=\"miss\",tier=\"pfs\"", "") \
	X(READ_BYTES_STAGED, COUNTER, "read_bytes_total", "class=\"staged\",tier=\"ram\"", \
	  "Bytes delivered to readers, by how and from where.") \
	X(READ_BYTES_ARENA, COUNTER, "read_bytes_total", "class=\"arena\",tier=\"ram\"", "") \
	X(READ_BYTES_LATE, COUNTER, "read_bytes_total", "class=\"late\",tier=\"pfs\"", "") \
	X(READ_BYTES_STORE, COUNTER, "read_bytes_total", "class=\"store\",tier=\"nvme\"", "") \
	X(READ_BYTES_PEER, COUNTER, "read_bytes_total", "class=\"peer\",tier=\"peer\"", "") \
	X(READ_BYTES_MISS, COUNTER, "read_bytes_total", "class=\"miss\",tier=\"pfs\"", "") \
	X(READ_ERRORS, COUNTER, "read_errors_total", "", \
	  "READ upcalls answered with an error of the source.") \
	X(BYPASS_ARENA_FULL, COUNTER, "bypass_total", "reason=\"arena_full\"", \
	  "Fetches and reads that went past the cache, by reason.") \
	X(BYPASS_STORE_ERROR, COUNTER, "bypass_total", "reason=\"store_error\"", "") \
	X(UPCALL_LOOKUP, COUNTER, "upcalls_total", "op=\"lookup\"", \
	  "Requests of the kernel, by kind.") \
	X(UPCALL_FORGET, COUNTER, "upcalls_total", "op=\"forget\"", "") \
	X(UPCALL_GETATTR, COUNTER, "upcalls_total", "op=\"getattr\"", "") \
	X(UPCALL_OPEN, COUNTER, "upcalls_total", "op=\"open\"", "") \
	X(UPCALL_READ, COUNTER, "upcalls_total", "op=\"read\"", "") \
	X(UPCALL_RELEASE, COUNTER, "upcalls_total", "op=\"release\"", "") \
	X(UPCALL_FLUSH, COUNTER, "upcalls_total", "op=\"flush\"", "") \
	X(UPCALL_OPENDIR, COUNTER, "upcalls_total", "op=\"opendir\"", "") \
	X(UPCALL_READDIR, COUNTER, "upcalls_total", "op=\"readdir\"", "") \
	X(UPCALL_IOCTL, COUNTER, "upcalls_total", "op=\"ioctl\"", "") \
	X(UPCALL_STATFS, COUNTER, "upcalls_total", "op=\"statfs\"", "") \
	X(UPCALL_XATTR, COUNTER, "upcalls_total", "op=\"xattr\"", "") \
	X(UPCALL_OTHER, COUNTER, "upcalls_total", "op=\"other\"", "") \
	X(SAMPLE_OPENS, COUNTER, "sample_opens_total", "", \
	  "Opens of samples seen by the watcher or as OPEN upcalls.") \
	X(WATCH_OVERFLOWS, COUNTER, "watch_overflows_total", "", \
	  "inotify queue overflows: opens were not seen.") \
	X(PREFETCH_ISSUED, COUNTER, "prefetch_issued_total", "", \
	  "Samples that the source was asked for before their readers.") \
	X(PREFETCH_USEFUL, COUNTER, "prefetch_useful_total", "", \
	  "Prefetched samples that were complete when opened.") \
	X(PREFETCH_LATE, COUNTER, "prefetch_late_total", "", \
	  "Prefetches that a reader had to wait for.") \
	X(PREFETCH_WASTED, COUNTER, "prefetch_wasted_total", "", \
	  "Prefetched samples dropped before they were read.") \
	X(PREFETCH_FAILED, COUNTER, "prefetch_failed_total", "", \
	  "Prefetches that failed; the reader reads for itself.") \
	X(CONTROL_READS, COUNTER, "control_reads_total", "", \
	  "Samples held out and read from the source when wanted, for comparison.") \
	X(CONTROL_BYTES, COUNTER, "control_read_bytes_total", "", "Their bytes.") \
	X(CONTROL_WAIT, COUNTER_NS, "control_read_seconds_total", "", \
	  "What they cost their readers: the wait for them.") \
	X(SWITCHBACK_READS, COUNTER, "switchback_reads_total", "", \
	  "Samples read from the source in blocks in which the cache stepped aside.") \
	X(SWITCHBACK_BYTES, COUNTER, "switchback_read_bytes_total", "", "Their bytes.") \
	X(UNPLACED_READS, COUNTER, "unplaced_reads_total", "", \
	  "Reads whose place in the order is not known: in no number of GPU wait.") \
	X(PREFETCH_BYTES, COUNTER, "prefetch_bytes_total", "", "Bytes prefetched.") \
	X(STAGE_PUSHED, COUNTER, "stage_pushed_total", "", \
	  "Samples pushed into the kernel's page cache.") \
	X(STAGE_PUSHED_BYTES, COUNTER, "stage_pushed_bytes_total", "", \
	  "Bytes pushed into the kernel's page cache.") \
	X(STAGE_UNKNOWN_INODE, COUNTER, "stage_unknown_inode_total", "", \
	  "Pushes for inodes the kernel did not know.") \
	X(STAGE_LOOKUPS_REFUSED, COUNTER, "stage_lookups_refused_total", "", \
	  "Inodes not made known for a push, because of inodes_ahead.") \
	X(STAGE_EVICTED_READS, COUNTER, "stage_evicted_reads_total", "", \
	  "READs of pushed pages the kernel had dropped.") \
	X(EVICTIONS, COUNTER, "evictions_total", "", \
	  "Pieces of files dropped from the arena, used or not.") \
	X(MEMORY_SHRUNK, COUNTER, "memory_shrunk_total", "", \
	  "Times the arena was made smaller because memory was short.") \
	X(SOURCE_READS, COUNTER, "source_reads_total", "", "Pieces read from the source.") \
	X(SOURCE_BYTES, COUNTER, "source_bytes_total", "", "Bytes read from the source.") \
	X(SOURCE_CHECKS, COUNTER, "source_checks_total", "", \
	  "Files compared with the source before the store's copy was used.") \
	X(SOURCE_ERRORS, COUNTER, "source_errors_total", "", "Failed reads of the source.") \
	X(SOURCE_CHANGED, COUNTER, "source_changed_total", "", \
	  "Files seen to have changed in the source.") \
	X(SOURCE_TOUCHED, COUNTER, "source_touched_total", "", \
	  "Of these, files whose time of change alone was another: permissions, owner or links.") \
	X(STORE_READS, COUNTER, "store_reads_total", "", "Pieces read from the store.") \
	X(STORE_READ_BYTES, COUNTER, "store_read_bytes_total", "", "Bytes read from the store.") \
	X(STORE_BYTES_WRITTEN, COUNTER, "store_bytes_written_total", "", \
	  "Bytes written to the store.") \
	X(STORE_SEALED_BYTES, COUNTER, "store_sealed_bytes_total", "", \
	  "Bytes of segments of the store when they were finished.") \
	X(STORE_RESERVED_BYTES, COUNTER, "store_reserved_bytes_total", "", \
	  "Bytes that had been reserved for these segments.") \
	X(STORE_YOUNG, COUNTER, "store_too_young_total", "", \
	  "Pieces not kept yet: their files had changed just before they were read.") \
	X(STORE_ERRORS, COUNTER, "store_errors_total", "", \
	  "Failed writes or reads of the store, bad checksums.") \
	X(STORE_OFF_TIMES, COUNTER, "store_switched_off_total", "", \
	  "Times the store was switched off by errors or a full filesystem.") \
	X(STORE_RECLAIMED, COUNTER, "store_reclaimed_segments_total", "", \
	  "Segments of the store given up for new ones.") \
	X(RESYNCS, COUNTER, "plan_resyncs_total", "", \
	  "Times the position was found again after it had been lost.") \
	X(ORDER_MISMATCHES, COUNTER, "plan_mismatch_total", "", \
	  "Opens outside the expected window.") \
	X(RECOVER_SEARCHES, COUNTER, "recover_searches_total", "", \
	  "Searches for an order that nobody told.") \
	X(RECOVER_FOUND, COUNTER, "recover_found_total", "", \
	  "Orders found and followed from then on.") \
	X(RECOVER_CPU, COUNTER_NS, "recover_cpu_seconds_total", "", "CPU time of these searches.") \
	X(HOOK_STEPS, COUNTER, "hook_steps_total", "", "Steps that training loops have told.") \
	X(HOOK_REFUSED, COUNTER, "hook_refused_total", "", \
	  "Steps told that cannot be right, and were left out.") \
	X(HOOK_LOST, COUNTER, "hook_lost_total", "", \
	  "Steps that training loops say they could not tell.") \
	X(TEXTFILE_WRITES, COUNTER, "textfile_writes_total", "", \
	  "Times these numbers were written to the file of metrics_textfile.") \
	X(TEXTFILE_ERRORS, COUNTER, "textfile_errors_total", "", "Times that failed.") \
	X(PROCESS_CPU, COUNTER_NS, "process_cpu_seconds_total", "", \
	  "User and system CPU time of the daemon.") \
	X(DEMAND_INFLIGHT, GAUGE, "source_demand_inflight", "", \
	  "Demand reads of the source in flight.") \
	X(PREFETCH_INFLIGHT, GAUGE, "source_prefetch_inflight", "", \
	  "Prefetch reads of the source in flight.") \
	X(PREFETCH_LIMIT, GAUGE, "source_prefetch_limit", "", \
	  "Requests in flight that prefetching may use now.") \
	X(ARENA_BYTES, GAUGE, "cache_bytes", "tier=\"ram\"", \
	  "Bytes kept, by tier: ram is the arena, nvme the store.") \
	X(STORE_BYTES, GAUGE, "cache_bytes", "tier=\"nvme\"", "") \
	X(ARENA_LIMIT_BYTES, GAUGE, "cache_capacity_bytes", "tier=\"ram\"", \
	  "Bytes that may be kept, by tier.") \
	X(STORE_LIMIT_BYTES, GAUGE, "cache_capacity_bytes", "tier=\"nvme\"", "") \
	X(MEMORY_GIVEN_UP, GAUGE, "memory_given_up_bytes", "", \
	  "Bytes of the arena that are not used for now because memory is short.") \
	X(STAGE_BYTES, GAUGE, "stage_bytes", "", "Bytes pushed and not opened yet.") \
	X(STAGE_LIMIT_BYTES, GAUGE, "stage_limit_bytes", "", \
	  "Bytes that may be pushed ahead now.") \
	X(STORE_RECORDS, GAUGE, "store_records", "", "Pieces kept in the store.") \
	X(STORE_PAYLOAD_BYTES, GAUGE, "store_payload_bytes", "", \
	  "Bytes of samples among those kept in the store.") \
	X(STORE_EXPECTED_BYTES, GAUGE, "store_expected_bytes", "", \
	  "Bytes the store takes when all samples of the dataset that fit are kept.") \
	X(STORE_OFF, GAUGE, "store_off", "", "1 while the store is switched off or not written.") \
	X(KERNEL_INODES, GAUGE, "kernel_inodes", "", "Inodes the kernel holds for this mount.") \
	X(KERNEL_INODE_BYTES, GAUGE, "kernel_inode_bytes", "", \
	  "Estimate of kernel memory for them.") \
	X(DATASET_SAMPLES, GAUGE, "dataset_samples", "", "Samples of the dataset.") \
	X(DATASET_BYTES, GAUGE, "dataset_bytes", "", "Bytes of the samples.") \
	X(EPOCH, GAUGE, "plan_epoch", "", "Epoch being read.") \
	X(POSITION, GAUGE, "plan_position", "", \
	  "First position of the epoch not read yet (low-water mark).") \
	X(LEAD, GAUGE, "plan_lead", "", \
	  "Positions between the reader and the first sample not in RAM.") \
	X(ORDER_FOLLOWED, GAUGE, "order_followed", "", "1 while an order is followed.") \
	X(DEGRADED, GAUGE, "degraded", "", \
	  "1 when something failed that costs speed, see the log.") \
	X(OPEN_HANDLES, GAUGE, "open_handles", "", \
	  "Files that readers hold open; 0 once OPEN is refused, as the kernel does not tell then.") \
	X(PROCESS_RSS, GAUGE, "process_resident_memory_bytes", "", \
	  "Memory of the daemon that is in RAM.") \
	X(PROCESS_FDS, GAUGE, "process_open_fds", "", "Descriptors that the daemon has open.") \
	X(PROCESS_START, GAUGE_NS, "process_start_time_seconds", "", \
	  "When the daemon was started, seconds since 1970.")

/* X(identifier, kind, prometheus name, labels or "", help): what each rank of the job has of its
 * own, with the label rank. The same rules; shown for the ranks that were ever set. */
#define METRICS_RANK_LIST(X) \
	X(GPU_WAIT_REMOVED, COUNTER_NS, "gpu_wait_removed_seconds_total", "", \
	  "GPU wait that the mount has removed at least: a lower bound.") \
	X(GPU_WAIT_REPLAY, COUNTER_NS, "gpu_wait_removed_estimate_seconds_total", \
	  "source=\"replay\"", "GPU wait that the mount has removed by an estimate.") \
	X(GPU_WAIT_HOOK, COUNTER_NS, "gpu_wait_removed_estimate_seconds_total", \
	  "source=\"hook\"", "") \
	X(GPU_WAIT_SWITCHBACK, COUNTER_NS, "gpu_wait_removed_estimate_seconds_total", \
	  "source=\"switchback\"", "") \
	X(GPU_WAIT_UPPER, COUNTER_NS, "gpu_wait_removed_upper_seconds_total", "", \
	  "GPU wait that the mount has removed at most: an upper bound.") \
	X(LATENCY_SAVED, COUNTER_NS, "read_latency_saved_seconds_total", "", \
	  "Sum over reads of the time they would have taken longer; much more than GPU wait.") \
	X(JUDGED, COUNTER_NS, "gpu_wait_judged_seconds_total", "", \
	  "Time of the epochs that these numbers are about.") \
	X(SWITCHBACK_COST, COUNTER_NS, "switchback_cost_seconds_total", "", \
	  "Time that the blocks without the cache have cost the job.") \
	X(GPU_WAIT, COUNTER_NS, "gpu_wait_seconds_total", "", \
	  "Time the training loop waited for batches, as its hook told.") \
	X(GPU_COMPUTE, COUNTER_NS, "gpu_compute_seconds_total", "", \
	  "Time the training loop did not wait, as its hook told.") \
	X(STEPS, COUNTER, "steps_total", "", "Steps of the training loop, as its hook told.") \
	X(PREP_WAIT, COUNTER_NS, "prep_wait_seconds_total", "", \
	  "GPU wait that no cache removes: workers were busy and read nothing.")

/* X(identifier, prometheus name, labels, help): latency histograms, log-linear, nanoseconds inside,
 * seconds outside. The same rules. */
#define METRICS_HIST_LIST(X) \
	X(READ_RAM, "read_seconds", "tier=\"ram\"", \
	  "Time from a READ of the kernel to its answer, by where the bytes were.") \
	X(READ_NVME, "read_seconds", "tier=\"nvme\"", "") \
	X(READ_PFS, "read_seconds", "tier=\"pfs\"", "") \
	X(PREFETCH_LEAD, "prefetch_lead_seconds", "", \
	  "How long a prefetched sample was complete when it was first opened.") \
	X(SOURCE_LATENCY, "source_read_seconds", "", \
	  "Time of one piece read from the source, open included.") \
	X(STORE_LATENCY, "store_read_seconds", "", "Time of one piece read from the store.")
/* clang-format on */

#endif
