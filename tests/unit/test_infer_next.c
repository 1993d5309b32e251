/* SPDX-License-Identifier: Apache-2.0 */
/* From what was found to the spec of this epoch and the next, and what is to be done when. */
#include <string.h>

#include "check.h"
#include "clairfs/order.h"
#include "clairfs/recover.h"
#include "src/infer/infer_priv.h"

#define N 100000

static void check_spec(const struct known *k, const char *want)
{
	struct order_spec *spec = NULL;
	char text[INFER_SPEC_MAX];
	struct err err = { 0 };

	CHECK(known_spec(k, N, text));
	CHECK_STR(text, want);
	if (order_spec_parse(text, &spec, &err) < 0)
		CHECK_STR(err.msg, "");
	CHECK(known_goes_on(k) == !strstr(text, ":epochs=1"));
	order_spec_free(spec);
}

static struct infer_answer plain(uint32_t seed, bool is_likely)
{
	return (struct infer_answer){
		.seed = seed, .is_likely = is_likely, .world = 1, .n_ranks = 1
	};
}

static struct infer_answer chain(uint32_t manual_seed, uint32_t word)
{
	return (struct infer_answer){ .seed = recover_word(manual_seed, word),
				    .is_chain = true,
				    .manual_seed = manual_seed,
				    .word = word,
				    .world = 1,
				    .n_ranks = 1 };
}

static void one_epoch_is_all_that_is_known(void)
{
	struct infer_answer a = plain(3456789012, false);
	struct known k = { 0 };

	known_found(&k, &a, 0, 100);
	check_spec(&k, "torch-randperm:seed=3456789012:epochs=1");
	CHECK(!known_can_advance(&k));
	a = plain(7, true);
	known_found(&k, &a, 0, 100);
	check_spec(&k, "torch-distributed:seed=7");
	a.world = 8;
	a.n_ranks = 4;
	memcpy(a.rank, (uint32_t[]){ 0, 1, 2, 6 }, 4 * sizeof(uint32_t));
	known_found(&k, &a, 0, 100);
	check_spec(&k, "torch-distributed:seed=7:world=8:ranks=0-2+6");
}

static void two_epochs_tell_more(void)
{
	struct infer_answer a = plain(3456789012, false), b = plain(3456789013, false);
	struct known k = { 0 };

	known_found(&k, &a, 3, 100);
	known_found(&k, &b, 4, 100);
	check_spec(&k, "torch-distributed:seed=3456789013");
	memset(&k, 0, sizeof(k));
	known_found(&k, &a, 3, 100);
	known_found(&k, &a, 4, 100);
	check_spec(&k, "torch-randperm:seed=3456789012");
	/* A pass between them that was not found: nothing follows from it. */
	known_found(&k, &b, 6, 100);
	check_spec(&k, "torch-randperm:seed=3456789013:epochs=1");
}

/* Few samples are found by several passes at once, which say how the seed goes on. */
static void passes_looked_at_together(void)
{
	static const struct {
		enum recover_next next;
		uint32_t word; /* 0: a plain seed */
		const char *want;
	} found[] = {
		{ RECOVER_NEXT_ONE, 0, "torch-distributed:seed=3456789012" },
		{ RECOVER_NEXT_SAME, 0, "torch-randperm:seed=3456789012" },
		{ RECOVER_NEXT_UNKNOWN, 0, "torch-randperm:seed=3456789012:epochs=1" },
		{ RECOVER_NEXT_FOUR, 11, "torch-loader:seed=42:start_epoch=2" },
		{ RECOVER_NEXT_TWO, 11, "torch-loader:seed=42:persistent=1:start_epoch=4" },
		{ RECOVER_NEXT_TWO, 5, "torch-loader:seed=42:persistent=1:start_epoch=1" },
		{ RECOVER_NEXT_UNKNOWN, 5, "torch-loader:seed=42:before=2" },
	};

	for (size_t i = 0; i < ARRAY_LEN(found); i++) {
		struct infer_answer a = found[i].word ? chain(42, found[i].word) : plain(3456789012, false);
		struct known k = { 0 };

		a.next = found[i].next;
		known_found(&k, &a, 3, 24);
		check_spec(&k, found[i].want);
	}
}

static void words_of_a_manual_seed(void)
{
	struct infer_answer a = chain(42, 3), b = chain(42, 5), c = chain(42, 27);
	struct known k = { 0 };

	known_found(&k, &a, 0, 100);
	check_spec(&k, "torch-loader:seed=42");
	known_found(&k, &b, 1, 100);
	check_spec(&k, "torch-loader:seed=42:persistent=1:start_epoch=1");
	memset(&k, 0, sizeof(k));
	known_found(&k, &c, 1, 100);
	check_spec(&k, "torch-loader:seed=42:start_epoch=6");
}

/* A validation loader draws as well: six words from epoch to epoch. The second seed is found by its
 * neighbourhood to a hint, so that nobody says which word it is. */
static void other_draws_between_epochs(void)
{
	struct infer_answer a = chain(42, 3), b = plain(recover_word(42, 9), true);
	struct known k = { 0 };

	known_found(&k, &a, 0, 100);
	CHECK(!known_can_advance(&k));
	known_found(&k, &b, 1, 100);
	CHECK(k.last.is_chain && k.last.word == 9 && k.step == 6);
	CHECK(!known_can_advance(&k));
	check_spec(&k, "torch-loader:seed=42:before=6:draws=6");
	/* Another number of draws, three passes later. */
	b = chain(42, 9 + 3 * 1000);
	known_found(&k, &b, 4, 100);
	check_spec(&k, "torch-loader:seed=42:before=3006:draws=1000");
	b = chain(42, 3009 + 1001);
	known_found(&k, &b, 6, 100); /* between two passes: not the same in each */
	check_spec(&k, "torch-loader:seed=42:before=4007");
}

/* Loaders of two directories draw from one generator, each when it likes. */
static void each_part_draws_for_itself(void)
{
	const struct infer_numbering train = { .under = "train" }, extra = { .under = "extra" };
	struct infer_answer a = chain(42, 3), b = chain(42, 5), c = plain(recover_word(42, 11), false);
	struct known k = { 0 };

	a.way = c.way = train;
	b.way = extra;
	known_found(&k, &a, 0, 100);
	check_spec(&k, "torch-loader:seed=42:draws=6:under=train"); /* it will validate */
	known_found(&k, &b, 1, 100);
	CHECK(!k.has_step);
	check_spec(&k, "torch-loader:seed=42:before=2:draws=6:under=extra");
	known_found(&k, &c, 2, 100); /* nor is it a word because the other's was one */
	CHECK(!k.has_step && !k.last.is_chain);
	known_found(&k, &a, 3, 100);
	c = chain(42, 9);
	c.way = train;
	known_found(&k, &c, 4, 100);
	check_spec(&k, "torch-loader:seed=42:before=6:draws=6:under=train");
	k = (struct known){ 0 };
	known_found(&k, &a, 0, 100);
	c = chain(42, 7);
	c.way = train;
	known_found(&k, &c, 1, 100); /* it does not */
	check_spec(&k, "torch-loader:seed=42:start_epoch=1:under=train");
}

/* Behind the weights of a model. */
static void draws_before_the_loader(void)
{
	struct infer_answer a = chain(42, 49240043), b = chain(42, 49240049);
	struct recover_place place[INFER_PLACES];
	struct known k = { 0 };

	CHECK_U64(known_places(&k, place), 0);
	known_found(&k, &a, 0, 100);
	check_spec(&k, "torch-loader:seed=42:before=49240040");
	CHECK_U64(known_places(&k, place), 1);
	CHECK_U64(place[0].manual_seed, 42);
	CHECK_U64(place[0].word, 49240043);
	known_found(&k, &b, 1, 100);
	check_spec(&k, "torch-loader:seed=42:before=49240046:draws=6");
}

/* Found among all seeds, and where each of them stands was looked up. */
static void two_places_in_one_stream_are_no_chance(void)
{
	struct infer_answer a = plain(recover_word(1337, 90000003), false);
	struct infer_answer b = plain(recover_word(1337, 95000003), false);
	struct recover_place place[INFER_PLACES];
	struct known k = { 0 };

	a.n_places = b.n_places = 2;
	a.place[0] = (struct recover_place){ RECOVER_TORCH, 7, 12345 };
	a.place[1] = (struct recover_place){ RECOVER_TORCH, 1337, 90000003 };
	b.place[0] = (struct recover_place){ RECOVER_TORCH, 7, 12344 }; /* before, not behind */
	b.place[1] = (struct recover_place){ RECOVER_TORCH, 1337, 95000003 };
	known_found(&k, &a, 2, 100);
	CHECK(!known_goes_on(&k)); /* one of them says nothing */
	CHECK_U64(known_places(&k, place), 2);
	known_found(&k, &b, 3, 100);
	check_spec(&k, "torch-loader:seed=1337:before=95000000:draws=5000000");
	CHECK_U64(known_places(&k, place), 1);
}

/* No kind of order draws its seeds from Python's generator: one epoch at a time. */
static void seeds_of_other_generators(void)
{
	struct infer_answer a = chain(42, 3), b = chain(42, 9);
	struct known k = { 0 };

	a.draw = b.draw = RECOVER_PYTHON;
	known_found(&k, &a, 0, 100);
	CHECK(!known_can_advance(&k));
	known_found(&k, &b, 1, 100);
	for (uint32_t pass = 2; pass < 5; pass++) {
		struct recover_place next = { RECOVER_PYTHON, 42, 3 + 6 * pass };
		char want[64];

		CHECK(known_can_advance(&k));
		known_advance(&k);
		snprintf(want, sizeof(want), "torch-randperm:seed=%u:epochs=1",
			 recover_place_word(&next));
		check_spec(&k, want);
		CHECK_U64(k.pass, pass);
		CHECK(k.is_guess);
	}
	/* What is found in that pass replaces the guess. */
	b = plain(3456789012, false);
	known_found(&k, &b, 4, 100);
	CHECK(!k.is_guess && !known_can_advance(&k));
}

static void hints_are_what_was_told_and_found(void)
{
	struct infer_answer a = chain(42, 3);
	uint32_t hints[KNOWN_HINTS];
	struct known k = { 0 };

	CHECK_U64(known_hints(&k, hints), 0);
	for (int i = 0; i < 100; i++) {
		char spec[64];

		snprintf(spec, sizeof(spec), "torch-distributed:seed=%d:world=2", i / 2);
		known_told(&k, spec);
	}
	known_told(&k, "sequential");
	known_told(&k, NULL);
	known_found(&k, &a, 0, 100);
	CHECK_U64(known_hints(&k, hints), 10);
	for (uint32_t i = 0; i < 8; i++) /* the last eight of 50, wherever they stand */
		CHECK(hints[i] >= 42 && hints[i] < 50);
	CHECK_U64(hints[8], a.seed);
	CHECK_U64(hints[9], 42);
}

/* A path as long as one may be, of bytes that a spec has to escape. */
static void a_part_far_below_the_source(void)
{
	struct infer_answer a = { .world = 64, .n_ranks = 32, .seed = UINT32_MAX };
	struct known k = { 0 };
	char text[INFER_SPEC_MAX];
	struct order_spec *spec;
	struct err err = { 0 };

	memset(a.way.under, ',', sizeof(a.way.under) - 1);
	for (uint32_t i = 0; i < a.n_ranks; i++)
		a.rank[i] = 2 * i;
	known_found(&k, &a, 0, 32);
	CHECK(known_spec(&k, N, text));
	CHECK_INT(order_spec_parse(text, &spec, &err), 0);
	CHECK(strlen(order_spec_text(spec)) > 3 * (INFER_UNDER_MAX - 1));
	order_spec_free(spec);
}

/* --- what to do --- */

static enum aim_kind aim(const struct aim_facts *f)
{
	return aim_at(f).kind;
}

static void looks_before_all_seeds(void)
{
	struct known known = { 0 };
	struct trail t;
	struct aim_facts f = {
		.trail = &t, .known = &known, .effort = INFER_FULL, .plan = INFER_PLAN_NONE
	};

	CHECK_INT(trail_init(&t, N), 0);
	CHECK_INT(aim(&f), AIM_NOTHING);
	for (uint32_t i = 0; i < 2000; i++) {
		(void)trail_open(&t, i * 7, i + 1);
		if (aim(&f) == AIM_NOTHING)
			continue;
		if (aim(&f) == AIM_FULL)
			break;
		CHECK_INT(aim(&f), AIM_QUICK);
		t.start[TRAIL_PASS].looked = t.start[TRAIL_PASS].n;
	}
	CHECK_INT(aim(&f), AIM_FULL);
	CHECK_U64(t.start[TRAIL_PASS].looked, 96);
	CHECK_U64(t.start[TRAIL_PASS].n, 128);
	f.effort = INFER_QUICK;
	CHECK_INT(aim(&f), AIM_NOTHING);
	f.effort = INFER_FULL;
	t.start[TRAIL_PASS].is_searched = true;
	CHECK_INT(aim(&f), AIM_NOTHING);
	t.start[TRAIL_PASS].is_searched = false;
	f.full_failed = 2; /* this job draws its samples some other way */
	CHECK_INT(aim(&f), AIM_NOTHING);
	trail_fini(&t);
}

static void what_is_followed_is_left_alone(void)
{
	static const enum infer_plan fine[] = { INFER_PLAN_BUSY, INFER_PLAN_FOLLOWED };
	struct known known = { 0 };
	struct trail t;
	struct aim_facts f = {
		.trail = &t, .known = &known, .effort = INFER_FULL, .plan = INFER_PLAN_LOST, .is_told = true
	};

	CHECK_INT(trail_init(&t, N), 0);
	for (uint32_t i = 0; i < 255; i++)
		(void)trail_open(&t, i * 7, i + 1);
	CHECK_INT(aim(&f), AIM_NOTHING); /* the plan looks for its place by itself */
	(void)trail_open(&t, 5, 300);
	CHECK_INT(aim(&f), AIM_QUICK);
	for (size_t i = 0; i < ARRAY_LEN(fine); i++) {
		f.plan = fine[i];
		CHECK_INT(aim(&f), AIM_NOTHING);
	}
	f.effort = INFER_OFF;
	f.plan = INFER_PLAN_NONE;
	CHECK_INT(aim(&f), AIM_NOTHING);
	trail_fini(&t);
}

/* After an epoch whose order ended: not its first opens again, but those of the next. */
static void the_next_epoch_is_looked_at_afresh(void)
{
	struct infer_answer a = plain(3456789012, false);
	struct known known = { 0 };
	struct trail t;
	struct aim_facts f = {
		.trail = &t, .known = &known, .effort = INFER_FULL, .plan = INFER_PLAN_ENDED
	};

	CHECK_INT(trail_init(&t, 1000), 0);
	for (uint32_t i = 0; i < 1000; i++)
		(void)trail_open(&t, i * 7 % 1000, i + 1);
	known_found(&known, &a, t.pass, 1000);
	CHECK_INT(aim(&f), AIM_NOTHING);
	for (uint32_t i = 0; i < 40; i++)
		(void)trail_open(&t, i * 11 % 1000, 2000 + i);
	CHECK_U64(t.pass, 1);
	CHECK_INT(aim(&f), AIM_QUICK);
	trail_fini(&t);
}

static void world_is_judged_again_with_more(void)
{
	struct infer_answer a = plain(5, true);
	struct known known = { 0 };
	struct trail t;
	struct aim_facts f = {
		.trail = &t, .known = &known, .effort = INFER_QUICK, .plan = INFER_PLAN_FOLLOWED
	};

	CHECK_INT(trail_init(&t, N), 0);
	known_found(&known, &a, 0, 32);
	for (uint32_t i = 0; i < 127; i++)
		(void)trail_open(&t, i * 7, i + 1);
	CHECK_INT(aim(&f), AIM_NOTHING);
	(void)trail_open(&t, 3, 200);
	CHECK_INT(aim(&f), AIM_REFINE);
	known.n_seen = 128;
	CHECK_INT(aim(&f), AIM_NOTHING);
	for (uint32_t i = 0; i < 2000; i++)
		(void)trail_open(&t, 10000 + i * 7, 1000 + i);
	CHECK_INT(aim(&f), AIM_REFINE);
	known.n_seen = TRAIL_MAX;
	CHECK_INT(aim(&f), AIM_NOTHING);
	trail_fini(&t);
}

static void a_known_next_epoch_is_told_at_the_end_of_this_one(void)
{
	struct infer_answer a = chain(42, 3), b = chain(42, 13);
	struct known known = { 0 };
	struct trail t;
	struct aim_facts f = {
		.trail = &t, .known = &known, .effort = INFER_QUICK, .plan = INFER_PLAN_FOLLOWED
	};

	CHECK_INT(trail_init(&t, N), 0);
	a.draw = b.draw = RECOVER_NUMPY;
	known_found(&known, &a, 0, 32);
	known_found(&known, &b, 1, 32);
	CHECK_INT(aim(&f), AIM_NOTHING);
	f.plan = INFER_PLAN_ENDED;
	CHECK_INT(aim(&f), AIM_NEXT);
	trail_fini(&t);
}

/* md5sum of a few files looks like files in their order, and then the job begins: it must not go
 * unnoticed for the rest of the pass. */
static void an_order_that_is_lost_explains_nothing(void)
{
	struct infer_answer a = { .spec = "sequential", .world = 1, .n_ranks = 1 };
	struct known known = { 0 };
	struct trail t;
	struct aim_facts f = {
		.trail = &t, .known = &known, .effort = INFER_QUICK, .plan = INFER_PLAN_FOLLOWED
	};
	uint32_t opens = 0;

	CHECK_INT(trail_init(&t, N), 0);
	for (uint32_t i = 0; i < 64; i++)
		(void)trail_open(&t, i, i + 1);
	known_found(&known, &a, t.pass, 64);
	known.noted = t.noted;
	t.start[TRAIL_PASS].looked = 64;
	for (uint32_t i = 0; i < 100; i++) /* until the plan has noticed */
		(void)trail_open(&t, (1000 + i * 7919) % N, 100 + i);
	f.plan = INFER_PLAN_LOST;
	f.lost_at = t.opens;
	for (; opens < 300 && aim(&f) == AIM_NOTHING; opens++) {
		(void)trail_open(&t, (1000 + (100 + opens) * 7919) % N, 300 + opens);
		if (aim_is_refuted(&f))
			trail_restart(&t, known.noted);
	}
	CHECK_INT(aim(&f), AIM_QUICK);
	CHECK_INT(aim_at(&f).start, TRAIL_PASS);
	CHECK_U64(t.pass, 1);
	/* From the first sample of the epoch on, and nothing of what came before. */
	CHECK_U64(t.start[TRAIL_PASS].n, 100 + opens);
	CHECK_U64(t.start[TRAIL_PASS].seen[0], 1000);
	CHECK(!aim_is_refuted(&f)); /* once */
	trail_fini(&t);
}

/* Two finders have each found a part of one job. */
static void ranks_found_apart_are_one_job(void)
{
	struct infer_answer a = plain(7, true), b;
	struct known k = { 0 };

	a.world = 8;
	a.n_ranks = 2;
	memcpy(a.rank, (uint32_t[]){ 1, 5 }, 2 * sizeof(uint32_t));
	known_found(&k, &a, 0, 100);
	b = k.last;
	CHECK(!known_add_ranks(&k, &b)); /* the same ranks: another job, which reads the same */
	b.n_ranks = 3;
	memcpy(b.rank, (uint32_t[]){ 0, 3, 7 }, 3 * sizeof(uint32_t));
	b.seed = 8;
	CHECK(!known_add_ranks(&k, &b));
	b.seed = 7;
	b.world = 16;
	CHECK(!known_add_ranks(&k, &b));
	b.world = 8;
	strcpy(b.way.under, "val");
	CHECK(!known_add_ranks(&k, &b));
	b.way.under[0] = 0;
	CHECK(known_add_ranks(&k, &b));
	check_spec(&k, "torch-distributed:seed=7:world=8:ranks=0-1+3+5+7");
	CHECK(known_has_ranks(&k, &b) && !known_add_ranks(&k, &b)); /* it has them already */
	b = k.last;
	CHECK(!known_has_ranks(&k, &b));
	b.n_ranks = 60;
	for (uint32_t i = 0; i < 60; i++)
		b.rank[i] = 100 + i;
	CHECK(!known_add_ranks(&k, &b)); /* there is no room for so many */
}

static const struct check_test tests[] = {
	{ "a_part_far_below_the_source", a_part_far_below_the_source },
	{ "ranks_found_apart_are_one_job", ranks_found_apart_are_one_job },
	{ "an_order_that_is_lost_explains_nothing", an_order_that_is_lost_explains_nothing },
	{ "one_epoch_is_all_that_is_known", one_epoch_is_all_that_is_known },
	{ "two_epochs_tell_more", two_epochs_tell_more },
	{ "passes_looked_at_together", passes_looked_at_together },
	{ "words_of_a_manual_seed", words_of_a_manual_seed },
	{ "other_draws_between_epochs", other_draws_between_epochs },
	{ "each_part_draws_for_itself", each_part_draws_for_itself },
	{ "draws_before_the_loader", draws_before_the_loader },
	{ "two_places_in_one_stream_are_no_chance", two_places_in_one_stream_are_no_chance },
	{ "seeds_of_other_generators", seeds_of_other_generators },
	{ "hints_are_what_was_told_and_found", hints_are_what_was_told_and_found },
	{ "looks_before_all_seeds", looks_before_all_seeds },
	{ "what_is_followed_is_left_alone", what_is_followed_is_left_alone },
	{ "the_next_epoch_is_looked_at_afresh", the_next_epoch_is_looked_at_afresh },
	{ "world_is_judged_again_with_more", world_is_judged_again_with_more },
	{ "a_known_next_epoch_is_told_at_the_end_of_this_one",
	  a_known_next_epoch_is_told_at_the_end_of_this_one },
};

CHECK_MAIN(tests)
