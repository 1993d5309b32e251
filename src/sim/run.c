/* SPDX-License-Identifier: Apache-2.0 */
/* One run: the heap of events, the requests under way, and the loop. The heap is 4-ary, which costs
 * half the cache misses of a binary one; it holds one event per worker, request and model, so it is
 * small. Events at the same time are served in the order in which they were made: a run is a
 * function of its parameters.
 *
 * Running out of memory or an epoch that cannot be computed ends the run with an error; nothing
 * else can fail. */
#include "sim_priv.h"

#include <errno.h>
#include <string.h>

const char *const sim_class_names[] = { "staged", "cache", "late", "store", "miss", NULL };

uint64_t sim_mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

uint64_t run_random(struct run *run)
{
	run->random += 0x9e3779b97f4a7c15ull;
	return sim_mix(run->random);
}

void run_fail(struct run *run, int rc)
{
	if (!run->rc)
		run->rc = rc;
}

static bool ev_before(const struct ev *a, const struct ev *b)
{
	return a->at != b->at ? a->at < b->at : (int32_t)(a->seq - b->seq) < 0;
}

void run_push(struct run *run, uint64_t at, enum ev_kind kind, uint32_t index)
{
	struct ev ev = { .at = MAX(at, run->now), .seq = run->seq++, .what = index << 2 | kind };
	uint32_t i = run->n_heap;

	if (run->n_heap == run->heap_size) {
		uint32_t size = run->heap_size * 2 + 1024;
		struct ev *bigger = realloc(run->heap, size * sizeof(*bigger));

		if (!bigger) {
			run_fail(run, -ENOMEM);
			return;
		}
		run->heap = bigger;
		run->heap_size = size;
	}
	run->n_heap++;
	while (i && ev_before(&ev, &run->heap[(i - 1) / 4])) {
		run->heap[i] = run->heap[(i - 1) / 4];
		i = (i - 1) / 4;
	}
	run->heap[i] = ev;
}

static struct ev run_pop(struct run *run)
{
	struct ev top = run->heap[0], last = run->heap[--run->n_heap];
	uint32_t i = 0, n = run->n_heap;

	for (;;) {
		uint32_t first = 4 * i + 1, best = first;

		if (first >= n)
			break;
		for (uint32_t c = first + 1; c < MIN(first + 4, n); c++)
			if (ev_before(&run->heap[c], &run->heap[best]))
				best = c;
		if (!ev_before(&run->heap[best], &last))
			break;
		run->heap[i] = run->heap[best];
		i = best;
	}
	run->heap[i] = last;
	return top;
}

static uint32_t request_alloc(struct run *run)
{
	uint32_t i = run->free_request, size;
	struct request *bigger;

	if (i != NONE) {
		run->free_request = run->request[i].next;
		return i;
	}
	size = run->n_requests * 2 + 256;
	bigger = size < 1u << (32 - WHERE_SHIFT) ? realloc(run->request, size * sizeof(*bigger))
						 : NULL;
	if (!bigger)
		return NONE;
	run->request = bigger;
	for (i = size; i-- > run->n_requests;) {
		bigger[i].next = run->free_request;
		run->free_request = i;
	}
	run->n_requests = size;
	return request_alloc(run);
}

uint32_t run_request(struct model *m, uint32_t job, uint32_t sample, enum request_kind kind,
		     bool is_store)
{
	struct run *run = m->run;
	uint32_t i = request_alloc(run);
	struct sim_epoch *count = run_epoch(run, job);

	if (i == NONE) {
		run_fail(run, -ENOMEM);
		return NONE;
	}
	run->request[i] = (struct request){ .sample = sample,
					    .waiter = NONE,
					    .next = NONE,
					    .model = (uint16_t)m->index,
					    .job = (uint16_t)job,
					    .kind = (uint8_t)kind,
					    .is_store = is_store,
					    .issued_ns = run->now };
	if (!is_store) {
		count->source_reads++;
		count->source_bytes += setup_size(run->s, sample);
	}
	if (kind == REQ_PIN) {
		count->store_writes++;
		count->store_write_bytes += setup_size(run->s, sample);
	}
	device_submit(run, is_store ? &run->store : &run->source, i);
	return i;
}

void run_wake(struct run *run, uint32_t request, uint64_t extra_ns)
{
	uint32_t per_job = run->s->ranks * run->s->workers, w = run->request[request].waiter;

	while (w != NONE) {
		const struct worker *k = &run->job[w / per_job].worker[w % per_job];

		run_push(run, run->now + extra_ns + loader_decode_ns(run, k), EV_READ, w);
		w = k->waiter;
	}
	run->request[request].waiter = NONE;
}

static void run_request_done(struct run *run, uint32_t i)
{
	const struct request *req = &run->request[i];
	struct model *m = &run->model[req->model];

	device_done(run, req->is_store ? &run->store : &run->source);
	m->ops->driver->done(m, i);
	run->request[i].next = run->free_request;
	run->free_request = i;
}

static void run_handle(struct run *run, const struct ev *ev)
{
	uint32_t index = ev->what >> 2;

	switch ((enum ev_kind)(ev->what & 3)) {
	case EV_READ:
		loader_read_done(run, index);
		break;
	case EV_STEP:
		loader_step_done(run, index);
		break;
	case EV_DONE:
		run_request_done(run, index);
		break;
	case EV_ROUND:
		run->model[index].ops->driver->round(&run->model[index]);
		break;
	}
}

static void run_next(struct run *run)
{
	struct ev ev;

	assert(run->n_heap > 0);
	ev = run_pop(run);
	run->now = ev.at;
	run_handle(run, &ev);
}

static void run_loop(struct run *run)
{
	while (run->n_heap && run->heap[0].at < run->s->p.start_ns && !run->rc)
		run_next(run);
	run->now = MAX(run->now, run->s->p.start_ns);
	for (uint32_t j = 0; j < run->n_jobs && !run->rc; j++)
		loader_begin(run, j);
	while (run->jobs_left && !run->rc)
		run_next(run);
}

static int run_init_models(struct run *run, const struct policy_ops *ops)
{
	uint32_t n = run->s->n;
	int rc = 0;

	run->n_models = 1;
	run->model = calloc(run->n_models, sizeof(*run->model));
	if (!run->model)
		return -ENOMEM;
	for (uint32_t i = 0; i < run->n_models; i++) {
		run->model[i].run = run;
		run->model[i].ops = ops;
		run->model[i].index = i;
	}
	for (uint32_t j = 0; j < run->n_jobs; j++)
		run->job[j].model = &run->model[0];
	for (uint32_t i = 0; i < run->n_models && rc == 0; i++) {
		struct model *m = &run->model[i];

		m->where = mem_alloc_zero(n, sizeof(*m->where));
		rc = m->where ? ops->driver->init(m, run->err) : -ENOMEM;
	}
	return rc;
}

static int run_init(struct run *run, const struct policy_ops *ops)
{
	const struct sim_params *p = &run->s->p;
	int rc = 0;

	quantiles_lognormal(run->source_latency, p->source_latency_ms * 1e6,
			    p->source_latency_sigma);
	quantiles_lognormal(run->store_latency, p->store_latency_ms * 1e6, 0);
	device_source(&run->source, p, run->source_latency);
	device_init(&run->store, run->store_latency, p->store_mbps, 64);
	run->hit_ns = (uint64_t)(p->hit_us * 1e3 + 0.5);
	run->upcall_ns = (uint64_t)(p->upcall_us * 1e3 + 0.5);
	run->decode_ns = (uint64_t)(p->decode_ms * 1e6 + 0.5);
	run->compute_ns = (uint64_t)(p->compute_ms * 1e6 + 0.5);
	run->random = sim_mix(p->seed);
	run->free_request = NONE;
	run->n_jobs = run->jobs_left = (uint32_t)p->jobs;
	run->job = calloc(run->n_jobs, sizeof(*run->job));
	if (!run->job)
		return -ENOMEM;
	for (uint32_t j = 0; j < run->n_jobs && rc == 0; j++)
		rc = loader_init(run, j);
	return rc < 0 ? rc : run_init_models(run, ops);
}

static void run_fini(struct run *run)
{
	for (uint32_t i = 0; run->model && i < run->n_models; i++) {
		struct model *m = &run->model[i];

		m->ops->driver->fini(m);
		free(m->where);
	}
	for (uint32_t j = 0; run->job && j < run->n_jobs; j++)
		loader_fini(&run->job[j]);
	free(run->model);
	free(run->job);
	free(run->request);
	free(run->heap);
	free(run);
}

int run_policy(const struct sim_setup *s, const struct policy_ops *ops,
	       const struct sim_progress *progress, struct sim_result *result, struct err *err)
{
	struct run *run = calloc(1, sizeof(*run));
	int rc;

	if (!run)
		return err_set(err, -ENOMEM, "out of memory");
	run->s = s;
	run->result = result;
	run->progress = progress;
	run->err = err;
	err->code = 0;
	rc = run_init(run, ops);
	if (rc == 0) {
		run_loop(run);
		rc = run->rc;
	}
	run_fini(run);
	if (rc < 0 && !err->code)
		err_set(err, rc, rc == -ENOMEM ? "out of memory" : "policy %s: %s", ops->name,
			strerror(-rc));
	return rc;
}
