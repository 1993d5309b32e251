/* SPDX-License-Identifier: Apache-2.0 */
/* Policy "clairfs": the daemon's plan and the deciding half of its drive (the same object code), whose
 * hands are a model of everything around them. Reads become OPENED events at once; rounds are at least
 * a millisecond apart, as those of the daemon's planner thread. What is done about its actions is in hands.c.
 */
#include <errno.h>

#include "clairfs/tape.h"
#include "hands.h"

#define ROUND_NS NS_PER_MS
#define INFLIGHT_MIN 4u

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

	step_event(&c->step, m->run->now, ev);
	clairfs_schedule(m, m->run->now);
}

/* The orders of all jobs but the first. */
static int clairfs_add_jobs(struct clairfs *c, const struct sim_setup *s)
{
	int rc = 0;

	for (uint64_t j = 1; j < s->p.jobs && rc == 0; j++) {
		struct order_ref *order = order_ref_new(s->order[j], &s->map, false);
		uint32_t id;

		rc = order ? step_add_order(&c->step, &order, STEP_NO_JOB, 0, &id) : -ENOMEM;
		order_ref_put(order); /* left there when it was not taken */
	}
	return rc;
}

/* The plan with the order of the first job, and all that decides with it. */
static int clairfs_make_step(struct clairfs *c, const struct sim_setup *s)
{
	uint32_t inflight = (uint32_t)s->p.inflight;
	struct order_ref *order = order_ref_new(s->order[0], &s->map, false);
	struct plan_params params = { .n = s->n,
				      .size = s->size,
				      .arena_bytes = s->cache_bytes,
				      .spare_bytes = plan_spare_bytes(s->cache_bytes),
				      .stage_bytes = s->stage_bytes,
				      .store_bytes = s->store_bytes,
				      .inflight_min = MIN(INFLIGHT_MIN, inflight),
				      .inflight_max = inflight };
	struct step_params step = { .order = order,
				    .hands = &c->hands,
				    .n = s->n,
				    .arena_bytes = s->cache_bytes,
				    .stage_bytes = s->stage_bytes };
	int rc;

	if (!order)
		return -ENOMEM;
	params.order = &order->info;
	rc = plan_new(&params, &step.plan);
	if (rc == 0 && s->p.tape)
		rc = tape_record(s->p.tape, step.plan, &params);
	if (rc < 0) {
		plan_free(step.plan);
		order_ref_put(order);
		return rc;
	}
	rc = step_init(&c->step, &step, 0);
	return rc < 0 ? rc : clairfs_add_jobs(c, s);
}

static int clairfs_init(struct model *m, struct err *err)
{
	const struct sim_setup *s = m->run->s;
	struct clairfs *c = calloc(1, sizeof(*c));
	int rc;

	m->state = c;
	if (!c)
		return -ENOMEM;
	c->hands = clairfs_hands;
	c->hands.ctx = m;
	c->round_at = UINT64_MAX;
	c->room = ALIGN_DOWN(s->cache_bytes + plan_spare_bytes(s->cache_bytes), PAGE);
	c->there = calloc(2 * s->p.inflight, sizeof(*c->there));
	rc = c->there ? arrivals_new(s->n, (void **)&c->plain) : -ENOMEM;
	if (rc == 0)
		rc = clairfs_make_step(c, s);
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
	step_fini(&c->step);
	for (uint32_t j = 0; j < PLAN_JOBS; j++)
		order_epoch_free(c->epoch[j].epoch);
	arrivals_free(c->plain);
	free(c->there);
	free(c->staging);
	free(c);
}

/* --- rounds --- */

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
		step_event(&c->step, m->run->now, &ev);
	}
	while (c->n_there) {
		struct taking t = c->there[--c->n_there];

		ev = (struct plan_event){ .kind = PLAN_EV_FETCHED,
					  .unit = { t.sample },
					  .status = t.status };
		step_event(&c->step, m->run->now, &ev);
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
		step_event(&c->step, m->run->now, &ev);
	}
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
		wake = step_round(&c->step, now);
		hands_carry_out(m);
		step_look(&c->step, now);
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
		hands_keep_plain(m, sample);
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
