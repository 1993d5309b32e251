/* SPDX-License-Identifier: Apache-2.0 */
/* See stall_kit.h. */
#include "stall_kit.h"

#include <math.h>
#include <string.h>

const struct stall_case some_case = {
	.workers = 4,
	.prefetch = 2,
	.batch = 7,
	.steps = 60,
	.compute_s = 0.05,
	.decode_s = 0.001,
	.source_s = 0.06,
	.source_cv = 0.5,
	.controls = 100,
};

#define GATHER_S 0.005
#define HIT_S 0.00004

static double uniform(uint64_t *rnd)
{
	return ((double)(check_rand_u64(rnd) >> 11) + 0.5) / 9007199254740992.0;
}

double stall_rand_time(uint64_t *rnd, double mean, double cv)
{
	double sigma2 = log(1 + cv * cv);
	double normal = sqrt(-2 * log(uniform(rnd))) * cos(6.283185307179586 * uniform(rnd));

	return cv > 0 ? mean * exp(sqrt(sigma2) * normal - sigma2 / 2) : mean;
}

/* One worker's index queue: it takes what is put in, one after the other. */
struct worker {
	double free_at;
};

double stall_loader(const struct stall_plan *p)
{
	struct worker *worker = calloc(p->workers, sizeof(*worker));
	double *done = calloc(p->n, sizeof(*done)), now = 0;
	uint32_t sent = 0;

	/* The loop puts `prefetch` batches into each worker's queue before it asks for the first.
	 */
	for (uint32_t k = 0; k < p->n; k++) {
		uint32_t limit = MIN(k + p->workers * p->prefetch, p->n);

		for (; sent < limit; sent++) { /* put at `now`: at the start, or on taking k - 1 */
			struct worker *w = &worker[sent % p->workers];
			double began = fmax(w->free_at, now);

			done[sent] = began + p->io[sent] + p->decode[sent];
			w->free_at = done[sent];
			if (p->began)
				p->began[sent] = began;
		}
		now = fmax(now, done[k]);
		if (p->done)
			p->done[k] = done[k];
		if (p->taken)
			p->taken[k] = now;
		/* Taking k lets the next one be put in, before the step begins. */
		if (sent < p->n) {
			struct worker *w = &worker[sent % p->workers];
			double began = fmax(w->free_at, now);

			done[sent] = began + p->io[sent] + p->decode[sent];
			w->free_at = done[sent];
			if (p->began)
				p->began[sent] = began;
			sent++;
		}
		now += p->compute[k];
	}
	free(worker);
	free(done);
	return now;
}

static uint64_t ns(double s)
{
	return (uint64_t)(s * 1e9);
}

struct pass {
	double *source, *wait, *decode; /* per sample */
	bool *is_miss;
	double *io_with, *io_without, *dec, *compute, *began, *taken; /* per batch */
};

static void pass_make(struct pass *p, const struct stall_case *c, uint64_t *rnd)
{
	uint32_t n = c->steps * c->batch;

	p->source = calloc(n, sizeof(double));
	p->wait = calloc(n, sizeof(double));
	p->decode = calloc(n, sizeof(double));
	p->is_miss = calloc(n, sizeof(bool));
	p->io_with = calloc(c->steps, sizeof(double));
	p->io_without = calloc(c->steps, sizeof(double));
	p->dec = calloc(c->steps, sizeof(double));
	p->compute = calloc(c->steps, sizeof(double));
	p->began = calloc(c->steps, sizeof(double));
	p->taken = calloc(c->steps, sizeof(double));
	for (uint32_t i = 0; i < n; i++) {
		p->source[i] = stall_rand_time(rnd, c->source_s, c->source_cv);
		p->decode[i] = stall_rand_time(rnd, c->decode_s, c->decode_cv);
		p->is_miss[i] = uniform(rnd) < c->miss_share;
		p->wait[i] = p->is_miss[i] ? p->source[i] : uniform(rnd) < 0.1 ? HIT_S : 0;
		p->io_with[i / c->batch] += p->wait[i];
		p->io_without[i / c->batch] += c->is_ghost ? p->wait[i] : p->source[i];
		p->dec[i / c->batch] += p->decode[i];
	}
	for (uint32_t k = 0; k < c->steps; k++)
		p->compute[k] = stall_rand_time(rnd, c->compute_s, c->compute_cv);
}

static void pass_free(struct pass *p)
{
	free(p->source);
	free(p->wait);
	free(p->decode);
	free(p->is_miss);
	free(p->io_with);
	free(p->io_without);
	free(p->dec);
	free(p->compute);
	free(p->began);
	free(p->taken);
}

static void tell_reads(struct stall *s, const struct stall_case *c, const struct pass *p,
		       double start, uint64_t number)
{
	for (uint32_t k = 0; k < c->steps; k++) {
		double at = start + p->began[k];

		for (uint32_t i = k * c->batch; i < (k + 1) * c->batch; i++) {
			double heard = ceil(at / GATHER_S) * GATHER_S;
			struct stall_read read = {
				.has_place = true,
				.read_class = p->is_miss[i] ? READ_MISS
					      : p->wait[i]  ? READ_ARENA
							    : READ_STAGED,
				.pass = number,
				.index = i,
				.length = (uint64_t)c->steps * c->batch,
				.unit = { i },
				.bytes = 100000,
				.opened_ns = ns(p->wait[i] ? at : heard),
				.wait_ns = ns(p->wait[i]),
				.reader = p->wait[i] ? 1 + k % c->workers : 0,
			};

			CHECK_INT(stall_read(s, &read), 0);
			at += p->wait[i] + p->decode[i];
		}
	}
}

static void tell_steps(struct stall *s, const struct stall_case *c, const struct pass *p,
		       double start)
{
	for (uint32_t k = 0; k < c->steps; k++) {
		double asked = k ? p->taken[k - 1] + p->compute[k - 1] : 0;
		struct clairfs_step_record step = {
			.flags = k ? 0 : CLAIRFS_STEP_FIRST,
			.step = k,
			.t_request = ns(start + asked),
			.t_ready = ns(start + p->taken[k]),
			.t_next = ns(start + p->taken[k] + p->compute[k]),
		};

		CHECK(stall_step(s, &step));
	}
}

void stall_case_play(struct stall *s, const struct stall_case *c, uint64_t number, uint64_t seed,
		     bool with_hook, struct stall_truth *ret)
{
	struct pass p;
	struct stall_plan plan = { .workers = c->workers, .prefetch = c->prefetch, .n = c->steps };
	double start = 100 + (double)number * 10000;

	for (uint32_t i = 0; c->is_ghost && i < c->steps * c->batch; i++)
		CHECK_INT(stall_read(s, &(struct stall_read){ .unit = { i }, .bytes = 100000 }), 0);
	pass_make(&p, c, &seed);
	plan.decode = p.dec;
	plan.compute = p.compute;
	plan.io = p.io_without;
	*ret = (struct stall_truth){ .without_s = stall_loader(&plan) };
	plan.io = p.io_with;
	plan.began = p.began;
	plan.taken = p.taken;
	ret->with_s = stall_loader(&plan);
	for (uint32_t i = 0; i < c->steps * c->batch; i++)
		ret->saved_latency_s += c->is_ghost ? 0 : p.source[i] - p.wait[i];
	for (uint32_t k = 0; k < c->steps; k++)
		ret->compute_s += p.compute[k];
	if (with_hook)
		tell_steps(s, c, &p, start);
	tell_reads(s, c, &p, start, number);
	pass_free(&p);
}

void stall_case_controls(struct stall *s, const struct stall_case *c, uint64_t seed)
{
	uint64_t rnd = seed ^ 0x5555;

	for (uint32_t i = 0; i < c->controls; i++) {
		struct stall_read read = {
			.is_control = true,
			.read_class = READ_MISS,
			.unit = { i },
			.bytes = 100000,
			.wait_ns = ns(stall_rand_time(&rnd, c->source_s, c->source_cv)),
		};

		CHECK_INT(stall_read(s, &read), 0);
	}
	/* Twice the job's load does not make it slower. */
	for (uint32_t t = 0; t < 200; t++)
		stall_load(s, ns(1 + t * 100), ns(1),
			   (uint64_t)(2 * c->workers / c->source_s * 100000));
}
