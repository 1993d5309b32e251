/* SPDX-License-Identifier: Apache-2.0 */
/* One chart of a report as SVG: lines, or stacked bars. */
#ifndef CLAIRFS_CLI_CHART_H
#define CLAIRFS_CLI_CHART_H

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

#endif
