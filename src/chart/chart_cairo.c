/* SPDX-License-Identifier: Apache-2.0 */
/* Charts of a report, drawn with cairo into SVG text. Drawn twice, for light and for dark paper,
 * as an SVG that is shown as an image knows nothing of the page around it. Colours are those of
 * Okabe and Ito, which colour-blind people tell apart, the darker ones lightened on dark paper.
 * Must never be given text of others: cairo refuses what is no UTF-8, and labels here are our own
 * words. Main thread. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "canvas.h"
#include "clairfs/chart.h"

#define WIDTH 960.0
#define HEIGHT 300.0
#define LEFT 74.0
#define TOP 34.0
#define PLOT_WIDTH 730.0
#define PLOT_HEIGHT 208.0

struct paper {
	double page[3], text[3], grid[3], colour[CHART_SERIES][3];
};

static const struct paper papers[2] = {
	{ .page = { 1, 1, 1 },
	  .text = { 0.13, 0.13, 0.13 },
	  .grid = { 0.86, 0.86, 0.86 },
	  .colour = { { 0.00, 0.62, 0.45 },
		      { 0.84, 0.37, 0.00 },
		      { 0.00, 0.45, 0.70 },
		      { 0.90, 0.62, 0.00 },
		      { 0.80, 0.47, 0.65 },
		      { 0.34, 0.71, 0.91 },
		      { 0.50, 0.50, 0.50 },
		      { 0.45, 0.30, 0.15 } } },
	{ .page = { 0.10, 0.11, 0.13 },
	  .text = { 0.88, 0.88, 0.88 },
	  .grid = { 0.28, 0.29, 0.32 },
	  .colour = { { 0.20, 0.80, 0.62 },
		      { 0.98, 0.52, 0.20 },
		      { 0.35, 0.66, 0.95 },
		      { 0.95, 0.75, 0.25 },
		      { 0.88, 0.60, 0.76 },
		      { 0.55, 0.85, 0.98 },
		      { 0.65, 0.65, 0.65 },
		      { 0.75, 0.58, 0.40 } } },
};

struct view {
	const struct canvas *c;
	const struct chart *chart;
	const struct paper *paper;
	double x_min, x_max, y_max; /* of what is shown; x after the logarithm */
};

static void set_colour(const struct view *v, const double rgb[3])
{
	v->c->cairo_set_source_rgb(v->c->cr, rgb[0], rgb[1], rgb[2]);
}

static double view_x(const struct view *v, double x)
{
	double at = v->chart->has_log_x ? log10(x) : x;

	return LEFT + (at - v->x_min) / (v->x_max - v->x_min) * PLOT_WIDTH;
}

static double view_y(const struct view *v, double y)
{
	return TOP + PLOT_HEIGHT * (1 - MIN(MAX(y, 0), v->y_max) / v->y_max);
}

/* What all points need. */
static void view_fit(struct view *v)
{
	const struct chart *chart = v->chart;
	double least = INFINITY, most = -INFINITY, top = 0;

	for (uint32_t i = 0; i < chart->n_series; i++)
		for (uint32_t k = 0; k < chart->series[i].n; k++) {
			double x = chart->series[i].x[k];

			least = MIN(least, x);
			most = MAX(most, x);
			top = MAX(top, chart->series[i].y[k]);
		}
	if (!(most >= least))
		least = most = 1;
	if (chart->has_log_x) {
		v->x_min = floor(log10(least));
		v->x_max = MAX(ceil(log10(most)), v->x_min + 1);
	} else if (chart->has_steps_x) {
		v->x_min = least - 0.6;
		v->x_max = most + 0.6;
	} else {
		v->x_min = 0;
		v->x_max = MAX(most, 1e-6);
	}
	v->y_max = chart->y_max > 0 ? chart->y_max : MAX(top * 1.05, 1e-6);
}

static void draw_y_axis(const struct view *v)
{
	double tick = canvas_tick(v->y_max);
	const struct canvas *c = v->c;
	char text[32];

	for (double y = 0; y <= v->y_max * 1.0001; y += tick) {
		set_colour(v, v->paper->grid);
		c->cairo_move_to(c->cr, LEFT, view_y(v, y));
		c->cairo_rel_line_to(c->cr, PLOT_WIDTH, 0);
		c->cairo_stroke(c->cr);
		set_colour(v, v->paper->text);
		snprintf(text, sizeof(text), "%.6g", fabs(y) < tick / 2 ? 0 : y);
		canvas_text(c, LEFT - 7, view_y(v, y) + 4, 1, text);
	}
}

static void draw_x_tick(const struct view *v, double x)
{
	const struct canvas *c = v->c;
	char text[32];

	set_colour(v, v->paper->text);
	c->cairo_move_to(c->cr, view_x(v, x), TOP + PLOT_HEIGHT);
	c->cairo_rel_line_to(c->cr, 0, 4);
	c->cairo_stroke(c->cr);
	snprintf(text, sizeof(text), "%.6g", x);
	canvas_text(c, view_x(v, x), TOP + PLOT_HEIGHT + 17, 0.5, text);
}

static void draw_x_axis(const struct view *v)
{
	double tick = canvas_tick(v->x_max - v->x_min);

	if (v->chart->has_log_x) {
		for (double p = v->x_min; p <= v->x_max; p++)
			draw_x_tick(v, pow(10, p));
		return;
	}
	if (v->chart->has_steps_x)
		tick = MAX(ceil(tick), 1);
	for (double x = ceil(v->x_min / tick) * tick; x <= v->x_max * 1.0001; x += tick)
		draw_x_tick(v, fabs(x) < tick / 2 ? 0 : x);
}

static void draw_frame(const struct view *v)
{
	const struct canvas *c = v->c;

	set_colour(v, v->paper->page);
	c->cairo_paint(c->cr);
	c->cairo_select_font_face(c->cr, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
				  CAIRO_FONT_WEIGHT_NORMAL);
	c->cairo_set_font_size(c->cr, 12);
	c->cairo_set_line_width(c->cr, 0.75);
	draw_y_axis(v);
	draw_x_axis(v);
	set_colour(v, v->paper->text);
	c->cairo_move_to(c->cr, LEFT, TOP);
	c->cairo_rel_line_to(c->cr, 0, PLOT_HEIGHT);
	c->cairo_rel_line_to(c->cr, PLOT_WIDTH, 0);
	c->cairo_stroke(c->cr);
	canvas_text(c, LEFT + PLOT_WIDTH / 2, TOP + PLOT_HEIGHT + 40, 0.5, v->chart->x_label);
	c->cairo_save(c->cr);
	c->cairo_translate(c->cr, 17, TOP + PLOT_HEIGHT / 2);
	c->cairo_rotate(c->cr, -M_PI / 2);
	canvas_text(c, 0, 0, 0.5, v->chart->y_label);
	c->cairo_restore(c->cr);
	c->cairo_set_font_size(c->cr, 14);
	canvas_text(c, LEFT, 20, 0, v->chart->title);
	c->cairo_set_font_size(c->cr, 12);
}

static void draw_lines(const struct view *v)
{
	const struct canvas *c = v->c;

	for (uint32_t i = 0; i < v->chart->n_series; i++) {
		const struct chart_series *s = &v->chart->series[i];

		set_colour(v, v->paper->colour[s->colour]);
		c->cairo_set_line_width(c->cr, 2);
		for (uint32_t k = 0; k < s->n; k++) {
			double x = view_x(v, s->x[k]), y = view_y(v, s->y[k]);

			if (k)
				c->cairo_line_to(c->cr, x, y);
			else /* text has left a point behind */
				c->cairo_move_to(c->cr, x, y);
		}
		c->cairo_stroke(c->cr);
		/* Few points: what was measured is a point, the line joins them. */
		for (uint32_t k = 0; k < s->n && s->n <= 30 && !v->chart->has_log_x; k++) {
			c->cairo_arc(c->cr, view_x(v, s->x[k]), view_y(v, s->y[k]), 3.2, 0,
				     2 * M_PI);
			c->cairo_fill(c->cr);
		}
	}
}

static void draw_bars(const struct view *v)
{
	const struct chart *chart = v->chart;
	const struct canvas *c = v->c;
	double width = MIN(PLOT_WIDTH / (v->x_max - v->x_min) * 0.7, 90);

	for (uint32_t k = 0; chart->n_series && k < chart->series[0].n; k++) {
		double sum = 0, x = view_x(v, chart->series[0].x[k]) - width / 2;

		for (uint32_t i = 0; i < chart->n_series; i++) {
			double low = view_y(v, sum), high = view_y(v, sum + chart->series[i].y[k]);

			set_colour(v, v->paper->colour[chart->series[i].colour]);
			c->cairo_rectangle(c->cr, x, high, width, low - high);
			c->cairo_fill(c->cr);
			sum += chart->series[i].y[k];
		}
	}
}

static void draw_legend(const struct view *v)
{
	const struct canvas *c = v->c;
	double x = LEFT + PLOT_WIDTH + 20, y = TOP + 12;

	for (uint32_t i = 0; i < v->chart->n_series; i++, y += 22) {
		set_colour(v, v->paper->colour[v->chart->series[i].colour]);
		c->cairo_rectangle(c->cr, x, y - 9, 18, 10);
		c->cairo_fill(c->cr);
		set_colour(v, v->paper->text);
		canvas_text(c, x + 25, y, 0, v->chart->series[i].name);
	}
}

static cairo_status_t collect(void *closure, const unsigned char *data, unsigned int length)
{
	struct buf_writer *out = closure;

	buf_put_bytes(out, data, length);
	return out->is_bad ? CAIRO_STATUS_NO_MEMORY : CAIRO_STATUS_SUCCESS;
}

int chart_check(struct err *err)
{
	struct canvas c = { .handle = NULL };

	return canvas_open(&c, "--html", err);
}

int chart_svg(const struct chart *chart, bool is_dark, struct buf_writer *out, struct err *err)
{
	struct canvas c = { .handle = NULL };
	struct view v = { .c = &c, .chart = chart, .paper = &papers[is_dark] };
	cairo_surface_t *surface;
	cairo_status_t status;
	int rc = canvas_open(&c, "--html", err);

	if (rc < 0)
		return rc;
	surface = c.cairo_svg_surface_create_for_stream(collect, out, WIDTH, HEIGHT);
	c.cr = c.cairo_create(surface);
	view_fit(&v);
	draw_frame(&v);
	if (chart->is_stacked)
		draw_bars(&v);
	else
		draw_lines(&v);
	draw_legend(&v);
	status = c.cairo_status(c.cr);
	c.cairo_destroy(c.cr);
	c.cairo_surface_finish(surface);
	if (status == CAIRO_STATUS_SUCCESS)
		status = c.cairo_surface_status(surface);
	c.cairo_surface_destroy(surface);
	return status == CAIRO_STATUS_SUCCESS
		       ? 0
		       : err_set(err, -EIO, "--html: %s", c.cairo_status_to_string(status));
}
