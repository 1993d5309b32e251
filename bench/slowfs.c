/* SPDX-License-Identifier: Apache-2.0 */
/* slowfs: a directory seen through a filesystem with stated latency and bandwidth, as a stand-in
 * for a parallel filesystem in benchmarks and tests.
 *
 *   slowfs [-f] [--latency-ms L] [--mbps M] [--keep-cache] [--eio TEXT] [--log FILE] DIRECTORY
 *          MOUNTPOINT
 *
 * Every READ request is answered L ms after the link was free for it, and the link carries M MB/s
 * (10^6 bytes) in total, so any number of requests wait at the same time, as on a network: no
 * thread sleeps for a request. Metadata is answered at once. Pages are dropped at every open (no
 * KEEP_CACHE), so each open + read costs at least one request; with --keep-cache they stay. Reads
 * of paths that contain TEXT fail with EIO. FILE gets a line for each open and for each READ of it
 * when it comes, with the number that it has while it is open: "open 5 PATH", "read 5 OFFSET SIZE".
 *
 * One thread takes requests; READs go through a FIFO (due times only grow) to repliers that wait
 * for the due time. */
#define FUSE_USE_VERSION 312
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <getopt.h>
#include <search.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/queue.h"
#include "clairfs/base/text.h"

#define REPLIERS 4
#define MAX_INODES (1u << 22)

struct inode {
	char *path; /* relative to the directory; "." is the root */
	fuse_ino_t number;
};

struct slow_read {
	struct list node;
	fuse_req_t req;
	fuse_ino_t ino;
	int fd; /* stays open until RELEASE, which the kernel sends after the last READ was answered
		 */
	off_t offset;
	size_t size;
	uint64_t due_ns;
};

struct slowfs {
	int dirfd;
	uint64_t latency_ns, bytes_per_s;
	bool keeps_cache;
	const char *eio;
	FILE *log;             /* session thread; NULL: none */
	struct mutex mu;
	void *tree;            /* mu; path -> inode */
	struct inode **inodes; /* mu; [number] */
	fuse_ino_t n_inodes;   /* mu */
	uint64_t link_free_ns; /* session thread */
	struct queue reads;
};

static int compare(const void *a, const void *b)
{
	return strcmp(((const struct inode *)a)->path, ((const struct inode *)b)->path);
}

static struct inode *inode_of(struct slowfs *fs, fuse_ino_t number)
{
	struct inode *found;

	mutex_lock(&fs->mu);
	found = number < fs->n_inodes ? fs->inodes[number] : NULL;
	mutex_unlock(&fs->mu);
	return found;
}

/* The inode of a path, made when it is new; NULL when out of memory. Inodes live as long as the
 * mount. */
static struct inode *intern(struct slowfs *fs, const char *path)
{
	struct inode *fresh = calloc(1, sizeof(*fresh)), **slot;

	if (!fresh || !(fresh->path = strdup(path))) {
		free(fresh);
		return NULL;
	}
	mutex_lock(&fs->mu);
	slot = fs->n_inodes < MAX_INODES ? tsearch(fresh, &fs->tree, compare) : NULL;
	if (slot && *slot == fresh) {
		fresh->number = fs->n_inodes++;
		fs->inodes[fresh->number] = fresh;
	} else {
		free(fresh->path);
		free(fresh);
	}
	mutex_unlock(&fs->mu);
	return slot ? *slot : NULL;
}

static struct slowfs *self(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct slowfs *fs = self(req);
	struct inode *dir = inode_of(fs, parent), *found;
	struct fuse_entry_param e = { .attr_timeout = 1, .entry_timeout = 1 };
	AUTO_FREE char *path = NULL;

	if (!dir || asprintf(&path, "%s/%s", dir->path, name) < 0)
		return (void)fuse_reply_err(req, ENOMEM);
	if (fstatat(fs->dirfd, path, &e.attr, 0) < 0)
		return (void)fuse_reply_err(req, errno);
	found = intern(fs, path);
	if (!found)
		return (void)fuse_reply_err(req, ENOMEM);
	e.ino = found->number;
	fuse_reply_entry(req, &e);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct inode *i = inode_of(self(req), ino);
	struct stat st;

	if (!i || fstatat(self(req)->dirfd, i->path, &st, 0) < 0)
		fuse_reply_err(req, i ? errno : ENOENT);
	else
		fuse_reply_attr(req, &st, 1);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct slowfs *fs = self(req);
	struct inode *i = inode_of(fs, ino);
	int fd;

	if ((fi->flags & O_ACCMODE) != O_RDONLY)
		return (void)fuse_reply_err(req, EROFS);
	fd = i ? openat(fs->dirfd, i->path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return (void)fuse_reply_err(req, i ? errno : ENOENT);
	fi->fh = (uint64_t)fd;
	fi->keep_cache = fs->keeps_cache;
	if (fs->log)
		fprintf(fs->log, "open %d %s\n", fd, i->path);
	fuse_reply_open(req, fi);
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	close((int)fi->fh);
	fuse_reply_err(req, 0);
}

/* What the link has to carry for a request: not more than the file holds. */
static uint64_t transfer_ns(const struct slowfs *fs, int fd, size_t size, off_t offset)
{
	struct stat st;

	if (!fs->bytes_per_s || fstat(fd, &st) < 0 || offset >= st.st_size)
		return 0;
	return (uint64_t)((double)MIN((off_t)size, st.st_size - offset) * 1e9 /
			  (double)fs->bytes_per_s);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		    struct fuse_file_info *fi)
{
	struct slowfs *fs = self(req);
	struct slow_read *r = calloc(1, sizeof(*r));

	if (!r)
		return (void)fuse_reply_err(req, ENOMEM);
	r->req = req;
	r->ino = ino;
	r->fd = (int)fi->fh;
	r->size = size;
	r->offset = offset;
	if (fs->log)
		fprintf(fs->log, "read %d %lld %zu\n", r->fd, (long long)offset, size);
	fs->link_free_ns = MAX(fs->link_free_ns, clock_now(clock_monotonic())) +
			   transfer_ns(fs, r->fd, size, offset);
	r->due_ns = fs->link_free_ns + fs->latency_ns;
	queue_push(&fs->reads, &r->node);
}

static void answer(struct slowfs *fs, struct slow_read *r)
{
	struct timespec due = { .tv_sec = (time_t)(r->due_ns / NS_PER_S),
				.tv_nsec = (long)(r->due_ns % NS_PER_S) };
	struct inode *i = inode_of(fs, r->ino);
	AUTO_FREE char *buf = malloc(r->size);
	ssize_t got;

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) == EINTR)
		;
	got = buf ? pread(r->fd, buf, r->size, r->offset) : -1;
	if (fs->eio && i && strstr(i->path, fs->eio))
		fuse_reply_err(r->req, EIO);
	else if (got < 0)
		fuse_reply_err(r->req, buf ? errno : ENOMEM);
	else
		fuse_reply_buf(r->req, buf, (size_t)got);
}

static void *replier(void *arg)
{
	struct slowfs *fs = arg;
	struct list *node;

	while ((node = queue_pop(&fs->reads))) {
		struct slow_read *r = container_of(node, struct slow_read, node);

		answer(fs, r);
		free(r);
	}
	return NULL;
}

/* A directory is listed whole when it is opened; the listing belongs to the handle. */
struct listing {
	char *data;
	size_t size;
};

static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct slowfs *fs = self(req);
	struct inode *i = inode_of(fs, ino);
	int fd = i ? openat(fs->dirfd, i->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct listing *l = calloc(1, sizeof(*l));
	struct dirent *d;

	while (l && dir && (d = readdir(dir))) {
		struct stat st = { .st_ino = d->d_ino, .st_mode = (mode_t)d->d_type << 12 };
		size_t need = fuse_add_direntry(req, NULL, 0, d->d_name, NULL, 0);
		char *grown = realloc(l->data, l->size + need);

		if (!grown)
			break;
		l->data = grown;
		fuse_add_direntry(req, l->data + l->size, need, d->d_name, &st,
				  (off_t)(l->size + need));
		l->size += need;
	}
	if (dir)
		closedir(dir);
	fi->fh = (uint64_t)(uintptr_t)l;
	if (!l || !dir)
		fuse_reply_err(req, dir ? ENOMEM : ENOENT);
	else
		fuse_reply_open(req, fi);
	if (!dir)
		free(l);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		       struct fuse_file_info *fi)
{
	const struct listing *l = (const struct listing *)(uintptr_t)fi->fh;
	size_t end = (size_t)offset;

	/* Whole entries only: a name is padded to 8 bytes behind a header of 24. */
	while (end < l->size) {
		uint32_t name_len;
		size_t entry;

		memcpy(&name_len, l->data + end + 16, sizeof(name_len));
		entry = ALIGN_UP(24 + (size_t)name_len, (size_t)8);
		if (end + entry - (size_t)offset > size)
			break;
		end += entry;
	}
	fuse_reply_buf(req, (size_t)offset < l->size ? l->data + offset : NULL,
		       end - MIN((size_t)offset, end));
}

static void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct listing *l = (struct listing *)(uintptr_t)fi->fh;

	free(l->data);
	free(l);
	fuse_reply_err(req, 0);
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	conn->max_background = 1024;
	conn->congestion_threshold = 1024;
}

static const struct fuse_lowlevel_ops ops = { .init = op_init,
					      .lookup = op_lookup,
					      .getattr = op_getattr,
					      .open = op_open,
					      .release = op_release,
					      .read = op_read,
					      .opendir = op_opendir,
					      .readdir = op_readdir,
					      .releasedir = op_releasedir };

static int usage(void)
{
	fprintf(stderr,
		"usage: slowfs [-f] [--latency-ms L] [--mbps M] [--keep-cache] [--eio TEXT] "
		"[--log FILE] DIRECTORY MOUNTPOINT\n");
	return 2;
}

static int serve(struct slowfs *fs, const char *mountpoint, bool is_foreground)
{
	const char *options =
		geteuid() == 0 ? "-oro,fsname=slowfs,subtype=slowfs,default_permissions,allow_other"
			       : "-oro,fsname=slowfs,subtype=slowfs,default_permissions";
	char *argv[] = { (char *)"slowfs", (char *)options, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(2, argv);
	struct fuse_session *se = fuse_session_new(&args, &ops, sizeof(ops), fs);
	struct thr threads[REPLIERS] = { 0 };
	int rc = 1;

	if (!se) {
		fuse_opt_free_args(&args);
		return 1;
	}
	if (fuse_session_mount(se, mountpoint) == 0) {
		fuse_daemonize(is_foreground);
		if (fuse_set_signal_handlers(se) == 0) {
			for (int i = 0; i < REPLIERS; i++)
				if (thr_start(&threads[i], "replier", replier, fs, NULL) < 0)
					fprintf(stderr, "slowfs: a thread could not be started\n");
			rc = fuse_session_loop(se) < 0;
			fuse_remove_signal_handlers(se);
		}
		fuse_session_unmount(se);
	}
	queue_close(&fs->reads);
	for (int i = 0; i < REPLIERS; i++)
		thr_join(&threads[i]);
	fuse_session_destroy(se);
	fuse_opt_free_args(&args);
	return rc;
}

static void keep_key(void *inode)
{
}

/* Descriptors and the rest end with the process; memory is given back so that a leak detector has
 * nothing to say. */
static int end(struct slowfs *fs, int rc)
{
	tdestroy(fs->tree, keep_key);
	for (fuse_ino_t i = 0; fs->inodes && i < fs->n_inodes; i++) {
		if (fs->inodes[i]) {
			free(fs->inodes[i]->path);
			free(fs->inodes[i]);
		}
	}
	free(fs->inodes);
	if (fs->log && fclose(fs->log) != 0)
		return 1;
	return rc;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = { { "latency-ms", required_argument, NULL, 'l' },
					       { "mbps", required_argument, NULL, 'm' },
					       { "keep-cache", no_argument, NULL, 'k' },
					       { "eio", required_argument, NULL, 'e' },
					       { "log", required_argument, NULL, 'o' },
					       { NULL, 0, NULL, 0 } };
	struct slowfs fs = { .n_inodes = FUSE_ROOT_ID };
	bool is_foreground = false;
	int c;

	while ((c = getopt_long(argc, argv, "f", longs, NULL)) != -1) {
		if (c == 'l')
			fs.latency_ns = (uint64_t)(strtod(optarg, NULL) * 1e6);
		else if (c == 'm')
			fs.bytes_per_s = (uint64_t)(strtod(optarg, NULL) * 1e6);
		else if (c == 'k')
			fs.keeps_cache = true;
		else if (c == 'e')
			fs.eio = optarg;
		else if (c == 'f')
			is_foreground = true;
		else if (c == 'o' && !fs.log)
			fs.log = fopen(optarg, "we");
		else
			return usage();
		if (c == 'o' && !fs.log)
			return perror(optarg), 1;
	}
	if (fs.log)
		setlinebuf(fs.log);
	if (argc - optind != 2)
		return usage();
	fs.dirfd = open(argv[optind], O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fs.dirfd < 0)
		return perror(argv[optind]), 1;
	fs.inodes = calloc(MAX_INODES, sizeof(*fs.inodes)); /* untouched pages cost nothing */
	mutex_init(&fs.mu);
	queue_init(&fs.reads);
	if (!fs.inodes || !intern(&fs, "."))
		return perror("slowfs"), end(&fs, 1);
	return end(&fs, serve(&fs, argv[optind + 1], is_foreground));
}
