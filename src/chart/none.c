/* SPDX-License-Identifier: Apache-2.0 */
/* Built without cairo: --html and --plot say so, before anything is measured or simulated. */
#include <errno.h>

#include "clairfs/chart.h"

int chart_check(struct err *err)
{
	return err_set(err, -ENOTSUP, "--html: this clairfs was built without cairo");
}

int chart_svg(const struct chart *chart, bool is_dark, struct buf_writer *out, struct err *err)
{
	return chart_check(err);
}

int plot_check(const char *path, struct err *err)
{
	return err_set(err, -ENOTSUP, "--plot: this clairfs was built without cairo");
}

int plot_write(const struct plot *plot, const char *path, struct err *err)
{
	return plot_check(path, err);
}
