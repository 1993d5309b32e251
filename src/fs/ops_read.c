/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OPEN and READ. While it is still being found out what the job reads, OPEN is answered: it says
 * what is opened, in directories that the watcher does not see, and the kernel keeps the pages.
 * Once the cache trusts the order and the watcher sees every directory, OPEN is answered ENOSYS:
 * the kernel never asks again, and a file whose pages were pushed costs no upcall at all. There is
 * no way back, so nothing may be kept per open file: kernels before 6.9 do not even send the
 * RELEASE of files opened before.
 *
 * A READ is handed to the cache and answered by whoever has the bytes, on that thread. Whatever
 * errno the source gave is the reader's answer. How long it took and whether it failed is counted
 * by the cache, which knows why.
 *
 * The pages of a READ are locked until it is answered, and whoever pushes or drops them waits. So
 * the unmount answers for the cache what the cache has not answered yet: the end must not depend on
 * the source. Of the two, the one that claims the READ first answers it.
 *
 * fs_op_* run on the reactor and never block; read_done runs on any thread.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>

#include "access_priv.h"

struct fs_read {
	struct cache_read read;
	struct list node; /* in idle or out */
	struct fs *fs;
	fuse_req_t req;
	_Atomic bool is_answered;
	bool is_kept; /* one of the fs->reads.first; else on the heap */
};

void fs_reads_init(struct fs *fs)
{
	mutex_init(&fs->reads.mu);
	list_init(&fs->reads.idle);
	list_init(&fs->reads.out);
}

int fs_reads_fill(struct fs *fs)
{
	struct fs_reads *reads = &fs->reads;

	reads->first = calloc(FS_READS_KEPT, sizeof(*reads->first));
	if (!reads->first)
		return -ENOMEM;
	for (size_t i = 0; i < FS_READS_KEPT; i++) {
		reads->first[i].fs = fs;
		reads->first[i].is_kept = true;
		list_push_tail(&reads->idle, &reads->first[i].node);
	}
	return 0;
}

void fs_reads_fini(struct fs *fs)
{
	assert(list_is_empty(&fs->reads.out)); /* cache_stop answers all of them */
	free(fs->reads.first);
	mutex_fini(&fs->reads.mu);
}

static void reads_put(struct fs_read *r)
{
	struct fs_reads *reads = &r->fs->reads;
	bool is_kept = r->is_kept;

	mutex_lock(&reads->mu);
	list_remove(&r->node);
	if (is_kept)
		list_push_head(&reads->idle, &r->node); /* the warmest first */
	mutex_unlock(&reads->mu);
	if (!is_kept)
		free(r);
}

/* From here on an unmount may answer it. False: there is one. */
static bool reads_list_locked(struct fs_reads *reads, struct fs_read *r, fuse_req_t req)
	REQUIRES(reads->mu)
{
	r->req = req;
	atomic_store_explicit(&r->is_answered, false, memory_order_relaxed);
	list_push_tail(&reads->out, &r->node);
	return !reads->is_refusing;
}

/* NULL and a negative errno when the READ cannot be taken. */
static struct fs_read *reads_get(struct fs *fs, fuse_req_t req, int *rc)
{
	struct fs_reads *reads = &fs->reads;
	struct fs_read *r = NULL;
	bool is_taken = false;
	struct list *node;

	mutex_lock(&reads->mu);
	node = list_pop_head(&reads->idle);
	if (node) {
		r = container_of(node, struct fs_read, node);
		is_taken = reads_list_locked(reads, r, req);
	}
	mutex_unlock(&reads->mu);
	if (!r) {
		r = calloc(1, sizeof(*r));
		*rc = -ENOMEM;
		if (!r)
			return NULL;
		r->fs = fs;
		mutex_lock(&reads->mu);
		is_taken = reads_list_locked(reads, r, req);
		mutex_unlock(&reads->mu);
	}
	*rc = is_taken ? 0 : -ENOTCONN;
	if (is_taken)
		return r;
	reads_put(r);
	return NULL;
}

static bool read_claim(struct fs_read *r)
{
	return !atomic_exchange(&r->is_answered, true);
}

void fs_reads_refuse(struct fs *fs)
{
	struct fs_reads *reads = &fs->reads;

	mutex_lock(&reads->mu);
	reads->is_refusing = true;
	for (struct list *node = reads->out.next; node != &reads->out; node = node->next) {
		struct fs_read *r = container_of(node, struct fs_read, node);

		if (read_claim(r))
			fuse_reply_err(r->req, ENOTCONN);
	}
	mutex_unlock(&reads->mu);
}

static bool may_refuse_open(struct fs *fs)
{
	if (atomic_load_explicit(&fs->is_open_refused, memory_order_relaxed))
		return true;
	return fs->has_no_open && !fs->params.force_open_answered &&
	       atomic_load(&fs->watch.is_complete) && cache_may_refuse_open(fs->params.cache);
}

void fs_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = fs_of(req);
	struct entry_id entry;

	metrics_add(fs->params.metrics, METRIC_UPCALL_OPEN, 1);
	if ((fi->flags & O_ACCMODE) != O_RDONLY) {
		fuse_reply_err(req, EROFS);
		return;
	}
	/* Every open, also one of our own files, is a chance to stop being asked. */
	if (may_refuse_open(fs)) {
		atomic_store_explicit(&fs->is_open_refused, true, memory_order_relaxed);
		metrics_gauge_set(fs->params.metrics, METRIC_OPEN_HANDLES, 0);
		fuse_reply_err(req, ENOSYS);
		return;
	}
	/* The watcher reports this open too where it watches: one of the two must keep silent. */
	if (fs_entry_of(fs, ino, &entry) && dataset_is_sample(fs->params.dataset, entry) &&
	    !fs_is_dir_watched(fs, dataset_parent(fs->params.dataset, entry))) {
		fs_stage_caught_up(fs, entry);
		cache_note_open(fs->params.cache, entry);
	}
	fi->keep_cache = 1;
	if (fuse_reply_open(req, fi) == 0) /* else there is no RELEASE of it */
		metrics_gauge_add(fs->params.metrics, METRIC_OPEN_HANDLES, 1);
}

void fs_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = fs_of(req);

	metrics_add(fs->params.metrics, METRIC_UPCALL_RELEASE, 1);
	/* Once OPEN is refused nothing tells how many there are. */
	if (!atomic_load_explicit(&fs->is_open_refused, memory_order_relaxed))
		metrics_gauge_add(fs->params.metrics, METRIC_OPEN_HANDLES, -1);
	fuse_reply_err(req, 0);
}

void fs_op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	metrics_add(fs_of(req)->params.metrics, METRIC_UPCALL_FLUSH, 1);
	fuse_reply_err(req, ENOSYS);
}

static void read_answered(struct cache_read *read, int status, const struct iovec *iov, int n_iov)
{
	struct fs_read *r = read->ctx;

	if (!read_claim(r))
		; /* the unmount was first */
	else if (read->rights.is_narrowed &&
		 !fs_access_may_read(r->fs, r->req, read->entry, &read->rights))
		fuse_reply_err(r->req, EACCES);
	else if (status < 0)
		fuse_reply_err(r->req, -status);
	else
		fuse_reply_iov(r->req, iov, n_iov);
	reads_put(r); /* the last touch: fs_reads_fini may follow */
}

void fs_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct fs *fs = fs_of(req);
	struct entry_id entry;
	struct fs_read *r;
	uint32_t reader;
	int rc;

	metrics_add(fs->params.metrics, METRIC_UPCALL_READ, 1);
	if (fs_is_virtual(ino)) {
		fs_vfile_read(req, fs, ino, size, off);
		return;
	}
	if (!fs_entry_of(fs, ino, &entry) ||
	    dataset_kind(fs->params.dataset, entry) != ENTRY_KIND_FILE) {
		fuse_reply_err(req, EBADF);
		return;
	}
	/* max_read of the mount makes larger ones impossible; a short answer would be the end of
	 * the file to the kernel. */
	if (size == 0 || size > PIECE_BYTES || off < 0) {
		fuse_reply_err(req, EINVAL);
		return;
	}
	reader = (uint32_t)fuse_req_ctx(req)->pid; /* an unmount may answer it once it is listed */
	r = reads_get(fs, req, &rc);
	if (!r) {
		fuse_reply_err(req, -rc);
		return;
	}
	r->read.entry = entry;
	r->read.offset = (uint64_t)off;
	r->read.length = (uint32_t)size;
	r->read.arrived_ns = clock_now(fs->params.clock);
	r->read.reader = reader;
	r->read.renewal = fs_renewal_of(ino);
	r->read.is_direct = fi && fi->flags & O_DIRECT;
	r->read.done = read_answered;
	r->read.ctx = r;
	cache_read(fs->params.cache, &r->read);
}
