/* SPDX-License-Identifier: Apache-2.0 */
/* The questions put to module recover: which worlds, which seeds, how many threads. A world whose
 * rank is not known costs what all its ranks cost, so the larger it is the fewer seeds are tried:
 *
 *	one rank            likely seeds, and words of likely manual seeds   0.1 s of a core
 *	up to 64 ranks      65536 seeds
 *	up to 512, 4096     2048, 256 seeds, when the first looks have found nothing
 *	the launcher's      likely seeds, as many as the size of the world allows
 *
 *	before that, of 128 samples at most: by the order they were opened in  0.1 s, then a second
 *	and where the samples may be numbered in several ways (parts.c):
 *	1024 seeds in each of them                                           0.03 s
 *
 * All seeds are tried for one rank; then, if the launcher says that there are several, for its
 *world. Evidence is asked for per question; five questions make a wrong answer a little likelier
 *than one in a million. Runs on the search thread; the searches start threads of their own. What
 * takes a tenth of a second is worth a CPU; what takes longer is in nobody's way. */
#include <errno.h>

#include "clairfs/recover.h"
#include "infer_priv.h"

#define QUICK_NICE 0 /* beside that of the thread that asks */
#define LONG_WORDS (8u << 20) /* take a tenth of a second */
#define FULL_NICE 19
#define QUICK_THREADS 2
#define FULL_WORLD_MAX 64  /* all seeds are tried for a launcher's world up to this */
#define BRIEF_TYPED 1024   /* seeds that are tried in every numbering */
#define KIND_SEEDS_QUICK 32
#define KIND_SEEDS_FULL 1024
#define KIND_QUICK_NS (NS_PER_S / 4)
#define KIND_FULL_NS (20 * NS_PER_S)
#define TAIL_BRIEF_NS (NS_PER_S / 10)
#define TAIL_NS (2 * NS_PER_S)
#define TAIL_FULL_NS (10 * NS_PER_S)

/* Worlds that are tried together; 0 ends. */
struct worlds {
	uint32_t typed;
	bool is_later;
	uint32_t size[20];
};

static const struct worlds worlds_tried[] = {
	{ RECOVER_TYPED, false, { 2,  3,  4,  5,  6,  7,  8,  10, 12, 14,
				  16, 20, 24, 28, 32, 40, 48, 56, 64, 0 } },
	{ 2048, true, { 72, 80, 96, 112, 128, 144, 160, 192, 224, 256, 320, 384, 448, 512, 0 } },
	{ 256, true, { 640, 768, 1024, 1280, 1536, 2048, 3072, 4096, 0 } },
};

uint32_t ask_world(size_t i)
{
	for (size_t k = 0; k < ARRAY_LEN(worlds_tried); k++)
		for (const uint32_t *s = worlds_tried[k].size; *s; s++)
			if (i-- == 0)
				return *s;
	return 0;
}

static void be_modest(const struct infer_question *q, struct recover_params *p)
{
	p->threads = MIN(QUICK_THREADS, MAX(q->threads, 1));
	p->nice = FULL_NICE;
}

static void params_of(const struct infer_question *q, struct recover_params *p)
{
	recover_params_init(p);
	p->n = q->n;
	p->seen = q->seen;
	p->n_seen = q->n_seen;
	p->hints = q->hints;
	p->n_hints = q->n_hints;
	p->cancel = q->cancel;
	p->cpu_ns = q->cpu_ns;
	p->effort = RECOVER_QUICK;
	p->threads = QUICK_THREADS;
	p->nice = QUICK_NICE;
	p->is_idle = q->is_idle;
	if (q->is_modest)
		be_modest(q, p);
}

/* Not a neighbour of what was known, so a seed that somebody typed. */
static bool is_typed(const struct recover_params *p, const struct recover_found *found)
{
	if (found->seed < RECOVER_TYPED)
		return true;
	for (size_t i = 0; i < p->n_hints; i++)
		if (found->seed - p->hints[i] + 1024 < 2048) /* wraps, as hints do */
			return false;
	return p->effort == RECOVER_QUICK && !found->is_chain;
}

static void put_answer(const struct recover_params *p, const struct recover_found *found,
		       struct infer_answer *ret)
{
	*ret = (struct infer_answer){ .seed = found->seed,
				    .is_likely = is_typed(p, found) && !found->is_chain,
				    .is_chain = found->is_chain,
				    .draw = found->draw,
				    .manual_seed = found->manual_seed,
				    .word = found->word,
				    .world = found->world,
				    .n_ranks = found->n_ranks,
				    .next = found->next,
				    .margin = found->bits - found->bits_needed };
	for (uint32_t i = 0; i < found->n_ranks; i++)
		ret->rank[i] = found->rank[i];
}

/* Too few samples to tell is no error here: the next look has more. */
static int search(const struct recover_params *p, struct infer_answer *ret)
{
	struct recover_found found;
	struct err err = { 0 };
	int rc = recover_search(p, &found, &err);

	if (rc < 0)
		return rc == -EINVAL ? -ENOENT : rc;
	put_answer(p, &found, ret);
	return 0;
}

static int search_worlds(const struct infer_question *q, const struct worlds *w,
			 struct infer_answer *ret)
{
	uint32_t size[ARRAY_LEN(w->size)];
	struct recover_params p;

	params_of(q, &p);
	p.worlds = size;
	for (const uint32_t *s = w->size; *s && *s <= q->n / INFER_RANK_SAMPLES; s++)
		size[p.n_worlds++] = *s;
	if (p.n_worlds == 0)
		return -ENOENT;
	p.typed = w->typed;
	p.is_plain = true;
	if (w->is_later)
		be_modest(q, &p);
	return search(&p, ret);
}

static bool has_world(const struct infer_question *q)
{
	return q->world > 1 && q->world <= RECOVER_WORLD_MAX && q->world <= q->n / INFER_RANK_SAMPLES;
}

/* The world that the job's launcher told. */
static int search_launched(const struct infer_question *q, struct infer_answer *ret)
{
	struct worlds w = { .typed = q->world <= 64    ? RECOVER_TYPED
				     : q->world <= 512 ? 8192
						       : 1024,
			    .size = { q->world } };

	return has_world(q) ? search_worlds(q, &w, ret) : -ENOENT;
}

/* On this thread, so its time is the question's. */
static int try_kinds(const struct infer_question *q, uint32_t n_seeds, uint64_t most_ns,
		     struct infer_answer *ret)
{
	uint64_t start_ns = guess_cpu_ns();
	int rc = q->no_kinds ? -ENOENT : guess_kinds(q, n_seeds, most_ns, ret);

	atomic_fetch_add(q->cpu_ns, guess_cpu_ns() - start_ns);
	return rc;
}

static int try_all_kinds(const struct infer_question *q, struct infer_answer *ret)
{
	return try_kinds(q, KIND_SEEDS_FULL, KIND_FULL_NS, ret);
}

int ask_sequential(const struct infer_question *q, struct infer_answer *ret)
{
	uint64_t start_ns = guess_cpu_ns();
	int rc = q->not_sequential ? -ENOENT : guess_sequential(q, ret);

	atomic_fetch_add(q->cpu_ns, guess_cpu_ns() - start_ns);
	return rc;
}

/* Which ranks of which world read by this seed. */
static int find_world(const struct infer_question *q, uint32_t seed, struct infer_answer *ret)
{
	uint32_t size[ARRAY_LEN(worlds_tried[0].size) + 2] = { 1 };
	struct recover_params p;

	params_of(q, &p);
	p.effort = RECOVER_RANGE;
	p.first_seed = p.last_seed = seed;
	p.threads = 1;
	p.worlds = size;
	p.n_worlds = 1;
	for (const uint32_t *s = worlds_tried[0].size; *s && *s <= q->n / INFER_RANK_SAMPLES; s++)
		size[p.n_worlds++] = *s;
	if (has_world(q) && q->world > size[p.n_worlds - 1])
		size[p.n_worlds++] = q->world;
	return search(&p, ret);
}

/* For one rank of one world. A patient search finds the seed of several as well, by what they read
 * together: these are told apart at once. */
static int search_one(const struct infer_question *q, const struct recover_params *p, struct infer_answer *ret)
{
	struct infer_answer ranks;
	int rc = search(p, ret);

	if (rc < 0 || ret->is_chain || find_world(q, ret->seed, &ranks) < 0)
		return rc;
	ranks.is_likely = ret->is_likely;
	ranks.margin = ret->margin;
	*ret = ranks;
	return rc;
}

int ask_few(const struct infer_question *q, struct infer_answer *ret)
{
	struct recover_params p;
	struct recover_found found;
	int rc;

	if (q->n > RECOVER_FEW_MAX)
		return -ENOENT;
	params_of(q, &p);
	if (q->is_first)
		p.typed = BRIEF_TYPED;
	rc = recover_few(&p, q->before, q->n_before, &found);
	if (rc < 0)
		return rc == -EINVAL ? -ENOENT : rc;
	put_answer(&p, &found, ret);
	return 0;
}

int ask_brief(const struct infer_question *q, struct infer_answer *ret)
{
	struct worlds few = worlds_tried[0];
	struct recover_params p;
	int rc;

	params_of(q, &p);
	p.typed = few.typed = BRIEF_TYPED;
	rc = search_one(q, &p, ret);
	return rc == -ENOENT ? search_worlds(q, &few, ret) : rc;
}

int ask_quick(const struct infer_question *q, struct infer_answer *ret)
{
	struct recover_params p;
	int rc;

	params_of(q, &p);
	rc = search_one(q, &p, ret);
	if (rc == -ENOENT)
		rc = streams_quick(q, ret);
	if (rc == -ENOENT)
		rc = search_launched(q, ret);
	for (size_t i = 0; i < ARRAY_LEN(worlds_tried) && rc == -ENOENT; i++)
		if (!q->is_first || !worlds_tried[i].is_later)
			rc = search_worlds(q, &worlds_tried[i], ret);
	if (rc == -ENOENT && !q->is_first)
		rc = try_kinds(q, KIND_SEEDS_QUICK, KIND_QUICK_NS, ret);
	return rc;
}

int ask_tail_brief(const struct infer_question *q, struct infer_answer *ret)
{
	uint64_t start_ns = guess_cpu_ns();
	int rc = tail_search(q, TAIL_LIKELY, TAIL_BRIEF_NS, ret);

	atomic_fetch_add(q->cpu_ns, guess_cpu_ns() - start_ns);
	return rc;
}

static int try_tail(const struct infer_question *q, struct infer_answer *ret)
{
	uint64_t start_ns = guess_cpu_ns();
	int rc = tail_search(q, UINT32_MAX, TAIL_NS, ret);

	atomic_fetch_add(q->cpu_ns, guess_cpu_ns() - start_ns);
	return rc;
}

/* Where it takes longer: behind everybody else, and more of it at the next look. */
int ask_tail(const struct infer_question *q, struct infer_answer *ret)
{
	if (q->is_first)
		return -ENOENT;
	return q->is_idle ? try_tail(q, ret) : aside_run(try_tail, q, ret);
}

/* Of a search of all seeds: for so long; then what is left. */
static int try_tail_longer(const struct infer_question *q, struct infer_answer *ret)
{
	uint64_t start_ns = guess_cpu_ns();
	int rc = tail_search(q, UINT32_MAX, TAIL_FULL_NS, ret);

	atomic_fetch_add(q->cpu_ns, guess_cpu_ns() - start_ns);
	return rc;
}

static int try_tail_all(const struct infer_question *q, struct infer_answer *ret)
{
	uint64_t start_ns = guess_cpu_ns();
	int rc = tail_search(q, UINT32_MAX, UINT64_MAX, ret);

	atomic_fetch_add(q->cpu_ns, guess_cpu_ns() - start_ns);
	return rc;
}

/* One of `parts` searches of all seeds. */
struct part {
	const struct infer_question *q;
	unsigned at, parts;
};

static void pass_progress(void *ctx, const struct recover_progress *progress)
{
	const struct part *part = ctx;
	double share = 0, left;

	if (!progress->is_full || progress->seeds_per_s <= 0)
		return;
	share = (double)progress->done / (double)progress->total;
	left = (1 - share + part->parts - part->at - 1) * (double)progress->total /
	       progress->seeds_per_s;
	part->q->progress(part->q->progress_ctx, (share + part->at) / part->parts, left);
}

/* It is still there: what is asked for takes a while. */
static void tick(void *ctx, const struct recover_progress *progress)
{
	const struct infer_question *q = ctx;

	q->progress(q->progress_ctx, 0, 0);
}

/* Of a question that may take long; a quick one as it is. */
static void modest_params_of(const struct infer_question *q, struct recover_params *p)
{
	params_of(q, p);
	if (!q->hold)
		return;
	p->threads = q->threads;
	p->nice = FULL_NICE;
	p->is_idle = true;
	p->hold = q->hold;
	if (!q->progress)
		return;
	p->progress = tick;
	p->progress_ctx = (void *)q;
}

int ask_streams(const struct infer_question *q, const struct recover_stream *streams, size_t n,
		struct infer_answer *ret)
{
	struct recover_params p;
	uint64_t words = 0;

	modest_params_of(q, &p);
	p.effort = RECOVER_STREAMS;
	p.streams = streams;
	p.n_streams = n;
	for (size_t i = 0; i < n; i++)
		words += streams[i].count;
	if (!q->hold && words > LONG_WORDS)
		be_modest(q, &p);
	return search(&p, ret);
}

int ask_places(const struct infer_question *q, const struct recover_stream *streams, size_t n,
	       struct infer_answer *ret)
{
	struct recover_params p;
	struct err err = { 0 };

	modest_params_of(q, &p);
	p.streams = streams;
	p.n_streams = n;
	return recover_find(&p, ret->seed, ret->place, INFER_PLACES, &ret->n_places, &err);
}

static int ask_all_seeds(const struct part *part, const uint32_t *world, struct infer_answer *ret)
{
	struct recover_params p;

	modest_params_of(part->q, &p);
	p.effort = RECOVER_RANGE;
	p.worlds = world;
	p.n_worlds = world ? 1 : 0;
	if (part->q->progress) {
		p.progress = pass_progress;
		p.progress_ctx = (void *)part;
	}
	return search(&p, ret);
}

int ask_full(const struct infer_question *q, struct infer_answer *ret)
{
	bool has_two = has_world(q) && q->world <= FULL_WORLD_MAX;
	struct part part = { q, 0, has_two ? 2 : 1 };
	int rc = streams_full(q, ret);

	if (rc == -ENOENT)
		rc = aside_run(try_all_kinds, q, ret);
	if (rc == -ENOENT)
		rc = aside_run(try_tail_longer, q, ret);
	if (rc == -ENOENT)
		rc = ask_all_seeds(&part, NULL, ret);
	if (rc == 0 && !ret->is_chain && !ret->spec[0] && !ret->is_likely)
		if (streams_lookup(q, ret) < 0) /* no reason not to take what was found */
			ret->n_places = 0;
	part.at = 1;
	if (rc == -ENOENT && has_two)
		rc = ask_all_seeds(&part, &q->world, ret);
	return rc == -ENOENT ? aside_run(try_tail_all, q, ret) : rc;
}

int ask_refine(const struct infer_question *q, struct infer_answer *ret)
{
	int rc = find_world(q, q->seed, ret);

	return rc == -ENOENT ? tail_refine(q, ret) : rc;
}
