/* SPDX-License-Identifier: Apache-2.0 */
/* A training job in virtual time, written from PyTorch's loader (index queues, one per worker, that
 * the loop fills as it takes batches) and not from the recurrence under test: the truth about a
 * pass with and without a cache, and what a mount would have seen of it. */
#ifndef CLAIRFS_TESTS_STALL_KIT_H
#define CLAIRFS_TESTS_STALL_KIT_H

#include "check.h"
#include "clairfs/hint.h"
#include "clairfs/wait/stall.h"

struct stall_case {
	const char *name;
	uint32_t workers, prefetch, batch, steps;
	double compute_s, compute_cv; /* of a step */
	double decode_s, decode_cv;   /* of a sample */
	double source_s, source_cv;   /* of a read of the source */
	double miss_share;            /* of the reads, read from the source as without a cache */
	bool is_ghost;                /* the page cache would have had all of it */
	uint32_t controls;            /* control reads made before */
};

struct stall_truth {
	double with_s, without_s; /* wall time of the pass */
	double saved_latency_s;
	double compute_s;
};

/* Log-normal with this mean and coefficient of variation. */
double stall_rand_time(uint64_t *rnd, double mean, double cv);

/* When batches are complete and taken, by queues. Arrays of n batches; seconds. */
struct stall_plan {
	uint32_t workers, prefetch, n;
	const double *io, *decode, *compute;
	double *began, *done, *taken; /* results, each may be NULL */
};
/* The wall time. */
double stall_loader(const struct stall_plan *plan);

/* 60 steps of 4 workers over a source of 60 ms: mostly waiting. */
extern const struct stall_case some_case;

/* Plays one pass of a case and tells it to s as a mount would: opens heard of in gatherings of five
 * milliseconds, waits exactly; the steps too if with_hook. */
void stall_case_play(struct stall *s, const struct stall_case *c, uint64_t pass, uint64_t seed,
		     bool with_hook, struct stall_truth *ret);
/* Control reads of the case's source, and that it is not slower under load. */
void stall_case_controls(struct stall *s, const struct stall_case *c, uint64_t seed);

#endif
