/* SPDX-License-Identifier: Apache-2.0 */
/* Control reads: what the source takes for a sample when nobody has fetched it ahead. They are kept
 * by class of size (powers of two), because size is what a read's time depends on most; classes
 * with few of them are taken together with their neighbours, which is no bias, as which samples are
 * held out does not depend on their size.
 *
 * Times of a source are skewed to the right. Mean and deviation of such samples grow together, so
 * the lower limit mean - t * deviation / sqrt(n) is below the truth in at least the 95 % it
 * promises. Whoever replays draws single reads from those kept, not the mean: what makes a loader
 * wait in the marginal case is their spread. Pure: any thread, one at a time. */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "mix.h"
#include "stall_priv.h"

uint32_t stall_size_class(uint64_t bytes)
{
	uint32_t bits = bytes ? 64 - (uint32_t)__builtin_clzll(bytes) : 0;

	return MIN(bits, STALL_SIZE_CLASSES - 1);
}

int stall_control_add(struct stall *s, uint64_t bytes, uint64_t wait_ns)
{
	struct stall_control *c = &s->control[stall_size_class(bytes)];
	double away;

	if (c->n >= STALL_CONTROLS_MAX)
		return 0;
	if (!c->wait)
		c->wait = calloc(STALL_CONTROLS_MAX, sizeof(*c->wait));
	if (!c->wait)
		return -ENOMEM;
	c->wait[c->n++] = (uint32_t)MIN(wait_ns >> STALL_WAIT_SHIFT, UINT32_MAX);
	assert(c->n <= STALL_CONTROLS_MAX);
	away = (double)wait_ns - c->mean;
	c->mean += away / (double)c->n;
	c->m2 += away * ((double)wait_ns - c->mean);
	s->node.controls_used++;
	return 0;
}

bool stall_wants_control(const struct stall *s, uint64_t bytes)
{
	return s->control[stall_size_class(bytes)].n < STALL_CONTROLS_MAX;
}

/* Adds a class to a group: mean and variance of both together. */
static void group_add(struct stall_group *g, const struct stall_control *c, uint32_t class)
{
	double n = (double)(g->n + c->n), away = c->mean - g->mean;

	if (g->n == 0)
		g->first = class;
	g->last = class;
	if (c->n == 0)
		return;
	/* variance holds the sum of squares until stall_groups_make is done with it */
	g->variance += c->m2 + away * away * (double)g->n * (double)c->n / n;
	g->mean += away * (double)c->n / n;
	g->n += c->n;
}

static void group_merge(struct stall_group *g, const struct stall_group *more)
{
	double n = (double)(g->n + more->n), away = more->mean - g->mean;

	if (more->n) {
		g->variance += more->variance + away * away * (double)g->n * (double)more->n / n;
		g->mean += away * (double)more->n / n;
		g->n += more->n;
	}
	g->last = MAX(g->last, more->last);
}

bool stall_groups_make(const struct stall *s, struct stall_groups *ret)
{
	struct stall_group g = { 0 };

	*ret = (struct stall_groups){ 0 };
	for (uint32_t i = 0; i < STALL_SIZE_CLASSES; i++) {
		group_add(&g, &s->control[i], i);
		ret->of[i] = ret->n;
		if (g.n < STALL_GROUP_MIN)
			continue;
		ret->group[ret->n++] = g;
		g = (struct stall_group){ 0 };
	}
	if (ret->n == 0) {
		if (g.n < STALL_CONTROLS_MIN)
			return false;
		ret->group[ret->n++] = g;
	} else {
		group_merge(&ret->group[ret->n - 1], &g);
	}
	for (uint32_t i = 0; i < STALL_SIZE_CLASSES; i++)
		ret->of[i] = MIN(ret->of[i], ret->n - 1);
	for (uint32_t i = 0; i < ret->n; i++)
		ret->group[i].variance /= (double)(ret->group[i].n - 1);
	return true;
}

uint64_t stall_group_draw(const struct stall *s, const struct stall_group *g, uint64_t chance)
{
	uint64_t at = mix_bits(chance) % g->n;

	assert(g->first <= g->last);
	for (uint32_t i = g->first; i <= g->last; i++) {
		if (at < s->control[i].n)
			return (uint64_t)s->control[i].wait[at] << STALL_WAIT_SHIFT;
		at -= s->control[i].n;
	}
	return 0; /* not reached: g->n is their sum */
}

/* The 95 % quantile of Student's t, from the normal one (Cornish and Fisher); 0.1 % off at 7
 * degrees of freedom. */
static double student_95(double df)
{
	const double z = 1.6448536269514722, z2 = z * z;
	double a = (z2 + 1) * z / 4, b = ((5 * z2 + 16) * z2 + 3) * z / 96;
	double c = (((3 * z2 + 19) * z2 + 17) * z2 - 15) * z / 384;

	return z + a / df + b / (df * df) + c / (df * df * df);
}

void stall_groups_sum(const struct stall_groups *g, const uint64_t *n, double *ret_mean,
		      double *ret_margin)
{
	double sum = 0, of_mean = 0, of_reads = 0, below = 0;

	for (uint32_t i = 0; i < g->n; i++) {
		const struct stall_group *k = &g->group[i];
		double reads = (double)n[i], var = reads * reads * k->variance / (double)k->n;

		sum += reads * k->mean;
		of_mean += var;
		of_reads += reads * k->variance; /* the reads are a sample as well */
		below += var * var / (double)(k->n - 1);
	}
	*ret_mean = sum;
	*ret_margin = below > 0 ? student_95(of_mean * of_mean / below) * sqrt(of_mean + of_reads) : 0;
}
