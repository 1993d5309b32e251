/* SPDX-License-Identifier: Apache-2.0 */
/* The charts of a bench's report: which numbers are shown over which. Time on an axis is the time
 * of a side's own epochs, one after the other: what other sides did in between is left out. Long
 * runs are thinned to what a screen can show. Pure but for the drawing (chart_cairo.c). */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "charts.h"

#define POINTS_MAX 1200

static const uint32_t side_colours[SIDES] = { [SIDE_DIRECTORY] = 1,
					      [SIDE_MOUNT] = 0,
					      [SIDE_SOURCE] = 1,
					      [SIDE_PAGECACHE] = 2,
					      [SIDE_CLAIRFS] = 0 };

/* Points of one series, heap until the chart is drawn. */
static int series_new(struct chart *chart, const char *name, uint32_t colour, uint32_t n_max,
		      double **ret_x, double **ret_y)
{
	struct chart_series *s = &chart->series[chart->n_series];

	if (chart->n_series == CHART_SERIES)
		return -ENOMEM;
	*ret_x = malloc(MAX(n_max, 1) * sizeof(double));
	*ret_y = malloc(MAX(n_max, 1) * sizeof(double));
	if (!*ret_x || !*ret_y) {
		free(*ret_x);
		free(*ret_y);
		return -ENOMEM;
	}
	*s = (struct chart_series){ .name = name, .x = *ret_x, .y = *ret_y, .colour = colour };
	chart->n_series++;
	return 0;
}

static void chart_fini(struct chart *chart)
{
	for (uint32_t i = 0; i < chart->n_series; i++) {
		free((void *)(uintptr_t)chart->series[i].x);
		free((void *)(uintptr_t)chart->series[i].y);
	}
}

static uint32_t count(const struct bench_report *r, enum bench_side side)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < r->n_results; i++)
		n += r->result[i].side == side;
	return n;
}

static int add_stall(struct chart *chart, const struct bench_report *r, enum bench_side side)
{
	uint32_t n = count(r, side), every = n * BENCH_BINS / POINTS_MAX + 1;
	double *x, *y, start = 0, sum = 0;
	int rc = series_new(chart, bench_side_names[side], side_colours[side], n * BENCH_BINS + 1,
			    &x, &y);
	struct chart_series *s = &chart->series[chart->n_series - 1];

	if (rc < 0)
		return rc;
	x[s->n] = y[s->n] = 0;
	s->n++;
	for (uint32_t i = 0; i < r->n_results; i++) {
		const struct bench_result *res = &r->result[i];

		for (uint32_t b = 0; b < BENCH_BINS && res->side == side; b++) {
			sum += res->stall_bin[b];
			if ((b + 1) % every && b + 1 < BENCH_BINS)
				continue;
			x[s->n] = start + res->seconds * (b + 1) / BENCH_BINS;
			y[s->n++] = sum;
		}
		start += res->side == side ? res->seconds : 0;
	}
	return 0;
}

static int add_lead(struct chart *chart, const struct bench_report *r, enum bench_side side)
{
	uint32_t n = count(r, side);
	double *x, *y, start = 0;
	int rc = series_new(chart, bench_side_names[side], side_colours[side], n * BENCH_BINS, &x,
			    &y);
	struct chart_series *s = &chart->series[chart->n_series - 1];

	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < r->n_results; i++) {
		const struct bench_result *res = &r->result[i];

		if (res->side != side)
			continue;
		for (uint32_t k = 0; k < res->n_leads; k++) {
			x[s->n] = start + res->lead_at[k];
			y[s->n++] = res->lead[k];
		}
		start += res->seconds;
	}
	return 0;
}

static int add_latency(struct chart *chart, const struct bench_report *r, enum bench_side side)
{
	uint64_t bin[BENCH_LATENCIES] = { 0 }, all = 0, sum = 0;
	double *x, *y;
	int rc = series_new(chart, bench_side_names[side], side_colours[side], BENCH_LATENCIES, &x,
			    &y);
	struct chart_series *s = &chart->series[chart->n_series - 1];

	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < r->n_results; i++)
		for (uint32_t b = 0; b < BENCH_LATENCIES && r->result[i].side == side; b++) {
			bin[b] += r->result[i].latency[b];
			all += r->result[i].latency[b];
		}
	for (uint32_t b = 0; b < BENCH_LATENCIES && sum < all; b++) {
		sum += bin[b];
		if (!sum)
			continue;
		x[s->n] = 1e3 * bench_latency_edge(b + 1);
		y[s->n++] = 100.0 * (double)sum / (double)all;
	}
	return 0;
}

static int add_au(struct chart *chart, const struct bench_report *r, enum bench_side side)
{
	double *x, *y;
	int rc =
		series_new(chart, bench_side_names[side], side_colours[side], r->n_results, &x, &y);
	struct chart_series *s = &chart->series[chart->n_series - 1];

	for (uint32_t i = 0; rc == 0 && i < r->n_results; i++)
		if (r->result[i].side == side && isfinite(r->result[i].au_percent)) {
			x[s->n] = (double)r->result[i].epoch;
			y[s->n++] = r->result[i].au_percent;
		}
	return rc;
}

static int add_class(struct chart *chart, const struct bench_report *r, int class)
{
	static const uint32_t colours[READ_CLASSES] = { 0, 5, 3, 4, 6, 1 };
	double *x, *y;
	int rc = series_new(chart, read_class_names[class], colours[class], r->n_results, &x, &y);
	struct chart_series *s = &chart->series[chart->n_series - 1];

	for (uint32_t i = 0; rc == 0 && i < r->n_results; i++) {
		const struct bench_counts *c = &r->result[i].counts;
		double all = 0;

		for (int k = 0; k < READ_CLASSES; k++)
			all += c->reads[k];
		if (!c->is_known || all <= 0)
			continue;
		x[s->n] = (double)r->result[i].epoch;
		y[s->n++] = 100 * c->reads[class] / all;
	}
	return rc;
}

/* Adds a series for one side. */
typedef int add_fn(struct chart *chart, const struct bench_report *r, enum bench_side side);

static int draw(struct chart *chart, bool is_dark, struct buf_writer *out, int rc, struct err *err)
{
	rc = rc < 0 ? err_set_errno(err, rc, "--html") : chart_svg(chart, is_dark, out, err);
	chart_fini(chart);
	return rc;
}

static int by_side(struct chart *chart, const struct bench_report *r, add_fn *add, bool is_dark,
		   struct buf_writer *out, struct err *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < r->n_sides && rc == 0; i++)
		rc = add(chart, r, r->side[i]);
	return draw(chart, is_dark, out, rc, err);
}

static bool has_mount(const struct bench_report *r)
{
	for (uint32_t i = 0; i < r->n_results; i++)
		if (r->result[i].counts.is_known)
			return true;
	return false;
}

static bool has_leads(const struct bench_report *r)
{
	for (uint32_t i = 0; i < r->n_results; i++)
		if (r->result[i].n_leads)
			return true;
	return false;
}

const char *bench_chart_name(const struct bench_report *r, enum bench_chart which)
{
	switch (which) {
	case BENCH_CHART_STALL:
		return "Stall over time: seconds waited for data since the first epoch began, rank "
		       "0";
	case BENCH_CHART_AU:
		return "Accelerator utilisation by epoch";
	case BENCH_CHART_LATENCY:
		return "Latency: share of reads of a sample that took at most so long";
	case BENCH_CHART_CLASSES:
		return has_mount(r) ? "Reads of the mount by class and epoch" : NULL;
	case BENCH_CHART_LEAD:
		return has_leads(r) ? "Lead: samples between the reader and the first one not in "
				      "memory"
				    : NULL;
	default:
		return NULL;
	}
}

int bench_chart_svg(const struct bench_report *r, enum bench_chart which, bool is_dark,
		    struct buf_writer *out, struct err *err)
{
	struct chart c = { .title = bench_chart_name(r, which) };
	int rc = 0;

	switch (which) {
	case BENCH_CHART_STALL:
		c.x_label = "time in this side's epochs, s";
		c.y_label = "stall, s";
		return by_side(&c, r, add_stall, is_dark, out, err);
	case BENCH_CHART_AU:
		c.x_label = "epoch";
		c.y_label = "AU, %";
		c.has_steps_x = true;
		c.y_max = 100;
		return by_side(&c, r, add_au, is_dark, out, err);
	case BENCH_CHART_LATENCY:
		c.x_label = "open + fstat + read + close of a sample, ms";
		c.y_label = "reads, %";
		c.has_log_x = true;
		c.y_max = 100;
		return by_side(&c, r, add_latency, is_dark, out, err);
	case BENCH_CHART_CLASSES:
		c.x_label = "epoch";
		c.y_label = "reads, %";
		c.has_steps_x = c.is_stacked = true;
		c.y_max = 100;
		for (int class = 0; class < READ_CLASSES && rc == 0; class ++)
			if (class != READ_PEER)
				rc = add_class(&c, r, class);
		return draw(&c, is_dark, out, rc, err);
	default:
		c.x_label = "time in this side's epochs, s";
		c.y_label = "lead, samples";
		for (uint32_t i = 0; i < r->n_sides && rc == 0; i++)
			if (r->side[i] == SIDE_CLAIRFS || r->side[i] == SIDE_MOUNT)
				rc = add_lead(&c, r, r->side[i]);
		return draw(&c, is_dark, out, rc, err);
	}
}
