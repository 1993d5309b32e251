/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of this module.
 *
 * RUN_DIR/JOBID is root's, and nobody else can make anything in it:
 *   record    who, what, which process; root's (record.c)
 *   status    "starting", "ready" or "failed WHY"; the user's group may read it (record.c)
 *   data/     the mountpoint, 0700
 *   report    while the daemon runs: its report, written through a descriptor
 *
 * RUN_DIR/.lock stays. Who makes or takes away what is a job's holds the byte of its number there.
 */
#ifndef CLAIRFS_SLURM_PRIV_H
#define CLAIRFS_SLURM_PRIV_H

#include <limits.h>

#include "clairfs/daemon.h"
#include "clairfs/slurm.h"

/* --- site.c --- */
/* The file to read: the one told, or the site's if there is one; else NULL. */
const char *slurm_conf_path(const char *told);
/* After 0 conf_fini is the caller's. */
int slurm_site_load(const char *conf, struct slurm_site *ret, struct err *err) MUST_USE;

/* Most that a job may ask for on a node of this memory. Pure. */
uint64_t slurm_ram_max(const struct slurm_site *site, uint64_t node);

/* --- record.c: texts of the files above; pure --- */
struct slurm_record {
	uint32_t job;
	uid_t uid;
	gid_t gid;
	pid_t pid;      /* of the daemon; 0: none yet */
	uint64_t start; /* when it began, in the kernel's ticks: a number is used again */
	char spec[SLURM_SPEC_MAX];
	char cgroup[PATH_MAX]; /* made for it; empty: none */
};
#define SLURM_RECORD_MAX (SLURM_SPEC_MAX + PATH_MAX + 512)
int slurm_record_parse(const char *text, size_t len, struct slurm_record *ret) MUST_USE;
/* Terminated; out has SLURM_RECORD_MAX bytes. */
void slurm_record_print(const struct slurm_record *record, char *out);

enum slurm_state { SLURM_STARTING, SLURM_READY, SLURM_FAILED };
struct slurm_status {
	enum slurm_state state;
	char why[512];              /* of a failure: one line for a person */
	char source[SLURM_SPEC_MAX]; /* empty: not known */
};
#define SLURM_STATUS_MAX (512 + SLURM_SPEC_MAX + 64)
int slurm_status_parse(const char *text, size_t len, struct slurm_status *ret) MUST_USE;
void slurm_status_print(const struct slurm_status *status, char *out);

/* --- jobdir.c --- */
/* RUN_DIR, made if need be. It must be root's or this user's, and nobody else may write it. */
int slurm_run_open(const char *run_dir, bool may_make, struct err *err) MUST_USE;
/* RUN_DIR/JOBID; -ENOENT. */
int slurm_dir_open(int run_fd, uint32_t job) MUST_USE;
int slurm_dir_make(int run_fd, uint32_t job) MUST_USE;
/* Tells reap that the job's prolog is at work: a descriptor to be closed, or -EBUSY. */
int slurm_dir_lock(int dir_fd) MUST_USE;
/* Keeps prolog, epilog, reap and the one that mounts out of each other, for one job at a time. A
 * descriptor to be closed, or -EBUSY: not within this time. It ends with the process, and children
 * do not have it. */
int slurm_job_lock(int run_fd, uint32_t job, uint64_t ns) MUST_USE;
int slurm_record_read(int dir_fd, struct slurm_record *ret) MUST_USE;
int slurm_record_write(int dir_fd, const struct slurm_record *record) MUST_USE;
int slurm_status_write(int dir_fd, const struct slurm_status *status, gid_t gid) MUST_USE;
/* The same into the open file, for who may not make one any more. Who reads meanwhile may find
 * no status. */
int slurm_status_put(int fd, const struct slurm_status *status) MUST_USE;
int slurm_status_read(int dir_fd, struct slurm_status *ret) MUST_USE;
/* The next job that has a directory; 0: no more. */
uint32_t slurm_dir_next(void *dir);

/* --- proc_words.c: what texts of /proc say; pure, of any bytes --- */
/* Field 22 of /proc/PID/stat: when it began. */
bool slurm_words_start(const char *stat, size_t len, uint64_t *ret);
/* Whether the environment has SLURM_JOB_ID of this job. */
bool slurm_words_is_of_job(const char *environ_text, size_t len, uint32_t job);
/* Whether /proc/PID/status is of a slurmstepd of root, in all its ids. */
bool slurm_words_is_slurmstepd(const char *status, size_t len);
/* Whether the answer of squeue, "NUMBER STATE" a line, has no job of this number but in a state
 * that is a job's last. */
bool slurm_words_is_over(const char *answer, uint32_t job);
/* Whether a command line is "slurmstepd: [JOB.STEP]": Slurm's own process of a step. */
bool slurm_words_is_step(const char *cmdline, size_t len, uint32_t job);

/* --- bounded.c --- */
/* work() in a child that is killed after `ns`. It returns 0 or a negative errno above -256, and
 * changes nothing here. -ETIMEDOUT: it was not over; -EAGAIN, -ENOMEM: there is no child. */
int slurm_bounded(int (*work)(void *ctx), void *ctx, uint64_t ns) MUST_USE;
/* Whether our child ends by itself within this time; else it is killed. */
bool slurm_child_wait(pid_t pid, uint64_t ns, int *ret_status) MUST_USE;

/* --- process.c --- */
/* When the process began; 0: it is not there. */
uint64_t slurm_process_start(pid_t pid);
/* Of a record that has one: a descriptor of the daemon. -ESRCH: it has ended. -EAGAIN: not known, for
 * want of descriptors or memory; who takes things away from the dead lets it be. */
int slurm_process_open(const struct slurm_record *record);
/* Whether it ends within this time. */
bool slurm_process_ends(int pid_fd, uint64_t ns);
/* SIGTERM, and SIGKILL after `ns`, to daemons that this job started by itself, if any live. A
 * second more at most; false: it was not over then. */
bool slurm_process_end_jobs(const struct slurm_job *job, uint64_t ns) MUST_USE;
/* Whether any process here is Slurm's own for a step of the job; also when that is not known within
 * a second. */
bool slurm_process_has_step(uint32_t job);

/* --- table.c: mounts of ours, from the kernel's table --- */
struct slurm_mount {
	uint32_t id;
	uint32_t minor; /* of the device: the number of the connection */
	uid_t owner;
	gid_t group; /* the kernel asks for it as well */
	char path[PATH_MAX];
};
/* A line of mountinfo; false: not a mount of ours. Pure, of any bytes. */
bool slurm_mount_parse(const char *line, size_t len, struct slurm_mount *ret);
/* Calls look() with each until it returns false. */
int slurm_mount_each(bool (*look)(void *ctx, const struct slurm_mount *m), void *ctx) MUST_USE;
/* Takes one away, in use or not, as long as it is the one meant, and ends its connection: all that
 * waits for it fails. -ETIMEDOUT: its path hangs. */
int slurm_mount_detach(const struct slurm_mount *m) MUST_USE;
/* Whether nobody serves it any more. Asked as its owner, given up after a second: then it is
 * not. */
bool slurm_mount_is_dead(const struct slurm_mount *m);
/* Whether it is one, and somebody does, within a second. */
bool slurm_mount_answers(const struct slurm_mount *m);

/* --- clean.c --- */
struct slurm_clean {
	const struct slurm_site *site;
	int run_fd;
	const char *node; /* for names of reports */
	uint64_t wait_ns; /* for a daemon to write what it has; then it is killed */
	uint64_t deadline; /* of the monotonic clock: nothing is waited for after it; 0: none */
};
/* Of a time to wait what is left before the deadline; a moment for what has to be tried. */
uint64_t slurm_in_time(const struct slurm_clean *c, uint64_t ns);
/* Takes away all that the prolog made for the job. 0 also when there is nothing. */
int slurm_clean_job(const struct slurm_clean *c, uint32_t job, struct err *err) MUST_USE;
/* Mounts of this user that nobody serves, wherever they are; but not those of jobs, which go with
 * their job. */
void slurm_clean_user(const struct slurm_clean *c, uid_t uid);
/* Other jobs' directories whose job is not here any more, as far as there is time: the next epilog
 * goes on. keep: not this one. Returns how many. */
int slurm_clean_others(const struct slurm_clean *c, uint32_t keep);

/* --- start.c --- */
/* Starts the daemon of a job whose record is written, in a session of its own. *ret_pid: to be
 * waited for, or 0 when systemd has it. */
int slurm_start(const struct slurm_call *call, const struct slurm_site *site, int dir_fd,
		const struct slurm_record *record, pid_t *ret_pid, struct err *err) MUST_USE;

/* --- own_cgroup.c --- */
/* Moves this process into a memory cgroup of its own, with a limit; all: of those of all jobs
 * together; 0: none. out: where it is, empty when there is none. Trouble is logged. */
void slurm_cgroup_enter(uint32_t job, uint64_t limit, uint64_t all, char out[PATH_MAX]);
/* Limits the one that was entered, for a mount that is meant to need this much. */
void slurm_cgroup_fit(uint32_t job, const char *dir, uint64_t need);
/* From where a mount of this need is made to give memory back, and its limit. Pure. */
void slurm_cgroup_limits(uint64_t need, uint64_t *ret_high, uint64_t *ret_max);
/* When nobody is in it any more. */
void slurm_cgroup_remove(const char *dir);
/* Directory of the hierarchy with the memory controller, from mountinfo; false: none. Pure. */
bool slurm_cgroup_hierarchy(const char *mountinfo, size_t len, bool *ret_is_v2, char out[PATH_MAX]);

/* --- mounter.c --- */
/* A process that stays root until the daemon, who is the user by then, is ready to serve. It mounts
 * and ends. */
struct slurm_mounter {
	pid_t pid;
	int fd; /* the daemon's end */
};
struct slurm_mounter_params {
	const struct slurm_record *record; /* of the calling process, who is the daemon */
	const char *source;
	int run_fd, fuse_fd;
	bool fits_memory; /* the cgroup of the record gets a limit by what the mount needs */
};
int slurm_mounter_start(const struct slurm_mounter_params *params, struct slurm_mounter *ret,
			struct err *err) MUST_USE;
/* Asks it, and waits until it has ended. need: bytes. */
int slurm_mounter_mount(struct slurm_mounter *m, uint64_t need, struct err *err) MUST_USE;

/* --- identity.c --- */
struct slurm_identity {
	uid_t uid;
	gid_t gid;
	char *name, *home; /* heap */
};
/* Asks the directory service, which may take its time. */
int slurm_identity_find(uid_t uid, gid_t gid, struct slurm_identity *ret,
			struct err *err) MUST_USE;
void slurm_identity_fini(struct slurm_identity *id);
/* This user for good: groups, ids, no way back, an environment of their own. */
int slurm_become(const struct slurm_identity *id, uint32_t job, struct err *err) MUST_USE;
/* LOCAL_DIR/UID, the user's alone; heap. */
int slurm_local_dir(const char *local_dir, const struct slurm_identity *id, char **ret,
		    struct err *err) MUST_USE;

#endif
