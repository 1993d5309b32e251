/* SPDX-License-Identifier: Apache-2.0 */
/* Starts and stops what publishes the metrics outside of the mount, as the options say. An option
 * that can mean nothing is an error before anything is started; whatever goes wrong on the machine
 * (a directory that is gone) is a warning, because a job must not fail for want of a graph. Main's
 * thread. */
#include "publish.h"

#include <errno.h>
#include <string.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/log.h"
#include "daemon_priv.h"

/* Within the mount nothing can be made, and whoever tries keeps it busy. */
static int check_outside(const struct wire *w, const char *path, struct err *err)
{
	AUTO_FREE char *parent = strndup(path, (size_t)(strrchr(path, '/') - path) + 1);
	AUTO_FREE char *dir = parent ? realpath(parent, NULL) : NULL;
	size_t len = strlen(w->mountpoint);

	if (dir && strncmp(dir, w->mountpoint, len) == 0 && (dir[len] == 0 || dir[len] == '/'))
		return err_set(err, -EINVAL, "option metrics_textfile: %s is within the mount",
			       path);
	return 0;
}

int wire_check_publish(struct wire *w, struct err *err)
{
	const struct mount_opts *o = w->opts;
	int rc = 0;

	mount_word(w->mountpoint, w->publish_id);
	if (o->metrics_textfile)
		rc = textfile_path(o->metrics_textfile, w->publish_id, &w->textfile_path, err);
	if (rc == 0 && w->textfile_path)
		rc = check_outside(w, w->textfile_path, err);
	return rc;
}

void wire_publish(struct wire *w)
{
	struct publish_source source = { stats_render_labelled, w, w->metrics };
	struct err err = { 0 };

	if (!w->textfile_path)
		leftover_clear(w->mountpoint);
	else if (textfile_start(w->textfile_path, w->publish_id,
				w->opts->metrics_interval * NS_PER_S, &source, &w->textfile,
				&err) < 0)
		log_warn("%s: the metrics are not written", err.msg);
}

void wire_unpublish(struct wire *w)
{
	textfile_stop(w->textfile);
	free(w->textfile_path);
}
