/* SPDX-License-Identifier: Apache-2.0 */
/* Where does an epoch begin in a stream of opens? Repeats, echoes, pauses, samples of other
 * readers, ranks that read a part only; and when a look is worth it. */
#include "check.h"
#include "src/infer/infer_priv.h"

#define N 2000
#define MS NS_PER_MS

/* A random order of 0..n-1. */
static void shuffle(uint32_t *sample, uint32_t n, uint64_t *random)
{
	for (uint32_t i = 0; i < n; i++)
		sample[i] = i;
	for (uint32_t i = 0; i + 1 < n; i++) {
		uint32_t j = i + (uint32_t)check_rand_below(random, n - i), s = sample[i];

		sample[i] = sample[j];
		sample[j] = s;
	}
}

/* Opens them a millisecond apart; the number of new passes. */
static unsigned open_all(struct trail *t, const uint32_t *sample, uint32_t n, uint64_t *now)
{
	unsigned turns = 0;

	for (uint32_t i = 0; i < n; i++, *now += MS)
		turns += trail_open(t, sample[i], *now);
	return turns;
}

static void a_new_pass_begins_with_its_first_sample(void)
{
	uint64_t random = check_seed(), now = 1;
	uint32_t sample[N];
	struct trail t;

	CHECK_INT(trail_init(&t, N), 0);
	for (unsigned pass = 0; pass < 4; pass++) {
		shuffle(sample, N, &random);
		CHECK_U64(open_all(&t, sample, N, &now), pass > 0);
		CHECK_U64(t.pass, pass);
		/* One that ended the pass before may pass for an echo. */
		for (uint32_t i = 0, at = 0; i < 40; i++, at++) {
			while (at < 64 && t.start[TRAIL_PASS].seen[i] != sample[at])
				at++;
			CHECK(at < 64);
		}
		CHECK(t.start[TRAIL_PASS].opens > N - 64);
	}
	trail_fini(&t);
}

/* Size first, then bytes; an index that goes with every sample. */
static void echoes_are_no_repeats(void)
{
	uint64_t random = check_seed();
	uint32_t sample[N];
	struct trail t;

	CHECK_INT(trail_init(&t, N), 0);
	shuffle(sample, N, &random);
	for (uint32_t i = 0; i < N; i++) {
		CHECK(!trail_open(&t, sample[i], MS * i + 1));
		CHECK(!trail_open(&t, sample[i], MS * i + 2));
		CHECK(!trail_open(&t, sample[0], MS * i + 3));
		if (i >= 20)
			CHECK(!trail_open(&t, sample[i - 20], MS * i + 4));
	}
	CHECK_U64(t.pass, 0);
	CHECK_U64(t.start[TRAIL_PASS].n, TRAIL_MAX);
	trail_fini(&t);
}

/* A rank of four reads another quarter every epoch, so one open in four comes again. */
static void a_part_is_read_each_time(void)
{
	uint64_t random = check_seed(), now = 1;
	uint32_t sample[N];
	unsigned turns = 0;
	struct trail t;

	CHECK_INT(trail_init(&t, N), 0);
	for (unsigned pass = 0; pass < 8; pass++) {
		shuffle(sample, N, &random);
		turns += open_all(&t, sample, N / 4, &now);
	}
	CHECK(turns >= 1 && turns <= 8);
	trail_fini(&t);
}

static void strays_do_not_begin_an_epoch(void)
{
	uint64_t random = check_seed(), now = 1;
	uint32_t sample[N];
	struct trail t;

	CHECK_INT(trail_init(&t, N), 0);
	shuffle(sample, N, &random);
	CHECK_U64(open_all(&t, (uint32_t[]){ 1, 2, 3 }, 3, &now), 0);
	now += TRAIL_PAUSE_NS;
	CHECK_U64(open_all(&t, sample, 100, &now), 0);
	CHECK_U64(t.start[TRAIL_PASS].n, 100);
	CHECK_BYTES(t.start[TRAIL_PASS].seen, sample, 100 * sizeof(*sample));
	CHECK(!t.start[TRAIL_PAUSED].is_used);
	trail_fini(&t);
}

/* A loader that fills up and waits for a compiler, or a scan and then the job: both beginnings are
 * kept. */
static void a_pause_is_a_second_beginning(void)
{
	uint64_t random = check_seed(), now = 1;
	uint32_t sample[N];
	struct trail t;

	CHECK_INT(trail_init(&t, N), 0);
	shuffle(sample, N, &random);
	(void)open_all(&t, sample, 50, &now);
	now += TRAIL_PAUSE_NS;
	(void)open_all(&t, sample + 50, 60, &now);
	CHECK_U64(t.start[TRAIL_PASS].n, 110);
	CHECK_BYTES(t.start[TRAIL_PASS].seen, sample, 110 * sizeof(*sample));
	CHECK(t.start[TRAIL_PAUSED].is_used);
	CHECK_U64(t.start[TRAIL_PAUSED].n, 60);
	CHECK_BYTES(t.start[TRAIL_PAUSED].seen, sample + 50, 60 * sizeof(*sample));
	trail_fini(&t);
}

static void looks_are_due_now_and_then(void)
{
	struct trail t;
	unsigned looks = 0;

	CHECK_INT(trail_init(&t, 100000), 0);
	for (uint32_t i = 0; i < 50000; i++) {
		(void)trail_open(&t, i * 2, i * MS + 1);
		CHECK_U64(trail_due(&t, TRAIL_PAUSED), 0);
		if (!trail_due(&t, TRAIL_PASS))
			continue;
		CHECK(looks > 0 || i + 1 == 32);
		t.start[TRAIL_PASS].looked = t.start[TRAIL_PASS].n;
		looks++;
	}
	CHECK_U64(looks, 4);
	trail_fini(&t);
	/* Of a small dataset a few opens are a large part. */
	CHECK_INT(trail_init(&t, 80), 0);
	for (uint32_t i = 0; i < 9; i++)
		(void)trail_open(&t, i, i + 1);
	CHECK_U64(trail_due(&t, TRAIL_PASS), 0);
	(void)trail_open(&t, 9, 10);
	CHECK_U64(trail_due(&t, TRAIL_PASS), 10);
	trail_fini(&t);
}

/* Whatever is opened whenever: memory stays bounded, nothing is out of range. */
static void any_opens(void)
{
	uint64_t random = check_seed(), now = 1;

	for (int round = 0; round < 200; round++) {
		uint32_t n = 1 + (uint32_t)check_rand_below(&random, 300);
		struct trail t;

		CHECK_INT(trail_init(&t, n), 0);
		for (int i = 0; i < 2000; i++) {
			now += check_rand_below(&random, 50) ? MS : TRAIL_PAUSE_NS;
			(void)trail_open(&t, (uint32_t)check_rand_below(&random, n), now);
			CHECK(t.start[TRAIL_PASS].n <= MIN(TRAIL_MAX, n));
			CHECK(t.start[TRAIL_PAUSED].n <= TRAIL_MAX);
			for (uint32_t s = 0; s < TRAIL_STARTS; s++)
				CHECK(trail_due(&t, s) <= t.start[s].n);
		}
		trail_fini(&t);
	}
}

/* A pass over some samples, each once; then is told what the job reads. */
static void read_pass(struct trail *t, uint32_t first, uint32_t count, uint32_t salt)
{
	for (uint32_t i = 0; i < count; i++)
		(void)trail_open(t, first + (i * 10 + salt) % count, 1);
}

static void what_a_job_reads_is_known_when_it_comes_again(void)
{
	struct trail t;

	CHECK_INT(trail_init(&t, 10000), 0);
	read_pass(&t, 2000, 1001, 0);
	CHECK(!t.has_before);
	read_pass(&t, 2000, 1001, 500);
	CHECK(t.has_before);
	CHECK_U64(t.before.count, 1001);
	CHECK(bitmap_get(&t.before, 2000) && !bitmap_get(&t.before, 1999));
	/* An epoch left some out, and the next one others. */
	read_pass(&t, 1990, 1001, 100);
	read_pass(&t, 2000, 1001, 0);
	CHECK_U64(t.before.count, 1011);
	trail_restart(&t, t.noted);
	CHECK(!t.has_before);
	trail_fini(&t);
}

/* A pass of a few shards after others; whether nearly all of it is kept. */
static bool few_pass(struct trail *t, uint32_t *sample, uint32_t n, uint32_t pass, uint64_t *random, uint64_t *now)
{
	uint32_t due;

	shuffle(sample, n, random);
	/* One of the last pass' end is an echo. */
	CHECK_U64(open_all(t, sample, n, now), pass > 0);
	CHECK_U64(t->pass, pass);
	CHECK_U64(t->n_last, MIN(pass, RECOVER_FEW_PASSES));
	if (pass == 0)
		CHECK_U64(t->start[TRAIL_PASS].n, n);
	if (t->start[TRAIL_PASS].n + n / 8 < n)
		return false;
	due = trail_due(t, TRAIL_PASS);
	CHECK(due >= n - n / 8 && due <= n);
	t->start[TRAIL_PASS].looked = due;
	CHECK_U64(trail_due(t, TRAIL_PASS), 0);
	return true;
}

/* Of few samples: each pass is known by its first few repeats, and kept. It seldom begins with several that were the
 * last ones of the pass before, which are taken for echoes. */
static void passes_over_a_few_shards_are_told_apart(void)
{
	uint64_t random = check_seed(), now = 1;
	uint32_t sample[24], n_short = 0;
	struct trail t;

	for (int round = 0; round < 40; round++)
		for (uint32_t n = 8; n <= 24; n += 8) {
			CHECK_INT(trail_init(&t, n), 0);
			for (uint32_t pass = 0; pass < 5; pass++)
				n_short += !few_pass(&t, sample, n, pass, &random, &now);
			trail_fini(&t);
		}
	CHECK(n_short <= 6); /* of 600: a fifth of one is expected */
}

/* Looks at 8 opens and each 4 more, and at all of them or nearly. */
static void few_shards_are_looked_at_early(void)
{
	uint32_t sample[22], looks = 0;
	uint64_t random = check_seed(), now = 1;
	struct trail t;

	CHECK_INT(trail_init(&t, 22), 0);
	shuffle(sample, 22, &random);
	for (uint32_t i = 0; i < 22; i++) {
		uint32_t due;

		CHECK_U64(open_all(&t, &sample[i], 1, &now), 0);
		due = trail_due(&t, TRAIL_PASS);
		if (!due)
			continue;
		looks++;
		CHECK_U64(due, i + 1);
		t.start[TRAIL_PASS].looked = due;
	}
	CHECK_U64(looks, 6); /* 8, 12, 16, 20, 21, 22 */
	trail_fini(&t);
}

static const struct check_test tests[] = {
	{ "what_a_job_reads_is_known_when_it_comes_again",
	  what_a_job_reads_is_known_when_it_comes_again },
	{ "a_new_pass_begins_with_its_first_sample", a_new_pass_begins_with_its_first_sample },
	{ "echoes_are_no_repeats", echoes_are_no_repeats },
	{ "a_part_is_read_each_time", a_part_is_read_each_time },
	{ "strays_do_not_begin_an_epoch", strays_do_not_begin_an_epoch },
	{ "a_pause_is_a_second_beginning", a_pause_is_a_second_beginning },
	{ "looks_are_due_now_and_then", looks_are_due_now_and_then },
	{ "any_opens", any_opens },
	{ "passes_over_a_few_shards_are_told_apart", passes_over_a_few_shards_are_told_apart },
	{ "few_shards_are_looked_at_early", few_shards_are_looked_at_early },
};

CHECK_MAIN(tests)
