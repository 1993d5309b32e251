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
 * The kernel keeps the inode of a name that was looked up once until it wants the memory, and
 * anybody may look up any number of names: the texts are ours to pay. So of each user the newest
 * are kept and older ones dropped (ESTALE for who reads them now), and others together cannot take
 * more than a share, of which the greediest loses first. A lookup is never refused for what others
 * have looked up, and root and the user who mounted it lose nothing to anybody else.
 *
 * A LOOKUP is answered at once: the kernel may hold a lock of the directory meanwhile, and
 * everybody else who looks a name up there would wait for that, beyond the reach of signals. The
 * text of an inode may come later (announce.c): then it is GETATTR that waits, for the size, and
 * that nobody else waits for. The kernel asks for it before anything is read, as the attributes of
 * the LOOKUP are not valid for any time.
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
	uid_t uid; /* who looked it up */
	struct stat st;
	struct buf_writer text; /* empty while it is awaited */
	struct list waiters;    /* GETATTRs that want its size */
	uint32_t n_waiters;
	bool is_kept;          /* also when it is forgotten: it may be asked for again */
	_Atomic bool *is_gone; /* awaited: raised when nobody wants it any more; else NULL */
};

/* Others than root and our own user get a text that is this old at most: else a loop of opens would
 * keep the reactor busy with rendering. */
#define RENDERED_NS (100 * NS_PER_MS)
struct fs_rendered {
	const struct fs_vfile *file;
	uint64_t ns;
	struct buf_writer text;
	struct fs_rendered *next;
};

struct waiter {
	struct list node;
	struct fs_snapshot *s;
	fuse_req_t req;
};

static const char refusal[] = "error: " FS_REFUSAL "\n";

static void answer_waiters(struct fs_snapshot *s, int error)
{
	struct list *node;

	while ((node = list_pop_head(&s->waiters))) {
		struct waiter *w = container_of(node, struct waiter, node);

		if (error)
			fuse_reply_err(w->req, error);
		else
			fuse_reply_attr(w->req, &s->st, FS_DAY_S);
		free(w);
	}
	s->n_waiters = 0;
}

static void snapshot_free(struct fs_snapshot *s)
{
	if (!s)
		return;
	answer_waiters(s, ESTALE);
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
	snapshot_free(s);
}

bool fs_is_virtual(fuse_ino_t ino)
{
	return (ino & ((1ull << FS_INO_RENEWAL_SHIFT) - 1)) >= FS_INO_VDIR;
}

static void fs_vdir_stat(struct fs *fs, struct stat *ret)
{
	fs_stat_entry(fs, ENTRY_ROOT, ret);
	ret->st_mode = S_IFDIR | 0555;
	ret->st_nlink = 2;
	ret->st_ino = FS_INO_VDIR;
}

/* --- how many are kept --- */

struct share {
	uint32_t n;
	size_t bytes;
	struct fs_snapshot *oldest;
};

/* Texts of one user, or of all that fs_may_tell leaves out. */
static struct share vfile_share(struct fs *fs, uid_t uid, bool is_of_others)
{
	struct share share = { .n = 0 };

	for (struct list *node = fs->snapshots.next; node != &fs->snapshots; node = node->next) {
		struct fs_snapshot *s = container_of(node, struct fs_snapshot, node);

		if (is_of_others ? fs_may_tell(s->uid) : s->uid != uid)
			continue;
		share.n++;
		share.bytes += s->text.size;
		share.oldest = s;
	}
	return share;
}

/* The oldest text of the one who has the most of the others' bytes. */
static struct fs_snapshot *oldest_of_greediest(struct fs *fs)
{
	struct share most = { .n = 0 };

	for (struct list *node = fs->snapshots.next; node != &fs->snapshots; node = node->next) {
		struct fs_snapshot *s = container_of(node, struct fs_snapshot, node);
		struct share share = fs_may_tell(s->uid) ? most : vfile_share(fs, s->uid, false);

		if (!most.oldest || share.bytes > most.bytes ||
		    (share.bytes == most.bytes && share.n > most.n))
			most = share;
	}
	return most.oldest;
}

/* Room for a text of that size; the newest one of a user may be larger than its share. */
static void vfile_make_room(struct fs *fs, uid_t uid, size_t size)
{
	struct share own = vfile_share(fs, uid, false), others;

	while (own.n && (own.n >= FS_USER_TEXTS || own.bytes + size > FS_USER_TEXT_BYTES)) {
		snapshot_drop(fs, own.oldest);
		own = vfile_share(fs, uid, false);
	}
	if (fs_may_tell(uid))
		return;
	others = vfile_share(fs, uid, true);
	while (others.n &&
	       (others.n >= FS_OTHERS_TEXTS || others.bytes + size > FS_OTHERS_TEXT_BYTES)) {
		snapshot_drop(fs, oldest_of_greediest(fs));
		others = vfile_share(fs, uid, true);
	}
}

/* --- one of them --- */

static void stat_text(struct fs *fs, fuse_ino_t ino, size_t size, struct stat *ret)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now); /* a date to show; nothing is decided by it */
	fs_stat_entry(fs, ENTRY_ROOT, ret);
	ret->st_mode = S_IFREG | 0444;
	ret->st_nlink = 1;
	ret->st_ino = ino;
	ret->st_size = (off_t)size;
	ret->st_blocks = (blkcnt_t)DIV_ROUND_UP(size, 512);
	ret->st_atim = ret->st_mtim = ret->st_ctim = now;
}

/* A new snapshot in the list, without references yet, or NULL: out of memory. Uses up the text. */
static struct fs_snapshot *snapshot_new(struct fs *fs, uid_t uid, struct buf_writer *take_text)
{
	struct fs_snapshot *s = take_text->is_bad ? NULL : calloc(1, sizeof(*s));

	if (!s) {
		buf_writer_fini(take_text);
		return NULL;
	}
	vfile_make_room(fs, uid, take_text->size);
	list_init(&s->waiters);
	s->text = *take_text;
	s->uid = uid;
	s->ino = FS_INO_SNAPSHOT + fs->next_snapshot++;
	stat_text(fs, s->ino, s->text.size, &s->st);
	list_push_head(&fs->snapshots, &s->node); /* the newest is asked for next */
	return s;
}

/* False: nobody has got it. Its attributes are asked for again while it is awaited. */
static bool reply_snapshot(fuse_req_t req, struct fs *fs, struct fs_snapshot *s)
{
	struct fuse_entry_param param = { .ino = s->ino,
					  .attr = s->st,
					  .attr_timeout = s->is_gone ? 0 : FS_DAY_S };
	bool is_taken = fuse_reply_entry(req, &param) == 0;

	s->nlookup += is_taken;
	if (s->nlookup == 0 && !s->is_kept)
		snapshot_drop(fs, s);
	return is_taken;
}

static void fs_vfile_reply_text(fuse_req_t req, struct fs *fs, struct buf_writer *take_text)
{
	struct fs_snapshot *s = snapshot_new(fs, fuse_req_ctx(req)->uid, take_text);

	if (s)
		(void)reply_snapshot(req, fs, s);
	else
		fuse_reply_err(req, ENOMEM);
}

/* --- texts that are awaited --- */

fuse_ino_t fs_vfile_reply_awaited(fuse_req_t req, struct fs *fs, _Atomic bool *is_gone)
{
	struct fs_snapshot *s;
	struct buf_writer none;
	fuse_ino_t ino;

	buf_writer_init(&none);
	s = snapshot_new(fs, fuse_req_ctx(req)->uid, &none);
	if (!s) {
		fuse_reply_err(req, ENOMEM);
		return 0;
	}
	s->is_gone = is_gone;
	ino = s->ino;
	if (!reply_snapshot(req, fs, s))
		return 0;
	s->is_kept = true;
	return ino;
}

bool fs_vfile_reply_again(fuse_req_t req, struct fs *fs, fuse_ino_t ino)
{
	struct fs_snapshot *s = snapshot_find(fs, ino);

	if (!s)
		return false;
	(void)reply_snapshot(req, fs, s);
	return true;
}

void fs_vfile_fill(struct fs *fs, fuse_ino_t ino, struct buf_writer *take_text)
{
	struct fs_snapshot *s = snapshot_find(fs, ino);

	if (!s) {
		buf_writer_fini(take_text);
		return;
	}
	s->text = *take_text;
	s->is_gone = NULL;
	stat_text(fs, s->ino, s->text.size, &s->st);
	answer_waiters(s, s->text.is_bad ? ENOMEM : 0);
}

void fs_vfile_end_waiting(struct fs *fs)
{
	for (struct list *node = fs->snapshots.next; node != &fs->snapshots; node = node->next)
		answer_waiters(container_of(node, struct fs_snapshot, node), ENOTCONN);
}

/* Who waits was sent a signal. */
static void vfile_interrupted(fuse_req_t req, void *data)
{
	struct waiter *w = data;
	struct fs_snapshot *s = w->s;

	list_remove(&w->node);
	free(w);
	if (--s->n_waiters == 0)
		atomic_store(s->is_gone, true);
	fuse_reply_err(req, EINTR);
}

static void wait_for_text(fuse_req_t req, struct fs_snapshot *s)
{
	struct waiter *w = NULL;
	int error = EINTR;

	if (!fuse_req_interrupted(req)) {
		error = s->n_waiters < FS_WAITERS_MAX ? ENOMEM : EBUSY;
		w = s->n_waiters < FS_WAITERS_MAX ? calloc(1, sizeof(*w)) : NULL;
	}
	if (!w) {
		fuse_reply_err(req, error);
		return;
	}
	w->s = s;
	w->req = req;
	list_push_tail(&s->waiters, &w->node);
	s->n_waiters++;
	fuse_req_interrupt_func(req, vfile_interrupted, w);
}

void fs_vfile_reply_refused(fuse_req_t req, struct fs *fs)
{
	struct fuse_entry_param param = { .ino = FS_INO_REFUSED, .attr_timeout = FS_DAY_S };

	stat_text(fs, FS_INO_REFUSED, strlen(refusal), &param.attr);
	fuse_reply_entry(req, &param);
}

/* One for each file; NULL: out of memory. */
static struct fs_rendered *rendered_of(struct fs *fs, const struct fs_vfile *file)
{
	struct fs_rendered *r = fs->rendered;

	while (r && r->file != file)
		r = r->next;
	if (r)
		return r;
	r = calloc(1, sizeof(*r));
	if (!r)
		return NULL;
	r->file = file;
	buf_writer_init(&r->text);
	r->next = fs->rendered;
	fs->rendered = r;
	return r;
}

/* A text that others may have been given just now as well. */
static int render_shared(struct fs *fs, const struct fs_vfile *file, struct buf_writer *out)
{
	struct fs_rendered *r = rendered_of(fs, file);
	uint64_t now = clock_now(fs->params.clock);
	int rc = 0;

	if (!r)
		return -ENOMEM;
	if (!r->ns || now >= r->ns + RENDERED_NS) {
		buf_writer_fini(&r->text);
		buf_writer_init(&r->text);
		rc = file->render(file->ctx, &r->text);
		r->ns = rc == 0 && !r->text.is_bad ? now : 0;
	}
	if (rc == 0 && r->text.size > 0)
		buf_put_bytes(out, r->text.data, r->text.size);
	return rc < 0 ? rc : r->text.is_bad || out->is_bad ? -ENOMEM : 0;
}

static void reply_rendered(fuse_req_t req, struct fs *fs, const struct fs_vfile *file)
{
	bool is_shared = !fs_may_tell(fuse_req_ctx(req)->uid);
	struct buf_writer text;
	int rc;

	buf_writer_init(&text);
	rc = is_shared ? render_shared(fs, file, &text) : file->render(file->ctx, &text);
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
	else if (file)
		reply_rendered(req, fs, file);
	else
		fuse_reply_entry(req, &none);
}

void fs_vfile_getattr(fuse_req_t req, struct fs *fs, fuse_ino_t ino)
{
	struct fs_snapshot *s = snapshot_find(fs, ino);
	struct stat st;

	if (s && s->is_gone) {
		wait_for_text(req, s);
		return;
	}
	if (s) {
		st = s->st;
	} else if (ino == FS_INO_VDIR || ino == FS_INO_ADIR) {
		fs_vdir_stat(fs, &st);
		st.st_ino = ino;
	} else if (ino == FS_INO_REFUSED) {
		stat_text(fs, ino, strlen(refusal), &st);
	} else {
		fuse_reply_err(req, ESTALE);
		return;
	}
	fuse_reply_attr(req, &st, FS_DAY_S);
}

void fs_vfile_read(fuse_req_t req, struct fs *fs, fuse_ino_t ino, size_t size, off_t off)
{
	struct fs_snapshot *s = snapshot_find(fs, ino);
	const char *text = s ? (const char *)s->text.data : refusal;
	size_t length = s ? s->text.size : strlen(refusal);

	if (!s && ino != FS_INO_REFUSED)
		fuse_reply_err(req, ESTALE);
	else if (off < 0 || (size_t)off >= length)
		fuse_reply_buf(req, NULL, 0);
	else
		fuse_reply_buf(req, text + off, MIN(length - (size_t)off, size));
}

void fs_vfile_forget(struct fs *fs, fuse_ino_t ino, uint64_t count)
{
	struct fs_snapshot *s = snapshot_find(fs, ino);

	if (!s)
		return;
	s->nlookup -= MIN(count, s->nlookup);
	if (s->nlookup == 0 && !s->is_kept)
		snapshot_drop(fs, s);
}

void fs_vfiles_fini(struct fs *fs)
{
	struct fs_rendered *r;
	struct list *node;

	while ((r = fs->rendered)) {
		fs->rendered = r->next;
		buf_writer_fini(&r->text);
		free(r);
	}
	while ((node = list_pop_head(&fs->snapshots)))
		snapshot_free(container_of(node, struct fs_snapshot, node));
}
