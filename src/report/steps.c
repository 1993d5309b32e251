/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of one rank, in memory that a long job cannot exhaust: two numbers for each step while
 * there are few, then for each two, four, eight... Groups begin at multiples of their size, so the
 * logs of two ranks can be laid over each other whatever each of them has come to: the finer one is
 * made coarse.
 *
 * Microseconds in 32 bits are enough for one step of an hour; what is longer is shown as that, and
 * is exact in the totals.
 *
 * Used by the daemon (steps that come in, under its lock) and by clairfs report. It must never
 * trust a number of a record: they come from a training job.
 */
#include <errno.h>
#include <string.h>

#include "clairfs/hint.h"
#include "clairfs/report.h"

#define FIRST_CAPACITY 1024u

const char *const step_log_names[2] = { "wait_us", "span_us" };
const char *const replay_log_names[2] = { "with_us", "without_us" };

static uint32_t sum(uint32_t a, uint32_t b)
{
	uint64_t both = (uint64_t)a + b;

	if (a == STEP_UNKNOWN || b == STEP_UNKNOWN)
		return a == STEP_UNKNOWN ? b : a;
	return (uint32_t)MIN(both, STEP_UNKNOWN - 1);
}

/* What is lost by rounding down goes into the next one. */
static uint32_t to_us(uint64_t ns, uint32_t *rest_ns)
{
	ns += *rest_ns;
	*rest_ns = (uint32_t)(ns % 1000);
	return (uint32_t)MIN(ns / 1000, STEP_UNKNOWN - 1);
}

static void halve(struct step_log *log)
{
	uint64_t n = DIV_ROUND_UP(log->n, 2);

	for (uint64_t i = 0; i < n; i++) {
		bool has_two = 2 * i + 1 < log->n;

		log->wait_us[i] =
			sum(log->wait_us[2 * i], has_two ? log->wait_us[2 * i + 1] : STEP_UNKNOWN);
		log->span_us[i] =
			sum(log->span_us[2 * i], has_two ? log->span_us[2 * i + 1] : STEP_UNKNOWN);
	}
	log->n = n;
	log->every *= 2;
}

void step_log_coarsen(struct step_log *log, uint64_t every)
{
	while (log->every && log->every < every)
		halve(log);
}

static int log_reserve(struct step_log *log, uint64_t n, uint64_t limit)
{
	uint64_t capacity = MIN(MAX(log->capacity * 2, MAX(n, FIRST_CAPACITY)), limit);
	uint32_t *wait, *span;

	if (n <= log->capacity)
		return 0;
	wait = realloc(log->wait_us, capacity * sizeof(*wait));
	if (wait)
		log->wait_us = wait;
	span = wait ? realloc(log->span_us, capacity * sizeof(*span)) : NULL;
	if (!span)
		return -ENOMEM;
	log->span_us = span;
	log->capacity = capacity;
	return 0;
}

int step_log_add(struct step_log *log, uint64_t step, uint64_t wait_ns, uint64_t span_ns)
{
	uint64_t limit = log->limit ? log->limit : STEP_LOG_ENTRIES, at;
	int rc;

	if (step >= STEP_MAX)
		return -EINVAL;
	if (!log->every)
		log->every = 1;
	while (step / log->every >= limit)
		halve(log);
	at = step / log->every;
	rc = log_reserve(log, at + 1, limit);
	if (rc < 0)
		return rc;
	for (; log->n <= at; log->n++)
		log->wait_us[log->n] = log->span_us[log->n] = STEP_UNKNOWN;
	log->wait_us[at] = sum(log->wait_us[at], to_us(wait_ns, &log->wait_rest_ns));
	log->span_us[at] = sum(log->span_us[at], to_us(span_ns, &log->span_rest_ns));
	return 0;
}

void step_log_fini(struct step_log *log)
{
	free(log->wait_us);
	free(log->span_us);
	*log = (struct step_log){ .limit = log->limit };
}

bool step_is_plausible(const struct clairfs_step_record *step, uint32_t world)
{
	uint32_t known = CLAIRFS_STEP_FLAGS | UINT32_MAX << CLAIRFS_STEP_LOADER_SHIFT;

	return step->rank < world && step->step < STEP_MAX && (step->flags & ~known) == 0 &&
	       step->t_request > 0 && step->t_request <= step->t_ready &&
	       step->t_ready <= step->t_next;
}

void step_totals_add(struct step_totals *totals, const struct clairfs_step_record *step)
{
	uint64_t wait = step->t_ready - step->t_request;

	totals->steps++;
	totals->wait_ns += wait;
	totals->max_wait_ns = MAX(totals->max_wait_ns, wait);
	if (step->flags & CLAIRFS_STEP_FIRST)
		totals->first_wait_ns += wait;
	if (step->flags & CLAIRFS_STEP_INNER)
		return;
	totals->outer++;
	totals->span_ns += step->t_next - step->t_request;
}

double step_au_percent(const struct step_totals *totals)
{
	if (totals->span_ns == 0)
		return 0;
	return 100 * (1 - (double)MIN(totals->wait_ns, totals->span_ns) / (double)totals->span_ns);
}

static bool is_name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '.' || c == '_' || c == '-';
}

void job_name_clean(const char *text, size_t length, char *out, size_t size)
{
	size_t n = 0;

	while (n < length && n + 1 < size && text[n] && is_name_char(text[n])) {
		out[n] = text[n];
		n++;
	}
	out[n] = '\0';
}
