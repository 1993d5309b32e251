/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a report goes (option report), and how: under another name first, so that whoever sees the
 * file sees all of it. A report that cannot be written is a warning: the mount did its work. It may
 * be on a filesystem that hangs; by then the mount is gone already.
 *
 * Main thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clairfs/base/log.h"
#include "publish_priv.h"

static bool is_below(const char *dir, const char *top)
{
	size_t len = strlen(top);

	return strncmp(dir, top, len) == 0 && (dir[len] == '\0' || dir[len] == '/');
}

int report_place_find(struct report_place *place, const char *path, const char *mountpoint,
		      struct err *err)
{
	AUTO_FREE char *dir = NULL, *name = NULL;
	struct stat st;

	if (!path || !*path || place->fd)
		return 0;
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
		place->dir = realpath(path, NULL);
	} else {
		dir = strdup(path);
		name = strdup(path);
		if (!dir || !name)
			return err_set(err, -ENOMEM, "out of memory");
		place->dir = realpath(dirname(dir), NULL);
		place->name = strdup(basename(name));
	}
	if (!place->dir || (name && !place->name))
		return err_set_errno(err, -errno, "option report: %s", path);
	if (access(place->dir, W_OK) < 0)
		return err_set_errno(err, -errno, "option report: %s", place->dir);
	if (is_below(place->dir, mountpoint))
		return err_set(err, -EPERM, "option report: %s is within the mount", path);
	return 0;
}

void report_place_fini(struct report_place *place)
{
	free(place->dir);
	free(place->name);
	if (place->fd)
		close(place->fd);
}

static int write_synced(int fd, const char *text)
{
	int rc = publish_write_all(fd, text, strlen(text));

	return rc == 0 && fsync(fd) < 0 ? -errno : rc;
}

static int place_file(const struct report_place *place, const char *name, const char *text)
{
	AUTO_FREE char *temp = NULL;
	AUTO_FD int dir = open(place->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO_FD int fd = -1;
	int rc;

	if (dir < 0)
		return -errno;
	if (asprintf(&temp, ".%s.%d", name, (int)getpid()) < 0) {
		temp = NULL;
		return -ENOMEM;
	}
	fd = openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	rc = write_synced(fd, text);
	if (rc == 0 && renameat(dir, temp, dir, name) < 0)
		rc = -errno;
	if (rc < 0)
		unlinkat(dir, temp, 0);
	return rc;
}

static char *made_up_name(const struct published_report *r)
{
	char *name;

	if (asprintf(&name, "clairfs-%s-%s-%d.json", r->job[0] ? r->job : "nojob", r->host,
		     r->last->pid) < 0)
		return NULL;
	return name;
}

void report_place_write(const struct report_place *place, const struct published_report *r,
			const char *text)
{
	AUTO_FREE char *name = place->name ? strdup(place->name) : made_up_name(r);
	int rc = -ENOMEM;

	if (place->fd) {
		rc = text ? write_synced(place->fd, text) : rc;
		if (rc < 0)
			log_warn("no report: %s", strerror(-rc));
		return;
	}
	if (name && text)
		rc = place_file(place, name, text);
	if (rc < 0)
		log_warn("no report in %s: %s", place->dir, strerror(-rc));
	else
		log_info("report: %s/%s", place->dir, name);
}
