/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The source: pieces of the files of the parallel filesystem. Its one promise is that bytes are
 * those of the version the reader believes in: the identity is taken on the open descriptor before
 * and after the read, and both must be the one expected. That costs two fstat() and no path lookup.
 * It sees every change that changes size, times or inode; two changes within one tick of the file
 * server's clock that leave the size alone are the limit of what any cache can see. So a read says
 * when it came so soon after a change that another one in the same tick may follow: nobody should
 * keep such bytes for longer than a mount.
 *
 * A kept descriptor may be a file that is not behind the path any more. Whatever goes wrong with
 * one is therefore no answer: the read is done again through the path, once, and that is the
 * answer. The same for an ESTALE of the filesystem itself (NFS, Gluster): it speaks of a handle
 * that a new look at the path may replace, not of a file that was seen to be another one.
 *
 * tier_read() runs on any thread and never blocks; the rest runs on the engine's threads.
 * Descriptors are closed after done(), because close() on such filesystems may wait for a server.
 */
#include "source_priv.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/vfs.h>
#include <time.h>

#include "clairfs/base/bdi.h"
#include "clairfs/base/clock.h"

#define GRAIN_NEAR_NS (20 * NS_PER_MS) /* twice the coarsest tick of a kernel */
#define GRAIN_FAR_NS (2 * NS_PER_S)
#define AHEAD_NS ((int64_t)(3600 * NS_PER_S))

struct source {
	struct tier tier;
	int dirfd;
	bool is_beneath;
	int64_t grain_ns;
	uint32_t request_bytes; /* of files of several pieces, see io_job; 0: as the kernel likes */
	struct io *io;
	struct metrics *metrics;
	struct kept_files files;
	struct mutex mu;
	struct cond is_idle;
	uint64_t n_reads;     /* mu; in flight */
	struct list openings; /* mu */
};

/* A file of several pieces that is being opened to be kept, and reads that wait for that: each would
 * open it again otherwise, and on some filesystems an open drops what others have just read. Nobody
 * waits when it is only opened anew. Counts as a read, and goes before those ahead of readers. */
struct opening {
	struct source *source;
	struct list node;
	struct io_job job;
	struct entry_id entry;
	struct list reads; /* mu */
	char path[];
};

static bool wants_kept_file(const struct source *s, const struct tier_read *read)
{
	return s->files.limit > 0 && piece_count(read->ask.expect.size) > 1;
}

static void source_done(struct io_job *job);

/* Not one with a server of its own. */
static bool is_local(int dirfd)
{
	/* ext, XFS, btrfs, tmpfs, overlay, F2FS, ZFS */
	static const uint32_t local[] = { 0xef53,     0x58465342, 0x9123683e, 0x01021994,
					  0x794c7630, 0xf2f52010, 0x2fc12fc1 };
	struct statfs st;

	if (fstatfs(dirfd, &st) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(local); i++)
		if ((uint32_t)st.f_type == local[i])
			return true;
	return false;
}

uint64_t source_grain_ns(int dirfd)
{
	return is_local(dirfd) ? GRAIN_NEAR_NS : GRAIN_FAR_NS;
}

uint64_t source_read_ahead(int dirfd)
{
	AUTO_FD int fd = -1;
	uint64_t bytes;
	struct stat st;

	if (is_local(dirfd) || fstat(dirfd, &st) < 0)
		return 0;
	fd = bdi_open(st.st_dev, O_RDONLY);
	return fd >= 0 && bdi_read_ahead(fd, &bytes) == 0 ? bytes : 0;
}

/* Pieces of one file are read by several threads and in no order, of which the kernel's read-ahead
 * makes what it likes: it read 1.2 to 2.4 times what was asked for. So it is turned off for files of
 * several pieces, where its size is known: then a read of more than that is asked for in parts. On
 * a local filesystem there is nobody to wait for. */
static uint32_t request_bytes_of(int dirfd)
{
	return (uint32_t)MIN(source_read_ahead(dirfd), (uint64_t)PIECE_BYTES);
}

static int64_t wall_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return file_time_ns(now.tv_sec, now.tv_nsec);
}

/* By the time of change alone: nobody can set it, and every change sets it. A whole second is what
 * filesystems that count in seconds have; a time far ahead was made up. */
static int64_t young_until(const struct source *s, const struct tier_read *read)
{
	uint64_t changed = (uint64_t)read->ask.expect.ctime_ns;
	/* Times wrap around: only their difference means something. */
	int64_t age = (int64_t)((uint64_t)read->own.asked_ns - changed), grain = s->grain_ns;

	if (file_time_of(read->ask.expect.ctime_ns).tv_nsec == 0)
		grain = MAX(grain, (int64_t)GRAIN_FAR_NS);
	return s->grain_ns && age < grain && age > -AHEAD_NS ? (int64_t)(changed + (uint64_t)grain)
							     : 0;
}

/* Fills the job for a read through `file`, or through the path if that is NULL, and starts it. */
static void source_start(struct source *s, struct tier_read *read, struct kept_file *file)
{
	struct io_job *job = &read->own.job;

	assert(!file || file->fd >= 0);
	assert(!file || !read->own.is_retried); /* a kept descriptor is what failed */
	read->own.tier_priv = file;
	read->own.asked_ns = wall_clock_ns();
	memset(job, 0, sizeof(*job)); /* st_mode tells later whether st was filled */
	job->kind = file ? IO_READ_FD : IO_READ_PATH;
	job->dirfd = s->dirfd;
	job->path = read->ask.path;
	job->is_beneath = s->is_beneath;
	job->fd = file ? file->fd : -1;
	job->keep_open = !file && wants_kept_file(s, read);
	job->buf = read->ask.buf;
	job->offset = (uint64_t)read->ask.key.piece * PIECE_BYTES + read->ask.skip;
	job->length = read->ask.length;
	job->want_stat = true;
	job->want_check = true;
	job->is_urgent = read->ask.is_urgent;
	job->is_cold = read->ask.is_cold;
	job->request_bytes = piece_count(read->ask.expect.size) > 1 ? s->request_bytes : 0;
	job->done = source_done;
	job->ctx = s;
	io_submit(s->io, job);
}

/* Through a kept descriptor if there is one, else through the path: what is wrong shows there. */
static void source_go(struct source *s, struct tier_read *read)
{
	struct kept_file *file = NULL;
	struct list dead;

	list_init(&dead);
	if (wants_kept_file(s, read))
		file = kept_file_get(&s->files, read->ask.key.entry, &read->ask.expect, &dead);
	source_start(s, read, file);
	kept_files_reap(&dead);
}

static void source_end(struct source *s)
{
	mutex_lock(&s->mu);
	s->n_reads--;
	if (s->n_reads == 0)
		cond_broadcast(&s->is_idle);
	mutex_unlock(&s->mu);
}

/* What a path says of the file that was behind it: gone, closed to us, or no file any more. Other
 * failures are ours or the network's, and no reason to give a descriptor up that is good. */
static bool is_said_of_path(const struct io_job *job)
{
	int status = job->status;

	if (job->st.st_mode && !S_ISREG(job->st.st_mode))
		return true;
	return status == -ENOENT || status == -ENOTDIR || status == -ELOOP || status == -EACCES ||
	       status == -EPERM || status == -EXDEV || status == -ESTALE;
}

static void opening_done(struct io_job *job)
{
	struct opening *o = job->ctx;
	struct source *s = o->source;
	struct list dead, reads, *node;

	list_init(&dead);
	list_init(&reads);
	if (job->status == 0) {
		struct file_identity identity = file_identity_of(&job->st);

		kept_file_add(&s->files, o->entry, &identity, take_fd(&job->fd), &dead);
	} else if (is_said_of_path(job)) {
		/* Who reads on asks the path, and hears it, too. */
		kept_file_forget(&s->files, o->entry, &dead);
	}
	mutex_lock(&s->mu);
	list_remove(&o->node);
	list_splice_tail(&reads, &o->reads);
	mutex_unlock(&s->mu);
	free(o);
	while ((node = list_pop_head(&reads)))
		source_go(s, container_of(node, struct tier_read, own.node));
	kept_files_reap(&dead);
	source_end(s);
}

static void opening_start(struct opening *o)
{
	o->job = (struct io_job){ .kind = IO_READ_PATH,
				  .dirfd = o->source->dirfd,
				  .path = o->path,
				  .is_beneath = o->source->is_beneath,
				  .fd = -1,
				  .keep_open = true,
				  .is_urgent = true,
				  .request_bytes = o->source->request_bytes,
				  .done = opening_done,
				  .ctx = o };
	io_submit(o->source->io, &o->job);
}

static struct opening *opening_find_locked(struct source *s, struct entry_id entry) REQUIRES(s->mu)
{
	for (struct list *node = s->openings.next; node != &s->openings; node = node->next) {
		struct opening *o = container_of(node, struct opening, node);

		if (entry_eq(o->entry, entry))
			return o;
	}
	return NULL;
}

/* The file is opened, by this read or another one. has_to_wait: for that. False: no memory. */
static bool source_open(struct source *s, struct tier_read *read, bool has_to_wait)
{
	size_t size = strlen(read->ask.path) + 1;
	struct opening *fresh = calloc(1, sizeof(*fresh) + size), *o;

	if (!fresh)
		return false;
	mutex_lock(&s->mu);
	o = opening_find_locked(s, read->ask.key.entry);
	if (!o) {
		o = fresh;
		o->source = s;
		o->entry = read->ask.key.entry;
		memcpy(o->path, read->ask.path, size);
		list_init(&o->reads);
		list_push_tail(&s->openings, &o->node);
		s->n_reads++;
	}
	if (has_to_wait)
		list_push_tail(&o->reads, &read->own.node);
	mutex_unlock(&s->mu);
	if (o == fresh)
		opening_start(fresh);
	else
		free(fresh);
	return true;
}

static void source_tier_read(struct tier *tier, struct tier_read *read)
{
	struct source *s = container_of(tier, struct source, tier);

	enum kept_state state = KEPT_GOOD;

	assert(read->done && read->ask.path);
	assert(read->ask.length <= PIECE_BYTES);
	read->own.is_retried = false;
	mutex_lock(&s->mu);
	s->n_reads++;
	mutex_unlock(&s->mu);
	if (wants_kept_file(s, read))
		state = kept_file_state(&s->files, read->ask.key.entry);
	if (state == KEPT_NONE && source_open(s, read, true))
		return;
	if (state == KEPT_DUE)
		(void)source_open(s, read, false);
	source_go(s, read);
}

static bool is_expected(const struct tier_read *read, const struct stat *st)
{
	struct file_identity identity = file_identity_of(st);

	return S_ISREG(st->st_mode) && file_identity_eq(&identity, &read->ask.expect);
}

/* The status of the read; fills st if the file was seen. */
static int source_judge(struct tier_read *read)
{
	const struct io_job *job = &read->own.job;
	bool has_before = job->st.st_mode != 0, has_after = job->st_after.st_mode != 0;

	read->answer.is_changed = false;
	read->answer.has_st = has_before;
	if (has_before)
		read->answer.st = has_after ? job->st_after : job->st;
	read->answer.is_changed = (has_before && !is_expected(read, &job->st)) ||
			   (has_after && !is_expected(read, &job->st_after));
	if (read->answer.is_changed)
		return -ESTALE;
	if (job->status < 0)
		return job->status == -EXDEV && job->is_beneath ? -EACCES : job->status;
	/* Fewer bytes than the size says, and the size has not changed: the filesystem is ill. */
	if (!has_before || !has_after || job->got != read->ask.length)
		return -EIO;
	return 0;
}

static void source_count(struct source *s, const struct tier_read *read)
{
	if (read->answer.status == 0 && read->ask.length == 0) {
		metrics_add(s->metrics, METRIC_SOURCE_CHECKS, 1);
	} else if (read->answer.status == 0) {
		metrics_add(s->metrics, METRIC_SOURCE_READS, 1);
		metrics_add(s->metrics, METRIC_SOURCE_BYTES, read->answer.got);
		metrics_observe(s->metrics, METRIC_HIST_SOURCE_LATENCY, read->answer.latency_ns);
	} else if (!read->answer.is_changed) {
		metrics_add(s->metrics, METRIC_SOURCE_ERRORS, 1);
	}
}

static bool may_try_again(const struct tier_read *read, int status)
{
	bool was_kept = read->own.tier_priv != NULL;

	return status != 0 && !read->own.is_retried &&
	       (was_kept || (status == -ESTALE && !read->answer.is_changed));
}

static void source_done(struct io_job *job)
{
	struct tier_read *read = container_of(job, struct tier_read, own.job);
	struct source *s = job->ctx;
	struct kept_file *file = read->own.tier_priv;
	struct list dead;
	int status = source_judge(read);
	AUTO_FD int fd = job->keep_open && job->status == 0 ? job->fd : -1;

	list_init(&dead);
	if (file)
		kept_file_put(&s->files, file, status != 0, &dead);
	if (may_try_again(read, status)) {
		read->own.is_retried = true;
		source_start(s, read, NULL); /* `read` may be gone now */
		kept_files_reap(&dead);
		return;
	}
	if (fd >= 0 && status == 0)
		kept_file_add(&s->files, read->ask.key.entry, &read->ask.expect, take_fd(&fd),
			      &dead);
	read->answer.status = status;
	read->answer.got = status == 0 ? job->got : 0;
	read->answer.latency_ns = job->done_ns - job->started_ns;
	read->answer.young_until_ns = young_until(s, read);
	source_count(s, read);
	read->done(read);
	kept_files_reap(&dead);
	if (fd >= 0)
		close(take_fd(&fd));
	source_end(s);
}

static void source_free(struct tier *tier)
{
	struct source *s = container_of(tier, struct source, tier);

	mutex_lock(&s->mu);
	while (s->n_reads > 0)
		cond_wait(&s->is_idle, &s->mu);
	assert(list_is_empty(&s->openings)); /* each has a read that waits for it */
	mutex_unlock(&s->mu);
	kept_files_fini(&s->files);
	cond_fini(&s->is_idle);
	mutex_fini(&s->mu);
	free(s);
}

/* About what a request of a parallel filesystem takes; nothing is asked after it. */
static uint64_t source_cost(const struct tier *tier, uint32_t length)
{
	return 2 * NS_PER_MS + 2ull * length;
}

static const struct tier_ops source_ops = {
	.name = "source",
	.read_class = READ_MISS,
	.verifies_identity = true,
	.cost = source_cost,
	.read = source_tier_read,
	.free = source_free,
};

int source_new(const struct source_params *params, struct tier **ret, struct err *err)
{
	AUTO_FREE struct source *s = calloc(1, sizeof(*s));

	if (!s || kept_files_init(&s->files, params) < 0)
		return err_set_errno(err, -ENOMEM, "source");
	s->tier.ops = &source_ops;
	s->dirfd = params->dirfd;
	s->is_beneath = params->is_beneath;
	s->grain_ns = (int64_t)params->grain_ns;
	s->request_bytes = request_bytes_of(params->dirfd);
	s->io = params->io;
	s->metrics = params->metrics;
	mutex_init(&s->mu);
	cond_init(&s->is_idle);
	list_init(&s->openings);
	*ret = &TAKE(s)->tier;
	return 0;
}
