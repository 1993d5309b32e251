/* SPDX-License-Identifier: Apache-2.0 */
/* The sequence of all reads of a run. See future.c. */
#ifndef CLAIRFS_SIM_FUTURE_H
#define CLAIRFS_SIM_FUTURE_H

#include "sim_priv.h"

struct future {
	uint64_t length;  /* reads of all jobs */
	uint64_t *start;  /* [epochs + 1] positions before each epoch */
	uint32_t *sample; /* [length] */
	uint32_t *next;   /* [length] index of the next use, or future_never */
	uint32_t n_jobs;
};

/* -ENOMEM, -EOVERFLOW, errors of the order. future_fini in every case. */
int future_init(struct future *u, const struct sim_setup *s, struct err *err) MUST_USE;
void future_fini(struct future *u);
uint64_t future_at(const struct future *u, uint32_t job, uint64_t index, uint64_t pos);
/* "Never again": beyond the sequence, one value per sample, so that values are distinct. */
static inline uint32_t future_never(const struct future *u, uint32_t sample)
{
	return (uint32_t)(u->length + sample);
}
static inline uint32_t future_sample(const struct future *u, uint64_t key)
{
	return key < u->length ? u->sample[key] : (uint32_t)(key - u->length);
}

#endif
