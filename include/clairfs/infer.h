/* SPDX-License-Identifier: Apache-2.0 */
/* What the job seems to do: from the samples it opens to the order it reads them in, when nobody
 * told it. Takes the stream of opens, notices where an epoch begins, decides when a look is worth
 * it, and searches on one thread of low priority: likely seeds (a fraction of a second), then, if
 * asked for, all of them. What it finds is handed over as the spec of an order.
 *
 * How it decides: src/infer/README.md. */
#ifndef CLAIRFS_INFER_H
#define CLAIRFS_INFER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clairfs/base/bitmap.h"
#include "clairfs/base/clock.h"
#include "clairfs/base/err.h"
#include "clairfs/metrics.h"
#include "clairfs/recover.h"

struct dataset;
struct order;
struct order_spec;

#define INFER_UNDER_MAX 1024 /* longer paths of parts are left out, with a line in the log */
#define INFER_SPEC_MAX (3 * INFER_UNDER_MAX + 1024) /* a byte of a path may be three in a spec */
#define INFER_WORDS_MAX (INFER_SPEC_MAX + INFER_UNDER_MAX + 512)
#define INFER_PLACES 8

enum infer_effort {
	INFER_OFF,   /* no search */
	INFER_QUICK, /* likely seeds and other cheap hypotheses */
	INFER_FULL,  /* then all seeds */
};
extern const char *const infer_effort_names[]; /* "off" "quick" "full" NULL */

/* How the order in force is doing. */
enum infer_plan {
	INFER_PLAN_NONE,     /* there is no order */
	INFER_PLAN_BUSY,     /* it is followed, or may be */
	INFER_PLAN_FOLLOWED, /* reads follow it closely */
	INFER_PLAN_LOST,     /* reads do not follow it */
	INFER_PLAN_ENDED,    /* its epochs were read */
};

/* Some samples, in the order they were opened. */
struct infer_opens {
	const uint32_t *sample;
	size_t n;
	bool is_first; /* it is the first look at them */
};

/* A way in which a job may number the samples, as the keys sort=, under=, first= and split= of a spec
 * say it. */
struct infer_numbering {
	const char *sort;          /* NULL: as the index does; static */
	char under[INFER_UNDER_MAX]; /* the part: path of a directory, or "": all samples */
	uint32_t dir;              /* that directory, as infer_numbers names it */
	/* Of these so many only, 0: all; is_split: after they were shuffled by that seed. */
	uint64_t first;
	bool is_split;
	uint32_t split;
	uint64_t of; /* how many they were; 0: all */
};

/* A few samples in such a numbering. */
struct infer_numbered {
	uint64_t n;       /* samples that are in it */
	uint64_t hash;    /* of the whole of it: several ways often agree */
	uint32_t *number; /* [n_seen] of those that are in it, in the order they were given in */
	size_t n_seen;
};

/* All samples that a job reads; and seeds that it may have split the dataset by, the likeliest first.
 * A thousand take up to a second, so no more are tried once *cancel is set. */
struct infer_members {
	const struct bitmap *set;
	const uint32_t *seed;
	size_t n_seeds;
	const atomic_bool *cancel;
};

/* Who knows the files; this module knows numbers. */
struct infer_numbers {
	/* The ways that are likely for a job that opens these samples, the likeliest first: all
	 * opens are in one directory, or in one of a few. Returns how many, `max` at most.
	 * is_first: those that cost next to nothing. On the search thread, no lock held. */
	size_t (*list)(void *ctx, const struct infer_opens *opens, struct infer_numbering *ret,
		       size_t max);
	/* ret->number has room for all opens. -ENOENT: no sample is in it. As above. */
	int (*number)(void *ctx, const struct infer_numbering *way, const struct infer_opens *opens,
		      struct infer_numbered *ret);
	/* The ways, narrower than this one, in which a job may number the samples of the part when it
	 * reads only these members: the first ones, or a random split. Returns how many, `max` at most;
	 * 0 also when the members are all of the part. As above. May be NULL: none. */
	size_t (*narrow)(void *ctx, const struct infer_numbering *way,
			 const struct infer_members *members, struct infer_numbering *ret, size_t max);
	/* Whether the sample is in the part, whatever the way leaves out of it. Any thread; a
	 * microsecond. */
	bool (*has)(void *ctx, const struct infer_numbering *way, uint32_t sample);
	void *ctx;
};

struct tail_marks;

/* A question to the searches: the first opens of an epoch, as far as anybody knows. */
struct infer_question {
	uint64_t n; /* samples of the dataset */
	const uint32_t *seen;
	size_t n_seen;
	uint32_t world;        /* the launcher's, 0: unknown */
	const uint32_t *hints; /* seeds that are likely */
	size_t n_hints;
	const struct bitmap *members; /* all that the job read in the pass before, or NULL */
	/* Of a dataset of few samples: the passes right before this one. */
	const struct recover_pass *before;
	size_t n_before;
	bool no_kinds;       /* orders that have to be computed whole take too much memory */
	bool not_sequential; /* that was found and is not what the job reads */
	bool is_first;       /* of this beginning: the likeliest hypotheses only */
	bool is_modest;      /* looks before it were in vain: one thread, behind all others */
	bool is_idle;        /* and only where nobody else wants the CPU */
	bool no_streams;     /* the words of likely manual seeds were tried in an earlier pass */
	bool is_unlikely;    /* another numbering is likelier: no more than a glance at them */
	/* Behind which the epoch's seed may stand, the likeliest first. */
	const struct recover_place *places;
	size_t n_places;
	uint32_t seed; /* for refine, like the next */
	const struct infer_numbering *way;
	const struct infer_numbers *numbers; /* NULL: samples have the numbers of the index only */
	unsigned threads;
	const atomic_bool *cancel;
	/* Where earlier questions about the middle of an epoch stopped; NULL: nowhere. */
	struct tail_marks *marks;
	/* Of the full search: while it is set nothing is computed; else NULL. */
	const atomic_bool *hold;
	atomic_uint_least64_t *cpu_ns; /* what it costs is added here */
	/* Of the full search, 0..1, and how many seconds it takes at most (0: not known). Called
	 * a few times a second on the search thread, which may ask a quick question then. */
	void (*progress)(void *ctx, double share, double left_s);
	void *progress_ctx;
};

struct infer_answer {
	char spec[INFER_SPEC_MAX]; /* of an order that is no torch permutation; "": see below */
	bool is_likely;          /* a seed people type, or a neighbour of one that was known */
	bool is_chain;           /* word `word` of manual_seed(manual_seed) */
	enum recover_draw draw;  /* of that */
	uint32_t seed, manual_seed, word, world, n_ranks;
	uint32_t rank[64];
	enum recover_next next; /* how it goes on, where several passes told */
	/* Where else the seed stands, by chance or because it was drawn there. */
	struct recover_place place[INFER_PLACES];
	size_t n_places;
	struct infer_numbering way;
	uint64_t n;    /* samples in it; 0: all of the dataset */
	double margin; /* bits beyond those that were asked for */
	/* Also without an answer: the job reads some samples only, and a numbering of these was asked
	 * about. */
	bool is_narrow;
};

/* The searches; tests bring their own. Each returns 0 (*ret is the answer), -ENOENT, -ECANCELED or
 * another negative errno. They run on the search thread and may start others. */
struct infer_searches {
	int (*quick)(const struct infer_question *q, struct infer_answer *ret);
	int (*full)(const struct infer_question *q, struct infer_answer *ret);
	/* The world and ranks of a seed that is known. */
	int (*refine)(const struct infer_question *q, struct infer_answer *ret);
};
extern const struct infer_searches infer_searches_real;

struct infer_params {
	uint64_t n; /* samples of the dataset */
	enum infer_effort effort;
	uint64_t memory;         /* that a search may use beside its threads', 0: any */
	unsigned threads;        /* of the full search; 0: an eighth of the CPUs */
	uint32_t world;          /* ranks of the job as its launcher says, 0: unknown */
	const char *told;        /* spec of the order in force at the start, or NULL */
	bool is_silent;          /* found() says in the log what was found */
	struct clock *clock;     /* borrowed */
	struct metrics *metrics; /* borrowed */
	const struct infer_searches *searches; /* NULL: the real ones */
	const struct infer_numbers *numbers;   /* borrowed; NULL: no parts are known */
	/* An order was found: makes it the one in force, unless infer_is_current(stamp) is false. On
	 * the search thread, no lock held; may block. Negative errno: it could not be. */
	int (*found)(void *ctx, const char *spec, uint64_t stamp);
	/* Until what a full search must wait, in words ("others do not wait for the CPUs"), or NULL:
	 * it need not; asked a few times a second while there is one, on the search thread, no lock
	 * held. Static text. May be NULL: it need never wait. */
	const char *(*waits_until)(void *ctx);
	void *ctx;
};

struct infer;
/* -ENOMEM. effort INFER_OFF is fine: nothing is ever looked for, and no memory is used. */
int infer_new(const struct infer_params *params, struct infer **ret, struct err *err) MUST_USE;
int infer_start(struct infer *infer, struct err *err) MUST_USE;
/* Cancels what is under way and waits for it: milliseconds, but for a guess at a numpy or Python
 * shuffle, which is computed whole: up to a second per 10^7 samples. `found` is not called
 * afterwards. */
void infer_stop(struct infer *infer);
/* As infer_stop, but waits for nothing; infer_stop is called later. */
void infer_quit(struct infer *infer);
/* Whether infer_stop would not wait, after infer_quit. */
bool infer_has_ended(const struct infer *infer);
void infer_free(struct infer *infer);

/* A sample was opened. One thread at a time; never blocks on a search. */
void infer_note_open(struct infer *infer, uint32_t sample);
/* The state of the order in force; any thread, as often as it likes. */
void infer_note_plan(struct infer *infer, enum infer_plan plan);
/* Somebody told an order (NULL: took it back): what is under way is cancelled, and an order found
 * later never replaces it unless reads do not follow it. Any thread. */
void infer_note_told(struct infer *infer, const char *spec);
/* The order in force gave way to one that fits better, found elsewhere: what is under way is
 * cancelled. Any thread. */
void infer_note_replaced(struct infer *infer, const char *spec);
/* The processes that read in the order found are gone (or why else the job is over, static text),
 * and the order is not in force any more. What is opened from here on is another job's, or the same
 * one begun again. Any thread. */
void infer_note_gone(struct infer *infer, const char *why);
/* The opens so far were those of several jobs, and only one of them is told of from here on: what is
 * under way is cancelled, and a beginning looked for anew. Any thread. */
void infer_note_apart(struct infer *infer);
/* What was found last. False: nothing, or it is not known any more. Any thread. */
bool infer_get_answer(struct infer *infer, struct infer_answer *ret);
/* If this is the same epoch of the same order as the one found, read by other ranks: all of them are
 * one job's, and found() is called with the order of all ranks, a moment later; or of some of its
 * ranks. False: it is another order, or the same one of another job. Any thread. */
bool infer_add_ranks(struct infer *infer, const struct infer_answer *more);
/* False: somebody has told an order, or the one in force turned out to be followed, since what
 * found() was given, which then must not replace it. Called with the lock that orders are told
 * under, so that one of them comes first. Any thread. */
bool infer_is_current(struct infer *infer, uint64_t stamp);

struct infer_status {
	char words[INFER_WORDS_MAX]; /* for a person */
	char found[INFER_SPEC_MAX];  /* the spec found last, or "" */
	bool is_searching, is_full;
	bool is_held; /* a full search that waits until samples are opened, or others have CPUs */
	double progress, left_s; /* of a full search: 0..1, and seconds at most; else 0 */
	double cpu_s;            /* spent so far on searches */
	/* Of these on what was in vain and is weighed against the job's time, and that time, since
	 * its first open; whether another look waits until it is a hundredth of it. */
	double vain_cpu_s, job_s;
	bool is_saving;
	uint64_t searches, orders_found;
	uint64_t found_after; /* opens of its epoch when it was found */
};
void infer_get_status(struct infer *infer, struct infer_status *ret);

/* The numberings of the files of a dataset that a job may use, for infer_params. The dataset is borrowed.
 * memory: for numberings that are kept; one always is. */
struct infer_numberings;
int infer_numberings_new(const struct dataset *ds, uint64_t memory, struct infer_numberings **ret,
			 struct err *err) MUST_USE;
void infer_numberings_free(struct infer_numberings *parts);
/* How many were made so far. */
uint64_t infer_numberings_made(const struct infer_numberings *parts);
const struct infer_numbers *infer_numberings_numbers(const struct infer_numberings *parts);

/* An order that was told, and that the job does not follow. */
struct infer_lost {
	struct dataset *dataset;
	const struct order_spec *spec;
	uint64_t epoch; /* that was followed last */
	const uint32_t *opens; /* the last ones */
	uint32_t n_opens;
	/* Spec to order of the dataset, on the caller's thread; it need not say what is wrong. */
	int (*make)(void *ctx, const struct order_spec *spec, struct order **ret);
	void *ctx;
	_Atomic uint64_t *tried; /* counts ways to number the files */
	const atomic_bool *cancel;
};
/* The same order of files that are numbered in another way, if that is what the job reads: heap, or
 * NULL. Takes seconds, which is the caller's thread's time. */
char *infer_renumber(const struct infer_lost *lost);

#endif
