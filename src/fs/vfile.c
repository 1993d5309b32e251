/* SPDX-License-Identifier: Apache-2.0 */
/*
 * <mountpoint>/.clairfs: state as files, for people and programs that only know cat. It is not
 * listed in the root, so that no job trains on it, but can be looked up.
 *
 * A file is rendered when its name is looked up, into an inode of its own with the exact size; that
 * inode keeps this text until the kernel forgets it. This way a reader that takes several reads
 * sees one state, and it does not matter whether OPEN is answered: the text is bound to the inode,
 * not to an open file. The name is never cached, so the next open sees new text. (The kernel first
 * asks whether the old name still holds, then looks it up again: two renderings per open.)
 *
 * Whoever holds very many of these files open gets EBUSY for the next one; the texts are ours to
 * pay.
 *
 * Runs on the reactor; rendering must be quick.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "fs_priv.h"

struct fs_snapshot {
	struct list node;
	fuse_ino_t ino;
	uint64_t nlookup;
	struct stat st;
	struct buf_writer text;
};

static void snapshot_free(struct fs_snapshot *s)
{
	if (!s)
		return;
	buf_writer_fini(&s->text);
	free(s);
}

static struct fs_snapshot *snapshot_find(struct fs *fs, fuse_ino_t ino)
{
	for (struct list *node = fs->snapshots.next; node != &fs->snapshots; node = node->next) {
		struct fs_snapshot *s = container_of(node, struct fs_snapshot, node);

		if (s->ino == ino)
			return s;
	}
	return NULL;
}

static void snapshot_drop(struct fs *fs, struct fs_snapshot *s)
{
	list_remove(&s->node);
	fs->n_snapshots--;
	snapshot_free(s);
}

bool fs_is_virtual(fuse_ino_t ino)
{
	return (ino & ((1ull << FS_INO_RENEWAL_SHIFT) - 1)) >= FS_INO_VDIR;
}

void fs_vdir_stat(struct fs *fs, struct stat *ret)
{
	fs_stat_entry(fs, ENTRY_ROOT, ret);
	ret->st_mode = S_IFDIR | 0555;
	ret->st_nlink = 2;
	ret->st_ino = FS_INO_VDIR;
}

static void stat_snapshot(struct fs *fs, struct fs_snapshot *s)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now); /* a date to show; nothing is decided by it */
	fs_stat_entry(fs, ENTRY_ROOT, &s->st);
	s->st.st_mode = S_IFREG | 0444;
	s->st.st_nlink = 1;
	s->st.st_ino = s->ino;
	s->st.st_size = (off_t)s->text.size;
	s->st.st_blocks = (blkcnt_t)DIV_ROUND_UP(s->text.size, 512);
	s->st.st_atim = s->st.st_mtim = s->st.st_ctim = now;
}

/* A new snapshot in the list, without references yet, or NULL with *ret_errno. Uses up the text. */
static struct fs_snapshot *snapshot_new(struct fs *fs, struct buf_writer *take_text, int *ret_errno)
{
	struct fs_snapshot *s = NULL;

	*ret_errno = take_text->is_bad ? ENOMEM : EBUSY;
	if (!take_text->is_bad && fs->n_snapshots < FS_MAX_SNAPSHOTS) {
		*ret_errno = ENOMEM;
		s = calloc(1, sizeof(*s));
	}
	if (!s) {
		buf_writer_fini(take_text);
		return NULL;
	}
	s->text = *take_text;
	s->ino = FS_INO_SNAPSHOT + fs->next_snapshot++;
	stat_snapshot(fs, s);
	list_push_head(&fs->snapshots, &s->node); /* the newest is asked for next */
	fs->n_snapshots++;
	return s;
}

void fs_vfile_reply_text(fuse_req_t req, struct fs *fs, struct buf_writer *take_text)
{
	struct fuse_entry_param param = { .attr_timeout = FS_DAY_S };
	int error;
	struct fs_snapshot *s = snapshot_new(fs, take_text, &error);

	if (!s) {
		fuse_reply_err(req, error);
		return;
	}
	param.ino = s->ino;
	param.attr = s->st;
	if (fuse_reply_entry(req, &param) == 0)
		s->nlookup++;
	else
		snapshot_drop(fs, s);
}

static void reply_rendered(fuse_req_t req, struct fs *fs, const struct fs_vfile *file)
{
	struct buf_writer text;
	int rc = -EBUSY;

	buf_writer_init(&text);
	if (fs->n_snapshots < FS_MAX_SNAPSHOTS)
		rc = file->render(file->ctx, &text);
	if (rc == 0) {
		fs_vfile_reply_text(req, fs, &text);
		return;
	}
	buf_writer_fini(&text);
	fuse_reply_err(req, -rc);
}

static const struct fs_vfile *vfile_find(const struct fs *fs, const char *name)
{
	const struct fs_vfile *file = fs->params.vfiles;

	while (file && file->name && strcmp(file->name, name) != 0)
		file++;
	return file && file->name ? file : NULL;
}

/* One of the two directories of our own. */
static void reply_dir(fuse_req_t req, struct fs *fs, fuse_ino_t ino)
{
	struct fuse_entry_param param = { .ino = ino,
					  .entry_timeout = FS_DAY_S,
					  .attr_timeout = FS_DAY_S };

	fs_vdir_stat(fs, &param.attr);
	param.attr.st_ino = ino;
	fuse_reply_entry(req, &param);
}

void fs_vfile_lookup(fuse_req_t req, struct fs *fs, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param none = { .entry_timeout = FS_DAY_S };
	const struct fs_vfile *file = vfile_find(fs, name);

	if (parent == FS_INO_ROOT)
		reply_dir(req, fs, FS_INO_VDIR);
	else if (parent == FS_INO_ADIR)
		fs_announce_lookup(req, fs, name);
	else if (parent != FS_INO_VDIR)
		fuse_reply_err(req, ENOTDIR);
	else if (fs->params.announce && strcmp(name, FS_ADIR_NAME) == 0)
		reply_dir(req, fs, FS_INO_ADIR);
	else if (fs->params.announce && strcmp(name, FS_FIFO_NAME) == 0)
		fs_fifo_lookup(req, fs, false);
	else if (file)
		reply_rendered(req, fs, file);
	else
		fuse_reply_entry(req, &none);
}

void fs_vfile_getattr(fuse_req_t req, struct fs *fs, fuse_ino_t ino)
{
	struct fs_snapshot *s = snapshot_find(fs, ino);
	struct stat st;

	if (s) {
		st = s->st;
	} else if (ino == FS_INO_VDIR || ino == FS_INO_ADIR) {
		fs_vdir_stat(fs, &st);
		st.st_ino = ino;
	} else if (ino == FS_INO_FIFO) {
		fs_fifo_stat(fs, &st);
	} else {
		fuse_reply_err(req, ESTALE);
		return;
	}
	fuse_reply_attr(req, &st, FS_DAY_S);
}

void fs_vfile_read(fuse_req_t req, struct fs *fs, fuse_ino_t ino, size_t size, off_t off)
{
	struct fs_snapshot *s = snapshot_find(fs, ino);
	size_t left;

	if (!s) {
		fuse_reply_err(req, ESTALE);
		return;
	}
	if (off < 0 || (size_t)off >= s->text.size) {
		fuse_reply_buf(req, NULL, 0);
		return;
	}
	left = s->text.size - (size_t)off;
	fuse_reply_buf(req, (const char *)s->text.data + off, MIN(left, size));
}

void fs_vfile_forget(struct fs *fs, fuse_ino_t ino, uint64_t count)
{
	struct fs_snapshot *s = snapshot_find(fs, ino);

	if (!s)
		return;
	s->nlookup -= MIN(count, s->nlookup);
	if (s->nlookup == 0)
		snapshot_drop(fs, s);
}

void fs_vfiles_fini(struct fs *fs)
{
	struct list *node;

	while ((node = list_pop_head(&fs->snapshots)))
		snapshot_free(container_of(node, struct fs_snapshot, node));
}
