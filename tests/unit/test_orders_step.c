/* SPDX-License-Identifier: Apache-2.0 */
/* The owner of the orders, stepped by hand with a clock of the test's: what becomes of orders that are
 * told, found, numbered anew and ended, and which of them wins. A cache of the test's carries them out;
 * the processes are real ones. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "dataset_kit.h"
#include "src/orders/untold_priv.h"

#define N 64
#define WHOS 3
#define TEXT 512

/* --- a cache that only takes note --- */

struct fake {
	struct drive_job job[PLAN_JOBS];
	uint32_t n, generation;
	int refuses; /* what the next order is answered with, or 0 */
	const char *why; /* the last job was ended for */
	uint32_t first;  /* id that the watch was told last */
	uint64_t now_ns;
};

static uint32_t fake_get_jobs(void *ctx, struct drive_job ret[PLAN_JOBS])
{
	const struct fake *f = ctx;

	memcpy(ret, f->job, f->n * sizeof(*ret));
	return f->n;
}

static int fake_add(void *ctx, struct order *take_order, uint32_t instead_of, uint32_t *ret_id)
{
	struct fake *f = ctx;
	uint32_t at = 0;

	order_free(take_order);
	if (f->refuses)
		return f->refuses;
	while (at < f->n && f->job[at].id != instead_of)
		at++;
	CHECK(at < PLAN_JOBS);
	f->n = MAX(f->n, at + 1);
	f->job[at] = (struct drive_job){ .id = ++f->generation, .told_ns = f->now_ns };
	*ret_id = f->generation;
	return 0;
}

static void fake_remove(struct fake *f, uint32_t at)
{
	memmove(&f->job[at], &f->job[at + 1], (--f->n - at) * sizeof(f->job[0]));
}

static int fake_end(void *ctx, uint32_t id, const char *why)
{
	struct fake *f = ctx;

	for (uint32_t i = 0; i < f->n; i++) {
		if (f->job[i].id != id)
			continue;
		f->why = why;
		fake_remove(f, i);
		return 0;
	}
	return -ENOENT;
}

static int fake_clear(void *ctx)
{
	((struct fake *)ctx)->n = 0;
	return 0;
}

static uint32_t fake_generation(void *ctx)
{
	return ((struct fake *)ctx)->generation;
}

static uint32_t fake_last_opens(void *ctx, uint32_t *ret_sample, uint32_t max)
{
	(void)ctx;
	(void)ret_sample;
	(void)max;
	return 0;
}

static uint32_t fake_reader_of(void *ctx, uint32_t sample)
{
	(void)ctx;
	(void)sample;
	return 0;
}

static const struct carrier fake_drive = { .get_jobs = fake_get_jobs,
					 .add = fake_add,
					 .end = fake_end,
					 .clear = fake_clear,
					 .generation = fake_generation,
					 .last_opens = fake_last_opens,
					 .reader_of = fake_reader_of };

static void watch_first(void *ctx, const struct order_info *info, uint32_t generation)
{
	((struct fake *)ctx)->first = info ? generation : DRIVE_NO_JOB;
}

/* --- the owner, and who tells it --- */

struct bed {
	struct fake fake;
	struct dataset *ds;
	struct orders *o;
	struct teller who[WHOS]; /* processes of jobs that have nothing in common */
};

static struct teller process_new(int session)
{
	struct teller t;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
	teller_find(pid, false, &t);
	CHECK_INT(t.id.pid, pid);
	t.session = session;
	t.n_above = 0;
	t.is_itself = true;
	return t;
}

static void process_end(struct teller *t)
{
	kill(t->id.pid, SIGKILL);
	CHECK_INT(waitpid(t->id.pid, NULL, 0), t->id.pid);
}

static void bed_new(struct bed *b)
{
	const struct orders_search search = { .effort = INFER_QUICK, .ram = 1u << 30 };
	const char *paths[N + 1] = { NULL };
	AUTO_FREE char *root = NULL;
	static char name[N][16];
	static int beds;
	struct orders_params params = { .mountpoint = "/mnt", .clock = clock_monotonic() };
	struct err err = { 0 };

	for (int i = 0; i < N; i++) {
		snprintf(name[i], sizeof(name[i]), "%d", i);
		paths[i] = name[i];
	}
	*b = (struct bed){ .fake.now_ns = 1000 * NS_PER_S };
	snprintf(name[0], sizeof(name[0]), "bed%d", beds++);
	root = kit_tree(name[0], paths);
	b->ds = kit_open(root, (struct kit_open){ .layout = LAYOUT_AUTO });
	params.source = root;
	params.dataset = b->ds;
	CHECK_INT(orders_new(&params, &b->o, &err), 0);
	CHECK_INT(orders_search(b->o, &search, &err), 0);
	b->o->carrier = &fake_drive;
	b->o->carrier_ctx = &b->fake;
	orders_set_watch(b->o, &(struct orders_watch){ .first = watch_first, .ctx = &b->fake });
	for (int i = 0; i < WHOS; i++)
		b->who[i] = process_new(1000000 + i);
}

static void bed_free(struct bed *b)
{
	for (int i = 0; i < WHOS; i++)
		if (b->who[i].id.pid)
			process_end(&b->who[i]);
	orders_stop(b->o);
	CHECK(orders_free(b->o));
	dataset_free(b->ds);
}

static struct order_spec *spec_of(const char *text)
{
	struct order_spec *spec;
	struct err err = { 0 };

	CHECK_INT(order_spec_parse(text, &spec, &err), 0);
	return spec;
}

/* A message as its sender leaves it; text NULL: somebody takes an order back. */
static struct message message_of(enum message_kind kind, const char *text)
{
	struct message m = { .kind = kind };
	struct err err = { 0 };

	if (!text)
		return m;
	m.spec = spec_of(text);
	CHECK_INT(order_new(m.spec, &(struct order_params){ .n = N }, &m.take_order, &err), 0);
	return m;
}

static void message_free(struct message *m)
{
	CHECK(m->is_answered);
	CHECK(!m->take_order);
	CHECK(!m->take_epoch);
	if (m->spec)
		order_spec_free((struct order_spec *)m->spec);
}

static void step(struct bed *b, uint64_t seconds)
{
	for (uint64_t i = 0; i <= seconds; i++) {
		(void)orders_step(b->o, b->fake.now_ns);
		if (i < seconds)
			b->fake.now_ns += NS_PER_S;
	}
}

static int say(struct bed *b, struct message m)
{
	inbox_post(&b->o->inbox, &m);
	CHECK(!m.is_answered); /* only the owner answers */
	step(b, 0);
	message_free(&m);
	return m.rc;
}

static int tell(struct bed *b, int who, const char *text)
{
	struct message m = message_of(MESSAGE_TOLD, text);

	m.who = &b->who[who];
	return say(b, m);
}

static int find(struct bed *b, uint64_t stamp, const char *text)
{
	struct message m = message_of(MESSAGE_FOUND, text);

	m.finder = b->o->untold->finder[EVERYBODY];
	m.stamp = stamp;
	return say(b, m);
}

static int renumber(struct bed *b, const char *before, const char *text)
{
	struct message m = message_of(MESSAGE_RENUMBERED, text);

	m.before = before;
	return say(b, m);
}

static int take_back(struct bed *b, int who, const char *name)
{
	struct message m = message_of(MESSAGE_WITHDRAWN, NULL);

	m.who = &b->who[who];
	m.name = name;
	return say(b, m);
}

static void read_samples(struct bed *b, uint32_t job, uint64_t n)
{
	CHECK(job < b->fake.n);
	b->fake.job[job].plan.placed = n;
	b->fake.job[job].read_ns = b->fake.now_ns;
}

static void job_ends(struct bed *b, int who)
{
	process_end(&b->who[who]);
	b->who[who].id.pid = 0;
}

/* "SPEC STATE" of each job; and the cache has the same ones, in the same order. */
static void check_jobs(struct bed *b, const char *want)
{
	static const char *const states[] = { [JOB_TOLD] = "told",
					      [JOB_RUNNING] = "running",
					      [JOB_GONE] = "gone" };
	const struct jobs *t = &b->o->jobs;
	char text[TEXT] = "";
	size_t at = 0;

	CHECK_INT(t->n, b->fake.n);
	for (uint32_t i = 0; i < t->n; i++) {
		CHECK_INT(t->job[i].id, b->fake.job[i].id);
		at += (size_t)snprintf(text + at, TEXT - at, "%s%s %s", i ? ", " : "",
				       t->job[i].text, states[t->job[i].state]);
	}
	CHECK_STR(text, want);
	CHECK(t->n == 0 || b->fake.first == t->job[0].id);
}

#define ONE "torch-randperm:seed=1"
#define TWO "torch-randperm:seed=2"
#define THREE "torch-randperm:seed=3"
#define FOUR "torch-randperm:seed=4"
#define NAMED "torch-randperm:seed=4:job=evaluation"

/* --- stories --- */

static void order_is_told_read_and_over(void)
{
	struct bed b;

	bed_new(&b);
	check_jobs(&b, "");
	CHECK_INT(tell(&b, 0, ONE), 0);
	CHECK_INT(tell(&b, 1, TWO), 0);
	check_jobs(&b, ONE " told, " TWO " told");
	read_samples(&b, 0, 64);
	step(&b, 1);
	check_jobs(&b, ONE " running, " TWO " told");
	job_ends(&b, 0);
	step(&b, 1);
	check_jobs(&b, ONE " gone, " TWO " told");
	read_samples(&b, 0, 80); /* others, where its order has them */
	step(&b, 1);
	check_jobs(&b, ONE " gone, " TWO " told");
	step(&b, 1);
	check_jobs(&b, TWO " told");
	CHECK_STR(b.fake.why, "its job has ended: its processes are gone");
	bed_free(&b);
}

static void only_job_that_was_told_stays(void)
{
	struct bed b;

	bed_new(&b);
	CHECK_INT(tell(&b, 0, ONE), 0);
	read_samples(&b, 0, 64);
	step(&b, 1);
	job_ends(&b, 0);
	step(&b, 120);
	check_jobs(&b, ONE " gone");
	CHECK_INT(tell(&b, 1, TWO), 0); /* it is over as soon as somebody else comes */
	check_jobs(&b, TWO " told");
	bed_free(&b);
}

static void next_order_of_a_job_takes_the_place_of_its_last(void)
{
	struct bed b;

	bed_new(&b);
	CHECK_INT(tell(&b, 0, ONE), 0);
	CHECK_INT(tell(&b, 1, TWO), 0);
	CHECK_INT(tell(&b, 0, THREE), 0);
	check_jobs(&b, THREE " told, " TWO " told");
	CHECK_INT(tell(&b, 2, NAMED), 0);
	CHECK_INT(tell(&b, 1, NAMED ":epochs=2"), 0); /* the same name is the same job */
	check_jobs(&b, THREE " told, " TWO " told, "
			     "torch-randperm:seed=4:epochs=2:job=evaluation told");
	bed_free(&b);
}

static void order_that_the_cache_refuses_changes_nothing(void)
{
	struct bed b;

	bed_new(&b);
	CHECK_INT(tell(&b, 0, ONE), 0);
	b.fake.refuses = -ENOMEM;
	CHECK_INT(tell(&b, 0, TWO), -ENOMEM);
	CHECK_INT(tell(&b, 1, TWO), -ENOMEM);
	check_jobs(&b, ONE " told");
	bed_free(&b);
}

static void taken_back_by_whoever_told_it_or_by_name(void)
{
	struct bed b;

	bed_new(&b);
	CHECK_INT(tell(&b, 0, ONE), 0);
	CHECK_INT(tell(&b, 1, NAMED), 0);
	CHECK_INT(take_back(&b, 2, NULL), -ENOENT);
	CHECK_INT(take_back(&b, 2, "training"), -ENOENT);
	CHECK_INT(take_back(&b, 2, "evaluation"), 0);
	check_jobs(&b, ONE " told");
	CHECK_INT(take_back(&b, 0, NULL), 0);
	check_jobs(&b, "");
	bed_free(&b);
}

static void ended_when_all_its_epochs_were_read(void)
{
	struct bed b;

	bed_new(&b);
	CHECK_INT(tell(&b, 0, ONE), 0);
	CHECK_INT(tell(&b, 1, TWO), 0);
	fake_remove(&b.fake, 0); /* it has left by itself */
	step(&b, 1);
	check_jobs(&b, TWO " told");
	bed_free(&b);
}

static void found_order_is_a_job_until_somebody_tells(void)
{
	struct bed b;

	bed_new(&b);
	CHECK_INT(find(&b, 0, ONE), 0);
	CHECK(orders_is_found(b.o));
	check_jobs(&b, ONE " told");
	CHECK_INT(find(&b, 0, TWO), 0); /* the same finder: the same job */
	check_jobs(&b, TWO " told");
	CHECK_INT(tell(&b, 0, THREE), 0);
	check_jobs(&b, THREE " told");
	CHECK(!orders_is_found(b.o));
	CHECK_INT(find(&b, 0, ONE), -ECANCELED); /* begun before it was told */
	check_jobs(&b, THREE " told");
	bed_free(&b);
}

static void found_job_that_nobody_is_seen_to_read_ends_after_a_minute(void)
{
	struct bed b;

	bed_new(&b);
	CHECK_INT(find(&b, 0, ONE), 0);
	step(&b, 59);
	check_jobs(&b, ONE " told");
	step(&b, 1);
	check_jobs(&b, "");
	CHECK_INT((int)b.fake.first, (int)DRIVE_NO_JOB);
	bed_free(&b);
}

static void numbered_anew_only_what_is_in_force(void)
{
	struct bed b;

	bed_new(&b);
	CHECK_INT(tell(&b, 0, ONE), 0);
	CHECK_INT(renumber(&b, TWO, THREE), -EAGAIN);
	check_jobs(&b, ONE " told");
	CHECK_INT(renumber(&b, ONE, THREE), 0);
	check_jobs(&b, THREE " told");
	CHECK_INT(tell(&b, 0, TWO), 0); /* whose it is has not changed */
	check_jobs(&b, TWO " told");
	bed_free(&b);
}

/* Both were sent before the owner looked: in the order in which they came, and nothing replaces what was
 * told. */
static void what_is_told_wins(void)
{
	struct message told, late;
	struct bed b;

	bed_new(&b);
	CHECK_INT(tell(&b, 0, ONE), 0);
	for (int is_told_last = 0; is_told_last < 2; is_told_last++) {
		told = message_of(MESSAGE_TOLD, is_told_last ? THREE : TWO);
		late = message_of(MESSAGE_RENUMBERED, FOUR);
		told.who = &b.who[0];
		late.before = is_told_last ? TWO : ONE;
		inbox_post(&b.o->inbox, is_told_last ? &late : &told);
		inbox_post(&b.o->inbox, is_told_last ? &told : &late);
		step(&b, 0);
		CHECK_INT(told.rc, 0);
		CHECK_INT(late.rc, is_told_last ? 0 : -EAGAIN);
		message_free(&told);
		message_free(&late);
		if (!is_told_last)
			check_jobs(&b, TWO " told");
	}
	check_jobs(&b, THREE " told");
	bed_free(&b);
}

/* The owner does not wait for a finder that waits for it. */
static void finder_that_goes_is_refused(void)
{
	struct message m = message_of(MESSAGE_FOUND, ONE), later = message_of(MESSAGE_FOUND, TWO);
	struct finder *f;
	struct err err = { 0 };
	struct bed b;

	bed_new(&b);
	CHECK_INT(finder_new(b.o->untold, 1, &b.who[0], &f, &err), 0);
	m.finder = later.finder = f;
	inbox_post(&b.o->inbox, &m);
	inbox_refuse(&b.o->inbox, f);
	CHECK_INT(inbox_await(&b.o->inbox, &m), -ECANCELED);
	inbox_post(&b.o->inbox, &later);
	CHECK_INT(inbox_await(&b.o->inbox, &later), -ECANCELED);
	step(&b, 0);
	check_jobs(&b, "");
	message_free(&m);
	message_free(&later);
	finder_free(f);
	bed_free(&b);
}

/* A finder that leaves has its memory until its search has ended. */
static void finder_that_leaves_takes_the_room_of_one(void)
{
	struct err err = { 0 };
	struct finder *f;
	struct untold *u;
	struct bed b;

	bed_new(&b);
	u = b.o->untold;
	u->most = 3;
	for (uint32_t i = 1; i < 3; i++) {
		CHECK(untold_has_room(u));
		CHECK_INT(finder_new(u, i, &b.who[i], &f, &err), 0);
		u->finder[i] = f;
	}
	CHECK(!untold_has_room(u));
	u->finder[2] = NULL;
	u->leaving = f;
	CHECK(!untold_has_room(u));
	u->leaving = NULL;
	finder_free(f);
	CHECK(untold_has_room(u));
	bed_free(&b);
}

/* --- with the thread --- */

static void *tell_from_a_lane(void *arg)
{
	struct bed *b = arg;
	struct message m = message_of(MESSAGE_TOLD, ONE);

	m.who = &b->who[0];
	inbox_post(&b->o->inbox, &m);
	(void)inbox_await(&b->o->inbox, &m);
	message_free(&m);
	return (void *)(intptr_t)m.rc;
}

static int told_while(void (*then)(struct orders *o), bool is_started)
{
	struct err err = { 0 };
	pthread_t lane;
	void *rc;
	struct bed b;

	bed_new(&b);
	if (is_started)
		CHECK_INT(orders_start(b.o, &err), 0);
	CHECK_INT(pthread_create(&lane, NULL, tell_from_a_lane, &b), 0);
	if (then)
		then(b.o);
	CHECK_INT(pthread_join(lane, &rc), 0);
	bed_free(&b);
	return (int)(intptr_t)rc;
}

static void owner_answers_who_tells(void)
{
	CHECK_INT(told_while(NULL, true), 0);
}

static void who_tells_is_answered_when_the_mount_never_came(void)
{
	CHECK_INT(told_while(orders_quit, false), -ECANCELED);
}

static void who_tells_at_the_end_is_answered(void)
{
	int rc = told_while(orders_stop, true);

	CHECK(rc == 0 || rc == -ECANCELED);
}

static const struct check_test tests[] = {
	{ "order_is_told_read_and_over", order_is_told_read_and_over },
	{ "only_job_that_was_told_stays", only_job_that_was_told_stays },
	{ "next_order_of_a_job_takes_the_place_of_its_last",
	  next_order_of_a_job_takes_the_place_of_its_last },
	{ "order_that_the_cache_refuses_changes_nothing",
	  order_that_the_cache_refuses_changes_nothing },
	{ "taken_back_by_whoever_told_it_or_by_name", taken_back_by_whoever_told_it_or_by_name },
	{ "ended_when_all_its_epochs_were_read", ended_when_all_its_epochs_were_read },
	{ "found_order_is_a_job_until_somebody_tells", found_order_is_a_job_until_somebody_tells },
	{ "found_job_that_nobody_is_seen_to_read_ends_after_a_minute",
	  found_job_that_nobody_is_seen_to_read_ends_after_a_minute },
	{ "numbered_anew_only_what_is_in_force", numbered_anew_only_what_is_in_force },
	{ "what_is_told_wins", what_is_told_wins },
	{ "finder_that_goes_is_refused", finder_that_goes_is_refused },
	{ "finder_that_leaves_takes_the_room_of_one", finder_that_leaves_takes_the_room_of_one },
	{ "owner_answers_who_tells", owner_answers_who_tells },
	{ "who_tells_is_answered_when_the_mount_never_came",
	  who_tells_is_answered_when_the_mount_never_came },
	{ "who_tells_at_the_end_is_answered", who_tells_at_the_end_is_answered },
};

CHECK_MAIN(tests)
