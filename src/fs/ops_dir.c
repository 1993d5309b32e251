/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listing directories, straight from the index in its sorted order. The offset of an entry is its
 * place in that order: 1 after ".", 2 after "..", 3 + i after child i. The set of names is fixed
 * while mounted, so offsets stay good for ever and nothing is kept per open directory; OPENDIR is
 * refused, and the kernel then keeps listings by itself.
 *
 * READDIRPLUS makes every listed inode known to the kernel, as a LOOKUP would, and is counted
 * alike. Our own directory is not listed in the root; its files are listed without attributes,
 * because only a LOOKUP renders them.
 *
 * Runs on the reactor; must never block.
 */
#include <errno.h>
#include <string.h>

#include "fs_priv.h"

#define DIR_BUF_BYTES (64u << 10)
#define OFF_CHILDREN 2

struct listing {
	fuse_req_t req;
	struct fs *fs;
	fuse_ino_t ino;
	bool is_plus;
	size_t size, used;
};

int fs_dir_init(struct fs *fs)
{
	fs->dir_buf = malloc(DIR_BUF_BYTES);
	return fs->dir_buf ? 0 : -ENOMEM;
}

void fs_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = fs_of(req);

	metrics_add(fs->params.metrics, METRIC_UPCALL_OPENDIR, 1);
	if (fs->has_no_opendir) {
		fuse_reply_err(req, ENOSYS);
		return;
	}
	fi->keep_cache = 1;
	fi->cache_readdir = 1;
	fuse_reply_open(req, fi);
}

/* False when there is no more room. */
static bool put_entry(struct listing *l, const char *name, const struct fuse_entry_param *param,
		      off_t next)
{
	char *at = l->fs->dir_buf + l->used;
	size_t room = l->size - l->used;
	size_t need = l->is_plus ? fuse_add_direntry_plus(l->req, at, room, name, param, next)
				 : fuse_add_direntry(l->req, at, room, name, &param->attr, next);

	if (need > room)
		return false;
	l->used += need;
	return true;
}

static bool put_dots(struct listing *l, off_t off)
{
	struct fuse_entry_param param = { .attr = { .st_mode = S_IFDIR } };
	struct entry_id dir;

	if (off < 1) {
		param.attr.st_ino = l->ino;
		if (!put_entry(l, ".", &param, 1))
			return false;
	}
	if (off < 2) {
		param.attr.st_ino = FS_INO_ROOT;
		if (fs_entry_of(l->fs, l->ino, &dir) && !entry_eq(dir, ENTRY_ROOT))
			param.attr.st_ino = fs_ino_of(dataset_parent(l->fs->params.dataset, dir));
		return put_entry(l, "..", &param, 2);
	}
	return true;
}

/* No LOOKUP could reach a name that is longer. */
static bool is_listed(const struct fs *fs, struct entry_id child)
{
	size_t len;

	(void)dataset_name(fs->params.dataset, child, &len);
	return len <= FS_NAME_MAX && !entry_eq(child, fs->shadowed);
}

static bool put_child(struct listing *l, struct entry_id child, off_t next)
{
	struct fuse_entry_param param;
	char name[FS_NAME_MAX + 1];
	size_t len;
	const char *bytes;

	if (!is_listed(l->fs, child))
		return true;
	bytes = dataset_name(l->fs->params.dataset, child, &len);
	memcpy(name, bytes, len);
	name[len] = '\0';
	fs_entry_param(l->fs, child, &param);
	return put_entry(l, name, &param, next);
}

/* The children from `first` on that fit; returns the first one that did not. */
static uint32_t list_children(struct listing *l, struct entry_id dir, uint32_t first)
{
	const struct dataset *ds = l->fs->params.dataset;
	uint32_t i, n = dataset_n_children(ds, dir);

	for (i = first; i < n; i++)
		if (!put_child(l, dataset_child(ds, dir, i), OFF_CHILDREN + (off_t)i + 1))
			break;
	return i;
}

static void put_vfiles(struct listing *l, off_t off)
{
	const struct fs_vfile *files = l->fs->params.vfiles;
	struct fuse_entry_param adir = { .ino = 0 };
	uint32_t n = 0;

	for (uint32_t i = 0; files && files[i].name; i++) {
		struct fuse_entry_param param = { .attr = { .st_mode = S_IFREG | 0444,
							    .st_ino = FS_INO_VFILE_SHOWN + i } };

		if (OFF_CHILDREN + (off_t)i >= off &&
		    !put_entry(l, files[i].name, &param, OFF_CHILDREN + (off_t)i + 1))
			return;
		n = i + 1;
	}
	if (!l->fs->params.announce)
		return;
	adir.attr = (struct stat){ .st_mode = S_IFDIR | 0555, .st_ino = FS_INO_ADIR };
	if (OFF_CHILDREN + (off_t)n >= off)
		(void)put_entry(l, FS_ADIR_NAME, &adir, OFF_CHILDREN + (off_t)n + 1);
}

static void list_dir(struct listing *l, off_t off)
{
	const struct dataset *ds = l->fs->params.dataset;
	uint32_t first = off > OFF_CHILDREN ? (uint32_t)(off - OFF_CHILDREN) : 0, end = first;
	struct entry_id dir;

	if (l->ino != FS_INO_VDIR && l->ino != FS_INO_ADIR &&
	    (!fs_entry_of(l->fs, l->ino, &dir) || dataset_kind(ds, dir) != ENTRY_KIND_DIR)) {
		fuse_reply_err(l->req, ENOTDIR);
		return;
	}
	if (put_dots(l, off)) {
		if (l->ino == FS_INO_VDIR)
			put_vfiles(l, off);
		else if (l->ino != FS_INO_ADIR) /* of that nothing is listed */
			end = list_children(l, dir, first);
	}
	if (fuse_reply_buf(l->req, l->fs->dir_buf, l->used) != 0 || !l->is_plus)
		return;
	for (uint32_t i = first; i < end; i++) {
		struct entry_id child = dataset_child(ds, dir, i);

		if (is_listed(l->fs, child))
			fs_inode_known(l->fs, child,
				       fs_ino_renewed(child, dataset_renewal(ds, child)));
	}
}

static void read_dir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, bool is_plus)
{
	struct listing l = { .req = req, .fs = fs_of(req), .ino = ino, .is_plus = is_plus };

	l.size = MIN(size, DIR_BUF_BYTES);
	metrics_add(l.fs->params.metrics, METRIC_UPCALL_READDIR, 1);
	if (off < 0 || off > (off_t)UINT32_MAX) {
		fuse_reply_err(req, EINVAL);
		return;
	}
	list_dir(&l, off);
}

void fs_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		   struct fuse_file_info *fi)
{
	read_dir(req, ino, size, off, false);
}

void fs_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	read_dir(req, ino, size, off, true);
}
