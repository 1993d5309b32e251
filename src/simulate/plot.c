/* SPDX-License-Identifier: Apache-2.0 */
/* clairfs simulate --plot: the policies over cache sizes from 2 % of the dataset to all of it; with
 * --json the same figures as text. A chart is dozens of runs, so long jobs are shortened in
 * proportion, which is said wherever the figures go; the store keeps its share of the dataset. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "clairfs/chart.h"
#include "clairfs/simulate.h"

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

static json_t *json_of_points(const double *value, uint32_t n)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < n; i++)
		json_array_append_new(list, json_real(value[i]));
	return list;
}

static void plot_print_json(const struct plot *plot, const char *path, uint64_t samples, uint64_t k)
{
	json_t *runs = json_array(), *root;

	for (uint32_t i = 0; i < plot->n_series; i++) {
		const struct plot_series *s = &plot->series[i];

		json_array_append_new(
			runs, json_pack("{s:s, s:o, s:o}", "policy", s->name, "stall_percent",
					json_of_points(s->stall_pct, plot->n_points), "hit_ratio",
					json_of_points(s->hit_ratio, plot->n_points)));
	}
	root = json_pack("{s:s, s:I, s:I, s:o, s:o}", "plot", path, "samples", (json_int_t)samples,
			 "shortened", (json_int_t)k, "cache_percent",
			 json_of_points(plot->percent, plot->n_points), "runs", runs);
	if (!root || json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) < 0)
		fprintf(stderr, "clairfs: out of memory\n");
	json_decref(root);
	putchar('\n');
}

/* Shortens the job, and says so. */
static uint64_t plot_shorten(struct simulate_args *a, struct sim_params *params, char *note,
			     size_t size)
{
	uint64_t k = sim_shorten(params, &a->size);

	snprintf(note, size,
		 "simulated with one of %" PRIu64 " samples, %" PRIu64 " of %" PRIu64
		 ", and all sizes and periods in proportion",
		 k, params->samples, a->params.samples);
	if (k > 1)
		fprintf(stderr, "clairfs: --plot: %s\n", note);
	return k;
}

/* a->params is a job that can be run. */
static int plot_setup(struct simulate_args *a, struct plot *plot, char *note, size_t note_size,
		      uint64_t *ret_k, struct sim_setup **ret, struct err *err)
{
	struct sim_params params = a->params;

	if (params.compute_ms <= 0)
		return err_set(
			err, -EINVAL,
			"--plot: without compute time (--compute-ms 0) stall has no percentage");
	*ret_k = plot_shorten(a, &params, note, note_size);
	plot->note = *ret_k > 1 ? note : NULL;
	params.cache_bytes = 0;
	params.cache_fraction = 1.1;
	for (; a->policies[plot->n_series]; plot->n_series++)
		plot->series[plot->n_series].name = a->policies[plot->n_series];
	return sim_setup_new(&params, TAKE(a->size), ret, err);
}

int simulate_plot(struct simulate_args *a, struct err *err)
{
	struct sim_setup *setup = NULL;
	struct plot plot = { .n_points = 0 };
	char title[512], note[256];
	struct sim_facts f;
	uint64_t k = 1;
	int rc = plot_check(a->plot, err);

	if (rc == 0)
		rc = plot_setup(a, &plot, note, sizeof(note), &k, &setup, err);
	if (rc < 0)
		return rc;
	sim_setup_facts(setup, &f);
	snprintf(title, sizeof(title),
		 "%" PRIu64
		 " samples, %.1f GB; source %.0f MB/s, %.2g ms; the job reads %.0f MB/s; "
		 "%.200s",
		 a->params.samples, (double)f.dataset_bytes * (double)k / 1e9, f.bytes_per_s / 1e6,
		 a->params.source_latency_ms, f.need_bytes_per_s / 1e6, f.order);
	plot.title = title;
	rc = plot_sweep(setup, a, &plot, err);
	simulate_progress_end();
	if (rc == 0)
		rc = plot_write(&plot, a->plot, err);
	sim_setup_free(setup);
	if (rc < 0)
		return rc;
	if (a->is_json)
		plot_print_json(&plot, a->plot, a->params.samples, k);
	return 0;
}
