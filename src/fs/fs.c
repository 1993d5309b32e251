/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a mounted filesystem: made and mounted, started, waited for, unmounted, freed. The
 * order matters twice. At the start the reactor runs first, because watcher and warm thread look
 * paths up through the mount. At the end the mount is taken away, READs are refused, and the
 * reactor serves on until no stage operation is inside the kernel; only then does it end and the
 * device is taken away, which ends the connection and whatever request is left. Watcher and warm
 * thread are joined last, because they may wait for such a request. The session itself lives until
 * fs_free, because the cache still completes reads into it. None of this waits for the source: what
 * asks it for statfs is left behind when it does not answer (statfs.c).
 *
 * Threads: all functions on one thread of the caller, but fs_stop anywhere (also in a signal
 * handler) and fs_get_status anywhere.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>

#include "clairfs/base/log.h"

#include "fs_priv.h"

#define START_POLL_NS (100 * NS_PER_MS)

static void find_shadowed(struct fs *fs)
{
	fs->shadowed =
		dataset_lookup(fs->params.dataset, ENTRY_ROOT, FS_VDIR_NAME, strlen(FS_VDIR_NAME));
	if (!entry_eq(fs->shadowed, ENTRY_NONE))
		log_warn(
			"%s of the source is hidden by the directory of that name with the state of clairfs",
			FS_VDIR_NAME);
}

static void strip_slashes(char *path)
{
	size_t len = strlen(path);

	while (len > 1 && path[len - 1] == '/')
		path[--len] = '\0';
}

static int set_up(struct fs *fs, const struct fs_params *params, struct err *err)
{
	int rc;

	fs->mountpoint = strdup(params->mountpoint);
	fs->source = strdup(params->source);
	if (!fs->mountpoint || !fs->source)
		return err_set_errno(err, -ENOMEM, "mount");
	strip_slashes(fs->mountpoint);
	fs->params.mountpoint = fs->mountpoint;
	fs->params.source = fs->source;
	fs->nlookup = calloc((size_t)dataset_n_entries(params->dataset) + 1, sizeof(*fs->nlookup));
	fs->wait_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	fs->quit_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	rc = fs->nlookup ? 0 : -ENOMEM;
	if (rc == 0 && (fs->wait_fd < 0 || fs->quit_fd < 0))
		rc = -EMFILE;
	if (rc == 0 && fs->announce.done_fd < 0)
		rc = -EMFILE;
	if (rc == 0)
		rc = fs_reads_fill(fs);
	if (rc == 0)
		rc = fs_dir_init(fs);
	if (rc == 0)
		rc = fs_watch_init(fs);
	if (rc == 0)
		rc = fs_stage_fill(fs);
	if (rc == 0)
		rc = fs_statfs_init(fs);
	if (rc < 0)
		return err_set_errno(err, rc, "mount");
	find_shadowed(fs);
	return fs_mount(fs, err);
}

int fs_new(const struct fs_params *params, struct fs **ret, struct err *err)
{
	struct fs *fs = calloc(1, sizeof(*fs));
	int rc;

	if (!fs)
		return err_set_errno(err, -ENOMEM, "mount");
	fs->params = *params;
	mutex_init(&fs->mu);
	cond_init(&fs->cv);
	list_init(&fs->snapshots);
	fs_reads_init(fs);
	fs_stage_init(fs);
	fs_warm_init(fs);
	fs_settle_init(fs);
	fs->wait_fd = fs->quit_fd = fs->watch.fd = -1;
	fs_announce_init(fs);
	rc = set_up(fs, params, err);
	if (rc < 0) {
		fs_free(fs);
		return rc;
	}
	*ret = fs;
	return 0;
}

/* Waits for one of the steps of starting; fails when it cannot come any more. */
static int wait_for(struct fs *fs, const bool *step, struct err *err)
{
	int rc = 0;

	mutex_lock(&fs->mu);
	while (!*step && !fs->is_ended && !atomic_load(&fs->is_stopping))
		cond_wait_for(&fs->cv, &fs->mu,
			      START_POLL_NS); /* fs_stop cannot signal from a signal handler */
	if (!*step)
		rc = fs->is_ended ? -ENOTCONN : -EINTR;
	mutex_unlock(&fs->mu);
	if (rc == -EINTR)
		return err_set(err, rc, "stopped while mounting %s", fs->mountpoint);
	if (rc < 0)
		return err_set(
			err, rc,
			"%s was unmounted while starting, or kernel and libfuse do not agree",
			fs->mountpoint);
	return 0;
}

int fs_start(struct fs *fs, struct err *err)
{
	int rc = thr_start(&fs->reactor, "fs-reactor", fs_reactor_main, fs, err);

	if (rc == 0)
		rc = wait_for(fs, &fs->is_initialised, err);
	if (rc == 0 && fs->params.announce)
		rc = fs_announce_start(fs, err);
	if (rc == 0)
		rc = fs_mount_identify(fs, err);
	if (rc == 0)
		rc = fs_settle_start(fs, err);
	if (rc == 0)
		rc = thr_start(&fs->watcher, "fs-watch", fs_watch_main, fs, err);
	if (rc == 0)
		rc = wait_for(fs, &fs->is_watching, err);
	if (rc == 0)
		rc = thr_start(&fs->warm_thr, "fs-warm", fs_warm_main, fs, err);
	if (rc == 0)
		rc = wait_for(fs, &fs->is_warm_begun, err);
	if (rc == 0)
		fs_statfs_wait_first(fs);
	return rc;
}

static void eventfd_raise(int fd)
{
	uint64_t one = 1;
	ssize_t put = write(fd, &one, sizeof(one)); /* can only fail when it is raised already */

	(void)put;
}

void fs_wait(struct fs *fs)
{
	struct pollfd pfd = { .fd = fs->wait_fd, .events = POLLIN };

	while (poll(&pfd, 1, -1) < 0 && errno == EINTR)
		;
}

void fs_stop(struct fs *fs)
{
	int saved = errno; /* of what the signal interrupted */

	atomic_store(&fs->is_stopping, true);
	eventfd_raise(fs->wait_fd);
	errno = saved;
}

void fs_unmount(struct fs *fs)
{
	if (!fs->is_mounted)
		return;
	fs_stage_close(fs);
	fs_mount_detach(fs);
	fs_reads_refuse(fs);
	fs_stage_wait(fs);
	atomic_store(&fs->is_quitting, true);
	eventfd_raise(fs->quit_fd);
	fs_warm_quit(fs);
	thr_join(&fs->reactor); /* it polls the device, which keeps it open */
	fs_mount_cut(fs);
	fs_settle_quit(fs);
	thr_join(&fs->watcher);
	thr_join(&fs->warm_thr);
	fs_announce_quit(fs);
	fs->is_mounted = false;
}

void fs_free(struct fs *fs)
{
	if (!fs)
		return;
	fs_unmount(fs);
	fs_announce_fini(fs);
	if (fs->se) {
		fuse_session_unmount(
			fs->se); /* closes the device; there is nothing mounted any more */
		fuse_session_destroy(fs->se);
	}
	fs_vfiles_fini(fs);
	fs_watch_fini(fs);
	fs_reads_fini(fs);
	fs_stage_fini(fs);
	fs_warm_fini(fs);
	fs_settle_fini(fs);
	fs_statfs_fini(fs);
	free(fs->dir_buf);
	free(fs->nlookup);
	if (fs->wait_fd >= 0)
		close(fs->wait_fd);
	if (fs->quit_fd >= 0)
		close(fs->quit_fd);
	cond_fini(&fs->cv);
	mutex_fini(&fs->mu);
	free(fs->mountpoint);
	free(fs->source);
	free(fs);
}

void fs_get_status(struct fs *fs, struct fs_status *ret)
{
	uint64_t entries = dataset_n_entries(fs->params.dataset);

	*ret = (struct fs_status){
		.is_open_refused = atomic_load(&fs->is_open_refused),
		.is_watch_complete = atomic_load(&fs->watch.is_complete),
		.watches = atomic_load(&fs->watch.count),
		.inodes_known = atomic_load(&fs->inodes_known),
		/* and two bits: is_watched, is_ahead */
		.table_bytes = entries * sizeof(*fs->nlookup) + 2 * entries / 8,
		.proto_major = atomic_load(&fs->proto_major),
		.proto_minor = atomic_load(&fs->proto_minor),
	};
	mutex_lock(&fs->mu);
	memcpy(ret->watch_why, fs->watch.why, sizeof(ret->watch_why));
	mutex_unlock(&fs->mu);
}
