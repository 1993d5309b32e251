/* SPDX-License-Identifier: Apache-2.0 */
/* See orders_kit.h. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "orders_kit.h"

#define N 64
#define TEXT 512

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
	if (f->is_put_first) {
		memmove(&f->job[1], &f->job[0], at * sizeof(f->job[0]));
		at = 0;
	}
	f->job[at] = (struct drive_job){ .id = ++f->generation, .told_ns = f->now_ns };
	*ret_id = f->generation;
	return 0;
}

void fake_remove(struct fake *f, uint32_t at)
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

static uint32_t fake_last_opens(void *ctx, struct sample_id *ret, uint32_t max)
{
	(void)ctx;
	(void)ret;
	(void)max;
	return 0;
}

static uint32_t fake_reader_of(void *ctx, struct sample_id sample)
{
	(void)ctx;
	(void)sample;
	return 0;
}

static void fake_cut(void *ctx, struct entry_id entry)
{
	(void)entry;
	((struct fake *)ctx)->n_cut++;
}

static void fake_come(void *ctx, const struct unit_id *unit, size_t n)
{
	struct fake *f = ctx;

	f->n_come += (uint32_t)n;
	f->last_come = n ? unit[n - 1].v : f->last_come;
}

static const struct carrier fake_carrier = { .get_jobs = fake_get_jobs,
					 .add = fake_add,
					 .end = fake_end,
					 .clear = fake_clear,
					 .generation = fake_generation,
					 .last_opens = fake_last_opens,
					 .reader_of = fake_reader_of,
					 .cut = fake_cut,
					 .come = fake_come };

static void watch_first(void *ctx, const struct order_info *info, bool of_records, uint32_t generation)
{
	struct fake *f = ctx;

	f->first = info ? generation : DRIVE_NO_JOB;
	f->first_batch = info ? info->batch : 0;
	f->is_first_of_records = of_records;
}

static void watch_told(void *ctx, bool is_told)
{
	struct fake *f = ctx;

	f->is_told = is_told;
}

/* --- the owner, and who tells it --- */

struct teller process_new(void)
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
	t.n_above = 0;
	t.is_itself = true;
	return t;
}

void process_end(struct teller *t)
{
	kill(t->id.pid, SIGKILL);
	CHECK_INT(waitpid(t->id.pid, NULL, 0), t->id.pid);
}

void bed_open(struct bed *b, const char *root)
{
	static const char *const names[WHOS] = { "zero", "one", "two" };
	const struct orders_search search = { .effort = INFER_QUICK, .ram = 1u << 30, .around = 65536 };
	struct orders_params params = { .mountpoint = "/mnt", .clock = clock_monotonic() };
	struct err err = { 0 };

	*b = (struct bed){ .fake.now_ns = 1000 * NS_PER_S };
	b->ds = kit_open(root, (struct kit_open){ .layout = LAYOUT_AUTO });
	dataset_reserve_units(b->ds, 4096, UINT64_MAX);
	params.source = root;
	params.dataset = b->ds;
	CHECK_INT(orders_new(&params, &b->o, &err), 0);
	CHECK_INT(orders_search(b->o, &search, &err), 0);
	b->o->carrier = &fake_carrier;
	b->o->carrier_ctx = &b->fake;
	orders_set_watch(b->o, &(struct orders_watch){ .first = watch_first, .told = watch_told, .ctx = &b->fake });
	for (int i = 0; i < WHOS; i++)
		b->who[i] = (struct announcer){ UID, names[i], false, process_new() };
}

void bed_new(struct bed *b)
{
	const char *paths[N + 1] = { NULL };
	AUTO_FREE char *root = NULL;
	static char name[N][16];
	static int beds;

	for (int i = 0; i < N; i++) {
		snprintf(name[i], sizeof(name[i]), "%d", i);
		paths[i] = name[i];
	}
	snprintf(name[0], sizeof(name[0]), "bed%d", beds++);
	root = kit_tree(name[0], paths);
	bed_open(b, root);
}

void bed_free(struct bed *b)
{
	for (int i = 0; i < WHOS; i++)
		if (b->who[i].process.id.pid)
			process_end(&b->who[i].process);
	orders_stop(b->o);
	CHECK(orders_free(b->o));
	dataset_free(b->ds);
}

struct order_spec *spec_of(const char *text)
{
	struct order_spec *spec;
	struct err err = { 0 };

	CHECK_INT(order_spec_parse(text, &spec, &err), 0);
	return spec;
}

struct message message_of(enum message_kind kind, const char *text)
{
	static const uint32_t told[] = { 3, 1, 2 };
	const struct order_params params = { .n = N, .told = told, .n_told = ARRAY_LEN(told) };
	struct message m = { .kind = kind };
	struct err err = { 0 };

	if (!text)
		return m;
	m.spec = spec_of(text);
	CHECK_INT(order_new(m.spec, &params, &m.take_order, &err), 0);
	return m;
}

void message_free(struct message *m)
{
	CHECK(m->is_answered);
	CHECK(!m->take_order);
	CHECK(!m->take_epoch);
	if (m->spec)
		order_spec_free((struct order_spec *)m->spec);
}

void step(struct bed *b, uint64_t seconds)
{
	for (uint64_t i = 0; i <= seconds; i++) {
		(void)orders_step(b->o, b->fake.now_ns);
		if (i < seconds)
			b->fake.now_ns += NS_PER_S;
	}
}

int say(struct bed *b, struct message m)
{
	inbox_post(&b->o->inbox, &m);
	CHECK(!m.is_answered); /* only the owner answers */
	step(b, 0);
	message_free(&m);
	return m.rc;
}

int tell_as(struct bed *b, const struct announcer *who, const char *text)
{
	struct message m = message_of(MESSAGE_TOLD, text);
	struct announcer by = *who;

	if (order_spec_job(m.spec)) {
		by.name = order_spec_job(m.spec);
		by.is_given = true;
	}
	m.by = &by;
	return say(b, m);
}

int tell(struct bed *b, int who, const char *text)
{
	return tell_as(b, &b->who[who], text);
}

int find_by(struct bed *b, uint32_t finder, const char *text)
{
	struct message m = message_of(MESSAGE_FOUND, text);

	m.finder = b->o->untold->finder[finder];
	return say(b, m);
}

int find(struct bed *b, const char *text)
{
	return find_by(b, EVERYBODY, text);
}

int renumber(struct bed *b, const char *before, const char *text)
{
	struct message m = message_of(MESSAGE_RENUMBERED, text);

	m.before = before;
	return say(b, m);
}

int take_back_as(struct bed *b, const struct announcer *who, const char *name)
{
	struct message m = message_of(MESSAGE_WITHDRAWN, NULL);
	struct announcer by = *who;

	if (name) {
		by.name = name;
		by.is_given = true;
	}
	m.by = &by;
	return say(b, m);
}

int take_back(struct bed *b, int who, const char *name)
{
	return take_back_as(b, &b->who[who], name);
}

void read_samples(struct bed *b, uint32_t job, uint64_t n)
{
	CHECK(job < b->fake.n);
	b->fake.job[job].plan.placed = n;
	b->fake.job[job].read_ns = b->fake.now_ns;
}

void job_ends(struct bed *b, int who)
{
	process_end(&b->who[who].process);
	b->who[who].process.id.pid = 0;
}

void check_jobs(struct bed *b, const char *want)
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
