/* SPDX-License-Identifier: Apache-2.0 */
/* A cache over a real directory, and the drive around it: dataset, source (through an engine that can
 * be made to fail or wait), arena, optionally a store and an order, and a stage that records what it is
 * told instead of talking to a kernel. The bytes of every file are a function of {file, version,
 * offset}.
 *
 *	struct rig *rig = rig_new(&(struct rig_options){ .n = 2, .sizes = (uint64_t[]){ 10, 20 } });
 *	rig_read_check(rig, 0, 0, 4096, 0);
 *	rig_free(rig);
 */
#ifndef CLAIRFS_TESTS_CACHE_RIG_H
#define CLAIRFS_TESTS_CACHE_RIG_H

#include <errno.h>
#include <stdatomic.h>

#include "check.h"
#include "clairfs/drive.h"
#include "clairfs/tier/store.h"
#include "fault_io.h"

/* A clock that goes when the test sets it, for rig_options.clock; its now_ns() is manual_now. */
struct manual_clock {
	struct clock clock;
	_Atomic uint64_t now_ns;
};
uint64_t manual_now(struct clock *clock);

struct rig_options {
	uint32_t n;            /* samples */
	const uint64_t *sizes; /* [n]; NULL: all of `size` */
	uint64_t size;
	uint64_t other_size;  /* of the one file that is no sample */
	uint64_t arena_limit; /* 0 = 64 MiB */
	uint64_t arena_bytes; /* the plan's part; 0 = half of the limit */
	const char *order;    /* spec, NULL = none */
	const char *records;  /* lines of a table, "class/000000.jpg 0 50000": units; NULL = none */
	bool reserves;        /* room for records that are found */
	uint64_t store_bytes; /* 0 = 32 MiB */
	uint64_t store_limit; /* the store's own; 0 = 64 MiB */
	uint64_t store_segment;
	uint64_t store_retry_ns;
	struct tier *peer; /* one more tier with copies, of the test; NULL = none */
	const char *store_dir; /* a persistent store there; NULL: a private one */
	uint64_t source_grain_ns;
	enum plan_pin_rule pin_rule;
	/* The source keeps large files open. Opening one is a request of its own, which tests that
	 * hold requests and count them would have to know of. */
	bool keeps_files;
	bool is_shared; /* others see it, as with allow_other */
	bool has_store, is_stage_off, is_not_started;
	uint64_t stage_bytes; /* 0 = 16 MiB */
	uint64_t revalidate_ns;
	uint32_t stagers;    /* 0 = 2 */
	uint32_t threads;    /* of the engine; 0 = 8 */
	struct clock *clock; /* NULL: the real one */
	const struct drive_watch *watch;
	const struct probe *probe;
	const struct drive_probe *drive_probe;
	struct reads *reads; /* borrowed, until rig_free; NULL: none */
};

/* What the stage was asked and what readers were answered, in order. */
enum rig_event { RIG_STORE, RIG_INVAL, RIG_ATTR, RIG_SETTLE, RIG_NAME, RIG_LOOKUP, RIG_ANSWER };
struct rig_log {
	enum rig_event event;
	uint32_t entry;
	uint64_t offset, length;
};

struct rig {
	struct rig_options options;
	char *dir;
	struct dataset *dataset;
	struct io *io; /* a fault_io */
	struct tier *source;
	struct arena *arena;
	struct store *store;
	struct order_spec *spec;
	struct order *order;
	struct metrics *metrics;
	struct drive *drive;
	struct cache *cache; /* its */
	struct entry_id other;
	_Atomic uint32_t *version; /* [n + 1] of what was written last */

	struct mutex mu;
	struct cond cv;
	struct rig_log *log; /* mu, like all below */
	uint32_t n_log, log_size;
	uint32_t fail_stores; /* pushes to be answered with stage_status */
	int stage_status;
	_Atomic int settle_status; /* of settling, 0: it succeeds */
	bool is_stage_held; /* operations on pages wait */
	bool is_direct;     /* READs are, from now on */
	uint32_t n_held;
	void (*on_store)(struct rig *rig, uint32_t entry); /* runs inside a push */
};

struct rig *rig_new(const struct rig_options *options);
void rig_free(struct rig *rig);

/* An order over n samples, of no job. */
struct order *rig_order(uint32_t n, const char *text);

/* Byte of a file. */
uint8_t rig_byte(uint32_t file, uint32_t version, uint64_t offset);
void rig_fill(uint8_t *out, uint32_t file, uint32_t version, uint64_t offset, uint64_t length);
/* Puts a new version in place of the file at once (rename). file == n: the one that is no sample.
 */
void rig_replace(struct rig *rig, uint32_t file, uint64_t size);
void rig_remove(struct rig *rig, uint32_t file);
char *rig_path(struct rig *rig, uint32_t file);
struct entry_id rig_entry(struct rig *rig, uint32_t file);

/* A READ that can be waited for; keeps a copy of its bytes. */
struct rig_read {
	struct cache_read read;
	struct rig *rig;
	uint32_t file;
	uint8_t *bytes;
	uint64_t n_bytes;
	int status;
	uint32_t n_done; /* rig->mu */
};
struct rig_read *rig_read_start(struct rig *rig, uint32_t file, uint64_t offset, uint32_t length);
void rig_read_wait(struct rig_read *r);
void rig_read_free(struct rig_read *r);
/* Reads and compares with the version written last; the class it was served by. */
enum read_class rig_read_check(struct rig *rig, uint32_t file, uint64_t offset, uint32_t length);
/* Reads and returns the status. */
int rig_read_status(struct rig *rig, uint32_t file, uint64_t offset, uint32_t length);
void rig_check_bytes(struct rig_read *r, uint32_t version, uint64_t size);

uint64_t rig_metric(struct rig *rig, enum metric id);
/* Waits until the counter is at least that. */
void rig_wait_metric(struct rig *rig, enum metric id, uint64_t at_least);
/* The condition is looked at once a turn: what was true a moment ago may not be any more. And once more when
 * time is over, as the whole machine may have stood still. */
#define RIG_UNTIL(cond)                                                                            \
	do {                                                                                       \
		uint64_t until_ = rig_deadline();                                                  \
		bool is_met_;                                                                      \
		bool is_late_ = false;                                                             \
		while (!(is_met_ = (cond)) && !is_late_)                                           \
			is_late_ = !rig_pause(until_);                                             \
		check_true_(is_met_, __FILE__, __LINE__, #cond);                                   \
	} while (0)
uint64_t rig_deadline(void);
bool rig_pause(uint64_t until);
/* Position of the first such event at or after `from`, or -1. */
int rig_find(struct rig *rig, enum rig_event event, uint32_t entry, uint32_t from);
uint32_t rig_count(struct rig *rig, enum rig_event event, uint32_t entry);
/* Waits until n operations on pages wait. */
void rig_wait_held(struct rig *rig, uint32_t n);
void rig_hold_stage(struct rig *rig, bool is_held);

#endif
