/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this module share. Opens -> trail (where did this epoch begin, what came first)
 * -> aim (is a look worth it) -> ask and guess (the searches) -> next (a spec from what was found,
 * and what the epoch after it will be). All but finder.c is pure. */
#ifndef CLAIRFS_INFER_PRIV_H
#define CLAIRFS_INFER_PRIV_H

#include "clairfs/base/bitmap.h"
#include "clairfs/infer.h"

/* Fewer samples have too few permutations to tell orders apart, and are read in no time. */
#define INFER_SAMPLES_MIN RECOVER_FEW_LEAST
/* Of fewer it says nothing which of them were opened first: only ask_few is asked. */
#define INFER_MANY 64
#define INFER_RANK_SAMPLES 256 /* a world in which a rank reads less is not tried */

/* --- trail.c: the opens, cut into passes over the dataset. */
#define TRAIL_MAX 1024 /* opens that are kept of a beginning */
#define TRAIL_FEW 96   /* fewer are worth the likeliest hypotheses only */
#define TRAIL_TAIL 64  /* last opens, to tell echoes and to find where a pass began */
#define TRAIL_PAUSE_NS (10 * NS_PER_S)
#define TRAIL_RECENT 512 /* last opens, for a pass that began before anybody noticed */

enum { TRAIL_PASS, TRAIL_PAUSED, TRAIL_STARTS };

/* A place where an epoch may have begun. */
struct trail_start {
	uint32_t seen[TRAIL_MAX];
	uint32_t n;                /* of `seen` */
	uint32_t looked;           /* n when it was looked at last */
	uint64_t opens;            /* since then, beyond TRAIL_MAX too */
	bool is_used, is_searched; /* is_searched: all seeds were tried */
	bool is_brief;             /* no look at TRAIL_FEW or more of them was more than a glance */
};

struct trail {
	uint64_t n;         /* samples */
	struct bitmap seen; /* in this pass */
	/* In the passes before it, as long as they were of the same samples; has_before: there was
	 * one, which ended as samples came again. */
	struct bitmap before;
	bool has_before;
	uint64_t pass, opens, last_ns;
	struct {
		uint32_t sample;
		bool is_again; /* seen in this pass before */
	} tail[TRAIL_TAIL];
	uint32_t tail_head, tail_count;
	uint32_t recent[TRAIL_RECENT]; /* a ring */
	uint64_t noted;                /* opens but for echoes, repeats among them */
	struct trail_start start[TRAIL_STARTS];
	/* Of fewer than INFER_MANY samples: the passes before this one, the last one last. */
	struct trail_pass {
		uint32_t seen[INFER_MANY], n;
	} last[RECOVER_FEW_PASSES];
	uint32_t n_last;
};

int trail_init(struct trail *trail, uint64_t n) MUST_USE;
void trail_fini(struct trail *trail);
/* True: a new pass has begun, with this open or a few before it. */
bool trail_open(struct trail *trail, uint32_t sample, uint64_t now_ns);
/* What was known of this pass is wrong: another begins with the opens after number `after` (of
 * noted), as far as they are still there. */
void trail_restart(struct trail *trail, uint64_t after);
/* Looks at these numbers of opens are worth it: the one that was reached and not looked at, or 0.
 */
uint32_t trail_due(const struct trail *trail, uint32_t start);

/* --- next.c: what is known of the job. */
struct known {
	bool is_found; /* the rest is set */
	struct infer_answer last;
	bool is_guess;         /* not found but expected to come next */
	uint64_t pass;         /* of the trail, that it is the order of */
	uint32_t n_seen;       /* opens it was found by, or was refined by last */
	uint64_t noted;        /* of the trail, when it was asked for */
	bool has_step;         /* two epochs were found that are words of one manual_seed */
	uint32_t step;         /* words from one to the next */
	/* Where the seed of this pass, or of the last one that was found, stands or may stand. */
	struct recover_place place[INFER_PLACES];
	size_t n_places;
	uint64_t found_pass; /* `pass` when it was found, not guessed */
	bool no_streams; /* all seeds had to be tried, so these are none */
	bool is_same, is_next; /* two passes in a row: the same seed; seed + 1 */
	uint32_t told[8];      /* a ring of the seeds told last */
	uint32_t n_told;       /* ever */
};

/* Takes an answer in; before known_spec. */
void known_found(struct known *known, const struct infer_answer *answer, uint64_t pass,
		 uint32_t n_seen);
/* The spec for the pass that the last answer is of. False: too long. */
bool known_spec(const struct known *known, uint64_t n, char out[INFER_SPEC_MAX]);
/* Whether the order found ends with its pass and the next one is known nevertheless; goes on to it.
 */
bool known_can_advance(const struct known *known);
void known_advance(struct known *known);
/* Whether the order found predicts later passes. */
bool known_goes_on(const struct known *known);
/* If it is the same order and pass read by other ranks: they are read as well from here on. False: it
 * is something else, or there is no room. */
bool known_add_ranks(struct known *known, const struct infer_answer *more);
/* Whether it is the same order and pass, and these ranks are some of those that are known. */
bool known_has_ranks(const struct known *known, const struct infer_answer *some);
/* Seeds that are likely next; returns how many. */
#define KNOWN_HINTS 16
size_t known_hints(const struct known *known, uint32_t hints[KNOWN_HINTS]);
/* Behind which the next seed may stand; returns how many. */
size_t known_places(const struct known *known, struct recover_place places[INFER_PLACES]);
/* The seeds in a spec that was told. */
void known_told(struct known *known, const char *spec);

/* --- spend.c: what may be spent on looks that find nothing. */
#define BUDGET_FREE 2 /* of them, before each is weighed */
enum budget_kind { BUDGET_BRIEF, BUDGET_LOOK, BUDGET_FULL, BUDGET_KINDS };

struct budget {
	uint64_t began_ns;               /* the job's first open, 0: there was none */
	uint64_t spent_ns;               /* CPU time, but for those that are free */
	uint64_t price_ns[BUDGET_KINDS]; /* CPU time of the last one of each kind */
	uint32_t looks, fulls;           /* in vain, since more was known */
	uint64_t pass, next_pass;        /* of the last look, and the next one that may have any */
	uint32_t skip;                   /* between these; 0: no pass had one */
	unsigned cpus;                   /* that a search may use */
};

void spend_open(struct budget *b, uint64_t now_ns);
/* Since the first open. */
uint64_t spend_wall_ns(const struct budget *b, uint64_t now_ns);
bool spend_allows(const struct budget *b, enum budget_kind kind, uint64_t pass, uint64_t now_ns);
/* It took so much, and found nothing. */
void spend_charge(struct budget *b, enum budget_kind kind, uint64_t pass, uint64_t cpu_ns);
/* It took so much, and was cancelled before it could find anything. */
void spend_waste(struct budget *b, uint64_t cpu_ns);
/* The first ones are free again, has_full: also the first search of all seeds. */
void spend_renew(struct budget *b, bool has_full);

/* --- aim.c: what to do now. */
#define FULL_FAILED_MAX 2 /* searches of all seeds in vain; then none until another job comes */
#define JOB_PAUSE_NS (300 * NS_PER_S) /* without an open: what comes next is another job */
enum aim_kind { AIM_NOTHING, AIM_QUICK, AIM_FULL, AIM_REFINE, AIM_NEXT };

struct aim_facts {
	const struct trail *trail;
	const struct known *known;
	enum infer_effort effort;
	enum infer_plan plan;
	uint32_t full_failed; /* searches of all seeds in a row that found nothing */
	bool is_told;         /* the order in force was told by somebody */
	bool is_left;         /* the job has left the part that its order is of */
	uint64_t lost_at;     /* trail->opens when the plan was lost */
	const struct budget *budget; /* NULL: nothing is too dear */
	uint64_t now_ns;
};

struct aim {
	enum aim_kind kind;
	uint32_t start; /* of the trail */
	bool is_brief;  /* a look at the likeliest hypotheses only */
};

struct aim aim_at(const struct aim_facts *facts);
/* The order found for this pass was lost and stays so: the pass is not what it was taken for. */
bool aim_is_refuted(const struct aim_facts *facts);

/* --- evidence.c */
/* Bits, as in module recover: how unlikely is it by chance that n_seen of n samples stand at these
 * positions (sorted here), many of them at the very start? */
double evidence_bits(uint32_t *pos, uint32_t n_pos, uint32_t n_seen, uint64_t n);
/* Bits: how unlikely is it that these positions were opened in this order if they were shuffled? */
double evidence_order_bits(const uint32_t *pos, uint32_t n_pos);
/* Bits of chance that k or more of n happen, where each has the chance p. */
double evidence_chance_bits(double k, double n, double p);
/* Bits: how unlikely is it by chance that so many of these positions (sorted here, and *n_pos less
 * those that repeat) of n stand in one window, wherever it is? These are *ret_n from *ret_from on. */
double evidence_window_bits(uint32_t *pos, uint32_t *n_pos, uint64_t n, uint32_t *ret_from,
			    uint32_t *ret_n);

/* --- guess.c: orders other than torch's permutations. */
/* CPU time of this thread. */
uint64_t guess_cpu_ns(void);
int guess_sequential(const struct infer_question *q, struct infer_answer *ret) MUST_USE;
/* Gives up after cpu_ns of the thread's time. */
int guess_kinds(const struct infer_question *q, uint32_t n_seeds, uint64_t cpu_ns,
		struct infer_answer *ret) MUST_USE;

/* Seed number i in the order people like them: GUESS_LIKED, then all from 0 on. */
#define GUESS_LIKED 28
uint32_t guess_seed(uint32_t i);
/* Positions of the opens in the first epoch of a spec; returns how many have one. */
uint32_t guess_places(const struct infer_question *q, const char *text, uint32_t *pos);

/* --- tail.c: the middle of a permutation, of the likeliest n_seeds; gives up after cpu_ns of the
 * thread's time, or twice as much time, and goes on there when asked about the same beginning
 * again: where q->marks says. */
#define TAIL_LIKELY 512 /* known ones, and those of a DistributedSampler */
#define TAIL_MARKS 8    /* the numberings of a look, of two beginnings */

struct tail_marks {
	struct tail_mark {
		uint64_t beginning;    /* hash of the first opens, in their numbering; 0: free */
		uint64_t used;         /* when it was asked for last; 0: never */
		uint32_t next;         /* seed */
		uint32_t n_seen;       /* opens that seeds from 0 on were judged by */
	} mark[TAIL_MARKS];
	uint64_t asked;
};
int tail_search(const struct infer_question *q, uint32_t n_seeds, uint64_t cpu_ns,
		struct infer_answer *ret) MUST_USE;
/* World and ranks of q->seed. */
int tail_refine(const struct infer_question *q, struct infer_answer *ret) MUST_USE;

/* --- ask.c: the questions, in one numbering: q->seen are numbers below q->n. Return values as of
 * struct infer_searches. */
int ask_sequential(const struct infer_question *q, struct infer_answer *ret) MUST_USE;
/* Of few samples, by the order they were opened in. */
int ask_few(const struct infer_question *q, struct infer_answer *ret) MUST_USE;
/* Seeds that are very likely. */
int ask_brief(const struct infer_question *q, struct infer_answer *ret) MUST_USE;
int ask_quick(const struct infer_question *q, struct infer_answer *ret) MUST_USE;
/* Sizes of worlds that are tried, ascending; 0: no more. */
uint32_t ask_world(size_t i);
/* The same in the middle of an epoch. */
int ask_tail_brief(const struct infer_question *q, struct infer_answer *ret) MUST_USE;
int ask_tail(const struct infer_question *q, struct infer_answer *ret) MUST_USE;
int ask_full(const struct infer_question *q, struct infer_answer *ret) MUST_USE;
int ask_refine(const struct infer_question *q, struct infer_answer *ret) MUST_USE;
int ask_streams(const struct infer_question *q, const struct recover_stream *streams, size_t n,
		struct infer_answer *ret) MUST_USE;
/* Where ret->seed stands: fills ret->place. */
int ask_places(const struct infer_question *q, const struct recover_stream *streams, size_t n,
	       struct infer_answer *ret) MUST_USE;

/* --- aside.c: fn(q, ret) in a thread that takes nobody's time; meanwhile q->progress is called a few
 * times a second. Returns what fn does, or why there is no thread. */
typedef int aside_fn(const struct infer_question *q, struct infer_answer *ret);
int aside_run(aside_fn *fn, const struct infer_question *q, struct infer_answer *ret) MUST_USE;

/* --- streams.c: searches like those of ask.c, in one numbering, among words of seeded generators.
 * Behind places that are known; then behind likely manual seeds, near and far. */
int streams_known(const struct infer_question *q, struct infer_answer *ret) MUST_USE;
int streams_quick(const struct infer_question *q, struct infer_answer *ret) MUST_USE;
int streams_full(const struct infer_question *q, struct infer_answer *ret) MUST_USE;
/* Where a seed that was found among all stands. */
int streams_lookup(const struct infer_question *q, struct infer_answer *ret) MUST_USE;

/* --- part.c: has the job left the part that its order is of? */
#define PART_OPENS 32
struct part_watch {
	uint64_t run;	   /* opens outside of the part, one after the other */
	uint64_t in_run;   /* and in it */
	uint64_t stretch;  /* opens since the first one outside, but for PART_OPENS in it in a row */
	bool is_left;
};
/* An order of a part was found: looks at the last opens, as the job may have left it already. */
void part_begin(struct part_watch *watch, const struct known *known,
		const struct infer_numbers *numbers, const struct trail *trail);
/* A sample was opened. True: the job has left the part, just now, with the last watch->stretch opens:
 * readers of the part may still have been at work when it began elsewhere. n: of the dataset. */
bool part_open(struct part_watch *watch, const struct known *known,
	       const struct infer_numbers *numbers, uint64_t n, uint32_t sample);

/* --- words.c */
struct words_facts {
	const struct known *known;
	const struct trail *trail;
	enum infer_effort effort;
	enum infer_plan plan;
	bool is_suspended, is_quick, is_full, was_full, is_left;
	bool is_saving; /* the next look waits until it is cheap beside the job */
	const char *held; /* why a full search waits, or NULL */
	double share, left_s;
	uint32_t full_failed;
	uint64_t searches, found_after;
	const char *found, *gone, *gone_why; /* gone: of the job that has ended, or "" */
};
void words_say(const struct words_facts *facts, char out[INFER_WORDS_MAX]);

#endif
