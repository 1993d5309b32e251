/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring of traced events: off until somebody takes, whole events in the order they came, counted
 * when they were overwritten, off again when nobody takes any more. Time is what the events say.
 */
#include "check.h"

#include <errno.h>
#include <string.h>

#include "clairfs/metrics/trace.h"

#define RING 65536u
#define SECOND 1000000000ull

static struct trace_event event(uint32_t i, uint64_t end_ns)
{
	return (struct trace_event){
		.kind = TRACE_READ, .begin_ns = end_ns - 1, .end_ns = end_ns, .file = i, .bytes = ~i
	};
}

static void record(struct metrics *m, uint32_t first, uint32_t n, uint64_t end_ns)
{
	for (uint32_t i = 0; i < n; i++) {
		struct trace_event e = event(first + i, end_ns);

		metrics_trace(m, &e);
	}
}

static void take(struct metrics *m, uint64_t now_ns, struct trace_chunk *io)
{
	io->version = TRACE_VERSION;
	CHECK_INT(metrics_trace_take(m, now_ns, io), 0);
	CHECK(io->n <= TRACE_CHUNK);
}

static void nothing_is_kept_while_nobody_looks(void)
{
	struct metrics *m = metrics_new();
	struct trace_chunk *c = calloc(1, sizeof(*c));

	CHECK(!metrics_is_tracing(NULL));
	CHECK(!metrics_is_tracing(m));
	record(NULL, 0, 1, SECOND);
	record(m, 0, 10, SECOND);
	take(m, SECOND, c); /* from now on */
	CHECK_INT(c->n, 0);
	CHECK(metrics_is_tracing(m));
	take(m, SECOND, c);
	CHECK_INT(c->n, 0);
	CHECK_U64(c->lost, 0);
	free(c);
	metrics_free(m);
}

static void events_come_whole_and_in_order(void)
{
	struct metrics *m = metrics_new();
	struct trace_chunk *c = calloc(1, sizeof(*c));
	uint32_t seen = 0;

	take(m, SECOND, c);
	record(m, 0, 1000, SECOND);
	do {
		take(m, SECOND, c);
		for (uint32_t i = 0; i < c->n; i++, seen++) {
			struct trace_event want = event(seen, SECOND);

			CHECK(memcmp(&c->event[i], &want, sizeof(want)) == 0);
		}
	} while (c->n);
	CHECK_INT(seen, 1000);
	CHECK_U64(c->lost, 0);
	/* Two readers do not take from each other. */
	record(m, 7, 1, SECOND);
	uint64_t cursor = c->cursor;
	for (int i = 0; i < 2; i++) {
		c->cursor = cursor;
		take(m, SECOND, c);
		CHECK_INT(c->n, 1);
		CHECK_INT(c->event[0].file, 7);
	}
	free(c);
	metrics_free(m);
}

static void what_is_overwritten_is_counted(void)
{
	struct metrics *m = metrics_new();
	struct trace_chunk *c = calloc(1, sizeof(*c));

	take(m, SECOND, c);
	record(m, 0, RING + 100, SECOND);
	take(m, SECOND, c);
	CHECK_U64(c->lost, 100);
	CHECK_INT(c->n, TRACE_CHUNK);
	CHECK_INT(c->event[0].file, 100);
	take(m, SECOND, c);
	CHECK_U64(c->lost, 0);
	CHECK_INT(c->event[0].file, 100 + TRACE_CHUNK);
	/* A cursor from nowhere means from now on. */
	c->cursor = UINT64_MAX;
	take(m, SECOND, c);
	CHECK_INT(c->n, 0);
	free(c);
	metrics_free(m);
}

static void it_ends_when_nobody_takes(void)
{
	struct metrics *m = metrics_new();
	struct trace_chunk *c = calloc(1, sizeof(*c));
	uint64_t cursor;

	take(m, SECOND, c);
	record(m, 1, 1, 6 * SECOND); /* the last one within five seconds */
	take(m, 2 * SECOND, c);
	CHECK_INT(c->n, 1);
	CHECK_INT(c->event[0].file, 1);
	record(m, 2, 1, 7 * SECOND + 1);
	CHECK(!metrics_is_tracing(m));
	record(m, 3, 1, 8 * SECOND);
	cursor = c->cursor;
	take(m, 9 * SECOND, c); /* who comes back goes on, with a gap that nobody can count */
	CHECK_INT(c->n, 0);
	CHECK_U64(c->cursor, cursor);
	record(m, 4, 1, 9 * SECOND);
	take(m, 9 * SECOND, c);
	CHECK_INT(c->n, 1);
	CHECK_INT(c->event[0].file, 4);
	c->version = TRACE_VERSION + 1;
	CHECK_INT(metrics_trace_take(m, 9 * SECOND, c), -EPROTO);
	CHECK(metrics_trace_group(m) != metrics_trace_group(m));
	free(c);
	metrics_free(m);
}

struct writer {
	struct metrics *m;
	pthread_t thread;
	uint32_t number;
};

enum { WRITERS = 4, EVENTS = 3000 };

static void *write_events(void *arg)
{
	struct writer *w = arg;

	record(w->m, w->number * EVENTS, EVENTS, SECOND);
	return NULL;
}

static void threads_lose_nothing(void)
{
	struct metrics *m = metrics_new();
	struct trace_chunk *c = calloc(1, sizeof(*c));
	struct writer writers[WRITERS];
	uint32_t next[WRITERS] = { 0 }, seen = 0;

	take(m, SECOND, c);
	for (uint32_t i = 0; i < WRITERS; i++) {
		writers[i] = (struct writer){ .m = m, .number = i };
		CHECK_INT(pthread_create(&writers[i].thread, NULL, write_events, &writers[i]), 0);
	}
	while (seen < WRITERS * EVENTS) { /* all of them fit into the ring */
		take(m, SECOND, c);
		CHECK_U64(c->lost, 0);
		for (uint32_t i = 0; i < c->n; i++, seen++) {
			uint32_t w = c->event[i].file / EVENTS;

			CHECK(w < WRITERS && c->event[i].bytes == ~c->event[i].file);
			CHECK_INT(c->event[i].file % EVENTS, next[w]++);
		}
	}
	for (uint32_t i = 0; i < WRITERS; i++)
		CHECK_INT(pthread_join(writers[i].thread, NULL), 0);
	free(c);
	metrics_free(m);
}

static const struct check_test tests[] = {
	{ "nothing_is_kept_while_nobody_looks", nothing_is_kept_while_nobody_looks },
	{ "events_come_whole_and_in_order", events_come_whole_and_in_order },
	{ "what_is_overwritten_is_counted", what_is_overwritten_is_counted },
	{ "it_ends_when_nobody_takes", it_ends_when_nobody_takes },
	{ "threads_lose_nothing", threads_lose_nothing },
};
CHECK_MAIN(tests)
