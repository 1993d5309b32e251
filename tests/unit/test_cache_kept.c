/* SPDX-License-Identifier: Apache-2.0 */
/* Pushes that are left out because the kernel still has the pages: found out, used, given up. */
#include "check.h"
#include "src/cache/cache_priv.h"

#define N 3000u

struct story {
	struct kept kept;
	uint64_t now_ns;
	unsigned n_skipped, n_failed;
};

static void story_begin(struct story *t)
{
	*t = (struct story){ .now_ns = NS_PER_S };
	CHECK_INT(kept_init(&t->kept, N), 0);
}

/* One pass of 1 ms a sample: each is to be pushed some samples ahead of its open, and a READ comes
 * when its pages are neither pushed nor kept. */
static void pass(struct story *t, bool is_kept)
{
	enum { AHEAD = 50 };
	static bool is_skipped[N];

	t->n_skipped = t->n_failed = 0;
	for (uint32_t i = 0; i < N + AHEAD; i++) {
		t->now_ns += NS_PER_MS;
		if (i < N) {
			is_skipped[i] = kept_skips(&t->kept, i, t->now_ns);
			t->n_skipped += is_skipped[i];
			if (!is_skipped[i])
				kept_pushed(&t->kept, i);
		}
		if (i < AHEAD)
			continue;
		kept_opened(&t->kept, i - AHEAD, t->now_ns);
		if (is_skipped[i - AHEAD] && !is_kept) {
			t->n_failed++;
			kept_read(&t->kept, i - AHEAD);
		}
	}
}

static void pages_that_stay_are_not_pushed_again(void)
{
	struct story t;

	story_begin(&t);
	pass(&t, true);
	CHECK(t.n_skipped > N / 2);
	pass(&t, true);
	CHECK_U64(t.n_skipped, N);
	kept_fini(&t.kept);
}

static void where_pages_go_probes_are_few(void)
{
	struct story t;
	unsigned failed = 0;

	story_begin(&t);
	pass(&t, false);
	CHECK(t.n_failed >= 1 && t.n_failed <= 4);
	for (unsigned i = 0; i < 10; i++) {
		pass(&t, false);
		failed += t.n_failed;
	}
	CHECK(failed >= 1 && failed <= 10 * N / 2048); /* it is still asked now and then */
	kept_fini(&t.kept);
}

static void when_pages_go_they_are_pushed_again(void)
{
	struct story t;

	story_begin(&t);
	pass(&t, true);
	pass(&t, true);
	CHECK_U64(t.n_skipped, N);
	pass(&t, false); /* somebody needs the memory */
	CHECK(t.n_failed <= 3 + 50); /* and what was left out before the first of them was read */
	pass(&t, false);
	CHECK(t.n_failed <= 2);
	for (unsigned i = 0; i < 40; i++)
		pass(&t, true);
	CHECK_U64(t.n_skipped, N); /* and found out again */
	kept_fini(&t.kept);
}

static void one_that_goes_ends_nothing(void)
{
	struct story t;

	story_begin(&t);
	pass(&t, true);
	CHECK(kept_skips(&t.kept, 7, t.now_ns));
	kept_read(&t.kept, 7);
	CHECK(kept_skips(&t.kept, 8, t.now_ns));
	kept_fini(&t.kept);
}

static void a_read_of_what_was_pushed_says_nothing(void)
{
	struct story t;

	story_begin(&t);
	pass(&t, true);
	for (uint32_t i = 0; i < 100; i++) {
		kept_pushed(&t.kept, i);
		kept_read(&t.kept, i);
	}
	CHECK(kept_skips(&t.kept, 7, t.now_ns));
	kept_fini(&t.kept);
}

static void what_is_not_opened_proves_nothing(void)
{
	struct story t;
	unsigned n = 0;

	story_begin(&t);
	for (uint32_t i = 0; i < N; i++)
		n += kept_skips(&t.kept, i, t.now_ns);
	CHECK_U64(n, KEPT_PROBES);
	t.now_ns += 60 * NS_PER_S; /* nobody will */
	for (uint32_t i = 0; i < N; i++)
		n += kept_skips(&t.kept, i, t.now_ns);
	CHECK_U64(n, 2 * KEPT_PROBES);
	kept_fini(&t.kept);
}

static void what_is_pushed_after_all_proves_nothing(void)
{
	struct story t;

	story_begin(&t);
	for (unsigned k = 0; k < 1000; k++) {
		uint32_t i = k % N;

		if (kept_skips(&t.kept, i, t.now_ns))
			kept_pushed(&t.kept, i);
		kept_opened(&t.kept, i, t.now_ns);
		t.now_ns += NS_PER_S;
	}
	CHECK_U64(t.kept.trust, 0);
	kept_fini(&t.kept);
}

static void after_a_reset_nothing_is_known(void)
{
	struct story t;

	story_begin(&t);
	pass(&t, true);
	kept_reset(&t.kept);
	CHECK(!kept_skips(&t.kept, 7, t.now_ns));
	kept_fini(&t.kept);
}

static const struct check_test tests[] = {
	{ "pages_that_stay_are_not_pushed_again", pages_that_stay_are_not_pushed_again },
	{ "where_pages_go_probes_are_few", where_pages_go_probes_are_few },
	{ "when_pages_go_they_are_pushed_again", when_pages_go_they_are_pushed_again },
	{ "one_that_goes_ends_nothing", one_that_goes_ends_nothing },
	{ "a_read_of_what_was_pushed_says_nothing", a_read_of_what_was_pushed_says_nothing },
	{ "what_is_not_opened_proves_nothing", what_is_not_opened_proves_nothing },
	{ "what_is_pushed_after_all_proves_nothing", what_is_pushed_after_all_proves_nothing },
	{ "after_a_reset_nothing_is_known", after_a_reset_nothing_is_known },
};

CHECK_MAIN(tests)
