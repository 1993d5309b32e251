/* SPDX-License-Identifier: Apache-2.0 */
/* Policy "random": any kept sample leaves. An array of the kept samples and where each stands, so
 * that drawing and removing cost the same whatever is kept. */
#include <errno.h>

#include "cached.h"

struct random_policy {
	uint32_t *kept, *at, count; /* kept[at[sample]] == sample */
};

static int random_init(struct model *m, struct err *err)
{
	struct random_policy *r = calloc(1, sizeof(*r));

	(void)err;
	m->policy = r;
	if (!r)
		return -ENOMEM;
	r->kept = malloc(m->run->s->n * sizeof(uint32_t));
	r->at = malloc(m->run->s->n * sizeof(uint32_t));
	return r->kept && r->at ? 0 : -ENOMEM;
}

static void random_fini(struct model *m)
{
	struct random_policy *r = m->policy;

	if (!r)
		return;
	free(r->kept);
	free(r->at);
	free(r);
}

static void random_keep(struct model *m, uint32_t sample)
{
	struct random_policy *r = m->policy;

	r->at[sample] = r->count;
	r->kept[r->count++] = sample;
}

static void random_drop(struct model *m, uint32_t sample)
{
	struct random_policy *r = m->policy;
	uint32_t last = r->kept[--r->count];

	r->kept[r->at[sample]] = last;
	r->at[last] = r->at[sample];
}

static uint32_t random_victim(struct model *m, uint64_t due)
{
	struct random_policy *r = m->policy;

	(void)due;
	return r->count ? r->kept[run_random(m->run) % r->count] : NONE;
}

const struct policy_ops policy_random = {
	.name = "random",
	.driver = &cached_driver,
	.is_ahead = true,
	.init = random_init,
	.fini = random_fini,
	.keep = random_keep,
	.drop = random_drop,
	.victim = random_victim,
};
