/* SPDX-License-Identifier: Apache-2.0 */
/* The chart, drawn with cairo, which writes SVG and PNG from the same calls. Left: stall in percent
 * of compute time; right: hit ratio; both over the share of the dataset that fits into the cache.
 * Colours are those of Okabe and Ito, which colour-blind people tell apart; the bound is black and
 * dashed. Must never leave half a file under the name asked for: it is written beside it first. */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "canvas.h"
#include "clairfs/chart.h"

#define WIDTH 1000.0
#define HEIGHT 446.0
#define TOP 46.0
#define PANEL_WIDTH 340.0
#define PANEL_HEIGHT 320.0

struct panel {
	const struct canvas *c;
	double x, y_max, x_max;
	const char *title;
};

static const double colours[][3] = {
	{ 0.84, 0.37, 0.00 }, { 0.00, 0.45, 0.70 }, { 0.00, 0.62, 0.45 }, { 0.80, 0.47, 0.65 },
	{ 0.34, 0.71, 0.91 }, { 0.90, 0.62, 0.00 }, { 0.60, 0.60, 0.60 }, { 0.45, 0.30, 0.15 },
	{ 0.94, 0.80, 0.20 }, { 0.40, 0.20, 0.60 },
};

static double panel_x(const struct panel *p, double value)
{
	return p->x + value / p->x_max * PANEL_WIDTH;
}

static double panel_y(const struct panel *p, double value)
{
	return TOP + PANEL_HEIGHT * (1 - MIN(MAX(value, 0), p->y_max * 1.02) / p->y_max);
}

static void panel_frame(const struct panel *p)
{
	double tick = canvas_tick(p->y_max), x_tick = canvas_tick(p->x_max);
	char text[32];

	p->c->cairo_set_line_width(p->c->cr, 0.5);
	for (double v = 0; v <= p->y_max * 1.001; v += tick) {
		p->c->cairo_set_source_rgb(p->c->cr, 0.85, 0.85, 0.85);
		p->c->cairo_move_to(p->c->cr, p->x, panel_y(p, v));
		p->c->cairo_rel_line_to(p->c->cr, PANEL_WIDTH, 0);
		p->c->cairo_stroke(p->c->cr);
		p->c->cairo_set_source_rgb(p->c->cr, 0.2, 0.2, 0.2);
		snprintf(text, sizeof(text), "%g", v);
		canvas_text(p->c, p->x - 6, panel_y(p, v) + 4, 1, text);
	}
	for (double v = 0; v <= p->x_max * 1.001; v += x_tick) {
		snprintf(text, sizeof(text), "%g", v);
		canvas_text(p->c, panel_x(p, v), TOP + PANEL_HEIGHT + 16, 0.5, text);
	}
	p->c->cairo_rectangle(p->c->cr, p->x, TOP, PANEL_WIDTH, PANEL_HEIGHT);
	p->c->cairo_stroke(p->c->cr);
	canvas_text(p->c, p->x + PANEL_WIDTH / 2, TOP - 10, 0.5, p->title);
	canvas_text(p->c, p->x + PANEL_WIDTH / 2, TOP + PANEL_HEIGHT + 36, 0.5,
		    "cache, % of the dataset");
}

static void plot_style(const struct canvas *c, const struct plot *plot, uint32_t i)
{
	static const double dashes[] = { 5, 3 };
	bool is_bound = strcmp(plot->series[i].name, "bound") == 0;
	const double *rgb = colours[i % ARRAY_LEN(colours)];

	c->cairo_set_line_width(c->cr, i == 0 ? 2.5 : 1.5);
	c->cairo_set_dash(c->cr, dashes, is_bound ? 2 : 0, 0);
	if (is_bound)
		c->cairo_set_source_rgb(c->cr, 0, 0, 0);
	else
		c->cairo_set_source_rgb(c->cr, rgb[0], rgb[1], rgb[2]);
}

static void panel_lines(const struct panel *p, const struct plot *plot, bool is_stall)
{
	const struct canvas *c = p->c;

	for (uint32_t i = plot->n_series; i-- > 0;) {
		const struct plot_series *s = &plot->series[i];

		plot_style(c, plot, i);
		for (uint32_t k = 0; k < plot->n_points; k++) {
			double x = panel_x(p, plot->percent[k]);
			double y = panel_y(p, is_stall ? s->stall_pct[k] : s->hit_ratio[k]);

			if (k)
				c->cairo_line_to(c->cr, x, y);
			else /* text has left a point behind */
				c->cairo_move_to(c->cr, x, y);
		}
		c->cairo_stroke(c->cr);
	}
	c->cairo_set_dash(c->cr, NULL, 0, 0);
}

static void plot_legend(const struct canvas *c, const struct plot *plot)
{
	double x = WIDTH - 122, y = TOP + 8;

	for (uint32_t i = 0; i < plot->n_series; i++, y += 20) {
		plot_style(c, plot, i);
		c->cairo_move_to(c->cr, x, y);
		c->cairo_rel_line_to(c->cr, 24, 0);
		c->cairo_stroke(c->cr);
		c->cairo_set_source_rgb(c->cr, 0.1, 0.1, 0.1);
		canvas_text(c, x + 30, y + 4, 0, plot->series[i].name);
	}
	c->cairo_set_dash(c->cr, NULL, 0, 0);
}

static double plot_most_stall(const struct plot *plot)
{
	double most = 1;

	for (uint32_t i = 0; i < plot->n_series; i++)
		for (uint32_t k = 0; k < plot->n_points; k++)
			if (isfinite(plot->series[i].stall_pct[k]))
				most = MAX(most, plot->series[i].stall_pct[k]);
	return most;
}

static void plot_draw(const struct canvas *c, const struct plot *plot)
{
	double x_max = MAX(plot->percent[plot->n_points - 1], 1);
	struct panel stall = { c, 60, plot_most_stall(plot), x_max, "stall, % of compute time" };
	struct panel hits = { c, 470, 1, x_max, "hit ratio (reads the source was spared)" };

	c->cairo_set_source_rgb(c->cr, 1, 1, 1);
	c->cairo_paint(c->cr);
	c->cairo_select_font_face(c->cr, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
				  CAIRO_FONT_WEIGHT_NORMAL);
	c->cairo_set_font_size(c->cr, 11.5);
	panel_frame(&stall);
	panel_lines(&stall, plot, true);
	panel_frame(&hits);
	panel_lines(&hits, plot, false);
	plot_legend(c, plot);
	c->cairo_set_font_size(c->cr, 10.5);
	canvas_text(c, 60, HEIGHT - 24, 0, plot->title);
	if (plot->note)
		canvas_text(c, 60, HEIGHT - 8, 0, plot->note);
}

static bool plot_is_png(const char *path)
{
	size_t len = strlen(path);

	return len > 4 && strcmp(path + len - 4, ".png") == 0;
}

int plot_check(const char *path, struct err *err)
{
	size_t len = strlen(path);

	if (plot_is_png(path) || (len > 4 && strcmp(path + len - 4, ".svg") == 0))
		return 0;
	return err_set(err, -EINVAL, "--plot: '%.200s' ends neither in .svg nor in .png", path);
}

static cairo_status_t canvas_write(struct canvas *c, const struct plot *plot, const char *part,
				   bool is_png)
{
	cairo_surface_t *surface =
		is_png ? c->cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)WIDTH, (int)HEIGHT)
		       : c->cairo_svg_surface_create(part, WIDTH, HEIGHT);
	cairo_status_t status;

	c->cr = c->cairo_create(surface);
	plot_draw(c, plot);
	status = c->cairo_status(c->cr);
	c->cairo_destroy(c->cr);
	if (status == CAIRO_STATUS_SUCCESS && is_png)
		status = c->cairo_surface_write_to_png(surface, part);
	c->cairo_surface_finish(surface);
	if (status == CAIRO_STATUS_SUCCESS)
		status = c->cairo_surface_status(surface);
	c->cairo_surface_destroy(surface);
	return status;
}

int plot_write(const struct plot *plot, const char *path, struct err *err)
{
	struct canvas c = { .handle = NULL };
	AUTO_FREE char *part = NULL;
	cairo_status_t status;
	int rc = canvas_open(&c, "--plot", err);

	if (rc < 0)
		return rc;
	if (asprintf(&part, "%s.part", path) < 0)
		return err_set_errno(err, -ENOMEM, "%s", path);
	status = canvas_write(&c, plot, part, plot_is_png(path));
	if (status != CAIRO_STATUS_SUCCESS) {
		unlink(part);
		return err_set(err, -EIO, "--plot: %s: %s", path, c.cairo_status_to_string(status));
	}
	return rename(part, path) < 0 ? err_set_errno(err, -errno, "--plot: %s", path) : 0;
}
