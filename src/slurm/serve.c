/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon of a job. It begins as root, from the prolog or a unit of systemd, with the record
 * that the prolog wrote: there is no other way to tell it anything. As root it makes what a user
 * may not, and leaves a process behind that mounts when there is something to serve (mounter.c):
 * the source is a name until it is the user. So nobody meets a mount that does not answer, however
 * long the index takes. Options are the site's, then those of the job's that a job may set. What
 * goes wrong is the job's status, and the end.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "clairfs/base/log.h"
#include "clairfs/fs.h"
#include "slurm_priv.h"

struct serving {
	const struct slurm_call *call;
	struct slurm_site site;
	struct slurm_record record;
	struct slurm_spec spec;
	struct slurm_identity id;
	struct mount_opts opts;
	bool has_site, has_opts;
	int run_fd, dir_fd, status_fd;
	struct slurm_mounter mounter;
	struct slurm_status status;
	char *mountpoint, *local;
	char notify[sizeof(((struct sockaddr_un *)0)->sun_path)];
	struct daemon_params params;
};

/* --- telling that it is ready --- */

static void notify_systemd(const char *path)
{
	static const char text[] = "READY=1";
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	AUTO_FD int fd = *path ? socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
	size_t len = strlen(path);

	if (fd < 0)
		return;
	memcpy(to.sun_path, path, len);
	if (to.sun_path[0] == '@') /* an abstract name */
		to.sun_path[0] = 0;
	if (sendto(fd, text, sizeof(text) - 1, MSG_NOSIGNAL, (struct sockaddr *)&to,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0)
		log_warn("systemd is not told that the mount is ready: %s", strerror(errno));
}

static void put_status(struct serving *s)
{
	int rc = s->status_fd >= 0 ? slurm_status_put(s->status_fd, &s->status) : 0;

	if (rc < 0)
		log_warn("job %u: its status is not told: %s", s->record.job, strerror(-rc));
	if (s->status_fd >= 0)
		close(take_fd(&s->status_fd));
}

static int do_mount(void *ctx, uint64_t memory, struct err *err)
{
	struct serving *s = ctx;

	return slurm_mounter_mount(&s->mounter, memory, err);
}

static void serve_ready(void *ctx)
{
	struct serving *s = ctx;

	s->status.state = SLURM_READY;
	put_status(s);
	notify_systemd(s->notify);
}

/* --- as root --- */

static int serve_take_record(struct serving *s, uint32_t job, struct err *err)
{
	AUTO_FD int running = -1;
	int rc;

	s->run_fd = slurm_run_open(s->site.run_dir, true, err);
	if (s->run_fd < 0)
		return s->run_fd;
	s->dir_fd = slurm_dir_open(s->run_fd, job);
	if (s->dir_fd < 0)
		return err_set_errno(err, s->dir_fd, "the prolog left nothing for job %u", job);
	rc = slurm_record_read(s->dir_fd, &s->record);
	if (rc < 0 || s->record.job != job)
		return err_set(err, -EINVAL, "the record of job %u is damaged", job);
	running = s->record.pid == getpid() ? -ESRCH : slurm_process_open(&s->record);
	if (running != -ESRCH)
		return err_set(err, -EBUSY, "job %u is served by process %d", job,
			       (int)s->record.pid);
	s->status_fd = openat(s->dir_fd, "status", O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
	if (s->status_fd < 0)
		return err_set_errno(err, -errno, "the status of job %u", job);
	rc = slurm_spec_parse(s->record.spec, strlen(s->record.spec), &s->spec, err);
	if (rc == 0 && !s->spec.source)
		rc = err_set(err, -EINVAL, "job %u wants no mount", job);
	return rc;
}

/* The numbers of this process, for who ends it. */
static int put_record(struct serving *s, struct err *err)
{
	uint64_t told = s->site.memory_max == CONF_AUTO ? 0 : s->site.memory_max;
	int rc;

	s->record.pid = getpid();
	s->record.start = slurm_process_start(s->record.pid);
	if (s->site.cgroup && !*s->notify) /* systemd gives each unit one */
		slurm_cgroup_enter(s->record.job, told, s->site.memory_all, s->record.cgroup);
	else if (told)
		log_warn("job %u: memory_max is not applied: %s", s->record.job,
			 *s->notify ? "set MemoryMax= for clairfs@.service" : "option cgroup is off");
	rc = slurm_record_write(s->dir_fd, &s->record);
	return rc < 0 ? err_set_errno(err, rc, "the record of job %u", s->record.job) : 0;
}

static int set_option(struct serving *s, const char *key, const char *value, struct err *err)
{
	return conf_set(&mount_option_table, &s->opts, key, value, err);
}

static uint64_t node_memory(void)
{
	return (uint64_t)MAX(sysconf(_SC_PHYS_PAGES), 0) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int load_options(struct serving *s, struct err *err)
{
	static const char *const others[] = { "hook", NULL };
	const char *path = slurm_conf_path(s->call->conf);
	uint64_t site_ram;
	int rc = conf_init(&mount_option_table, &s->opts, err);

	if (rc < 0)
		return rc;
	s->has_opts = true;
	if (path)
		rc = conf_load_beside(&mount_option_table, &s->opts, path, others, err);
	if (rc == 0 && s->opts.allow_other)
		rc = err_set(err, -EINVAL, "%s: allow_other is not for mounts of jobs", path);
	site_ram = s->opts.ram;
	for (unsigned i = 0; rc == 0 && i < s->spec.n_options; i++)
		rc = set_option(s, s->spec.option[i].key, s->spec.option[i].value, err);
	/* What the site itself has set may be more. */
	if (rc == 0 && s->opts.ram != CONF_AUTO && s->opts.ram != site_ram)
		s->opts.ram = MIN(s->opts.ram, slurm_ram_max(&s->site, node_memory()));
	return rc;
}

/* A killer that has to choose takes a cache before slurmd, whose protection we came with. */
static void unprotect_process(void)
{
	AUTO_FILE FILE *f = fopen("/proc/self/oom_score_adj", "r+e");
	int score = 0;

	if (f && fscanf(f, "%d", &score) == 1 && score < 0) {
		rewind(f);
		fputs("0\n", f);
	}
}

static int prepare_mount(struct serving *s, struct err *err)
{
	struct slurm_mounter_params p = { .record = &s->record,
					  .source = s->spec.source,
					  .run_fd = s->run_fd,
					  .fits_memory = s->site.memory_max == CONF_AUTO };
	int rc;

	if (asprintf(&s->mountpoint, "%s/%u/data", s->site.run_dir, s->record.job) < 0) {
		s->mountpoint = NULL;
		return err_set_errno(err, -ENOMEM, "mount");
	}
	if (s->site.report_dir) {
		s->params.report_fd = openat(s->dir_fd, "report",
					     O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
					     0600);
		if (s->params.report_fd < 0)
			return err_set_errno(err, -errno, "the report of job %u", s->record.job);
	}
	rc = fs_premount_open(&s->params.fuse_fd, err);
	p.fuse_fd = s->params.fuse_fd;
	return rc == 0 ? slurm_mounter_start(&p, &s->mounter, err) : rc;
}

static int serve_prepare(struct serving *s, uint32_t job, struct err *err)
{
	int rc = slurm_site_load(s->call->conf, &s->site, err);

	if (rc < 0)
		return rc;
	s->has_site = true;
	rc = serve_take_record(s, job, err);
	s->status.state = SLURM_FAILED;
	if (rc == 0)
		snprintf(s->status.source, sizeof(s->status.source), "%s", s->spec.source);
	unprotect_process();
	if (rc == 0)
		rc = put_record(s, err);
	if (rc == 0)
		rc = load_options(s, err);
	if (rc == 0)
		rc = slurm_identity_find(s->record.uid, s->record.gid, &s->id, err);
	if (rc == 0 && s->site.local_dir)
		rc = slurm_local_dir(s->site.local_dir, &s->id, &s->local, err);
	if (rc == 0)
		rc = prepare_mount(s, err);
	return rc;
}

/* --- as the user --- */

static int own_dir(struct serving *s, const char *name, const char *option, struct err *err)
{
	AUTO_FREE char *path = NULL;

	if (asprintf(&path, "%s/%s", s->local, name) < 0) {
		path = NULL;
		return err_set_errno(err, -ENOMEM, "local_dir");
	}
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_set_errno(err, -errno, "%s", path);
	return set_option(s, option, path, err);
}

static int serve_as_user(struct serving *s, struct err *err)
{
	int rc = slurm_become(&s->id, s->record.job, err);

	if (chdir("/") < 0)
		log_warn("chdir /: %s", strerror(errno));
	if (rc == 0 && s->local && !s->opts.snapshot_dir)
		rc = own_dir(s, "index", "snapshot_dir", err);
	if (rc == 0 && s->site.store && !s->opts.store_dir)
		rc = own_dir(s, "store", "store_dir", err);
	if (rc < 0)
		return rc;
	close(take_fd(&s->dir_fd));
	close(take_fd(&s->run_fd));
	s->params.opts = &s->opts;
	s->params.source = s->spec.source;
	s->params.mountpoint = s->mountpoint;
	s->params.is_foreground = true;
	s->params.mount = do_mount;
	s->params.ready = serve_ready;
	s->params.ready_ctx = s;
	return daemon_run(&s->params, err);
}

int slurm_serve(const struct slurm_call *call, uint32_t job)
{
	struct serving *s = calloc(1, sizeof(*s));
	const char *notify = getenv("NOTIFY_SOCKET");
	struct err err = { 0 };
	int rc;

	if (!s)
		return 1;
	s->call = call;
	s->run_fd = s->dir_fd = s->status_fd = s->mounter.fd = -1;
	if (notify && strlen(notify) < sizeof(s->notify))
		strcpy(s->notify, notify);
	log_use_syslog();
	prctl(PR_SET_NAME, "clairfs"); /* it was started as /proc/self/exe */
	rc = serve_prepare(s, job, &err);
	if (rc == 0)
		rc = serve_as_user(s, &err);
	if (rc < 0) {
		log_error("job %u: %s", job, err.msg);
		fprintf(call->log, "clairfs: job %u: %s\n", job, err.msg);
		snprintf(s->status.why, sizeof(s->status.why), "%.*s",
			 (int)sizeof(s->status.why) - 1, err.msg);
		put_status(s);
	}
	if (s->has_opts)
		conf_fini(&mount_option_table, &s->opts);
	if (s->has_site)
		conf_fini(&slurm_site_table, &s->site);
	slurm_identity_fini(&s->id);
	if (s->dir_fd >= 0)
		close(s->dir_fd);
	if (s->run_fd >= 0)
		close(s->run_fd);
	if (s->mounter.fd >= 0)
		close(s->mounter.fd);
	free(s->mountpoint);
	free(s->local);
	free(s);
	return rc < 0 ? 1 : 0;
}
