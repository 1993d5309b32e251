/* SPDX-License-Identifier: Apache-2.0 */
/* How much speaks for a seed? The measure is the same for every case: bits, -log2 of the chance
 * that a wrong seed explains as much, less what it cost to choose among ways of explaining.
 *
 *  - In a row: the first c samples seen are positions 0..c-1 of a rank: c * log2(n) bits.
 *  - As a set: of the first m positions of a rank h were seen, while by chance it would be m times
 *    p = seen/n. Chernoff's bound of that (which holds for drawing without putting back:
 *    Hoeffding 1963): m * KL(h/m || p). Workers that interleave as they like, missing opens and
 *    foreign ones only make h/m smaller.
 *  - With a loader's layout: w workers with batches of b read positions 0, b, 2b .. (w-1)b first,
 *    then 1, b+1, ... In that sequence what was seen is a dense prefix again. Common layouts are
 *    tried, each at the price of having chosen it.
 *
 * Three depths, for speed: most of what the sieve lets through ends after 16 positions, and only
 * what could not be chance (given how often it is asked) has its layouts tried. It must never
 * accept for being the best of a bad lot: the bar is absolute.
 *
 * Bits say which samples were seen, not in which sequence: a random split by a seed is the beginning of
 * that seed's permutation, however its samples are shuffled after that. So in the end the sequence
 * is looked at: positions that one worker reads one after the other were seen one after the other.
 * One thread per judge. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "clairfs/base/compare.h"
#include "recover_priv.h"

#define DEPTH_FIRST 16
#define DEPTH_SECOND 128
#define GATE_FIRST 6.0 /* bits above the price of the choices, to go on */
#define GATE_SECOND 14.0
#define RANK_BITS 12.0 /* for a further rank, once the seed is certain */
#define PAIRS_MIN 100  /* fewer do not tell a sequence from none */
#define LAG_MAX 1024   /* positions: of many workers, or of batches whose samples are sorted */
#define DENSE 1.1      /* places to a sample seen, and samples to one of these places */
#define DEVIATIONS 5.0 /* by chance half of the pairs are in sequence; of a thousand lags */

/* Layouts that jobs have. One worker or none is the plain sequence. */
static const uint16_t common_workers[] = {
	2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 15, 16, 20, 24, 28, 32
};
static const uint16_t common_batches[] = {
	2,   3,   4,   5,   6,   7,   8,   9,   10,  12,  14,  15,  16,  18,   20,
	24,  25,  28,  30,  32,  36,  40,  48,  50,  56,  60,  64,  72,  80,   90,
	96,  100, 112, 120, 125, 128, 144, 150, 160, 180, 192, 200, 208, 224,  240,
	250, 256, 288, 300, 320, 360, 384, 400, 448, 500, 512, 640, 768, 1000, 1024,
};

/* A sample seen, at its place in the permutation. */
struct hit {
	uint32_t place, when; /* when: number in problem->seen */
};

struct judge {
	const struct problem *problem;
	struct head head;
	double p;              /* chance that a sample was seen */
	double *log_n;         /* [n_seen + 1] bits of the first c in a row */
	double layouts;        /* price of choosing one */
	struct hit *hit;       /* [n_hits <= n_seen] ascending place */
	uint32_t n_hits, done; /* done: places computed */
	uint32_t *at;          /* [n_seen] positions of one rank, or their places in a layout */
	uint32_t *count, *row; /* [RECOVER_WORLD_MAX] by rank: hits, and those in a row */
};

/* What one rank's hits amount to. */
struct verdict {
	double bits;
	uint32_t explained;
};

static bool layout_fits(const struct problem *problem, uint32_t workers, uint32_t batch)
{
	return (problem->workers == RECOVER_UNKNOWN || problem->workers == workers) &&
	       (problem->batch == RECOVER_UNKNOWN || problem->batch == batch) &&
	       (uint64_t)workers * batch <= problem->window;
}

/* The layouts that are tried, one after the other, from *i = 0 on. */
static bool next_layout(const struct problem *problem, uint32_t *i, uint32_t *workers,
			uint32_t *batch)
{
	const uint32_t n_batches = ARRAY_LEN(common_batches) + 1;
	const uint32_t n = (ARRAY_LEN(common_workers) + 1) * n_batches;

	while (*i < n) {
		uint32_t w = *i / n_batches, b = *i % n_batches;

		/* Number 0 of either is what the caller knows, if anything. */
		*workers = w ? common_workers[w - 1] : problem->workers;
		*batch = b ? common_batches[b - 1] : problem->batch;
		(*i)++;
		if (w && *workers == problem->workers)
			continue;
		if (b && *batch == problem->batch)
			continue;
		if (*workers != RECOVER_UNKNOWN && *batch != RECOVER_UNKNOWN && *workers >= 2 &&
		    *batch >= 2 && layout_fits(problem, *workers, *batch))
			return true;
	}
	return false;
}

int judge_new(const struct problem *problem, struct judge **ret)
{
	struct judge *j = calloc(1, sizeof(*j));
	uint32_t places = problem_places(problem, problem->window);
	uint32_t i = 0, n = 0, workers, batch;

	*ret = NULL;
	if (!j)
		return -ENOMEM;
	j->problem = problem;
	j->p = (double)problem->n_seen / problem->n;
	j->hit = calloc(problem->n_seen, sizeof(*j->hit));
	j->at = calloc(problem->n_seen, sizeof(*j->at));
	j->log_n = calloc(problem->n_seen + 1, sizeof(*j->log_n));
	j->count = calloc(RECOVER_WORLD_MAX, sizeof(*j->count));
	j->row = calloc(RECOVER_WORLD_MAX, sizeof(*j->row));
	if (!j->hit || !j->at || !j->log_n || !j->count || !j->row ||
	    head_init(&j->head, problem->n, places) < 0) {
		judge_free(j);
		return -ENOMEM;
	}
	for (uint32_t c = 0; c < problem->n_seen; c++)
		j->log_n[c + 1] = j->log_n[c] + log2(problem->n - c);
	while (next_layout(problem, &i, &workers, &batch))
		n++;
	j->layouts = 1 + log2(n + 1);
	*ret = j;
	return 0;
}

void judge_free(struct judge *judge)
{
	if (!judge)
		return;
	free(judge->hit);
	free(judge->at);
	free(judge->log_n);
	free(judge->count);
	free(judge->row);
	head_fini(&judge->head);
	free(judge);
}

double judge_bits_in_order(uint64_t n, uint64_t n_seen)
{
	double bits = -2;

	for (uint64_t c = 0; c < n_seen; c++)
		bits += log2((double)(n - c));
	return bits;
}

double judge_needed(double hypotheses, double choices)
{
	return hypotheses + choices + JUDGE_MARGIN_BITS;
}

/* h of the first m positions seen, less the price of having chosen h. */
static double bits_of_set(const struct judge *j, uint32_t h, uint32_t m)
{
	double share = (double)h / m, bits;

	if (share <= j->p || j->p >= 1)
		return 0;
	bits = h * log2(share / j->p);
	if (h < m)
		bits += (m - h) * log2((1 - share) / (1 - j->p));
	return bits - 2 * log2(h + 1);
}

static double bits_in_row(const struct judge *j, uint32_t c)
{
	return c ? j->log_n[c] - 2 : 0;
}

/* Computes places up to `places` and notes which samples were seen. */
static void look_at_places(struct judge *j, uint32_t places)
{
	for (; j->done < places; j->done++) {
		uint32_t when = problem_find(j->problem, head_next(&j->head));

		if (when != SAMPLE_NONE)
			j->hit[j->n_hits++] = (struct hit){ j->done, when };
	}
}

static bool is_asked(const struct judge *j, uint32_t rank)
{
	return j->problem->rank == RECOVER_UNKNOWN || j->problem->rank == rank;
}

/* The plain sequence's bits for the best rank of all worlds; a lower bound of the verdict. */
static double best_plain(struct judge *j)
{
	double best = 0;

	for (uint32_t w = 0; w < j->problem->n_worlds; w++) {
		uint32_t world = j->problem->world[w];

		for (uint32_t i = 0; i < j->n_hits; i++)
			j->count[j->hit[i].place % world] = j->row[j->hit[i].place % world] = 0;
		for (uint32_t i = 0; i < j->n_hits; i++) {
			uint32_t rank = j->hit[i].place % world, pos = j->hit[i].place / world;
			double as_set, in_row;

			if (!is_asked(j, rank))
				continue;
			j->count[rank]++;
			j->row[rank] += j->row[rank] == pos && j->hit[i].when == pos;
			as_set = bits_of_set(j, j->count[rank], pos + 1) - 1;
			in_row = bits_in_row(j, j->row[rank]);
			best = MAX(best, MAX(as_set, in_row));
		}
	}
	return best;
}

/* The best prefix of j->at[0..n), ascending. */
static struct verdict best_prefix(const struct judge *j, uint32_t n, double price)
{
	struct verdict best = { 0 };

	for (uint32_t i = 0; i < n; i++) {
		double bits = bits_of_set(j, i + 1, j->at[i] + 1) - price;

		if (bits > best.bits)
			best = (struct verdict){ bits, i + 1 };
	}
	return best;
}

/* Positions of a rank's hits where it reads them in a layout; returns how many. dense: how many of
 * them are in the first 2n. */
static uint32_t lay_out(struct judge *j, uint32_t world, uint32_t rank, const uint32_t *layout,
			uint32_t *dense)
{
	uint32_t n = 0, workers = layout[0], batch = layout[1];

	*dense = 0;
	for (uint32_t i = 0; i < j->n_hits; i++) {
		uint32_t pos = j->hit[i].place / world, nth = pos / batch;

		if (j->hit[i].place % world != rank)
			continue;
		j->at[n] = (nth / workers * batch + pos % batch) * workers + nth % workers;
		*dense += j->at[n] < 2 * j->problem->n_seen;
		n++;
	}
	return n;
}

/* The best explanation of one rank's hits. */
static struct verdict judge_rank(struct judge *j, uint32_t world, uint32_t rank)
{
	struct verdict best = { 0 }, v;
	uint32_t layout[2] = { 1, 1 }, i = 0, dense, row = 0;
	uint32_t n = lay_out(j, world, rank, layout, &dense);

	best = best_prefix(j, n, 1);
	for (uint32_t h = 0; h < j->n_hits; h++)
		if (j->hit[h].place == rank + (uint64_t)row * world && j->hit[h].when == row)
			row++;
	v = (struct verdict){ bits_in_row(j, row), row };
	if (v.bits > best.bits)
		best = v;
	while (next_layout(j->problem, &i, &layout[0], &layout[1])) {
		n = lay_out(j, world, rank, layout, &dense);
		if (bits_of_set(j, dense, 2 * j->problem->n_seen) - j->layouts < best.bits / 2)
			continue;
		qsort(j->at, n, sizeof(*j->at), compare_u32);
		v = best_prefix(j, n, j->layouts);
		if (v.bits > best.bits)
			best = v;
	}
	return best;
}

/* A node's ranks follow each other and read as much, so that a further one is no surprise, nor is
 * how much it has read. */
static bool is_next(const struct recover_found *f, uint32_t rank)
{
	return f->n_ranks > 0 && f->rank[f->n_ranks - 1] + 1 == rank;
}

/* The best world, rank by rank. One rank alone must be beyond chance; which world it is, is decided
 * by what all its ranks explain together: with four local ranks of eight, every other sample seen
 * belongs to rank 0 of a world of two, which is more than any of the four has. All ranks of any
 * world read the same samples: then it is the smallest. */
static bool judge_worlds(struct judge *j, double needed, struct recover_found *ret)
{
	struct recover_found whole = { 0 };
	double best = 0;

	*ret = (struct recover_found){ .bits_needed = needed };
	for (uint32_t w = 0; w < j->problem->n_worlds; w++) {
		struct recover_found f = { .world = j->problem->world[w], .bits_needed = needed };
		double sum = 0;

		memset(j->count, 0, f.world * sizeof(*j->count));
		for (uint32_t i = 0; i < j->n_hits; i++)
			j->count[j->hit[i].place % f.world]++;
		for (uint32_t rank = 0; rank < MIN(f.world, j->problem->n); rank++) {
			struct verdict v;

			if (!is_asked(j, rank) || j->count[rank] == 0)
				continue;
			v = judge_rank(j, f.world, rank);
			if (v.bits < RANK_BITS + j->problem->choices)
				continue;
			f.bits = MAX(f.bits, v.bits);
			sum += is_next(&f, rank) ? v.bits + 2 * log2(v.explained + 1)
						 : v.bits - RANK_BITS;
			f.n_explained += v.explained;
			if (f.n_ranks < RECOVER_RANKS_MAX)
				f.rank[f.n_ranks++] = rank;
		}
		if (f.bits >= needed && f.n_ranks == f.world && !whole.world)
			whole = f;
		if (f.bits >= needed && sum > best) {
			best = sum;
			*ret = f;
		}
	}
	if (ret->world && ret->n_ranks == ret->world)
		*ret = whole;
	return ret->bits >= needed;
}

/* Of the hits that have one `lag` places further on: does that come later, as of one worker that reads on? */
static bool follows_at(const struct judge *j, uint64_t lag, uint32_t *pairs)
{
	uint32_t later = 0, to = 0;

	*pairs = 0;
	for (uint32_t i = 0; i < j->n_hits; i++) {
		while (to < j->n_hits && j->hit[to].place < j->hit[i].place + lag)
			to++;
		if (to == j->n_hits)
			break;
		if (j->hit[to].place != j->hit[i].place + lag)
			continue;
		(*pairs)++;
		later += j->hit[to].when > j->hit[i].when;
	}
	return *pairs > 0 && 2 * (double)later - *pairs >= DEVIATIONS * sqrt(*pairs);
}

/* Whether samples came by rising number, `lag` after each other: who sorts a batch before he reads it. */
static bool rises_at(const struct problem *problem, uint32_t lag)
{
	uint32_t rises = 0, n = problem->n_seen > lag ? problem->n_seen - lag : 0;

	for (uint32_t i = 0; i < n; i++)
		rises += problem->seen[i + lag] > problem->seen[i];
	return n >= PAIRS_MIN && 2 * (double)rises - n >= DEVIATIONS * sqrt(n);
}

/* Whether next to nothing of the first places was left out: a batch that a pool of threads reads at once comes in no
 * sequence, but whole. */
static bool is_dense(const struct judge *j, uint32_t world)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < j->n_hits && j->hit[i].place < (uint64_t)j->n_hits * world * DENSE; i++)
		n++;
	return n * DENSE >= j->n_hits;
}

/* Whether what was seen came in some sequence of loader workers, or is too little to tell. Next to each other in a
 * batch, or as far apart as there are workers, threads, ranks or samples of a batch; sorted or at once in each. */
static bool is_in_sequence(const struct judge *j, uint32_t world)
{
	bool is_known = false;

	if (is_dense(j, world))
		return true;
	for (uint32_t lag = 1; lag <= LAG_MAX; lag++) {
		uint32_t pairs;

		if (follows_at(j, (uint64_t)lag * world, &pairs) || rises_at(j->problem, lag))
			return true;
		is_known |= pairs >= PAIRS_MIN;
	}
	return !is_known;
}

bool judge_seed(struct judge *j, uint32_t seed, double hypotheses, struct recover_found *ret)
{
	const struct problem *p = j->problem;

	head_seed(&j->head, seed);
	j->n_hits = 0;
	j->done = 0;
	look_at_places(j, problem_places(p, MIN(MAX(DEPTH_FIRST, p->patience), p->window)));
	if (best_plain(j) < GATE_FIRST + p->choices)
		return false;
	look_at_places(j, problem_places(p, MIN(DEPTH_SECOND, p->window)));
	if (best_plain(j) < GATE_SECOND + p->choices)
		return false;
	look_at_places(j, problem_places(p, p->window));
	if (!judge_worlds(j, judge_needed(hypotheses, p->choices), ret) || !is_in_sequence(j, ret->world))
		return false;
	ret->seed = seed;
	return true;
}
