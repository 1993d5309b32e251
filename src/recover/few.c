/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets of few samples: 8 to 128 shards have so few permutations that it says little which of them were
 * opened first; in what order they were opened is all there is. A hypothesis is a seed with a layout (how many
 * workers read batches of what size side by side, which rank), and says at each open which samples may be
 * next and how likely: the heads of its workers' streams, those that are behind the others before those that
 * are ahead, with a little left for opens that were not heard of, and for foreign ones. What it gave to the
 * sample that came is compared with what chance gives, one of all that were not opened yet:
 *
 *	product of q(open) * (samples left)  >=  2^(20 + bits of the hypothesis)
 *
 * If the seed is wrong its permutation has nothing to do with what was opened, and each factor is 1 on the
 * average, or less. So the product reaches 2^b once in 2^b times at most, whenever and however often it is looked
 * at (Ville's inequality), and a search accepts a wrong hypothesis once in a million times as all of them
 * together have a share of 1 only. No bound of that needs large numbers, and nothing is assumed of how the job
 * does read, if it is not by a seed that is tried.
 *
 * Several passes are factors of one product: where a permutation has too few bits, two or three do. The seed of
 * the next one is one more, the same, or two or four words further on; which is part of what is found.
 *
 * About three microseconds a seed; one thread. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "recover_priv.h"

#define FOREIGN (1.0 / 32)  /* share of opens that are nobody's next */
#define SKIPPED (1.0 / 16)  /* that the one before was not heard of */
#define SKIP_MAX 2u
#define HOPELESS (1.0 / 64)
#define WORKERS_MAX 16u
#define LAYOUTS_MAX 128u
#define NOBODY UINT8_MAX
#define LAG (1u << 20)
#define LAG_MAX 20u
#define LOOK_EVERY 64u /* seeds, between two looks at `cancel` */

#define TYPED_FEW 1024u /* seeds that are tried at a glance */
#define WORDS_FIRST 3u  /* of the manual seeds; a loader's own are 3, 7, 11... */
#define WORDS_FEW 16u
#define HINT_BEFORE 4u
#define HINT_AFTER 12u

static const uint32_t more_liked[] = { 1337, 2020,  2021,  2022,  2023,   2024,	  2025,	   2026, 2027,	  1234,
				       3407, 4242, 10086, 12345, 123456, 31337, 114514, 19260817 };

static const uint16_t workers_tried[] = { 2, 3, 4, 5, 6, 8, 12, 16 };
static const uint16_t batches_tried[] = { 2, 3, 4, 8, 16 };
static const uint16_t worlds_tried[] = { 2, 3, 4, 6, 8 };

#define NEXT_BITS 1.0 /* a plain seed goes on in two ways, and so does a word */

struct layout {
	uint32_t workers, batch, world, rank;
	bool is_strict; /* workers take turns; else each goes on as it likes, within a few samples */
	double bits;
	/* By place: whose it is, NOBODY: another rank's; and which of that worker's it is. */
	uint8_t worker_of[RECOVER_FEW_MAX], index_of[RECOVER_FEW_MAX];
	uint8_t length[WORKERS_MAX]; /* of each worker's stream */
};

struct few {
	const struct recover_params *params;
	uint32_t n;
	const struct recover_pass *pass; /* [n_passes] the last one is params' own */
	size_t n_passes;
	struct layout layout[LAYOUTS_MAX];
	uint32_t n_layouts;
	struct recover_found best;
	double best_over; /* bits beyond those it needs; never negative */
	uint64_t n_seeds;
};

/* A seed, and where it is from. */
struct origin {
	uint32_t seed, manual_seed, word;
	bool is_chain;
	double bits;
};

/* --- the layouts and their shares: 1/2, 1/4, 1/8, 1/8 --- */

/* A sampler gives all ranks as many: the last ones read what stands at the beginning as well, which is no
 * place of theirs. */
static uint32_t place_at(const struct layout *l, uint32_t position, uint32_t n)
{
	return (l->rank + position * l->world) % n;
}

static void put_layout(struct few *f, struct layout l)
{
	l.world = MAX(l.world, 1);
	if (f->n_layouts == LAYOUTS_MAX || l.workers >= f->n || l.workers * l.batch > f->n ||
	    2 * l.world > f->n)
		return;
	memset(l.worker_of, NOBODY, sizeof(l.worker_of));
	for (uint32_t position = 0; position < DIV_ROUND_UP(f->n, l.world); position++) {
		uint32_t place = place_at(&l, position, f->n), worker = position / l.batch % l.workers;

		l.worker_of[place] = (uint8_t)worker;
		l.index_of[place] = l.length[worker]++;
	}
	f->layout[f->n_layouts++] = l;
}

static void list_layouts(struct few *f)
{
	const double one_bits = 2 + log2(2 * ARRAY_LEN(workers_tried)),
		     more_bits = 3 + log2(ARRAY_LEN(workers_tried) * ARRAY_LEN(batches_tried));
	double ranks = 0;

	for (size_t i = 0; i < ARRAY_LEN(worlds_tried); i++)
		ranks += 2 * worlds_tried[i];
	put_layout(f, (struct layout){ .workers = 1, .batch = 1, .bits = 1 });
	for (size_t w = 0; w < ARRAY_LEN(workers_tried); w++) {
		struct layout l = { .workers = workers_tried[w], .batch = 1, .bits = one_bits };

		put_layout(f, l);
		l.is_strict = true;
		put_layout(f, l);
		l.is_strict = false;
		l.bits = more_bits;
		for (size_t b = 0; b < ARRAY_LEN(batches_tried); b++) {
			l.batch = batches_tried[b];
			put_layout(f, l);
		}
	}
	for (size_t i = 0; i < ARRAY_LEN(worlds_tried); i++)
		for (uint32_t rank = 0; rank < worlds_tried[i]; rank++)
			for (uint32_t workers = 1; workers <= 2; workers++)
				put_layout(f, (struct layout){ .workers = workers,
							       .batch = 1,
							       .world = worlds_tried[i],
							       .rank = rank,
							       .bits = 3 + log2(ranks) });
}

/* --- one pass by one seed and layout --- */

struct pace {
	const struct layout *layout;
	const uint32_t *perm; /* [n] sample at each place */
	uint32_t n;
	uint8_t head[WORKERS_MAX];
	uint64_t taken[RECOVER_FEW_MAX / 64]; /* by sample */
};

static bool is_taken(const struct pace *p, uint32_t worker, uint32_t i)
{
	const struct layout *l = p->layout;
	uint32_t position = (i / l->batch * l->workers + worker) * l->batch + i % l->batch;
	uint32_t sample = p->perm[place_at(l, position, p->n)];

	return p->taken[sample / 64] >> sample % 64 & 1;
}

/* Share of the worker among those that have something left to open, by how far it is behind or ahead. */
static double turn_of(const struct pace *p, uint32_t worker)
{
	const struct layout *l = p->layout;
	uint32_t least = UINT32_MAX, before = 0, active = 0, sum = 0, mine = p->head[worker];

	for (uint32_t k = 0; k < l->workers; k++)
		if (p->head[k] < l->length[k])
			least = MIN(least, p->head[k]);
	for (uint32_t k = 0; k < l->workers; k++) {
		if (p->head[k] >= l->length[k])
			continue;
		active++;
		sum += LAG >> MIN(p->head[k] - least, LAG_MAX);
		before += p->head[k] < mine || (p->head[k] == mine && k < worker);
	}
	if (!l->is_strict)
		return (double)(LAG >> MIN(mine - least, LAG_MAX)) / sum;
	/* 3/4, 3/16, 3/64...; the last one has what is left. */
	return (before + 1 == active ? 1 : 0.75) / (double)(1ull << 2 * before);
}

/* How likely the hypothesis finds it that this one is opened next; goes on to the one behind it. */
static double pace_take(struct pace *p, uint32_t place, uint32_t left)
{
	const struct layout *l = p->layout;
	uint32_t worker = l->worker_of[place], i = l->index_of[place], skipped = 0, sample = p->perm[place];
	double q = FOREIGN / left;

	p->taken[sample / 64] |= 1ull << sample % 64;
	if (worker == NOBODY || i < p->head[worker])
		return q;
	for (uint32_t k = p->head[worker]; k < i && skipped <= SKIP_MAX; k++)
		skipped += !is_taken(p, worker, k);
	if (skipped <= SKIP_MAX) {
		q += (1 - FOREIGN) * turn_of(p, worker) *
		     (skipped ? SKIPPED / (1u << skipped) : 1 - SKIPPED);
		p->head[worker] = (uint8_t)(i + 1);
	}
	/* Past strays that were opened before their time. */
	while (p->head[worker] < l->length[worker] && is_taken(p, worker, p->head[worker]))
		p->head[worker]++;
	return q;
}

/* The product over one pass; 0: hopeless. */
static double weigh_pass(const struct few *f, const struct layout *l, const struct recover_pass *pass,
			 const uint32_t *perm, const uint32_t *place)
{
	struct pace p = { .layout = l, .perm = perm, .n = f->n };
	double product = 1;

	/* Nearly all wrong seeds end here: who begins, begins at the beginning. */
	for (uint32_t i = 0; i < MIN(pass->n_seen, 2); i++)
		if (l->worker_of[place[pass->seen[i]]] == NOBODY || l->index_of[place[pass->seen[i]]] > i)
			return 0;
	for (uint32_t i = 0; i < pass->n_seen; i++) {
		uint32_t sample = pass->seen[i], left = f->n - i;

		product *= pace_take(&p, place[sample], left) * left;
		if (product < HOPELESS)
			return 0;
	}
	return product;
}

/* --- seeds --- */

struct shuffled {
	uint32_t perm[RECOVER_FEW_MAX], place[RECOVER_FEW_MAX];
};

/* As torch.randperm(n) does. */
static void shuffle(uint32_t seed, uint32_t n, struct shuffled *ret)
{
	struct mt mt;

	mt_seed(&mt, seed);
	for (uint32_t i = 0; i < n; i++)
		ret->perm[i] = i;
	for (uint32_t i = 0; i + 1 < n; i++) {
		uint32_t z = i + mt_u32(&mt) % (n - i), was = ret->perm[i];

		ret->perm[i] = ret->perm[z];
		ret->perm[z] = was;
	}
	for (uint32_t i = 0; i < n; i++)
		ret->place[ret->perm[i]] = i;
}

/* The seed `passes` later. */
static uint32_t seed_after(const struct origin *o, enum recover_next next, uint32_t passes, uint32_t *ret_word)
{
	*ret_word = o->word + (next == RECOVER_NEXT_FOUR ? 4 : 2) * passes;
	if (passes == 0)
		return o->seed;
	switch (next) {
	case RECOVER_NEXT_ONE:
		return o->seed + passes;
	case RECOVER_NEXT_SAME:
		return o->seed;
	default:
		return recover_word(o->manual_seed, *ret_word);
	}
}

static void accept(struct few *f, const struct origin *o, const struct layout *l, enum recover_next next,
		   uint32_t later, double bits, double needed)
{
	struct recover_found *found = &f->best;
	uint32_t word;

	if (bits - needed < f->best_over || (found->world && bits - needed <= f->best_over))
		return;
	f->best_over = bits - needed;
	*found = (struct recover_found){ .world = l->world,
					 .n_ranks = 1,
					 .rank = { l->rank },
					 .bits = bits,
					 .bits_needed = needed,
					 .next = next,
					 .n_explained = (uint32_t)f->params->n_seen };
	found->seed = seed_after(o, next, later, &word);
	if (!o->is_chain)
		return;
	found->is_chain = true;
	found->draw = RECOVER_TORCH;
	found->manual_seed = o->manual_seed;
	found->word = word;
}

/* Passes behind the first, as the seed goes on. Where it stays as it is they say nothing new: whoever reads
 * in one fixed order that nobody shuffled has the same luck in each. So their mean counts, not their product. */
static void weigh_later(struct few *f, const struct origin *o, const struct layout *l, size_t first,
			double product, double needed)
{
	const enum recover_next ways[] = { o->is_chain ? RECOVER_NEXT_FOUR : RECOVER_NEXT_ONE,
					   o->is_chain ? RECOVER_NEXT_TWO : RECOVER_NEXT_SAME };

	for (size_t s = 0; s < ARRAY_LEN(ways); s++) {
		bool is_same = ways[s] == RECOVER_NEXT_SAME;
		double bits = log2(product), sum = product;

		for (size_t i = first + 1; i < f->n_passes && (is_same || bits > log2(HOPELESS)); i++) {
			struct shuffled later;
			uint32_t word, seed = seed_after(o, ways[s], (uint32_t)(i - first), &word);
			double weight;

			shuffle(seed, f->n, &later);
			weight = weigh_pass(f, l, &f->pass[i], later.perm, later.place);
			bits += log2(weight);
			sum += weight;
		}
		if (is_same)
			bits = log2(sum / (double)(f->n_passes - first));
		accept(f, o, l, ways[s], (uint32_t)(f->n_passes - 1 - first), bits, needed);
	}
}

/* The seed of pass number `first`. */
static void try_seed(struct few *f, const struct origin *o, size_t first)
{
	/* Which pass is taken for the first one is chosen, too. */
	const double fixed = JUDGE_MARGIN_BITS + o->bits + (f->n_passes > 1 ? 1 : 0);
	struct shuffled s;

	shuffle(o->seed, f->n, &s);
	for (uint32_t i = 0; i < f->n_layouts; i++) {
		const struct layout *l = &f->layout[i];
		/* Workers with batches begin as a rank would; that a pass is over tells. */
		bool is_rank = l->world > 1 && first + 1 == f->n_passes;
		double product = is_rank ? 0 : weigh_pass(f, l, &f->pass[first], s.perm, s.place);

		if (product <= 0)
			continue;
		if (first + 1 < f->n_passes)
			weigh_later(f, o, l, first, product, fixed + l->bits + NEXT_BITS);
		else
			accept(f, o, l, RECOVER_NEXT_UNKNOWN, 0, log2(product), fixed + l->bits);
	}
}

static bool few_is_cancelled(struct few *f)
{
	return f->params->cancel && f->n_seeds++ % LOOK_EVERY == 0 && atomic_load(f->params->cancel);
}

/* Seeds of 0..to-1, of people's liking, and around what is known; share: bits. */
static bool try_plain(struct few *f, size_t first, uint32_t from, uint32_t to, double share)
{
	const struct recover_params *p = f->params;
	uint64_t around = from == 0 ? p->n_hints * (HINT_BEFORE + HINT_AFTER) : 0,
		 liked = from == 0 ? ARRAY_LEN(more_liked) : 0, total = around + liked + to - from;
	struct origin o = { .bits = share + log2((double)total) };

	for (uint64_t i = 0; i < total; i++) {
		if (i < around)
			o.seed = p->hints[i / (HINT_BEFORE + HINT_AFTER)] - HINT_BEFORE +
				 (uint32_t)(i % (HINT_BEFORE + HINT_AFTER));
		else if (i < around + liked)
			o.seed = more_liked[i - around];
		else
			o.seed = from + (uint32_t)(i - around - liked);
		if (few_is_cancelled(f))
			return false;
		try_seed(f, &o, first);
	}
	return true;
}

/* The first words of manual_seed of the same. */
static bool try_words(struct few *f, size_t first, uint32_t from, uint32_t to, double share)
{
	const struct recover_params *p = f->params;
	uint64_t known = from == 0 ? p->n_hints + ARRAY_LEN(more_liked) : 0, total = known + to - from;
	struct origin o = { .is_chain = true, .bits = share + log2((double)total * WORDS_FEW) };

	for (uint64_t i = 0; i < total; i++) {
		struct mt mt;

		o.manual_seed = i >= known	  ? from + (uint32_t)(i - known)
				: i < p->n_hints ? p->hints[i]
						 : more_liked[i - p->n_hints];
		mt_seed(&mt, o.manual_seed);
		for (uint32_t word = 0; word < WORDS_FIRST; word++)
			(void)mt_u32(&mt);
		for (o.word = WORDS_FIRST; o.word < WORDS_FIRST + WORDS_FEW; o.word++) {
			o.seed = mt_u32(&mt);
			if (few_is_cancelled(f))
				return false;
			try_seed(f, &o, first);
		}
	}
	return true;
}

/* Shares: 1/4 each. */
static bool try_all(struct few *f, size_t first)
{
	bool has_all = try_plain(f, first, 0, TYPED_FEW, 2) && try_words(f, first, 0, TYPED_FEW, 2);

	if (!has_all || f->params->typed <= TYPED_FEW || f->best.world)
		return has_all;
	return try_plain(f, first, TYPED_FEW, MIN(f->params->typed, RECOVER_TYPED), 2) &&
	       try_words(f, first, TYPED_FEW, CHAIN_MANUAL, 2);
}

/* --- the question --- */

/* Whether it has each sample once. */
static bool is_pass(const struct recover_pass *pass, uint64_t n)
{
	bool is_seen[RECOVER_FEW_MAX] = { 0 };

	if (pass->n_seen > n)
		return false;
	for (size_t i = 0; i < pass->n_seen; i++) {
		if (pass->seen[i] >= n || is_seen[pass->seen[i]])
			return false;
		is_seen[pass->seen[i]] = true;
	}
	return true;
}

static uint64_t cpu_ns(void)
{
	struct timespec now = { 0 };

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

int recover_few(const struct recover_params *params, const struct recover_pass *before, size_t n_before,
		struct recover_found *ret)
{
	struct recover_pass pass[RECOVER_FEW_PASSES + 1];
	struct few *f AUTO_FREE = calloc(1, sizeof(*f));
	uint64_t start_ns = cpu_ns();
	bool has_ended;

	*ret = (struct recover_found){ 0 };
	if (!f)
		return -ENOMEM;
	if (params->n < RECOVER_FEW_LEAST || params->n > RECOVER_FEW_MAX || n_before > RECOVER_FEW_PASSES)
		return -EINVAL;
	for (size_t i = 0; i < n_before; i++)
		pass[i] = before[i];
	pass[n_before] = (struct recover_pass){ params->seen, params->n_seen };
	for (size_t i = 0; i <= n_before; i++)
		if (!is_pass(&pass[i], params->n))
			return -EINVAL;
	*f = (struct few){ .params = params, .n = (uint32_t)params->n, .pass = pass, .n_passes = n_before + 1 };
	list_layouts(f);
	has_ended = try_all(f, n_before) && (n_before == 0 || f->best.world || try_all(f, 0));
	if (params->cpu_ns)
		atomic_fetch_add(params->cpu_ns, cpu_ns() - start_ns);
	if (!has_ended)
		return -ECANCELED;
	*ret = f->best;
	return f->best.world ? 0 : -ENOENT;
}
