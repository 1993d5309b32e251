/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking into the directory of a store from outside: what `clairfs store` shows, compares and
 * removes. It is not a store: it never writes, takes no space and has no index, so it may run
 * beside any number of daemons. What it finds is foreign and bounded by the decoders of
 * store_format.c.
 *
 * Whether a segment is in use is asked of the kernel by taking its lock for a moment, without
 * waiting; a daemon that wants the lock in that moment tries again a few seconds later. A segment
 * is removed with that lock held, as a daemon does it, and only if its name is still the file that
 * was locked. Must never remove anything but files with names of segments.
 *
 * One thread at a time; everything blocks.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "clairfs/base/clock.h"
#include "store_priv.h"

#define MARKER "clairfs-store"
#define MARKER_START "clairfs store "
#define SCAN_BLOCKS 256u

const char *const store_segment_state_names[] = { "sealed",  "written", "unsealed", "damaged",
						  "version", "refused", NULL };

struct look_segment {
	uint64_t id;
	struct store_segment_info info;
};

struct store_look {
	struct store_dir dir;
	struct look_segment *segments;
	size_t n, room;
	uint8_t *buffer; /* of the longest record */
};

/* --- the directory --- */

static int look_check_marker(const struct store_look *look, const char *path, struct err *err)
{
	AUTO_FD int fd =
		openat(look->dir.fd, MARKER, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	char text[64] = { 0 };

	if (fd < 0 && errno == ENOENT)
		return err_set(err, -ENOENT,
			       "%s is no store of clairfs: there is no " MARKER " in it", path);
	if (fd < 0 || pread(fd, text, sizeof(text) - 1, 0) < 0)
		return err_set_errno(err, -errno, "%s/" MARKER, path);
	if (text[0] && strncmp(text, MARKER_START, strlen(MARKER_START)) != 0)
		return err_set(err, -ENOENT,
			       "%s is no store of clairfs: " MARKER " says something else", path);
	return 0;
}

static int look_check_dir(const struct store_look *look, const char *path, struct err *err)
{
	struct stat st;

	if (fstat(look->dir.fd, &st) < 0)
		return err_set_errno(err, -errno, "%s", path);
	if (st.st_uid != geteuid())
		return err_set(err, -EPERM,
			       "%s belongs to user %u: only that user may look into it", path,
			       (unsigned)st.st_uid);
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return err_set(err, -EPERM, "%s: others may write to it; try chmod go-w", path);
	return look_check_marker(look, path, err);
}

static int add_segment(void *ctx, uint64_t id)
{
	struct store_look *look = ctx;

	if (look->n == look->room) {
		size_t room = look->room ? 2 * look->room : 64;
		void *more = realloc(look->segments, room * sizeof(look->segments[0]));

		if (!more)
			return -ENOMEM;
		look->segments = more;
		look->room = room;
	}
	look->segments[look->n] = (struct look_segment){ .id = id };
	store_segment_name(id, look->segments[look->n].info.name);
	look->n++;
	return 0;
}

static int by_id(const void *a, const void *b)
{
	uint64_t x = ((const struct look_segment *)a)->id, y = ((const struct look_segment *)b)->id;

	return x < y ? -1 : x > y;
}

/* --- one segment --- */

/* Around the page cache if the filesystem lets us: what the drive has is to be seen, and the cache
 * is the training job's. */
static int open_segment(struct store_look *look, uint64_t id)
{
	int fd = store_dir_open_segment(&look->dir, id, O_RDONLY);

	if (fd == -EINVAL && look->dir.is_direct) {
		look->dir.is_direct = false;
		fd = store_dir_open_segment(&look->dir, id, O_RDONLY);
	}
	return fd;
}

static bool is_locked(int fd, int how)
{
	if (flock(fd, how | LOCK_NB) < 0)
		return errno == EWOULDBLOCK;
	(void)flock(fd, LOCK_UN);
	return false;
}

static int count_entry(void *ctx, const struct store_entry *entry)
{
	struct store_segment_info *info = ctx;

	info->records++;
	info->record_bytes += store_record_bytes(entry->length);
	return 0;
}

struct footer {
	struct store_trailer trailer;
	uint8_t *bytes; /* heap */
};

/* -EBADMSG when there is none that is right. */
static int look_footer(const struct store_look *look, int fd, const struct store_header *header,
		       struct footer *ret)
{
	AUTO_FREE void *bytes = NULL;
	struct stat st;
	uint64_t n;
	int rc;

	if (fstat(fd, &st) < 0)
		return -errno;
	n = (uint64_t)st.st_size / STORE_BLOCK;
	if (st.st_size % STORE_BLOCK || n < 2)
		return -EBADMSG;
	rc = store_read_all(&look->dir, fd, look->buffer, STORE_BLOCK, (n - 1) * STORE_BLOCK);
	if (rc < 0)
		return rc;
	if (!store_trailer_decode(look->buffer, header, n, &ret->trailer))
		return -EBADMSG;
	n = (uint64_t)ret->trailer.footer_blocks * STORE_BLOCK;
	if (posix_memalign(&bytes, STORE_BLOCK, MAX(n, STORE_BLOCK)) != 0)
		return -ENOMEM;
	rc = store_read_all(&look->dir, fd, bytes, n,
			    (uint64_t)ret->trailer.footer_block * STORE_BLOCK);
	ret->bytes = TAKE(bytes);
	return rc;
}

/* Header of a segment that goes by this number: -EBADMSG, -EPROTONOSUPPORT, errno. */
static int look_header(const struct store_look *look, int fd, uint64_t id, struct store_header *ret)
{
	int rc = store_read_all(&look->dir, fd, look->buffer, STORE_BLOCK, 0);

	if (rc == 0)
		rc = store_header_decode(look->buffer, ret);
	else if (rc == -EIO) /* too short, or the drive's: not usable either way */
		rc = -EBADMSG;
	return rc == 0 && ret->segment != id ? -EBADMSG : rc;
}

static enum store_segment_state look_state_of(struct store_look *look, int fd, struct look_segment *seg)
{
	struct footer footer = { .bytes = NULL };
	struct store_header header;
	int rc = look_header(look, fd, seg->id, &header);

	if (rc < 0 && is_locked(fd, LOCK_SH)) /* somebody is making it */
		return STORE_SEGMENT_WRITTEN;
	if (rc < 0)
		return rc == -EPROTONOSUPPORT ? STORE_SEGMENT_VERSION : STORE_SEGMENT_DAMAGED;
	seg->info.fsid = header.fsid;
	seg->info.made_ns = header.made_ns;
	rc = look_footer(look, fd, &header, &footer);
	if (rc == 0)
		rc = store_footer_decode(footer.bytes, &footer.trailer, count_entry, &seg->info);
	free(footer.bytes);
	if (rc == 0)
		return STORE_SEGMENT_SEALED;
	return is_locked(fd, LOCK_SH) ? STORE_SEGMENT_WRITTEN : STORE_SEGMENT_UNSEALED;
}

/* False when it is gone. */
static bool look_judge_segment(struct store_look *look, struct look_segment *seg)
{
	AUTO_FD int fd = open_segment(look, seg->id);
	struct stat st;

	if (fd == -ENOENT)
		return false;
	seg->info.state = STORE_SEGMENT_REFUSED;
	if (fd < 0 || fstat(fd, &st) < 0)
		return true;
	seg->info.bytes = (uint64_t)st.st_blocks * 512;
	seg->info.is_in_use = is_locked(fd, LOCK_EX);
	seg->info.state = look_state_of(look, fd, seg);
	return true;
}

int store_look_open(const char *dir, struct store_look **ret, struct err *err)
{
	struct store_look *look = calloc(1, sizeof(*look));
	void *buffer = NULL;
	size_t n = 0;
	int rc;

	if (!look || posix_memalign(&buffer, STORE_BLOCK, STORE_RECORD_MAX) != 0) {
		free(look);
		return err_set_errno(err, -ENOMEM, "%s", dir);
	}
	look->buffer = buffer;
	look->dir = (struct store_dir){ .sys = &store_sys_real, .marker_fd = -1 };
	look->dir.is_persistent = look->dir.is_direct = true;
	look->dir.fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	rc = look->dir.fd < 0 ? err_set_errno(err, -errno, "%s", dir) : look_check_dir(look, dir, err);
	if (rc == 0) {
		rc = store_dir_each(&look->dir, add_segment, look);
		if (rc < 0)
			err_set_errno(err, rc, "%s", dir);
	}
	if (rc < 0) {
		store_look_close(look);
		return rc;
	}
	if (look->n)
		qsort(look->segments, look->n, sizeof(look->segments[0]), by_id);
	for (size_t i = 0; i < look->n; i++)
		if (look_judge_segment(look, &look->segments[i]))
			look->segments[n++] = look->segments[i];
	look->n = n;
	*ret = look;
	return 0;
}

void store_look_close(struct store_look *look)
{
	if (!look)
		return;
	if (look->dir.fd >= 0)
		close(look->dir.fd);
	free(look->segments);
	free(look->buffer);
	free(look);
}

size_t store_look_count(const struct store_look *look)
{
	return look->n;
}

const struct store_segment_info *store_look_segment(const struct store_look *look, size_t i)
{
	return &look->segments[i].info;
}

/* --- comparing --- */

struct check_run {
	struct store_look *look;
	struct store_look_check *check;
	const struct store_header *header;
	int fd;
	uint64_t start_ns, start_bytes;
};

static void keep_to_rate(const struct check_run *run)
{
	const struct store_look_check *check = run->check;
	uint64_t now = clock_now(clock_monotonic()), due;
	struct timespec pause;

	if (!check->bytes_per_s)
		return;
	due = run->start_ns + (uint64_t)((double)(check->bytes - run->start_bytes) * 1e9 /
					 (double)check->bytes_per_s);
	if (due <= now)
		return;
	pause = (struct timespec){ .tv_sec = (time_t)((due - now) / NS_PER_S),
				   .tv_nsec = (long)((due - now) % NS_PER_S) };
	while (nanosleep(&pause, &pause) < 0 && errno == EINTR)
		;
}

static int check_record(void *ctx, const struct store_entry *entry)
{
	struct check_run *run = ctx;
	const struct store_seal want = { .what = *entry,
					 .segment = run->header->segment,
					 .fsid = run->header->fsid };
	struct store_look_check *check = run->check;
	uint32_t n = store_record_bytes(entry->length);
	int rc = store_read_all(&run->look->dir, run->fd, run->look->buffer, n,
				(uint64_t)entry->block * STORE_BLOCK);

	check->records++;
	check->bytes += n;
	if (rc < 0 || !store_record_is(run->look->buffer, &want))
		check->bad++;
	store_drop_cache(&run->look->dir, run->fd, (uint64_t)entry->block * STORE_BLOCK, n);
	if (check->progress)
		check->progress(check->ctx, check);
	keep_to_rate(run);
	return 0;
}

/* A segment without footer: what its seals say there is. A record whose seal is wrong is none, as
 * for a mount. */
static int check_unsealed(struct check_run *run)
{
	AUTO_FREE void *bytes = NULL;
	uint32_t free_block = 1;
	struct stat st;
	uint64_t end;
	int rc = 0;

	if (posix_memalign(&bytes, STORE_BLOCK, (size_t)SCAN_BLOCKS * STORE_BLOCK) != 0)
		return -ENOMEM;
	if (fstat(run->fd, &st) < 0)
		return -errno;
	end = MIN((uint64_t)st.st_size / STORE_BLOCK, (uint64_t)STORE_SEGMENT_BLOCKS);
	for (uint64_t at = 1; rc == 0 && at < end; at += SCAN_BLOCKS) {
		uint32_t n = (uint32_t)MIN(end - at, (uint64_t)SCAN_BLOCKS);

		rc = store_read_all(&run->look->dir, run->fd, bytes, (size_t)n * STORE_BLOCK,
				    at * STORE_BLOCK);
		if (rc == 0)
			rc = store_scan(bytes, (uint32_t)at, n, run->header, &free_block,
					check_record, run);
	}
	return rc;
}

int store_look_verify(struct store_look *look, size_t i, struct store_look_check *check)
{
	const struct look_segment *seg = &look->segments[i];
	AUTO_FD int fd = open_segment(look, seg->id);
	struct footer footer = { .bytes = NULL };
	struct store_header header;
	struct check_run run = { look,        check, &header, fd, clock_now(clock_monotonic()),
				 check->bytes };
	int rc;

	if (fd < 0)
		return fd;
	if (check->progress)
		check->progress(check->ctx, check);
	rc = look_header(look, fd, seg->id, &header);
	if (rc < 0)
		return is_locked(fd, LOCK_SH) ? -EAGAIN : -EBADMSG;
	rc = look_footer(look, fd, &header, &footer);
	if (rc == 0)
		rc = store_footer_decode(footer.bytes, &footer.trailer, check_record, &run);
	free(footer.bytes);
	if (rc == -EBADMSG)
		rc = is_locked(fd, LOCK_SH) ? -EAGAIN : check_unsealed(&run);
	return rc;
}

int store_look_remove(struct store_look *look, size_t i)
{
	const struct look_segment *seg = &look->segments[i];
	AUTO_FD int fd = open_segment(look, seg->id);
	struct stat st, named;

	if (fd == -ENOENT)
		return 0;
	if (fd < 0)
		return fd == -ELOOP || fd == -ENXIO ? -EPERM : fd;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (fstatat(look->dir.fd, seg->info.name, &named, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (named.st_ino != st.st_ino || named.st_dev != st.st_dev)
		return -EBUSY; /* another one has its name now */
	if (unlinkat(look->dir.fd, seg->info.name, 0) < 0)
		return errno == ENOENT ? 0 : -errno;
	return 0;
}
