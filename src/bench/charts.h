/* SPDX-License-Identifier: Apache-2.0 */
/* The charts of a bench's report. */
#ifndef CLAIRFS_BENCH_CHARTS_H
#define CLAIRFS_BENCH_CHARTS_H

#include "bench_priv.h"
#include "clairfs/chart.h"

enum bench_chart {
	BENCH_CHART_STALL,
	BENCH_CHART_AU,
	BENCH_CHART_LATENCY,
	BENCH_CHART_CLASSES,
	BENCH_CHART_LEAD,
	BENCH_CHARTS
};
/* What a chart shows, one line; NULL: this report has nothing to show there. */
const char *bench_chart_name(const struct bench_report *r, enum bench_chart which);
int bench_chart_svg(const struct bench_report *r, enum bench_chart which, bool is_dark,
		    struct buf_writer *out, struct err *err) MUST_USE;

#endif
