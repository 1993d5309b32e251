/* SPDX-License-Identifier: Apache-2.0 */
/* What a search for advice knows; advise.c makes the figures, advise_why.c the words. */
#ifndef CLAIRFS_SIM_ADVISE_H
#define CLAIRFS_SIM_ADVISE_H

#include "sim_priv.h"

struct search {
	struct sim_setup *setup;
	const struct sim_progress *progress;
	struct sim_advice *advice;
	uint64_t least; /* memory that what is under way needs, of the shortened job */
	uint64_t from;  /* first epoch that counts: the cold one only if there is no other */
	double target;
	bool is_least_enough;
	struct sim_size bound; /* with everything cached */
};

/* They set verdict and why. */
void advise_not_needed(const struct search *s);
void advise_not_enough(const struct search *s);
void advise_helps(const struct search *s);
/* Appends what depends on the sizes that were found. */
void advise_sizes(const struct search *s);

#endif
