/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon: options, wiring of all modules, mounts on this machine. Used by the command line
 * only. */
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
	uint64_t ram, stage, sample_max;
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

/* --- mounts on this machine --- */
struct mount_info {
	bool is_mounted; /* something is mounted exactly there */
	bool is_ours;    /* of type fuse.clairfs */
	bool is_covered; /* something is mounted below it */
	uint64_t dev;    /* major << 32 | minor */
	uid_t owner;     /* who mounted it, if it is ours */
	char path[4096]; /* absolute, as the kernel names it */
};
/* Looks the mountpoint up in the kernel's table without touching the mount itself (a hung mount
 * hangs whoever does). */
int mounts_find(const char *mountpoint, struct mount_info *ret, struct err *err) MUST_USE;
/* Mountpoints of ours that this user has mounted, `max` at most: *n texts from the heap. Touches
 * no mount. */
int mounts_list(uid_t user, char **ret, uint32_t max, uint32_t *n, struct err *err) MUST_USE;
/* Whether the daemon of a mount of ours is gone. Asks the mount, as mounts_read_vfile does. */
bool mounts_is_dead(const char *mountpoint);
struct umount_params {
	const char *mountpoint;
	bool is_lazy;        /* detach now even when busy, and do not wait for the daemon */
	bool has_timeout;    /* for all of it; else 10 s while it is busy, 60 s for the daemon */
	uint64_t timeout_ns; /* nothing is forced when it passes (-EBUSY, -ETIMEDOUT) */
	/* Told once or twice, after three seconds: a line that says what is waited for. NULL: not
	 * told. */
	void (*say)(const char *line);
};
/* Unmounts and waits until the daemon has ended. -EPERM at once for a mount of another user, unless
 * root asks. */
int mounts_umount(const struct umount_params *params, struct err *err) MUST_USE;
/* Text of one virtual file of a mount; heap, terminated. Gives up after 10 s when the mount hangs
 * (-ETIMEDOUT). */
int mounts_read_vfile(const char *mountpoint, const char *name, char **ret,
		      struct err *err) MUST_USE;
/* Tells the mount an order ("none": no order any more). A list that is not beneath its source is
 * read here and handed over. *ret_line: what is in force now, heap. */
int mounts_announce(const char *mountpoint, const char *spec, char **ret_line,
		    struct err *err) MUST_USE;

#endif
