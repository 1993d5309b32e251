/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what a container says about itself. The scan (format.h) says which bytes it wants next;
 * they come through a window, so that small ranges which follow each other are one request, while
 * what is passed over is not read: the window begins small, doubles while ranges follow each
 * other, and begins again behind a jump. A file is what it was when it was opened, or an error:
 * it is compared before and after. Runs in the threads of records_find.c. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "clairfs/base/beneath.h"
#include "clairfs/base/text.h"
#include "dataset_priv.h"

#define WINDOW_MIN (4u << 10)
#define WINDOW_MAX (512u << 10)

struct window {
	int fd;
	uint8_t bytes[WINDOW_MAX];
	uint64_t at; /* of the file */
	size_t n, ahead;
};

static int read_at(int fd, uint8_t *to, size_t size, uint64_t at, size_t *ret_n)
{
	*ret_n = 0;
	while (*ret_n < size) {
		ssize_t n = pread(fd, to + *ret_n, size - *ret_n, (off_t)(at + *ret_n));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return 0;
		*ret_n += (size_t)n;
	}
	return 0;
}

/* The bytes of a range, borrowed until the next call; NULL with *ret_error. */
static const uint8_t *window_get(struct window *w, const struct format_range *want, int *ret_error)
{
	bool follows = want->offset >= w->at && want->offset - w->at <= w->n + w->ahead;
	size_t size;

	if (want->offset >= w->at && want->offset - w->at <= w->n &&
	    want->length <= w->n - (want->offset - w->at))
		return w->bytes + (want->offset - w->at);
	w->ahead = follows ? MIN(2 * w->ahead, WINDOW_MAX) : WINDOW_MIN;
	size = MAX(want->length, w->ahead);
	w->at = want->offset;
	*ret_error = read_at(w->fd, w->bytes, size, w->at, &w->n);
	if (*ret_error == 0 && w->n < want->length)
		*ret_error = -ESTALE; /* the scan asks for nothing behind the end */
	return *ret_error < 0 ? NULL : w->bytes;
}

static int take_affine(void *ctx, const struct format_affine *affine)
{
	return records_part_affine(ctx, affine);
}

static int take_record(void *ctx, const struct format_range *range, uint64_t rows)
{
	return records_part_add(ctx, range, rows);
}

static int run_scan(struct window *w, struct format_scan *s, struct err *err)
{
	for (;;) {
		struct format_range want = format_scan_want(s);
		const uint8_t *bytes;
		int rc = 0;

		if (want.length == 0)
			return 0;
		bytes = window_get(w, &want, &rc);
		if (!bytes)
			return err_set(err, rc, "%s",
				       rc == -ESTALE ? "it was changed while it was read"
						     : strerror(-rc));
		rc = format_scan_feed(s, bytes, err);
		if (rc == -EOVERFLOW || rc == -ENOMEM || rc == -E2BIG)
			return err_set(err, rc, "%s",
				       rc == -ENOMEM ? "out of memory" :
				       rc == -E2BIG  ? records_too_tangled :
						       "it has too many records");
		if (rc < 0)
			return rc;
	}
}

/* A regular file, and what it is now. As the mount opens it: symlinks may leave a source that is not
 * for others. */
static int open_file(const struct dataset *ds, const char *path, int *ret_fd,
		     struct file_identity *ret, struct err *err)
{
	const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
	AUTO_FD int fd = ds->is_shared ? beneath_open(ds->source_fd, path, flags)
				       : openat(ds->source_fd, path, flags);
	struct stat st;

	if (fd < 0)
		return err_set_errno(err, ds->is_shared ? fd : -errno, "it cannot be opened");
	if (fstat(fd, &st) < 0)
		return err_set_errno(err, -errno, "it cannot be looked at");
	if (!S_ISREG(st.st_mode))
		return err_set(err, -EBADMSG, "it is no file any more");
	*ret = file_identity_of(&st);
	*ret_fd = take_fd(&fd);
	return 0;
}

static bool is_still(int fd, const struct file_identity *identity)
{
	struct file_identity now;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return false;
	now = file_identity_of(&st);
	return file_identity_eq(&now, identity);
}

static int scan_file(int fd, const struct records_task *task, const uint64_t bytes[2],
		     struct records_part *part, struct err *err)
{
	struct format_sink sink = { .ctx = part, .affine = take_affine, .record = take_record };
	AUTO_FREE struct window *w = malloc(sizeof(*w));
	struct format_scan *s = NULL;
	int rc;

	if (!w)
		return err_set(err, -ENOMEM, "out of memory");
	w->fd = fd;
	w->at = w->n = 0;
	w->ahead = WINDOW_MIN / 2;
	rc = format_scan_new(task->format, bytes[0], bytes[1], &sink, &s, err);
	if (rc == 0)
		rc = run_scan(w, s, err);
	format_scan_free(s);
	return rc;
}

static int check_samples(const struct records_part *part, const struct records_task *task,
			 struct err *err)
{
	uint64_t n = records_part_count(part);

	if (task->samples == UINT64_MAX || n == task->samples)
		return 0;
	return err_set(err, -EBADMSG, "it has %llu samples, index.json says %llu",
		       (unsigned long long)n, (unsigned long long)task->samples);
}

/* The data, and the index where that is another file. */
static int read_pair(const struct dataset *ds, const char *path, const char *index_path,
		     const struct records_task *task, struct records_part *part, struct err *err)
{
	AUTO_FD int fd = -1, index_fd = -1;
	struct file_identity data, index;
	uint64_t bytes[2];
	int rc = open_file(ds, path, &fd, &data, err);

	if (rc == 0)
		rc = open_file(ds, index_path, &index_fd, &index, err);
	if (rc == 0)
		rc = records_part_file(part, task->slot, &data) < 0
			     ? err_set(err, -ENOMEM, "out of memory")
			     : 0;
	if (rc < 0)
		return rc;
	bytes[0] = index.size;
	bytes[1] = data.size;
	rc = scan_file(index_fd, task, bytes, part, err);
	if (rc == 0)
		rc = check_samples(part, task, err);
	if (rc == 0 && (!is_still(fd, &data) || !is_still(index_fd, &index)))
		rc = err_set(err, -EBADMSG, "it was changed while it was read");
	return rc;
}

int records_read(const struct dataset *ds, const struct records_task *task,
		 struct records_part *part, struct err *err)
{
	char path[DATASET_PATH_MAX + 1], index_path[DATASET_PATH_MAX + 1], shown[512];
	int rc;

	if (task->format == FORMAT_NONE) {
		rc = records_part_whole(part, task->slot);
		return rc < 0 ? err_set(err, rc, "out of memory") : 0;
	}
	rc = table_path(&ds->t, task->slot, path, sizeof(path));
	if (rc == 0)
		rc = table_path(&ds->t, task->index_slot, index_path, sizeof(index_path));
	if (rc < 0) /* UNTESTED: no path of the index is longer */
		return err_set_errno(err, rc, "a path");
	rc = read_pair(ds, path, index_path, task, part, err);
	if (rc < 0) {
		records_part_clear(part);
		if (err)
			err_prefix(err, "%s",
				   text_escape(index_path, strlen(index_path), shown,
					       sizeof(shown)));
	}
	return rc;
}

int records_read_all(const struct dataset *ds, const char *path, uint64_t max, uint8_t **ret,
		     size_t *ret_size, struct err *err)
{
	AUTO_FREE uint8_t *bytes = NULL;
	struct file_identity identity;
	AUTO_FD int fd = -1;
	int rc = open_file(ds, path, &fd, &identity, err);

	if (rc < 0)
		return rc;
	if (identity.size > max)
		return err_set(err, -E2BIG, "it has more than %llu MiB",
			       (unsigned long long)(max >> 20));
	bytes = malloc(identity.size + 1);
	if (!bytes)
		return err_set(err, -ENOMEM, "out of memory");
	rc = read_at(fd, bytes, identity.size, 0, ret_size);
	if (rc < 0)
		return err_set_errno(err, rc, "it cannot be read");
	*ret = TAKE(bytes);
	return 0;
}
