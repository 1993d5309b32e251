/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where memory is plentiful the pages of a sample are still in the kernel when the next pass comes,
 * and pushing them again is work for nothing: 35 us of CPU a sample, a fifth of what a job reads
 * that does nothing else. The kernel does not tell what it keeps, but a READ tells what it does not.
 * So now and then the push of a sample that was in the kernel before is left out. Is it opened, and
 * no READ comes within a moment, then its pages were there. Sixteen such, without a READ between
 * them, and all pushes of such samples are left out, until READs say otherwise.
 *
 * A probe that fails costs one READ from the arena, so they become rare where they fail: the first
 * are one push in 32, after two failures one in 2048. A READ of pages that were pushed says nothing:
 * it may have come before the push was through.
 *
 * The plan is told that such a sample is the kernel's own business (PLAN_KEPT), not that it is staged:
 * its copy in the arena does not leave early, and a READ of it is no page that the stage has lost.
 * Any thread.
 */
#include "kept_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "clairfs/base/clock.h"

#include "bits_priv.h"

#define PERIOD_FIRST 32u
#define PERIOD_LEAST 8u
#define PERIOD_MOST 4096u
#define PERIOD_GROWS 8u
#define TRUSTED 16u
#define TRUST_MOST 32u
#define TRUST_LOST 8u
#define FORGOTTEN_NS (60 * NS_PER_S) /* a probe that nobody opens */
#define MOMENT_NS (100 * NS_PER_MS) /* from an open to the READ, opens being heard of later */

int kept_init(struct kept *k, uint32_t n_samples)
{
	*k = (struct kept){ .period = PERIOD_FIRST };
	mutex_init(&k->mu);
	k->left_out = calloc(n_samples / 64 + 1, sizeof(*k->left_out));
	return k->left_out ? 0 : -ENOMEM;
}

void kept_fini(struct kept *k)
{
	free(k->left_out);
	mutex_fini(&k->mu);
}

/* Probes that were opened some time ago, and were not asked for since, have succeeded. */
static void look_locked(struct kept *k, uint64_t now_ns) REQUIRES(k->mu)
{
	for (unsigned i = k->n_probes; i-- > 0;) {
		const struct kept_probe p = k->probe[i];

		if (now_ns < (p.opened_ns ? p.opened_ns + MOMENT_NS : p.begun_ns + FORGOTTEN_NS))
			continue;
		k->probe[i] = k->probe[--k->n_probes];
		if (!p.opened_ns)
			continue;
		k->trust = k->trust + 1 >= TRUSTED ? TRUST_MOST : k->trust + 1;
		k->period = MAX(k->period / 2, PERIOD_LEAST);
	}
}

bool kept_skips(struct kept *k, uint32_t sample, uint64_t now_ns)
{
	bool skips;

	mutex_lock(&k->mu);
	look_locked(k, now_ns);
	skips = k->trust >= TRUSTED;
	if (!skips && ++k->since >= k->period && k->n_probes < KEPT_PROBES) {
		k->probe[k->n_probes++] = (struct kept_probe){ .sample = sample, .begun_ns = now_ns };
		k->since = 0;
		skips = true;
	}
	mutex_unlock(&k->mu);
	if (skips)
		bits_set(k->left_out, sample);
	return skips;
}

void kept_opened(struct kept *k, uint32_t sample, uint64_t now_ns)
{
	if (atomic_load_explicit(&k->n_probes, memory_order_relaxed) == 0)
		return;
	mutex_lock(&k->mu);
	for (unsigned i = 0; i < k->n_probes; i++)
		if (k->probe[i].sample == sample && !k->probe[i].opened_ns)
			k->probe[i].opened_ns = MAX(now_ns, 1);
	mutex_unlock(&k->mu);
}

static void end_probe_locked(struct kept *k, uint32_t sample) REQUIRES(k->mu)
{
	for (unsigned i = k->n_probes; i-- > 0;)
		if (k->probe[i].sample == sample)
			k->probe[i] = k->probe[--k->n_probes];
}

void kept_pushed(struct kept *k, uint32_t sample)
{
	if (!bits_clear(k->left_out, sample))
		return;
	mutex_lock(&k->mu);
	end_probe_locked(k, sample);
	mutex_unlock(&k->mu);
}

void kept_read(struct kept *k, uint32_t sample)
{
	if (!bits_clear(k->left_out, sample))
		return;
	mutex_lock(&k->mu);
	end_probe_locked(k, sample);
	k->trust -= MIN(k->trust, TRUST_LOST);
	if (k->trust < TRUSTED)
		k->period = MIN(k->period * PERIOD_GROWS, PERIOD_MOST);
	mutex_unlock(&k->mu);
}

void kept_reset(struct kept *k)
{
	mutex_lock(&k->mu);
	k->n_probes = 0;
	k->trust = 0;
	k->period = PERIOD_FIRST;
	mutex_unlock(&k->mu);
}
