/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several jobs that read at the same time, each in an order of its own: all are followed, one that
 * goes leaves the others alone, one that tells its next order is not another one, and nothing is
 * lost or read wrongly while they come and go.
 */
#include <stdio.h>

#include "cache_rig.h"
#include "probe_kit.h"
#include "src/cache/cache_priv.h"

#define MIB (1u << 20)
enum { N = 600, SIZE = 4000, ROOM = 150 };

static struct order_epoch *make_epoch(struct rig *rig, const char *text)
{
	struct order *order = rig_order(rig->options.n, text);
	struct order_epoch *ep;
	struct err err = { 0 };

	CHECK_INT(order_epoch_new(order, 0, &ep, &err), 0);
	order_free(order);
	return ep;
}

/* A quarter of the samples fit. */
static struct rig *small_rig(void)
{
	return rig_new(&(struct rig_options){ .n = N,
					      .size = SIZE,
					      .arena_limit = 16 * MIB,
					      .arena_bytes = ROOM * 4096,
					      .stage_bytes = ROOM * 4096 / 2 });
}

static uint32_t add(struct rig *rig, const char *text, uint32_t instead_of)
{
	uint32_t id = DRIVE_NO_JOB;

	CHECK_INT(drive_add_order(rig->drive, rig_order(rig->options.n, text), instead_of, &id), 0);
	CHECK(id != DRIVE_NO_JOB);
	return id;
}

/* False: it is not at work. */
static bool find(struct rig *rig, uint32_t id, struct drive_job *ret)
{
	struct drive_job jobs[PLAN_JOBS];
	uint32_t n = drive_get_jobs(rig->drive, jobs);

	for (uint32_t i = 0; i < n; i++)
		if (jobs[i].id == id)
			*ret = jobs[i];
	for (uint32_t i = 0; i < n; i++)
		if (jobs[i].id == id)
			return true;
	return false;
}

static struct plan_status of(struct rig *rig, uint32_t id)
{
	struct drive_job job;

	CHECK(find(rig, id, &job));
	return job.plan;
}

static uint32_t n_jobs(struct rig *rig)
{
	struct drive_job jobs[PLAN_JOBS];

	return drive_get_jobs(rig->drive, jobs);
}

static uint64_t opened(struct rig *rig)
{
	struct drive_status st;

	drive_get_status(rig->drive, &st);
	return st.plan.opened;
}

static bool is_staged(struct rig *rig, uint32_t sample)
{
	return rig_count(rig, RIG_STORE, sample) > 0;
}

/* As readers do that wait for what they read; the planner comes along. What the kernel has it does
 * not ask for: a READ of that would say that it drops what is pushed, and pushing pauses. */
static void read_some(struct rig *rig, const struct order_epoch *ep, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++) {
		uint64_t before = opened(rig);

		cache_note_open(rig->cache, (struct entry_id){ ep->sample[i] });
		if (rig_count(rig, RIG_STORE, ep->sample[i]) <=
		    rig_count(rig, RIG_INVAL, ep->sample[i]))
			rig_read_check(rig, ep->sample[i], 0, 8192);
		RIG_UNTIL(i % 8 || opened(rig) > before);
	}
}

/* So many of its reads were where they belong. */
static bool is_followed(struct rig *rig, uint32_t id, uint64_t reads)
{
	struct plan_status st = of(rig, id);

	/* Where two jobs are about to read the same sample, the wrong one may get it. */
	return st.state == PLAN_FOLLOWING && st.placed + reads / 10 >= reads &&
	       st.placed <= reads + reads / 10;
}

static const char *const one = "torch-randperm:seed=1:batch=4:workers=2",
			 *const two = "torch-randperm:seed=2:batch=4:workers=2",
			 *const five = "torch-randperm:seed=5:batch=4:workers=2";

struct pair {
	struct rig *rig;
	struct order_epoch *ep[2];
	uint32_t id[2];
};

/* Two jobs, `upto` samples read by each in turn. */
static struct pair pair_new(uint32_t upto)
{
	struct pair p = { .rig = small_rig() };

	p.ep[0] = make_epoch(p.rig, one);
	p.ep[1] = make_epoch(p.rig, two);
	p.id[0] = add(p.rig, one, DRIVE_NO_JOB);
	p.id[1] = add(p.rig, two, DRIVE_NO_JOB);
	CHECK(p.id[0] != p.id[1]);
	for (uint32_t i = 0; i < upto; i++) {
		read_some(p.rig, p.ep[0], i, i + 1);
		read_some(p.rig, p.ep[1], i, i + 1);
	}
	return p;
}

static void pair_free(struct pair *p)
{
	order_epoch_free(p->ep[0]);
	order_epoch_free(p->ep[1]);
	rig_free(p->rig);
}

static void both_jobs_are_prefetched_for_and_followed(void)
{
	struct pair p = pair_new(0);
	struct drive_status st;

	for (uint32_t i = 0; i < 2; i++)
		RIG_UNTIL(is_staged(p.rig, p.ep[i]->sample[0]) &&
			  is_staged(p.rig, p.ep[i]->sample[5]));
	for (uint32_t i = 0; i < 300; i++)
		for (uint32_t j = 0; j < 2; j++)
			read_some(p.rig, p.ep[j], i, i + 1);
	for (uint32_t j = 0; j < 2; j++) {
		RIG_UNTIL(is_followed(p.rig, p.id[j], 300));
		RIG_UNTIL(is_staged(p.rig, p.ep[j]->sample[305]));
		CHECK(of(p.rig, p.id[j]).mismatches <= 4);
	}
	drive_get_status(p.rig->drive, &st);
	CHECK_U64(st.n_jobs, 2);
	CHECK_U64(st.plan.position, of(p.rig, p.id[0]).position);
	pair_free(&p);
}

static void job_that_ends_leaves_the_other_alone(void)
{
	struct pair p = pair_new(100);
	uint32_t id = p.id[1];

	CHECK_INT(drive_end_order(p.rig->drive, p.id[0], NULL), 0);
	CHECK_INT(drive_end_order(p.rig->drive, p.id[0], NULL), -ENOENT);
	CHECK_U64(n_jobs(p.rig), 1);
	read_some(p.rig, p.ep[1], 100, 300);
	RIG_UNTIL(is_followed(p.rig, id, 300));
	/* The first place of the plan is another one's now. */
	p.id[0] = add(p.rig, "torch-randperm:seed=3", DRIVE_NO_JOB);
	RIG_UNTIL(of(p.rig, p.id[0]).state == PLAN_WAITING);
	RIG_UNTIL(is_followed(p.rig, id, 300));
	CHECK_INT(drive_end_order(p.rig->drive, p.id[0], NULL), 0);
	CHECK_INT(drive_end_order(p.rig->drive, id, NULL), 0);
	RIG_UNTIL(n_jobs(p.rig) == 0);
	pair_free(&p);
}

static bool is_dropped(struct rig *rig, uint32_t sample)
{
	return rig_count(rig, RIG_INVAL, sample) > 0;
}

/* What was pushed and not read is given back. */
static void what_waits_for_the_only_job_is_given_back(void)
{
	struct rig *rig = small_rig();
	struct order_epoch *ep = make_epoch(rig, one);
	uint32_t id = add(rig, one, DRIVE_NO_JOB);
	struct drive_status st;

	read_some(rig, ep, 0, 40);
	RIG_UNTIL(is_staged(rig, ep->sample[45]));
	RIG_UNTIL(is_followed(rig, id, 40));
	CHECK_INT(drive_end_order(rig->drive, id, "it is gone"), 0);
	RIG_UNTIL(is_dropped(rig, ep->sample[45]));
	CHECK(!is_dropped(rig, ep->sample[N - 1])); /* which was never pushed */
	drive_get_status(rig->drive, &st);
	CHECK_U64(st.n_jobs, 0);
	CHECK_U64(st.plan.stage_bytes, 0);
	CHECK_STR(st.plan.why, "it is gone");
	CHECK_INT(rig_read_check(rig, ep->sample[45], 0, 8192), READ_ARENA); /* until room is needed */
	order_epoch_free(ep);
	rig_free(rig);
}

static void next_order_of_a_job_replaces_its_own_only(void)
{
	struct pair p = pair_new(100);
	struct drive_job jobs[PLAN_JOBS];
	uint32_t next = add(p.rig, five, p.id[0]);
	struct order_epoch *ep = make_epoch(p.rig, five);

	CHECK_U64(drive_get_jobs(p.rig->drive, jobs), 2);
	CHECK_U64(jobs[0].id, next); /* it is the first still */
	CHECK_U64(jobs[1].id, p.id[1]);
	CHECK_U64(drive_generation(p.rig->drive), next);
	RIG_UNTIL(is_followed(p.rig, p.id[1], 100));
	RIG_UNTIL(is_staged(p.rig, ep->sample[0]));
	for (uint32_t i = 0; i < 100; i++) {
		read_some(p.rig, ep, i, i + 1);
		read_some(p.rig, p.ep[1], 100 + i, 101 + i);
	}
	RIG_UNTIL(is_followed(p.rig, next, 100));
	RIG_UNTIL(is_followed(p.rig, p.id[1], 200));
	order_epoch_free(ep);
	pair_free(&p);
}

static void next_order_of_the_only_job_is_the_only_order(void)
{
	struct rig *rig = small_rig();
	uint32_t id = add(rig, one, DRIVE_NO_JOB), next = add(rig, two, id);

	CHECK_U64(next, id + 1);
	CHECK_U64(n_jobs(rig), 1);
	RIG_UNTIL(of(rig, next).state == PLAN_WAITING);
	/* One that is not at work any more is nobody's place. */
	id = add(rig, one, id);
	CHECK_U64(n_jobs(rig), 2);
	CHECK_INT(drive_set_order(rig->drive, rig_order(rig->options.n, two)), 0);
	CHECK_U64(n_jobs(rig), 1);
	CHECK_U64(drive_generation(rig->drive), id + 1);
	rig_free(rig);
}

static void job_that_has_read_all_of_it_leaves(void)
{
	struct rig *rig = small_rig();
	const char *once = "torch-randperm:seed=2:epochs=1:batch=4:workers=2";
	struct order_epoch *first = make_epoch(rig, one), *ep = make_epoch(rig, once);
	uint32_t id = add(rig, one, DRIVE_NO_JOB), short_id = add(rig, once, DRIVE_NO_JOB);
	struct drive_job job;

	for (uint32_t i = 0; i < N; i++) {
		read_some(rig, ep, i, i + 1);
		if (i < N / 2)
			read_some(rig, first, i, i + 1);
	}
	RIG_UNTIL(!find(rig, short_id, &job));
	read_some(rig, first, N / 2, N / 2 + 50);
	RIG_UNTIL(is_followed(rig, id, N / 2 + 50));
	order_epoch_free(first);
	order_epoch_free(ep);
	rig_free(rig);
}

static void no_more_jobs_than_there_is_room_for(void)
{
	struct rig *rig = small_rig();
	uint32_t ids[PLAN_JOBS], id;
	uint64_t until = rig_deadline();
	char text[64];

	for (uint32_t i = 0; i < PLAN_JOBS; i++) {
		snprintf(text, sizeof(text), "torch-randperm:seed=%u", i);
		ids[i] = add(rig, text, DRIVE_NO_JOB);
		/* Until its epoch is there its place cannot be another one's. */
		RIG_UNTIL(of(rig, ids[i]).length == N);
	}
	CHECK_INT(drive_add_order(rig->drive, rig_order(rig->options.n, one), DRIVE_NO_JOB, &id), -ENOSPC);
	CHECK_U64(n_jobs(rig), PLAN_JOBS);
	CHECK_INT(drive_end_order(rig->drive, ids[0], NULL), 0);
	CHECK_U64(n_jobs(rig), PLAN_JOBS - 1);
	while (n_jobs(rig) < PLAN_JOBS) { /* or an epoch of it is being computed still */
		int rc = drive_add_order(rig->drive, rig_order(rig->options.n, one), DRIVE_NO_JOB, &id);

		CHECK(rc == 0 || rc == -ENOSPC);
		CHECK(rig_pause(until));
	}
	rig_free(rig);
}

/* Its first reads came while another job was followed. */
static void job_that_tells_its_order_late_is_followed_at_once(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 1500,
							 .size = 100,
							 .arena_limit = 16 * MIB,
							 .arena_bytes = 1 * MIB,
							 .stage_bytes = MIB / 4 });
	struct order_epoch *ep[2] = { make_epoch(rig, one), make_epoch(rig, two) };
	uint32_t id[2] = { add(rig, one, DRIVE_NO_JOB), 0 };

	for (uint32_t i = 0; i < 500; i++)
		for (uint32_t j = 0; j < 2; j++)
			read_some(rig, ep[j], i, i + 1);
	id[1] = add(rig, two, DRIVE_NO_JOB);
	RIG_UNTIL(is_followed(rig, id[1], 500));
	RIG_UNTIL(is_staged(rig, ep[1]->sample[505]));
	CHECK(of(rig, id[0]).state != PLAN_LOST);
	for (uint32_t i = 500; i < 700; i++)
		for (uint32_t j = 0; j < 2; j++)
			read_some(rig, ep[j], i, i + 1);
	RIG_UNTIL(is_followed(rig, id[0], 700) && is_followed(rig, id[1], 700));
	for (uint32_t j = 0; j < 2; j++)
		order_epoch_free(ep[j]);
	rig_free(rig);
}

/* --- what is told of reads --- */

struct told {
	struct mutex mu;
	uint32_t n, placed[2], wrong; /* mu */
	uint32_t id[2];
	struct order_epoch *ep[2];
};

static void on_read(void *ctx, const struct read_facts *notes, uint32_t n)
{
	struct told *t = ctx;

	mutex_lock(&t->mu);
	t->n += n;
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t j = 0; j < 2 && notes[i].has_use; j++) {
			if (notes[i].generation != t->id[j])
				continue;
			t->placed[j]++;
			t->wrong += t->ep[j]->sample[notes[i].use.position] != notes[i].unit.v;
		}
	mutex_unlock(&t->mu);
}

static uint32_t n_told(struct told *t)
{
	uint32_t n;

	mutex_lock(&t->mu);
	n = t->n;
	mutex_unlock(&t->mu);
	return n;
}

/* No job's reads are taken for another's: each has its place in the order of its own. */
static void reads_are_told_with_the_job_they_are_of(void)
{
	struct told t = { .n = 0 };
	struct probe probe = probe_kit(&t, on_read, NULL);
	struct rig *rig = rig_new(
		&(struct rig_options){ .n = N, .size = SIZE, .probe = &probe });

	mutex_init(&t.mu);
	t.ep[0] = make_epoch(rig, one);
	t.ep[1] = make_epoch(rig, two);
	t.id[0] = add(rig, one, DRIVE_NO_JOB);
	t.id[1] = add(rig, two, DRIVE_NO_JOB);
	for (uint32_t i = 0; i < 200; i++)
		for (uint32_t j = 0; j < 2; j++)
			read_some(rig, t.ep[j], i, i + 1);
	RIG_UNTIL(n_told(&t) >= 350); /* one that both read within a second is told once */
	drive_stop(rig->drive); /* nothing is told any more */
	CHECK_U64(t.wrong, 0);
	for (uint32_t j = 0; j < 2; j++)
		CHECK(t.placed[j] >= 120 && t.placed[j] <= 220);
	order_epoch_free(t.ep[0]);
	order_epoch_free(t.ep[1]);
	rig_free(rig);
	mutex_fini(&t.mu);
}

/* --- load --- */

struct reader {
	struct thr thr;
	struct rig *rig;
	uint64_t seed;
	_Atomic bool *is_over;
	uint64_t n_reads;
};

static void *read_on(void *arg)
{
	struct reader *r = arg;
	uint64_t state = r->seed;

	while (!atomic_load(r->is_over) || r->n_reads < 20) {
		uint32_t sample = (uint32_t)check_rand_below(&state, r->rig->options.n);

		cache_note_open(r->rig->cache, (struct entry_id){ sample });
		rig_read_check(r->rig, sample, check_rand_below(&state, 4) * 4096, 65536);
		r->n_reads++;
	}
	return NULL;
}

static void come_and_go(struct rig *rig, uint64_t seed, uint32_t times)
{
	uint32_t ids[PLAN_JOBS] = { 0 };
	uint64_t state = seed;
	char text[64];

	for (uint32_t i = 0; i < times; i++) {
		uint32_t k = (uint32_t)check_rand_below(&state, PLAN_JOBS), id;
		uint64_t what = check_rand_below(&state, 10);
		int rc = 0;

		snprintf(text, sizeof(text), "torch-distributed:seed=%u:epochs=%u", i, 1 + i % 3);
		if (what == 0)
			rc = drive_set_order(rig->drive, rig_order(rig->options.n, text));
		else if (what < 4)
			rc = drive_end_order(rig->drive, ids[k], NULL);
		else
			rc = drive_add_order(rig->drive, rig_order(rig->options.n, text),
					     what < 7 ? ids[k] : DRIVE_NO_JOB, &id);
		if (what >= 4 && rc == 0)
			ids[k] = id;
		CHECK(rc == 0 || rc == -ENOSPC || rc == -ENOENT);
		rig_read_check(rig, i % rig->options.n, 0, 131072);
	}
}

static void jobs_come_and_go_under_load(void)
{
	uint64_t seed = check_seed();
	struct rig *rig = rig_new(&(struct rig_options){ .n = 120,
							 .size = 30000,
							 .arena_limit = 6 * MIB,
							 .arena_bytes = 1 * MIB,
							 .stage_bytes = 1 * MIB,
							 .has_store = true });
	struct reader readers[3] = { 0 };
	_Atomic bool is_over = false;
	struct err err = { 0 };

	for (uint32_t i = 0; i < ARRAY_LEN(readers); i++) {
		readers[i] = (struct reader){ .rig = rig, .seed = seed + i, .is_over = &is_over };
		CHECK_INT(thr_start(&readers[i].thr, "reader", read_on, &readers[i], &err), 0);
	}
	come_and_go(rig, seed, 150);
	atomic_store(&is_over, true);
	for (uint32_t i = 0; i < ARRAY_LEN(readers); i++)
		thr_join(&readers[i].thr);
	rig_free(rig); /* checks that the arena is empty then */
}

static void stopped_with_jobs_at_work(void)
{
	struct pair p = pair_new(10);
	uint32_t id;

	drive_stop(p.rig->drive);
	CHECK_INT(drive_add_order(p.rig->drive, rig_order(p.rig->options.n, one), DRIVE_NO_JOB, &id),
		  -ECANCELED);
	CHECK_INT(drive_end_order(p.rig->drive, p.id[0], NULL), -ECANCELED);
	pair_free(&p);
}

static const struct check_test tests[] = {
	{ "both_jobs_are_prefetched_for_and_followed", both_jobs_are_prefetched_for_and_followed },
	{ "what_waits_for_the_only_job_is_given_back", what_waits_for_the_only_job_is_given_back },
	{ "job_that_ends_leaves_the_other_alone", job_that_ends_leaves_the_other_alone },
	{ "next_order_of_a_job_replaces_its_own_only", next_order_of_a_job_replaces_its_own_only },
	{ "next_order_of_the_only_job_is_the_only_order",
	  next_order_of_the_only_job_is_the_only_order },
	{ "job_that_has_read_all_of_it_leaves", job_that_has_read_all_of_it_leaves },
	{ "no_more_jobs_than_there_is_room_for", no_more_jobs_than_there_is_room_for },
	{ "job_that_tells_its_order_late_is_followed_at_once",
	  job_that_tells_its_order_late_is_followed_at_once },
	{ "reads_are_told_with_the_job_they_are_of", reads_are_told_with_the_job_they_are_of },
	{ "jobs_come_and_go_under_load", jobs_come_and_go_under_load },
	{ "stopped_with_jobs_at_work", stopped_with_jobs_at_work },
};
CHECK_MAIN(tests)
