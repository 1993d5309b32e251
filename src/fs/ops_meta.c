/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names and attributes. Everything is answered from the dataset index in memory, with timeouts of a
 * day also for names that do not exist: the second time the kernel does not ask. What the kernel
 * can do for itself is answered ENOSYS, once per mount and kind: OPENDIR, GETXATTR, LISTXATTR,
 * ACCESS. IOCTL has an answer of its own, ENOTTY, because Python asks every file it opens whether
 * it is a terminal.
 *
 * Runs on the reactor; must never block, in particular never ask the source.
 */
#include <errno.h>
#include <string.h>

#include "clairfs/hint.h"

#include "clairfs/metrics/trace.h"
#include "fs_priv.h"
#include "hint_check.h"

static void count_upcall(fuse_req_t req, enum metric id)
{
	metrics_add(fs_of(req)->params.metrics, id, 1);
}

void fs_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fs *fs = fs_of(req);
	struct fuse_entry_param param = { .entry_timeout = FS_DAY_S, .attr_timeout = FS_DAY_S };
	size_t len = strnlen(name, FS_NAME_MAX + 1);
	struct entry_id dir, entry;

	count_upcall(req, METRIC_UPCALL_LOOKUP);
	if (fs_is_virtual(parent) || (parent == FS_INO_ROOT && strcmp(name, FS_VDIR_NAME) == 0)) {
		fs_vfile_lookup(req, fs, parent, name);
		return;
	}
	if (len > FS_NAME_MAX) {
		fuse_reply_err(req, ENAMETOOLONG);
		return;
	}
	if (!fs_entry_of(fs, parent, &dir)) {
		fuse_reply_err(req, ESTALE);
		return;
	}
	entry = dataset_lookup(fs->params.dataset, dir, name, len);
	if (entry_eq(entry, ENTRY_NONE)) {
		fuse_reply_entry(
			req,
			&param); /* no inode: a name that does not exist, worth remembering too */
		return;
	}
	fs_entry_param(fs, entry, &param);
	/* An answer that came too late (the asking process was killed) is no reference. */
	if (fuse_reply_entry(req, &param) == 0)
		fs_inode_known(fs, entry, param.ino);
}

struct fs_look {
	struct cache_read read;
	struct fs *fs;
	fuse_req_t req;
	fuse_ino_t ino;
};

/* Also when the source has failed: then the size is what was known, and asked for again. A file that
 * is gone is gone: there will be no READ to say it. */
static void getattr_looked(struct cache_read *read, int status, const struct iovec *iov, int n_iov)
{
	struct fs_look *look = container_of(read, struct fs_look, read);
	struct fuse_entry_param param;

	fs_entry_param(look->fs, read->entry, &param);
	if (status == -ENOENT || status == -ENOTDIR)
		fuse_reply_err(look->req, -status);
	else if (param.ino != look->ino) /* renewed meanwhile: its pages do not go with this size */
		fuse_reply_err(look->req, ESTALE);
	else
		fuse_reply_attr(look->req, &param.attr, param.attr_timeout);
	free(look);
}

/* The size of an empty file, which may have grown: the source has to be asked. */
static void look_first(fuse_req_t req, struct fs *fs, struct entry_id entry, fuse_ino_t ino)
{
	struct fs_look *look = calloc(1, sizeof(*look));

	if (!look) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	look->fs = fs;
	look->req = req;
	look->ino = ino;
	look->read.entry = entry;
	look->read.done = getattr_looked;
	cache_look(fs->params.cache, &look->read);
}

void fs_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = fs_of(req);
	struct fuse_entry_param param;
	struct entry_id entry;

	count_upcall(req, METRIC_UPCALL_GETATTR);
	if (fs_is_virtual(ino)) {
		fs_vfile_getattr(req, fs, ino);
		return;
	}
	if (!fs_entry_of(fs, ino, &entry)) {
		fuse_reply_err(req, ESTALE);
		return;
	}
	fs_entry_param(fs, entry, &param);
	if (param.ino != ino) /* replaced: those that have the old one open have no attributes */
		fuse_reply_err(req, ESTALE);
	else if (param.attr_timeout == 0 && !fs_is_settler(fs, fuse_req_ctx(req)->pid))
		look_first(req, fs, entry, ino);
	else
		fuse_reply_attr(req, &param.attr, param.attr_timeout);
}

void fs_op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
	count_upcall(req, METRIC_UPCALL_FORGET);
	fs_inode_forgotten(fs_of(req), ino, n);
	fuse_reply_none(req);
}

void fs_op_forget_multi(fuse_req_t req, size_t n, struct fuse_forget_data *forgets)
{
	count_upcall(req, METRIC_UPCALL_FORGET);
	for (size_t i = 0; i < n; i++)
		fs_inode_forgotten(fs_of(req), forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

void fs_op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs st;

	count_upcall(req, METRIC_UPCALL_STATFS);
	fs_statfs_get(fs_of(req), &st);
	fuse_reply_statfs(req, &st);
}

/* What single reads do is nobody's business but the user's who mounted. */
static void take_trace(fuse_req_t req, const void *in, size_t in_size, size_t out_size)
{
	const struct fs *fs = fs_of(req);
	struct trace_chunk *chunk;
	int rc = -EINVAL;

	if (!fs_may_tell(fuse_req_ctx(req)->uid)) {
		fuse_reply_err(req, EACCES);
		return;
	}
	chunk = malloc(sizeof(*chunk));
	if (!chunk) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	if (in_size >= sizeof(*chunk) && out_size >= sizeof(*chunk) && fs->params.metrics) {
		memcpy(chunk, in, sizeof(*chunk));
		rc = metrics_trace_take(fs->params.metrics, clock_now(fs->params.clock), chunk);
	}
	if (rc < 0)
		fuse_reply_err(req, -rc);
	else
		fuse_reply_ioctl(req, 0, chunk, sizeof(*chunk));
	free(chunk);
}

/* Steps of a training loop: answered at once. */
static int take_steps(fuse_req_t req, struct fs *fs, const void *in, size_t in_size)
{
	uid_t uid = fuse_req_ctx(req)->uid;
	struct clairfs_steps steps;
	int rc = fs->params.steps ? 0 : -ENOTTY;

	if (rc == 0 && !fs_may_tell(uid))
		rc = -EPERM;
	if (rc == 0)
		rc = hint_check_steps(in, in_size, &steps);
	if (rc < 0)
		return rc;
	return fs->params.steps(fs->params.steps_ctx, uid, &steps);
}

static void reply_ioctl(fuse_req_t req, int rc)
{
	if (rc < 0)
		fuse_reply_err(req, -rc);
	else
		fuse_reply_ioctl(req, 0, NULL, 0);
}

void fs_op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg, struct fuse_file_info *fi,
		 unsigned flags, const void *in, size_t in_size, size_t out_size)
{
	count_upcall(req, METRIC_UPCALL_IOCTL);
	if (cmd == CLAIRFS_IOC_ANNOUNCE && fs_is_virtual(ino))
		fs_announce_ioctl(req, fs_of(req), in, in_size, out_size);
	else if (cmd == CLAIRFS_IOC_LIST && fs_is_virtual(ino))
		fs_announce_list(req, fs_of(req), in, in_size, out_size);
	else if (cmd == TRACE_IOC_TAKE && fs_is_virtual(ino))
		take_trace(req, in, in_size, out_size);
	else if (cmd == CLAIRFS_IOC_STEPS && fs_is_virtual(ino))
		reply_ioctl(req, take_steps(req, fs_of(req), in, in_size));
	else
		fuse_reply_err(req, ENOTTY);
}

void fs_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	count_upcall(req, METRIC_UPCALL_XATTR);
	fuse_reply_err(req, ENOSYS);
}

void fs_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	count_upcall(req, METRIC_UPCALL_XATTR);
	fuse_reply_err(req, ENOSYS);
}

void fs_op_access(fuse_req_t req, fuse_ino_t ino, int mask)
{
	count_upcall(req, METRIC_UPCALL_OTHER);
	fuse_reply_err(req, ENOSYS);
}

void fs_op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	count_upcall(req, METRIC_UPCALL_OTHER);
	fuse_reply_err(req, ENOSYS); /* to the kernel this is success, from now on without asking */
}

void fs_op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	count_upcall(req, METRIC_UPCALL_OTHER);
	fuse_reply_err(req, ENOSYS); /* SEEK_DATA and SEEK_HOLE: the kernel then knows no holes */
}
