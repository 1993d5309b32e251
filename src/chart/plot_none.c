/* SPDX-License-Identifier: Apache-2.0 */
/* Built without cairo: --plot says so, before anything is simulated. */
#include <errno.h>

#include "clairfs/chart.h"

int plot_check(const char *path, struct err *err)
{
	return err_set(err, -ENOTSUP, "--plot: this clairfs was built without cairo");
}

int plot_write(const struct plot *plot, const char *path, struct err *err)
{
	return plot_check(path, err);
}
