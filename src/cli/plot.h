/* SPDX-License-Identifier: Apache-2.0 */
/* Two panels over the size of the cache: stall and hit ratio, one line per policy. */
#ifndef CLAIRFS_CLI_PLOT_H
#define CLAIRFS_CLI_PLOT_H

#include <stdint.h>

#include "clairfs/base/err.h"

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
