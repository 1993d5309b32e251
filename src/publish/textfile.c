/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metrics as a file for the textfile collector of a node exporter: no port is opened, and
 * the file is there exactly as long as the mount. It is written under another name in the same
 * directory and renamed, so that nobody ever reads half of it; without timestamps, as the collector
 * refuses them. Every row has the label mount: several mounts of a node end up in one scrape, where
 * two rows of the same name and labels are an error.
 *
 * The directory may be full, gone, or on a filesystem that hangs. The first two are counted and
 * logged once until it works again. For the third all I/O is on a thread (metrics-file) that is there
 * as long as one writing takes, and that nobody waits for without a limit: then it is left behind,
 * detached, with memory of its own. Until it is back nothing else is written.
 *
 * Threads: metrics-file runs writer_main, one at a time; textfile_write and textfile_stop are never
 * called at once.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/log.h"
#include "clairfs/base/thr.h"
#include "clairfs/publish/textfile.h"
#include "publish_priv.h"

#define STOP_PATIENCE_NS (5 * NS_PER_S)

struct textfile {
	struct mutex mu;
	struct cond cv;
	struct publish_source source; /* not used once is_stopping */
	uint64_t interval_ns;
	char *path, *temp;
	char id[MOUNT_WORD], label[MOUNT_WORD + 16];
	int record_fd; /* the writer's, or whoever's while there is none, like the next two */
	bool has_record, is_failing;
	unsigned refs;                /* mu, like all below */
	bool is_writing, is_stopping; /* there is a writer; it is the last */
};

/* What a writer is given. */
struct writing {
	struct textfile *t;
	struct buf_writer text;
	bool is_end; /* nothing is written: the file goes */
};

static bool name_ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), k = strlen(end);

	return n > k && strcmp(text + n - k, end) == 0;
}

/* Absolute without following anything: the daemon changes its directory to / later. */
static int textfile_absolute(const char *path, char **ret, struct err *err)
{
	char cwd[PATH_MAX];

	if (*path == '/')
		*ret = strdup(path);
	else if (!getcwd(cwd, sizeof(cwd)))
		return err_set_errno(err, -errno, "current directory");
	else if (asprintf(ret, "%s/%s", cwd, path) < 0)
		*ret = NULL;
	return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
}

/* Within the mount nothing can be made, and whoever tries keeps it busy. */
static int check_outside(const char *path, const char *mountpoint, struct err *err)
{
	AUTO_FREE char *parent = strndup(path, (size_t)(strrchr(path, '/') - path) + 1);
	AUTO_FREE char *dir = parent ? realpath(parent, NULL) : NULL;
	size_t len = strlen(mountpoint);

	if (dir && strncmp(dir, mountpoint, len) == 0 && (dir[len] == 0 || dir[len] == '/'))
		return err_set(err, -EINVAL, "option metrics_textfile: %s is within the mount",
			       path);
	return 0;
}

int textfile_path(const char *option, const char *id, const char *mountpoint, char **ret,
		  struct err *err)
{
	AUTO_FREE char *path = NULL, *file = NULL;
	struct stat st;
	int rc = textfile_absolute(option, &path, err);

	if (rc < 0)
		return rc;
	if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode)) {
		if (!name_ends_with(path, ".prom"))
			return err_set(
				err, -EINVAL,
				"option metrics_textfile: %s is neither a directory nor a name that ends in .prom",
				option);
		file = TAKE(path);
	} else if (asprintf(&file, "%s/clairfs_%s.prom", path, id) < 0) {
		file = NULL;
		return err_set(err, -ENOMEM, "out of memory");
	}
	rc = check_outside(file, mountpoint, err);
	if (rc == 0)
		*ret = TAKE(file);
	return rc;
}

static void textfile_put(struct textfile *t)
{
	bool is_last;

	mutex_lock(&t->mu);
	is_last = --t->refs == 0;
	mutex_unlock(&t->mu);
	if (!is_last)
		return;
	cond_fini(&t->cv);
	mutex_fini(&t->mu);
	free(t->path);
	free(t->temp);
	free(t);
}

/* Others may write in the directory too: what is there under our temporary name is never opened. */
static int replace_file(const struct textfile *t, const struct buf_writer *text)
{
	int fd, rc;

	if (unlink(t->temp) < 0 && errno != ENOENT)
		return -errno;
	fd = open(t->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	rc = fchmod(fd, 0644) < 0 ? -errno : publish_write_all(fd, text->data, text->size);
	if (close(fd) < 0 && rc == 0)
		rc = -errno;
	if (rc == 0 && rename(t->temp, t->path) < 0)
		rc = -errno;
	if (rc < 0)
		unlink(t->temp);
	return rc;
}

/* Logs what changes. */
static void note_result(struct textfile *t, int rc)
{
	if (rc < 0 && !t->is_failing)
		log_warn("metrics_textfile: %s: %s; trying again every %llu s", t->path,
			 rc == -EBUSY ? "the daemon that was here before still writes it"
				      : strerror(-rc),
			 (unsigned long long)(t->interval_ns / NS_PER_S));
	else if (rc == 0 && t->is_failing)
		log_info("metrics_textfile: %s is written again", t->path);
	t->is_failing = rc < 0;
}

static int textfile_publish(struct textfile *t, const struct buf_writer *text)
{
	int rc = 0;

	if (!t->has_record) {
		rc = leftover_take(t->id, t->path, &t->record_fd);
		t->has_record = rc == 0;
	}
	if (rc == 0)
		rc = text->is_bad ? -ENOMEM : replace_file(t, text);
	note_result(t, rc);
	return rc;
}

/* Counts what became of it. True: that was the last writing, and the file is to go. */
static bool is_last_after(struct textfile *t, int rc)
{
	bool is_last;

	mutex_lock(&t->mu);
	is_last = t->is_stopping;
	if (!is_last)
		metrics_add(t->source.metrics,
			    rc == 0 ? METRIC_TEXTFILE_WRITES : METRIC_TEXTFILE_ERRORS, 1);
	t->is_writing = is_last;
	mutex_unlock(&t->mu);
	return is_last;
}

static void end_file(struct textfile *t)
{
	if (t->has_record) /* else the file is somebody else's */
		leftover_release(t->id, t->path, t->record_fd);
	mutex_lock(&t->mu);
	t->is_writing = false;
	cond_broadcast(&t->cv);
	mutex_unlock(&t->mu);
}

static void *textfile_main(void *arg)
{
	struct writing *w = arg;
	struct textfile *t = w->t;

	if (w->is_end || is_last_after(t, textfile_publish(t, &w->text)))
		end_file(t);
	buf_writer_fini(&w->text);
	free(w);
	textfile_put(t);
	return NULL;
}

/* Starts a writer, which there is none of; w is its own then. */
static int start_writer(struct writing *w)
{
	struct thr thr = { .is_started = false };
	struct textfile *t = w->t;
	int rc;

	mutex_lock(&t->mu);
	t->refs++;
	t->is_writing = true;
	mutex_unlock(&t->mu);
	rc = thr_start(&thr, "metrics-file", textfile_main, w, NULL);
	if (rc == 0) {
		pthread_detach(thr.id);
		return 0;
	}
	mutex_lock(&t->mu);
	t->refs--;
	t->is_writing = false;
	mutex_unlock(&t->mu);
	buf_writer_fini(&w->text);
	free(w);
	return rc;
}

/* With what there is to write, or with nothing at the end. */
static int write_aside(struct textfile *t, bool is_end)
{
	struct writing *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	*w = (struct writing){ .t = t, .is_end = is_end };
	buf_writer_init(&w->text);
	if (!is_end && t->source.render(t->source.ctx, t->label, &w->text) < 0)
		w->text.is_bad = true;
	return start_writer(w);
}

uint64_t textfile_write(void *textfile, short revents)
{
	struct textfile *t = textfile;
	bool is_busy;
	int rc;

	mutex_lock(&t->mu);
	is_busy = t->is_writing;
	mutex_unlock(&t->mu);
	rc = is_busy ? 0 : write_aside(t, false);
	if (rc < 0) { /* no thread: as if it had tried */
		note_result(t, rc);
		(void)is_last_after(t, rc);
	}
	return 0;
}

int textfile_new(const char *path, const char *id, uint64_t interval_ns,
		 const struct publish_source *source, struct textfile **ret, struct err *err)
{
	struct textfile *t = calloc(1, sizeof(*t));

	if (!t)
		return err_set(err, -ENOMEM, "out of memory");
	mutex_init(&t->mu);
	cond_init(&t->cv);
	t->refs = 1;
	t->source = *source;
	t->interval_ns = interval_ns;
	t->record_fd = -1;
	t->path = strdup(path);
	t->temp = leftover_temp(path);
	snprintf(t->id, sizeof(t->id), "%s", id);
	snprintf(t->label, sizeof(t->label), "mount=\"%s\"", id);
	if (!t->path || !t->temp) {
		textfile_put(t);
		return err_set(err, -ENOMEM, "out of memory");
	}
	*ret = t;
	return 0;
}

void textfile_stop(struct textfile *t)
{
	bool is_busy, is_late = false;
	int rc = 0;

	if (!t)
		return;
	mutex_lock(&t->mu);
	t->is_stopping = true;
	is_busy = t->is_writing;
	mutex_unlock(&t->mu);
	if (!is_busy) /* else the writer does it when it is back */
		rc = write_aside(t, true);
	if (rc < 0)
		log_warn("metrics_textfile: %s is left: %s", t->path, strerror(-rc));
	mutex_lock(&t->mu);
	while (t->is_writing && !is_late)
		is_late = cond_wait_for(&t->cv, &t->mu, STOP_PATIENCE_NS);
	mutex_unlock(&t->mu);
	if (is_late)
		log_warn("metrics_textfile: %s hangs and may be left", t->path);
	textfile_put(t);
}
