/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this module share. A search: seeds -> sieve (vectors; lets one in several
 * hundred through) -> judge (scalar; weighs the evidence) -> found. README.md says why it is split
 * like that. Everything here is immutable while threads run, but `struct judge`, of which each has
 * its own. */
#ifndef CLAIRFS_RECOVER_PRIV_H
#define CLAIRFS_RECOVER_PRIV_H

#include "clairfs/base/ids.h"
#include "clairfs/order.h"
#include "clairfs/recover.h"

/* --- MT19937, a word at a time (its bulk twin is in module order; here only the first words of
 * very many seeds count). */
#define MT_WORDS 624
#define MT_SHIFT 397
#define MT_SEED_FACTOR 1812433253
#define MT_TWIST 0x9908b0df

struct mt {
	uint32_t state[MT_WORDS];
	uint32_t at; /* word of `state` that was handed out last; refilled one by one */
};

void mt_seed(struct mt *mt, uint32_t seed);
uint32_t mt_u32(struct mt *mt);

/* --- The first places of torch.randperm(n), one after the other, without the n others. */
struct head {
	struct mt mt;
	uint32_t n, i; /* next place */
	/* What stands at places that swaps have touched; entries of another `life` are free. */
	struct head_entry {
		uint32_t place, sample, life;
	} *entry;
	uint32_t mask, life;
};

/* Room for `places` places. -ENOMEM. */
int head_init(struct head *head, uint32_t n, uint32_t places) MUST_USE;
void head_fini(struct head *head);
void head_seed(struct head *head, uint32_t seed);
/* Sample at the next place; at most `places` of them and n. */
uint32_t head_next(struct head *head);

/* --- The question, checked and prepared. */
struct problem {
	uint32_t n, n_seen; /* n_seen: distinct */
	uint32_t *seen;     /* [n_seen] in the order of the opens */
	uint32_t *slot;     /* hash table: number in `seen`, or UINT32_MAX */
	uint32_t slot_mask;
	uint32_t world[RECOVER_WORLDS_MAX], n_worlds; /* ascending */
	uint32_t rank, batch, workers;                /* RECOVER_UNKNOWN */
	uint32_t window; /* positions of a rank that are looked at */
	/* Of the first so many positions of a rank any may have been opened first, as workers begin
	 * late; 0: too many seeds are tried to ask that, so the very first ones must be there. */
	uint32_t patience;
	double choices;  /* log2 of the number of (world, rank) */
};

/* seeds: how many will be tried at most. Errors as of recover_search. */
int problem_new(const struct recover_params *params, uint64_t seeds, struct problem **ret,
		struct err *err) MUST_USE;
/* Ranks that are asked about together: of the largest world, or of each the one that is known. */
uint32_t problem_ranks(const struct problem *problem);
void problem_free(struct problem *problem);
/* When the sample was seen, or SAMPLE_NONE. */
uint32_t problem_find(const struct problem *problem, uint32_t sample);
/* Places of the permutation that the first `positions` of all ranks in question reach. */
uint32_t problem_places(const struct problem *problem, uint32_t positions);

/* --- The sieve. */
#define SIEVE_BITS 17
#define SIEVE_NEAR 227 /* tests before this word need the seeded state only */
#define SIEVE_SWAPS_MAX 16

struct sieve_test {
	uint32_t at;      /* place of the permutation */
	uint32_t divisor; /* n - at */
	uint32_t magic;   /* floor(2^32 / divisor) */
};

struct sieve {
	uint32_t hash_factor, hash_shift, threshold;
	uint32_t n_tests, last; /* last: the highest test->at */
	bool has_swaps;         /* tests are places 0, 1, 2, ... and heed the swaps before them */
	double pass;            /* expected share of seeds that get through */
	struct sieve_test *tests; /* ascending */
	uint32_t table[(1 << SIEVE_BITS) / 32]; /* bitmap by hash: samples seen */
};

int sieve_new(const struct problem *problem, struct sieve **ret, struct err *err) MUST_USE;
void sieve_free(struct sieve *sieve);
static inline bool sieve_has(const struct sieve *s, uint32_t sample)
{
	uint32_t h = (sample * s->hash_factor) >> s->hash_shift;

	return s->table[h >> 5] >> (h & 31) & 1;
}

/* Writes the seeds that pass to `left` (room for `count`), in their order; returns how many. */
size_t scan_seeds(const struct recover_isa *isa, const struct sieve *s, const uint32_t *seed,
		  size_t count, uint32_t *left);

/* --- The judge: evidence for one seed, in bits. */
struct judge;
int judge_new(const struct problem *problem, struct judge **ret) MUST_USE;
void judge_free(struct judge *judge);
/* hypotheses: log2 of how many seeds are tried at most. Fills ret but for is_chain and below.
 * True: accepted. */
bool judge_seed(struct judge *judge, uint32_t seed, double hypotheses, struct recover_found *ret);
/* A wrong answer once in 2^this searches. */
#define JUDGE_MARGIN_BITS 20.0
/* Bits of `n_seen` samples read in order from the start. */
double judge_bits_in_order(uint64_t n, uint64_t n_seen);
/* Bits needed to accept evidence of samples read in order. */
double judge_needed(double hypotheses, double choices);

/* --- The cheap hypotheses, a list of seeds. */
struct chain {
	uint32_t *seed; /* [n], small and hinted seeds first */
	/* The first n_plain are seeds, then come CHAIN_WORDS words each of n_manual manual seeds,
	 * then CHAIN_EPOCHS each of manual seeds from CHAIN_MANUAL on. */
	size_t n, n_plain, n_manual;
	uint32_t *manual; /* [n_manual] */
};
#define CHAIN_WORDS 128
#define CHAIN_EPOCHS 3     /* words 3, 5, 7: the first epochs of a loader */
#define CHAIN_MANUAL 10000 /* manual seeds below have all their words tried */
/* How many there are; never 0. */
size_t chain_count(const struct recover_params *params);
int chain_new(const struct recover_params *params, struct chain **ret, struct err *err) MUST_USE;
void chain_free(struct chain *chain);
/* If seed number `at` is a word of a manual_seed, says so in ret. */
void chain_name(const struct chain *chain, size_t at, struct recover_found *ret);

/* --- Words of streams, one after the other. */
struct feed {
	struct order_words *words; /* NULL: nowhere yet */
	struct recover_place at;
};
/* -ENOMEM. */
int feed_seek(struct feed *feed, const struct recover_place *at) MUST_USE;
void feed_take(struct feed *feed, uint32_t *out, size_t count);
void feed_fini(struct feed *feed);

/* --- Threads over a range of seeds. */
struct search {
	const struct recover_params *params;
	const struct problem *problem;
	const struct sieve *sieve;
	const struct recover_isa *isa;
	const uint32_t *list; /* seeds to try; NULL: first + 0, 1, 2, ... */
	uint32_t first;
	const struct recover_stream *streams; /* if any: words of these, and nothing else */
	size_t n_streams;
	struct places *places; /* if any: `first` is looked up in the streams, nothing is judged */
	uint64_t total;
	double hypotheses;
	bool is_full;
};

/* What a look-up finds, by number of the position in all streams. */
struct places {
	size_t n, max;
	uint64_t *at;
	struct recover_place *place;
};

/* 1: found, *ret_at is its number in the list, range or streams. 0: not. -ECANCELED, -ENOMEM, other
 * errors of starting threads. */
int search_run(const struct search *search, struct recover_found *ret, uint64_t *ret_at,
	       struct err *err) MUST_USE;

#endif
