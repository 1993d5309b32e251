/* SPDX-License-Identifier: Apache-2.0 */
/* What a mount shows of itself: stats.json, the words of it, its report. All are pure functions of a struct
 * published, which whoever knows all modules fills for a moment; nothing here asks another module
 * how it is. What training loops told is publish/hook.h, the metrics as a file publish/textfile.h.
 */
#ifndef CLAIRFS_PUBLISH_H
#define CLAIRFS_PUBLISH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "clairfs/base/buf.h"
#include "clairfs/base/err.h"
#include "clairfs/drive.h"
#include "clairfs/dataset.h"
#include "clairfs/metrics.h"
#include "clairfs/orders.h"
#include "clairfs/plan.h"
#include "clairfs/tier/store.h"
#include "clairfs/wait.h"

struct published_mount {
	const char *source, *mountpoint;
	uint64_t start_ns;
	bool is_open_refused, is_watch_complete;
	uint32_t watches;
	char watch_why[256];
	uint64_t inodes_known;
};

struct published_dataset {
	enum dataset_layout layout;
	uint32_t samples, entries;
	uint64_t bytes; /* of samples */
	struct dataset_stats stats;
};

/* Bytes, but for inflight, inodes_ahead and shrunk. */
struct published_memory {
	uint64_t ram, arena, stage, inflight, inodes_ahead;
	uint64_t limit; /* 0: none is known */
	const char *from;
	bool is_over;
	uint64_t ram_now, stage_now, shrunk;
	const char *by; /* what is listened to for pressure */
	/* What the daemon has in RAM, and what it is of; peak 0: not known. */
	uint64_t resident, peak, arena_used, samples_held, index, tables;
};

/* A mount at a moment. Texts are borrowed unless they say "heap". */
struct published {
	const char *version;
	int pid;
	uint64_t now_ns;
	struct published_mount mount;
	struct published_dataset dataset;
	struct cache_status cache;
	struct drive_status drive;
	char *spec; /* of the order in force (of the first job); heap, or NULL */
	const char *not_taken; /* see orders_not_taken */
	uint64_t numberings_tried;
	struct orders_job job[PLAN_JOBS];
	uint32_t n_jobs;
	const char *source_engine, *source_why, *store_engine;
	bool has_store; /* or was to have one */
	struct store_status store;
	struct orders_told told;
	struct published_memory memory;
	/* What their owners put into words themselves; NULL: they ran out of memory. */
	json_t *search, *gpu_wait, *hook;
	const struct metrics *metrics; /* read when the text is made */
};
/* Frees what is heap or JSON. */
void published_fini(struct published *p);

/* The object of stats.json; NULL when out of memory. Any thread. */
json_t *publish_stats(const struct published *p) MUST_USE;
/* The same as the file's text. -ENOMEM. */
int publish_stats_text(const struct published *p, struct buf_writer *out) MUST_USE;

/* For people: what an object of stats.json says, of this version or another one. */
void publish_status(const json_t *stats, FILE *out);

/* --- the report of a mount that is over: src/report/FORMAT.md --- */

struct published_report {
	const struct published *last; /* what the mount showed at the end */
	int64_t ended;                /* seconds since 1970 */
	char job[64], host[256];
	double cpu_user_s, cpu_system_s;
	uint64_t max_memory_bytes;
	uint64_t store_bytes, store_found_bytes; /* its budget; what it had when the mount began */
	json_t *ranks;                          /* of hook_report_json; changed */
	struct wait_view wait;
	json_t **replay; /* [wait.n_ranks], each NULL or the replay of that rank; heap */
};
void published_report_fini(struct published_report *r);
/* Heap, or NULL when out of memory. */
char *publish_report_text(struct published_report *r) MUST_USE;

/* Where a report goes. */
struct report_place {
	char *dir, *name; /* absolute; dir NULL: there is none; name NULL: to be made up */
	int fd;           /* in place of both; 0: none */
};
/* option: a file or a directory, or NULL. -EPERM: it is within the mount. */
int report_place_find(struct report_place *place, const char *option, const char *mountpoint,
		      struct err *err) MUST_USE;
static inline bool report_place_is_none(const struct report_place *place)
{
	return !place->dir && !place->fd;
}
/* Writes it under another name first; what goes wrong is logged. text may be NULL: nothing is
 * written, and that is logged. Blocks as file systems do. */
void report_place_write(const struct report_place *place, const struct published_report *r,
			const char *text);
void report_place_fini(struct report_place *place);

#endif
