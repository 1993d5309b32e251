/* SPDX-License-Identifier: Apache-2.0 */
/* A loader's workers are processes, and on a busy node one begins dozens of opens after the others: a look
 * must find the order all the same, whichever worker it is and however many opens there are. A model of
 * PyTorch's loader makes the opens: batch b is worker b % workers', each has two batches out at the start
 * and gets another one when the training has taken one, in their order. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "check.h"
#include "clairfs/order.h"
#include "src/infer/infer_priv.h"

#define WORKERS 4u
#define BATCH 16u
#define OPENS_MAX 1024u
#define NEVER UINT32_MAX

/* Bits: which workers begin late. */
static const uint32_t latecomers[] = { 1, 8, 3, 12, 14 };

static atomic_bool cancel;
static atomic_uint_least64_t cpu_ns;

struct loader {
	uint32_t *sample; /* heap; the rank's sequence */
	uint64_t length;
	uint32_t late[WORKERS]; /* opens before a worker begins, or fewer if nobody else has anything to read */
	uint32_t at[WORKERS], taken;
	uint32_t opens[OPENS_MAX], n_opens;
};

static bool may_read(const struct loader *l, uint32_t w, uint64_t *ret_pos)
{
	uint64_t nth = (uint64_t)l->at[w] / BATCH * WORKERS + w;

	*ret_pos = nth * BATCH + l->at[w] % BATCH;
	return l->n_opens >= l->late[w] && nth < 2 * WORKERS + l->taken && *ret_pos < l->length;
}

static bool begin_late(struct loader *l)
{
	for (uint32_t w = 0; w < WORKERS; w++)
		if (l->late[w] > l->n_opens && l->late[w] != NEVER) {
			l->late[w] = 0;
			return true;
		}
	return false;
}

static void read_on(struct loader *l, uint32_t n_opens)
{
	bool is_running = true;

	while ((is_running || begin_late(l)) && l->n_opens < n_opens) {
		is_running = false;
		for (uint32_t w = 0; w < WORKERS && l->n_opens < n_opens; w++) {
			uint64_t pos;

			if (!may_read(l, w, &pos))
				continue;
			is_running = true;
			l->at[w]++;
			l->opens[l->n_opens++] = l->sample[pos];
			while (l->at[l->taken % WORKERS] >= (l->taken / WORKERS + 1) * BATCH)
				l->taken++;
		}
	}
}

/* late: bits, which workers begin `opens` opens after the first one does. */
static struct loader loader_of(const char *text, uint64_t n, uint64_t rank, uint32_t late, uint32_t opens)
{
	struct loader l = { 0 };
	struct order_spec *spec = NULL;
	struct order *order = NULL;
	struct err err = { 0 };

	if (order_spec_parse(text, &spec, &err) < 0 ||
	    order_new(spec, &(struct order_params){ .n = n }, &order, &err) < 0 ||
	    order_rank_epoch(order, 0, rank, &l.sample, &l.length, &err) < 0)
		CHECK_STR(err.msg, "");
	order_free(order);
	order_spec_free(spec);
	for (uint32_t w = 0; w < WORKERS; w++)
		l.late[w] = late >> w & 1 ? opens : 0;
	return l;
}

/* A look at what was opened so far. */
static int look(const struct loader *l, uint64_t n, struct infer_answer *ret)
{
	static struct tail_marks marks;
	const struct infer_question q = { .n = n,
					  .seen = l->opens,
					  .n_seen = l->n_opens,
					  .is_first = true,
					  .threads = 1,
					  .cancel = &cancel,
					  .cpu_ns = &cpu_ns,
					  .marks = &marks };

	memset(&marks, 0, sizeof(marks));
	return infer_searches_real.quick(&q, ret);
}

static void say(const char *what, const struct loader *l, uint32_t late, int rc)
{
	if (rc < 0)
		printf("# %s: %s%s%s%s of 4 workers late, %" PRIu32 " opens: %s\n", what, late & 1 ? "1" : "",
		       late & 2 ? "2" : "", late & 4 ? "3" : "", late & 8 ? "4" : "", l->n_opens, strerror(-rc));
}

/* Rank 1 of 2; whoever is late, by as much as a prefetch of the others. */
static void ranks_of_a_sampler(void)
{
	for (size_t i = 0; i < ARRAY_LEN(latecomers); i++) {
		uint32_t late = latecomers[i];
		struct loader l = loader_of("torch-distributed:world=2", 2000, 1, late, 64);

		for (uint32_t opens = 40; opens <= 640; opens *= 4) {
			struct infer_answer a;
			int rc;

			read_on(&l, opens);
			rc = look(&l, 2000, &a);
			say("torch-distributed", &l, late, rc);
			CHECK_INT(rc, 0);
			CHECK_U64(a.seed, 0);
			if (opens < 128) /* so few may fit two worlds */
				continue;
			CHECK_U64(a.world, 2);
			CHECK_U64(a.n_ranks, 1);
			CHECK_U64(a.rank[0], 1);
		}
		free(l.sample);
	}
}

/* n samples by the seed that manual_seed(42) gives after so many words. */
static void find_word(uint64_t n, uint32_t word, uint32_t late, uint32_t opens, uint32_t least)
{
	struct infer_answer a;
	struct loader l;
	char text[64];

	snprintf(text, sizeof(text), "torch-randperm:seed=%" PRIu32, recover_word(42, word));
	l = loader_of(text, n, 0, late, opens);
	for (uint32_t at = least; at <= n / 2; at *= 4) {
		int rc;

		read_on(&l, at);
		rc = look(&l, n, &a);
		say(text, &l, late, rc);
		CHECK_INT(rc, 0);
		CHECK(a.is_chain);
		CHECK_U64(a.manual_seed, 42);
		CHECK_U64(a.word, word);
	}
	free(l.sample);
}

static void loaders_behind_a_manual_seed(void)
{
	for (size_t i = 0; i < ARRAY_LEN(latecomers); i++)
		find_word(2000, 3, latecomers[i], 48, 64);
}

/* Of so few samples the others' prefetch is a quarter. */
static void few_samples(void)
{
	for (size_t i = 0; i < ARRAY_LEN(latecomers); i++)
		find_word(417, 9, latecomers[i], 40, 64);
}

static void loaders_behind_weights(void)
{
	find_word(2000, 407053, 1, 48, 256);
}

/* A worker that has not begun at all: the others stand still, and what they have read is enough. */
static void a_worker_that_does_not_begin(void)
{
	for (uint32_t w = 0; w < WORKERS; w++) {
		struct loader l = loader_of("torch-distributed:world=2", 2000, 1, 1u << w, NEVER);
		struct infer_answer a;

		read_on(&l, OPENS_MAX);
		CHECK(l.n_opens < 2 * WORKERS * BATCH + 3 * BATCH);
		CHECK_INT(look(&l, 2000, &a), 0);
		CHECK_U64(a.seed, 0);
		CHECK_U64(a.world, 2);
		CHECK_U64(a.rank[0], 1);
		free(l.sample);
	}
}

/* What nobody shuffled is no order, however patient the look is. */
static void nothing_is_made_up(void)
{
	uint64_t random = check_seed();

	for (int i = 0; i < 2; i++) {
		const uint32_t n = i % 2 ? 417 : 2000;
		bool is_seen[2000] = { 0 };
		struct loader l = { 0 };
		struct infer_answer a;

		while (l.n_opens < n / 4) {
			uint32_t sample = (uint32_t)check_rand_below(&random, n);

			if (!is_seen[sample])
				l.opens[l.n_opens++] = sample;
			is_seen[sample] = true;
		}
		CHECK_INT(look(&l, n, &a), -ENOENT);
	}
}

static const struct check_test tests[] = {
	{ "ranks_of_a_sampler", ranks_of_a_sampler },
	{ "loaders_behind_a_manual_seed", loaders_behind_a_manual_seed },
	{ "few_samples", few_samples },
	{ "loaders_behind_weights", loaders_behind_weights },
	{ "a_worker_that_does_not_begin", a_worker_that_does_not_begin },
	{ "nothing_is_made_up", nothing_is_made_up },
};

CHECK_MAIN(tests)
