/* SPDX-License-Identifier: Apache-2.0 */
/* Orders that are no torch permutation are told from chance, and from each other. */
#include <errno.h>

#include "check.h"
#include "clairfs/order.h"
#include "src/infer/infer_priv.h"

#define N 5000
#define SEEN 96

static atomic_bool never;

/* The first samples of a spec's epoch as `workers` loader workers with batches of 8 read them. */
static struct infer_question read_by(const char *text, uint32_t workers, uint32_t *seen)
{
	struct order_params params = { .n = N };
	struct order_epoch *epoch = NULL;
	struct order_spec *spec = NULL;
	struct order *order = NULL;
	struct err err = { 0 };

	if (order_spec_parse(text, &spec, &err) < 0 || order_new(spec, &params, &order, &err) < 0 ||
	    order_epoch_new(order, 0, &epoch, &err) < 0)
		CHECK_STR(err.msg, "");
	for (uint32_t i = 0; i < SEEN; i++) {
		uint32_t nth = i / workers, batch = nth / 8 * workers + i % workers;

		seen[i] = epoch->sample[batch * 8 + nth % 8];
	}
	order_epoch_free(epoch);
	order_free(order);
	order_spec_free(spec);
	return (struct infer_question){ .n = N, .seen = seen, .n_seen = SEEN, .cancel = &never };
}

static void files_in_their_order(void)
{
	static const char *const specs[] = {
		"sequential",
		"torch-distributed:shuffle=0:world=4:ranks=1",
		"torch-distributed:shuffle=0:world=8:ranks=4+5+6+7",
	};

	for (size_t i = 0; i < ARRAY_LEN(specs); i++)
		for (uint32_t workers = 1; workers <= 4; workers++) {
			uint32_t seen[SEEN];
			struct infer_question q = read_by(specs[i], workers, seen);
			struct infer_answer a = { 0 };

			CHECK_INT(guess_sequential(&q, &a), 0);
			CHECK_STR(a.spec, specs[i]);
			CHECK_INT(guess_kinds(&q, 8, NS_PER_S, &a), -ENOENT);
		}
}

static void kinds_with_small_seeds(void)
{
	static const char *const specs[] = { "numpy-legacy:seed=42", "python-random:seed=1234",
					     "numpy-generator:seed=0", "torch-generator:seed=3" };

	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		uint32_t seen[SEEN];
		struct infer_question q = read_by(specs[i], 4, seen);
		struct infer_answer a = { 0 };

		CHECK_INT(guess_sequential(&q, &a), -ENOENT);
		CHECK_INT(guess_kinds(&q, 8, 1000 * NS_PER_S, &a), 0);
		CHECK_STR(a.spec, specs[i]);
		CHECK_INT(guess_kinds(&q, 8, 0, &a), -ENOENT); /* no time at all */
	}
}

static void chance_is_no_order(void)
{
	uint64_t random = check_seed();

	for (int round = 0; round < 300; round++) {
		uint32_t seen[SEEN];
		struct infer_question q = { .n = 64 + check_rand_below(&random, 100000),
					  .seen = seen,
					  .n_seen = 8 + check_rand_below(&random, SEEN - 8),
					  .cancel = &never };
		struct infer_answer a;

		q.n_seen = MIN(q.n_seen, q.n / 8);
		for (size_t i = 0; i < q.n_seen; i++)
			seen[i] = (uint32_t)check_rand_below(&random, q.n);
		CHECK_INT(guess_sequential(&q, &a), -ENOENT);
	}
}

/* Samples first..first + of - 1, each `step`-th, shuffled. */
static void fill_shuffled(uint64_t *random, uint32_t *seen, uint32_t n, uint32_t of, uint32_t step)
{
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k <= i; k++) /* distinct */
			if (k == 0 || seen[k - 1] == seen[i]) {
				seen[i] = (uint32_t)check_rand_below(random, of) * step;
				k = 0;
			}
}

/* A Subset, a few classes, the first tenth: dense at the beginning, but shuffled. */
static void a_shuffled_part_is_no_sequence(void)
{
	uint64_t random = check_seed();
	static const uint32_t parts[] = { 128, 500, 1000, 1624, 4000 }, opens[] = { 32, 96 };

	for (int round = 0; round < 200; round++)
		for (size_t i = 0; i < ARRAY_LEN(parts); i++)
			for (size_t k = 0; k < ARRAY_LEN(opens); k++) {
				uint32_t seen[SEEN];
				struct infer_question q = {
					.n = 8121, .seen = seen, .n_seen = opens[k], .cancel = &never
				};
				struct infer_answer a;

				fill_shuffled(&random, seen, opens[k], parts[i], 1);
				CHECK_INT(guess_sequential(&q, &a), -ENOENT);
			}
}

/* A fifth that was drawn from all of the dataset and is read from low to high: four of five files
 * that a sequence has are not read. */
static void a_thinned_sequence_is_none(void)
{
	uint64_t random = check_seed();
	uint32_t seen[SEEN], at = 0;
	struct infer_question q = { .n = 8121, .seen = seen, .n_seen = SEEN, .cancel = &never };
	struct infer_answer a;

	for (uint32_t i = 0; i < SEEN; i++)
		seen[i] = at += 1 + (uint32_t)check_rand_below(&random, 9);
	CHECK_INT(guess_sequential(&q, &a), -ENOENT);
}

/* Loaders of one worker to sixteen that are not in step. (Batches of 16 that 16 workers have begun
 * look like as many ranks of 16.) */
static void a_sequence_read_by_workers_out_of_step(void)
{
	uint64_t random = check_seed();

	for (uint32_t workers = 1; workers <= 16; workers *= 2)
		for (uint32_t batch = 1; batch <= 300; batch = 3 * batch + 2) {
			uint32_t seen[SEEN], next[16] = { 0 };
			struct infer_question q = {
				.n = 50000, .seen = seen, .n_seen = SEEN, .cancel = &never
			};
			struct infer_answer a;

			for (uint32_t i = 0; i < SEEN; i++) {
				uint32_t w = (i + (uint32_t)check_rand_below(&random, 2)) % workers;

				seen[i] = (next[w] / batch * workers + w) * batch + next[w] % batch;
				next[w]++;
			}
			CHECK_INT(guess_sequential(&q, &a), 0);
			CHECK_STR(a.spec, "sequential");
		}
}

/* Two workers with batches of 16: the one that is started first has read all that it may before the other begins. */
static void a_worker_that_begins_late(void)
{
	static const uint8_t batches[][6] = {
		{ 0, 2, 4, 1, 3, 5 }, { 0, 2, 4, 1, 3, 6 }, { 1, 3, 0, 2, 4, 5 }, { 0, 2, 4, 1, 6, 3 }
	};

	for (size_t i = 0; i < ARRAY_LEN(batches); i++) {
		uint32_t seen[96];
		struct infer_question q = { .n = 160, .seen = seen, .n_seen = 96, .cancel = &never };
		struct infer_answer a = { 0 };

		for (uint32_t k = 0; k < 96; k++)
			seen[k] = batches[i][k / 16] * 16 + k % 16;
		CHECK_INT(guess_sequential(&q, &a), 0);
		CHECK_STR(a.spec, "sequential");
	}
}

/* Before anybody had time to look. */
static void a_small_set_that_was_read_whole(void)
{
	uint32_t seen[160];
	struct infer_question q = { .n = 160, .seen = seen, .n_seen = 160, .cancel = &never };
	struct infer_answer a = { 0 };

	for (uint32_t i = 0; i < 160; i++) /* two workers, batches of 16 */
		seen[i] = i / 32 * 32 + i % 2 * 16 + i % 32 / 2;
	CHECK_INT(guess_sequential(&q, &a), 0);
	CHECK_STR(a.spec, "sequential");
}

static void evidence_grows_with_the_opens(void)
{
	uint32_t pos[SEEN];
	double last = 0;

	CHECK(evidence_bits(pos, 0, 10, 1000) <= 0);
	for (uint32_t n = 4; n <= SEEN; n *= 2) {
		double bits;

		for (uint32_t i = 0; i < n; i++)
			pos[i] = n - 1 - i;
		bits = evidence_bits(pos, n, n, 1000000);
		CHECK(bits > last);
		last = bits;
	}
	for (uint32_t i = 0; i < SEEN; i++) /* evenly over the epoch: chance */
		pos[i] = i * 1000 + 500;
	CHECK(evidence_bits(pos, SEEN, SEEN, SEEN * 1000) < 8);
	CHECK(evidence_bits(pos, SEEN, SEEN, SEEN) <= 0); /* all of it was seen */
}

static const struct check_test tests[] = {
	{ "files_in_their_order", files_in_their_order },
	{ "kinds_with_small_seeds", kinds_with_small_seeds },
	{ "chance_is_no_order", chance_is_no_order },
	{ "a_shuffled_part_is_no_sequence", a_shuffled_part_is_no_sequence },
	{ "a_thinned_sequence_is_none", a_thinned_sequence_is_none },
	{ "a_sequence_read_by_workers_out_of_step", a_sequence_read_by_workers_out_of_step },
	{ "a_worker_that_begins_late", a_worker_that_begins_late },
	{ "a_small_set_that_was_read_whole", a_small_set_that_was_read_whole },
	{ "evidence_grows_with_the_opens", evidence_grows_with_the_opens },
};

CHECK_MAIN(tests)
