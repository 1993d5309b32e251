/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders told through the mount, the one thing that a job in a container is sure to see. No file of
 * a read-only mount can be written or given attributes: the kernel says EROFS without asking us.
 * Two things do get through:
 *
 *   - an ioctl on any file of .clairfs (hint.h): exactly one request, and a status;
 *   - looking up .clairfs/announce/SPEC: for shells, `cat` shows the answer. A name has no '/', and
 *     the kernel may ask for one name twice in a row (is the old one still good? no: look it up),
 *     so the same question of the same thread within a second is answered from memory, unless
 *     another order was told in between.
 *
 * Only root and our own user may: that is decided here, on the reactor, before anything is kept,
 * and so are sizes and versions. Setting up an order may read a list from a file and take seconds,
 * or wait for a source that hangs. So requests wait on a thread, one of each of the two users,
 * neither of whom can take the other's; no more than a few wait there. The reactor gives the
 * answers, because snapshots are its own. Whoever is interrupted gets EINTR at once: what had not
 * begun never will, and what had is given up (a list in parts reads no file, and is not).
 *
 * Threads: fs-announce runs asked_main, everything else the reactor or who frees the fs.
 */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

#include "clairfs/base/log.h"
#include "clairfs/hint.h"

#include "fs_priv.h"
#include "hint_check.h"

#define SAME_QUESTION_NS NS_PER_S

enum announce_kind { ANNOUNCE_IOCTL, ANNOUNCE_LIST, ANNOUNCE_LOOKUP };

struct announcement {
	struct list node;
	enum announce_kind kind;
	struct fs_asked *asked;
	fuse_req_t req; /* reactor: NULL once it is answered, as of a lookup from the start */
	fuse_ino_t ino; /* of a lookup: the file that is waited for */
	struct fs_told told;
	pid_t pid;
	int status;
	uint64_t serial;  /* how many orders were told, with this one */
	bool is_waiting;  /* asked->mu: not begun */
	bool is_finished; /* asked->mu */
	_Atomic bool is_gone;
	struct buf_writer answer;
	struct clairfs_list list;
	char job[CLAIRFS_HINT_JOB];
	char text[];
};

bool fs_may_tell(uid_t uid)
{
	return uid == 0 || uid == geteuid();
}

static enum fs_lane lane_of(uid_t uid)
{
	return uid == geteuid() ? FS_LANE_OWNER : FS_LANE_ROOT;
}

void fs_announce_init(struct fs *fs)
{
	struct fs_announce *a = &fs->announce;

	for (unsigned i = 0; i < ARRAY_LEN(a->asked); i++) {
		a->asked[i].fs = fs;
		mutex_init(&a->asked[i].mu);
		cond_init(&a->asked[i].cv);
		list_init(&a->asked[i].waiting);
	}
	queue_init(&a->done);
	a->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

static void announcement_free(struct announcement *ann)
{
	buf_writer_fini(&ann->answer);
	free(ann);
}

void fs_announce_quit(struct fs *fs)
{
	for (unsigned i = 0; i < ARRAY_LEN(fs->announce.asked); i++) {
		struct fs_asked *asked = &fs->announce.asked[i];

		mutex_lock(&asked->mu);
		asked->is_closed = true;
		cond_broadcast(&asked->cv);
		mutex_unlock(&asked->mu);
		thr_join(&asked->thr);
	}
}

static void end_announcement(struct list *node)
{
	struct announcement *ann = container_of(node, struct announcement, node);

	if (ann->req)
		fuse_reply_err(ann->req, ENOTCONN);
	announcement_free(ann);
}

void fs_announce_fini(struct fs *fs)
{
	struct fs_announce *a = &fs->announce;
	struct list *node;

	for (unsigned i = 0; i < ARRAY_LEN(a->asked); i++) {
		while ((node = list_pop_head(&a->asked[i].waiting)))
			end_announcement(node);
		cond_fini(&a->asked[i].cv);
		mutex_fini(&a->asked[i].mu);
	}
	while ((node = queue_try_pop(&a->done)))
		end_announcement(node);
	fs_vfile_end_waiting(fs);
	queue_fini(&a->done);
	if (a->done_fd >= 0)
		close(a->done_fd);
}

/* --- the threads --- */

/* Not a part of a list that is not its last. */
static bool is_order(const struct fs_told *told)
{
	return !told->list || told->list->flags & CLAIRFS_LIST_LAST;
}

static int tell_order(struct fs *fs, const struct fs_told *told, struct buf_writer *answer)
{
	int rc = -ENOTCONN;

	if (!atomic_load(&fs->is_quitting))
		rc = fs->params.announce(fs->params.announce_ctx, told, answer);
	if (rc == 0 && is_order(told))
		atomic_fetch_add(&fs->announce.n_told, 1);
	return rc;
}

/* The next one, which has begun with this; NULL: there will be none. */
static struct announcement *announcement_take(struct fs_asked *asked)
{
	struct announcement *ann = NULL;

	mutex_lock(&asked->mu);
	while (list_is_empty(&asked->waiting) && !asked->is_closed)
		cond_wait(&asked->cv, &asked->mu);
	if (!list_is_empty(&asked->waiting)) {
		ann = container_of(list_pop_head(&asked->waiting), struct announcement, node);
		asked->n_waiting--;
		ann->is_waiting = false;
	}
	mutex_unlock(&asked->mu);
	return ann;
}

static void *asked_main(void *arg)
{
	struct fs_asked *asked = arg;
	struct fs_announce *a = &asked->fs->announce;
	struct announcement *ann;
	uint64_t one = 1;
	ssize_t put;

	while ((ann = announcement_take(asked))) {
		ann->status = -EINTR;
		if (!atomic_load(&ann->is_gone))
			ann->status = tell_order(asked->fs, &ann->told, &ann->answer);
		ann->serial = atomic_load(&a->n_told);
		mutex_lock(&asked->mu);
		ann->is_finished = true;
		mutex_unlock(&asked->mu);
		queue_push(&a->done, &ann->node);           /* the reactor answers the kernel */
		put = write(a->done_fd, &one, sizeof(one)); /* fails only when it is raised */
		(void)put;
	}
	return NULL;
}

int fs_announce_start(struct fs *fs, struct err *err)
{
	struct fs_asked *asked = fs->announce.asked;
	int rc = thr_start(&asked[FS_LANE_OWNER].thr, "fs-announce", asked_main,
			   &asked[FS_LANE_OWNER], err);

	if (rc == 0 && lane_of(0) == FS_LANE_ROOT)
		rc = thr_start(&asked[FS_LANE_ROOT].thr, "fs-announce-0", asked_main,
			       &asked[FS_LANE_ROOT], err);
	return rc;
}

/* --- requests --- */

/* The one who asked was sent a signal. */
static void announcement_interrupted(fuse_req_t req, void *data)
{
	struct announcement *ann = data;
	struct fs_asked *asked = ann->asked;
	bool was_waiting, is_ours;

	mutex_lock(&asked->mu);
	was_waiting = ann->is_waiting;
	/* A list is never read from a file: the answer is near, and half a list is none. */
	is_ours = was_waiting || (ann->kind != ANNOUNCE_LIST && !ann->is_finished);
	if (was_waiting) {
		list_remove(&ann->node);
		asked->n_waiting--;
	}
	mutex_unlock(&asked->mu);
	if (!is_ours || !ann->req)
		return;
	atomic_store(&ann->is_gone, true);
	ann->req = NULL;
	fuse_reply_err(req, EINTR);
	if (was_waiting)
		announcement_free(ann);
}

/* NULL when out of memory; the text is copied. job: its name as it says it, which ends in
 * CLAIRFS_HINT_JOB bytes. */
static struct announcement *announcement_new(fuse_req_t req, enum announce_kind kind,
					     const char *text, const char *job)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	size_t size = strlen(text);
	struct announcement *ann = calloc(1, sizeof(*ann) + size + 1);

	if (!ann)
		return NULL;
	buf_writer_init(&ann->answer);
	memcpy(ann->text, text, size);
	memcpy(ann->job, job, strlen(job));
	ann->kind = kind;
	ann->req = req;
	ann->pid = ctx->pid;
	ann->told = (struct fs_told){ .uid = ctx->uid,
				      .tid = ctx->pid,
				      .is_lookup = kind == ANNOUNCE_LOOKUP,
				      .lane = lane_of(ctx->uid),
				      .is_gone = &ann->is_gone,
				      .text = ann->text,
				      .job = ann->job };
	return ann;
}

static void answer_announcement(struct fs *fs, struct announcement *ann);

/* Has it taken by the thread of who asks, or answers at once why not. */
static void queue_announcement(struct fs *fs, struct announcement *take_ann)
{
	struct fs_asked *asked = &fs->announce.asked[take_ann->told.lane];
	bool is_full;

	take_ann->asked = asked;
	if (take_ann->req && fuse_req_interrupted(take_ann->req)) {
		fuse_reply_err(take_ann->req, EINTR);
		announcement_free(take_ann);
		return;
	}
	if (take_ann->req)
		fuse_req_interrupt_func(take_ann->req, announcement_interrupted, take_ann);
	mutex_lock(&asked->mu);
	is_full = asked->n_waiting >= FS_ASKED_MAX;
	if (!is_full) {
		take_ann->is_waiting = true;
		list_push_tail(&asked->waiting, &take_ann->node);
		asked->n_waiting++;
		cond_signal(&asked->cv);
	}
	mutex_unlock(&asked->mu);
	if (!is_full)
		return;
	take_ann->status = -EAGAIN;
	buf_printf(&take_ann->answer, "%d orders of this user wait already: tell it again later",
		   FS_ASKED_MAX);
	answer_announcement(fs, take_ann);
}

/* False: the request is answered. */
static bool is_request_right(fuse_req_t req, int rc)
{
	if (rc < 0)
		fuse_reply_err(req, -rc);
	return rc == 0;
}

void fs_announce_ioctl(fuse_req_t req, struct fs *fs, const void *in, size_t in_size,
		       size_t out_size)
{
	struct announcement *ann;
	struct clairfs_hint hint;
	int rc = fs->params.announce ? hint_check(in, in_size, out_size, &hint) : -ENOTTY;

	if (!is_request_right(req, rc))
		return;
	if (!fs_may_tell(fuse_req_ctx(req)->uid)) {
		hint = (struct clairfs_hint){ CLAIRFS_HINT_VERSION, -EPERM, FS_REFUSAL, "" };
		fuse_reply_ioctl(req, 0, &hint, sizeof(hint));
		return;
	}
	ann = announcement_new(req, ANNOUNCE_IOCTL, hint_text(&hint), hint_job(&hint));
	if (ann)
		queue_announcement(fs, ann);
	else
		fuse_reply_err(req, ENOMEM);
}

static void refuse_list(fuse_req_t req, struct clairfs_list *list)
{
	list->status = -EPERM;
	snprintf(list->text, sizeof(list->text), "%s", FS_REFUSAL);
	fuse_reply_ioctl(req, 0, list, sizeof(*list));
}

void fs_announce_list(fuse_req_t req, struct fs *fs, const void *in, size_t in_size,
		      size_t out_size)
{
	struct announcement *ann;
	struct clairfs_list list;
	int rc = fs->params.announce ? hint_check_list(in, in_size, out_size, &list) : -ENOTTY;

	if (!is_request_right(req, rc))
		return;
	if (!fs_may_tell(fuse_req_ctx(req)->uid)) {
		refuse_list(req, &list);
		return;
	}
	ann = announcement_new(req, ANNOUNCE_LIST, list.text, list.job);
	if (!ann) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	ann->list = list;
	ann->told.list = &ann->list;
	queue_announcement(fs, ann);
}

/* The same question of the same thread within a second, and no other order was told since. */
static bool is_asked_again(const struct fs *fs, const struct fs_asked *asked, pid_t pid,
			   const char *name)
{
	return asked->last_ino && pid == asked->last_pid && strcmp(name, asked->last_name) == 0 &&
	       (asked->last_serial == 0 ||
		(asked->last_serial == atomic_load(&fs->announce.n_told) + 1 &&
		 clock_now(fs->params.clock) - asked->last_ns < SAME_QUESTION_NS));
}

/* Answered at once, with a file whose text is the answer that comes later. */
void fs_announce_lookup(fuse_req_t req, struct fs *fs, const char *name)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct fs_asked *asked = &fs->announce.asked[lane_of(ctx->uid)];
	struct announcement *ann;
	pid_t pid = ctx->pid;

	if (!fs_may_tell(ctx->uid)) {
		fs_vfile_reply_refused(req, fs);
		return;
	}
	if (is_asked_again(fs, asked, pid, name) && fs_vfile_reply_again(req, fs, asked->last_ino))
		return;
	ann = announcement_new(req, ANNOUNCE_LOOKUP, name, "");
	if (!ann) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	ann->req = NULL;
	ann->ino = fs_vfile_reply_awaited(req, fs, &ann->is_gone);
	if (!ann->ino) {
		announcement_free(ann);
		return;
	}
	asked->last_ino = ann->ino;
	asked->last_pid = pid;
	asked->last_serial = 0;
	snprintf(asked->last_name, sizeof(asked->last_name), "%s", name);
	queue_announcement(fs, ann);
}

static void finish_lookup(struct fs *fs, struct announcement *ann, const char *line)
{
	struct fs_asked *asked = ann->asked;
	struct buf_writer text;

	buf_writer_init(&text);
	buf_printf(&text, "%s%s\n", ann->status < 0 ? "error: " : "", line);
	fs_vfile_fill(fs, ann->ino, &text);
	if (asked->last_ino != ann->ino)
		return;
	asked->last_serial = ann->serial + 1;
	asked->last_ns = clock_now(fs->params.clock);
}

static void finish_ioctl(struct announcement *ann, const char *line)
{
	struct clairfs_hint hint = { .version = CLAIRFS_HINT_VERSION, .status = ann->status };

	snprintf(hint.text, sizeof(hint.text), "%s", line);
	fuse_reply_ioctl(ann->req, 0, &hint, sizeof(hint));
}

static void finish_list(struct announcement *ann, const char *line)
{
	ann->list.status = ann->status;
	snprintf(ann->list.text, sizeof(ann->list.text), "%s", line);
	fuse_reply_ioctl(ann->req, 0, &ann->list, sizeof(ann->list));
}

/* Uses up the announcement. */
static void answer_announcement(struct fs *fs, struct announcement *ann)
{
	const char *line;

	buf_put_u8(&ann->answer, 0);
	line = ann->answer.is_bad ? "out of memory" : (const char *)ann->answer.data;
	if (ann->kind == ANNOUNCE_LOOKUP)
		finish_lookup(fs, ann, line);
	else if (!ann->req)
		; /* it was interrupted */
	else if (ann->kind == ANNOUNCE_LIST)
		finish_list(ann, line);
	else
		finish_ioctl(ann, line);
	announcement_free(ann);
}

void fs_announce_finish(struct fs *fs)
{
	uint64_t raised;
	ssize_t got = read(fs->announce.done_fd, &raised, sizeof(raised));
	struct list *node;

	(void)got;
	while ((node = queue_try_pop(&fs->announce.done)))
		answer_announcement(fs, container_of(node, struct announcement, node));
}
