/* SPDX-License-Identifier: Apache-2.0 */
/* What accounting for GPU wait costs a read: (1) the planner's part, which hands over what the
 * cache has decided; (2) all of the process, the thread that feeds `struct stall` (place in the
 * pass, ghost page cache, control reads) and judges the pass included; (3) the decision whether a
 * sample is held out, for each action of the plan.
 *
 * One rank of five reads its share of ImageNet's samples in random order, a share of 1/1024 are
 * control reads, and the ghost page cache has room for a third of the others, so that most of them
 * push one out. What happens in cache/account.c is not in it: it is there to count classes anyhow.
 *
 * Time is CPU time, so that a busy machine matters less. One JSON line per result, with what it
 * should be at most. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "src/wait/wait_priv.h"

#define ROUNDS 5
#define SAMPLES 1281167u
#define READS 256000u /* as many as are kept between two looks of the thread */
#define AT_ONCE 500u
#define SIZE 110000u
#define SHARE (1.0 / 1024)
enum { RANKS = 1, WORKERS = 8, BATCH = 256, PREFETCH = 2 };

static double now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int compare_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void report(const char *name, double target, double *values)
{
	qsort(values, ROUNDS, sizeof(*values), compare_double);
	printf("{\"name\": \"%s\", \"unit\": \"ns\", \"n\": %u, \"value\": %.1f, \"best\": %.1f, "
	       "\"worst\": %.1f, \"target\": %.0f}\n",
	       name, READS, values[ROUNDS / 2], values[0], values[ROUNDS - 1], target);
}

static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* The reads of one pass as the cache tells them. */
static struct read_facts *make_notes(void)
{
	struct read_facts *note = calloc(READS, sizeof(*note));
	uint32_t *order = calloc(SAMPLES, sizeof(*order));
	uint64_t seed = 1;

	if (!note || !order)
		exit(1);
	for (uint32_t i = 0; i < SAMPLES; i++)
		order[i] = i;
	for (uint32_t i = 0; i < READS; i++) {
		uint32_t at = i + (uint32_t)(next_random(&seed) % (SAMPLES - i));
		uint32_t sample = order[at];
		bool is_staged = next_random(&seed) % 4 != 0;

		order[at] = order[i];
		note[i] = (struct read_facts){
			.unit.v = sample,
			.read_class = is_staged ? READ_STAGED : READ_ARENA,
			.reader = is_staged ? 0 : 1 + i / BATCH % WORKERS,
			.has_use = true,
			.use = { .position = i, .length = READS },
			.bytes = SIZE / 2 + next_random(&seed) % SIZE,
			.opened_ns = 1000000000ull + i * 100000ull,
			.wait_ns = is_staged ? 0 : 50000,
		};
		if (sampling_is_chosen(SHARE, sample, 0)) {
			note[i].traits.mark = WAIT_CONTROL;
			note[i].read_class = READ_MISS;
			note[i].wait_ns = 5000000;
		}
	}
	free(order);
	return note;
}

static struct wait *make_accounting(struct metrics *m)
{
	static const uint32_t ranks[RANKS] = { 0 };
	struct wait_params params = { .control_share = SHARE,
					    .ghost_bytes = (uint64_t)READS / 3 * SIZE };
	struct order_info info = { .n_ranks = RANKS,
				   .ranks = ranks,
				   .batch = BATCH,
				   .workers = WORKERS,
				   .prefetch_factor = PREFETCH };
	struct wait *a;
	struct err err = { 0 };

	if (wait_new(&params, SAMPLES, m, &a, &err) < 0 || wait_start(a, &err) < 0) {
		fprintf(stderr, "bench_stall: %s\n", err.msg);
		exit(1);
	}
	wait_set_order(a, &info, 0, true);
	return a;
}

/* Nothing may have been left out: that would be quick. */
static void check_all(struct wait *a)
{
	json_t *json = wait_json(a);
	json_t *dropped = json_object_get(json, "dropped");
	json_t *judged = json_object_get(json, "passes_judged");

	if (json_integer_value(dropped) != 0 || json_integer_value(judged) != 1) {
		fprintf(stderr, "bench_stall: not all reads were accounted for\n");
		exit(1);
	}
	json_decref(json);
}

static void bench_reads(const struct read_facts *note)
{
	double planner[ROUNDS], all[ROUNDS], began, thread;
	struct metrics *m = metrics_new();

	if (!m)
		exit(1);
	for (int round = 0; round < ROUNDS; round++) {
		struct wait *a = make_accounting(m);
		const struct probe *probe = wait_probe(a);

		began = now_ns(CLOCK_PROCESS_CPUTIME_ID);
		thread = now_ns(CLOCK_THREAD_CPUTIME_ID);
		for (uint32_t i = 0; i < READS; i += AT_ONCE)
			probe->observed(probe->ctx, &note[i], AT_ONCE);
		planner[round] = (now_ns(CLOCK_THREAD_CPUTIME_ID) - thread) / READS;
		wait_stop(a);
		all[round] = (now_ns(CLOCK_PROCESS_CPUTIME_ID) - began) / READS;
		check_all(a);
		wait_free(a);
	}
	report("accounting_planner_per_read", 1000, planner);
	report("accounting_per_read", 1000, all);
	metrics_free(m);
}

static void bench_control(const struct read_facts *note)
{
	struct metrics *m = metrics_new();
	struct wait *a = m ? make_accounting(m) : NULL;
	double values[ROUNDS], began;
	uint64_t chosen = 0;

	if (!a)
		exit(1);
	for (int round = 0; round < ROUNDS; round++) {
		began = now_ns(CLOCK_THREAD_CPUTIME_ID);
		for (uint32_t i = 0; i < READS; i++)
			chosen += sampling_is_chosen(SHARE, note[i].unit.v, (uint64_t)round) &&
				  sampling_is_wanted(wait_sampling(a), note[i].bytes);
		values[round] = (now_ns(CLOCK_THREAD_CPUTIME_ID) - began) / READS;
	}
	if (chosen == 0)
		exit(1);
	report("control_decision_per_read", 100, values);
	wait_stop(a);
	wait_free(a);
	metrics_free(m);
}

int main(void)
{
	struct read_facts *note = make_notes();

	bench_reads(note);
	bench_control(note);
	free(note);
	return 0;
}
