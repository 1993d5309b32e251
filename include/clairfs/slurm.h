/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of a batch system: what its prolog, epilog and task prolog do for a job, and whether a node
 * is fit for it. Everything a job says is hostile, and no trouble of the cache is the job's. */
#ifndef CLAIRFS_SLURM_H
#define CLAIRFS_SLURM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "clairfs/base/conf.h"
#include "clairfs/base/err.h"

#define SLURM_CONF "/etc/clairfs/clairfs.conf"

/* Section [hook] of the site's file. Names, defaults and help are in src/slurm/site.c. */
struct slurm_site {
	char *run_dir, *spec, *local_dir, *report_dir, *squeue;
	bool store, systemd, cgroup, prolog_drains, epilog_drains;
	uint64_t ram_max, memory_max, memory_all;
	double prolog_wait, epilog_wait; /* seconds */
};
extern const struct conf_table slurm_site_table;

/* --- what a job asks for; pure, of any bytes --- */

#define SLURM_SPEC_MAX 2048
#define SLURM_SPEC_OPTIONS 8
/* SOURCE[,KEY=VALUE]..., in a few characters that mean nothing to shells, globs and file formats.
 * SOURCE is an absolute path without "." and ".."; each of the keys order, layout, recover and ram
 * comes once at most. "off": nothing is wanted. */
struct slurm_spec {
	char text[SLURM_SPEC_MAX]; /* cut into the parts below */
	const char *source;        /* NULL: off */
	unsigned n_options;
	struct {
		const char *key, *value;
	} option[SLURM_SPEC_OPTIONS];
};
int slurm_spec_parse(const char *text, size_t len, struct slurm_spec *ret,
		     struct err *err) MUST_USE;
/* The word clairfs:SPEC of a job's comment. 0: *ret_at is SPEC, *ret_len long; -ENOENT: there is
 * none; -EINVAL: there are several. */
int slurm_comment_spec(const char *comment, const char **ret_at, size_t *ret_len) MUST_USE;

/* What Slurm says about a job, and where its wish is: the option of the SPANK plugin before the
 * comment. Points into the environment. */
struct slurm_job {
	uint32_t id;
	uid_t uid;
	gid_t gid;
	const char *wish; /* wish_len bytes; NULL: it asks for nothing */
	size_t wish_len;
	bool is_wish_bad; /* several at once */
};
int slurm_job_parse(char *const *environment, struct slurm_job *ret, struct err *err) MUST_USE;

/* --- the hooks: each returns what the process exits with --- */

struct slurm_call {
	const char *conf; /* of the site; NULL: SLURM_CONF, if it is there */
	char *const *environment;
	FILE *out, *log; /* task prolog: what Slurm is to do; log: one line for the slurmd's log */
};
/* Mounts for the job and returns within prolog_wait, whatever happens; up to two seconds more for
 * what an earlier job of that number left. */
int slurm_prolog(const struct slurm_call *call);
/* Takes away what the prolog or the job itself has mounted, and what other jobs left that are
 * gone. */
int slurm_epilog(const struct slurm_call *call);
/* Tells the job where its data is. */
int slurm_task_prolog(const struct slurm_call *call);
/* The daemon of a job whose prolog has left a record; returns when unmounted. For the prolog,
 * and for a unit of systemd. */
int slurm_serve(const struct slurm_call *call, uint32_t job);
/* Takes away what jobs left that are not on this node any more. */
int slurm_reap(const struct slurm_call *call);
/* Whether the node is fit for mounts: a line each on out. 0, or 1 when something is wrong. */
int slurm_check(const struct slurm_call *call);

#endif
