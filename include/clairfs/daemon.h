/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon: options, and the life of a mount from wiring all modules to taking them apart. */
#ifndef CLAIRFS_DAEMON_H
#define CLAIRFS_DAEMON_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "clairfs/base/conf.h"
#include "clairfs/base/err.h"
#include "clairfs/order.h"

/* Values of the option table; names, defaults and help are in src/daemon/opts.c. */
struct mount_opts {
	int layout; /* enum dataset_layout */
	char *order;
	int recover; /* enum infer_effort */
	uint64_t recover_threads;
	uint64_t ram, stage;
	char *store_dir;
	bool store_keep;
	uint64_t store_bytes, store_keep_free;
	int store_verify; /* enum store_verify */
	uint64_t store_max_mbps;
	int store_pins; /* enum plan_pin_rule */
	uint64_t source_max_inflight, source_max_mbps;
	int source_engine, store_engine; /* enum io_engine */
	uint64_t scan_threads, stagers;
	char *snapshot_dir;
	uint64_t revalidate, inodes_ahead;
	char *control_reads, *switchback; /* accounting.h */
	uint64_t ghost_bytes;             /* CONF_AUTO: found out */
	uint64_t cpu_pressure;            /* percent */
	bool allow_other;
	char *report;
	int open; /* 0 auto, 1 answer */
	char *metrics_textfile, *plan_tape;
	uint64_t metrics_interval;
	int log_level; /* enum log_level */
};
extern const struct conf_table mount_option_table;

/* Takes "KEY=VALUE,..." where the generic options of mount(8) ("ro", "noauto", "_netdev"...) are
 * passed over; "rw" too when is_mount8, as mount(8) adds it by itself. In a value '\,' is a comma.
 */
int mount_opts_set_list(struct mount_opts *opts, const char *list, bool is_mount8,
			struct err *err) MUST_USE;

struct daemon_params {
	const struct mount_opts *opts;
	const char *source, *mountpoint; /* as given */
	bool is_foreground;
	bool show_progress; /* scan progress on stderr */
	/* Has the mountpoint free and its path absolute before it is touched (mounts_make_free);
	 * asked where the daemon is, and not with fuse_fd. */
	int (*make_free)(const char *mountpoint, char path[4096], struct err *err);
	/* For who mounts as root and became the user (fs_premount); 0: none of this. In the
	 * foreground only. */
	int fuse_fd;   /* the device, consumed; mountpoint is absolute then, and not touched */
	/* Called once, when all is there that is needed to serve: mounts. memory: bytes that this
	 * mount is meant to need at most, page cache of its source aside. */
	int (*mount)(void *ctx, uint64_t memory, struct err *err);
	int report_fd; /* an empty file for the report in place of option report; consumed */
	void (*ready)(void *ctx); /* NULL, or told once when the mount answers */
	void *ready_ctx; /* of both */
};
/* Mounts and serves until unmounted or told to stop. In the foreground it returns then; else it
 * returns in the parent as soon as the mount is ready, or with the error (the child has printed
 * nothing). -EINVAL: the caller was wrong. */
int daemon_run(const struct daemon_params *params, struct err *err) MUST_USE;

/* Memory that a process may take now: of the machine, or of its cgroup; 0: not known. */
uint64_t daemon_memory_available(void);

/* What the launcher of a job says about this node's ranks: RANK and WORLD_SIZE with LOCAL_RANK and
 * LOCAL_WORLD_SIZE (torchrun), else Slurm's variables. Points into the environment and itself. */
struct job_place {
	struct order_place place;
	char rank[48];
};
void daemon_job_place(struct job_place *ret);

#endif
