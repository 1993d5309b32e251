/* SPDX-License-Identifier: Apache-2.0 */
/* clairfs simulate --plot: the policies over cache sizes from 2 % of the dataset to all of it. Long
 * jobs are shortened in proportion; the store keeps the size it was given. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "cli.h"
#include "plot.h"
#include "simulate.h"

static const double percents[] = { 2, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 95, 100, 102 };

/* Too small for a sample is no point of the curve, not an error. */
static int plot_point(struct sim_setup *setup, const struct simulate_args *a, struct plot *plot,
		      double percent, struct err *err)
{
	uint32_t k = plot->n_points;
	struct sim_facts f;

	sim_setup_facts(setup, &f);
	if (sim_setup_resize(setup, (uint64_t)((double)f.dataset_bytes * percent / 100),
			     f.store_bytes, err) < 0)
		return 0;
	plot->percent[k] = percent;
	for (uint32_t i = 0; i < plot->n_series; i++) {
		struct plot_series *s = &plot->series[i];
		struct sim_result r;
		int rc = sim_run(setup, a->policies[i], NULL, &r, err);

		if (rc < 0)
			return rc;
		if (simulate_progress())
			fprintf(stderr, "\r\033[Ksimulating %s with %.0f %% cached", a->policies[i],
				percent);
		s->stall_pct[k] = sim_stall_pct(&r, r.n_epochs > 1);
		s->hit_ratio[k] = sim_hit_ratio(&r, r.n_epochs > 1);
		if (!isfinite(s->stall_pct[k]))
			s->stall_pct[k] = 0;
		sim_result_fini(&r);
	}
	plot->n_points++;
	return 0;
}

static int plot_sweep(struct sim_setup *setup, const struct simulate_args *a, struct plot *plot,
		      struct err *err)
{
	for (size_t i = 0; i < ARRAY_LEN(percents); i++) {
		int rc = plot_point(setup, a, plot, percents[i], err);

		if (rc < 0)
			return rc;
	}
	if (!plot->n_points)
		return err_set(err, -EINVAL,
			       "--plot: no sample fits into the whole dataset's size");
	return 0;
}

int simulate_plot(struct simulate_args *a)
{
	struct sim_params params = a->params;
	struct sim_setup *setup = NULL;
	struct plot plot = { .n_points = 0 };
	struct err err = { 0 };
	char title[512];
	uint64_t k;
	struct sim_facts f;
	int rc = plot_check(a->plot, &err);

	if (rc < 0)
		return cli_fail(&err);
	k = sim_shorten(&params, &a->size);
	params.cache_bytes = 0;
	params.cache_fraction = 1.1;
	rc = sim_setup_new(&params, TAKE(a->size), &setup, &err);
	if (rc < 0)
		return cli_fail(&err);
	for (; a->policies[plot.n_series]; plot.n_series++)
		plot.series[plot.n_series].name = a->policies[plot.n_series];
	sim_setup_facts(setup, &f);
	snprintf(
		title, sizeof(title),
		"%llu samples, %.1f GB; source %.0f MB/s, %.2g ms; the job reads %.0f MB/s; %.200s",
		(unsigned long long)(f.samples * k), (double)f.dataset_bytes * (double)k / 1e9,
		f.bytes_per_s / 1e6, params.source_latency_ms, f.need_bytes_per_s / 1e6, f.order);
	plot.title = title;
	rc = plot_sweep(setup, a, &plot, &err);
	simulate_progress_end();
	if (rc == 0)
		rc = plot_write(&plot, a->plot, &err);
	sim_setup_free(setup);
	return rc < 0 ? cli_fail(&err) : EXIT_DONE;
}
