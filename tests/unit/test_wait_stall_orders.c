/* SPDX-License-Identifier: Apache-2.0 */
/* Stall accounting through the orders of a job that tells one for each epoch, and what is told of
 * each pass. The numbers of a pass: test_wait_stall.c. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "stall_kit.h"

static const struct stall_case orders_case = {
	.name = "some",
	.workers = 4,
	.prefetch = 2,
	.batch = 7,
	.steps = 100,
	.compute_s = 0.05,
	.decode_s = 0.001,
	.source_s = 0.06,
	.source_cv = 0.5,
	.controls = 100,
};
enum { SHORT = 70 };

struct seen {
	uint32_t n;
	struct stall_verdict verdict[200];
	double with_s, without_s; /* sums over batches */
	uint64_t n_waits;
};

static void was_judged(void *ctx, const struct stall_verdict *v)
{
	struct seen *seen = ctx;

	CHECK(seen->n < ARRAY_LEN(seen->verdict));
	seen->verdict[seen->n++] = *v;
	CHECK(!v->with_ns == !v->without_ns && !v->with_ns == !v->n_batches);
	for (uint64_t i = 0; i < v->n_batches; i++) {
		seen->with_s += (double)v->with_ns[i] / 1e9;
		seen->without_s += (double)v->without_ns[i] / 1e9;
	}
	seen->n_waits += v->n_batches;
}

static struct stall *new_stall(struct seen *seen)
{
	struct stall_params params = { .n_units = 1000000,
				       .judged = was_judged,
				       .judged_ctx = seen };
	struct stall *s;

	memset(seen, 0, sizeof(*seen));
	CHECK_INT(stall_new(&params, &s), 0);
	return s;
}

static void order_is(struct stall *s, uint32_t id, uint32_t n_ranks)
{
	struct stall_job job = {
		.id = id, .n_ranks = n_ranks, .workers = 4, .prefetch = 2, .batch = 7
	};

	CHECK_INT(stall_set_job(s, &job), 0);
}

/* Staged reads [from, to) of a pass of SHORT samples, a millisecond apart. */
static void reads_are(struct stall *s, uint32_t order, uint32_t rank_index, uint64_t pass,
		      uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++) {
		struct stall_read read = {
			.has_place = true,
			.order = order,
			.rank_index = rank_index,
			.read_class = READ_STAGED,
			.pass = pass,
			.index = i,
			.length = SHORT,
			.unit = { i },
			.bytes = 100000,
			.opened_ns = 1000000000ull * (100 * order + 10 * pass + 1) + 1000000ull * i
		};

		CHECK_INT(stall_read(s, &read), 0);
	}
}

static uint64_t judged(const struct stall *s, uint64_t *ret_unjudged, uint64_t *ret_unplaced)
{
	struct stall_numbers n;
	struct stall_node node;
	uint64_t sum = 0;

	*ret_unjudged = 0;
	for (uint32_t i = 0; i < stall_n_ranks(s); i++) {
		stall_get_rank(s, i, &n);
		sum += n.judged;
		*ret_unjudged += n.unjudged;
	}
	stall_get_node(s, &node);
	*ret_unplaced = node.unplaced_reads - orders_case.controls;
	return sum;
}

#define CHECK_JUDGED(s, n_judged, n_unjudged, n_unplaced)                                          \
	do {                                                                                       \
		uint64_t unjudged_, unplaced_;                                                     \
		CHECK_U64(judged((s), &unjudged_, &unplaced_), (n_judged));                        \
		CHECK_U64(unjudged_, (n_unjudged));                                                \
		CHECK_U64(unplaced_, (n_unplaced));                                                \
	} while (0)

/* All orders are told before the first read of any, and reads come mixed. */
static void orders_told_at_once_keep_their_reads(void)
{
	enum { ORDERS = 12 };
	struct seen seen;
	struct stall *s = new_stall(&seen);

	stall_case_controls(s, &orders_case, 1);
	for (uint32_t id = 1; id <= ORDERS; id++)
		order_is(s, id, 1);
	for (uint32_t part = 0; part < 2; part++)
		for (uint32_t id = ORDERS; id >= 1; id--)
			reads_are(s, id, 0, 0, part * SHORT / 2, (part + 1) * SHORT / 2);
	stall_judge(s, 0, false);
	CHECK_JUDGED(s, ORDERS, 0, 0);
	for (uint32_t i = 0; i < ORDERS; i++) {
		CHECK_U64(seen.verdict[i].order, i + 1);
		CHECK_U64(seen.verdict[i].reads, SHORT);
	}
	stall_free(s);
}

static void pass_of_an_earlier_order_waits_for_control_reads(void)
{
	struct seen seen;
	struct stall *s = new_stall(&seen);
	struct stall_node node;

	order_is(s, 1, 1);
	reads_are(s, 1, 0, 0, 0, SHORT);
	order_is(s, 2, 1);
	reads_are(s, 2, 0, 0, 0, SHORT);
	stall_judge(s, 0, false);
	stall_get_node(s, &node);
	CHECK_INT(node.why, STALL_NO_CONTROLS);
	CHECK_U64(node.open, 2);
	CHECK_INT((int)seen.n, 0);
	stall_case_controls(s, &orders_case, 1);
	stall_judge(s, 0, false);
	CHECK_JUDGED(s, 2, 0, 0);
	stall_get_node(s, &node);
	CHECK_U64(node.open, 0);
	stall_free(s);
}

/* The job left an epoch in the middle: nothing more comes, and it is said why it is not judged. */
static void half_a_pass_ends_with_the_order_after_it(void)
{
	uint64_t last = 1000000000ull * 101 + 1000000ull * (SHORT / 2 - 1);
	struct seen seen;
	struct stall *s = new_stall(&seen);
	struct stall_node node;

	stall_case_controls(s, &orders_case, 1);
	order_is(s, 1, 1);
	reads_are(s, 1, 0, 0, 0, 3);
	reads_are(s, 1, 0, 0, SHORT / 2 - 3, SHORT / 2);
	stall_judge(s, last + 2 * STALL_LATE_NS, false);
	CHECK_JUDGED(s, 0, 0, 0); /* it may go on */
	order_is(s, 2, 1);
	stall_judge(s, last + STALL_LATE_NS - 1, false);
	CHECK_JUDGED(s, 0, 0, 0); /* told, but not decided yet */
	stall_judge(s, last + STALL_LATE_NS, false);
	CHECK_JUDGED(s, 0, 1, 0);
	stall_get_node(s, &node);
	CHECK_INT(node.unjudged_why, STALL_HOLES);
	CHECK_INT((int)seen.n, 1);
	CHECK_INT(seen.verdict[0].why, STALL_HOLES);
	CHECK_U64(seen.verdict[0].reads, 6);
	CHECK(!seen.verdict[0].has_estimate && seen.verdict[0].n_batches == 0);
	reads_are(s, 1, 0, 0, SHORT / 2, SHORT / 2 + 5); /* too late */
	reads_are(s, 2, 0, 0, 0, SHORT);
	stall_judge(s, 0, false);
	CHECK_JUDGED(s, 1, 1, 5);
	stall_free(s);
}

static void oldest_order_gives_way(void)
{
	struct seen seen;
	struct stall *s = new_stall(&seen);

	stall_case_controls(s, &orders_case, 1);
	order_is(s, 1, 1);
	reads_are(s, 1, 0, 0, 0, SHORT - 1);
	for (uint32_t id = 2; id <= STALL_ORDERS; id++)
		order_is(s, id, 1);
	stall_judge(s, 0, false);
	CHECK_JUDGED(s, 0, 0, 0); /* its last read may still come */
	order_is(s, STALL_ORDERS + 1, 1);
	CHECK_JUDGED(s, 1, 0, 0);
	reads_are(s, 1, 0, 0, SHORT - 1, SHORT);
	CHECK_JUDGED(s, 1, 0, 1);
	for (uint32_t id = STALL_ORDERS + 2; id < 1000; id++)
		order_is(s, id, 1);
	reads_are(s, 999, 0, 0, 0, SHORT);
	reads_are(s, 999 - STALL_ORDERS, 0, 0, 0, 10);
	stall_judge(s, 0, true);
	CHECK_JUDGED(s, 2, 0, 11);
	stall_free(s);
}

static void more_ranks_than_are_told_apart(void)
{
	struct stall_job job = { .id = 1, .n_ranks = STALL_RANKS_MAX + 1 };
	struct seen seen;
	struct stall *s = new_stall(&seen);
	struct stall_node node;

	stall_get_node(s, &node);
	CHECK_INT(node.why, STALL_NO_ORDER);
	CHECK_INT(stall_set_job(s, &job), -EINVAL);
	stall_get_node(s, &node);
	CHECK_INT(node.why, STALL_TOO_MANY_RANKS);
	reads_are(s, 1, 0, 0, 0, SHORT);
	stall_get_node(s, &node);
	CHECK_U64(node.unplaced_reads, SHORT);
	order_is(s, 2, 1);
	stall_get_node(s, &node);
	CHECK_INT(node.why, STALL_NOTHING_READ);
	stall_free(s);
}

/* What is told of passes adds up to the totals, and their batches' waits to the estimate. */
static void verdicts_add_up(void)
{
	struct seen seen;
	struct stall *s = new_stall(&seen);
	struct stall_truth truth;
	struct stall_numbers got;
	struct stall_verdict sum = { 0 };
	double removed;

	stall_case_controls(s, &orders_case, 1);
	order_is(s, 0, 1);
	for (uint64_t pass = 0; pass < 3; pass++)
		stall_case_play(s, &orders_case, pass, pass + 1, pass == 1, &truth);
	stall_judge(s, UINT64_MAX, true);
	stall_get_rank(s, 0, &got);
	CHECK_U64(got.judged, 3);
	CHECK_INT((int)seen.n, 3);
	for (uint32_t i = 0; i < 3; i++) {
		const struct stall_verdict *v = &seen.verdict[i];

		CHECK_U64(v->pass, i);
		CHECK_INT(v->why, STALL_JUDGED);
		CHECK(v->has_estimate && v->has_hook == (i == 1));
		CHECK(v->lower_ns <= v->estimate_ns && v->estimate_ns <= v->upper_ns);
		CHECK(v->began_ns >= 1000000000ull * (100 + 10000 * i) &&
		      v->ended_ns > v->began_ns &&
		      v->ended_ns < 1000000000ull * (100 + 10000 * (i + 1)));
		CHECK_U64(v->first_batch, i * orders_case.steps);
		CHECK_U64(v->n_batches, orders_case.steps);
		sum.lower_ns += v->lower_ns;
		sum.estimate_ns += v->estimate_ns;
		sum.estimate_hook_ns += v->estimate_hook_ns;
		sum.upper_ns += v->upper_ns;
		sum.took_ns += v->took_ns;
	}
	CHECK(sum.lower_ns == got.lower_ns && sum.estimate_ns == got.estimate_ns &&
	      sum.estimate_hook_ns == got.estimate_hook_ns && sum.upper_ns == got.upper_ns &&
	      sum.took_ns == got.judged_ns);
	/* Waits end with the last batch, the estimate with the last compute: nearly the same. */
	removed = (double)(seen.verdict[0].estimate_ns + seen.verdict[1].estimate_hook_ns +
			   seen.verdict[2].estimate_ns) /
		  1e9;
	CHECK(fabs(seen.without_s - seen.with_s - removed) < 0.02 * removed);
	stall_free(s);
}

/* On another node the same job has the same steps, whatever was judged there. */
static void batches_are_counted_through_passes_not_judged(void)
{
	struct seen seen;
	struct stall *s = new_stall(&seen);

	stall_case_controls(s, &orders_case, 1);
	order_is(s, 1, 2);
	reads_are(s, 1, 1, 0, 0, SHORT);
	reads_are(s, 1, 0, 0, 14, SHORT); /* resumed after two batches */
	reads_are(s, 1, 0, 1, 0, 1);
	reads_are(s, 1, 0, 1, SHORT - 1, SHORT);
	order_is(s, 2, 2);
	reads_are(s, 2, 0, 0, 0, SHORT);
	stall_judge(s, 0, true);
	CHECK_JUDGED(s, 3, 1, 0);
	CHECK_INT((int)seen.n, 4);
	for (uint32_t i = 0; i < seen.n; i++) {
		const struct stall_verdict *v = &seen.verdict[i];

		if (v->why != STALL_JUDGED)
			CHECK(v->order == 1 && v->pass == 1 && v->rank == 0);
		else if (v->rank == 1)
			CHECK(v->first_batch == 0 && v->n_batches == 10);
		else if (v->order == 1)
			CHECK(v->first_batch == 2 && v->n_batches == 8);
		else
			CHECK(v->first_batch == 20 && v->n_batches == 10);
	}
	stall_free(s);
}

static const struct check_test tests[] = {
	{ "orders_told_at_once_keep_their_reads", orders_told_at_once_keep_their_reads },
	{ "pass_of_an_earlier_order_waits_for_control_reads",
	  pass_of_an_earlier_order_waits_for_control_reads },
	{ "half_a_pass_ends_with_the_order_after_it", half_a_pass_ends_with_the_order_after_it },
	{ "oldest_order_gives_way", oldest_order_gives_way },
	{ "more_ranks_than_are_told_apart", more_ranks_than_are_told_apart },
	{ "verdicts_add_up", verdicts_add_up },
	{ "batches_are_counted_through_passes_not_judged",
	  batches_are_counted_through_passes_not_judged },
};

CHECK_MAIN(tests)
