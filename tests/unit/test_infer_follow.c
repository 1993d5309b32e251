/* SPDX-License-Identifier: Apache-2.0 */
/* Whether records are still read in an order that was found: by several workers, from the middle on, into the next
 * epoch; and that a wrong order, or none, shows. */
#include <errno.h>
#include <string.h>

#include "check.h"
#include "clairfs/order.h"
#include "src/infer/records_priv.h"

#define N 5000u
#define RIGHT "torch-loader:seed=42"

/* An epoch, as the job has it. */
static struct order_epoch *epoch_of_n(const char *text, uint64_t number, uint64_t n)
{
	struct order_params params = { .n = n };
	struct order_epoch *epoch = NULL;
	struct order_spec *spec = NULL;
	struct order *order = NULL;
	struct err err = { 0 };

	if (order_spec_parse(text, &spec, &err) < 0 || order_new(spec, &params, &order, &err) < 0 ||
	    order_epoch_new(order, number, &epoch, &err) < 0)
		CHECK_STR(err.msg, "");
	order_free(order);
	order_spec_free(spec);
	return epoch;
}

static struct order_epoch *epoch_of(const char *text, uint64_t number)
{
	return epoch_of_n(text, number, N);
}

static struct follow *follow_of(const char *text)
{
	struct follow *f;

	CHECK_INT(follow_new(text, N, 0, 0, &f), 0);
	CHECK(follow_match(f) < 0);
	return f;
}

/* Positions [from, to) by four workers with batches of 16, each a little ahead or behind. */
static enum infer_plan read_part(struct follow *f, const struct order_epoch *e, uint64_t from, uint64_t to,
				 uint64_t *random)
{
	enum infer_plan plan = INFER_PLAN_NONE;

	for (uint64_t i = from; i < to; i++) {
		uint64_t at = i + check_rand_below(random, 64);

		plan = follow_read(f, e->sample[at < to ? at : i]);
	}
	return plan;
}

static void order_is_followed_into_the_next_epoch(void)
{
	uint64_t random = check_seed();
	struct follow *f = follow_of(RIGHT);

	for (uint64_t number = 0; number < 3; number++) {
		struct order_epoch *e = epoch_of(RIGHT, number);

		for (uint64_t at = 0; at < N; at += 500)
			CHECK_INT(read_part(f, e, at, at + 500, &random), INFER_PLAN_FOLLOWED);
		CHECK(follow_match(f) > 0.8);
		order_epoch_free(e);
	}
	follow_free(f);
}

/* The end of an epoch says nothing of where the next one is, whatever its length: what is lost there is few reads. */
static void place_in_the_next_epoch_is_its_beginning(void)
{
	static const uint64_t counts[] = { 1000, 5000, 20000, 50000, 131072 };
	uint64_t random = check_seed();

	for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
		struct follow *f;

		CHECK_INT(follow_new(RIGHT, counts[i], 0, 0, &f), 0);
		for (uint64_t number = 0; number < 3; number++) {
			struct order_epoch *e = epoch_of_n(RIGHT, number, counts[i]);
			uint64_t lost = 0;

			for (uint64_t at = 0; at < e->length; at++) {
				uint64_t other = at + check_rand_below(&random, 64);

				lost += follow_read(f, e->sample[other < e->length ? other : at]) == INFER_PLAN_LOST;
			}
			CHECK(lost <= 100);
			order_epoch_free(e);
		}
		follow_free(f);
	}
}

static void order_is_found_in_the_middle(void)
{
	uint64_t random = check_seed();
	struct order_epoch *e = epoch_of(RIGHT, 0);
	struct follow *f = follow_of(RIGHT);

	CHECK_INT(read_part(f, e, 2000, 2060, &random), INFER_PLAN_BUSY);
	CHECK_INT(read_part(f, e, 2060, 2200, &random), INFER_PLAN_FOLLOWED);
	CHECK_INT(read_part(f, e, 3000, 3200, &random), INFER_PLAN_FOLLOWED); /* others have read what is between */
	follow_free(f);
	order_epoch_free(e);
}

static void another_order_or_none_is_lost(void)
{
	uint64_t random = check_seed();
	struct order_epoch *e = epoch_of("torch-loader:seed=43", 0);
	struct follow *f = follow_of(RIGHT);

	CHECK_INT(read_part(f, e, 0, 1000, &random), INFER_PLAN_LOST);
	CHECK(follow_match(f) < 0.5);
	for (uint32_t i = 0; i < 1000; i++)
		CHECK(follow_read(f, (uint32_t)check_rand_below(&random, N)) != INFER_PLAN_FOLLOWED);
	for (uint32_t i = 0; i < 64; i++) /* the same again and again */
		CHECK(follow_read(f, e->sample[7]) != INFER_PLAN_FOLLOWED);
	CHECK_INT(follow_read(f, N), INFER_PLAN_LOST); /* none of them */
	CHECK_INT(follow_read(f, UINT32_MAX - 1), INFER_PLAN_LOST);
	follow_free(f);
	order_epoch_free(e);
}

/* Who reads the end of an epoch and the beginning of the next one, again and again, does not have one computed each
 * time: the first is, and then none before a tenth of one was read. */
static void epochs_are_not_computed_for_a_few_reads(void)
{
	struct follow *f = follow_of(RIGHT);
	uint32_t computed = 0;

	for (uint64_t number = 0; number < 6; number++) {
		struct order_epoch *e = epoch_of(RIGHT, number), *next = epoch_of(RIGHT, number + 1);

		for (uint64_t i = N - 4; i < N; i++) {
			(void)follow_read(f, e->sample[i]);
			computed += follow_take_cpu(f) > 0;
		}
		for (uint64_t i = 0; i < 20; i++) {
			(void)follow_read(f, next->sample[i]);
			computed += follow_take_cpu(f) > 0;
		}
		order_epoch_free(e);
		order_epoch_free(next);
	}
	CHECK_U64(computed, 1);
	CHECK_U64(follow_take_cpu(f), 0);
	follow_free(f);
}

static void what_cannot_be_made_says_so(void)
{
	struct follow *f;

	CHECK_INT(follow_new(RIGHT, N, 0, 24 * N - 1, &f), -E2BIG);
	CHECK(!f);
	CHECK_INT(follow_new(RIGHT, 20000001, 0, 0, &f), -E2BIG); /* that would take seconds */
	CHECK_INT(follow_new("no-such-kind", N, 0, 0, &f), -EINVAL);
	CHECK(!f);
	CHECK_INT(follow_new("list:path=/no/such/file", N, 0, 0, &f), -ENOENT);
	CHECK(!f);
	follow_free(NULL);
}

static const struct check_test tests[] = {
	{ "order_is_followed_into_the_next_epoch", order_is_followed_into_the_next_epoch },
	{ "place_in_the_next_epoch_is_its_beginning", place_in_the_next_epoch_is_its_beginning },
	{ "order_is_found_in_the_middle", order_is_found_in_the_middle },
	{ "another_order_or_none_is_lost", another_order_or_none_is_lost },
	{ "epochs_are_not_computed_for_a_few_reads", epochs_are_not_computed_for_a_few_reads },
	{ "what_cannot_be_made_says_so", what_cannot_be_made_says_so },
};

CHECK_MAIN(tests)
