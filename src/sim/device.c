/* SPDX-License-Identifier: Apache-2.0 */
/* The source and the store as devices: `parallel` requests are served at once, the rest waits first
 * come first served; the bytes of all of them share one link, and each request then takes a latency
 * of its own. So a device is never idle while something waits, the link's bandwidth is kept
 * exactly, and a single reader sees latency + bytes/bandwidth.
 *
 * The source's bandwidth may swing (a(1+x) for half a period, a(1-x) for the other half) and fail
 * for a while. Latencies are drawn from 4096 quantiles of the distribution: as good as the real one
 * up to one in 8192, and cheap. Must never lose a request. */
#include <math.h>

#include "sim_priv.h"

void device_init(struct device *d, const double *latency, double mbps, uint64_t parallel)
{
	*d = (struct device){ .latency = latency,
			      .ns_per_byte = 1e3 / mbps,
			      .parallel = (uint32_t)parallel,
			      .head = NONE,
			      .tail = NONE };
}

void device_source(struct device *d, const struct sim_params *p, const double *latency)
{
	device_init(d, latency, p->source_mbps, p->source_parallel);
	d->amplitude = p->burst_amplitude;
	d->period_ns = p->burst_period_s * (double)NS_PER_S;
	d->outage_from = p->outage_at_s * (double)NS_PER_S;
	d->outage_to = (p->outage_at_s + p->outage_s) * (double)NS_PER_S;
}

/* Bandwidth at a time, as a factor of the mean, and until when it stays so. */
static double device_rate(const struct device *d, double at, double *ret_until)
{
	double rate = 1, until = INFINITY;

	if (d->amplitude > 0) {
		double half = d->period_ns / 2, n = floor(at / half);

		if ((n + 1) * half <= at)
			n++; /* the quotient was rounded down */
		rate = fmod(n, 2) == 0 ? 1 + d->amplitude : 1 - d->amplitude;
		until = (n + 1) * half;
	}
	if (at < d->outage_from) {
		until = MIN(until, d->outage_from);
	} else if (at < d->outage_to) {
		rate = 0;
		until = d->outage_to;
	}
	*ret_until = until;
	return rate;
}

double device_transfer(const struct device *d, double at, double bytes)
{
	double left = bytes * d->ns_per_byte, until, rate;

	if (d->amplitude == 0 && at >= d->outage_to)
		return at + left;
	for (;;) {
		rate = device_rate(d, at, &until);
		if (left <= rate * (until - at))
			return rate > 0 ? at + left / rate : at;
		left -= rate * (until - at);
		at = until;
	}
}

static void device_start(struct run *run, struct device *d, uint32_t request)
{
	const struct request *req = &run->request[request];
	double begin = MAX(d->link_free, (double)run->now);

	d->inflight++;
	d->link_free = device_transfer(d, begin, (double)setup_size(run->s, req->sample));
	run_push(run, (uint64_t)(d->link_free + d->latency[run_random(run) % QUANTILES]), EV_DONE,
		 request);
}

void device_submit(struct run *run, struct device *d, uint32_t request)
{
	if (d->inflight < d->parallel) {
		device_start(run, d, request);
		return;
	}
	run->request[request].next = NONE;
	if (d->tail == NONE)
		d->head = request;
	else
		run->request[d->tail].next = request;
	d->tail = request;
}

void device_done(struct run *run, struct device *d)
{
	uint32_t request = d->head;

	assert(d->inflight > 0);
	d->inflight--;
	if (request == NONE)
		return;
	d->head = run->request[request].next;
	if (d->head == NONE)
		d->tail = NONE;
	device_start(run, d, request);
}

/* Inverse of the normal distribution function by bisection: made once per run, so simple is best.
 */
static double normal_quantile(double p)
{
	double low = -9, high = 9;

	for (int i = 0; i < 60; i++) {
		double mid = (low + high) / 2;

		if (erfc(-mid / sqrt(2)) / 2 < p)
			low = mid;
		else
			high = mid;
	}
	return (low + high) / 2;
}

void quantiles_lognormal(double *out, double mean, double sigma)
{
	double sum = 0;

	for (uint32_t i = 0; i < QUANTILES; i++) {
		out[i] = sigma > 0 ? exp(sigma * normal_quantile((i + 0.5) / QUANTILES)) : 1;
		sum += out[i];
	}
	for (uint32_t i = 0; i < QUANTILES; i++)
		out[i] *= mean * QUANTILES / sum;
}
