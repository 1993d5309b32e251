/* SPDX-License-Identifier: Apache-2.0 */
/* What a site decides: section [hook] of its file, read by every hook. Section [mount] has the
 * options of its mounts, as for clairfs mount -c. As root the file must be root's alone: whoever
 * could write it would be root. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "slurm_priv.h"

#define RAM_PART 16 /* of the node's memory, for each job */
#define RAM_LEAST (64ull << 20)

static const char *const auto_choices[] = { "auto", NULL };

#define ROW(field, kind, def, lo, hi, text)                                                        \
	{                                                                                          \
		.name = #field, .type = kind, .offset = offsetof(struct slurm_site, field),        \
		.initial = def, .min = lo, .max = hi, .help = text                                 \
	}

static const struct conf_option options[] = {
	ROW(spec, CONF_TEXT, "", 0, 0,
	    "What jobs get that ask for nothing: SOURCE[,KEY=VALUE]... as in "
	    "--comment=clairfs:SPEC. Empty: nothing. A job declines with clairfs:off."),
	ROW(run_dir, CONF_TEXT, "/run/clairfs", 0, 0,
	    "Directory of root for the mounts of jobs: RUN_DIR/JOBID/data. Not below /tmp or "
	    "/dev/shm, which job_container/tmpfs hides from the job."),
	ROW(local_dir, CONF_TEXT, "", 0, 0,
	    "Directory of root on a local drive in which every user gets one of their own for the "
	    "index of datasets, and the store. Empty: the index is kept in the user's home."),
	ROW(store, CONF_BOOL, "off", 0, 0,
	    "Keep samples in local_dir from one job of a user to the next. store_bytes of [mount] "
	    "bounds it."),
	ROW(report_dir, CONF_TEXT, "", 0, 0,
	    "Directory of root for a report of each job and node, for clairfs report. Empty: "
	    "none."),
	{ .name = "ram_max",
	  .type = CONF_BYTES,
	  .offset = offsetof(struct slurm_site, ram_max),
	  .initial = "auto",
	  .choices = auto_choices,
	  .help = "Most memory that a job may ask for with ram=; more is cut. The daemon is not in the "
		  "job's cgroup. auto: a sixteenth of the node's. 0: no limit." },
	{ .name = "memory_max",
	  .type = CONF_BYTES,
	  .offset = offsetof(struct slurm_site, memory_max),
	  .initial = "auto",
	  .choices = auto_choices,
	  .help = "Limit of the daemon's own cgroup. Budgets that nobody told follow it. auto: twice what "
		  "the mount is meant to need. 0: none. Not of units of systemd, which have MemoryMax= "
		  "in a drop-in for that." },
	ROW(memory_all, CONF_BYTES, "0", 0, 0,
	    "Limit of the cgroup above those of all daemons of the node. Budgets that nobody told follow "
	    "it. 0: none. With systemd: MemoryMax= of clairfs.slice."),
	ROW(cgroup, CONF_BOOL, "on", 0, 0,
	    "Give each daemon a memory cgroup of its own. off: it stays in that of slurmd."),
	ROW(systemd, CONF_BOOL, "on", 0, 0,
	    "Start daemons as clairfs@JOBID.service where systemd runs and has that unit."),
	ROW(prolog_wait, CONF_REAL, "1.5", 0, 30,
	    "Seconds the prolog waits for the mount. A dataset that takes longer, as its index is "
	    "not made yet, is mounted later: steps that begin until then read the source."),
	ROW(epilog_wait, CONF_REAL, "5", 0, 60,
	    "Seconds the epilog waits for a daemon to write what it has. Then it is killed. "
	    "PrologEpilogTimeout of Slurm must be ten seconds longer at least."),
	ROW(prolog_drains, CONF_BOOL, "off", 0, 0,
	    "Let the prolog fail, which drains the node, when there is no mount. off: the job runs "
	    "and reads the source."),
	ROW(epilog_drains, CONF_BOOL, "off", 0, 0,
	    "Let the epilog fail, which drains the node, when something cannot be taken away."),
	ROW(squeue, CONF_TEXT, "/usr/bin/squeue", 0, 0,
	    "Program that knows the jobs of this node. It is asked only when a directory of a job "
	    "is left that has no process here."),
	{ .name = NULL },
};

const struct conf_table slurm_site_table = { .options = options, .section = "hook" };

static int check_file(const char *path, struct err *err)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return err_set_errno(err, -errno, "%s", path);
	if (geteuid() == 0 && (st.st_uid != 0 || (st.st_mode & (S_IWGRP | S_IWOTH))))
		return err_set(err, -EPERM, "%s: others than root can write it", path);
	return 0;
}

uint64_t slurm_ram_max(const struct slurm_site *site, uint64_t node)
{
	if (site->ram_max == 0)
		return UINT64_MAX;
	return site->ram_max == CONF_AUTO ? MAX(node / RAM_PART, RAM_LEAST) : site->ram_max;
}

const char *slurm_conf_path(const char *told)
{
	return told ? told : access(SLURM_CONF, F_OK) == 0 ? SLURM_CONF : NULL;
}

int slurm_site_load(const char *conf, struct slurm_site *ret, struct err *err)
{
	static const char *const others[] = { "mount", NULL };
	const char *path = slurm_conf_path(conf);
	int rc = conf_init(&slurm_site_table, ret, err);

	if (rc < 0)
		return rc;
	if (path)
		rc = check_file(path, err);
	if (rc == 0 && path)
		rc = conf_load_beside(&slurm_site_table, ret, path, others, err);
	if (rc == 0 && (!ret->run_dir || *ret->run_dir != '/'))
		rc = err_set(err, -EINVAL, "option run_dir is no absolute path");
	if (rc == 0 && ret->store && !ret->local_dir)
		rc = err_set(err, -EINVAL, "option store needs local_dir");
	if (rc < 0)
		conf_fini(&slurm_site_table, ret);
	return rc;
}
