/* SPDX-License-Identifier: Apache-2.0 */
/* Do pages stay in the kernel from one pass to the next? See kept.c. */
#ifndef CLAIRFS_CACHE_KEPT_PRIV_H
#define CLAIRFS_CACHE_KEPT_PRIV_H

#include <stdatomic.h>

#include "clairfs/base/thr.h"

#define KEPT_PROBES 8 /* under way at once */

struct kept_probe {
	uint32_t sample;
	uint64_t begun_ns, opened_ns; /* opened: 0, not yet */
};

struct kept {
	struct mutex mu;
	struct kept_probe probe[KEPT_PROBES]; /* mu, like all below */
	_Atomic unsigned n_probes; /* read without mu: most opens are of none */
	unsigned trust;
	uint32_t period, since; /* one push in `period` is left out for a probe */
	_Atomic uint64_t *left_out; /* per sample: its last push was */
};

/* -ENOMEM. kept_fini works in any case. */
int kept_init(struct kept *k, uint32_t n_samples) MUST_USE;
void kept_fini(struct kept *k);
/* A sample whose pages the kernel was given once is to be pushed. True: leave it out, its pages are
 * there, or it is to be seen whether they are. */
bool kept_skips(struct kept *k, uint32_t sample, uint64_t now_ns);
void kept_opened(struct kept *k, uint32_t sample, uint64_t now_ns);
/* It was pushed after all. */
void kept_pushed(struct kept *k, uint32_t sample);
/* A READ came. Of one that was left out: the kernel had not all of its pages. */
void kept_read(struct kept *k, uint32_t sample);
/* Pages were dropped by us: what was known is no more. */
void kept_reset(struct kept *k);

#endif
