/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters, gauges and histograms as their header promises them, and both exports read back: the
 * Prometheus text by a small parser of the exposition format that refuses what a scraper
 * refuses, the JSON by jansson. Everything is seen through the public header.
 */
#include "check.h"

#include <ctype.h>
#include <jansson.h>
#include <string.h>

#include "clairfs/metrics.h"

#define THREADS 24 /* more than there are slots: two threads share one */
#define ROUNDS 20000

static void table_is_well_formed(void)
{
	for (unsigned i = 0; i < METRICS_COUNT; i++) {
		const struct metric_info *a = &metric_infos[i];

		CHECK(a->id[0] && strlen(a->id) < 31);
		for (const char *p = a->id; *p; p++)
			CHECK(islower(*p) || isdigit(*p) || *p == '_');
		/* Prometheus: counters, and only they, end in _total. */
		CHECK_INT(strlen(a->name) > 6 &&
				  strcmp(a->name + strlen(a->name) - 6, "_total") == 0,
			  metric_is_counter(a->kind));
		for (unsigned k = 0; k < i; k++) {
			const struct metric_info *b = &metric_infos[k];

			CHECK(strcmp(a->id, b->id) != 0);
			CHECK(strcmp(a->name, b->name) != 0 || strcmp(a->labels, b->labels) != 0);
			/* Rows of a name are neighbours of one kind. */
			if (strcmp(a->name, b->name) == 0)
				CHECK(strcmp(a->name, metric_infos[i - 1].name) == 0 &&
				      a->kind == b->kind);
		}
	}
	CHECK_STR(metric_infos[METRIC_READS_STAGED].id, "reads_staged");
	CHECK_STR(metric_infos[METRIC_STAGE_UNKNOWN_INODE].id, "stage_unknown_inode");
	for (unsigned c = 0; c < READ_CLASSES; c++) {
		static const char *const tiers[] = { "ram", "ram", "pfs", "nvme", "peer", "pfs" };
		char labels[64];

		snprintf(labels, sizeof(labels), "class=\"%s\",tier=\"%s\"", read_class_names[c],
			 tiers[c]);
		CHECK_STR(metric_infos[METRIC_READS_STAGED + c].labels, labels);
		CHECK_STR(metric_infos[METRIC_READ_BYTES_STAGED + c].labels, labels);
	}
}

struct adder {
	struct metrics *m;
	pthread_t thread;
	unsigned number;
};

static void *adder_run(void *arg)
{
	struct adder *a = arg;

	for (unsigned i = 0; i < ROUNDS; i++) {
		metrics_add(a->m, METRIC_SOURCE_READS, 1);
		metrics_add(a->m, METRIC_SOURCE_BYTES, a->number);
		metrics_gauge_add(a->m, METRIC_DEMAND_INFLIGHT, 3);
		metrics_gauge_add(a->m, METRIC_DEMAND_INFLIGHT, -2);
		metrics_observe(a->m, METRIC_HIST_READ_PFS, i);
	}
	return NULL;
}

static void sums_over_threads_are_exact(void)
{
	struct metrics *m = metrics_new();
	struct adder adders[THREADS];
	struct metrics_hist_view view;

	CHECK(m != NULL);
	for (unsigned i = 0; i < THREADS; i++) {
		adders[i] = (struct adder){ .m = m, .number = i };
		CHECK_INT(pthread_create(&adders[i].thread, NULL, adder_run, &adders[i]), 0);
	}
	metrics_hist_get(m, METRIC_HIST_READ_PFS, &view); /* reading beside them is allowed */
	for (unsigned i = 0; i < THREADS; i++)
		CHECK_INT(pthread_join(adders[i].thread, NULL), 0);
	CHECK_U64(metrics_get(m, METRIC_SOURCE_READS), (uint64_t)THREADS * ROUNDS);
	CHECK_U64(metrics_get(m, METRIC_SOURCE_BYTES),
		  (uint64_t)ROUNDS * (THREADS * (THREADS - 1) / 2));
	CHECK_U64(metrics_get(m, METRIC_DEMAND_INFLIGHT), (uint64_t)THREADS * ROUNDS);
	CHECK_U64(metrics_get(m, METRIC_SOURCE_ERRORS), 0);
	metrics_hist_get(m, METRIC_HIST_READ_PFS, &view);
	CHECK_U64(view.count, (uint64_t)THREADS * ROUNDS);
	CHECK_U64(view.sum_ns, (uint64_t)THREADS * ROUNDS * (ROUNDS - 1) / 2);
	metrics_gauge_set(m, METRIC_DEMAND_INFLIGHT, 5);
	CHECK_U64(metrics_get(m, METRIC_DEMAND_INFLIGHT), 5);
	metrics_free(m);
}

static void no_object_counts_nothing(void)
{
	struct metrics_hist_view view = { .count = 9 };

	metrics_add(NULL, METRIC_SOURCE_READS, 1);
	metrics_gauge_set(NULL, METRIC_LEAD, 1);
	metrics_gauge_add(NULL, METRIC_LEAD, 1);
	metrics_observe(NULL, METRIC_HIST_READ_PFS, 1);
	metrics_hist_get(NULL, METRIC_HIST_READ_PFS, &view);
	CHECK_U64(view.count, 0);
	CHECK_U64(metrics_get(NULL, METRIC_SOURCE_READS), 0);
	metrics_free(NULL);
}

static int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The reported value is at or above the exact one, and by 1/16 of it at most. */
static void check_quantile(uint64_t got, const uint64_t *sorted, size_t n, double share)
{
	size_t rank = (size_t)(share * (double)n);
	uint64_t exact;

	if ((double)rank < share * (double)n)
		rank++;
	exact = sorted[MAX(rank, 1) - 1];
	CHECK(got >= exact);
	CHECK(got - exact <= MAX(exact / 16, 1));
}

static void quantiles_are_within_a_sixteenth(void)
{
	uint64_t rng = check_seed();
	AUTO_FREE uint64_t *values = calloc(3000, sizeof(*values));

	CHECK(values != NULL);
	for (unsigned round = 0; round < 60; round++) {
		size_t n = 1 + check_rand_below(&rng, 3000);
		struct metrics *m = metrics_new();
		struct metrics_hist_view view;
		uint64_t sum = 0;

		CHECK(m != NULL);
		for (size_t i = 0; i < n; i++) { /* all magnitudes alike, up to 2^63 */
			values[i] = check_rand_u64(&rng) >> (1 + check_rand_below(&rng, 63));
			sum += values[i];
			metrics_observe(m, METRIC_HIST_SOURCE_LATENCY, values[i]);
		}
		qsort(values, n, sizeof(*values), compare_u64);
		metrics_hist_get(m, METRIC_HIST_SOURCE_LATENCY, &view);
		CHECK_U64(view.count, n);
		CHECK_U64(view.sum_ns, sum);
		check_quantile(view.p50_ns, values, n, 0.50);
		check_quantile(view.p90_ns, values, n, 0.90);
		check_quantile(view.p99_ns, values, n, 0.99);
		check_quantile(view.max_ns, values, n, 1.0);
		metrics_free(m);
	}
}

static void extreme_observations_are_kept(void)
{
	struct metrics *m = metrics_new();
	struct metrics_hist_view view;

	metrics_hist_get(m, METRIC_HIST_STORE_LATENCY, &view);
	CHECK_U64(view.p50_ns, 0);
	CHECK_U64(view.max_ns, 0);
	metrics_observe(m, METRIC_HIST_STORE_LATENCY, 0);
	metrics_hist_get(m, METRIC_HIST_STORE_LATENCY, &view);
	CHECK_U64(view.max_ns, 1);
	metrics_observe(m, METRIC_HIST_STORE_LATENCY, UINT64_MAX);
	metrics_hist_get(m, METRIC_HIST_STORE_LATENCY, &view);
	CHECK_U64(view.count, 2);
	CHECK_U64(view.max_ns, UINT64_MAX);
	metrics_free(m);
}

/* One line of the exposition format, cut into its parts in place. */
struct row {
	char *name, *labels, *value;
};

static void parse_row(char *line, struct row *ret)
{
	size_t n = strspn(line, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_:0123456789");
	char *end;

	CHECK(n > 0 && !isdigit(line[0]));
	ret->name = line;
	ret->labels = line + strlen(line);
	if (line[n] == '{') {
		line[n] = '\0';
		ret->labels = line + n + 1;
		end = strchr(ret->labels, '}');
		CHECK(end != NULL);
		*end++ = '\0';
	} else {
		end = line + n;
	}
	CHECK(*end == ' ');
	*end = '\0';
	ret->value = end + 1;
	CHECK(*ret->value && ret->value[strspn(ret->value, "+-0123456789.eInf")] == '\0');
}

/* What the parser has seen so far. */
struct scrape {
	char family[128]; /* of the last TYPE line */
	char type[32];
	unsigned n_families, n_rows;
	double last_le;
	uint64_t last_bucket;
};

static bool is_of_family(const struct scrape *s, const char *name)
{
	size_t n = strlen(s->family);

	if (strncmp(name, s->family, n) != 0)
		return false;
	if (strcmp(s->type, "histogram") != 0)
		return name[n] == '\0';
	return strcmp(name + n, "_bucket") == 0 || strcmp(name + n, "_sum") == 0 ||
	       strcmp(name + n, "_count") == 0;
}

static void check_bucket(struct scrape *s, const struct row *row)
{
	const char *edge;
	double le;
	uint64_t n = strtoull(row->value, NULL, 10);

	if (strstr(row->name, "_bucket") == NULL)
		return;
	edge = strstr(row->labels, "le=\"");
	CHECK(edge != NULL);
	le = strtod(edge + 4, NULL); /* understands "+Inf" */
	if (s->last_le > 1e300) {    /* the next labels of this name */
		s->last_le = -1;
		s->last_bucket = 0;
	}
	CHECK(le > s->last_le);
	CHECK(n >= s->last_bucket);
	s->last_le = le;
	s->last_bucket = n;
}

/* Reads the text as a scraper would and checks the rules that scrapers enforce. */
static void scrape_text(const char *text, struct scrape *s)
{
	AUTO_FREE char *copy = strdup(text);
	AUTO_FREE char *seen = calloc(1, strlen(text) + 2);
	char *save = NULL;

	CHECK(text[strlen(text) - 1] == '\n');
	for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char family[128] = "", type[32] = "", key[140];
		struct row row;

		if (strncmp(line, "# HELP ", 7) == 0) {
			CHECK_INT(sscanf(line + 7, "%127s", family), 1);
			CHECK(strlen(line) > 7 + strlen(family) + 2); /* says something */
			snprintf(key, sizeof(key), " %s ", family);
			/* Once per name: its rows stand together. */
			CHECK(strstr(seen, key) == NULL);
			strcat(seen, key);
			snprintf(s->family, sizeof(s->family), "%s", family);
			s->type[0] = '\0';
			s->n_families++;
			s->last_le = -1;
			s->last_bucket = 0;
		} else if (strncmp(line, "# TYPE ", 7) == 0) {
			CHECK_INT(sscanf(line + 7, "%127s %31s", family, type), 2);
			CHECK_STR(family, s->family); /* right behind its HELP */
			CHECK_STR(s->type, "");
			snprintf(s->type, sizeof(s->type), "%s", type);
			CHECK(strcmp(type, "counter") == 0 || strcmp(type, "gauge") == 0 ||
			      strcmp(type, "histogram") == 0);
		} else {
			parse_row(line, &row);
			CHECK(is_of_family(s, row.name));
			check_bucket(s, &row);
			s->n_rows++;
		}
	}
}

static char *print_text(struct metrics *m)
{
	struct buf_writer out;

	buf_writer_init(&out);
	metrics_print_prometheus(m, "", &out);
	buf_put_u8(&out, 0);
	CHECK(!out.is_bad);
	return (char *)out.data;
}

static void prometheus_text_follows_the_format(void)
{
	struct metrics *m = metrics_new();
	struct scrape s = { .family = "" };
	AUTO_FREE char *text = NULL;
	unsigned families = METRIC_HISTS - 2; /* three of read_seconds */

	metrics_add(m, METRIC_READS_MISS, 7);
	metrics_gauge_set(m, METRIC_EPOCH, 3);
	metrics_gauge_add(m, METRIC_LEAD, -1);
	metrics_observe(m, METRIC_HIST_READ_PFS, 1024); /* exactly on an edge: counts below it */
	metrics_observe(m, METRIC_HIST_READ_PFS, 1025);
	metrics_observe(m, METRIC_HIST_READ_PFS, 100000000000); /* beyond the last edge */
	text = print_text(m);
	scrape_text(text, &s);
	for (unsigned i = 0; i < METRICS_COUNT; i++)
		families += i == 0 || strcmp(metric_infos[i].name, metric_infos[i - 1].name) != 0;
	CHECK_INT(s.n_families, families);
	CHECK_INT(s.n_rows, METRICS_COUNT + METRIC_HISTS * 30);
	CHECK_CONTAINS(text, "\nclairfs_reads_total{class=\"miss\",tier=\"pfs\"} 7\n");
	CHECK_CONTAINS(text, "\nclairfs_plan_epoch 3\n");
	CHECK_CONTAINS(text, "\nclairfs_plan_lead -1\n");
	CHECK_CONTAINS(text, "# TYPE clairfs_read_seconds histogram\n"
			     "clairfs_read_seconds_bucket{tier=\"ram\",le=\"0.000001024\"} 0\n");
	CHECK_CONTAINS(text, "\nclairfs_read_seconds_bucket{tier=\"pfs\",le=\"0.000001024\"} 1\n"
			     "clairfs_read_seconds_bucket{tier=\"pfs\",le=\"0.000002048\"} 2\n");
	CHECK_CONTAINS(text, "clairfs_read_seconds_bucket{tier=\"pfs\",le=\"68.719476736\"} 2\n"
			     "clairfs_read_seconds_bucket{tier=\"pfs\",le=\"+Inf\"} 3\n"
			     "clairfs_read_seconds_sum{tier=\"pfs\"} 100.000002049\n"
			     "clairfs_read_seconds_count{tier=\"pfs\"} 3\n");
	metrics_free(m);
}

static void seconds_and_labels_are_shown(void)
{
	struct metrics *m = metrics_new();
	struct metrics_mount mount = {
		.job = "7", .user = "a\"b\\c\nd\xff", .source = "/x", .version = "1"
	};
	struct buf_writer out;

	metrics_add(m, METRIC_RECOVER_CPU, 1500000000);
	metrics_total_set(m, METRIC_PROCESS_CPU, 5);
	metrics_total_set(m, METRIC_PROCESS_CPU, 2000000000);
	CHECK_INT(metrics_set_mount(m, &mount), 0);
	CHECK_INT(metrics_set_mount(m, &mount), 0); /* the last one counts, and nothing leaks */
	buf_writer_init(&out);
	metrics_print_prometheus(m, "mount=\"a\"", &out);
	buf_put_u8(&out, 0);
	CHECK_CONTAINS((char *)out.data, "\nclairfs_recover_cpu_seconds_total{mount=\"a\"} 1.5\n");
	CHECK_CONTAINS((char *)out.data, "\nclairfs_process_cpu_seconds_total{mount=\"a\"} 2.0\n");
	CHECK_CONTAINS((char *)out.data,
		       "\nclairfs_reads_total{class=\"miss\",tier=\"pfs\",mount=\"a\"} 0\n");
	CHECK_CONTAINS((char *)out.data, "_bucket{tier=\"ram\",mount=\"a\",le=\"+Inf\"} 0\n");
	CHECK_CONTAINS((char *)out.data,
		       "clairfs_mount_info{job=\"7\",user=\"a\\\"b\\\\\\\\c\\\\nd\\\\xff\","
		       "src=\"/x\",mountpoint=\"\",version=\"1\",mount=\"a\"} 1\n");
	buf_writer_fini(&out);
	metrics_free(m);
}

static void ranks_are_shown_once_set(void)
{
	struct metrics *m = metrics_new();
	struct scrape s = { .family = "" };
	AUTO_FREE char *before = print_text(m), *text = NULL;

	CHECK(strstr(before, "gpu_wait") == NULL);
	metrics_rank_set(NULL, METRIC_RANK_STEPS, 0, 1);
	metrics_rank_set(m, METRIC_RANK_STEPS, UINT32_MAX, 7);
	metrics_rank_set(m, METRIC_RANK_GPU_WAIT_HOOK, 0, 1500000000);
	metrics_rank_set(m, METRIC_RANK_GPU_WAIT_HOOK, 0, 2500000000);
	for (uint32_t rank = 1; rank < 2 * METRICS_RANKS_MAX; rank++) /* too many: some are kept */
		metrics_rank_set(m, METRIC_RANK_GPU_WAIT_UPPER, rank, rank);
	text = print_text(m);
	scrape_text(text, &s);
	CHECK_INT(s.n_rows, METRICS_COUNT + METRIC_HISTS * 30 + METRICS_RANKS_MAX * METRIC_RANKS);
	CHECK_CONTAINS(text, "\nclairfs_steps_total{rank=\"4294967295\"} 7\n");
	CHECK_CONTAINS(text, "\nclairfs_gpu_wait_removed_estimate_seconds_total"
			     "{source=\"hook\",rank=\"0\"} 2.5\n");
	metrics_free(m);
}

static json_int_t json_at(json_t *root, const char *group, const char *key)
{
	json_t *value = json_object_get(json_object_get(root, group), key);

	CHECK(json_is_integer(value));
	return json_integer_value(value);
}

static void json_has_every_metric(void)
{
	struct metrics *m = metrics_new();
	json_t *root = json_object(), *hist;

	for (unsigned i = 0; i < METRICS_COUNT; i++) {
		if (metric_is_counter(metric_infos[i].kind))
			metrics_add(m, (enum metric)i, 1000 + i);
		else
			metrics_gauge_set(m, (enum metric)i, 1000 + i);
	}
	metrics_observe(m, METRIC_HIST_SOURCE_LATENCY, 1500000000);
	CHECK_INT(metrics_to_json(m, root), 0);
	CHECK_INT(json_object_size(root), 3);
	for (unsigned i = 0; i < METRICS_COUNT; i++) {
		const struct metric_info *info = &metric_infos[i];
		const char *group = metric_is_counter(info->kind) ? "counters" : "gauges";

		if (info->kind == METRIC_COUNTER || info->kind == METRIC_GAUGE)
			CHECK_INT(json_at(root, group, info->id), 1000 + i);
		else
			CHECK(json_real_value(json_object_get(json_object_get(root, group),
							      info->id)) == (1000 + i) / 1e9);
	}
	CHECK_INT(json_object_size(json_object_get(root, "counters")) +
			  json_object_size(json_object_get(root, "gauges")),
		  METRICS_COUNT);
	hist = json_object_get(json_object_get(root, "histograms"), "source_latency");
	CHECK_INT(json_integer_value(json_object_get(hist, "count")), 1);
	CHECK(json_real_value(json_object_get(hist, "sum_seconds")) == 1.5);
	CHECK(json_real_value(json_object_get(hist, "p99_seconds")) >= 1.5);
	CHECK(json_real_value(json_object_get(hist, "p99_seconds")) <= 1.5 * 17 / 16);
	json_decref(root);
	metrics_free(m);
}

static const struct check_test tests[] = {
	{ "table_is_well_formed", table_is_well_formed },
	{ "sums_over_threads_are_exact", sums_over_threads_are_exact },
	{ "no_object_counts_nothing", no_object_counts_nothing },
	{ "quantiles_are_within_a_sixteenth", quantiles_are_within_a_sixteenth },
	{ "extreme_observations_are_kept", extreme_observations_are_kept },
	{ "prometheus_text_follows_the_format", prometheus_text_follows_the_format },
	{ "seconds_and_labels_are_shown", seconds_and_labels_are_shown },
	{ "ranks_are_shown_once_set", ranks_are_shown_once_set },
	{ "json_has_every_metric", json_has_every_metric },
};
CHECK_MAIN(tests)
