/* SPDX-License-Identifier: Apache-2.0 */
/* What is told between two looks of the accounting's thread, bounded; and the verdicts that are
 * kept of what it judged. */
#include <string.h>

#include "../../src/wait/mix.h"
#include "../../src/wait/told.h"
#include "../../src/wait/verdicts.h"
#include "check.h"

enum { READS_MOST = 1 << 18, STEPS_MOST = 1 << 16 };

/* --- told --- */

static void reads_come_out_as_they_went_in(void)
{
	struct told t = { 0 }, all;
	struct read_facts reads[300];

	for (uint32_t i = 0; i < 300; i++)
		reads[i] = (struct read_facts){ .unit = { i }, .opened_ns = 1000 + i };
	CHECK_U64(told_reads(&t, reads, 1), 1);
	CHECK_U64(told_reads(&t, reads + 1, 199), 199);
	CHECK_U64(told_reads(&t, reads + 200, 0), 0);
	CHECK_U64(told_reads(&t, reads + 200, 100), 100);
	all = told_take(&t);
	CHECK_U64(all.n_reads, 300);
	for (uint32_t i = 0; i < 300; i++)
		CHECK(all.read[i].unit.v == i && all.read[i].opened_ns == 1000 + i);
	CHECK(t.n_reads == 0 && !t.read); /* moved, not copied */
	told_free(&all);
	CHECK_U64(told_reads(&t, reads, 5), 5); /* and it goes on */
	told_free(&t);
}

/* Whoever tells is never made to wait, nor memory to grow without end. */
static void what_finds_no_room_is_dropped(void)
{
	enum { EACH = 10000 };
	AUTO_FREE struct read_facts *reads = calloc(EACH, sizeof(*reads));
	AUTO_FREE struct clairfs_step_record *steps = calloc(EACH, sizeof(*steps));
	struct told t = { 0 };
	uint64_t n = 0, last = EACH;

	while (last == EACH)
		n += last = told_reads(&t, reads, EACH);
	CHECK_U64(n, READS_MOST);
	CHECK_U64(told_reads(&t, reads, 1), 0);
	CHECK_U64(t.n_reads, READS_MOST);
	n = 0;
	last = EACH;
	while (last == EACH)
		n += last = told_steps(&t, steps, EACH);
	CHECK_U64(n, STEPS_MOST);
	CHECK_U64(told_steps(&t, steps, 1), 0);
	told_free(&t);
	CHECK_U64(told_reads(&t, reads, 1), 1);
	told_free(&t);
}

static const uint32_t ranks[] = { 4, 5, 6 };

static struct order_info order_of(uint64_t workers, uint32_t n_ranks)
{
	return (struct order_info){ .n_ranks = n_ranks,
				    .ranks = ranks,
				    .workers = workers,
				    .prefetch_factor = 2,
				    .batch = 64 };
}

static void an_order_is_told_with_its_loaders(void)
{
	struct order_info info = order_of(8, 3);
	struct told t = { 0 };

	told_set_order(&t, &info, 7, 1000);
	CHECK_U64(t.n_orders, 1);
	CHECK_U64(t.order[0].job.id, 7);
	CHECK_U64(t.order[0].job.n_ranks, 3);
	CHECK_U64(t.order[0].job.workers, 8);
	CHECK_U64(t.order[0].job.prefetch, 2);
	CHECK_U64(t.order[0].job.batch, 64);
	CHECK_BYTES(t.order[0].ranks, ranks, sizeof(ranks));
	CHECK_U64(t.order[0].turn_ns, 0); /* nobody else was accounted for */
	told_set_order(&t, NULL, 8, 2000);
	CHECK_U64(t.n_orders, 2);
	CHECK_U64(t.order[1].job.n_ranks, 0);
	told_free(&t);
}

/* Any number may stand in a spec. */
static void numbers_of_a_spec_are_bounded(void)
{
	struct order_info info = order_of(UINT64_MAX, 3);
	struct told t = { 0 };

	info.batch = info.prefetch_factor = UINT64_C(1) << 40;
	told_set_order(&t, &info, 1, 0);
	CHECK_U64(t.order[0].job.workers, 1 << 20);
	CHECK_U64(t.order[0].job.batch, 1 << 20);
	CHECK_U64(t.order[0].job.prefetch, 1 << 20);
	CHECK_U64(told_readers(&info), 3u << 20);
	CHECK_U64(told_readers(NULL), 0);
	info.workers = 0;
	CHECK_U64(told_readers(&info), 0);
	info.n_ranks = STALL_RANKS_MAX + 1; /* of which the list is not looked at */
	told_set_order(&t, &info, 2, 0);
	CHECK_U64(t.order[1].job.n_ranks, STALL_RANKS_MAX + 1);
	CHECK_U64(t.order[1].ranks[0], 0);
	told_free(&t);
}

static void an_order_whose_turn_comes_later(void)
{
	struct order_info info = order_of(1, 1);
	struct told t = { 0 };

	told_hear(&t, 5); /* up to that one they are other jobs' */
	CHECK(told_has_heard(&t, 5) && told_has_heard(&t, 4) && !told_has_heard(&t, 6));
	told_set_order(&t, &info, 4, 777);
	CHECK_U64(t.order[0].turn_ns, 777);
	told_set_order(&t, &info, 6, 888); /* it is new */
	CHECK_U64(t.order[1].turn_ns, 0);
	told_set_order(&t, NULL, 6, 999); /* none is no job's turn */
	CHECK_U64(t.order[2].turn_ns, 0);
	told_free(&t);
}

static void what_was_heard_stays(void)
{
	struct told t = { 0 }, all;

	CHECK(!told_has_heard(&t, 0));
	told_hear(&t, 3);
	told_hear(&t, 2); /* nothing is taken back */
	CHECK(told_has_heard(&t, 3));
	all = told_take(&t);
	CHECK(told_has_heard(&t, 3) && !told_has_heard(&t, 4));
	told_free(&all);
	told_free(&t);
}

/* Generations are 32 bits and go round. */
static void generations_go_round(void)
{
	struct told t = { 0 };

	told_hear(&t, UINT32_MAX);
	CHECK(told_has_heard(&t, UINT32_MAX - 3) && !told_has_heard(&t, 0));
	told_hear(&t, 1);
	CHECK(told_has_heard(&t, UINT32_MAX) && told_has_heard(&t, 1) && !told_has_heard(&t, 2));
	told_free(&t);
}

static void of_too_many_orders_the_last_one_is_known(void)
{
	struct order_info info = order_of(1, 1);
	struct told t = { 0 };

	told_hear(&t, 1000);
	for (uint32_t i = 0; i < STALL_ORDERS; i++)
		told_set_order(&t, &info, i, i == STALL_ORDERS - 1 ? 4000 : 100 + i);
	told_set_order(&t, &info, 900, 300);
	CHECK_U64(t.n_orders, STALL_ORDERS);
	CHECK_U64(t.order[STALL_ORDERS - 2].job.id, STALL_ORDERS - 2);
	CHECK_U64(t.order[STALL_ORDERS - 1].job.id, 900);
	CHECK_U64(t.order[STALL_ORDERS - 1].turn_ns, 4000); /* what came before ended no earlier */
	told_free(&t);
}

/* --- chance that is the same everywhere --- */

static void shares_are_spread_and_the_same_each_time(void)
{
	enum { N = 100000 };
	uint32_t in_tenth[10] = { 0 };

	for (uint32_t i = 0; i < N; i++) {
		double share = mix_share(mix_bits(i));

		CHECK(share >= 0 && share < 1);
		in_tenth[(int)(share * 10)]++;
	}
	for (int i = 0; i < 10; i++) /* five deviations of chance */
		CHECK(in_tenth[i] > 9500 && in_tenth[i] < 10500);
	CHECK_U64(mix_bits(0), 0xe220a8397b1dcdaf); /* splitmix64 of seed 0 */
	CHECK(mix_share(0) == 0 && mix_share(UINT64_MAX) < 1);
}

/* --- verdicts --- */

static struct stall_verdict judged(uint32_t rank, uint64_t pass)
{
	return (struct stall_verdict){ .rank = rank,
				       .order = 3,
				       .pass = pass,
				       .why = STALL_JUDGED,
				       .reads = 100,
				       .took_ns = 2500000000,
				       .lower_ns = 1000000000,
				       .estimate_ns = 1500000000,
				       .has_estimate = true,
				       .upper_ns = 2000000000 };
}

static double real_at(const json_t *list, size_t i, const char *key)
{
	return json_number_value(json_object_get(json_array_get(list, i), key));
}

static void passes_of_a_rank_the_oldest_first(void)
{
	struct verdicts v = { 0 };
	struct stall_verdict one;
	json_t *list;

	verdicts_init(&v);
	for (uint64_t pass = 0; pass < 3; pass++) {
		one = judged(7, pass);
		verdicts_add(&v, &one);
	}
	one = judged(8, 99);
	verdicts_add(&v, &one);
	list = verdicts_json(&v, 7);
	CHECK_U64(json_array_size(list), 3);
	for (size_t i = 0; i < 3; i++)
		CHECK_U64((uint64_t)real_at(list, i, "pass"), i);
	CHECK(real_at(list, 0, "took_seconds") == 2.5);
	CHECK(real_at(list, 0, "removed_lower_seconds") == 1);
	CHECK(real_at(list, 0, "removed_replay_seconds") == 1.5);
	CHECK(real_at(list, 0, "removed_upper_seconds") == 2);
	CHECK(json_is_null(json_object_get(json_array_get(list, 0), "removed_hook_seconds")));
	json_decref(list);
	list = verdicts_json(&v, 6);
	CHECK_U64(json_array_size(list), 0); /* a rank that nothing is known of */
	json_decref(list);
	verdicts_fini(&v);
}

/* A number would be taken for one. */
static void what_was_not_judged_has_no_numbers(void)
{
	static const char *const keys[] = { "took_seconds",           "removed_lower_seconds",
					    "removed_replay_seconds", "removed_hook_seconds",
					    "removed_upper_seconds",  "page_cache_seconds" };
	struct stall_verdict one = { .rank = 1, .why = STALL_HOLES, .reads = 5 };
	struct verdicts v = { 0 };
	json_t *list, *first;

	verdicts_init(&v);
	verdicts_add(&v, &one);
	list = verdicts_json(&v, 1);
	first = json_array_get(list, 0);
	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		CHECK(json_is_null(json_object_get(first, keys[i])));
	CHECK_STR(json_string_value(json_object_get(first, "why")), stall_why_words[STALL_HOLES]);
	CHECK_U64((uint64_t)real_at(list, 0, "reads"), 5);
	json_decref(list);
	verdicts_fini(&v);
}

static void the_last_ones_are_kept_fewer_of_many_ranks(void)
{
	struct stall_verdict one;
	struct verdicts v = { 0 };
	json_t *list;

	verdicts_init(&v);
	for (uint64_t pass = 0; pass < VERDICTS_KEPT + 10; pass++) {
		one = judged(0, pass);
		verdicts_add(&v, &one);
	}
	list = verdicts_json(&v, 0);
	CHECK_U64(json_array_size(list), VERDICTS_KEPT);
	CHECK_U64((uint64_t)real_at(list, 0, "pass"), 10);
	CHECK_U64((uint64_t)real_at(list, VERDICTS_KEPT - 1, "pass"), VERDICTS_KEPT + 9);
	json_decref(list);
	for (uint32_t rank = 1; rank < STALL_RANKS_MAX + 5; rank++) {
		one = judged(rank, 0);
		verdicts_add(&v, &one);
	}
	list = verdicts_json(&v, 0);
	CHECK_U64(json_array_size(list), 8);
	CHECK_U64((uint64_t)real_at(list, 7, "pass"), VERDICTS_KEPT + 9);
	json_decref(list);
	list = verdicts_json(&v, STALL_RANKS_MAX + 1); /* one rank too many */
	CHECK_U64(json_array_size(list), 0);
	json_decref(list);
	verdicts_fini(&v);
}

static void waits_for_each_batch_of_a_rank(void)
{
	static const uint64_t with[] = { 1000, 2000 }, without[] = { 500000, 600000 };
	struct stall_verdict one = judged(2, 0);
	struct verdicts v = { 0 };
	json_t *replay;
	char *text;

	verdicts_init(&v);
	verdicts_add(&v, &one);
	CHECK(verdicts_replay_json(&v, 2) == NULL); /* none was replayed */
	CHECK(verdicts_replay_json(&v, 9) == NULL);
	one.first_batch = 10;
	one.n_batches = 2;
	one.with_ns = with;
	one.without_ns = without;
	verdicts_add(&v, &one);
	replay = verdicts_replay_json(&v, 2);
	CHECK(json_is_object(replay));
	text = json_dumps(replay, JSON_COMPACT);
	CHECK_CONTAINS(text, "\"with_us\":[1,2]");
	CHECK_CONTAINS(text, "\"without_us\":[500,600]");
	free(text);
	json_decref(replay);
	verdicts_fini(&v);
}

static const struct check_test tests[] = {
	{ "reads_come_out_as_they_went_in", reads_come_out_as_they_went_in },
	{ "what_finds_no_room_is_dropped", what_finds_no_room_is_dropped },
	{ "an_order_is_told_with_its_loaders", an_order_is_told_with_its_loaders },
	{ "numbers_of_a_spec_are_bounded", numbers_of_a_spec_are_bounded },
	{ "an_order_whose_turn_comes_later", an_order_whose_turn_comes_later },
	{ "what_was_heard_stays", what_was_heard_stays },
	{ "generations_go_round", generations_go_round },
	{ "of_too_many_orders_the_last_one_is_known", of_too_many_orders_the_last_one_is_known },
	{ "shares_are_spread_and_the_same_each_time", shares_are_spread_and_the_same_each_time },
	{ "passes_of_a_rank_the_oldest_first", passes_of_a_rank_the_oldest_first },
	{ "what_was_not_judged_has_no_numbers", what_was_not_judged_has_no_numbers },
	{ "the_last_ones_are_kept_fewer_of_many_ranks",
	  the_last_ones_are_kept_fewer_of_many_ranks },
	{ "waits_for_each_batch_of_a_rank", waits_for_each_batch_of_a_rank },
};

CHECK_MAIN(tests)
