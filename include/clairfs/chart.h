/* SPDX-License-Identifier: Apache-2.0 */
/* Charts, drawn with cairo, which is opened when there is something to draw: one of a report as SVG
 * (lines, or stacked bars), and the plot of a simulation in a file. */
#ifndef CLAIRFS_CHART_H
#define CLAIRFS_CHART_H

#include <stdbool.h>
#include <stdint.h>

#include "clairfs/base/buf.h"
#include "clairfs/base/err.h"

#define CHART_SERIES 8

struct chart_series {
	const char *name;
	uint32_t n;
	const double *x, *y; /* borrowed; finite */
	uint32_t colour;     /* below CHART_SERIES */
};
struct chart {
	const char *title, *x_label, *y_label; /* our own words: ASCII */
	bool is_stacked;                       /* bars at x, on top of each other */
	bool has_log_x;                        /* x > 0 */
	bool has_steps_x;                      /* x are whole numbers */
	double y_max;                          /* 0: what the series need */
	uint32_t n_series;
	struct chart_series series[CHART_SERIES];
};

/* Whether this build can draw: -ENOTSUP with one line. */
int chart_check(struct err *err) MUST_USE;
/* Appends an SVG document of 960 x 300 for light or dark paper. -ENOTSUP, -EIO, -ENOMEM. */
int chart_svg(const struct chart *chart, bool is_dark, struct buf_writer *out,
	      struct err *err) MUST_USE;

/* --- two panels over the size of the cache: stall and hit ratio, one line per policy --- */

#define PLOT_POINTS 16
#define PLOT_SERIES 16

struct plot_series {
	const char *name;
	double stall_pct[PLOT_POINTS], hit_ratio[PLOT_POINTS];
};
struct plot {
	const char *title;
	const char *note; /* beneath it: what the figures leave out; NULL: nothing */
	uint32_t n_points, n_series;
	double percent[PLOT_POINTS]; /* of the dataset in the cache, ascending */
	struct plot_series series[PLOT_SERIES];
};

/* Whether such a file can be written by this build: it must end in .svg or .png. -EINVAL, -ENOTSUP.
 */
int plot_check(const char *path, struct err *err) MUST_USE;
int plot_write(const struct plot *plot, const char *path, struct err *err) MUST_USE;

#endif
