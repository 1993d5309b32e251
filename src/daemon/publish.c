/* SPDX-License-Identifier: Apache-2.0 */
/* Starts and stops what publishes the metrics outside of the mount, as the options say. An option
 * that can mean nothing is an error before anything is started; whatever goes wrong on the machine
 * (a directory that is gone, a socket in use) is a warning, because a job must not fail for want of
 * a graph. Main's thread. */
#include "publish.h"

#include "clairfs/base/clock.h"
#include "clairfs/base/log.h"
#include "daemon_priv.h"

int wire_check_publish(struct wire *w, struct err *err)
{
	const struct mount_opts *o = w->opts;
	int rc = 0;

	publish_id(w->mountpoint, w->publish_id);
	if (o->metrics_textfile)
		rc = textfile_path(o->metrics_textfile, w->publish_id, &w->textfile_path, err);
	if (rc == 0 && o->metrics_socket)
		rc = metrics_socket_path(o->metrics_socket, &w->socket_path, err);
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
	if (w->socket_path && metrics_socket_start(w->socket_path, &source, &w->socket, &err) < 0)
		log_warn("%s: the metrics have no socket", err.msg);
}

void wire_unpublish(struct wire *w)
{
	metrics_socket_stop(w->socket);
	textfile_stop(w->textfile);
	free(w->textfile_path);
	free(w->socket_path);
}
