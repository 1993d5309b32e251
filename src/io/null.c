/* SPDX-License-Identifier: Apache-2.0 */
/* The null engine: every job succeeds at once and reads nothing. It is the ceiling: what everything
 * above the engines costs when I/O is free. Contents of the buffer are left as they are, so it must
 * never serve a real mount.
 *
 * done() runs in submit(), on the thread of the caller. A job that is submitted again in done()
 * would nest without bound; therefore the outermost submit of a thread works off what the inner
 * ones queue. */
#include "io_priv.h"

#include <errno.h>
#include <string.h>

static void null_io_complete(struct io_job *job)
{
	io_job_begin(job);
	memset(&job->st, 0, sizeof(job->st));
	job->st.st_mode = S_IFREG | 0444;
	job->st.st_nlink = 1;
	job->st.st_size = (off_t)(job->offset + job->length);
	job->st_after = job->st;
	job->got = job->length;
	if (job->keep_open)
		(void)io_job_finish(job, -1, -ENOTSUP); /* there is nothing to hand over */
	else
		(void)io_job_finish(job, -1, 0);
}

static void null_submit(struct io *io, struct io_job *job)
{
	static _Thread_local struct list *pending; /* of the outermost submit of this thread */
	struct list mine, *node;

	if (pending) {
		list_push_tail(pending, &job->node);
		return;
	}
	list_init(&mine);
	pending = &mine;
	null_io_complete(job);
	while ((node = list_pop_head(&mine)))
		null_io_complete(container_of(node, struct io_job, node));
	pending = NULL;
}

static void null_io_free(struct io *io)
{
	free(io);
}

static const struct io_ops null_ops = { .name = "null", .submit = null_submit, .free = null_io_free };

int io_null_new(struct io **ret, struct err *err)
{
	struct io *io = calloc(1, sizeof(*io));

	if (!io)
		return err_set(err, -ENOMEM, "null engine: out of memory");
	io->ops = &null_ops;
	*ret = io;
	return 0;
}
