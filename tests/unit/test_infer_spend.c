/* SPDX-License-Identifier: Apache-2.0 */
/* What looks that find nothing may cost a job, by a clock of the test's own. */
#include "check.h"
#include "src/infer/infer_priv.h"

#define CPUS 3

/* A job that always wants to look, at what is dearest first. Checks at all times that what comes after
 * the first ones is a hundredth of its time, and returns how many passes had a look. */
static unsigned run(struct budget *b, uint64_t pass_ns, unsigned passes, const uint64_t *price)
{
	uint64_t now = 1, spent = 0, least = price[BUDGET_LOOK] + 2 * NS_PER_S;
	unsigned looks = 0, with_look = 0;

	spend_open(b, now);
	for (unsigned pass = 0; pass < passes; pass++) {
		bool has_look = false;

		for (unsigned i = 0; i < 20; i++, now += pass_ns / 20) {
			enum budget_kind kind =
				spend_allows(b, BUDGET_LOOK, pass, now)	  ? BUDGET_LOOK
				: spend_allows(b, BUDGET_BRIEF, pass, now) ? BUDGET_BRIEF
									   : BUDGET_KINDS;

			if (kind == BUDGET_KINDS)
				continue;
			spend_charge(b, kind, pass, price[kind]);
			spent += looks++ < BUDGET_FREE ? 0 : price[kind];
			has_look = true;
			CHECK(spent <= now / 100 * CPUS + least);
		}
		with_look += has_look;
	}
	CHECK_U64(spent, b->spent_ns);
	return with_look;
}

static void what_is_in_vain_is_a_hundredth_of_the_time(void)
{
	uint64_t random = check_seed();

	for (int round = 0; round < 200; round++) {
		struct budget b = { .cpus = CPUS };
		const uint64_t price[] = { check_rand_below(&random, NS_PER_S),
					   check_rand_below(&random, 10 * NS_PER_S) };
		uint64_t pass_ns = NS_PER_MS * (1 + check_rand_below(&random, 1000000));

		(void)run(&b, pass_ns, 200, price);
	}
}

static void looks_become_rare(void)
{
	const uint64_t price[] = { 0, 0 };
	struct budget b = { .cpus = CPUS };

	/* Passes 0, 1, 3, 7, 15, 31, 63, then each 64th. */
	CHECK_U64(run(&b, NS_PER_S, 256, price), 10);
}

static void the_first_two_are_free(void)
{
	struct budget b = { .cpus = 1 };

	spend_open(&b, 1);
	for (int i = 0; i < 2; i++) {
		CHECK(spend_allows(&b, BUDGET_LOOK, 0, 2));
		spend_charge(&b, BUDGET_LOOK, 0, 5 * NS_PER_S);
	}
	CHECK_U64(b.spent_ns, 0);
	CHECK(!spend_allows(&b, BUDGET_LOOK, 0, 499 * NS_PER_S));
	CHECK(spend_allows(&b, BUDGET_BRIEF, 0, 2)); /* whose price nobody knows */
	CHECK(spend_allows(&b, BUDGET_LOOK, 0, 501 * NS_PER_S));
	spend_charge(&b, BUDGET_LOOK, 0, 5 * NS_PER_S);
	CHECK_U64(b.spent_ns, 5 * NS_PER_S);
	CHECK(!spend_allows(&b, BUDGET_LOOK, 0, 999 * NS_PER_S));
	CHECK(spend_allows(&b, BUDGET_LOOK, 0, 1001 * NS_PER_S));
	CHECK(!spend_allows(&b, BUDGET_LOOK, 1, 501 * NS_PER_S)); /* was spent in this pass */
}

static void one_search_of_all_seeds_is_free(void)
{
	struct budget b = { .cpus = 2 };

	spend_open(&b, 1);
	CHECK(spend_allows(&b, BUDGET_FULL, 0, 1));
	spend_charge(&b, BUDGET_FULL, 0, 300 * NS_PER_S);
	CHECK_U64(b.spent_ns, 0);
	CHECK(spend_allows(&b, BUDGET_LOOK, 0, 1)); /* it took nothing from the looks */
	CHECK(!spend_allows(&b, BUDGET_FULL, 1, 14999 * NS_PER_S));
	CHECK(spend_allows(&b, BUDGET_FULL, 1, 15001 * NS_PER_S));
}

/* Something was found, or is known: the looks of this pass are free again, and what was spent is
 * not forgotten. */
static void more_is_known(void)
{
	struct budget b = { .cpus = 1 };

	spend_open(&b, 1);
	for (int i = 0; i < 3; i++)
		spend_charge(&b, BUDGET_LOOK, 0, NS_PER_S);
	spend_charge(&b, BUDGET_FULL, 0, NS_PER_S);
	CHECK(!spend_allows(&b, BUDGET_LOOK, 1, 2));
	spend_renew(&b, false);
	CHECK(spend_allows(&b, BUDGET_LOOK, 1, 2));
	CHECK(!spend_allows(&b, BUDGET_FULL, 1, 2));
	spend_renew(&b, true);
	CHECK(spend_allows(&b, BUDGET_FULL, 1, 2));
	CHECK_U64(b.spent_ns, NS_PER_S);
}

static void nothing_was_opened_yet(void)
{
	struct budget b = { .cpus = 1 };

	CHECK_U64(spend_wall_ns(&b, 1000), 0);
	spend_open(&b, 1000);
	CHECK_U64(spend_wall_ns(&b, 900), 0);
	spend_open(&b, 2000);
	CHECK_U64(spend_wall_ns(&b, 3000), 2000);
}

static const struct check_test tests[] = {
	{ "what_is_in_vain_is_a_hundredth_of_the_time",
	  what_is_in_vain_is_a_hundredth_of_the_time },
	{ "looks_become_rare", looks_become_rare },
	{ "the_first_two_are_free", the_first_two_are_free },
	{ "one_search_of_all_seeds_is_free", one_search_of_all_seeds_is_free },
	{ "more_is_known", more_is_known },
	{ "nothing_was_opened_yet", nothing_was_opened_yet },
};

CHECK_MAIN(tests)
