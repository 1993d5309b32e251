/* SPDX-License-Identifier: Apache-2.0 */
/* All reads of a run in one sequence, and for each the next read of the same sample: what exact MIN
 * needs to know. Jobs are taken to be in step: position p of all jobs, then p + 1. Eight bytes per
 * read, so a run that is too long is refused. Positions that a job skips (resume) or does not have
 * are holes (NONE). */
#include "future.h"

#include <errno.h>
#include <string.h>

#define USES_MAX (1ull << 31)

static int future_layout(struct future *u, const struct sim_setup *s, struct err *err)
{
	u->n_jobs = (uint32_t)s->p.jobs;
	u->start = calloc(s->epochs + 1, sizeof(*u->start));
	if (!u->start)
		return -ENOMEM;
	for (uint64_t e = 0; e < s->epochs; e++) {
		uint64_t longest = 0;

		for (uint32_t j = 0; j < u->n_jobs; j++) {
			struct order_epoch *ep = setup_epoch(s, j, e, err);

			if (!ep)
				return err->code;
			longest = MAX(longest, ep->length);
			order_epoch_free(ep);
		}
		u->start[e + 1] = u->start[e] + longest;
	}
	u->length = u->start[s->epochs] * u->n_jobs;
	if (u->length + s->n >= USES_MAX)
		return err_set(err, -EOVERFLOW,
			       "exact MIN keeps all reads of the run in memory: fewer epochs or "
			       "samples, please");
	u->sample = malloc(MAX(u->length, 1) * sizeof(uint32_t));
	u->next = malloc(MAX(u->length, 1) * sizeof(uint32_t));
	return u->sample && u->next ? 0 : -ENOMEM;
}

uint64_t future_at(const struct future *u, uint32_t job, uint64_t index, uint64_t pos)
{
	return (u->start[index] + pos) * u->n_jobs + job;
}

int future_init(struct future *u, const struct sim_setup *s, struct err *err)
{
	AUTO_FREE uint32_t *last = NULL;
	int rc;

	*u = (struct future){ .length = 0 };
	rc = future_layout(u, s, err);
	if (rc < 0)
		return rc;
	memset(u->sample, 0xff, u->length * sizeof(uint32_t));
	for (uint64_t e = 0; e < s->epochs; e++) {
		for (uint32_t j = 0; j < u->n_jobs; j++) {
			struct order_epoch *ep = setup_epoch(s, j, e, err);

			if (!ep)
				return err->code;
			for (uint64_t pos = setup_from(s, j, e, ep); pos < ep->length; pos++)
				u->sample[future_at(u, j, e, pos)] = ep->sample[pos];
			order_epoch_free(ep);
		}
	}
	last = malloc(s->n * sizeof(*last));
	if (!last)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->n; i++)
		last[i] = future_never(u, i);
	for (uint64_t i = u->length; i-- > 0;) {
		if (u->sample[i] == NONE)
			continue;
		u->next[i] = last[u->sample[i]];
		last[u->sample[i]] = (uint32_t)i;
	}
	return 0;
}

void future_fini(struct future *u)
{
	free(u->start);
	free(u->sample);
	free(u->next);
}
