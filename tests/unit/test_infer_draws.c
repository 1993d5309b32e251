/* SPDX-License-Identifier: Apache-2.0 */
/* Searches among what seeded generators draw, with the real searches: behind places that are known,
 * near and far, and behind likely manual seeds. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "check.h"
#include "clairfs/order.h"
#include "src/infer/infer_priv.h"

#define N 50000
#define SEEN 128

static atomic_bool cancel;
static atomic_uint_least64_t cpu_ns;

/* A question about an epoch whose seed is this word. */
static struct infer_question ask_about(const struct recover_place *at)
{
	static uint32_t seen[SEEN];
	struct order_spec *spec = NULL;
	struct order *order = NULL;
	uint32_t *sample = NULL;
	struct err err = { 0 };
	uint64_t length;
	char text[64];

	snprintf(text, sizeof(text), "torch-randperm:seed=%" PRIu32, recover_place_word(at));
	if (order_spec_parse(text, &spec, &err) < 0 ||
	    order_new(spec, &(struct order_params){ .n = N }, &order, &err) < 0 ||
	    order_rank_epoch(order, 0, 0, &sample, &length, &err) < 0)
		CHECK_STR(err.msg, "");
	memcpy(seen, sample, sizeof(seen));
	free(sample);
	order_free(order);
	order_spec_free(spec);
	return (struct infer_question){
		.n = N, .seen = seen, .n_seen = SEEN, .threads = 2, .cancel = &cancel, .cpu_ns = &cpu_ns
	};
}

static void check_found(const struct infer_answer *a, const struct recover_place *want)
{
	CHECK(a->is_chain);
	CHECK(!a->is_likely);
	CHECK_INT(a->draw, want->draw);
	CHECK_U64(a->manual_seed, want->manual_seed);
	CHECK_U64(a->word, want->word);
	CHECK_U64(a->seed, recover_place_word(want));
}

static void behind_a_place_that_is_known(void)
{
	/* A seed that nobody would try. */
	const struct recover_place known[] = { { RECOVER_TORCH, 3456789012, 5000000 },
					       { RECOVER_PYTHON, 7, 9 } };
	struct recover_place at = known[0];
	struct infer_question q;
	struct infer_answer a;

	at.word += 6;
	q = ask_about(&at);
	q.is_first = true;
	CHECK_INT(streams_known(&q, &a), -ENOENT); /* nothing is known */
	q.places = known;
	q.n_places = 2;
	CHECK_INT(streams_known(&q, &a), 0);
	check_found(&a, &at);
	CHECK_INT(infer_searches_real.quick(&q, &a), 0);
	check_found(&a, &at);

	at.word = known[0].word + 3000001; /* dropout on the CPU */
	q = ask_about(&at);
	q.places = known;
	q.n_places = 2;
	q.is_first = true;
	CHECK_INT(streams_known(&q, &a), -ENOENT);
	q.is_first = false;
	CHECK_INT(streams_known(&q, &a), 0);
	check_found(&a, &at);

	at = (struct recover_place){ RECOVER_PYTHON, 7, 10 };
	q = ask_about(&at);
	q.places = known;
	q.n_places = 2;
	CHECK_INT(streams_known(&q, &a), 0);
	check_found(&a, &at);
	at = known[0]; /* the same epoch again is not behind */
	q = ask_about(&at);
	q.places = known;
	q.n_places = 1;
	CHECK_INT(streams_known(&q, &a), -ENOENT);
}

/* The last word there is. */
static void places_at_the_end(void)
{
	const struct recover_place known[] = { { RECOVER_TORCH, 1, UINT32_MAX - 1 },
					       { RECOVER_TORCH, 1, UINT32_MAX } };
	struct infer_question q = ask_about(&(struct recover_place){ RECOVER_TORCH, 1, 5 });
	struct infer_answer a;

	q.places = known;
	q.n_places = 2;
	CHECK_INT(streams_known(&q, &a), -ENOENT);
}

static void behind_likely_manual_seeds(void)
{
	const struct recover_place near = { RECOVER_TORCH, 1337, 1000001 };
	const struct recover_place likeliest = { RECOVER_TORCH, 42, 1000003 };
	const struct recover_place python = { RECOVER_PYTHON, 42, 4000 };
	/* A ResNet-50 of torchvision was made before. */
	const struct recover_place model = { RECOVER_TORCH, 42, 48958824 + 9 };
	struct infer_question q = ask_about(&near);
	struct infer_answer a;

	CHECK_INT(streams_quick(&q, &a), 0);
	check_found(&a, &near);
	q.is_first = true; /* only the likeliest */
	CHECK_INT(streams_quick(&q, &a), -ENOENT);
	q.is_first = false;
	q.no_streams = true;
	CHECK_INT(streams_quick(&q, &a), -ENOENT);
	q = ask_about(&likeliest);
	q.is_first = true;
	CHECK_INT(streams_quick(&q, &a), 0);
	check_found(&a, &likeliest);
	q = ask_about(&model);
	q.is_first = true;
	CHECK_INT(streams_quick(&q, &a), 0);
	check_found(&a, &model);
	q = ask_about(&python);
	CHECK_INT(streams_quick(&q, &a), 0);
	check_found(&a, &python);
	cancel = true;
	CHECK_INT(streams_quick(&q, &a), -ECANCELED);
	cancel = false;
	CHECK(cpu_ns > 0);
}

static void a_seed_found_among_all_is_looked_up(void)
{
	const struct recover_place far = { RECOVER_TORCH, 3407, 700000 };
	const struct recover_stream stream = { { RECOVER_TORCH, 3407, 0 }, 1000000 };
	struct infer_question q = ask_about(&far);
	struct infer_answer a = { .seed = recover_place_word(&far) };
	bool is_there = false;

	CHECK_INT(ask_places(&q, &stream, 1, &a), 0);
	for (size_t i = 0; i < a.n_places; i++) {
		CHECK_U64(recover_place_word(&a.place[i]), a.seed);
		is_there |= a.place[i].manual_seed == 3407 && a.place[i].word == far.word;
	}
	CHECK(is_there);
}

static const struct check_test tests[] = {
	{ "behind_a_place_that_is_known", behind_a_place_that_is_known },
	{ "places_at_the_end", places_at_the_end },
	{ "behind_likely_manual_seeds", behind_likely_manual_seeds },
	{ "a_seed_found_among_all_is_looked_up", a_seed_found_among_all_is_looked_up },
};

CHECK_MAIN(tests)
