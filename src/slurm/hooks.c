/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prolog, epilog, task prolog. The job must not notice trouble of ours: whatever goes wrong in the
 * prolog, it returns in time, the job runs and reads its source, and the task prolog tells it why.
 * The epilog takes everything away and succeeds. Only where the site has asked for it, either of
 * them fails, which drains the node.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/log.h"
#include "clairfs/base/text.h"
#include "slurm_priv.h"

#define POLL_NS (5 * NS_PER_MS)
#define JOBS_OWN_NS (2 * NS_PER_S)
/* A job that comes once more waits for nothing of its first run. */
#define AGAIN_WAIT_NS (200 * NS_PER_MS)
#define AGAIN_NS NS_PER_S
#define EPILOG_NS (4 * NS_PER_S) /* all of it, besides epilog_wait */
#define EPILOG_LOCK_NS (2 * NS_PER_S)
#define STATUS_TRIES 20 /* 10 ms each: the daemon writes it in place */

/* What the hooks of root begin with. */
struct hook {
	const struct slurm_call *call;
	struct slurm_site site;
	struct slurm_job job;
	struct slurm_clean clean;
	bool has_site, has_job;
	char node[256];
};

static const char *call_variable(const struct slurm_call *call, const char *name)
{
	size_t len = strlen(name);

	for (char *const *at = call->environment; at && *at; at++)
		if (strncmp(*at, name, len) == 0 && (*at)[len] == '=')
			return *at + len + 1;
	return NULL;
}

/* For file names; Slurm's name of the node may be any. */
static void find_node(const struct slurm_call *call, char out[256])
{
	const char *name = call_variable(call, "SLURMD_NODENAME");

	if (!name || !*name || strlen(name) >= 256)
		gethostname(out, 255);
	else
		strcpy(out, name);
	for (char *at = out; *at; at++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.",
			    *at) ||
		    (at == out && *at == '.'))
			*at = '_';
}

/* One line for slurmd's log and the system's. */
static void say_job(const struct hook *h, const char *what, const char *why)
{
	char shown[1200];

	text_escape(why, strlen(why), shown, sizeof(shown));
	fprintf(h->call->log, "clairfs: job %u: %s%s%s\n", h->job.id, what, *shown ? ": " : "",
		shown);
	log_info("job %u: %s%s%s", h->job.id, what, *shown ? ": " : "", shown);
}

static void use_site(struct hook *h)
{
	find_node(h->call, h->node);
	h->clean.site = &h->site;
	h->clean.node = h->node;
	h->clean.wait_ns = (uint64_t)(h->site.epilog_wait * (double)NS_PER_S);
}

static int begin_site(struct hook *h, const struct slurm_call *call, struct err *err)
{
	int rc;

	*h = (struct hook){ .call = call, .clean = { .run_fd = -1 } };
	rc = slurm_site_load(call->conf, &h->site, err);
	if (rc < 0)
		return rc;
	h->has_site = true;
	use_site(h);
	h->clean.run_fd = slurm_run_open(h->site.run_dir, true, err);
	return h->clean.run_fd < 0 ? h->clean.run_fd : 0;
}

static void begin_defaults(struct hook *h)
{
	struct err ignored = { 0 };

	if (conf_init(&slurm_site_table, &h->site, &ignored) < 0)
		return;
	h->has_site = true;
	use_site(h);
	h->clean.run_fd = slurm_run_open(h->site.run_dir, false, &ignored);
}

static int hook_begin(struct hook *h, const struct slurm_call *call, struct err *err)
{
	struct err why = { 0 };
	int rc = begin_site(h, call, err);
	int rc_job = slurm_job_parse(call->environment, &h->job, &why);

	h->has_job = rc_job == 0;
	return rc == 0 && rc_job < 0 ? err_set(err, rc_job, "%s", why.msg) : rc;
}

static void hook_end(struct hook *h)
{
	if (h->has_site)
		conf_fini(&slurm_site_table, &h->site);
	if (h->clean.run_fd >= 0)
		close(h->clean.run_fd);
}

/* --- prolog --- */

/* What the job gets: its wish, or the site's. 0 with no source: nothing. */
static int choose_spec(const struct hook *h, struct slurm_spec *spec, const char **ret_text,
		       size_t *ret_len, struct err *err)
{
	*ret_text = h->job.wish ? h->job.wish : h->site.spec;
	*ret_len = h->job.wish ? h->job.wish_len : *ret_text ? strlen(*ret_text) : 0;
	memset(spec, 0, sizeof(*spec));
	if (h->job.is_wish_bad)
		return err_set(err, -EINVAL, "the comment has clairfs: more than once");
	return *ret_text ? slurm_spec_parse(*ret_text, *ret_len, spec, err) : 0;
}

/* Until the daemon says something or time is up. */
static int await_status(const struct hook *h, int dir, pid_t pid, struct slurm_status *ret)
{
	uint64_t deadline = clock_now(clock_monotonic()) +
			    (uint64_t)(h->site.prolog_wait * (double)NS_PER_S);
	struct timespec pause = { .tv_nsec = POLL_NS };
	bool has_ended = false;

	for (;;) {
		int rc = slurm_status_read(dir, ret);

		if (rc == 0 && ret->state != SLURM_STARTING)
			return 0;
		if (has_ended)
			return -ECHILD;
		if (clock_now(clock_monotonic()) >= deadline)
			return -EAGAIN;
		/* What it said last is read once more. */
		has_ended = pid > 0 && waitpid(pid, NULL, WNOHANG) == pid;
		if (!has_ended)
			nanosleep(&pause, NULL);
	}
}

/* There is no mount and will be none: the job is told why. */
static void give_up_job(const struct hook *h, int dir, const char *source, const char *why)
{
	struct slurm_status status = { .state = SLURM_FAILED };

	say_job(h, "no mount, the job reads its source", why);
	if (dir < 0)
		return;
	snprintf(status.why, sizeof(status.why), "%.*s", (int)sizeof(status.why) - 1, why);
	if (source)
		snprintf(status.source, sizeof(status.source), "%s", source);
	if (slurm_status_write(dir, &status, h->job.gid) < 0)
		log_warn("job %u: its status is not written", h->job.id);
}

static int start_daemon(const struct hook *h, int dir, int *lock, const char *text, size_t len,
			const char *source)
{
	struct slurm_record record = { .job = h->job.id, .uid = h->job.uid, .gid = h->job.gid };
	struct slurm_status status = { .state = SLURM_STARTING };
	struct err err = { 0 };
	pid_t pid = 0;
	int rc;

	memcpy(record.spec, text, len); /* it was parsed: it fits */
	snprintf(status.source, sizeof(status.source), "%s", source);
	rc = slurm_status_write(dir, &status, h->job.gid);
	if (rc == 0)
		rc = slurm_record_write(dir, &record);
	if (rc < 0)
		err_set_errno(&err, rc, "%s", h->site.run_dir);
	if (rc == 0)
		rc = slurm_start(h->call, &h->site, dir, &record, &pid, &err);
	close(take_fd(lock)); /* who mounts needs it */
	if (rc == 0)
		rc = await_status(h, dir, pid, &status);
	if (rc == -EAGAIN) {
		say_job(h, "the mount is not ready yet", "");
		return 0;
	}
	if (rc == -ECHILD)
		err_set(&err, rc, "the daemon ended (see the system's log)");
	if (rc == 0 && status.state == SLURM_READY) {
		say_job(h, "mounted", "");
		return 0;
	}
	give_up_job(h, dir, source, rc < 0 ? err.msg : status.why);
	return -EIO;
}

/* Of the same job before it was requeued, or of another Slurm's job of that number. */
static int clean_again(const struct hook *h)
{
	struct slurm_clean c = h->clean;
	struct err err = { 0 };
	int rc;

	c.wait_ns = AGAIN_WAIT_NS;
	c.deadline = clock_now(clock_monotonic()) + AGAIN_NS;
	rc = slurm_clean_job(&c, h->job.id, &err);
	if (rc < 0)
		say_job(h, "an earlier job of this number", err.msg);
	return rc;
}

static int run_prolog(struct hook *h)
{
	struct err err = { 0 };
	struct slurm_spec spec;
	const char *text;
	AUTO_FD int lock = slurm_job_lock(h->clean.run_fd, h->job.id, AGAIN_NS);
	AUTO_FD int dir = -1, dir_lock = -1;
	size_t len;
	int rc;

	if (lock < 0) {
		/* Nor is what an earlier job was told true for this one. */
		dir = slurm_dir_open(h->clean.run_fd, h->job.id);
		give_up_job(h, dir, NULL,
			    lock == -EBUSY ? "another hook is at work on a job of this number"
				       : "run_dir has no room for a lock");
		return lock;
	}
	rc = choose_spec(h, &spec, &text, &len, &err);
	if (clean_again(h) < 0) {
		/* What its first run was told is not true any more. */
		dir = slurm_dir_open(h->clean.run_fd, h->job.id);
		give_up_job(h, dir, rc == 0 ? spec.source : NULL,
			    "what an earlier job of this number left cannot be taken away");
		return -EBUSY;
	}
	if (rc == 0 && !spec.source)
		return 0;
	dir = slurm_dir_make(h->clean.run_fd, h->job.id);
	if (dir < 0) {
		err_set_errno(&err, dir, "%s/%u", h->site.run_dir, h->job.id);
		give_up_job(h, -1, NULL, err.msg);
		return dir;
	}
	dir_lock = slurm_dir_lock(dir);
	if (dir_lock < 0)
		log_warn("job %u: its directory is in use", h->job.id);
	if (rc < 0) {
		give_up_job(h, dir, NULL, err.msg);
		return rc;
	}
	return start_daemon(h, dir, &lock, text, len, spec.source);
}

int slurm_prolog(const struct slurm_call *call)
{
	struct err err = { 0 };
	struct hook h;
	int rc;

	log_use_syslog();
	rc = hook_begin(&h, call, &err);
	if (rc < 0)
		say_job(&h, "no mount, the job reads its source", err.msg);
	else
		rc = run_prolog(&h);
	rc = rc < 0 && h.has_site && h.site.prolog_drains ? 1 : 0;
	hook_end(&h);
	return rc;
}

/* --- epilog --- */

static int clean_own(const struct hook *h, struct err *err)
{
	AUTO_FD int lock = slurm_job_lock(h->clean.run_fd, h->job.id,
					  slurm_in_time(&h->clean, EPILOG_LOCK_NS));

	if (lock == -EBUSY)
		return err_set_errno(err, lock, "another hook is at work on the job");
	if (lock < 0) /* no room for it: nobody else has it either */
		log_warn("job %u: its lock: %s", h->job.id, strerror(-lock));
	return slurm_clean_job(&h->clean, h->job.id, err);
}

/* What the job mounted by itself. */
static void clean_jobs_own(const struct hook *h)
{
	if (!slurm_process_end_jobs(&h->job, slurm_in_time(&h->clean, JOBS_OWN_NS)))
		say_job(h, "looking for daemons of the job's own takes too long", "");
	slurm_clean_user(&h->clean, h->job.uid);
}

int slurm_epilog(const struct slurm_call *call)
{
	struct err err = { 0 };
	struct hook h;
	uint64_t began = clock_now(clock_monotonic());
	bool is_guessed;
	int rc;

	log_use_syslog();
	rc = hook_begin(&h, call, &err);
	is_guessed = !h.has_site; /* its file was broken while jobs ran */
	if (is_guessed)
		begin_defaults(&h);
	/* slurmd kills what takes too long, and drains the node. */
	h.clean.deadline = began + EPILOG_NS + h.clean.wait_ns;
	if (h.has_job && h.clean.run_fd >= 0 && clean_own(&h, &err) < 0)
		rc = err.code;
	if (h.has_job)
		clean_jobs_own(&h);
	if (h.has_job && h.clean.run_fd >= 0 && !is_guessed)
		slurm_clean_others(&h.clean, h.job.id);
	if (rc < 0)
		say_job(&h, "not everything could be taken away", err.msg);
	rc = rc < 0 && h.has_site && h.site.epilog_drains ? 1 : 0;
	hook_end(&h);
	return rc;
}

int slurm_reap(const struct slurm_call *call)
{
	struct err err = { 0 };
	struct hook h;
	int n, rc = begin_site(&h, call, &err);

	if (rc < 0) {
		fprintf(call->log, "clairfs: %s\n", err.msg);
	} else {
		n = slurm_clean_others(&h.clean, 0);
		fprintf(call->out, "jobs whose leftovers were taken away: %d\n", n);
	}
	hook_end(&h);
	return rc < 0 ? 1 : 0;
}

/* --- task prolog: as the user --- */

/* A step has the environment of whoever submitted it: another node's task, or another job. What was
 * true there is not here. */
static void forget_job(const struct slurm_call *call)
{
	static const char *const names[] = { "STATUS", "MNT", "SOURCE", "REASON" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		fprintf(call->out, "unset CLAIRFS_%s\n", names[i]);
	(void)fflush(call->out);
}

static void tell_task(const struct slurm_call *call, const struct slurm_status *status, const char *mnt,
		      const char *why)
{
	fprintf(call->out, "export CLAIRFS_STATUS=%s\n", why ? "bypass" : "mounted");
	if (!why)
		fprintf(call->out, "export CLAIRFS_MNT=%s\n", mnt);
	else if (*status->source)
		fprintf(call->out, "export CLAIRFS_MNT=%s\n", status->source);
	if (*status->source)
		fprintf(call->out, "export CLAIRFS_SOURCE=%s\n", status->source);
	if (why)
		fprintf(call->out, "export CLAIRFS_REASON=%s\n", why);
}

/* A daemon writes its status in place, as the user: it is not whole for a moment. */
static int read_job_status(int dir, struct slurm_status *ret)
{
	struct timespec pause = { .tv_nsec = 10 * NS_PER_MS };
	int rc = slurm_status_read(dir, ret);

	for (int i = 0; i < STATUS_TRIES && rc == -EINVAL; i++) {
		nanosleep(&pause, NULL);
		rc = slurm_status_read(dir, ret);
	}
	return rc;
}

/* Whether the mount answers this user. */
static bool is_alive(const char *path)
{
	struct slurm_mount m = { .owner = geteuid(), .group = getegid() };

	snprintf(m.path, sizeof(m.path), "%s", path);
	return slurm_mount_answers(&m);
}

int slurm_task_prolog(const struct slurm_call *call)
{
	const char *text = call_variable(call, "SLURM_JOB_ID");
	struct slurm_site site;
	struct slurm_status status;
	struct err err = { 0 };
	char mnt[PATH_MAX];
	AUTO_FD int run = -1;
	AUTO_FD int dir = -1;
	uint64_t job;

	forget_job(call);
	if (!text || text_to_u64(text, &job) < 0 || job == 0 || job >= UINT32_MAX ||
	    slurm_site_load(call->conf, &site, &err) < 0)
		return 0; /* no prolog of ours has run */
	snprintf(mnt, sizeof(mnt), "%s/%u/data", site.run_dir, (unsigned)job);
	run = slurm_run_open(site.run_dir, false, &err);
	conf_fini(&slurm_site_table, &site);
	dir = run < 0 ? -1 : slurm_dir_open(run, (uint32_t)job);
	if (dir < 0 || read_job_status(dir, &status) < 0)
		return 0;
	if (status.state == SLURM_FAILED)
		tell_task(call, &status, mnt, status.why);
	else if (status.state == SLURM_STARTING)
		tell_task(call, &status, mnt,
			  "the mount is not ready: the index of the dataset is being made");
	else
		tell_task(call, &status, mnt, is_alive(mnt) ? NULL : "the daemon does not answer");
	(void)fflush(call->out);
	return 0;
}
