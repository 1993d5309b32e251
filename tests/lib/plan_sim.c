/* SPDX-License-Identifier: Apache-2.0 */
#include "plan_sim.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/ids.h"

#define STAGED_NS 20000ull /* open, read, close from the page cache; with an upcall; pushing it */
#define UPCALL_NS 100000ull
#define STAGE_NS 60000ull
#define PIN_NS 200000ull
#define STORE_NS 150000ull

enum ev_kind {
	EV_FETCHED,
	EV_ADOPTED,
	EV_STAGED,
	EV_PINNED,
	EV_EPOCH,
	EV_DROP,
	EV_READ_DONE,
	EV_STEP_DONE,
	EV_WAKE
};

struct ev {
	uint64_t at, order; /* order: of insertion, so that equal times are served first come */
	enum ev_kind kind;
	uint32_t sample, worker;
	uint64_t latency, number;
};

struct worker {
	uint32_t rank, next_batch, last_batch,
		index;      /* batches it may work on: next_batch <= last */
	uint32_t batch, at; /* in work: sample `at` of the batch */
	bool is_busy;
	uint32_t sample;
};

struct sim {
	struct sim_params p;
	struct plan *plan;
	uint64_t now, wake, n_events;
	struct ev *heap;
	uint32_t n_heap, heap_size;
	uint8_t *in_arena, *in_kernel, *in_flight, *in_store;
	uint8_t *was_dropped; /* and nobody was told */
	uint8_t *is_ahead; /* its inode was made known for a push, and it was not opened since */
	uint32_t n_ahead;
	uint64_t *staged_at, *slot_free;
	uint64_t *demand_until; /* readers have it from the source until then */
	uint64_t link_free;
	struct worker *worker;
	uint32_t n_workers;
	/* the epoch being read */
	const struct order_epoch *ep;
	uint64_t from, to, steps, step, step_started_wait;
	uint32_t *batch_done; /* [ranks * steps] samples read of it */
	bool is_computing;
	struct sim_counts count;
	uint64_t lost_at, fetches_lost, opened;
	uint32_t inflight;
};

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

struct order_epoch *sim_order(uint32_t n, uint64_t seed, uint64_t epoch)
{
	struct order_epoch *ep = calloc(1, sizeof(*ep));
	uint64_t state = mix(seed * 1000003 + epoch);

	*ep = (struct order_epoch){ .epoch = epoch, .length = n, .n = n };
	ep->sample = calloc(n, sizeof(uint32_t));
	ep->first = calloc(n, sizeof(uint32_t));
	for (uint32_t i = 0; i < n; i++)
		ep->sample[i] = i;
	for (uint32_t i = n; i > 1; i--) {
		uint32_t j = (uint32_t)((state = mix(state)) % i), t = ep->sample[i - 1];

		ep->sample[i - 1] = ep->sample[j];
		ep->sample[j] = t;
	}
	for (uint32_t i = 0; i < n; i++)
		ep->first[ep->sample[i]] = i;
	return ep;
}

static bool ev_before(const struct ev *a, const struct ev *b)
{
	return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void ev_push(struct sim *sim, struct ev ev)
{
	uint32_t i = sim->n_heap++;

	if (sim->n_heap > sim->heap_size) {
		sim->heap_size = sim->heap_size * 2 + 64;
		sim->heap = realloc(sim->heap, sim->heap_size * sizeof(ev));
	}
	ev.order = sim->n_events++;
	while (i && ev_before(&ev, &sim->heap[(i - 1) / 2])) {
		sim->heap[i] = sim->heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	sim->heap[i] = ev;
}

static struct ev ev_pop(struct sim *sim)
{
	struct ev top = sim->heap[0], last = sim->heap[--sim->n_heap];
	uint32_t i = 0, c;

	for (; (c = 2 * i + 1) < sim->n_heap; i = c) {
		if (c + 1 < sim->n_heap && ev_before(&sim->heap[c + 1], &sim->heap[c]))
			c++;
		if (!ev_before(&sim->heap[c], &last))
			break;
		sim->heap[i] = sim->heap[c];
	}
	sim->heap[i] = last;
	return top;
}

/* When the link has passed one sample more: piece by piece, as its bandwidth changes. */
static uint64_t link_passes(const struct sim *sim, uint64_t at)
{
	double left = (double)sim->p.sample_bytes, half = (double)sim->p.burst_period_ns / 2;

	if (!sim->p.burst_period_ns)
		return at + sim->p.sample_bytes * NS_PER_S / sim->p.bytes_per_s;
	for (;;) {
		uint64_t turn = (uint64_t)((double)at / half);
		double per_ns =
			(double)sim->p.bytes_per_s / (double)NS_PER_S *
			(turn % 2 ? 1 - sim->p.burst_amplitude : 1 + sim->p.burst_amplitude);
		double until = (double)(turn + 1) * half - (double)at;

		if (per_ns * until >= left)
			return at + (uint64_t)(left / per_ns) + 1;
		left -= per_ns * until;
		at = (uint64_t)((double)(turn + 1) * half) + 1;
	}
}

/* When a read of the source that is asked for now is done. */
static uint64_t source_read(struct sim *sim)
{
	uint32_t best = 0;
	uint64_t start, latency;

	for (uint32_t i = 1; i < sim->p.parallel; i++)
		if (sim->slot_free[i] < sim->slot_free[best])
			best = i;
	start = MAX(sim->now, sim->slot_free[best]);
	latency = sim->p.latency_ns / 2 + mix(sim->n_events) % (sim->p.latency_ns + 1);
	sim->link_free = link_passes(sim, MAX(sim->link_free, start));
	sim->slot_free[best] = MAX(start + latency, sim->link_free);
	sim->count.source_reads++;
	return sim->slot_free[best];
}

static void act(struct sim *sim, const struct plan_action *a)
{
	struct ev ev = { .sample = a->unit.v };
	uint32_t s = a->unit.v;

	switch (a->kind) {
	case PLAN_ACT_FETCH:
		assert(!sim->in_arena[s] && !sim->in_flight[s] && a->is_pinned == sim->in_store[s]);
		sim->in_flight[s] = 1;
		if (a->is_adopted) {
			ev.kind = EV_ADOPTED;
			ev.at = MAX(sim->demand_until[s], sim->now);
			break;
		}
		sim->inflight++;
		sim->count.peak_inflight = MAX(sim->count.peak_inflight, sim->inflight);
		sim->fetches_lost += sim_status(sim).state == PLAN_LOST;
		sim->count.fetches += !a->is_pinned;
		sim->count.store_reads += a->is_pinned;
		ev.kind = EV_FETCHED;
		ev.at = a->is_pinned ? sim->now + STORE_NS : source_read(sim);
		ev.latency = ev.at - sim->now;
		break;
	case PLAN_ACT_STAGE:
		assert(sim->in_arena[s]);
		sim->count.stages++;
		ev.kind = EV_STAGED;
		ev.at = sim->now + STAGE_NS;
		break;
	case PLAN_ACT_DROP:
		assert(sim->in_arena[s]);
		sim->in_arena[s] = 0;
		sim->count.drops++;
		return;
	case PLAN_ACT_COME:
		assert(!"nothing is pushed whole here");
		return;
	case PLAN_ACT_PIN:
		assert(sim->in_arena[s] && !sim->in_store[s]);
		sim->count.pins++;
		ev.kind = EV_PINNED;
		ev.at = sim->now + PIN_NS;
		break;
	case PLAN_ACT_EPOCH:
		ev.kind = EV_EPOCH;
		ev.number = a->epoch;
		ev.at = sim->now + 100ull * sim->p.n;
		break;
	}
	ev_push(sim, ev);
}

static void step_plan(struct sim *sim)
{
	struct plan_action a;
	uint64_t wake;

	do {
		wake = plan_step(sim->plan, sim->now);
		while (plan_next_action(sim->plan, &a))
			act(sim, &a);
	} while (wake <= sim->now);
	if (wake < UINT64_MAX && (wake < sim->wake || sim->wake <= sim->now)) {
		sim->wake = wake;
		ev_push(sim, (struct ev){ .at = wake, .kind = EV_WAKE });
	}
}

static void tell(struct sim *sim, struct plan_event pe)
{
	plan_event(sim->plan, sim->now, &pe);
	if (sim->lost_at == UINT64_MAX && sim_status(sim).state == PLAN_LOST)
		sim->lost_at = sim->opened;
}

static uint32_t batch_size(const struct sim *sim, uint32_t rank, uint32_t batch)
{
	uint64_t total = (sim->to - sim->from + sim->p.ranks - 1 - rank) / sim->p.ranks,
		 at = (uint64_t)batch * sim->p.batch;

	return at >= total ? 0 : (uint32_t)MIN(sim->p.batch, total - at);
}

static void worker_read(struct sim *sim, uint32_t w)
{
	struct worker *k = &sim->worker[w];
	uint64_t i = (uint64_t)k->batch * sim->p.batch + k->at, took = UPCALL_NS;
	uint32_t s = sim->ep->sample[sim->from + i * sim->p.ranks + k->rank];

	k->sample = s;
	sim->count.reads++;
	if (sim->was_dropped[s])
		tell(sim, (struct plan_event){ .kind = PLAN_EV_UNSTAGED, .unit = { s } });
	sim->was_dropped[s] = 0;
	if (sim->in_kernel[s]) {
		sim->count.staged++;
		took = STAGED_NS;
	} else if (sim->in_arena[s]) {
		sim->count.arena++;
	} else if (sim->in_flight[s]) {
		sim->count.late++;
		took = UINT64_MAX; /* woken by its FETCHED */
	} else if (sim->in_store[s]) {
		sim->count.missed++;
		took = STORE_NS;
	} else {
		sim->count.missed++;
		took = source_read(sim) - sim->now;
		sim->demand_until[s] = sim->now + took;
		tell(sim, (struct plan_event){ .kind = PLAN_EV_DEMAND,
					       .bytes = sim->p.sample_bytes,
					       .latency_ns = took });
	}
	sim->in_kernel[s] = 0;
	sim->n_ahead -= sim->is_ahead[s];
	sim->is_ahead[s] = 0;
	for (uint32_t n = 0; n < MAX(sim->p.opens_per_read, 1); n++) {
		sim->opened++;
		tell(sim, (struct plan_event){ .kind = PLAN_EV_OPENED, .unit = { s } });
	}
	if (took != UINT64_MAX)
		ev_push(sim, (struct ev){ .at = sim->now + took + sim->p.sample_cpu_ns,
					  .kind = EV_READ_DONE,
					  .worker = w });
	else
		k->batch |= 1u << 31; /* waits */
}

static void worker_start(struct sim *sim, uint32_t w)
{
	struct worker *k = &sim->worker[w];

	if (k->is_busy || k->next_batch > k->last_batch || !batch_size(sim, k->rank, k->next_batch))
		return;
	k->is_busy = true;
	k->batch = k->next_batch;
	k->next_batch += sim->p.workers;
	k->at = 0;
	worker_read(sim, w);
}

static bool step_is_ready(const struct sim *sim)
{
	for (uint32_t r = 0; r < sim->p.ranks; r++)
		if (sim->batch_done[sim->step * sim->p.ranks + r] <
		    batch_size(sim, r, (uint32_t)sim->step))
			return false;
	return true;
}

/* The next step begins when every rank has its batch; workers may then go one batch further. */
static void job_advance(struct sim *sim)
{
	if (sim->is_computing || sim->step >= sim->steps || !step_is_ready(sim))
		return;
	sim->is_computing = true;
	sim->count.stall_ns += sim->now - sim->step_started_wait;
	ev_push(sim, (struct ev){ .at = sim->now + sim->p.step_ns, .kind = EV_STEP_DONE });
	for (uint32_t w = 0; w < sim->n_workers; w++) {
		sim->worker[w].last_batch =
			(uint32_t)sim->step + sim->p.workers * sim->p.prefetch_factor;
		worker_start(sim, w);
	}
}

static void read_done(struct sim *sim, uint32_t w)
{
	struct worker *k = &sim->worker[w];

	sim->batch_done[(uint64_t)k->batch * sim->p.ranks + k->rank]++;
	if (++k->at < batch_size(sim, k->rank, k->batch)) {
		worker_read(sim, w);
	} else {
		k->is_busy = false;
		worker_start(sim, w);
	}
	job_advance(sim);
}

static void fetched(struct sim *sim, const struct ev *ev)
{
	uint32_t s = ev->sample;

	sim->in_flight[s] = 0;
	sim->in_arena[s] = 1;
	sim->inflight -= ev->kind == EV_FETCHED;
	tell(sim, (struct plan_event){ .kind = PLAN_EV_FETCHED,
				       .unit = { s },
				       .latency_ns = ev->latency,
				       .bytes = sim->p.sample_bytes });
	for (uint32_t w = 0; sim->ep && w < sim->n_workers; w++) {
		struct worker *k = &sim->worker[w];

		if (!k->is_busy || !(k->batch >> 31) || k->sample != s)
			continue;
		k->batch &= ~(1u << 31);
		ev_push(sim, (struct ev){ .at = sim->now + UPCALL_NS + sim->p.sample_cpu_ns,
					  .kind = EV_READ_DONE,
					  .worker = w });
	}
}

static void staged(struct sim *sim, uint32_t s)
{
	if (sim->p.inodes_ahead && !sim->is_ahead[s] && sim->n_ahead >= sim->p.inodes_ahead) {
		sim->count.refused++;
		tell(sim, (struct plan_event){ .kind = PLAN_EV_STAGED,
					       .unit = { s },
					       .status = PLAN_NO_INODES });
		return;
	}
	sim->n_ahead += !sim->is_ahead[s];
	sim->is_ahead[s] = 1;
	sim->in_kernel[s] = 1;
	sim->was_dropped[s] = 0;
	sim->staged_at[s] = sim->now;
	if (sim->p.page_drop_ns)
		ev_push(sim, (struct ev){ .at = sim->now + sim->p.page_drop_ns,
					  .kind = EV_DROP,
					  .sample = s });
	tell(sim, (struct plan_event){ .kind = PLAN_EV_STAGED, .unit = { s } });
}

static void page_drop(struct sim *sim, uint32_t s)
{
	if (!sim->in_kernel[s] || sim->staged_at[s] + sim->p.page_drop_ns != sim->now)
		return;
	sim->in_kernel[s] = 0;
	sim->count.unstaged++;
	sim->was_dropped[s] = sim->p.is_drop_silent;
	if (!sim->p.is_drop_silent)
		tell(sim, (struct plan_event){ .kind = PLAN_EV_UNSTAGED, .unit = { s } });
}

static void handle(struct sim *sim, const struct ev *ev)
{
	switch (ev->kind) {
	case EV_FETCHED:
	case EV_ADOPTED:
		fetched(sim, ev);
		break;
	case EV_STAGED:
		staged(sim, ev->sample);
		break;
	case EV_PINNED:
		sim->in_store[ev->sample] = 1;
		tell(sim, (struct plan_event){ .kind = PLAN_EV_PINNED, .unit = { ev->sample } });
		break;
	case EV_EPOCH:
		tell(sim, (struct plan_event){
				  .kind = PLAN_EV_EPOCH,
				  .epoch = ev->number,
				  .order_epoch = sim_order(sim->p.n, sim->p.seed, ev->number) });
		break;
	case EV_DROP:
		page_drop(sim, ev->sample);
		break;
	case EV_READ_DONE:
		read_done(sim, ev->worker);
		break;
	case EV_STEP_DONE:
		sim->is_computing = false;
		sim->step++;
		sim->step_started_wait = sim->now;
		job_advance(sim);
		break;
	case EV_WAKE:
		break;
	}
}

static void run(struct sim *sim, uint64_t until)
{
	step_plan(sim);
	while (sim->n_heap && sim->heap[0].at <= until) {
		struct ev ev;

		if (sim->ep && sim->step >= sim->steps)
			return;
		ev = ev_pop(sim);
		sim->now = ev.at;
		handle(sim, &ev);
		step_plan(sim);
	}
}

struct sim *sim_new(const struct sim_params *p)
{
	struct sim *sim = calloc(1, sizeof(*sim));
	uint64_t *size = calloc(p->n, sizeof(*size));
	struct plan_params pp = { .n = p->n,
				  .size = size,
				  .order = &p->info,
				  .arena_bytes = p->arena_samples * p->sample_bytes,
				  .stage_bytes = p->stage_samples * p->sample_bytes,
				  .store_bytes = p->store_samples * p->sample_bytes,
				  .inflight_min = p->inflight_min,
				  .inflight_max = p->inflight_max,
				  .span = (uint32_t)p->span };
	int r;

	for (uint32_t i = 0; i < p->n; i++)
		size[i] = p->sample_bytes;
	sim->p = *p;
	sim->now = 1000;
	sim->lost_at = UINT64_MAX;
	sim->in_arena = calloc(p->n, 1);
	sim->in_kernel = calloc(p->n, 1);
	sim->in_flight = calloc(p->n, 1);
	sim->in_store = calloc(p->n, 1);
	sim->is_ahead = calloc(p->n, 1);
	sim->was_dropped = calloc(p->n, 1);
	sim->staged_at = calloc(p->n, sizeof(uint64_t));
	sim->demand_until = calloc(p->n, sizeof(uint64_t));
	sim->slot_free = calloc(p->parallel, sizeof(uint64_t));
	sim->n_workers = p->ranks * p->workers;
	sim->worker = calloc(sim->n_workers, sizeof(*sim->worker));
	r = plan_new(&pp, &sim->plan);
	assert(r == 0);
	free(size);
	return sim;
}

void sim_free(struct sim *sim)
{
	plan_free(sim->plan);
	free(sim->heap);
	free(sim->in_arena);
	free(sim->in_kernel);
	free(sim->in_flight);
	free(sim->in_store);
	free(sim->is_ahead);
	free(sim->was_dropped);
	free(sim->staged_at);
	free(sim->demand_until);
	free(sim->slot_free);
	free(sim->worker);
	free(sim);
}

struct plan *sim_plan(struct sim *sim)
{
	return sim->plan;
}

struct sim_counts sim_epoch(struct sim *sim, uint64_t seed, uint64_t epoch, uint64_t from,
			    uint64_t to)
{
	struct order_epoch *ep = sim_order(sim->p.n, seed, epoch);
	uint64_t began = sim->now;

	sim->count = (struct sim_counts){ 0 };
	sim->ep = ep;
	sim->from = from;
	sim->to = MIN(to, ep->length);
	sim->steps = DIV_ROUND_UP(DIV_ROUND_UP(sim->to - from, sim->p.ranks), sim->p.batch);
	sim->step = 0;
	sim->step_started_wait = sim->now;
	sim->batch_done = calloc((sim->steps + 1) * sim->p.ranks, sizeof(uint32_t));
	for (uint32_t w = 0; w < sim->n_workers; w++) {
		struct worker *k = &sim->worker[w];

		*k = (struct worker){ .rank = w / sim->p.workers, .index = w % sim->p.workers };
		k->next_batch = k->index;
		k->last_batch = sim->p.workers * sim->p.prefetch_factor - 1;
		worker_start(sim, w);
	}
	run(sim, UINT64_MAX);
	assert(sim->step == sim->steps);
	sim->count.ns = sim->now - began;
	free(sim->batch_done);
	order_epoch_free(ep);
	sim->ep = NULL;
	return sim->count;
}

void sim_pause(struct sim *sim, uint64_t ns)
{
	uint64_t until = sim->now + ns;

	run(sim, until);
	sim->now = until;
}

struct plan_status sim_status(const struct sim *sim)
{
	struct plan_status status;

	plan_get_status(sim->plan, &status);
	return status;
}

void sim_set_source(struct sim *sim, uint64_t latency_ns, uint64_t bytes_per_s, uint32_t parallel)
{
	sim->p.latency_ns = latency_ns;
	sim->p.bytes_per_s = bytes_per_s;
	sim->slot_free = realloc(sim->slot_free, parallel * sizeof(uint64_t));
	for (uint32_t i = 0; i < parallel; i++)
		sim->slot_free[i] = sim->now;
	sim->p.parallel = parallel;
}

uint64_t sim_lost_at(struct sim *sim)
{
	uint64_t at = sim->lost_at;

	sim->lost_at = UINT64_MAX;
	return at;
}

uint64_t sim_fetches_lost(const struct sim *sim)
{
	return sim->fetches_lost;
}
