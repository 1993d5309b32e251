/* SPDX-License-Identifier: Apache-2.0 */
/* The search thread with searches of the test's own: what is asked, what becomes of the answers, and
 * what happens when somebody tells an order, or the mount ends, in the middle of it. */
#include <errno.h>
#include <string.h>

#include "check.h"
#include "clairfs/base/thr.h"
#include "src/infer/infer_priv.h"

#define N 10000

/* What the searches are to do; shared with the search thread. */
static struct bed {
	struct mutex mu;
	struct cond changed;
	struct infer *infer;
	struct metrics *metrics;
	int quick_rc, full_rc; /* mu, like all below */
	struct infer_answer answer;
	bool is_blocking, is_blocking_full; /* searches wait until they are cancelled */
	bool is_inside;
	unsigned quicks, fulls, refines, founds, cancels;
	uint64_t cost_ns; /* CPU time of a quick search, of a brief one a quarter; mu */
	uint64_t full_cost_ns; /* of one of all seeds; mu */
	struct infer_question asked, full; /* full: the last one of all seeds that tells progress */
	char spec[INFER_SPEC_MAX];
	int found_rc;
	atomic_bool is_followed_meanwhile;
	/* Full searches tell their progress until they are cancelled. */
	atomic_bool is_ticking, is_answering, is_crowded, is_held;
	atomic_uint ticks;
} bed;

static int answer(const struct infer_question *q, int rc, unsigned *count, struct infer_answer *ret)
{
	bool is_blocking;

	mutex_lock(&bed.mu);
	is_blocking = bed.is_blocking || (bed.is_blocking_full && count == &bed.fulls);
	(*count)++;
	bed.asked = *q;
	if (count == &bed.quicks)
		atomic_fetch_add(q->cpu_ns, q->is_first ? bed.cost_ns / 4 : bed.cost_ns);
	bed.is_inside = true;
	cond_broadcast(&bed.changed);
	while (is_blocking && !atomic_load(q->cancel))
		(void)cond_wait_for(&bed.changed, &bed.mu, NS_PER_MS);
	if (is_blocking) {
		bed.cancels++;
		rc = -ECANCELED;
	}
	*ret = bed.answer;
	bed.is_inside = false;
	cond_broadcast(&bed.changed);
	mutex_unlock(&bed.mu);
	return rc;
}

static int fake_quick(const struct infer_question *q, struct infer_answer *ret)
{
	return answer(q, bed.quick_rc, &bed.quicks, ret);
}

static int fake_full(const struct infer_question *q, struct infer_answer *ret)
{
	const struct timespec pause = { .tv_nsec = NS_PER_MS };

	q->progress(q->progress_ctx, 0.37, 120);
	if (!bed.is_ticking)
		return answer(q, bed.full_rc, &bed.fulls, ret);
	mutex_lock(&bed.mu);
	atomic_fetch_add(q->cpu_ns, bed.full_cost_ns);
	bed.full = *q;
	bed.fulls++;
	cond_broadcast(&bed.changed);
	mutex_unlock(&bed.mu);
	while (!atomic_load(q->cancel) && !bed.is_answering) {
		q->progress(q->progress_ctx, 0.37, 120);
		bed.is_held = atomic_load(q->hold);
		bed.ticks++;
		(void)nanosleep(&pause, NULL); /* a search has other things to do, too */
	}
	mutex_lock(&bed.mu);
	*ret = bed.answer;
	bed.cancels += !bed.is_answering;
	cond_broadcast(&bed.changed);
	mutex_unlock(&bed.mu);
	return bed.is_answering ? 0 : -ECANCELED;
}

static int fake_refine(const struct infer_question *q, struct infer_answer *ret)
{
	return answer(q, 0, &bed.refines, ret);
}

static int fake_found(void *ctx, const char *spec, uint64_t stamp)
{
	if (bed.is_followed_meanwhile) {
		infer_note_plan(bed.infer, INFER_PLAN_FOLLOWED);
		CHECK(!infer_is_current(bed.infer, stamp));
		return -ECANCELED;
	}
	CHECK(infer_is_current(bed.infer, stamp));
	mutex_lock(&bed.mu);
	snprintf(bed.spec, sizeof(bed.spec), "%s", spec);
	bed.founds++;
	cond_broadcast(&bed.changed);
	mutex_unlock(&bed.mu);
	return bed.found_rc;
}

static _Atomic uint64_t now_ns;

static uint64_t fake_now(struct clock *clock)
{
	return now_ns;
}

static const char *fake_until(void *ctx)
{
	return bed.is_crowded ? "it is its turn" : NULL;
}

static const struct infer_searches fakes = { fake_quick, fake_full, fake_refine };
static struct clock fake_clock = { fake_now };

/* Samples 9000 and above are below val. */
static bool fake_has(void *ctx, const struct infer_numbering *way, uint32_t sample)
{
	return (strcmp(way->under, "val") == 0) == (sample >= 9000);
}

static const struct infer_numbers fake_numbers = { .has = fake_has };

static void set_up(enum infer_effort effort, const char *told)
{
	struct infer_params p = { .n = N,
				.effort = effort,
				.told = told,
				.world = 16,
				.memory = 16 * (N - 1),
				.threads = 3,
				.clock = &fake_clock,
				.metrics = metrics_new(),
				.searches = &fakes,
				.numbers = &fake_numbers,
				.found = fake_found,
				.waits_until = fake_until };
	struct err err = { 0 };

	memset(&bed, 0, sizeof(bed));
	now_ns = 1;
	mutex_init(&bed.mu);
	cond_init(&bed.changed);
	bed.quick_rc = bed.full_rc = -ENOENT;
	bed.answer = (struct infer_answer){ .seed = 7, .is_likely = true, .world = 1, .n_ranks = 1 };
	bed.metrics = p.metrics;
	CHECK(p.metrics != NULL);
	CHECK_INT(infer_new(&p, &bed.infer, &err), 0);
	CHECK_INT(infer_start(bed.infer, &err), 0);
}

static void tear_down(void)
{
	infer_stop(bed.infer);
	infer_free(bed.infer);
	metrics_free(bed.metrics);
}

static void open_samples(uint32_t first, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		infer_note_open(bed.infer, (first + i) * 7 % N);
}

/* Waits until a counter of the bed has reached a value. */
static void wait_for(const unsigned *count, unsigned want)
{
	mutex_lock(&bed.mu);
	while (*count < want)
		cond_wait(&bed.changed, &bed.mu);
	mutex_unlock(&bed.mu);
}

static struct infer_status status(void)
{
	struct infer_status st;

	infer_get_status(bed.infer, &st);
	return st;
}

/* The answer is settled a moment after the search has given it. */
static void wait_settled(uint64_t searches)
{
	while (status().searches < searches || status().is_searching)
		sched_yield();
}

static void first_opens_are_looked_at(void)
{
	set_up(INFER_QUICK, NULL);
	CHECK_CONTAINS(status().words, "nothing was read yet");
	open_samples(0, 31);
	CHECK_CONTAINS(status().words, "watching the first 31 opens");
	bed.quick_rc = 0;
	open_samples(31, 1);
	wait_for(&bed.founds, 1);
	wait_settled(1);
	CHECK_STR(bed.spec, "torch-distributed:seed=7");
	CHECK_U64(bed.asked.n, N);
	CHECK_U64(bed.asked.n_seen, 32);
	CHECK_U64(bed.asked.world, 16);
	CHECK_U64(bed.asked.threads, 3);
	CHECK(bed.asked.is_first);
	CHECK_STR(status().words, "found torch-distributed:seed=7 after 32 opens (quick)");
	CHECK_STR(status().found, "torch-distributed:seed=7");
	CHECK_U64(status().orders_found, 1);
	tear_down();
}

static void all_seeds_come_last(void)
{
	set_up(INFER_FULL, NULL);
	bed.is_blocking_full = true;
	open_samples(0, 1200);
	wait_for(&bed.fulls, 1);
	CHECK_CONTAINS(status().words, "no order told; looking for one: 37 % of all seeds tried, "
				       "at most 120 s more");
	CHECK(status().is_full);
	CHECK(bed.quicks >= 1);
	tear_down(); /* in the middle of it */
	CHECK_U64(bed.cancels, 1);
	CHECK_U64(bed.founds, 0);
}

static void all_seeds_are_tried_once(void)
{
	set_up(INFER_FULL, NULL);
	open_samples(0, 2000);
	wait_for(&bed.fulls, 1);
	while (status().is_searching || status().searches < bed.quicks + bed.fulls)
		sched_yield();
	open_samples(2000, 3000);
	CHECK_CONTAINS(status().words, "all seeds were tried");
	CHECK_U64(bed.fulls, 1);
	tear_down();
}

static void who_tells_an_order_ends_the_search(void)
{
	set_up(INFER_FULL, NULL);
	bed.is_blocking = true;
	bed.quick_rc = 0;
	open_samples(0, 40);
	wait_for(&bed.quicks, 1);
	infer_note_told(bed.infer, "torch-randperm:seed=5");
	wait_for(&bed.cancels, 1);
	while (status().is_searching)
		sched_yield();
	CHECK_STR(status().words, "the order was told");
	CHECK_U64(bed.founds, 0);
	open_samples(40, 500);
	infer_note_plan(bed.infer, INFER_PLAN_FOLLOWED);
	/* It is wrong: then what was told is a hint. */
	mutex_lock(&bed.mu);
	bed.is_blocking = false;
	mutex_unlock(&bed.mu);
	infer_note_plan(bed.infer, INFER_PLAN_LOST);
	CHECK_U64(bed.quicks, 1);
	open_samples(540, 256);
	wait_for(&bed.founds, 1);
	CHECK_U64(bed.asked.n_hints, 1);
	tear_down();
}

/* A plan that is lost finds its place by itself: what is being looked for is no longer wanted. */
static void an_order_that_is_followed_again_ends_the_search(void)
{
	set_up(INFER_FULL, "torch-randperm:seed=5");
	bed.is_blocking_full = true;
	bed.full_rc = 0;
	infer_note_plan(bed.infer, INFER_PLAN_LOST);
	open_samples(0, 1200);
	wait_for(&bed.fulls, 1);
	infer_note_plan(bed.infer, INFER_PLAN_FOLLOWED);
	wait_for(&bed.cancels, 1);
	while (status().is_searching)
		sched_yield();
	CHECK_STR(status().words, "the order was told");
	/* It was not to the end, so it is made again when it is needed. */
	infer_note_plan(bed.infer, INFER_PLAN_LOST);
	open_samples(1200, 300);
	wait_for(&bed.fulls, 2);
	/* The same when the files turn out to be numbered in another way. */
	infer_note_replaced(bed.infer, "torch-randperm:seed=5:sort=timm");
	wait_for(&bed.cancels, 2);
	tear_down();
	CHECK_U64(bed.founds, 0);
}

/* In the last moment, between the search and the change of the order. */
static void a_finding_gives_way_to_what_is_followed(void)
{
	set_up(INFER_QUICK, "torch-randperm:seed=5");
	bed.quick_rc = 0;
	bed.is_followed_meanwhile = true;
	infer_note_plan(bed.infer, INFER_PLAN_LOST);
	open_samples(0, 300);
	wait_for(&bed.quicks, 1);
	while (status().is_searching)
		sched_yield();
	CHECK_U64(status().orders_found, 0);
	CHECK_STR(status().found, "");
	CHECK_STR(status().words, "the order was told");
	tear_down();
}

static void wait_idle(void)
{
	while (status().is_searching)
		sched_yield();
}

/* One search of all seeds; the opens are a new beginning. */
static void search_after_pause(uint32_t first, unsigned fulls)
{
	now_ns += TRAIL_PAUSE_NS;
	open_samples(first, 300);
	wait_for(&bed.fulls, fulls);
	wait_idle();
}

static void given_up_for_a_while(void)
{
	set_up(INFER_FULL, NULL);
	bed.full_rc = -ENOMEM; /* says nothing about the job */
	search_after_pause(0, 1);
	bed.full_rc = -ENOENT;
	search_after_pause(300, 2);
	search_after_pause(600, 3);
	CHECK_CONTAINS(status().words, "in vain: given up until");
	now_ns += TRAIL_PAUSE_NS;
	open_samples(900, 300);
	wait_idle();
	CHECK_U64(bed.fulls, 3);
	now_ns += JOB_PAUSE_NS; /* another job */
	search_after_pause(1200, 4);
	search_after_pause(1500, 5);
	CHECK_CONTAINS(status().words, "given up");
	infer_note_told(bed.infer, "torch-randperm:seed=5");
	infer_note_plan(bed.infer, INFER_PLAN_LOST);
	now_ns += TRAIL_PAUSE_NS;
	open_samples(1800, 600);
	wait_for(&bed.fulls, 6);
	tear_down();
}

/* Two whole rounds of a full search's progress later. */
static void wait_ticks(void)
{
	unsigned want = bed.ticks + 2;

	while ((int)(bed.ticks - want) < 0)
		sched_yield();
}

static void begin_ticking(void)
{
	set_up(INFER_FULL, NULL);
	bed.is_ticking = true;
	open_samples(0, 300);
	wait_for(&bed.fulls, 1);
	wait_ticks();
}

/* Which search is cancelled then, for nobody waits for its end. */
static void a_new_pass_is_asked_about_at_once(void)
{
	unsigned quicks;

	begin_ticking();
	mutex_lock(&bed.mu);
	quicks = bed.quicks;
	bed.quick_rc = 0;
	mutex_unlock(&bed.mu);
	open_samples(0, 20); /* again, but too few */
	wait_ticks();
	CHECK_U64(bed.quicks, quicks);
	open_samples(20, 80);
	wait_for(&bed.founds, 1);
	wait_for(&bed.cancels, 1);
	wait_idle();
	CHECK_STR(bed.spec, "torch-distributed:seed=7");
	CHECK_CONTAINS(status().words, "found torch-distributed:seed=7");
	CHECK_U64(bed.fulls, 1);
	CHECK_U64(status().orders_found, 1);
	tear_down();
}

/* In vain: the search goes on where it was. */
static void a_search_goes_on_behind_cheap_questions(void)
{
	unsigned quicks;

	begin_ticking();
	mutex_lock(&bed.mu);
	quicks = bed.quicks;
	mutex_unlock(&bed.mu);
	open_samples(0, 100);
	wait_for(&bed.quicks, quicks + 1);
	wait_ticks();
	CHECK_U64(bed.asked.n_seen >= 32, 1);
	CHECK(bed.asked.seen != bed.full.seen && bed.asked.places != bed.full.places);
	CHECK(bed.asked.way != bed.full.way); /* which that search has not done with */
	CHECK_U64(bed.cancels, 0);
	CHECK(status().is_full && !bed.is_held);
	CHECK_CONTAINS(status().words, "37 % of all seeds tried");
	infer_note_told(bed.infer, "torch-randperm:seed=5");
	wait_for(&bed.cancels, 1);
	wait_idle();
	tear_down();
	CHECK_U64(bed.founds, 0);
}

/* In the midst of a search of all seeds it turns out that the job reads some samples only: there is another one,
 * of the numbers of these, and what the first one took is weighed, as it was not to its end. */
static void a_search_of_the_wrong_numbers_is_made_again(void)
{
	set_up(INFER_FULL, NULL);
	bed.full_cost_ns = 7 * NS_PER_S;
	bed.is_ticking = true;
	open_samples(0, 300);
	wait_for(&bed.fulls, 1);
	CHECK_U64(status().vain_cpu_s, 0);
	mutex_lock(&bed.mu);
	bed.answer.is_narrow = true;
	bed.full_cost_ns = 0;
	mutex_unlock(&bed.mu);
	open_samples(300, 900); /* which has a look */
	wait_for(&bed.fulls, 2);
	CHECK_U64(status().vain_cpu_s, 7);
	CHECK_U64(bed.founds, 0);
	tear_down();
}

static void what_is_cancelled_is_weighed(void)
{
	set_up(INFER_FULL, NULL);
	bed.full_cost_ns = 7 * NS_PER_S;
	bed.is_ticking = true;
	for (unsigned i = 1; i <= 2; i++) {
		infer_note_plan(bed.infer, INFER_PLAN_LOST);
		open_samples(i * 300, 300);
		wait_for(&bed.fulls, i);
		CHECK_U64(status().vain_cpu_s, 7 * (i - 1));
		infer_note_plan(bed.infer, INFER_PLAN_FOLLOWED);
		wait_for(&bed.cancels, i);
		wait_idle();
	}
	CHECK_U64(status().vain_cpu_s, 14);
	/* Another job does not pay for that. */
	infer_note_plan(bed.infer, INFER_PLAN_LOST);
	open_samples(900, 300);
	wait_for(&bed.fulls, 3);
	now_ns++;
	infer_note_told(bed.infer, "torch-randperm:seed=5");
	wait_for(&bed.cancels, 3);
	wait_idle();
	CHECK_U64(status().vain_cpu_s, 0);
	tear_down();
}

/* The seed of a pass that is over, behind which this one's is looked for when it does not follow. */
static void a_finding_for_the_last_pass_helps_in_this_one(void)
{
	unsigned quicks;

	begin_ticking();
	mutex_lock(&bed.mu);
	quicks = bed.quicks;
	bed.answer = (struct infer_answer){
		.is_chain = true, .manual_seed = 42, .word = 1000, .world = 1, .n_ranks = 1
	};
	mutex_unlock(&bed.mu);
	open_samples(0, 1200);
	wait_for(&bed.quicks, quicks + 1);
	wait_ticks();
	bed.is_answering = true;
	wait_for(&bed.founds, 1);
	wait_idle();
	CHECK_STR(bed.spec, "torch-loader:seed=42:before=997");
	mutex_lock(&bed.mu);
	quicks = bed.quicks;
	mutex_unlock(&bed.mu);
	infer_note_plan(bed.infer, INFER_PLAN_LOST);
	open_samples(1200, 64);
	wait_for(&bed.quicks, quicks + 1);
	wait_idle();
	CHECK_U64(bed.asked.n_places, 1);
	CHECK(!bed.asked.no_streams);
	tear_down();
}

static void a_search_waits_while_nothing_is_opened(void)
{
	begin_ticking();
	CHECK(!bed.is_held && !status().is_held);
	now_ns += 9 * NS_PER_S;
	wait_ticks();
	CHECK(!bed.is_held);
	now_ns += NS_PER_S;
	wait_ticks();
	CHECK(bed.is_held && status().is_held);
	CHECK_CONTAINS(status().words, "37 % of all seeds tried, waiting until samples are opened");
	open_samples(300, 1);
	wait_ticks();
	CHECK(!bed.is_held && !status().is_held);
	now_ns += 300 * NS_PER_S; /* that job is gone */
	wait_for(&bed.cancels, 1);
	wait_idle();
	CHECK_U64(bed.fulls, 1);
	tear_down();
}

static void a_search_waits_as_long_as_it_is_told_to(void)
{
	begin_ticking();
	bed.is_crowded = true;
	wait_ticks();
	CHECK(bed.is_held && status().is_held);
	CHECK_CONTAINS(status().words, "37 % of all seeds tried, waiting until it is its turn");
	bed.is_crowded = false;
	wait_ticks();
	CHECK(!bed.is_held);
	bed.is_crowded = true;
	wait_ticks();
	tear_down(); /* a search that is held ends, too */
	CHECK_U64(bed.cancels, 1);
}

/* A job that is none of those that are found, for fifty passes of ten minutes. */
static void searches_in_vain_become_rare_and_cheap(void)
{
	uint64_t limit;

	set_up(INFER_QUICK, NULL);
	bed.cost_ns = 5 * NS_PER_S;
	open_samples(0, 32);
	wait_settled(1);
	CHECK(!bed.asked.is_modest && !bed.asked.is_idle);
	open_samples(32, 64);
	wait_settled(2);
	CHECK_U64(status().vain_cpu_s, 0);
	open_samples(96, 160); /* one at the likeliest hypotheses only */
	wait_settled(3);
	CHECK(bed.asked.is_first && bed.asked.is_modest && !bed.asked.is_idle);
	CHECK_U64((uint64_t)(status().vain_cpu_s * 100), 125);
	open_samples(256, 1000);
	wait_idle();
	CHECK(status().is_saving);
	CHECK_CONTAINS(status().words, "no likely order among 3 searches (recover=full tries all "
				       "seeds); the next one when they take less than 1 % of the "
				       "job's time");
	for (uint32_t i = 1256; i < 50 * N; i++) {
		now_ns += 600 * NS_PER_S / N;
		infer_note_open(bed.infer, (uint32_t)(i * 7ull % N));
		if (i % 100 == 0)
			wait_idle();
	}
	wait_idle();
	limit = now_ns / 100 * 3 + 2 * NS_PER_S + 5 * NS_PER_S;
	CHECK((uint64_t)(status().vain_cpu_s * 1e9) <= limit);
	CHECK(bed.asked.is_idle || bed.asked.is_first);
	CHECK(status().job_s > 29000);
	CHECK(bed.quicks <= 3 + 4 * 10); /* of fifty passes with four numbers of opens each */
	CHECK(bed.quicks >= 6);
	tear_down();
}

static void no_order_means_none(void)
{
	set_up(INFER_FULL, NULL);
	infer_note_told(bed.infer, NULL);
	open_samples(0, 3000);
	CHECK_STR(status().words, "told to follow no order");
	tear_down();
	CHECK_U64(bed.quicks + bed.fulls, 0);
}

static void an_order_that_cannot_be_followed_is_not_said_to_be_found(void)
{
	set_up(INFER_QUICK, NULL);
	bed.quick_rc = 0;
	bed.found_rc = -ENOMEM;
	open_samples(0, 40);
	wait_for(&bed.founds, 1);
	wait_settled(1);
	CHECK_U64(status().orders_found, 0);
	CHECK_STR(status().found, "");
	tear_down();
}

static void off_is_off(void)
{
	set_up(INFER_OFF, NULL);
	open_samples(0, 5000);
	CHECK_STR(status().words, "not looking for orders (recover=off)");
	tear_down();
	CHECK_U64(bed.quicks + bed.fulls, 0);
}

/* A few dozen opens fitted one rank; with more it is four of eight. */
static void the_world_may_change(void)
{
	set_up(INFER_QUICK, NULL);
	bed.quick_rc = 0;
	open_samples(0, 32);
	wait_for(&bed.founds, 1);
	wait_settled(1);
	infer_note_plan(bed.infer, INFER_PLAN_FOLLOWED);
	mutex_lock(&bed.mu);
	bed.answer.world = 8;
	bed.answer.n_ranks = 4;
	memcpy(bed.answer.rank, (uint32_t[]){ 4, 5, 6, 7 }, 16);
	mutex_unlock(&bed.mu);
	open_samples(32, 200);
	wait_for(&bed.founds, 2);
	CHECK_STR(bed.spec, "torch-distributed:seed=7:world=8:ranks=4-7");
	CHECK_U64(bed.asked.seed, 7);
	tear_down();
}

static void open_in_turn(uint32_t first, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		infer_note_open(bed.infer, first + i);
}

/* A job looks at its validation set, and then reads the other one; between the epochs it validates.
 */
static void a_part_that_is_left_is_no_longer_followed(void)
{
	set_up(INFER_QUICK, NULL);
	bed.quick_rc = 0;
	bed.answer = (struct infer_answer){ .spec = "sequential", .n = 1000, .way.under = "val" };
	open_in_turn(9000, 64);
	wait_for(&bed.founds, 1);
	wait_settled(1);
	CHECK_STR(bed.spec, "sequential:under=val");
	CHECK_CONTAINS(status().words, "; the job reads the 1000 samples below val/, of 10000");
	infer_note_plan(bed.infer, INFER_PLAN_FOLLOWED);
	mutex_lock(&bed.mu);
	bed.quick_rc = -ENOENT;
	mutex_unlock(&bed.mu);
	open_in_turn(0, 40);
	wait_settled(2);
	CHECK_CONTAINS(status().words, "reads have left the part that the order is of");
	CHECK(bed.asked.n_seen >= PART_OPENS && bed.asked.n_seen <= 40);
	mutex_lock(&bed.mu);
	bed.quick_rc = 0;
	bed.answer = (struct infer_answer){
		.seed = 7, .is_likely = true, .world = 1, .n_ranks = 1, .n = 9000
	};
	strcpy(bed.answer.way.under, "train");
	mutex_unlock(&bed.mu);
	open_in_turn(40, 100);
	wait_for(&bed.founds, 2);
	wait_settled(3);
	CHECK_STR(bed.spec, "torch-distributed:seed=7:under=train");
	infer_note_plan(bed.infer, INFER_PLAN_FOLLOWED);
	for (int epoch = 0; epoch < 2; epoch++) {
		open_in_turn(1000, 8000);
		open_in_turn(9000, 1000);
	}
	CHECK_U64(status().orders_found, 2);
	CHECK_CONTAINS(status().words, "below train/, of 10000");
	tear_down();
}

/* Nobody may hold up the opens, whatever the searches do; and samples that do not exist are no
 * opens. */
static void what_takes_too_much_memory_is_left_out(void)
{
	set_up(INFER_QUICK, NULL); /* memory for 9999 samples, there are 10000 */
	open_samples(0, 40);
	wait_for(&bed.quicks, 1);
	CHECK(bed.asked.no_kinds);
	tear_down();
}

static void hostile_opens(void)
{
	set_up(INFER_FULL, NULL);
	bed.is_blocking = true;
	for (uint32_t i = 0; i < 100000; i++)
		infer_note_open(bed.infer, i * 2654435761u);
	infer_note_open(bed.infer, UINT32_MAX);
	infer_note_open(bed.infer, N);
	tear_down();
}

static void a_job_that_has_ended_is_said_and_found_again(void)
{
	set_up(INFER_QUICK, NULL);
	bed.quick_rc = 0;
	open_samples(0, 32);
	wait_for(&bed.founds, 1);
	wait_settled(1);
	infer_note_plan(bed.infer, INFER_PLAN_FOLLOWED);
	open_samples(32, 500);
	infer_note_gone(bed.infer, "its processes are gone");
	infer_note_plan(bed.infer, INFER_PLAN_NONE);
	CHECK_CONTAINS(status().words, "the job that read torch-distributed:seed=7 has ended: its "
				       "processes are gone; nothing was read yet");
	CHECK_STR(status().found, "");
	open_samples(0, 31);
	CHECK_U64(bed.quicks, 1);
	open_samples(31, 1); /* though these were read by the other one */
	wait_for(&bed.founds, 2);
	wait_settled(2);
	CHECK_U64(bed.asked.n_seen, 32);
	CHECK_U64(bed.asked.hints[0], 7);
	CHECK(!strstr(status().words, "has ended"));
	tear_down();
}

static void what_was_of_several_jobs_is_forgotten(void)
{
	set_up(INFER_FULL, NULL);
	bed.is_blocking_full = true;
	open_samples(0, 1200);
	wait_for(&bed.fulls, 1);
	infer_note_apart(bed.infer);
	wait_for(&bed.cancels, 1);
	wait_idle();
	CHECK_CONTAINS(status().words, "nothing was read yet");
	tear_down();
}

/* The other ranks were found by another finder. */
static void ranks_may_be_added(void)
{
	struct infer_answer more;

	set_up(INFER_QUICK, NULL);
	bed.quick_rc = 0;
	bed.answer.world = 4;
	CHECK(!infer_get_answer(bed.infer, &more));
	CHECK(!infer_add_ranks(bed.infer, &bed.answer)); /* nothing is found yet */
	open_samples(0, 32);
	wait_for(&bed.founds, 1);
	wait_settled(1);
	CHECK(infer_get_answer(bed.infer, &more));
	CHECK_U64(more.world, 4);
	CHECK(!infer_add_ranks(bed.infer, &more));
	more.rank[0] = 2;
	CHECK(infer_add_ranks(bed.infer, &more));
	wait_for(&bed.founds, 2);
	CHECK_STR(bed.spec, "torch-distributed:seed=7:world=4:ranks=0+2");
	tear_down();
}

static const struct check_test tests[] = {
	{ "a_job_that_has_ended_is_said_and_found_again",
	  a_job_that_has_ended_is_said_and_found_again },
	{ "what_was_of_several_jobs_is_forgotten", what_was_of_several_jobs_is_forgotten },
	{ "ranks_may_be_added", ranks_may_be_added },
	{ "first_opens_are_looked_at", first_opens_are_looked_at },
	{ "all_seeds_come_last", all_seeds_come_last },
	{ "all_seeds_are_tried_once", all_seeds_are_tried_once },
	{ "who_tells_an_order_ends_the_search", who_tells_an_order_ends_the_search },
	{ "an_order_that_is_followed_again_ends_the_search",
	  an_order_that_is_followed_again_ends_the_search },
	{ "a_finding_gives_way_to_what_is_followed", a_finding_gives_way_to_what_is_followed },
	{ "given_up_for_a_while", given_up_for_a_while },
	{ "a_new_pass_is_asked_about_at_once", a_new_pass_is_asked_about_at_once },
	{ "a_search_goes_on_behind_cheap_questions", a_search_goes_on_behind_cheap_questions },
	{ "a_search_of_the_wrong_numbers_is_made_again",
	  a_search_of_the_wrong_numbers_is_made_again },
	{ "what_is_cancelled_is_weighed", what_is_cancelled_is_weighed },
	{ "a_finding_for_the_last_pass_helps_in_this_one",
	  a_finding_for_the_last_pass_helps_in_this_one },
	{ "a_search_waits_while_nothing_is_opened", a_search_waits_while_nothing_is_opened },
	{ "a_search_waits_as_long_as_it_is_told_to", a_search_waits_as_long_as_it_is_told_to },
	{ "searches_in_vain_become_rare_and_cheap", searches_in_vain_become_rare_and_cheap },
	{ "no_order_means_none", no_order_means_none },
	{ "an_order_that_cannot_be_followed_is_not_said_to_be_found",
	  an_order_that_cannot_be_followed_is_not_said_to_be_found },
	{ "off_is_off", off_is_off },
	{ "the_world_may_change", the_world_may_change },
	{ "what_takes_too_much_memory_is_left_out", what_takes_too_much_memory_is_left_out },
	{ "a_part_that_is_left_is_no_longer_followed", a_part_that_is_left_is_no_longer_followed },
	{ "hostile_opens", hostile_opens },
};

CHECK_MAIN(tests)
