/* SPDX-License-Identifier: Apache-2.0 */
/* One directory of the scan: its names, then their attributes; or both from the snapshot when it
 * did not change. A file costs one statx that need not ask the servers again (AT_STATX_DONT_SYNC):
 * whoever reads the file compares its identity anyway, and for a million files on a parallel
 * filesystem the difference is minutes. A directory costs one synchronous statx on the open
 * descriptor, before its names are read, so that a change in between shows next time. What cannot
 * be had is left out and counted, never an error, but for memory and the root itself. Must never
 * follow a loop: below a symlink each directory is compared with its ancestors. Runs in the scan
 * threads. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "clairfs/base/beneath.h"
#include "rights.h"
#include "scan_priv.h"

uint64_t scan_attr_of_stat(const struct stat *st, struct slot_attr *ret)
{
	struct file_identity id = file_identity_of(st);

	*ret = (struct slot_attr){ .size = id.size,
				   .ino = id.ino,
				   .mtime_ns = id.mtime_ns,
				   .ctime_ns = id.ctime_ns,
				   .uid = st->st_uid,
				   .gid = st->st_gid,
				   .mode = (uint16_t)st->st_mode };
	return (uint64_t)major(st->st_dev) << 32 | minor(st->st_dev);
}

uint64_t scan_attr_of_statx(const struct statx *sx, struct slot_attr *ret)
{
	*ret = (struct slot_attr){
		.size = sx->stx_size,
		.ino = sx->stx_ino,
		.mtime_ns = file_time_ns(sx->stx_mtime.tv_sec, sx->stx_mtime.tv_nsec),
		.ctime_ns = file_time_ns(sx->stx_ctime.tv_sec, sx->stx_ctime.tv_nsec),
		.uid = sx->stx_uid,
		.gid = sx->stx_gid,
		.mode = sx->stx_mode
	};
	return (uint64_t)sx->stx_dev_major << 32 | sx->stx_dev_minor;
}

static void *grown(void *array, uint32_t *capacity, uint64_t wanted, size_t item)
{
	uint64_t next = MAX(wanted, MIN((uint64_t)*capacity * 2, UINT32_MAX));
	void *bigger = NULL;

	if (wanted <= UINT32_MAX)
		bigger = realloc(array, next * item);
	if (bigger)
		*capacity = (uint32_t)next;
	return bigger;
}

/* A new record behind the others, NULL when out of memory. */
static struct scan_rec *add_rec(struct scan_node *node, const char *name, uint32_t len)
{
	void *bigger;

	if (node->n_recs == node->recs_capacity) {
		bigger = grown(node->recs, &node->recs_capacity, (uint64_t)node->n_recs + 8,
			       sizeof(*node->recs));
		if (!bigger)
			return NULL;
		node->recs = bigger;
	}
	if ((uint64_t)node->names_size + len > node->names_capacity) {
		bigger = grown(node->names, &node->names_capacity,
			       (uint64_t)node->names_size + len + 64, 1);
		if (!bigger)
			return NULL;
		node->names = bigger;
	}
	memcpy(node->names + node->names_size, name, len);
	node->recs[node->n_recs] =
		(struct scan_rec){ .name_off = node->names_size, .name_len = (uint8_t)len };
	node->names_size += len;
	return &node->recs[node->n_recs++];
}

static void skip_rec(struct scan *s, struct scan_node *node, struct scan_rec *rec, bool is_unstable,
		     const char *why)
{
	rec->kind = REC_SKIPPED;
	rec->is_unstable = is_unstable;
	scan_log_skip(s, node, node->names + rec->name_off, rec->name_len, why);
}

/* The record becomes a directory, which is queued. */
static int add_subdir(struct scan *s, struct scan_node *node, struct scan_rec *rec,
		      uint32_t old_dir)
{
	struct scan_node *sub;

	if (!scan_links_may_follow(s, node, rec)) {
		skip_rec(s, node, rec, false, "too many symlinked directories on the path");
		return 0;
	}
	sub = scan_node_new(s, node, rec->name_off, rec->name_len);
	if (!sub)
		return -ENOMEM;
	sub->n_links = node->n_links + rec->is_link;
	sub->old_dir = old_dir;
	sub->is_link = rec->is_link;
	sub->is_below_link |= rec->is_link;
	rec->dir = sub;
	rec->kind = REC_DIR;
	scan_queue_dir(s, sub);
	return 0;
}

/* The same name in the snapshot, if it was a directory there. */
static uint32_t old_subdir(const struct scan *s, const struct scan_node *node,
			   const struct scan_rec *rec)
{
	uint32_t slot;

	if (node->old_dir == UINT32_MAX)
		return UINT32_MAX;
	slot = table_lookup(s->old, node->old_dir, node->names + rec->name_off, rec->name_len);
	return slot != UINT32_MAX && table_is_dir(s->old, slot) ? slot : UINT32_MAX;
}

static bool is_loop(const struct scan_node *node)
{
	if (!node->is_below_link)
		return false;
	for (const struct scan_node *up = node->parent; up; up = up->parent)
		if (up->dev == node->dev && up->attr.ino == node->attr.ino)
			return true;
	return false;
}

static void drop(struct scan *s, struct scan_node *node, const char *why)
{
	node->is_dropped = true;
	scan_log_skip(s, node->parent, node->parent->names + node->name_off, node->name_len, why);
}

static int reuse_dir(struct scan *s, struct scan_node *node)
{
	const struct table *t = s->old;
	uint32_t dir_no = table_dir_no(t, node->old_dir), len;
	int error = 0;

	table_get_attr(t, node->old_dir, &node->attr);
	node->dev = s->recheck->dev[dir_no];
	if (is_loop(node)) {
		drop(s, node, "symlink loop");
		return 0;
	}
	node->skipped = t->dir_skipped[dir_no];
	for (uint32_t i = t->dir_first[dir_no]; i < t->dir_first[dir_no + 1]; i++) {
		const char *name = table_name(t, t->child[i], &len);
		struct scan_rec *rec = add_rec(node, name, len);

		if (!rec)
			return -ENOMEM;
		rec->is_link = t->flags[t->child[i]] & SLOT_IS_LINK;
		rec->kind = REC_FILE;
		if (!table_is_dir(t, t->child[i]))
			table_get_attr(t, t->child[i], &rec->attr);
	}
	for (uint32_t i = 0; i < node->n_recs && error == 0; i++) {
		uint32_t slot = t->child[t->dir_first[dir_no] + i];

		if (table_is_dir(t, slot))
			error = add_subdir(s, node, &node->recs[i], slot);
	}
	atomic_fetch_add(&s->n_found, node->n_recs);
	atomic_fetch_add(&s->n_reused, 1);
	return error;
}

/* Shared and behind a symlink, here or above: what is shown depends on the way there. It must be the same
 * directory that was opened, or it is closed until somebody looks again. */
static int look_dir(struct scan *s, struct scan_node *node, int fd, const char *path)
{
	bool was_opened = fd >= 0;
	struct slot_attr attr;
	uint64_t dev;
	struct stat st;
	int error = rights_look(s->source_fd, path, &st);

	if (error < 0)
		return error;
	dev = scan_attr_of_stat(&st, &attr);
	if (was_opened && (dev != node->dev || attr.ino != node->attr.ino)) {
		node->attr.mode &= S_IFMT;
		node->is_untrusted = true;
		return 0;
	}
	node->attr = attr;
	node->dev = dev;
	return 0;
}

/* Attributes of the directory from its descriptor, or by path when it could not be opened. */
static int stat_dir(struct scan *s, struct scan_node *node, int fd, const char *path)
{
	struct statx sx = { 0 };
	int64_t now_ns = (int64_t)clock_now(s->wall_clock);
	int r = 0;

	atomic_fetch_add(&s->n_stats, 1);
	if (fd >= 0)
		r = statx(fd, "", AT_EMPTY_PATH, STATX_WANTED, &sx);
	else if (!s->is_shared)
		r = statx(s->source_fd, path, AT_NO_AUTOMOUNT, STATX_WANTED, &sx);
	if (r < 0)
		return -errno;
	node->dev = scan_attr_of_statx(&sx, &node->attr);
	if (s->is_shared && (fd < 0 || node->is_below_link))
		r = look_dir(s, node, fd, path);
	else if (s->is_shared)
		node->attr.mode = acl_narrow_fd(fd, node->attr.mode);
	if (r < 0)
		return r;
	if (!S_ISDIR(node->attr.mode))
		return -ENOTDIR;
	/* Also true for times in the future: a clock that was set back, or another machine's. */
	if (MAX(node->attr.mtime_ns, node->attr.ctime_ns) > now_ns - DATASET_RACY_NS)
		node->is_untrusted = true;
	return 0;
}

/* A descriptor or a negative errno. */
static int open_below(struct scan *s, const char *path)
{
	int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK, fd;

	if (s->is_shared)
		return beneath_open(s->source_fd, path, flags);
	fd = openat(s->source_fd, path, flags);
	return fd < 0 ? -errno : fd;
}

/* Opens and checks; 0 with node->stream set when there are names to read. */
static int open_dir(struct scan *s, struct scan_node *node)
{
	char path[DATASET_PATH_MAX + 1];
	AUTO_FD int fd = -1;
	int error, open_error = 0;

	scan_node_path(node, path);
	fd = open_below(s, path);
	if (fd < 0)
		open_error = fd;
	error = stat_dir(s, node, fd, path);
	if (!node->parent && (open_error < 0 || error < 0))
		return open_error < 0 ? open_error : error;
	if (error < 0) {
		drop(s, node, error == -EXDEV ? SCAN_LEAVES : strerror(-error));
		return 0;
	}
	if (is_loop(node)) {
		drop(s, node, "symlink loop");
		return 0;
	}
	if (fd >= 0) {
		node->stream = fdopendir(fd);
		if (!node->stream)
			return -ENOMEM;
		take_fd(&fd);
		return 0;
	}
	/* Listed empty, and looked at again next time. */
	node->is_untrusted = true;
	node->skipped++;
	scan_log_skip(s, node->parent, node->parent->names + node->name_off, node->name_len,
		      strerror(-open_error));
	return 0;
}

static bool is_dots(const char *name)
{
	return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

/* One name of a directory becomes a record; what needs no stat is decided here. */
static int add_dirent(struct scan *s, struct scan_node *node, const struct dirent *d)
{
	size_t len = strnlen(d->d_name, DATASET_NAME_MAX + 1);
	struct scan_rec *rec;

	if (is_dots(d->d_name))
		return 0;
	if (len > DATASET_NAME_MAX ||
	    node->path_len + (node->parent ? 1 : 0) + len > DATASET_PATH_MAX) {
		node->skipped++;
		scan_log_skip(s, node, d->d_name, len, "the path is too long");
		return 0;
	}
	rec = add_rec(node, d->d_name, (uint32_t)len);
	if (!rec)
		return -ENOMEM;
	rec->is_link = d->d_type == DT_LNK;
	rec->kind = d->d_type == DT_DIR ? REC_DIR : REC_PENDING;
	if (d->d_type != DT_DIR && d->d_type != DT_REG && d->d_type != DT_LNK &&
	    d->d_type != DT_UNKNOWN)
		skip_rec(s, node, rec, false, "neither a file nor a directory");
	return 0;
}

static int read_names(struct scan *s, struct scan_node *node)
{
	const struct dirent *d;
	int error = 0;

	while (error == 0) {
		errno = 0;
		d = readdir(node->stream);
		if (!d && errno != 0) {
			/* UNTESTED: needs a filesystem that fails in the middle of a directory. */
			node->is_untrusted = true;
			node->skipped++;
			scan_log_skip(s, node, "", 0, strerror(errno));
		}
		if (!d)
			break;
		error = add_dirent(s, node, d);
	}
	/* Only now: the names do not move any more. */
	for (uint32_t i = 0; i < node->n_recs && error == 0; i++)
		if (node->recs[i].kind == REC_DIR)
			error = add_subdir(s, node, &node->recs[i],
					   old_subdir(s, node, &node->recs[i]));
	return error;
}

int scan_dir_read(struct scan *s, struct scan_node *node)
{
	int error;

	if (node->old_dir != UINT32_MAX &&
	    !s->recheck->is_changed[table_dir_no(s->old, node->old_dir)]) {
		error = reuse_dir(s, node);
		return error < 0 ? error : scan_links_count(s, node);
	}
	atomic_fetch_add(&s->n_scanned, 1);
	error = open_dir(s, node);
	if (error < 0 || !node->stream)
		return error;
	error = read_names(s, node);
	return error < 0 ? error : scan_links_count(s, node);
}

/* d_type did not say what it is (some filesystems never do): only now it is known to be a symlink.
 */
static int find_links(struct scan *s, int dir_fd, const char *name, struct scan_rec *rec,
		      struct statx *sx)
{
	atomic_fetch_add(&s->n_stats, 1);
	if (statx(dir_fd, name, AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT,
		  STATX_WANTED, sx) < 0)
		return -errno;
	rec->is_link = S_ISLNK(sx->stx_mode);
	return 0;
}

/* What a symlink leads to; shared, also what is behind one. */
static int stat_link(struct scan *s, const struct scan_node *node, const char *name,
		     struct slot_attr *ret)
{
	char path[DATASET_PATH_MAX + 1 + DATASET_NAME_MAX + 1];
	struct statx sx;
	struct stat st;
	int error;

	atomic_fetch_add(&s->n_stats, 1);
	if (!s->is_shared) {
		if (statx(dirfd(node->stream), name, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT,
			  STATX_WANTED, &sx) < 0)
			return -errno;
		scan_attr_of_statx(&sx, ret);
		return 0;
	}
	scan_node_path(node, path);
	snprintf(path + strlen(path), DATASET_NAME_MAX + 2, "/%s", name);
	error = rights_look(s->source_fd, path, &st);
	if (error == 0)
		scan_attr_of_stat(&st, ret);
	return error;
}

static const char *why_skipped(const struct scan_rec *rec, int error)
{
	if (rec->is_link && error == -ENOENT)
		return "dangling symlink";
	return rec->is_link && error == -EXDEV ? SCAN_LEAVES : strerror(-error);
}

static int stat_rec(struct scan *s, struct scan_node *node, struct scan_rec *rec)
{
	char name[DATASET_NAME_MAX + 1];
	int dir_fd = dirfd(node->stream), error = 0;
	struct slot_attr attr = { 0 };
	struct statx sx;

	memcpy(name, node->names + rec->name_off, rec->name_len);
	name[rec->name_len] = '\0';
	if (!rec->is_link)
		error = find_links(s, dir_fd, name, rec, &sx);
	if (error == 0 && (rec->is_link || (s->is_shared && node->is_below_link)))
		error = stat_link(s, node, name, &attr);
	else if (error == 0)
		scan_attr_of_statx(&sx, &attr);
	if (error < 0) {
		skip_rec(s, node, rec, true, why_skipped(rec, error));
	} else if (S_ISDIR(attr.mode)) {
		return add_subdir(s, node, rec, old_subdir(s, node, rec));
	} else if (S_ISREG(attr.mode)) {
		if (s->is_shared && !rec->is_link && !node->is_below_link)
			attr.mode = acl_narrow_at(dir_fd, name, attr.mode);
		rec->kind = REC_FILE;
		rec->attr = attr;
	} else {
		skip_rec(s, node, rec, rec->is_link, "neither a file nor a directory");
	}
	return 0;
}

int scan_dir_stat(struct scan *s, struct scan_node *node, uint32_t from, uint32_t to)
{
	int error = 0;

	for (uint32_t i = from; i < to && error == 0; i++)
		if (node->recs[i].kind == REC_PENDING)
			error = stat_rec(s, node, &node->recs[i]);
	atomic_fetch_add(&s->n_found, to - from);
	return error;
}

static int rec_cmp(const void *a, const void *b, void *arg)
{
	const struct scan_rec *ra = a, *rb = b;
	const char *names = arg;

	return name_cmp(names + ra->name_off, ra->name_len, names + rb->name_off, rb->name_len);
}

void scan_dir_finish(struct scan_node *node)
{
	uint32_t kept = 0;
	void *smaller;

	if (node->stream)
		closedir(node->stream);
	node->stream = NULL;
	for (uint32_t i = 0; i < node->n_recs; i++) {
		node->skipped += node->recs[i].kind == REC_SKIPPED;
		node->is_untrusted |= node->recs[i].is_unstable;
		if (node->recs[i].kind == REC_FILE || node->recs[i].kind == REC_DIR)
			node->recs[kept++] = node->recs[i];
	}
	node->n_recs = kept;
	if (kept > 0)
		qsort_r(node->recs, kept, sizeof(*node->recs), rec_cmp, node->names);
	/* Growth left up to half of the memory unused. The names may be in use by readers of
	 * subdirectories. */
	smaller = kept > 0 ? realloc(node->recs, kept * sizeof(*node->recs)) : NULL;
	if (smaller)
		node->recs = smaller;
	node->recs_capacity = kept;
}
