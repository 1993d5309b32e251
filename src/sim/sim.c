/* SPDX-License-Identifier: Apache-2.0 */
/* The module's entry points: which policies there are, a run with its bound, and the sums people
 * want of a result. The first epoch is cold, so steady figures leave it out: callers say from where
 * on to sum. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "sim_priv.h"

static const struct policy_ops *const policies[] = {
	&policy_clairfs, &policy_belady, &policy_nopfs, &policy_never_evict, &policy_random,
	&policy_fifo,    &policy_clock,  &policy_lru,   &policy_window,      &policy_pagecache,
};

static const char *const names[] = { "clairfs", "belady", "nopfs",  "never-evict", "random", "fifo",
				     "clock",   "lru",    "window", "pagecache",   "bound",  NULL };

const char *const *sim_policies(void)
{
	return names;
}

static const struct policy_ops *policy_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(policies); i++)
		if (strcmp(policies[i]->name, name) == 0)
			return policies[i];
	return NULL;
}

int sim_run(const struct sim_setup *s, const char *policy, const struct sim_progress *progress,
	    struct sim_result *ret, struct err *err)
{
	const struct policy_ops *ops = policy_find(policy);
	struct sim_result bound = { .n_epochs = s->epochs };
	int rc;

	*ret = (struct sim_result){ .policy = ops ? ops->name : "bound", .n_epochs = s->epochs };
	if (!ops && strcmp(policy, "bound") != 0)
		return err_set(err, -EINVAL, "no policy '%s'", policy);
	ret->epoch = calloc(s->epochs, sizeof(*ret->epoch));
	bound.epoch = calloc(s->epochs, sizeof(*bound.epoch));
	rc = ret->epoch && bound.epoch ? bound_run(s, ops ? &bound : ret, err)
				       : err_set_errno(err, -ENOMEM, "results");
	if (rc == 0 && ops)
		rc = run_policy(s, ops, progress, ret, err);
	for (uint64_t e = 0; rc == 0 && ops && e < s->epochs; e++)
		ret->epoch[e].bound_seconds = bound.epoch[e].seconds;
	sim_result_fini(&bound);
	if (rc < 0)
		sim_result_fini(ret);
	return rc;
}

void sim_result_fini(struct sim_result *result)
{
	free(result->epoch);
	result->epoch = NULL;
}

double sim_hit_ratio(const struct sim_result *result, uint64_t from)
{
	uint64_t reads = 0, source = 0;

	for (uint64_t e = from; e < result->n_epochs; e++) {
		reads += result->epoch[e].reads;
		source += result->epoch[e].source_reads;
	}
	return reads > source ? 1 - (double)source / (double)reads : 0;
}

/* In percent of compute time; of no compute time at all: infinite, or nothing. */
static double stall_pct(double seconds, double compute)
{
	double stall = MAX(seconds - compute, 0);

	if (compute > 0)
		return 100 * stall / compute;
	return stall > 0 ? INFINITY : 0;
}

double sim_stall_pct(const struct sim_result *result, uint64_t from)
{
	double stall = 0, compute = 0;

	for (uint64_t e = from; e < result->n_epochs; e++) {
		stall += result->epoch[e].stall_seconds;
		compute += result->epoch[e].compute_seconds;
	}
	return stall_pct(stall + compute, compute);
}

double sim_valid_stall_pct(const struct sim_result *result, uint64_t from)
{
	double stall = 0, compute = 0;

	for (uint64_t e = from; e < result->n_epochs; e++) {
		stall += result->epoch[e].valid_stall_seconds;
		compute += result->epoch[e].valid_compute_seconds;
	}
	return stall_pct(stall + compute, compute);
}

double sim_bound_stall_pct(const struct sim_result *result, uint64_t from)
{
	double bound = 0, compute = 0;

	for (uint64_t e = from; e < result->n_epochs; e++) {
		bound += result->epoch[e].bound_seconds;
		compute += result->epoch[e].compute_seconds;
	}
	return stall_pct(bound, compute);
}
