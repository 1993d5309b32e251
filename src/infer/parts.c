/* SPDX-License-Identifier: Apache-2.0 */
/* The same questions of every numbering that the job may use: of `train/` below the mount, of all
 * samples, of each as another framework sorts them. The opens are translated once for each, so that
 * a numbering costs what its questions cost, and these are asked from the cheapest and likeliest on:
 *
 *	files in their order      of all of them
 *	the order of few samples  of the likeliest few; nothing else is asked of fewer than 64
 *	words behind the last     of the likeliest few, where the last epoch's seed was one
 *	a thousand seeds          of all of them, where there are several: milliseconds each
 *	the middle of epochs      of the likeliest few; of many seeds of the first
 *	all that is quick         of the likeliest few; words of many seeds, about a second, of the first
 *	all seeds                 of the likeliest one that is no guess
 *
 * What a job has read in a whole pass, and reads again, is all that it reads: then it numbers these. Where
 * they are the first ones of a numbering, or a random split of it, that is asked first. Before that, a job
 * that opens nothing behind a round number of samples may read these only.
 *
 * More questions make a wrong answer likelier, so an answer needs more evidence, the more there
 * were. Sorts that differ in a few files only may all explain what was seen; the one that explains
 * most is taken. Must be silent about numberings that cannot be made: then there are fewer. On the
 * search thread, without locks. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "infer_priv.h"

#define WAYS_MAX 40
#define QUICK_WAYS 4
#define NARROW_MAX 2      /* of one numbering */
#define SPLIT_SEEDS 1024u
#define FIRST_MAX 3
#define FIRST_SEEN 32u
#define FIRST_ODDS 12.0 /* e to minus that is the chance that all of it is read */
#define MEMBERS_SHARE 16u /* of the opens one may be something else */

struct view {
	struct infer_numbering way;
	struct infer_numbered seen;
	bool is_guess; /* of a number of first samples */
	struct recover_pass before[RECOVER_FEW_PASSES]; /* of few samples */
	size_t n_before;
};

struct views {
	const struct infer_question *q;
	struct view view[WAYS_MAX];
	size_t n, n_guesses;
	uint32_t *numbers; /* [WAYS_MAX * q->n_seen] */
	uint32_t earlier[WAYS_MAX][RECOVER_FEW_PASSES][INFER_MANY];
	bool is_narrow;    /* one of them is of members only */
};

typedef int ask_fn(const struct infer_question *q, struct infer_answer *ret);

static bool is_known(const struct views *v, const struct infer_numbered *seen)
{
	for (size_t i = 0; i < v->n; i++)
		if (v->view[i].seen.n == seen->n && v->view[i].seen.hash == seen->hash)
			return true;
	return false;
}

/* The passes before this one, in the same numbers. */
static void number_passes(struct views *v, struct view *view)
{
	const struct infer_question *q = v->q;

	if (view->seen.n >= INFER_MANY)
		return;
	for (size_t i = 0; i < MIN(q->n_before, RECOVER_FEW_PASSES); i++) {
		const struct infer_opens opens = { q->before[i].seen, q->before[i].n_seen, q->is_first };
		struct infer_numbered pass = { .number = v->earlier[v->n][i] };

		if (opens.n > INFER_MANY ||
		    q->numbers->number(q->numbers->ctx, &view->way, &opens, &pass) < 0) {
			view->n_before = 0;
			return;
		}
		view->before[i] = (struct recover_pass){ pass.number, pass.n_seen };
		view->n_before = i + 1;
	}
}

static void add_view(struct views *v, const struct infer_numbering *way)
{
	const struct infer_question *q = v->q;
	const struct infer_opens opens = { q->seen, q->n_seen, q->is_first };
	struct view *view = &v->view[v->n];

	*view = (struct view){ .way = *way, .seen.number = v->numbers + v->n * q->n_seen };
	if (atomic_load(q->cancel) ||
	    q->numbers->number(q->numbers->ctx, way, &opens, &view->seen) < 0 ||
	    view->seen.n < INFER_SAMPLES_MIN || is_known(v, &view->seen))
		return;
	number_passes(v, view);
	v->n++;
}

/* Whether the job reads only what it read before. */
static bool has_members(const struct infer_question *q)
{
	size_t n = 0;

	for (size_t i = 0; q->members && i < q->n_seen; i++)
		n += !bitmap_get(q->members, q->seen[i]);
	return q->members && q->numbers->narrow && n * MEMBERS_SHARE <= q->n_seen;
}

/* Instead of others, if too much of these is left out for the opens to be chance. */
static void add_narrow(struct views *v, const struct infer_numbering *way, bool is_likely)
{
	const struct infer_question *q = v->q;
	struct infer_numbering narrow[NARROW_MAX];
	uint32_t seed[SPLIT_SEEDS];
	/* A glance is weighed as cheap. */
	const struct infer_members members = { q->members, seed,
					     is_likely && !q->is_first ? SPLIT_SEEDS : 0, q->cancel };
	size_t n;

	for (uint32_t i = 0; i < SPLIT_SEEDS; i++)
		seed[i] = i < q->n_hints ? q->hints[i] : guess_seed(i - (uint32_t)q->n_hints);
	n = q->numbers->narrow(q->numbers->ctx, way, &members, narrow, NARROW_MAX);
	for (size_t i = 0; i < n && v->n < WAYS_MAX; i++) {
		add_view(v, &narrow[i]);
		v->is_narrow |= 2 * narrow[i].first <= narrow[i].of;
	}
	if (v->n < WAYS_MAX && !v->is_narrow)
		add_view(v, way);
}

static void add_count(uint64_t count, uint64_t end, uint64_t most, uint64_t ret[FIRST_MAX],
		      size_t *found)
{
	bool is_new = count >= end && count <= most && *found < FIRST_MAX;

	for (size_t i = 0; i < *found; i++)
		is_new = is_new && ret[i] != count;
	if (is_new)
		ret[(*found)++] = count;
}

/* Numbers that people choose, below which all opens are, and not by much: of k numbers drawn from m
 * the largest is above m (1 - 6 / k) but once in 400 times. Returns how many. */
static size_t round_counts(uint64_t n, uint64_t end, size_t k, uint64_t ret[FIRST_MAX])
{
	static const uint32_t of[] = { 2, 3, 4, 5, 10, 8, 20, 100, 6, 50, 1000 };
	static const uint32_t ten[] = { 1, 2, 5, 3, 4, 6, 8 };
	uint64_t most = MIN(end + end * 6 / k, n - 1);
	size_t found = 0;

	for (size_t i = 0; i < ARRAY_LEN(of); i++)
		for (uint64_t part = 1; part < MIN(of[i], 10); part++)
			add_count(n * part / of[i], end, most, ret, &found);
	for (uint64_t unit = 100; unit <= most; unit *= 10)
		for (size_t i = 0; i < ARRAY_LEN(ten); i++)
			add_count(unit * ten[i], end, most, ret, &found);
	for (uint64_t two = 64; two <= most; two *= 2)
		add_count(two, end, most, ret, &found);
	return found;
}

/* A job that opens nothing behind some place may read the first so many samples only, as
 * `Subset(data, range(1000))` does. Asked before the whole numbering, which was added last. */
static void add_first(struct views *v, const struct infer_numbering *way)
{
	size_t whole = v->n - 1, k = v->view[whole].seen.n_seen, found;
	uint64_t n = v->view[whole].seen.n, end = 0, count[FIRST_MAX];
	struct infer_numbering first = *way;

	for (size_t i = 0; i < k; i++)
		end = MAX(end, (uint64_t)v->view[whole].seen.number[i] + 1);
	if (k < FIRST_SEEN || way->first || end < 4 * k || end >= n ||
	    (double)k * log((double)n / (double)end) < FIRST_ODDS)
		return;
	first.of = n;
	found = round_counts(n, end, k, count);
	for (size_t i = 0; i < found && v->n < WAYS_MAX; i++) {
		struct view last;

		first.first = count[i];
		add_view(v, &first);
		if (v->n - 1 == whole)
			continue;
		last = v->view[v->n - 1];
		last.is_guess = true;
		v->n_guesses++;
		v->view[v->n - 1] = v->view[whole];
		v->view[whole++] = last;
	}
}

static void list_views(struct views *v)
{
	const struct infer_question *q = v->q;
	const struct infer_opens opens = { q->seen, q->n_seen, q->is_first };
	uint64_t start_ns = guess_cpu_ns();
	struct infer_numbering *way AUTO_FREE = calloc(WAYS_MAX, sizeof(*way));
	size_t n;

	v->numbers = calloc(WAYS_MAX * MAX(q->n_seen, 1), sizeof(*v->numbers));
	if (!way || !v->numbers)
		return;
	n = q->numbers->list(q->numbers->ctx, &opens, way, WAYS_MAX);
	for (size_t i = 0; i < MIN(n, WAYS_MAX) && v->n < WAYS_MAX; i++)
		if (has_members(q)) {
			add_narrow(v, &way[i], i < QUICK_WAYS);
		} else {
			size_t before = v->n;

			add_view(v, &way[i]);
			if (before < QUICK_WAYS + v->n_guesses && v->n > before)
				add_first(v, &way[i]);
		}
	atomic_fetch_add(q->cpu_ns, guess_cpu_ns() - start_ns);
}

/* Never empty: what cannot be numbered in another way has the numbers of the index. NULL: out of
 * memory. */
static struct views *views_new(const struct infer_question *q)
{
	struct views *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->q = q;
	if (q->numbers)
		list_views(v);
	if (v->n == 0)
		v->view[v->n++].seen = (struct infer_numbered){ .n = q->n,
							      .number = (uint32_t *)q->seen,
							      .n_seen = q->n_seen };
	return v;
}

static void views_free(struct views *v)
{
	if (!v)
		return;
	free(v->numbers);
	free(v);
}

static struct infer_question question_of(const struct views *v, size_t i)
{
	struct infer_question q = *v->q;

	q.n = v->view[i].seen.n;
	q.seen = v->view[i].seen.number;
	q.n_seen = v->view[i].seen.n_seen;
	if (q.numbers) {
		q.before = v->view[i].before;
		q.n_before = v->view[i].n_before;
	}
	q.is_unlikely = i > v->n_guesses;
	return q;
}

static int ask_view(const struct views *v, size_t i, ask_fn *ask, struct infer_answer *ret)
{
	struct infer_question q = question_of(v, i);
	int rc = q.n < INFER_MANY && ask != ask_few ? -ENOENT : ask(&q, ret);

	if (rc < 0)
		return rc;
	if (v->n > 1 && ret->margin < log2((double)v->n))
		return -ENOENT;
	ret->way = v->view[i].way;
	ret->n = q.n;
	return 0;
}

/* The first of them that has an answer. */
static int ask_views(const struct views *v, size_t n, ask_fn *ask, struct infer_answer *ret)
{
	int rc = -ENOENT;

	for (size_t i = 0; i < MIN(n, v->n) && rc == -ENOENT; i++)
		rc = ask_view(v, i, ask, ret);
	return rc;
}

/* Files in their order are so in several sorts, and few may be numbered alike but for two. */
static int ask_best(const struct views *v, size_t n, ask_fn *ask, struct infer_answer *ret)
{
	struct infer_answer one;
	bool is_found = false;

	for (size_t i = 0; i < MIN(n, v->n); i++) {
		int rc = ask_view(v, i, ask, &one);

		if (rc < 0 && rc != -ENOENT)
			return rc;
		if (rc == 0 && (!is_found || one.margin > ret->margin))
			*ret = one;
		is_found |= rc == 0;
	}
	return is_found ? 0 : -ENOENT;
}

/* Whether another sort of the same part explains more with the seed that was found. */
static void take_best_sort(const struct views *v, struct infer_answer *ret)
{
	struct infer_answer one;

	for (size_t i = 0; i < v->n; i++) {
		struct infer_question q = question_of(v, i);

		q.seed = ret->seed;
		if (v->view[i].way.dir != ret->way.dir || q.n != ret->n ||
		    v->view[i].way.is_split != ret->way.is_split ||
		    ask_refine(&q, &one) < 0 || one.margin <= ret->margin)
			continue;
		ret->margin = one.margin;
		ret->way = v->view[i].way;
	}
}

static int parts_quick(const struct infer_question *q, struct infer_answer *ret)
{
	struct views *v = views_new(q);
	int rc;

	if (!v)
		return -ENOMEM;
	rc = ask_best(v, v->n, ask_sequential, ret);
	if (rc == -ENOENT)
		rc = ask_best(v, QUICK_WAYS, ask_few, ret);
	if (rc == -ENOENT)
		rc = ask_views(v, QUICK_WAYS + v->n_guesses, streams_known, ret);
	if (rc == -ENOENT && v->n > 1)
		rc = ask_views(v, v->n, ask_brief, ret);
	if (rc == -ENOENT)
		rc = ask_views(v, QUICK_WAYS + v->n_guesses, ask_tail_brief, ret);
	if (rc == -ENOENT)
		rc = ask_views(v, QUICK_WAYS + v->n_guesses, ask_quick, ret);
	if (rc == -ENOENT)
		rc = ask_views(v, 1, ask_tail, ret);
	if (rc == 0 && v->n > 1 && !ret->spec[0] && ret->n > RECOVER_FEW_MAX)
		take_best_sort(v, ret);
	ret->is_narrow = v->is_narrow;
	views_free(v);
	return rc;
}

static int parts_full(const struct infer_question *q, struct infer_answer *ret)
{
	struct views *v = views_new(q);
	size_t i = 0;
	int rc;

	if (!v)
		return -ENOMEM;
	while (i + 1 < v->n && v->view[i].is_guess)
		i++;
	rc = ask_view(v, i, ask_full, ret);
	views_free(v);
	return rc;
}

/* In the numbering that is known. */
static int parts_refine(const struct infer_question *q, struct infer_answer *ret)
{
	const struct infer_opens opens = { q->seen, q->n_seen, false };
	struct infer_question part = *q;
	struct infer_numbered seen = { 0 };
	uint32_t *number AUTO_FREE = NULL;
	int rc;

	if (!q->numbers || !q->way || (!q->way->sort && !q->way->under[0] && !q->way->first))
		return ask_refine(q, ret);
	seen.number = number = calloc(MAX(q->n_seen, 1), sizeof(*number));
	if (!number)
		return -ENOMEM;
	rc = q->numbers->number(q->numbers->ctx, q->way, &opens, &seen);
	part.n = seen.n;
	part.seen = number;
	part.n_seen = seen.n_seen;
	return rc < 0 ? rc : ask_refine(&part, ret);
}

const struct infer_searches infer_searches_real = { parts_quick, parts_full, parts_refine };
