/* SPDX-License-Identifier: Apache-2.0 */
/* A job that goes on in the middle of an epoch is recognised from where its opens stand, with its
 * world and ranks, and chance is not taken for one. */
#include <errno.h>

#include "check.h"
#include "clairfs/order.h"
#include "src/infer/infer_priv.h"

#define N 20000
#define SEEN_MAX 128
#define BATCH 16
#define WORKERS 4

static atomic_bool never;
static const uint32_t hints[] = { 3000000000 };

/* Opens of local ranks `rank`.. that go on at `step` of their epoch; each has WORKERS workers. */
struct resume {
	uint32_t seed, world, rank, n_ranks, step, n_seen;
};

static struct infer_question opens_of(const struct resume *r, uint32_t *seen)
{
	struct order_params params = { .n = N };
	struct order_epoch *epoch = NULL;
	struct order_spec *spec = NULL;
	struct order *order = NULL;
	struct err err = { 0 };
	char text[64];

	snprintf(text, sizeof(text), "torch-randperm:seed=%u", r->seed);
	if (order_spec_parse(text, &spec, &err) < 0 || order_new(spec, &params, &order, &err) < 0 ||
	    order_epoch_new(order, 0, &epoch, &err) < 0)
		CHECK_STR(err.msg, "");
	for (uint32_t i = 0; i < r->n_seen; i++) {
		uint32_t rank = r->rank + i % r->n_ranks, nth = i / r->n_ranks;
		uint32_t in_worker = nth / WORKERS,
			 batch = in_worker / BATCH * WORKERS + nth % WORKERS;
		uint32_t pos = r->step * BATCH + batch * BATCH + in_worker % BATCH;

		seen[i] = epoch->sample[pos * r->world + rank];
	}
	order_epoch_free(epoch);
	order_free(order);
	order_spec_free(spec);
	return (struct infer_question){ .n = N,
				      .seen = seen,
				      .n_seen = r->n_seen,
				      .hints = hints,
				      .n_hints = ARRAY_LEN(hints),
				      .cancel = &never };
}

static void check_found(const struct resume *r)
{
	uint32_t seen[SEEN_MAX];
	struct infer_question q = opens_of(r, seen);
	struct infer_answer a = { 0 };

	CHECK_INT(tail_search(&q, UINT32_MAX, 1000 * NS_PER_S, &a), 0);
	CHECK_INT(a.seed, r->seed);
	CHECK_INT(a.world, r->n_ranks == r->world ? 1 : r->world);
	CHECK_INT(a.n_ranks, r->n_ranks == r->world ? 1 : r->n_ranks);
	CHECK_INT(a.rank[0], r->rank);
	CHECK_INT(tail_search(&q, UINT32_MAX, 0, &a), -ENOENT); /* no time at all */
}

static void the_middle_of_an_epoch(void)
{
	static const struct resume resumes[] = {
		{ 0, 1, 0, 1, 625, 32 },	  /* half */
		{ 364, 1, 0, 1, 1150, 32 },	  /* seed 64, epoch 300, its end */
		{ 3000000009, 1, 0, 1, 300, 32 }, /* the ninth epoch behind a known one */
		{ 1346, 1, 0, 1, 700, 32 },	  /* seed 1337, epoch 9 */
		{ 2, 2, 0, 2, 300, 32 },	  /* both ranks of two */
		{ 2, 2, 0, 2, 300, 128 },
		{ 17, 2, 1, 1, 300, 128 },
		{ 17, 8, 0, 4, 70, 128 },
		{ 5, 64, 8, 8, 10, 128 },
	};

	for (size_t i = 0; i < ARRAY_LEN(resumes); i++)
		check_found(&resumes[i]);
}

/* Word 43 of manual_seed(42): epoch 10 of a loader whose state was restored. */
static void a_loader_behind_manual_seed(void)
{
	struct resume r = { recover_word(42, 43), 1, 0, 1, 500, 32 };
	uint32_t seen[SEEN_MAX];
	struct infer_question q = opens_of(&r, seen);
	struct infer_answer a = { 0 };

	CHECK_INT(tail_search(&q, UINT32_MAX, 1000 * NS_PER_S, &a), 0);
	CHECK(a.is_chain && !a.is_likely);
	CHECK_INT(a.manual_seed, 42);
	CHECK_INT(a.word, 43);
}

/* Of a known seed: more opens tell the world. */
static void the_world_is_told_by_more_opens(void)
{
	struct resume r = { 9, 4, 1, 3, 200, 32 };
	uint32_t seen[SEEN_MAX];
	struct infer_question q = opens_of(&r, seen);
	struct infer_answer a = { 0 };

	CHECK_INT(tail_search(&q, TAIL_LIKELY, 1000 * NS_PER_S, &a), 0);
	CHECK_INT(a.world, 1); /* 32 opens are too few to say so */
	r.n_seen = SEEN_MAX;
	q = opens_of(&r, seen);
	q.seed = 9;
	CHECK_INT(ask_refine(&q, &a), 0);
	CHECK_INT(a.world, 4);
	CHECK_INT(a.n_ranks, 3);
}

/* A large dataset: a look has time for a few seeds only, and the next one goes on behind them. */
static void a_search_goes_on_where_it_stopped(void)
{
	struct resume r = { 1346, 1, 0, 1, 700, 32 };
	uint32_t seen[SEEN_MAX], next, looks = 0;
	struct infer_question q = opens_of(&r, seen);
	struct tail_marks marks = { 0 };
	struct infer_answer a = { 0 };
	atomic_bool always = true;

	q.marks = &marks;
	while (tail_search(&q, UINT32_MAX, NS_PER_MS, &a) == -ENOENT) {
		CHECK(marks.mark[0].next > looks); /* at least one */
		looks++;
	}
	CHECK(looks > 0);
	CHECK_INT(a.seed, 1346);
	/* A search that was cancelled has not tried what it was at. */
	next = marks.mark[0].next;
	q.cancel = &always;
	CHECK_INT(tail_search(&q, UINT32_MAX, NS_PER_S, &a), -ECANCELED);
	CHECK_INT(marks.mark[0].next, next);
	q.cancel = &never;
	/* More opens of the same beginning do not begin anew, but for four times as many. */
	marks.mark[0].next++;
	r.n_seen = SEEN_MAX - 1;
	q = opens_of(&r, seen);
	q.marks = &marks;
	CHECK_INT(tail_search(&q, UINT32_MAX, 1000 * NS_PER_S, &a), -ENOENT);
	CHECK_INT(tail_search(&q, UINT32_MAX, 1000 * NS_PER_S, &a), -ENOENT);
	r.n_seen = SEEN_MAX;
	q = opens_of(&r, seen);
	q.marks = &marks;
	CHECK_INT(tail_search(&q, UINT32_MAX, 1000 * NS_PER_S, &a), 0);
	CHECK_INT(a.seed, 1346);
	/* Another beginning has a mark of its own. */
	r.step = 500;
	q = opens_of(&r, seen);
	q.marks = &marks;
	CHECK_INT(tail_search(&q, TAIL_LIKELY, 1000 * NS_PER_S, &a), -ENOENT);
	CHECK(marks.mark[1].next >= TAIL_LIKELY && marks.mark[0].next > TAIL_LIKELY);
}

/* Of each look at one of two beginnings the likeliest numbering is asked last, and gets furthest. It is not the
 * first one to be forgotten: others come and go. */
static void marks_that_are_in_use_are_kept(void)
{
	struct resume r = { 3456789012, 1, 0, 1, 700, 32 };
	struct tail_marks marks = { 0 };
	struct infer_question q[2];
	uint32_t seen[2][SEEN_MAX], other[SEEN_MAX], step = 0;
	struct infer_answer a = { 0 };

	for (int i = 0; i < 2; i++) {
		r.step = 100 + 100 * (uint32_t)i;
		q[i] = opens_of(&r, seen[i]);
		q[i].marks = &marks;
		CHECK_INT(tail_search(&q[i], 40, 1000 * NS_PER_S, &a), -ENOENT);
	}
	for (int look = 0; look < 12; look++) {
		for (int way = 1; way < TAIL_MARKS / 2; way++) {
			struct infer_question one;

			r.step = 300 + step++;
			one = opens_of(&r, other);
			one.marks = &marks;
			CHECK_INT(tail_search(&one, 1, 1000 * NS_PER_S, &a), -ENOENT);
		}
		CHECK_INT(tail_search(&q[look % 2], 0, 1000 * NS_PER_S, &a), -ENOENT);
	}
	for (int i = 0; i < 2; i++) {
		const struct tail_mark *mark;

		CHECK_INT(tail_search(&q[i], 0, 1000 * NS_PER_S, &a), -ENOENT);
		for (mark = marks.mark; mark->used != marks.asked;)
			mark++;
		CHECK_INT(mark->next, 40);
	}
}

/* The others search the beginning, and know the layouts of loaders. */
static void the_beginning_is_left_to_others(void)
{
	struct resume r = { 1, 1, 0, 1, 0, 64 };
	uint32_t seen[SEEN_MAX];
	struct infer_question q = opens_of(&r, seen);
	struct infer_answer a = { 0 };

	CHECK_INT(tail_search(&q, TAIL_LIKELY, 1000 * NS_PER_S, &a), -ENOENT);
}

static void chance_is_no_tail(void)
{
	uint64_t random = check_seed();
	double most = 0;

	for (int round = 0; round < 3000; round++) {
		uint32_t pos[96], n = 24 + (uint32_t)check_rand_below(&random, 73), from, window;

		for (uint32_t i = 0; i < n; i++)
			pos[i] = (uint32_t)check_rand_below(&random, 8121);
		most = MAX(most, evidence_window_bits(pos, &n, 8121, &from, &window));
	}
	CHECK(most < 26); /* log2(3000), and one chance in 20 000 */
}

static void repeats_are_no_evidence(void)
{
	uint32_t pos[96], n = 96, from, window;

	for (uint32_t i = 0; i < n; i++)
		pos[i] = 4000 + i % 4;
	CHECK(evidence_window_bits(pos, &n, 8121, &from, &window) <= 0);
	CHECK_INT(n, 4);
}

static const struct check_test tests[] = {
	{ "the_middle_of_an_epoch", the_middle_of_an_epoch },
	{ "a_loader_behind_manual_seed", a_loader_behind_manual_seed },
	{ "the_world_is_told_by_more_opens", the_world_is_told_by_more_opens },
	{ "a_search_goes_on_where_it_stopped", a_search_goes_on_where_it_stopped },
	{ "marks_that_are_in_use_are_kept", marks_that_are_in_use_are_kept },
	{ "the_beginning_is_left_to_others", the_beginning_is_left_to_others },
	{ "chance_is_no_tail", chance_is_no_tail },
	{ "repeats_are_no_evidence", repeats_are_no_evidence },
};

CHECK_MAIN(tests)
