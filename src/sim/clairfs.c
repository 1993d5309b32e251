/* SPDX-License-Identifier: Apache-2.0 */
/* Policy "clairfs": the daemon's plan (the same object code) with a model of everything around it.
 * Reads become OPENED events at once; the plan decides in rounds at least a millisecond apart, as
 * the daemon's planner thread does. FETCH asks the source or the store, STAGE takes a stager's time
 * and is served first come first served, PIN writes to the store, EPOCH takes as long as computing
 * an epoch does.
 *
 * A sample that is read before it was asked for stays in memory as long as there is room that the
 * plan does not use (plain), as in the daemon; a FETCH of it asks nobody then. The asserts are the
 * plan's contract, checked from outside. */
#include <errno.h>

#include "cached.h"
#include "clairfs/plan.h"
#include "clairfs/tape.h"

#define ROUND_NS NS_PER_MS
#define PAGE 4096u
#define STAGERS 2.0
#define STAGE_NS 20e3 /* per sample, and per byte: two GB/s */
#define STAGE_NS_PER_BYTE 0.5
#define EPOCH_NS 25ull /* per sample: a shuffle and its inverse */
#define INFLIGHT_MIN 4u
#define AHEAD 16u /* samples whose state is brought near the processor */

struct staging {
	uint64_t at_ns;
	uint32_t sample;
};

struct taking {
	uint32_t sample;
	int status;
};

/* The answer to EPOCH. */
struct computing {
	struct order_epoch *epoch; /* NULL: none */
	uint64_t number, at;
	uint32_t version;
};

struct clairfs {
	struct plan *plan;
	uint64_t round_at, last_round;
	double stager_free;
	struct staging *staging; /* ring */
	uint32_t staging_size, staging_head, staging_count;
	uint64_t room, planned_bytes, plain_bytes; /* in pages; of the plan, of nobody */
	struct arrivals *plain;                    /* oldest first */
	struct taking *there;                      /* FETCHes that ask nobody; [2 * inflight] */
	uint32_t n_there;
	uint64_t reads;
	struct computing epoch[PLAN_JOBS];
	struct order_info *info; /* [jobs] in units */
	uint64_t **bits;         /* [jobs] of these */
};

static void clairfs_schedule(struct model *m, uint64_t at)
{
	struct clairfs *c = m->state;

	at = MAX(at, c->last_round + ROUND_NS);
	if (at >= c->round_at)
		return;
	c->round_at = at;
	run_push(m->run, at, EV_ROUND, m->index);
}

static void clairfs_tell(struct model *m, const struct plan_event *ev)
{
	struct clairfs *c = m->state;

	plan_event(c->plan, m->run->now, ev);
	clairfs_schedule(m, m->run->now);
}

/* The orders in units, as the plan is told of them. */
static int clairfs_infos(struct clairfs *c, const struct sim_setup *s)
{
	int rc = 0;

	c->info = calloc(s->p.jobs, sizeof(*c->info));
	c->bits = calloc(s->p.jobs, sizeof(*c->bits));
	if (!c->info || !c->bits)
		return -ENOMEM;
	for (uint64_t j = 0; j < s->p.jobs && rc == 0; j++) {
		c->info[j] = *order_info(s->order[j]);
		if (s->map.first)
			rc = order_info_expand(order_info(s->order[j]), &s->map, &c->info[j],
					       &c->bits[j]);
	}
	return rc;
}

static int clairfs_init(struct model *m, struct err *err)
{
	const struct sim_setup *s = m->run->s;
	uint64_t arena = s->cache_bytes;
	uint32_t inflight = (uint32_t)s->p.inflight;
	struct clairfs *c = calloc(1, sizeof(*c));
	struct plan_params params = { .n = s->n,
				      .size = s->size,
				      .order = NULL,
				      .arena_bytes = arena,
				      .spare_bytes = plan_spare_bytes(arena),
				      .stage_bytes = s->stage_bytes,
				      .store_bytes = s->store_bytes,
				      .inflight_min = MIN(INFLIGHT_MIN, inflight),
				      .inflight_max = inflight };
	int rc;

	m->state = c;
	if (!c)
		return -ENOMEM;
	c->round_at = UINT64_MAX;
	c->room = ALIGN_DOWN(arena + params.spare_bytes, PAGE);
	c->there = calloc(2 * inflight, sizeof(*c->there));
	rc = c->there ? arrivals_new(s->n, (void **)&c->plain) : -ENOMEM;
	if (rc == 0)
		rc = clairfs_infos(c, s);
	params.order = c->info;
	if (rc == 0)
		rc = plan_new(&params, &c->plan);
	if (rc == 0 && s->p.tape)
		rc = tape_record(s->p.tape, c->plan, &params);
	for (uint64_t j = 1; j < s->p.jobs && rc >= 0; j++)
		rc = plan_add_job(c->plan, &c->info[j]);
	if (rc == -ENOSPC)
		return err_set(err, rc, "--jobs: policy clairfs plans for %d jobs at most",
			       PLAN_JOBS);
	if (rc < 0)
		return rc;
	clairfs_schedule(m, 0);
	return 0;
}

static void clairfs_fini(struct model *m)
{
	struct clairfs *c = m->state;

	if (!c)
		return;
	if (c->plan)
		plan_free(c->plan);
	for (uint32_t j = 0; j < PLAN_JOBS; j++)
		order_epoch_free(c->epoch[j].epoch);
	for (uint64_t j = 0; c->bits && j < m->run->s->p.jobs; j++)
		free(c->bits[j]);
	free(c->bits);
	free(c->info);
	arrivals_free(c->plain);
	free(c->there);
	free(c->staging);
	free(c);
}

static uint64_t paged(const struct model *m, uint32_t sample)
{
	return MAX(ALIGN_UP(setup_size(m->run->s, sample), PAGE), PAGE);
}

static void plain_remove(struct model *m, uint32_t sample)
{
	struct clairfs *c = m->state;

	assert(m->where[sample] & PLAIN);
	m->where[sample] &= ~(uint32_t)PLAIN;
	c->plain_bytes -= paged(m, sample);
	arrivals_remove(c->plain, sample);
}

/* False: what the plan has leaves no room. */
static bool plain_make_room(struct model *m, uint64_t bytes)
{
	struct clairfs *c = m->state;

	while (c->planned_bytes + c->plain_bytes + bytes > c->room && c->plain_bytes)
		plain_remove(m, arrivals_first(c->plain));
	return c->planned_bytes + c->plain_bytes + bytes <= c->room;
}

static void plain_add(struct model *m, uint32_t sample)
{
	struct clairfs *c = m->state;

	if (!plain_make_room(m, paged(m, sample)))
		return;
	m->where[sample] |= PLAIN;
	c->plain_bytes += paged(m, sample);
	arrivals_append(c->plain, sample);
}

static void clairfs_take(struct model *m, uint32_t sample, int status)
{
	struct clairfs *c = m->state;

	assert(c->n_there < 2 * m->run->s->p.inflight);
	c->there[c->n_there++] = (struct taking){ sample, status };
}

static void clairfs_fetch(struct model *m, const struct plan_action *a)
{
	struct clairfs *c = m->state;
	uint32_t *where = &m->where[a->unit.v], req;
	bool is_there = (*where & PLAIN) != 0;

	assert(!(*where & IN_CACHE) && a->is_pinned == ((*where & IN_STORE) != 0));
	if (is_there)
		plain_remove(m, a->unit.v);
	c->planned_bytes += paged(m, a->unit.v);
	plain_make_room(m, 0);
	if (is_there) {
		*where |= IN_CACHE;
		clairfs_take(m, a->unit.v, 0);
		return;
	}
	if (*where & FETCHING) { /* for a reader who is waiting */
		struct request *under_way = &m->run->request[where_request(*where)];

		assert(!under_way->is_planned && under_way->kind == REQ_DEMAND);
		under_way->is_planned = true;
		return;
	}
	if (a->is_adopted) {
		c->planned_bytes -= paged(m, a->unit.v);
		clairfs_take(m, a->unit.v, -EAGAIN);
		return;
	}
	req = run_request(m, a->job, a->unit.v, REQ_AHEAD, a->is_pinned);
	if (req != NONE)
		*where = (*where & IN_STORE) | FETCHING | req << WHERE_SHIFT;
}

static bool staging_grow(struct clairfs *c)
{
	uint32_t size = c->staging_size * 2 + 1024;
	struct staging *bigger = calloc(size, sizeof(*bigger));

	if (!bigger)
		return false;
	for (uint32_t i = 0; i < c->staging_count; i++)
		bigger[i] = c->staging[(c->staging_head + i) % c->staging_size];
	free(c->staging);
	c->staging = bigger;
	c->staging_size = size;
	c->staging_head = 0;
	return true;
}

static void clairfs_stage(struct model *m, uint32_t sample)
{
	struct clairfs *c = m->state;
	double took = STAGE_NS + STAGE_NS_PER_BYTE * (double)setup_size(m->run->s, sample);

	assert(m->where[sample] & IN_CACHE);
	if (c->staging_count == c->staging_size && !staging_grow(c)) {
		run_fail(m->run, -ENOMEM);
		return;
	}
	c->stager_free = MAX(c->stager_free, (double)m->run->now) + took / STAGERS;
	c->staging[(c->staging_head + c->staging_count++) % c->staging_size] =
		(struct staging){ (uint64_t)c->stager_free, sample };
	m->where[sample] |= STAGING;
}

static void clairfs_epoch(struct model *m, const struct plan_action *a)
{
	struct clairfs *c = m->state;
	const struct order *order = m->run->s->order[a->job];
	struct computing *e = &c->epoch[a->job];
	int rc;

	assert(!e->epoch);
	rc = order_epoch_new(order, a->epoch, &e->epoch, m->run->err);
	if (rc == 0 && m->run->s->map.first) {
		struct order_epoch *samples = TAKE(e->epoch);

		rc = order_epoch_expand(samples, order_info(order), &m->run->s->map, &e->epoch);
		order_epoch_free(samples);
	}
	if (rc < 0) {
		run_fail(m->run, rc);
		return;
	}
	e->number = a->epoch;
	e->version = a->version;
	e->at = m->run->now + EPOCH_NS * m->run->s->n;
}

static void clairfs_act(struct model *m, const struct plan_action *a)
{
	struct clairfs *c = m->state;

	switch (a->kind) {
	case PLAN_ACT_FETCH:
		clairfs_fetch(m, a);
		break;
	case PLAN_ACT_STAGE:
		clairfs_stage(m, a->unit.v);
		break;
	case PLAN_ACT_DROP:
		assert(m->where[a->unit.v] & IN_CACHE);
		m->where[a->unit.v] &= IN_STORE | STAGED; /* what was pushed stays in the kernel */
		c->planned_bytes -= paged(m, a->unit.v);
		break;
	case PLAN_ACT_PIN:
		assert(m->where[a->unit.v] & IN_CACHE && !(m->where[a->unit.v] & IN_STORE));
		run_request(m, a->job, a->unit.v, REQ_PIN, true);
		break;
	case PLAN_ACT_EPOCH:
		clairfs_epoch(m, a);
		break;
	}
}

/* What was pushed by now, what was there already, and the epoch that was computed. */
static void clairfs_answer(struct model *m)
{
	struct clairfs *c = m->state;
	struct plan_event ev = { .kind = PLAN_EV_STAGED };

	while (c->staging_count && c->staging[c->staging_head].at_ns <= m->run->now) {
		const struct staging *soon =
			&c->staging[(c->staging_head + AHEAD) % c->staging_size];
		uint32_t *where;

		__builtin_prefetch(&m->where[soon->sample]);
		ev.unit.v = c->staging[c->staging_head].sample;
		where = &m->where[ev.unit.v];
		c->staging_head = (c->staging_head + 1) % c->staging_size;
		c->staging_count--;
		if (*where & STAGING)
			*where = (*where & ~(uint32_t)STAGING) | STAGED;
		plan_event(c->plan, m->run->now, &ev);
	}
	while (c->n_there) {
		struct taking t = c->there[--c->n_there];

		ev = (struct plan_event){ .kind = PLAN_EV_FETCHED,
					  .unit = { t.sample },
					  .status = t.status };
		plan_event(c->plan, m->run->now, &ev);
	}
	for (uint32_t j = 0; j < m->run->n_jobs; j++) {
		struct computing *e = &c->epoch[j];

		if (!e->epoch || e->at > m->run->now)
			continue;
		ev = (struct plan_event){ .kind = PLAN_EV_EPOCH,
					  .epoch = e->number,
					  .job = j,
					  .version = e->version };
		ev.order_epoch = TAKE(e->epoch);
		plan_event(c->plan, m->run->now, &ev);
	}
}

/* The states of a few samples are fetched from memory together. */
static void clairfs_carry_out(struct model *m)
{
	struct clairfs *c = m->state;
	struct plan_action a[AHEAD];
	uint32_t n;

	do {
		for (n = 0; n < AHEAD && plan_next_action(c->plan, &a[n]); n++)
			if (a[n].kind != PLAN_ACT_EPOCH)
				__builtin_prefetch(&m->where[a[n].unit.v]);
		for (uint32_t i = 0; i < n; i++)
			clairfs_act(m, &a[i]);
	} while (n == AHEAD);
}

static void clairfs_round(struct model *m)
{
	struct clairfs *c = m->state;
	uint64_t now = m->run->now, wake;

	if (now != c->round_at)
		return; /* an earlier one was wanted meanwhile */
	c->round_at = UINT64_MAX;
	c->last_round = now;
	clairfs_answer(m);
	do {
		wake = plan_step(c->plan, now);
		clairfs_carry_out(m);
	} while (wake <= now && !m->run->rc);
	if (c->n_there)
		wake = now;
	if (c->staging_count)
		wake = MIN(wake, c->staging[c->staging_head].at_ns);
	for (uint32_t j = 0; j < m->run->n_jobs; j++)
		if (c->epoch[j].epoch)
			wake = MIN(wake, c->epoch[j].at);
	if (wake != UINT64_MAX)
		clairfs_schedule(m, wake);
}

static struct answer clairfs_serve(struct model *m, uint32_t job, uint32_t sample)
{
	struct sim_epoch *count = run_epoch(m->run, job);
	uint32_t where = m->where[sample], req;
	bool is_store = (where & IN_STORE) != 0;

	if (where & STAGED) {
		count->read_class[SIM_STAGED]++;
		return (struct answer){ m->run->hit_ns, NONE };
	}
	if (where & (IN_CACHE | PLAIN)) {
		count->read_class[SIM_CACHE]++;
		return (struct answer){ m->run->upcall_ns, NONE };
	}
	if (where & FETCHING) {
		count->read_class[SIM_LATE]++;
		return (struct answer){ 0, where_request(where) };
	}
	count->read_class[is_store ? SIM_STORE : SIM_MISS]++;
	req = run_request(m, job, sample, REQ_DEMAND, is_store);
	if (req != NONE)
		m->where[sample] |= FETCHING | req << WHERE_SHIFT;
	return (struct answer){ 0, req };
}

/* As far as somebody says that the kernel did. */
static void clairfs_lose_pages(struct model *m, uint32_t sample)
{
	const struct sim_params *p = &m->run->s->p;
	uint64_t n = ((struct clairfs *)m->state)->reads++;
	struct plan_event ev = { .kind = PLAN_EV_UNSTAGED, .unit = { sample } };

	if (n >= p->n_dropped || !(p->dropped[n / 64] >> n % 64 & 1) ||
	    !(m->where[sample] & STAGED))
		return;
	m->where[sample] &= ~(uint32_t)STAGED;
	clairfs_tell(m, &ev);
}

static struct answer clairfs_read(struct model *m, uint32_t job, uint64_t pos, uint32_t sample)
{
	struct plan_event ev = { .kind = PLAN_EV_OPENED, .unit = { sample } };
	struct answer answer;

	(void)pos;
	if (!unit_is_first(&m->run->s->map, ev.unit))
		ev.kind = PLAN_EV_REACHED;
	clairfs_lose_pages(m, sample);
	answer = clairfs_serve(m, job, sample);
	m->where[sample] &= ~(uint32_t)(STAGED | STAGING);
	clairfs_tell(m, &ev);
	return answer;
}

static void clairfs_done(struct model *m, uint32_t request)
{
	const struct request *req = &m->run->request[request];
	uint32_t sample = req->sample;
	struct plan_event ev = { .kind = PLAN_EV_DEMAND,
				 .unit = { sample },
				 .latency_ns = m->run->now - req->issued_ns,
				 .bytes = setup_size(m->run->s, sample) };

	if (req->kind == REQ_DEMAND && !req->is_store) /* also when the plan wants it, too */
		clairfs_tell(m, &ev);
	if (req->kind == REQ_PIN) {
		m->where[sample] |= IN_STORE;
		ev.kind = PLAN_EV_PINNED;
	} else if (req->kind == REQ_AHEAD || req->is_planned) {
		m->where[sample] = (m->where[sample] & IN_STORE) | IN_CACHE;
		ev.kind = PLAN_EV_FETCHED;
	} else {
		m->where[sample] &= IN_STORE;
		plain_add(m, sample);
	}
	if (ev.kind != PLAN_EV_DEMAND)
		clairfs_tell(m, &ev);
	run_wake(m->run, request, m->run->upcall_ns);
}

const struct driver_ops clairfs_driver = { .init = clairfs_init,
					   .fini = clairfs_fini,
					   .read = clairfs_read,
					   .done = clairfs_done,
					   .round = clairfs_round };

const struct policy_ops policy_clairfs = {
	.name = "clairfs",
	.driver = &clairfs_driver,
};
