/* SPDX-License-Identifier: Apache-2.0 */
/* Policy "belady": exact MIN with bypass. What is used last leaves first, and what would be used
 * later than everything kept is not kept at all: nothing reads the source less often, for samples
 * of one size. It must know all uses of the run (future.c), which is why it is a yardstick and not
 * a policy.
 *
 * Prefetches the same window as the others, never at the cost of a sample that is due earlier. */
#include <errno.h>

#include "cached.h"
#include "clairfs/base/tree.h"
#include "future.h"

struct belady {
	struct future future;
	uint32_t *key;    /* [n] the next use */
	struct tree kept; /* keys of what is kept */
};

static int belady_init(struct model *m, struct err *err)
{
	struct belady *b = calloc(1, sizeof(*b));
	uint32_t n = m->run->s->n;
	int rc;

	m->policy = b;
	if (!b)
		return -ENOMEM;
	rc = future_init(&b->future, m->run->s, err);
	if (rc < 0)
		return rc;
	b->key = malloc(n * sizeof(uint32_t));
	if (!b->key)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		b->key[i] = future_never(&b->future, i);
	return tree_init(&b->kept, b->future.length + n);
}

static void belady_fini(struct model *m)
{
	struct belady *b = m->policy;

	if (!b)
		return;
	tree_fini(&b->kept);
	future_fini(&b->future);
	free(b->key);
	free(b);
}

/* Its key goes on to the use after this one; what is kept moves with it. */
static void belady_read(struct model *m, uint32_t job, uint64_t pos, uint32_t sample)
{
	struct belady *b = m->policy;
	uint64_t at = future_at(&b->future, job, m->run->job[job].index, pos);
	bool is_kept = (m->where[sample] & (IN_CACHE | FRESH)) == IN_CACHE;

	if (is_kept)
		tree_clear(&b->kept, b->key[sample]);
	/* Jobs are not quite in step: a key never goes back. */
	if (b->key[sample] <= at || b->key[sample] >= b->future.length)
		b->key[sample] = b->future.next[at];
	if (is_kept)
		tree_set(&b->kept, b->key[sample]);
}

static bool belady_wants(struct model *m, uint32_t sample)
{
	const struct belady *b = m->policy;

	return b->key[sample] < b->future.length;
}

static void belady_keep(struct model *m, uint32_t sample)
{
	struct belady *b = m->policy;

	tree_set(&b->kept, b->key[sample]);
}

static void belady_drop(struct model *m, uint32_t sample)
{
	struct belady *b = m->policy;

	tree_clear(&b->kept, b->key[sample]);
}

static uint64_t belady_next_due(struct model *m, uint32_t sample)
{
	const struct belady *b = m->policy;

	return b->key[sample];
}

static uint64_t belady_due(struct model *m, uint32_t job, uint64_t pos)
{
	const struct job *j = &m->run->job[job];
	const struct belady *b = m->policy;

	return pos < j->ep->length ? future_at(&b->future, job, j->index, pos)
				   : future_at(&b->future, job, j->index + 1, pos - j->ep->length);
}

static uint32_t belady_victim(struct model *m, uint64_t due)
{
	const struct belady *b = m->policy;
	uint64_t last = tree_max(&b->kept);

	return last == NO_POS || last <= due ? NONE : future_sample(&b->future, last);
}

const struct policy_ops policy_belady = {
	.name = "belady",
	.driver = &cached_driver,
	.is_ahead = true,
	.init = belady_init,
	.fini = belady_fini,
	.read = belady_read,
	.wants = belady_wants,
	.keep = belady_keep,
	.drop = belady_drop,
	.victim = belady_victim,
	.due = belady_due,
	.next_due = belady_next_due,
};
