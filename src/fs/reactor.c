/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reactor: one thread that takes the kernel's requests. One, because a single awake thread
 * answers a light request several times faster than a pool of sleeping ones (the kernel wakes it on
 * the asker's CPU), and because it makes inodes and snapshots need no lock. It reads until nothing
 * is left and only then polls, so that a burst costs one wake-up.
 *
 * Nothing called from here may block: no source, no lock that is held over I/O, no notification of
 * the kernel (which waits for pages locked by a READ that only this thread could take).
 *
 * It ends when the filesystem was unmounted or quit_fd says so. A device that cannot be read for
 * another reason ends the mount but not the reactor: until fs_unmount is through, a stage operation
 * may wait for a READ that lies in the device. Threads: fs-reactor.
 */
#include <errno.h>
#include <poll.h>

#include "clairfs/base/log.h"

#include "fs_priv.h"

#define BROKEN_POLL_MS 10

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	struct fs *fs = userdata;

	/* Pages must outlive changes of attributes: who changes them is us, and we say so. */
	fs_caps_want(conn, FUSE_CAP_AUTO_INVAL_DATA, false);
	fs_caps_want(conn, FUSE_CAP_EXPLICIT_INVAL_DATA, true);
	fs_caps_want(conn, FUSE_CAP_ASYNC_READ, true);
	fs_caps_want(conn, FUSE_CAP_PARALLEL_DIROPS, true);
	fs_caps_want(conn, FUSE_CAP_READDIRPLUS, true);
	fs_caps_want(conn, FUSE_CAP_READDIRPLUS_AUTO, false);
	fs_caps_want(conn, FUSE_CAP_CACHE_SYMLINKS, true);
	fs_caps_want(conn, FUSE_CAP_WRITEBACK_CACHE, false);
	fs_caps_want(conn, FUSE_CAP_SPLICE_READ, false);
	fs_caps_want(conn, FUSE_CAP_SPLICE_WRITE, false);
	fs_caps_want(conn, FUSE_CAP_SPLICE_MOVE, false);
	conn->max_read = PIECE_BYTES; /* the mount option says the same */
	conn->max_write = MIN(conn->max_write, PIECE_BYTES);
	conn->max_background = 128;
	conn->congestion_threshold = 96;
	fs->has_no_open = fs_caps_has(conn, FUSE_CAP_NO_OPEN_SUPPORT);
	fs->has_no_opendir = fs_caps_has(conn, FUSE_CAP_NO_OPENDIR_SUPPORT);
	atomic_store(&fs->proto_major, conn->proto_major);
	atomic_store(&fs->proto_minor, conn->proto_minor);
	mutex_lock(&fs->mu);
	fs->is_initialised = true;
	cond_broadcast(&fs->cv);
	mutex_unlock(&fs->mu);
}

const struct fuse_lowlevel_ops fs_ops = {
	.init = op_init,
	.lookup = fs_op_lookup,
	.forget = fs_op_forget,
	.forget_multi = fs_op_forget_multi,
	.getattr = fs_op_getattr,
	.open = fs_op_open,
	.read = fs_op_read,
	.flush = fs_op_flush,
	.release = fs_op_release,
	.fsync = fs_op_fsync,
	.opendir = fs_op_opendir,
	.readdir = fs_op_readdir,
	.readdirplus = fs_op_readdirplus,
	.fsyncdir = fs_op_fsync,
	.statfs = fs_op_statfs,
	.getxattr = fs_op_getxattr,
	.listxattr = fs_op_listxattr,
	.access = fs_op_access,
	.ioctl = fs_op_ioctl,
	.lseek = fs_op_lseek,
};

/* Takes what is there. -EAGAIN when that was all, -ENODEV when the connection is gone. */
static int reactor_drain(struct fs *fs, struct fuse_buf *buf)
{
	while (!atomic_load_explicit(&fs->is_quitting, memory_order_relaxed)) {
		int rc = fuse_session_receive_buf(fs->se, buf);

		if (rc > 0)
			fuse_session_process_buf(fs->se, buf);
		else if (rc != -EINTR)
			return rc == 0 ? -ENODEV : rc;
	}
	return -ENODEV;
}

/* Wakes fs_wait and fs_start: nobody serves the mount any more, or not for long. */
static void reactor_ended(struct fs *fs)
{
	mutex_lock(&fs->mu);
	fs->is_ended = true;
	cond_broadcast(&fs->cv);
	mutex_unlock(&fs->mu);
	fs_stop(fs);
}

void *fs_reactor_main(void *arg)
{
	struct fs *fs = arg;
	struct fuse_buf buf = { .mem = NULL };
	struct pollfd fds[3] = { { .fd = fs->quit_fd, .events = POLLIN },
				 { .fd = fs->announce.done_fd, .events = POLLIN },
				 { .fd = fuse_session_fd(fs->se), .events = POLLIN } };
	bool is_broken = false;
	int rc;

	while ((rc = reactor_drain(fs, &buf)) != -ENODEV && !fds[0].revents) {
		if (rc != -EAGAIN && !is_broken) {
			log_error("the FUSE device cannot be read (errno %d): unmounting", -rc);
			is_broken = true;
			reactor_ended(fs);
		}
		poll(fds, rc == -EAGAIN ? 3 : 2, rc == -EAGAIN ? -1 : BROKEN_POLL_MS);
		if (fds[1].revents)
			fs_announce_finish(fs);
	}
	free(buf.mem);
	reactor_ended(fs);
	return NULL;
}
