/* SPDX-License-Identifier: Apache-2.0 */
/* A job that goes on in the middle of an epoch: its opens stand side by side in a permutation, but
 * nobody knows where, as the step it was ended at is not known. The searches of module recover
 * compute the first places of very many permutations; here a few are computed whole. They are those
 * of seeds that a resumed job is likely to have: neighbours of what was known; a
 * DistributedSampler's seed + epoch (seeds 0-64, epochs 0-300); the first epochs of loaders behind
 * manual_seed of what people like, and of these seeds themselves.
 *
 * Evidence is that so many of the opens lie in so narrow a window, wherever it is. That is the same
 * for any layout of workers, and for a rank, whose places are as far apart as there are ranks. Which
 * ranks of which world they are is told by the remainders of the places, once the seed is certain.
 * At the beginning of an epoch the other searches know more.
 *
 * A permutation takes some ten milliseconds for a million samples, so the time is limited, and a search
 * goes on where the last one about the same beginning stopped; when all were tried it begins anew with
 * four times as many opens. It ends within milliseconds when it is cancelled. Any thread; marks are
 * one thread's at a time. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "clairfs/order.h"
#include "clairfs/recover.h"
#include "infer_priv.h"

#define NEEDED_BITS 32.0 /* 2^12 seeds, wrong once in 2^20 searches */
#define WORLD_BITS 20.0
#define WORLD_MAX RECOVER_WORLD_MAX
#define WORLD_SEEN 64 /* of fewer opens workers look like ranks */
#define SEEN_LEAST 24
#define SUMS 365 /* seed + epoch */
#define HINT_EPOCHS 16
#define LIKED_EPOCHS 64
#define LOADER_EPOCHS 32
#define LOADER_WORD 3 /* of manual_seed; the next epoch's is LOADER_STEP further on */
#define LOADER_STEP 4
#define WORDS 4096
#define TORCH_LARGE 214748364 /* from here on torch shuffles from the back */
#define WALL_TIMES 2u         /* where the CPUs are busy */
#define AGAIN_TIMES 4u
#define HELD_NS (50 * NS_PER_MS)
#define BEGINNING SEEN_LEAST /* opens that tell one from another */

/* Where the opens stand in the permutation of one seed. */
struct places {
	uint32_t *at; /* in the order of the opens */
	uint32_t n;
	uint32_t *sample; /* [q->n] the permutation */
	struct found {
		uint32_t number, place;
	} *found;           /* [q->n_seen] of those that were opened */
	struct bitmap seen; /* [q->n] these */
};

struct tail_seed {
	uint32_t seed, manual_seed, word; /* word 0: no chain */
};

/* The `count`-th seed that is tried; false: there are no more. */
static bool nth_seed(const struct infer_question *q, uint32_t count, struct tail_seed *ret)
{
	const uint32_t n_hints = (uint32_t)q->n_hints * HINT_EPOCHS,
		       n_liked = GUESS_LIKED * LIKED_EPOCHS,
		       n_loaders = GUESS_LIKED * LOADER_EPOCHS;

	*ret = (struct tail_seed){ 0 };
	if (count < n_hints) {
		ret->seed = q->hints[count / HINT_EPOCHS] + count % HINT_EPOCHS;
		return true;
	}
	count -= n_hints;
	if (count < SUMS) {
		ret->seed = count;
		return true;
	}
	count -= SUMS;
	if (count < n_loaders) {
		ret->manual_seed = guess_seed(count / LOADER_EPOCHS);
		ret->word = LOADER_WORD + LOADER_STEP * (count % LOADER_EPOCHS);
		ret->seed = recover_word(ret->manual_seed, ret->word);
		return true;
	}
	count -= n_loaders;
	ret->seed = guess_seed(count / LIKED_EPOCHS) + count % LIKED_EPOCHS;
	return count < n_liked;
}

/* log2 of the number of ways to choose k of n. */
static double choices(uint32_t n, uint32_t k)
{
	return (lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0)) / log(2);
}

/* Whether all ranks were read in both halves of the time. Workers that read batches side by side
 * have read the same places of each, which looks like ranks that follow each other in time. */
static bool is_steady(const struct places *p, const struct infer_answer *a, uint32_t half)
{
	bool is_there[WORLD_MAX] = { 0 };
	uint32_t n = 0;

	for (uint32_t i = half * (p->n / 2); i < (half + 1) * (p->n / 2); i++)
		is_there[p->at[i] % a->world] = true;
	for (uint32_t i = 0; i < a->n_ranks; i++)
		n += is_there[a->rank[i]];
	return n == a->n_ranks;
}

/* Bits for "only some ranks of this world", which are written to ret. */
static double world_bits(const struct places *p, uint32_t world, struct infer_answer *ret)
{
	uint16_t count[WORLD_MAX] = { 0 };
	uint32_t hits = 0;

	ret->world = world;
	ret->n_ranks = 0;
	for (uint32_t i = 0; i < p->n; i++)
		count[p->at[i] % world]++;
	for (uint32_t rank = 0; rank < world; rank++) {
		if (count[rank] == 0 || 2 * count[rank] * world < p->n)
			continue; /* a stray */
		if (ret->n_ranks == ARRAY_LEN(ret->rank))
			return 0;
		ret->rank[ret->n_ranks++] = rank;
		hits += count[rank];
	}
	if (ret->n_ranks == 0 || !is_steady(p, ret, 0) || !is_steady(p, ret, 1))
		return 0;
	return evidence_chance_bits(hits, p->n, (double)ret->n_ranks / world) -
	       choices(world, ret->n_ranks);
}

static double try_world(const struct infer_question *q, const struct places *p, uint32_t world,
			double best, struct infer_answer *ret)
{
	struct infer_answer one = *ret;
	double bits;

	if (world < 2 || world > WORLD_MAX || world > q->n / INFER_RANK_SAMPLES)
		return best;
	bits = world_bits(p, world, &one);
	if (bits > best)
		*ret = one;
	return MAX(bits, best);
}

/* The ranks that the opens are of; all ranks of any world read what one of one does. p: in the
 * order of the opens. */
static void find_world(const struct infer_question *q, const struct places *p, struct infer_answer *ret)
{
	double best = WORLD_BITS;

	ret->world = ret->n_ranks = 1;
	ret->rank[0] = 0;
	if (p->n < WORLD_SEEN)
		return;
	best = try_world(q, p, q->world, best, ret);
	for (size_t i = 0; ask_world(i); i++)
		best = try_world(q, p, ask_world(i), best, ret);
}

/* In the order of the opens, what is between the first and the last of the window. */
static uint32_t keep_window(const struct places *p, uint32_t first, uint32_t last)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->n; i++)
		if (p->at[i] >= first && p->at[i] <= last)
			p->at[n++] = p->at[i];
	return n;
}

/* torch.randperm, as far as it is not cancelled. */
static int permute(const struct infer_question *q, uint32_t seed, uint32_t *sample)
{
	uint32_t n = (uint32_t)q->n, word[WORDS];
	struct order_words *words;

	if (order_words_new(seed, false, 0, &words) < 0)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		sample[i] = i;
	for (uint32_t i = 0; i + 1 < n && !atomic_load(q->cancel); i += WORDS) {
		order_words_take(words, word, WORDS);
		for (uint32_t k = i; k < MIN(n - 1, i + WORDS); k++) {
			uint32_t z = k + word[k - i] % (n - k), was = sample[k];

			sample[k] = sample[z];
			sample[z] = was;
		}
	}
	order_words_free(words);
	return atomic_load(q->cancel) ? -ECANCELED : 0;
}

static int compare_found(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	return (x->number > y->number) - (x->number < y->number);
}

/* Where the opens stand in the permutation of this seed. */
static int find_places(const struct infer_question *q, uint32_t seed, struct places *p)
{
	uint32_t n = 0;
	int rc = permute(q, seed, p->sample);

	for (uint32_t i = 0; rc == 0 && i < q->n && n < p->seen.count; i++)
		if (bitmap_get(&p->seen, p->sample[i]))
			p->found[n++] = (struct found){ p->sample[i], i };
	if (rc < 0)
		return rc;
	qsort(p->found, n, sizeof(*p->found), compare_found);
	for (p->n = 0; p->n < q->n_seen; p->n++) {
		const struct found key = { .number = q->seen[p->n] }, *found;

		found = bsearch(&key, p->found, n, sizeof(key), compare_found);
		p->at[p->n] = found ? found->place : 0;
	}
	return 0;
}

static int judge(const struct infer_question *q, const struct tail_seed *s, struct places *p,
		 struct infer_answer *ret)
{
	uint32_t *sorted AUTO_FREE = malloc(q->n_seen * sizeof(*sorted));
	uint32_t from, n, n_sorted, first, last;
	double bits;
	int rc;

	if (!sorted)
		return -ENOMEM;
	rc = find_places(q, s->seed, p);
	if (rc < 0)
		return rc;
	n_sorted = p->n;
	memcpy(sorted, p->at, p->n * sizeof(*sorted));
	bits = evidence_window_bits(sorted, &n_sorted, q->n, &from, &n);
	if (bits < NEEDED_BITS)
		return -ENOENT;
	first = sorted[from];
	last = sorted[from + n - 1];
	if (first < last - first) /* the beginning */
		return -ENOENT;
	*ret = (struct infer_answer){ .seed = s->seed,
				    .is_likely = s->word == 0,
				    .is_chain = s->word != 0,
				    .draw = RECOVER_TORCH,
				    .manual_seed = s->manual_seed,
				    .word = s->word,
				    .margin = bits - NEEDED_BITS };
	p->n = keep_window(p, first, last);
	find_world(q, p, ret);
	return 0;
}

static void places_fini(struct places *p)
{
	free(p->at);
	free(p->sample);
	free(p->found);
	bitmap_fini(&p->seen);
}

static int places_init(const struct infer_question *q, struct places *p)
{
	if (q->no_kinds || q->n_seen < SEEN_LEAST || q->n < INFER_RANK_SAMPLES ||
	    q->n >= TORCH_LARGE)
		return -ENOENT;
	p->at = calloc(q->n_seen, sizeof(*p->at));
	p->found = calloc(q->n_seen, sizeof(*p->found));
	p->sample = malloc(q->n * sizeof(*p->sample));
	if (!p->at || !p->found || !p->sample || bitmap_init(&p->seen, q->n) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < q->n_seen; i++)
		(void)bitmap_set(&p->seen, q->seen[i]);
	return 0;
}

/* FNV-1a of what makes the list of seeds, and of what tells this beginning in this numbering. */
static uint64_t hash_beginning(const struct infer_question *q)
{
	uint64_t hash = 0xcbf29ce484222325 ^ q->n;

	for (size_t i = 0; i < q->n_hints; i++)
		hash = (hash ^ q->hints[i]) * 0x100000001b3;
	for (size_t i = 0; i < MIN(q->n_seen, BEGINNING); i++)
		hash = (hash ^ q->seen[i]) * 0x100000001b3;
	return MAX(hash, 1);
}

/* That of this beginning, or a new one in place of the one that was asked for the longest ago. */
static struct tail_mark *find_mark(const struct infer_question *q)
{
	uint64_t beginning = hash_beginning(q);
	struct tail_mark *mark = &q->marks->mark[0];

	for (uint32_t i = 0; i < TAIL_MARKS && mark->beginning != beginning; i++)
		if (q->marks->mark[i].beginning == beginning || q->marks->mark[i].used < mark->used)
			mark = &q->marks->mark[i];
	if (mark->beginning != beginning)
		*mark = (struct tail_mark){ .beginning = beginning,
					    .n_seen = (uint32_t)q->n_seen };
	mark->used = ++q->marks->asked;
	return mark;
}

static uint64_t wall_ns(void)
{
	return clock_now(clock_monotonic());
}

static void wait_while_held(const struct infer_question *q)
{
	const struct timespec hold = { .tv_nsec = HELD_NS };

	while (q->hold && atomic_load(q->hold) && !atomic_load(q->cancel))
		(void)clock_nanosleep(CLOCK_MONOTONIC, 0, &hold, NULL);
}

static int try_seeds(const struct infer_question *q, uint32_t n_seeds, uint64_t cpu_ns,
		     struct tail_mark *mark, struct places *places, struct infer_answer *ret)
{
	uint64_t start_ns = guess_cpu_ns(), began_ns = wall_ns();
	uint32_t from = mark->next;
	struct tail_seed seed;

	while (mark->next < n_seeds && nth_seed(q, mark->next, &seed)) {
		int rc;

		wait_while_held(q);
		/* One at least, or a busy machine would never come to an end. */
		if (mark->next > from && (guess_cpu_ns() - start_ns > cpu_ns ||
					  (!q->hold && wall_ns() - began_ns > WALL_TIMES * cpu_ns)))
			return -ENOENT;
		rc = atomic_load(q->cancel) ? -ECANCELED : judge(q, &seed, places, ret);
		if (rc != -ENOENT)
			return rc;
		mark->next++;
	}
	return -ENOENT;
}

int tail_search(const struct infer_question *q, uint32_t n_seeds, uint64_t cpu_ns,
		struct infer_answer *ret)
{
	struct tail_mark first = { .n_seen = (uint32_t)q->n_seen }, *mark = &first;
	struct places places = { 0 };
	struct tail_seed seed;
	int rc = places_init(q, &places);

	if (rc == 0 && q->marks)
		mark = find_mark(q);
	if (!nth_seed(q, mark->next, &seed) && q->n_seen >= AGAIN_TIMES * mark->n_seen) {
		mark->next = 0;
		mark->n_seen = (uint32_t)q->n_seen;
	}
	if (rc == 0)
		rc = try_seeds(q, n_seeds, cpu_ns, mark, &places, ret);
	places_fini(&places);
	return rc;
}

int tail_refine(const struct infer_question *q, struct infer_answer *ret)
{
	const struct tail_seed seed = { .seed = q->seed };
	struct places places = { 0 };
	int rc = places_init(q, &places);

	if (rc == 0)
		rc = judge(q, &seed, &places, ret);
	places_fini(&places);
	return rc;
}
