/* SPDX-License-Identifier: Apache-2.0 */
/* What the vectors test: of the first places that the epoch's ranks read, how many hold a sample
 * that was seen? Position 0 of a rank is the first read of its worker 0, position 1 the second
 * (or another worker's first), so with any number of workers the first few positions are among the
 * first reads. A seed passes with `threshold` of them: some may be missing, because an open was not
 * seen.
 *
 * A worker may be late: on a busy node it begins dozens of opens after the others, and if it is worker 0
 * none of the first positions is there. So where few seeds are tried the sieve is patient: it looks at up to
 * 64 positions, and asks for a few more of them than chance has.
 *
 * The fewest tests are chosen that let through one wrong seed in two thousand, since the judge
 * costs about a hundred times what the sieve does. Membership is a bitmap by hash; that it lies
 * now and then costs time only. Swaps are heeded only in datasets so small that they matter.
 * Set-up code; immutable afterwards. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "recover_priv.h"

#define PASS_AIM 5e-4
#define SEEN_MAX 512 /* more fill the table without saying more about the first positions */
#define SEEN_MIN 32
#define SEEN_IN_ORDER 16
#define SEEN_PATIENT 1024
#define PATIENT_AIM 1e-3 /* where few seeds are tried the judge may have more of them */

/* Positions per rank, and how many must be hits. */
static const struct shape {
	uint32_t positions, threshold;
} shapes[] = { { 2, 1 }, { 3, 2 }, { 4, 3 }, { 6, 4 }, { 8, 6 } };

/* Chance of at least k hits in `tests` tests. */
static double tail(uint32_t tests, uint32_t k, double p)
{
	double below = 0, term = pow(1 - p, tests);

	if (p >= 1)
		return 1;
	for (uint32_t i = 0; i < k && i <= tests; i++) {
		below += term;
		term *= (double)(tests - i) / (i + 1) * p / (1 - p);
	}
	/* Below the rounding of 1 - below the first term left out is the answer. */
	return below < 0.99999 ? 1 - below : term;
}

static int compare_tests(const void *a, const void *b)
{
	const struct sieve_test *x = a, *y = b;

	return (x->at > y->at) - (x->at < y->at);
}

/* Tests of the first positions of every rank in question; the number of distinct ones. At most
 * RECOVER_WORLD_MAX * 8 * worlds of them before repeats are dropped, so memory is bounded. */
static uint32_t fill_tests(const struct problem *problem, uint32_t positions,
			   struct sieve_test *tests)
{
	bool is_any = problem->rank == RECOVER_UNKNOWN;
	uint32_t n = 0, kept = 0;

	for (uint32_t w = 0; w < problem->n_worlds; w++) {
		uint64_t world = problem->world[w];
		uint64_t ranks = is_any ? world : 1, first = is_any ? 0 : problem->rank;

		/* All ranks of a smaller world are among those of the largest. */
		if (is_any && w + 1 < problem->n_worlds)
			continue;
		for (uint64_t i = 0; i < positions; i++)
			for (uint64_t r = 0; r < ranks; r++) {
				uint64_t at = first + r + i * world;

				if (at + 1 < problem->n) /* the last place is no draw */
					tests[n++].at = (uint32_t)at;
			}
	}
	qsort(tests, n, sizeof(*tests), compare_tests);
	for (uint32_t i = 0; i < n; i++)
		if (kept == 0 || tests[i].at != tests[kept - 1].at)
			tests[kept++] = tests[i];
	for (uint32_t i = 0; i < kept; i++) {
		tests[i].divisor = problem->n - tests[i].at;
		tests[i].magic = (uint32_t)(((uint64_t)1 << 32) / tests[i].divisor);
	}
	return kept;
}

/* Returns the chance that a sample is in the table. */
static double fill_table(const struct problem *problem, uint32_t most, struct sieve *s)
{
	uint32_t n_seen = MIN(problem->n_seen, most), set = 0;
	bool is_small = problem->n <= 1u << SIEVE_BITS;

	if (!problem->patience)
		n_seen = MIN(n_seen, MAX(problem->n / 16, 8));
	if (problem->workers == 0)
		n_seen = MIN(n_seen, SEEN_IN_ORDER);
	memset(s->table, 0, sizeof(s->table));
	s->hash_factor = is_small ? 1 : 0x9e3779b1;
	s->hash_shift = is_small ? 0 : 32 - SIEVE_BITS;
	for (uint32_t i = 0; i < n_seen; i++) {
		uint32_t h = (problem->seen[i] * s->hash_factor) >> s->hash_shift;

		s->table[h >> 5] |= 1u << (h & 31);
	}
	for (size_t i = 0; i < ARRAY_LEN(s->table); i++)
		set += (uint32_t)__builtin_popcount(s->table[i]);
	return (double)set / MIN(problem->n, 1u << SIEVE_BITS);
}

/* Is there a swap among the tested places in more than one seed of a hundred? */
static bool swaps_matter(const struct sieve *s, uint32_t n)
{
	return s->n_tests == s->last + 1 && s->n_tests <= SIEVE_SWAPS_MAX &&
	       (uint64_t)s->n_tests * s->n_tests * 50 > n;
}

/* p: chance that a sample is in the table. */
static void choose_tests(const struct problem *problem, double p, struct sieve *s)
{
	for (size_t i = 0; i < ARRAY_LEN(shapes) && shapes[i].positions <= problem->n_seen; i++) {
		uint32_t n_tests = fill_tests(problem, shapes[i].positions, s->tests);

		if (n_tests < shapes[i].threshold)
			break;
		s->threshold = shapes[i].threshold;
		s->n_tests = n_tests;
		s->pass = tail(n_tests, s->threshold, p);
		if (s->pass <= PASS_AIM)
			break;
	}
}

/* The fewest hits that one seed in a thousand has by chance. */
static uint32_t patient_threshold(uint32_t n_tests, double p)
{
	uint32_t threshold = 2;

	while (threshold < n_tests && tail(n_tests, threshold, p) > PATIENT_AIM)
		threshold++;
	return threshold;
}

/* False: the right seed might not get through, unless the first positions of its rank are all there. */
static bool be_patient(const struct problem *problem, struct sieve *s)
{
	for (uint32_t most = SEEN_PATIENT; problem->patience && most >= SEEN_MIN; most /= 2) {
		double p = fill_table(problem, most, s), enough;

		s->n_tests = fill_tests(problem, problem->patience, s->tests);
		s->threshold = patient_threshold(s->n_tests, p);
		s->pass = tail(s->n_tests, s->threshold, p);
		/* Half of them, and what chance adds. */
		enough = problem->patience / 2.0 + p * (s->n_tests - problem->patience);
		if (s->threshold <= enough)
			return true;
	}
	return false;
}

/* With many ranks to ask, hits by chance are many: then only the first samples count. */
static void be_strict(const struct problem *problem, struct sieve *s)
{
	s->n_tests = 0;
	for (uint32_t most = SEEN_MAX; most >= SEEN_MIN; most /= 2) {
		choose_tests(problem, fill_table(problem, most, s), s);
		if (s->pass <= PASS_AIM)
			break;
	}
}

int sieve_new(const struct problem *problem, struct sieve **ret, struct err *err)
{
	struct sieve *s = calloc(1, sizeof(*s));
	uint64_t positions = MAX(shapes[ARRAY_LEN(shapes) - 1].positions, problem->patience);

	*ret = NULL;
	if (s)
		s->tests = calloc(problem_ranks(problem) * positions, sizeof(*s->tests));
	if (!s || !s->tests) {
		sieve_free(s);
		return err_set(err, -ENOMEM, "out of memory");
	}
	if (!be_patient(problem, s))
		be_strict(problem, s);
	if (s->n_tests == 0) {
		sieve_free(s);
		return err_set(err, -EINVAL, "the rank reads nothing of %" PRIu32 " samples",
			       problem->n);
	}
	s->last = s->tests[s->n_tests - 1].at;
	s->has_swaps = swaps_matter(s, problem->n);
	*ret = s;
	return 0;
}

void sieve_free(struct sieve *sieve)
{
	if (!sieve)
		return;
	free(sieve->tests);
	free(sieve);
}
