/* SPDX-License-Identifier: Apache-2.0 */
/* What metrics cost: (1) the page for Prometheus, with 64 ranks and a label as in a textfile, and
 * its size; (2) counting once, which every read does a few times; (3) one observation of a
 * histogram; (4) asking whether somebody traces, which every read does a few times, and an event
 * when somebody does. One thread.
 *
 * Time is the thread's CPU time, so that a busy machine matters less. One JSON line per result,
 * with what it should be at most. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "clairfs/metrics.h"
#include "clairfs/metrics/trace.h"

#define ROUNDS 9
#define COUNTS 2000000u
#define RANKS 64

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int compare_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void report(const char *name, uint64_t n, double target, double *values)
{
	qsort(values, ROUNDS, sizeof(*values), compare_double);
	printf("{\"name\": \"%s\", \"unit\": \"ns\", \"n\": %" PRIu64
	       ", \"value\": %.1f, \"best\": %.1f, \"worst\": %.1f, \"target\": %.0f}\n",
	       name, n, values[ROUNDS / 2], values[0], values[ROUNDS - 1], target);
}

static void bench_page(struct metrics *m)
{
	double values[ROUNDS];
	size_t size = 0;

	for (uint32_t rank = 0; rank < RANKS; rank++)
		for (int i = 0; i < METRIC_RANKS; i++)
			metrics_rank_set(m, (enum metric_rank)i, rank, 123456789012ull * rank);
	for (int round = 0; round < ROUNDS; round++) {
		struct buf_writer out;
		double began = now_ns();

		buf_writer_init(&out);
		metrics_print_prometheus(m, "mount=\"mnt-imagenet-12345678\"", &out);
		values[round] = now_ns() - began;
		size = out.size;
		buf_writer_fini(&out);
	}
	report("metrics_page_64_ranks", size, 5e6, values);
}

static void bench_counts(struct metrics *m)
{
	double values[ROUNDS];

	for (int round = 0; round < ROUNDS; round++) {
		double began = now_ns();

		for (uint32_t i = 0; i < COUNTS; i++)
			metrics_add(m, METRIC_READS_MISS, 1);
		values[round] = (now_ns() - began) / COUNTS;
	}
	report("metrics_add", COUNTS, 50, values);
	for (int round = 0; round < ROUNDS; round++) {
		double began = now_ns();

		for (uint32_t i = 0; i < COUNTS; i++)
			metrics_observe(m, METRIC_HIST_READ_PFS, i * 1000ull);
		values[round] = (now_ns() - began) / COUNTS;
	}
	report("metrics_observe", COUNTS, 100, values);
}

/* An event is recorded only when somebody looks; the compiler must not know who does. */
static double trace_round(struct metrics *volatile *m)
{
	struct trace_event e = { .end_ns = 1 };
	double began = now_ns();

	for (uint32_t i = 0; i < COUNTS; i++)
		if (metrics_is_tracing(*m))
			metrics_trace(*m, &e);
	return (now_ns() - began) / COUNTS;
}

static void bench_trace(struct metrics *m)
{
	struct trace_chunk *chunk = calloc(1, sizeof(*chunk));
	struct metrics *volatile shared = m;
	double values[ROUNDS];

	if (!chunk)
		return;
	for (int round = 0; round < ROUNDS; round++)
		values[round] = trace_round(&shared);
	report("trace_off", COUNTS, 2, values);
	chunk->version = TRACE_VERSION;
	for (int round = 0; round < ROUNDS && metrics_trace_take(m, 1, chunk) == 0; round++)
		values[round] = trace_round(&shared);
	report("trace_on", COUNTS, 100, values);
	free(chunk);
}

int main(void)
{
	struct metrics *m = metrics_new();

	if (!m)
		return 1;
	bench_counts(m);
	bench_trace(m);
	bench_page(m);
	metrics_free(m);
	return 0;
}
