/* SPDX-License-Identifier: Apache-2.0 */
/* Policy "nopfs": the placement of NoPFS (SC'21): before the job starts, count how often this node
 * reads each sample over all epochs, keep those read most often that fit, for good. Ties go to the
 * smaller number. One node reading everything counts every sample alike; it pays off when each node
 * reads a random share and some samples come by more often. */
#include <errno.h>

#include "cached.h"

struct nopfs {
	struct bitmap is_placed;
};

static int nopfs_count(struct model *m, uint32_t *count, uint32_t *ret_most, struct err *err)
{
	const struct sim_setup *s = m->run->s;

	for (uint32_t j = 0; j < m->run->n_jobs; j++) {
		if (m->run->job[j].model != m)
			continue;
		for (uint64_t e = 0; e < s->epochs; e++) {
			struct order_epoch *ep = setup_epoch(s, j, e, err);

			if (!ep)
				return err->code;
			for (uint64_t pos = setup_from(s, j, e, ep); pos < ep->length; pos++)
				*ret_most = MAX(*ret_most, ++count[ep->sample[pos]]);
			order_epoch_free(ep);
		}
	}
	return 0;
}

static int nopfs_init(struct model *m, struct err *err)
{
	const struct sim_setup *s = m->run->s;
	struct nopfs *f = calloc(1, sizeof(*f));
	AUTO_FREE uint32_t *count = calloc(s->n, sizeof(*count));
	uint64_t placed = 0, room = m->capacity - ((struct cached *)m->state)->reserved;
	uint32_t most = 0;
	int rc;

	m->policy = f;
	if (!f || !count)
		return -ENOMEM;
	rc = bitmap_init(&f->is_placed, s->n);
	if (rc == 0)
		rc = nopfs_count(m, count, &most, err);
	if (rc < 0)
		return rc;
	for (uint32_t uses = most; uses > 0; uses--)
		for (uint32_t i = 0; i < s->n; i++)
			if (count[i] == uses && placed + s->size[i] <= room) {
				placed += s->size[i];
				bitmap_set(&f->is_placed, i);
			}
	return 0;
}

static void nopfs_fini(struct model *m)
{
	struct nopfs *f = m->policy;

	if (f)
		bitmap_fini(&f->is_placed);
	free(f);
}

static bool nopfs_wants(struct model *m, uint32_t sample)
{
	const struct nopfs *f = m->policy;

	return bitmap_get(&f->is_placed, sample);
}

const struct policy_ops policy_nopfs = {
	.name = "nopfs",
	.driver = &cached_driver,
	.is_ahead = true,
	.is_reserving = true,
	.init = nopfs_init,
	.fini = nopfs_fini,
	.wants = nopfs_wants,
};
