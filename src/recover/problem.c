/* SPDX-License-Identifier: Apache-2.0 */
/* The question of a search, checked and in the form the rest wants: distinct samples, a table from
 * sample to when it was seen, the worlds and ranks to try, and how far into an epoch to look.
 *
 * Everything here comes from outside (a command line, the opens of a job), so every number is
 * checked, and limits bound memory whatever they are. Set-up code of one thread; immutable
 * afterwards. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "clairfs/base/compare.h"
#include "recover_priv.h"

/* Positions of a rank that its loader may read ahead: 32 workers with batches of 512. */
#define WINDOW_MAX 16384
/* Places of the permutation computed per seed at most: 16384 positions of 8 ranks. */
#define PLACES_MAX (1 << 17)
#define N_MAX ((uint64_t)UINT32_MAX - 2) /* as in order.h */
#define PATIENCE_MIN 16u

static int check_worlds(const struct recover_params *p, struct err *err)
{
	if (p->n_worlds > RECOVER_WORLDS_MAX)
		return err_set(err, -EINVAL, "at most %d world sizes can be tried at once",
			       RECOVER_WORLDS_MAX);
	for (size_t i = 0; i < p->n_worlds; i++) {
		if (p->worlds[i] == 0 || p->worlds[i] > RECOVER_WORLD_MAX)
			return err_set(err, -EINVAL,
				       "world size %" PRIu32 " is out of range, allowed: 1-%d",
				       p->worlds[i], RECOVER_WORLD_MAX);
		if (p->rank != RECOVER_UNKNOWN && p->rank >= p->worlds[i])
			return err_set(err, -EINVAL,
				       "rank %" PRIu32 " is outside the world of %" PRIu32
				       ", ranks count from 0",
				       p->rank, p->worlds[i]);
	}
	if (p->n_worlds == 0 && p->rank != RECOVER_UNKNOWN && p->rank != 0)
		return err_set(err, -EINVAL, "rank %" PRIu32 " needs the world size", p->rank);
	return 0;
}

static int check(const struct recover_params *p, struct err *err)
{
	int rc = check_worlds(p, err);

	if (rc < 0)
		return rc;
	if (p->n > N_MAX)
		return err_set(err, -EINVAL, "%" PRIu64 " samples are too many, at most %" PRIu64,
			       p->n, N_MAX);
	if (p->batch == 0)
		return err_set(err, -EINVAL, "a batch has at least one sample");
	if (p->first_seed > p->last_seed)
		return err_set(err, -EINVAL, "the range of seeds is empty");
	for (size_t i = 0; i < p->n_seen; i++)
		if (p->seen[i] >= p->n)
			return err_set(err, -EINVAL,
				       "index %" PRIu32 " is outside the dataset of %" PRIu64
				       " samples",
				       p->seen[i], p->n);
	if (recover_needed(p) == 0)
		return err_set(err, -EINVAL,
			       "%" PRIu64 " samples are too few to tell seeds apart: their whole "
			       "order fits several",
			       p->n);
	return 0;
}

static void take_worlds(struct problem *problem, const struct recover_params *p)
{
	double choices = 0;

	problem->world[0] = 1;
	problem->n_worlds = 1;
	if (p->n_worlds > 0) {
		memcpy(problem->world, p->worlds, p->n_worlds * sizeof(*p->worlds));
		problem->n_worlds = (uint32_t)p->n_worlds;
	}
	qsort(problem->world, problem->n_worlds, sizeof(problem->world[0]), compare_u32);
	for (uint32_t i = 0; i < problem->n_worlds; i++)
		choices += p->rank == RECOVER_UNKNOWN ? problem->world[i] : 1;
	problem->choices = log2(choices);
}

/* Samples seen, without repeats (a second open, a padded epoch): `seen` keeps first times. When
 * much of the dataset was seen, that a sample is among them says little: only the first are taken. More
 * of them where a worker may be late that has the first positions.
 */
static int take_seen(struct problem *problem, const struct recover_params *p, uint64_t needed)
{
	uint64_t share = problem->patience ? p->n / 4 : p->n / 8;
	uint64_t most = MIN(MAX(share, 2 * needed), RECOVER_SEEN_MAX);
	uint32_t size = 16, n = (uint32_t)MIN(p->n_seen, RECOVER_SEEN_MAX);

	while (size < 4 * n)
		size *= 2;
	problem->seen = malloc(MAX(n, 1) * sizeof(*problem->seen));
	problem->slot = malloc(size * sizeof(*problem->slot));
	if (!problem->seen || !problem->slot)
		return -ENOMEM;
	memset(problem->slot, 0xff, size * sizeof(*problem->slot));
	problem->slot_mask = size - 1;
	for (uint32_t i = 0; i < n && problem->n_seen < most; i++) {
		uint32_t h = (p->seen[i] * 0x9e3779b1) >> 15;

		if (problem_find(problem, p->seen[i]) != SAMPLE_NONE)
			continue;
		while (problem->slot[h & problem->slot_mask] != UINT32_MAX)
			h++;
		problem->slot[h & problem->slot_mask] = problem->n_seen;
		problem->seen[problem->n_seen++] = p->seen[i];
	}
	return 0;
}

uint32_t problem_find(const struct problem *problem, uint32_t sample)
{
	uint32_t h = (sample * 0x9e3779b1) >> 15;

	for (;; h++) {
		uint32_t at = problem->slot[h & problem->slot_mask];

		if (at == UINT32_MAX)
			return SAMPLE_NONE;
		if (problem->seen[at] == sample)
			return at;
	}
}

uint32_t problem_places(const struct problem *problem, uint32_t positions)
{
	uint64_t world = problem->world[problem->n_worlds - 1];
	uint64_t rank = problem->rank == RECOVER_UNKNOWN ? world - 1 : problem->rank;

	return (uint32_t)MIN(rank + 1 + (positions - 1) * world, problem->n);
}

static uint32_t window_of(const struct problem *problem)
{
	uint64_t world = problem->world[problem->n_worlds - 1];
	uint64_t window = WINDOW_MAX;

	if (problem->batch != RECOVER_UNKNOWN && problem->workers != RECOVER_UNKNOWN)
		window = 2 * (uint64_t)problem->batch * MAX(problem->workers, 1) +
			 2 * problem->n_seen;
	window = MIN(window, WINDOW_MAX);
	window = MIN(window, DIV_ROUND_UP(problem->n, problem->world[0]));
	return (uint32_t)MAX(MIN(window, PLACES_MAX / world), 1);
}

uint32_t problem_ranks(const struct problem *problem)
{
	return problem->rank == RECOVER_UNKNOWN ? problem->world[problem->n_worlds - 1]
						: problem->n_worlds;
}

/* What the sieve may test for so many seeds: positions of a rank, and of all ranks together. A search is to
 * take twice as long at most, or hundredths of a second. */
static const struct patience {
	uint64_t seeds;
	uint32_t positions, tests;
} patiences[] = {
	{ 4096, 64, 4096 },
	{ 1u << 17, 64, 1024 },
	{ 2u << 20, 64, SIEVE_NEAR - 1 },
	{ 8u << 20, 32, SIEVE_NEAR - 1 },
};

/* And no more of the permutation than where a swap is seldom in the way. A reader without workers begins at
 * the beginning. */
static uint32_t patience_of(const struct problem *problem, uint64_t seeds)
{
	for (size_t i = 0; i < ARRAY_LEN(patiences) && problem->workers != 0; i++) {
		uint32_t tests = MIN(patiences[i].tests, problem->n / 4);
		uint32_t positions = MIN(tests / problem_ranks(problem), patiences[i].positions);

		if (seeds <= patiences[i].seeds)
			return positions < PATIENCE_MIN ? 0 : positions;
	}
	return 0;
}

int problem_new(const struct recover_params *p, uint64_t seeds, struct problem **ret, struct err *err)
{
	struct problem *problem;
	uint64_t needed;
	int rc = check(p, err);

	*ret = NULL;
	if (rc < 0)
		return rc;
	problem = calloc(1, sizeof(*problem));
	if (!problem)
		return err_set(err, -ENOMEM, "out of memory");
	problem->n = (uint32_t)p->n;
	problem->rank = p->rank;
	problem->batch = p->batch;
	problem->workers = p->workers;
	take_worlds(problem, p);
	problem->patience = patience_of(problem, seeds);
	needed = recover_needed(p);
	rc = take_seen(problem, p, needed);
	if (rc < 0) {
		problem_free(problem);
		return err_set(err, rc, "out of memory");
	}
	problem->window = window_of(problem);
	if (problem->n_seen < needed) {
		rc = err_set(err, -EINVAL,
			     "at least %" PRIu64 " different samples are needed to single out a "
			     "seed among those tried with %" PRIu64 " samples; %" PRIu32
			     " were given",
			     needed, p->n, problem->n_seen);
		problem_free(problem);
		return rc;
	}
	*ret = problem;
	return 0;
}

void problem_free(struct problem *problem)
{
	if (!problem)
		return;
	free(problem->seen);
	free(problem->slot);
	free(problem);
}
