/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders told through the mount, the one thing that a job in a container is sure to see. No file of
 * a read-only mount can be written or given attributes: the kernel says EROFS without asking us.
 * Three things do get through:
 *
 *   - an ioctl on any file of .clairfs (hint.h): exactly one request, and a status;
 *   - writing into a FIFO (fifo.c);
 *   - looking up .clairfs/announce/SPEC: for shells, `cat` shows the answer. A name has no '/', and
 *     the kernel may ask for one name twice in a row (is the old one still good? no: look it up),
 *     so the same question of the same thread within a second is answered from memory, unless
 *     another order was told in between.
 *
 * Setting up an order may read a list from a file and take seconds, so requests wait on a thread
 * of their own; the reactor gives the answers, because snapshots are its own.
 *
 * Threads: fs-announce runs announce_main, everything else the reactor or who frees the fs.
 */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

#include "clairfs/base/log.h"
#include "clairfs/hint.h"

#include "fs_priv.h"

#define SAME_QUESTION_NS NS_PER_S

enum announce_kind { ANNOUNCE_IOCTL, ANNOUNCE_LIST, ANNOUNCE_LOOKUP, ANNOUNCE_LINE };

struct announce_job {
	struct list node;
	enum announce_kind kind;
	fuse_req_t req; /* not of a line */
	struct fs_told told;
	pid_t pid;
	int status;
	uint64_t serial; /* how many orders were told, with this one */
	bool is_done;    /* announce.mu: a line */
	struct buf_writer answer;
	struct clairfs_list list;
	char text[];
};

void fs_announce_init(struct fs *fs)
{
	struct fs_announce *a = &fs->announce;

	mutex_init(&a->mu);
	cond_init(&a->cv);
	queue_init(&a->asked);
	queue_init(&a->done);
	a->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

static void job_free(struct announce_job *job)
{
	buf_writer_fini(&job->answer);
	free(job);
}

void fs_announce_quit(struct fs *fs)
{
	queue_close(&fs->announce.asked);
	thr_join(&fs->announce.thr);
}

void fs_announce_fini(struct fs *fs)
{
	struct fs_announce *a = &fs->announce;
	struct list *node;

	while ((node = queue_try_pop(&a->asked)) || (node = queue_try_pop(&a->done))) {
		struct announce_job *job = container_of(node, struct announce_job, node);

		fuse_reply_err(job->req, ENOTCONN);
		job_free(job);
	}
	queue_fini(&a->asked);
	queue_fini(&a->done);
	cond_fini(&a->cv);
	mutex_fini(&a->mu);
	if (a->done_fd >= 0)
		close(a->done_fd);
	free(a->last_answer);
}

/* The reactor answers the kernel; a line is answered to the thread that waits for it. */
static void done(struct fs_announce *a, struct announce_job *job)
{
	uint64_t one = 1;
	ssize_t put;

	if (job->kind == ANNOUNCE_LINE) {
		mutex_lock(&a->mu);
		job->is_done = true;
		cond_signal(&a->cv);
		mutex_unlock(&a->mu);
		return;
	}
	queue_push(&a->done, &job->node);
	put = write(a->done_fd, &one, sizeof(one)); /* fails only when it is raised */
	(void)put;
}

/* Not a part of a list that is not its last. */
static bool is_order(const struct announce_job *job)
{
	return job->kind != ANNOUNCE_LIST || job->list.flags & CLAIRFS_LIST_LAST;
}

void *fs_announce_main(void *arg)
{
	struct fs *fs = arg;
	struct fs_announce *a = &fs->announce;
	struct list *node;

	while ((node = queue_pop(&a->asked))) {
		struct announce_job *job = container_of(node, struct announce_job, node);

		job->status = -ENOTCONN;
		if (!atomic_load(&fs->is_quitting))
			job->status = fs->params.announce(fs->params.announce_ctx, &job->told,
							  &job->answer);
		if (job->status == 0 && is_order(job))
			atomic_fetch_add(&a->n_told, 1);
		job->serial = atomic_load(&a->n_told);
		done(a, job);
	}
	return NULL;
}

/* NULL when out of memory; the text is copied. */
static struct announce_job *job_new(enum announce_kind kind, const char *text, size_t size)
{
	struct announce_job *job = calloc(1, sizeof(*job) + size + 1);

	if (!job)
		return NULL;
	buf_writer_init(&job->answer);
	memcpy(job->text, text, size);
	job->kind = kind;
	job->told.text = job->text;
	job->told.size = size;
	return job;
}

/* NULL: it was answered already. */
static struct announce_job *job_of(fuse_req_t req, enum announce_kind kind, const char *text)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct announce_job *job = job_new(kind, text, strlen(text));

	if (!job) {
		fuse_reply_err(req, ENOMEM);
		return NULL;
	}
	job->req = req;
	job->told.uid = ctx->uid;
	job->told.tid = job->pid = ctx->pid;
	job->told.is_lookup = kind == ANNOUNCE_LOOKUP;
	return job;
}

static void ask(struct fs *fs, struct announce_job *take_job)
{
	if (take_job)
		queue_push(&fs->announce.asked, &take_job->node);
}

void fs_announce_line(struct fs *fs, const char *text, size_t size)
{
	struct fs_announce *a = &fs->announce;
	struct announce_job *job = job_new(ANNOUNCE_LINE, text, size);

	if (!job) {
		log_limited(LOG_LEVEL_WARN, "out of memory: an order was not taken");
		return;
	}
	job->told.uid = FS_TOLD_BY_MODE;
	queue_push(&a->asked, &job->node);
	mutex_lock(&a->mu);
	while (!job->is_done)
		cond_wait(&a->cv, &a->mu);
	mutex_unlock(&a->mu);
	job_free(job);
}

void fs_announce_ioctl(fuse_req_t req, struct fs *fs, const void *in, size_t in_size,
		       size_t out_size)
{
	struct clairfs_hint hint;

	if (!fs->params.announce || in_size < sizeof(hint) || out_size < sizeof(hint)) {
		fuse_reply_err(req, ENOTTY);
		return;
	}
	memcpy(&hint, in, sizeof(hint));
	if (hint.version != CLAIRFS_HINT_VERSION || !memchr(hint.text, 0, sizeof(hint.text))) {
		fuse_reply_err(req, EPROTO);
		return;
	}
	ask(fs, job_of(req, ANNOUNCE_IOCTL, hint.text));
}

void fs_announce_list(fuse_req_t req, struct fs *fs, const void *in, size_t in_size,
		      size_t out_size)
{
	struct announce_job *job;
	struct clairfs_list list;

	if (!fs->params.announce || in_size < sizeof(list) || out_size < sizeof(list)) {
		fuse_reply_err(req, ENOTTY);
		return;
	}
	memcpy(&list, in, sizeof(list));
	if (list.version != CLAIRFS_HINT_VERSION || !memchr(list.text, 0, sizeof(list.text)) ||
	    list.count > CLAIRFS_LIST_SAMPLES) {
		fuse_reply_err(req, EPROTO);
		return;
	}
	job = job_of(req, ANNOUNCE_LIST, list.text);
	if (!job)
		return;
	job->list = list;
	job->told.list = &job->list;
	ask(fs, job);
}

/* The line as the text of a file. */
static void reply_text(struct fs *fs, fuse_req_t req, const char *text)
{
	struct buf_writer w;

	buf_writer_init(&w);
	buf_printf(&w, "%s", text);
	fs_vfile_reply_text(req, fs, &w);
}

void fs_announce_lookup(fuse_req_t req, struct fs *fs, const char *name)
{
	struct fs_announce *a = &fs->announce;

	if (a->last_answer && fuse_req_ctx(req)->pid == a->last_pid &&
	    strcmp(name, a->last_name) == 0 && a->last_serial == atomic_load(&a->n_told) &&
	    clock_now(fs->params.clock) - a->last_ns < SAME_QUESTION_NS)
		reply_text(fs, req, a->last_answer);
	else
		ask(fs, job_of(req, ANNOUNCE_LOOKUP, name));
}

static void finish_lookup(struct fs *fs, struct announce_job *job, const char *line)
{
	struct fs_announce *a = &fs->announce;
	char *text = NULL;

	if (asprintf(&text, "%s%s\n", job->status < 0 ? "error: " : "", line) < 0) {
		fuse_reply_err(job->req, ENOMEM);
		return;
	}
	free(a->last_answer);
	a->last_answer = text;
	a->last_pid = job->pid;
	a->last_serial = job->serial;
	a->last_ns = clock_now(fs->params.clock);
	snprintf(a->last_name, sizeof(a->last_name), "%s", job->text);
	reply_text(fs, job->req, text);
}

static void finish_ioctl(struct announce_job *job, const char *line)
{
	struct clairfs_hint hint = { .version = CLAIRFS_HINT_VERSION, .status = job->status };

	snprintf(hint.text, sizeof(hint.text), "%s", line);
	fuse_reply_ioctl(job->req, 0, &hint, sizeof(hint));
}

static void finish_list(struct announce_job *job, const char *line)
{
	job->list.status = job->status;
	snprintf(job->list.text, sizeof(job->list.text), "%s", line);
	fuse_reply_ioctl(job->req, 0, &job->list, sizeof(job->list));
}

void fs_announce_finish(struct fs *fs)
{
	uint64_t raised;
	ssize_t got = read(fs->announce.done_fd, &raised, sizeof(raised));
	struct list *node;

	(void)got;
	while ((node = queue_try_pop(&fs->announce.done))) {
		struct announce_job *job = container_of(node, struct announce_job, node);
		const char *line;

		buf_put_u8(&job->answer, 0);
		line = job->answer.is_bad ? "out of memory" : (const char *)job->answer.data;
		if (job->kind == ANNOUNCE_LOOKUP)
			finish_lookup(fs, job, line);
		else if (job->kind == ANNOUNCE_LIST)
			finish_list(job, line);
		else
			finish_ioctl(job, line);
		job_free(job);
	}
}
