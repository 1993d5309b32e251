/* SPDX-License-Identifier: Apache-2.0 */
/* Records of which only some keep a tracer page: what was pushed whole is taken as read when somebody is
 * heard of behind it, once, whatever is lost on the way and however workers share the batches. */
#include "plan_story.h"

enum { RECORDS = 3000, BYTES = 100 * 1024, EACH = 32 /* from one to the next: 2 ms, and a few more */ };

static struct story *story_of_records(uint64_t epochs, uint32_t workers)
{
	struct order_info info = { .n = RECORDS,
				   .epochs = epochs,
				   .world = 1,
				   .n_ranks = 1,
				   .batch = workers ? 16 : 0,
				   .workers = workers,
				   .prefetch_factor = workers ? 2 : 0 };
	struct plan_params p = story_params(&info);
	uint64_t *sizes = calloc(RECORDS, sizeof(*sizes));
	struct story *st;

	for (uint32_t i = 0; i < RECORDS; i++)
		sizes[i] = BYTES;
	p.arena_bytes = 600ull * BYTES; /* a fifth of them */
	p.stage_bytes = 300ull * BYTES;
	p.span = workers ? 0 : 64;
	st = story_prepare(p, sizes);
	st->is_of_records = true;
	story_step(st);
	free(sizes);
	return st;
}

struct reading {
	uint32_t heard, silent; /* records */
	uint32_t lost;          /* one in so many that would be heard of is not; 0: none */
};

/* As the kernel and the cache do: of what is there whole nobody hears. */
static void come(struct story *st, struct reading *r, uint32_t record)
{
	bool is_silent = st->in_kernel[record] && st->is_whole[record];

	if (!is_silent && r->lost && ++r->heard % r->lost == 0) {
		st->in_kernel[record] = false;
		st->now += NS_PER_MS / 10;
		story_step(st);
		return;
	}
	(void)story_come(st, record);
	r->heard += !is_silent && !r->lost;
	r->silent += is_silent;
}

static void read_all(struct story *st, struct reading *r, uint64_t epoch, uint32_t to)
{
	for (uint32_t p = 0; p < to; p++)
		come(st, r, story_sample(st, epoch, p));
}

/* No record was told as read that nobody had silently, and none twice. */
static uint32_t come_in_all(const struct story *st, uint32_t most_each)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < RECORDS; i++) {
		CHECK(st->n_come[i] <= most_each);
		n += st->n_come[i];
	}
	return n;
}

static void one_in_a_mib_is_heard_of(void)
{
	struct story *st = story_of_records(3, 0);
	struct reading r = { 0 };
	uint32_t first;

	read_all(st, &r, 0, RECORDS);
	first = r.heard;
	CHECK(r.silent >= RECORDS * 3 / 5); /* the order is not believed at once */
	CHECK_U64(come_in_all(st, 1), r.silent); /* nothing is left open at the end of a pass */
	CHECK_INT(story_status(st).epoch, 1);
	read_all(st, &r, 1, RECORDS);
	CHECK(r.heard - first <= RECORDS / EACH + 64);
	read_all(st, &r, 2, RECORDS);
	CHECK_U64(come_in_all(st, 3), r.silent);
	CHECK_INT(story_status(st).state, PLAN_FINISHED);
	CHECK_U64(story_status(st).mismatches, 0);
	CHECK_U64(story_status(st).stage_bytes, 0);
	story_free(st);
}

/* One that follows at a greater pace has them further apart: one each 2 ms. */
static void a_fast_reader_is_heard_of_less_often(void)
{
	struct story *st = story_of_records(6, 0);
	struct reading r = { 0 };
	uint32_t before = 0;

	for (uint64_t epoch = 0; epoch < 6; epoch++) {
		before = r.heard;
		for (uint32_t p = 0; p < RECORDS; p++) {
			come(st, &r, story_sample(st, epoch, p));
			st->now -= NS_PER_MS / 20; /* 20000 in a second */
		}
	}
	CHECK(r.heard - before <= RECORDS / 30 + 64);
	CHECK_U64(come_in_all(st, 6), r.silent);
	story_free(st);
}

static void what_is_lost_on_the_way_leaves_nothing_behind(void)
{
	struct story *st = story_of_records(3, 0);
	struct reading r = { .lost = 20 };

	for (uint64_t epoch = 0; epoch < 3; epoch++)
		read_all(st, &r, epoch, RECORDS);
	/* The last of all may be one of the lost: what is before it has waited for that. */
	CHECK(r.silent - come_in_all(st, 3) <= 2 * EACH);
	CHECK_U64(story_status(st).lost, 0);
	CHECK(story_status(st).stage_bytes <= 2ull * EACH * BYTES);
	story_free(st);
}

/* The last ones are never told: what is open then is taken when the next pass has begun. */
static void what_a_pass_leaves_is_taken_when_it_is_over(void)
{
	struct story *st = story_of_records(2, 0);
	struct reading r = { 0 };
	uint32_t open;

	read_all(st, &r, 0, RECORDS - 2);
	open = r.silent - come_in_all(st, 1);
	CHECK(open >= 1 && open <= EACH);
	for (uint32_t p = RECORDS - 2; p < RECORDS; p++)
		st->in_kernel[story_sample(st, 0, p)] = false;
	for (uint32_t p = 0; p < 200; p++)
		come(st, &r, story_sample(st, 1, p));
	CHECK_INT(story_status(st).epoch, 1);
	for (uint32_t p = RECORDS - 2 - open; p < RECORDS - 2; p++)
		CHECK_U64(st->n_come[story_sample(st, 0, p)], 1);
	story_free(st);
}

/* Eight workers, each with a batch of its own: which of them goes on is chance. */
static void workers_read_batches_side_by_side(void)
{
	enum { WORKERS = 8, BATCH = 16 };
	struct story *st = story_of_records(2, WORKERS);
	struct reading r = { 0 };
	uint32_t gone = 0, before[RECORDS];
	uint64_t rnd = 7;

	for (uint64_t epoch = 0; epoch < 2; epoch++) {
		uint32_t batch[WORKERS], at[WORKERS] = { 0 }, next = WORKERS, left = RECORDS;

		memcpy(before, st->n_come, sizeof(before));
		for (uint32_t w = 0; w < WORKERS; w++)
			batch[w] = w;
		while (left) {
			uint32_t w = (uint32_t)check_rand_below(&rnd, WORKERS), record;
			uint32_t p = batch[w] * BATCH + at[w];

			if (p >= RECORDS)
				continue;
			record = story_sample(st, epoch, p);
			/* Taken before it was read: what memory had of it then it has still. */
			if (st->n_come[record] > before[record])
				gone += st->was_there[record] && !st->is_there[record];
			come(st, &r, record);
			left--;
			if (++at[w] == BATCH) {
				at[w] = 0;
				batch[w] = next++;
			}
		}
	}
	CHECK(r.heard <= RECORDS);
	/* One that was read after it was taken may have been pushed again meanwhile. */
	CHECK(come_in_all(st, 2) >= r.silent && come_in_all(st, 2) <= r.silent + RECORDS / 100);
	CHECK_U64(story_status(st).lost, 0);
	CHECK(gone <= RECORDS / 100);
	story_free(st);
}

/* What was pushed for a job that stops waits for nobody, and is not taken as read. */
static void a_job_that_stops_in_between_has_read_no_more_than_it_did(void)
{
	struct story *st = story_of_records(2, 0);
	struct reading r = { 0 };
	uint32_t n;

	read_all(st, &r, 0, 2000);
	n = come_in_all(st, 1);
	CHECK(n <= r.silent && r.silent - n <= EACH);
	for (uint32_t i = 0; i < 100; i++) { /* time passes */
		st->now += NS_PER_S;
		story_step(st);
	}
	CHECK_U64(come_in_all(st, 1), n);
	plan_end_job(st->plan, 0);
	for (uint32_t i = 0; i < 100; i++) {
		st->now += NS_PER_S;
		story_step(st);
	}
	CHECK_U64(come_in_all(st, 1), n);
	CHECK_U64(story_status(st).stage_bytes, 0);
	story_free(st);
}

/* A page that was dropped is a READ: such a record is heard of itself, and is not told twice. */
static void what_the_kernel_drops_is_heard_of(void)
{
	struct story *st = story_of_records(2, 0);
	struct reading r = { 0 };
	uint64_t rnd = 3;

	for (uint64_t epoch = 0; epoch < 2; epoch++)
		for (uint32_t p = 0; p < RECORDS; p++) {
			uint32_t record = story_sample(st, epoch, p);

			if (st->in_kernel[record] && check_rand_below(&rnd, 200) == 0)
				story_unstaged(st, record);
			come(st, &r, record);
		}
	CHECK_U64(come_in_all(st, 2), r.silent);
	CHECK_U64(r.heard + r.silent, 2 * RECORDS);
	CHECK_U64(story_status(st).lost, 0);
	story_free(st);
}

/* With another job beside it, or where nothing may be pushed whole, each is heard of as ever. */
static void others_keep_theirs(void)
{
	struct story *st = story_of_records(2, 0);
	struct reading r = { 0 };

	st->is_of_records = false;
	read_all(st, &r, 0, RECORDS);
	CHECK_U64(r.silent, 0);
	CHECK_U64(come_in_all(st, 0), 0);
	story_free(st);
}

/* What was pushed whole for a pass that is left early was not read. */
static void pass_that_is_left_early_is_not_taken_as_read(void)
{
	struct story *st = story_of_records(3, 0);
	struct reading r = { 0 };

	read_all(st, &r, 0, RECORDS / 2);
	CHECK(story_status(st).stage_bytes >= 4ull * EACH * BYTES); /* so there is something to be taken */
	read_all(st, &r, 1, RECORDS / 10);
	CHECK_INT(story_status(st).epoch, 1);
	CHECK(come_in_all(st, 2) <= r.silent + EACH);
	story_free(st);
}

static const struct check_test tests[] = {
	{ "pass_that_is_left_early_is_not_taken_as_read", pass_that_is_left_early_is_not_taken_as_read },
	{ "one_in_a_mib_is_heard_of", one_in_a_mib_is_heard_of },
	{ "a_fast_reader_is_heard_of_less_often", a_fast_reader_is_heard_of_less_often },
	{ "what_is_lost_on_the_way_leaves_nothing_behind", what_is_lost_on_the_way_leaves_nothing_behind },
	{ "what_a_pass_leaves_is_taken_when_it_is_over", what_a_pass_leaves_is_taken_when_it_is_over },
	{ "workers_read_batches_side_by_side", workers_read_batches_side_by_side },
	{ "a_job_that_stops_in_between_has_read_no_more_than_it_did",
	  a_job_that_stops_in_between_has_read_no_more_than_it_did },
	{ "what_the_kernel_drops_is_heard_of", what_the_kernel_drops_is_heard_of },
	{ "others_keep_theirs", others_keep_theirs },
};

CHECK_MAIN(tests)
