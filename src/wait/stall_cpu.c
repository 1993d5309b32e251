/* SPDX-License-Identifier: Apache-2.0 */
/* How busy the CPUs of the job were: told once in a while, asked for the time of a pass. With more
 * workers than CPUs, decoding that keeps the CPUs busy takes longer than its work, decoding that
 * waits for something else does not; only the CPUs can tell which it was. The points are thinned
 * out when there is no room for more, so that a day is known as well as a minute is, relative to
 * its length. And what the source gave under load, the least and the most of each few seconds,
 * because a source that others use as well is not as fast as it was an hour ago. Pure: one thread
 * at a time. */
#include "stall_priv.h"

#include <assert.h>

static void add_point(struct stall_cpu *c, uint64_t now_ns, uint64_t busy_ns)
{
	if (c->n &&
	    (now_ns <= c->point[c->n - 1].at_ns || now_ns < c->point[c->n - 1].at_ns + c->step_ns ||
	     busy_ns < c->point[c->n - 1].busy_ns))
		return;
	if (c->n == STALL_CPU_POINTS) {
		for (uint32_t i = 0; i < STALL_CPU_POINTS / 2; i++)
			c->point[i] = c->point[2 * i];
		c->n /= 2;
		c->step_ns = (c->point[c->n - 1].at_ns - c->point[0].at_ns) / c->n;
	}
	assert(c->n < STALL_CPU_POINTS);
	c->point[c->n].at_ns = now_ns;
	c->point[c->n++].busy_ns = busy_ns;
}

/* Between two points the CPUs were equally busy. */
static double busy_at(const struct stall_cpu *c, uint64_t at_ns)
{
	const struct stall_cpu_point *a, *b;
	uint32_t i = 1;

	while (i + 1 < c->n && c->point[i].at_ns < at_ns)
		i++;
	assert(i < c->n && c->n <= STALL_CPU_POINTS); /* of two points at least */
	a = &c->point[i - 1];
	b = &c->point[i];
	return (double)a->busy_ns + ((double)at_ns - (double)a->at_ns) *
					    (double)(b->busy_ns - a->busy_ns) /
					    (double)(b->at_ns - a->at_ns);
}

/* Of one CPU; negative: not known. */
static double cpu_share(const struct stall_cpu *c, uint64_t from_ns, uint64_t to_ns)
{
	if (c->n < 2 || to_ns <= from_ns || to_ns < c->point[0].at_ns ||
	    from_ns > c->point[c->n - 1].at_ns)
		return -1;
	from_ns = MAX(from_ns, c->point[0].at_ns);
	to_ns = MIN(to_ns, c->point[c->n - 1].at_ns);
	if (to_ns <= from_ns)
		return -1;
	return MAX((busy_at(c, to_ns) - busy_at(c, from_ns)) / (double)(to_ns - from_ns), 0);
}

void stall_cpu(struct stall *s, uint64_t now_ns, uint64_t busy_ns)
{
	add_point(&s->cpu, now_ns, busy_ns);
}

double stall_cpu_share(const struct stall *s, uint64_t from_ns, uint64_t to_ns)
{
	double share = s->params.cpus ? cpu_share(&s->cpu, from_ns, to_ns) : -1;

	return share < 0 ? -1 : MIN(share / s->params.cpus, 1);
}

void stall_crowd(struct stall *s, uint64_t now_ns, uint64_t waited_ns)
{
	add_point(&s->crowd, now_ns, waited_ns);
}

bool stall_is_crowded(const struct stall *s, uint64_t from_ns, uint64_t to_ns)
{
	return s->params.crowded_share > 0 &&
	       MIN(cpu_share(&s->crowd, from_ns, to_ns), 1) > s->params.crowded_share;
}

/* --- the source --- */

void stall_load(struct stall *s, uint64_t now_ns, uint64_t took_ns, uint64_t bytes)
{
	double rate = took_ns ? (double)bytes / (double)took_ns : 0;
	struct stall_load *l = &s->load[s->load_at];

	if (rate <= 0)
		return;
	if (now_ns >= l->from_ns + STALL_LOAD_NS || !l->from_ns) {
		s->load_at = (s->load_at + 1) % STALL_LOADS;
		l = &s->load[s->load_at];
		*l = (struct stall_load){ .from_ns = now_ns, .least = rate };
	}
	l->to_ns = now_ns;
	l->least = MIN(l->least, rate);
	l->most = MAX(l->most, rate);
}

bool stall_load_rates(const struct stall *s, uint64_t from_ns, uint64_t to_ns, double *ret_least,
		      double *ret_most)
{
	bool is_known = false;

	for (uint32_t i = 0; i < STALL_LOADS; i++) {
		const struct stall_load *l = &s->load[i];

		if (!l->from_ns || l->from_ns > to_ns || l->to_ns < from_ns)
			continue;
		*ret_least = is_known ? MIN(*ret_least, l->least) : l->least;
		*ret_most = is_known ? MAX(*ret_most, l->most) : l->most;
		is_known = true;
	}
	return is_known;
}
