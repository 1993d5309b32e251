/* SPDX-License-Identifier: Apache-2.0 */
/* The snapshots that texts are made of: what is theirs is freed here, by whoever had them filled. */
#include <errno.h>
#include <unistd.h>

#include "publish_priv.h"

void published_fini(struct published *p)
{
	for (uint32_t i = 0; i < p->n_jobs; i++) {
		free(p->job[i].spec);
		free(p->job[i].name);
	}
	free(p->spec);
	free(p->told.answer);
	json_decref(p->search);
	json_decref(p->gpu_wait);
	json_decref(p->hook);
}

void published_report_fini(struct published_report *r)
{
	for (uint32_t i = 0; r->replay && i < r->wait.n_ranks; i++)
		json_decref(r->replay[i]);
	free(r->replay);
	free(r->wait.rank);
	json_decref(r->ranks);
}

int publish_write_all(int fd, const void *data, size_t size)
{
	const char *at = data;

	while (size > 0) {
		ssize_t n = write(fd, at, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		at += n;
		size -= (size_t)n;
	}
	return 0;
}
