/* SPDX-License-Identifier: Apache-2.0 */
/* Randomised switchback: in a few blocks of a pass, chosen by chance, the cache steps aside and the
 * job reads from the source as if there were no mount. What a step takes longer there than in the
 * blocks beside them is what the mount removes from a step: nothing is modelled, and queues, the
 * load that the job itself puts on the source and whatever else others do to it are in the
 * difference. It costs what it measures, so it is asked for (option switchback).
 *
 * Here: which blocks, and the statistics. PURE: no clock, no threads; any thread. Who holds reads
 * back (sampling.c) asks the same function as the statistics, and so does every node of a job: the
 * choice follows from the dataset's size, the shape of the loader, and the numbers of pass and
 * block. */
#ifndef CLAIRFS_WAIT_SWITCHBACK_H
#define CLAIRFS_WAIT_SWITCHBACK_H

#include <stdbool.h>
#include <stdint.h>

/* More of a pass cannot be chosen: each block needs two beside it for comparison. */
#define SWITCHBACK_SHARE_MAX 0.1
/* With fewer blocks in pass-through nothing is said. */
#define SWITCHBACK_BLOCKS_MIN 4u

/* What is known of the loader of each rank; 0: not told. prefetch is then taken as 2, as PyTorch
 * does; without the others there are no blocks. */
struct switchback_loader {
	uint32_t n_samples; /* of the dataset */
	uint64_t workers, prefetch, batch;
};
struct switchback {
	double chance; /* of a block, before those before it have a say; 0: there are no blocks */
	uint64_t seed;
	uint32_t batch, workers; /* samples of a batch */
	uint32_t wash, block;    /* batches: a whole number of rounds of the workers. What follows a
				  * change is told after `wash` of them: the loader holds no more. */
};
/* share: of the blocks, at most SWITCHBACK_SHARE_MAX. False: not possible, and there are none. */
bool switchback_init(struct switchback *s, double share, const struct switchback_loader *loader);
/* Whether the n-th block of a rank's pass is in pass-through. Never block 0, and never one of two
 * after one that is. */
bool switchback_is_chosen(const struct switchback *s, uint64_t pass, uint64_t block);
/* Whether the index-th sample of a rank's pass is in such a block. */
bool switchback_has(const struct switchback *s, uint64_t pass, uint64_t index);

/* Differences of the time of a step, one of each block in pass-through. */
struct switchback_sum {
	uint64_t n;
	double mean, m2; /* m2: sum of squared distances from the mean */
};
void switchback_add(struct switchback_sum *sum, double difference);
/* Mean and half of its 95 % confidence interval (Student's t). False: fewer than
 * SWITCHBACK_BLOCKS_MIN. */
bool switchback_limits(const struct switchback_sum *sum, double *ret_mean, double *ret_margin);

#endif
