/* SPDX-License-Identifier: Apache-2.0 */
/* Seeds of orders nobody told us: from the first samples a job opens in an epoch to the 32-bit seed
 * of torch's generator, hence to the rest of the epoch. For DataLoader(shuffle=True) and
 * DistributedSampler, any rank, with loader workers that interleave their reads.
 *
 * A seed is accepted when what was seen is so unlikely without it that among all hypotheses tried a
 * wrong one would be accepted once in a million searches. How it works: src/recover/README.md. */
#ifndef CLAIRFS_RECOVER_H
#define CLAIRFS_RECOVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/err.h"

#define RECOVER_RANKS_MAX 64   /* ranks of one node that are told apart */
#define RECOVER_WORLD_MAX 4096 /* with the rank unknown every rank of the world is tried */
#define RECOVER_SEEN_MAX 4096  /* later samples are not looked at */
#define RECOVER_WORLDS_MAX 64  /* worlds to choose from */
#define RECOVER_UNKNOWN UINT32_MAX
#define RECOVER_TYPED 65536 /* seeds below this are likely: people type them */

enum recover_effort {
	RECOVER_FULL,  /* the cheap hypotheses, the streams of likely seeds, then all seeds */
	RECOVER_QUICK, /* the cheap hypotheses only: less than a second, but for large worlds */
	RECOVER_RANGE, /* first_seed..last_seed only, for tests and for splitting a search */
	RECOVER_STREAMS, /* `streams` only, in this order */
};

/* Generators whose draws seed a loader's. Words count from 0. */
enum recover_draw {
	RECOVER_TORCH,  /* torch.manual_seed; numpy.random.seed makes the same words */
	RECOVER_NUMPY,  /* numpy.random.seed, of which randint(2**31) keeps 31 bits */
	RECOVER_PYTHON, /* random.seed: getrandbits(32), randint(0, 2**31 - 1) */
};

struct recover_place {
	enum recover_draw draw;
	uint32_t manual_seed, word;
};

struct recover_stream {
	struct recover_place from;
	uint32_t count; /* words; the last one is below 2^32 */
};

struct recover_progress {
	bool is_full;         /* the search of all seeds, not the cheap hypotheses */
	bool is_streams;      /* words of likely seeds: the same, before it */
	uint64_t done, total; /* seeds */
	double seeds_per_s;   /* since this phase began, 0 at its start */
};

struct recover_params {
	uint64_t n; /* samples of the dataset */
	/* The first samples opened in the epoch, in that order, each < n; repeats are ignored, a
	 * few foreign or missing ones do no harm. Of one rank or of several local ranks mixed. */
	const uint32_t *seen;
	size_t n_seen;
	/* World sizes that are possible; none: {1}, that is no DistributedSampler. */
	const uint32_t *worlds;
	size_t n_worlds;
	uint32_t rank; /* RECOVER_UNKNOWN: any; otherwise < every world */
	/* Loader's batch size and workers (0: it reads in order); RECOVER_UNKNOWN is fine for both,
	 * but to know them lets fewer opens suffice. */
	uint32_t batch, workers;
	/* Seeds that are likely (the last epoch's, a configured one): they and their neighbours are
	 * tried first, as seeds and as what manual_seed() was called with. */
	const uint32_t *hints;
	size_t n_hints;
	/* The cheap hypotheses: seeds below this (RECOVER_TYPED at most), and unless is_plain also
	 * what a loader draws after manual_seed() of seeds below it. With thousands of ranks to
	 * choose from each seed costs a thousand times as much: then fewer are in place. */
	uint32_t typed;
	bool is_plain;
	enum recover_effort effort;
	uint32_t first_seed, last_seed; /* of the full search; evidence is asked for as for all */
	const struct recover_stream *streams; /* of RECOVER_STREAMS; one rank of one world */
	size_t n_streams;
	unsigned threads;               /* 0: one per CPU this process may use */
	int nice; /* of these threads, 0..19: added by setpriority, as far as it goes */
	/* SCHED_IDLE: they take a CPU that nobody else wants. Until they are cancelled, or one has
	 * found something: then they get their turn, as far as we may say so. */
	bool is_idle;
	const atomic_bool *hold; /* may be NULL; while it is set they sleep */
	const atomic_bool *cancel;     /* may be NULL; looked at every few milliseconds */
	atomic_uint_least64_t *cpu_ns; /* may be NULL; the time of the search threads is added */
	/* Called by the calling thread a few times a second; may be NULL. */
	void (*progress)(void *ctx, const struct recover_progress *progress);
	void *progress_ctx;
	struct clock *clock; /* for seeds_per_s; NULL: monotonic */
};

/* A params with nothing known: full range, one rank of one world. */
void recover_params_init(struct recover_params *params);

/* How a seed goes on from one pass to the next, where several were looked at together. */
enum recover_next {
	RECOVER_NEXT_UNKNOWN,
	RECOVER_NEXT_ONE,  /* one more */
	RECOVER_NEXT_SAME, /* it stays */
	RECOVER_NEXT_FOUR, /* so many words of the manual seed */
	RECOVER_NEXT_TWO,
};

struct recover_found {
	uint32_t seed; /* what the generator of this epoch's permutation was seeded with */
	uint32_t world, n_ranks;
	uint32_t rank[RECOVER_RANKS_MAX]; /* whose samples were seen, ascending */
	/* The seed is word `word` (from 0) of manual_seed(manual_seed); is_chain: or of nothing we
	 * tried. Words 4e+3 are the epochs e of a loader, words 2e+3 those of one with
	 * persistent_workers. */
	bool is_chain;
	enum recover_draw draw;
	uint32_t manual_seed, word;
	enum recover_next next;
	double bits, bits_needed; /* log2 of how unlikely this is by chance */
	uint32_t n_explained;     /* of the samples seen */
};

/* Searches, in threads of its own; blocks until they have ended. 0: *ret is filled. -ENOENT: no
 * such seed. -EINVAL: the arguments contradict each other, or n is too small or there are too few
 * samples seen to tell seeds apart (the message says how many are needed). -ECANCELED; -ENOMEM. */
int recover_search(const struct recover_params *params, struct recover_found *ret,
		   struct err *err) MUST_USE;

/* The samples of a pass over the dataset, each once, in the order they were opened. */
struct recover_pass {
	const uint32_t *seen;
	size_t n_seen;
};

#define RECOVER_FEW_LEAST 8 /* samples */
#define RECOVER_FEW_MAX 128
#define RECOVER_FEW_PASSES 3
/* The same for datasets of few samples (shards), of which params->seen may be all: what counts is the
 * order they were opened in, also by workers side by side. before: passes right before that, the last one
 * right before this. Of params: n, seen, hints, cancel, cpu_ns and typed; with up to 1024 it takes a tenth
 * of a second of this thread, with more a second. 0: *ret is filled. -ENOENT: no such seed is certain.
 * -EINVAL: a size or sample is out of range, or a sample is there twice. -ECANCELED; -ENOMEM. */
int recover_few(const struct recover_params *params, const struct recover_pass *before, size_t n_before,
		struct recover_found *ret) MUST_USE;

/* How many samples, read in order by one reader from the start of an epoch, single out the seed. 0:
 * no number of them does, the dataset has too few. Depends on n, worlds, rank and
 * effort. */
uint64_t recover_needed(const struct recover_params *params);

/* Spec number `which` (0: the likeliest) that a found seed stands for, written to `out`; false:
 * there are no more. One epoch cannot tell a fixed seed from seed + epoch, so seeds are the epoch's
 * and epoch 0 is this one: a caller that knows the epoch e of a DistributedSampler job names it
 * seed - e. */
bool recover_spec(const struct recover_found *found, uint64_t n, unsigned which, char *out,
		  size_t size);

/* Word `word` (from 0) that torch's generator gives after manual_seed(manual_seed); ten
 * milliseconds at most. 0 when out of memory. */
uint32_t recover_word(uint32_t manual_seed, uint32_t word);
/* Whether one of the first `words` is this, and which. */
bool recover_find_word(uint32_t manual_seed, uint32_t value, uint32_t words, uint32_t *ret_word);

uint32_t recover_place_word(const struct recover_place *place);

/* Words among which a loader's draws are looked for, the likeliest first. */
enum recover_depth {
	RECOVER_GLANCE,  /* 0.1 s of a core as RECOVER_STREAMS */
	RECOVER_MODELS,  /* and right behind the models that are made most often: 0.1 s more */
	RECOVER_SHALLOW, /* with the first of these again: a second */
	RECOVER_DEEP,    /* from there on: about 15 seconds */
	RECOVER_LOOKUP,  /* for recover_find: five seconds */
};
/* Heap. -ENOMEM. */
int recover_streams_new(enum recover_depth depth, struct recover_stream **ret,
			size_t *ret_n) MUST_USE;
/* Where in params->streams a seed that was found stands: *ret_n <= max places in the order of the
 * streams. In as many as 2^32 words it stands once by chance; a second seed, not far behind the
 * right place, tells. Takes threads, cancel and the like from params. -ECANCELED, -ENOMEM. */
int recover_find(const struct recover_params *params, uint32_t seed, struct recover_place *ret,
		 size_t max, size_t *ret_n, struct err *err) MUST_USE;

/* Instruction sets the search was built for, best first, and whether this CPU has them. NULL: no
 * more. */
struct recover_isa;
const struct recover_isa *recover_isa(unsigned i);
const char *recover_isa_name(const struct recover_isa *isa);
bool recover_isa_works(const struct recover_isa *isa);
/* The one that is used. */
const struct recover_isa *recover_isa_best(void);
/* For benchmarks: sieves `count` seeds from `first` on as a search with these parameters does, on
 * this thread. Returns how many are left for a closer look. -EINVAL as recover_search. */
int recover_isa_run(const struct recover_isa *isa, const struct recover_params *params,
		    uint32_t first, uint64_t count, uint64_t *ret_left, struct err *err) MUST_USE;

#endif
