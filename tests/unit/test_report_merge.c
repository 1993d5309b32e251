/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of nodes as files, any bytes in them, and the job they make: the slowest rank of each
 * step against a brute-force sum, bounds that hold, mixtures that are refused. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "check.h"
#include "clairfs/hint.h"
#include "clairfs/report.h"

#define HEAD "\"format\": \"clairfs-report\", \"version\": 1"

static void parse(const char *text, struct report_node *ret)
{
	struct err err = { 0 };

	if (report_node_parse(text, strlen(text), ret, &err) < 0)
		CHECK_STR(err.msg, "");
}

static void refused(const char *text, size_t size, const char *why)
{
	struct report_node node;
	struct err err = { 0 };

	CHECK_INT(report_node_parse(text, size, &node, &err), -EINVAL);
	CHECK_CONTAINS(err.msg, why);
	CHECK(!strchr(err.msg, '\n'));
}

/* A node with these ranks, steps given as wait and span of each. */
static void node_of(const char *job, const char *host, const char *ranks, struct report_node *ret)
{
	AUTO_FREE char *text = NULL;

	CHECK(asprintf(&text,
		       "{" HEAD ", \"job\": \"%s\", \"host\": \"%s\", \"pid\": 5, \"begun\": 7,"
		       "\"source\": \"/data\", \"mounted_seconds\": 60,"
		       "\"daemon\": {\"cpu_seconds\": 1.5},"
		       "\"data\": {\"reads\": 10, \"read_bytes\": 1000, \"source_reads\": 4,"
		       "\"source_bytes\": 400, \"least_source_bytes\": 300}, \"ranks\": [%s]}",
		       job, host, ranks) > 0);
	parse(text, ret);
}

static void merge_refused(struct report_node *nodes, size_t n, const char *why)
{
	struct report_job job;
	struct err err = { 0 };

	CHECK_INT(report_merge(nodes, n, &job, &err), -EINVAL);
	CHECK_CONTAINS(err.msg, why);
	CHECK(!strchr(err.msg, '\n'));
}

static void fini(struct report_node *nodes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		report_node_fini(&nodes[i]);
}

static char *printed(const struct report_node *nodes, size_t n, const struct report_job *job)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	report_print(nodes, n, job, out);
	fclose(out);
	return text;
}

static void the_slowest_rank_of_each_step_counts(void)
{
	struct report_node nodes[2];
	struct report_job job;
	struct err err = { 0 };
	AUTO_FREE char *text = NULL;

	node_of("9", "a",
		"{\"rank\": 1, \"world\": 3, \"steps\": 3, \"wait_seconds\": 0.8,"
		"\"removed\": {\"at_least_seconds\": 2, \"at_most_seconds\": 5,"
		"\"judged_seconds\": 60, \"passes_judged\": 3, \"passes_unjudged\": 1},"
		"\"log\": {\"every\": 1, \"first\": 0, \"wait_us\": [100000, 0, 700000],"
		"\"span_us\": [1000000, 1000000, 1000000]}},"
		"{\"rank\": 0, \"world\": 3, \"removed\": {\"at_least_seconds\": 3,"
		"\"at_most_seconds\": 4}}",
		&nodes[0]);
	node_of("9", "b",
		"{\"rank\": 2, \"world\": 3, \"steps\": 2, \"wait_seconds\": 0.9,"
		"\"removed\": {\"at_least_seconds\": 1, \"at_most_seconds\": 6},"
		"\"log\": {\"every\": 1, \"first\": 1, \"wait_us\": [500000, 400000],"
		"\"span_us\": [1500000, 900000]}}",
		&nodes[1]);
	CHECK_INT(report_merge(nodes, 2, &job, &err), 0);
	CHECK(fabs(job.wait_s - 1.3) < 1e-9);
	CHECK(fabs(job.span_s - 3.5) < 1e-9);
	CHECK_U64(job.incomplete, 1);
	CHECK_U64(job.n_groups, 3);
	CHECK(job.at_least_s == 3); /* not 6: ranks are not added up */
	CHECK(job.at_most_s == 15); /* as a bound they are */
	text = printed(nodes, 2, &job);
	CHECK_CONTAINS(text, "removed    at least 3.0 s of GPU wait, at most 15.0 s; "
			     "1 of 4 passes not judged\n");
	CHECK_CONTAINS(text, "at most: an upper bound for the job");
	CHECK_CONTAINS(text, "no estimate for the job");
	CHECK_CONTAINS(text, "1 of 3 of them are not known of every rank");
	CHECK_CONTAINS(text, "8 reads, 800 B; at least 600 B");
	fini(nodes, 2);
}

static void random_jobs_agree_with_brute_force(void)
{
	uint64_t state = check_seed();

	for (int round = 0; round < 30; round++) {
		struct report_node nodes[4] = { 0 };
		uint32_t n = 1 + (uint32_t)check_rand_below(&state, 4), finest = 1;
		uint64_t steps = 1 + check_rand_below(&state, 300);
		static uint64_t wait[4][300];
		struct report_job job;
		struct err err = { 0 };
		double want = 0;

		for (uint32_t i = 0; i < n; i++) {
			uint32_t every = 1u << check_rand_below(&state, 4);
			struct step_log *log;

			nodes[i].ranks = calloc(1, sizeof(*nodes[i].ranks));
			nodes[i].n_ranks = 1;
			nodes[i].ranks[0].rank = i;
			log = &nodes[i].ranks[0].log;
			for (uint64_t k = 0; k < steps; k++) {
				wait[i][k] = check_rand_below(&state, 1000);
				CHECK_INT(step_log_add(log, k, wait[i][k] * 1000,
						       wait[i][k] * 2000),
					  0);
			}
			step_log_coarsen(log, every);
			finest = MAX(finest, every);
		}
		for (uint64_t k = 0; k < steps; k += finest) {
			uint64_t longest = 0;

			for (uint32_t i = 0; i < n; i++) {
				uint64_t sum = 0;

				for (uint64_t j = k; j < MIN(k + finest, steps); j++)
					sum += wait[i][j];
				longest = MAX(longest, sum);
			}
			want += (double)longest / 1e6;
		}
		CHECK_INT(report_merge(nodes, n, &job, &err), 0);
		CHECK_U64(job.every, finest);
		CHECK(fabs(job.wait_s - want) < 1e-9);
		CHECK(fabs(job.span_s - 2 * want) < 1e-9);
		fini(nodes, n);
	}
}

/* Waits of each rank, replayed with the mount and without it; some are not known, some in groups.
 */
static void random_replays_agree_with_brute_force(void)
{
	enum { STEPS = 300, RANKS = 4 };
	static uint32_t with[RANKS][STEPS], without[RANKS][STEPS];
	uint64_t state = check_seed();

	for (int round = 0; round < 50; round++) {
		struct report_node nodes[RANKS] = { 0 };
		uint32_t n = 2 + (uint32_t)check_rand_below(&state, RANKS - 1), finest = 1;
		uint64_t from[RANKS], groups = 0;
		struct report_job job;
		struct err err = { 0 };
		double removed[RANKS] = { 0 }, want = 0;

		for (uint32_t i = 0; i < n; i++) {
			uint32_t every = 1u << check_rand_below(&state, 3);
			struct step_log *log;

			nodes[i].ranks = calloc(1, sizeof(*nodes[i].ranks));
			nodes[i].n_ranks = 1;
			nodes[i].ranks[0] = (struct report_rank){ .rank = i,
								  .world = n,
								  .at_least_s = 0,
								  .at_most_s = 1e6,
								  .passes = 1 };
			log = &nodes[i].ranks[0].replay;
			from[i] = 8 * check_rand_below(&state, 3);
			for (uint64_t k = from[i]; k < STEPS; k++) {
				with[i][k] = (uint32_t)check_rand_below(&state, 1000);
				without[i][k] = (uint32_t)check_rand_below(&state, 3000);
				CHECK_INT(step_log_add(log, k, with[i][k] * 1000ull,
						       without[i][k] * 1000ull),
					  0);
			}
			step_log_coarsen(log, every);
			finest = MAX(finest, every);
		}
		for (uint64_t k = 0; k < STEPS; k += finest) {
			bool is_known = true;

			for (uint32_t i = 0; i < n; i++)
				is_known = is_known && k >= from[i];
			groups += is_known;
			for (uint32_t i = 0; i < n && is_known; i++)
				for (uint64_t j = k; j < MIN(k + finest, STEPS); j++)
					removed[i] += ((double)without[i][j] - with[i][j]) / 1e6;
		}
		for (uint32_t i = 0; i < n; i++)
			want = fmax(want, removed[i]);
		CHECK_INT(report_merge(nodes, n, &job, &err), 0);
		CHECK_U64(job.about_every, finest);
		CHECK_U64(job.about_groups, groups);
		CHECK(fabs(job.about_s - want) < 1e-6);
		fini(nodes, n);
	}
}

static void an_estimate_needs_all_ranks(void)
{
#define REPLAYED(rank, from)                                                                       \
	"{\"rank\": " rank ", \"world\": 2, \"removed\": {\"at_least_seconds\": 1,"                \
	"\"at_most_seconds\": 3, \"replay_seconds\": 2, \"judged_seconds\": 9,"                    \
	"\"passes_judged\": 1}, \"replay\": {\"every\": 1, \"first\": " from ","                   \
	"\"with_us\": [0, 100000, 0], \"without_us\": [900000, 100000, 700000]}}"
	struct report_node nodes[2];
	struct report_job job;
	struct err err = { 0 };
	char *text;

	node_of("9", "a", REPLAYED("0", "0"), &nodes[0]);
	CHECK_INT(report_merge(nodes, 1, &job, &err), 0);
	CHECK(job.about_s < 0 && job.at_least_s == 1); /* rank 1 is not here */
	text = printed(nodes, 1, &job);
	CHECK_CONTAINS(text, "removed    at least 1.0 s of GPU wait\n");
	free(text);
	node_of("9", "b", REPLAYED("1", "0"), &nodes[1]);
	CHECK_INT(report_merge(nodes, 2, &job, &err), 0);
	CHECK(fabs(job.about_s - 1.6) < 1e-9); /* no sum of ranks */
	CHECK(job.at_least_s == 1 && job.at_most_s == 6);
	text = printed(nodes, 2, &job);
	CHECK_CONTAINS(text,
		       "removed    at least 1.0 s of GPU wait, at most 6.0 s; about 1.6 s (the "
		       "rank with most, replayed)\n");
	free(text);
	report_node_fini(&nodes[1]);
	node_of("9", "b", REPLAYED("1", "1"), &nodes[1]);
	CHECK_INT(report_merge(nodes, 2, &job, &err), 0);
	CHECK(fabs(job.about_s - 1.5) < 1e-9 || job.about_groups == 2);
	CHECK_U64(job.about_missing, 2);
	text = printed(nodes, 2, &job);
	CHECK_CONTAINS(text, "about: of 2 of 4 steps");
	free(text);
	report_node_fini(&nodes[1]);
	node_of("9", "b", "{\"rank\": 1, \"world\": 2}", &nodes[1]);
	CHECK_INT(report_merge(nodes, 2, &job, &err), 0);
	CHECK(job.about_s < 0);
	fini(nodes, 2);
}

static void mixtures_are_refused(void)
{
	struct report_node nodes[3];
	struct report_job job;
	struct err err = { 0 };

	node_of("1", "a", "{\"rank\": 0, \"world\": 4}", &nodes[0]);
	node_of("2", "b", "{\"rank\": 1, \"world\": 4}", &nodes[1]);
	merge_refused(nodes, 2, "different jobs, 1 and 2");
	fini(nodes + 1, 1);
	node_of("1", "b", "{\"rank\": 1, \"world\": 8}", &nodes[1]);
	merge_refused(nodes, 2, "a world of 4 and of a world of 8");
	fini(nodes + 1, 1);
	node_of("1", "b", "{\"rank\": 0, \"world\": 4}", &nodes[1]);
	merge_refused(nodes, 2, "rank 0 is in two of these (a and b)");
	fini(nodes + 1, 1);
	node_of("1", "a", "", &nodes[1]);
	merge_refused(nodes, 2, "the same mount");
	fini(nodes + 1, 1);
	node_of("", "b", "{\"rank\": 3, \"world\": 4}", &nodes[1]);
	node_of("", "c", "", &nodes[2]);
	CHECK_INT(report_merge(nodes, 3, &job, &err), 0);
	CHECK_STR(job.job, "1");
	CHECK_U64(job.n_ranks, 2);
	CHECK_U64(job.world, 4);
	fini(nodes, 3);
}

static void what_is_not_known_is_no_number(void)
{
	struct report_node node;
	struct report_job job;
	struct err err = { 0 };
	AUTO_FREE char *text = NULL, *shown = NULL;
	json_t *root;

	node_of("1", "a", "{\"rank\": 0, \"world\": 2, \"removed\": {\"at_most_seconds\": 5}}",
		&node);
	CHECK_INT(report_merge(&node, 1, &job, &err), 0);
	CHECK(job.at_most_s < 0); /* rank 1 may have gained anything */
	text = report_to_json(&node, 1, &job);
	root = json_loads(text, 0, NULL);
	CHECK(root);
	CHECK(json_is_null(json_object_get(root, "gpu_wait")));
	CHECK(json_is_null(json_object_get(json_object_get(root, "removed"), "at_least_seconds")));
	json_decref(root);
	shown = printed(&node, 1, &job);
	CHECK_CONTAINS(shown, "no training loop has told its steps");
	CHECK_CONTAINS(shown, "removed    not known");
	report_node_fini(&node);
	CHECK_INT(report_merge(NULL, 0, &job, &err), 0);
}

static void what_no_rank_has_is_the_nodes(void)
{
	struct report_node nodes[2];
	struct report_job job;
	struct err err = { 0 };

	parse("{" HEAD ", \"host\": \"a\", \"removed\": {\"at_least_seconds\": 1,"
	      "\"at_most_seconds\": 2}}",
	      &nodes[0]);
	CHECK_INT(report_merge(nodes, 1, &job, &err), 0);
	CHECK(job.at_least_s == 1);
	CHECK(job.at_most_s == 2);
	parse("{" HEAD ", \"host\": \"b\", \"removed\": {\"at_least_seconds\": 3,"
	      "\"at_most_seconds\": 4}}",
	      &nodes[1]);
	CHECK_INT(report_merge(nodes, 2, &job, &err), 0);
	CHECK(job.at_least_s == 3);
	CHECK(job.at_most_s < 0); /* who knows how many nodes there are */
	fini(nodes, 2);
}

static void a_log_survives_its_file(void)
{
	uint64_t state = check_seed();
	struct step_log log = { 0 };
	struct report_node node;
	AUTO_FREE char *dumped = NULL;
	char *ranks = NULL;
	json_t *json;

	for (uint64_t k = 17; k < 400; k += 1 + check_rand_below(&state, 3))
		CHECK_INT(step_log_add(&log, k, check_rand_below(&state, 1u << 30), 1u << 30), 0);
	json = step_log_to_json(&log, step_log_names, 300);
	CHECK_U64(log.every, 2);
	dumped = json_dumps(json, 0);
	json_decref(json);
	CHECK(asprintf(&ranks, "{\"rank\": 0, \"steps\": 1, \"log\": %s}", dumped) > 0);
	node_of("1", "a", ranks, &node);
	free(ranks);
	CHECK_U64(node.ranks[0].log.n, log.n);
	CHECK_U64(node.ranks[0].log.every, log.every);
	CHECK_BYTES(node.ranks[0].log.wait_us, log.wait_us, log.n * 4);
	CHECK_BYTES(node.ranks[0].log.span_us, log.span_us, log.n * 4);
	report_node_fini(&node);
	step_log_fini(&log);
}

static void hostile_reports_are_refused(void)
{
	static const char *const logs[] = {
		"{\"every\": 3, \"wait_us\": [1], \"span_us\": [1]}",
		"{\"every\": 0, \"wait_us\": [1], \"span_us\": [1]}",
		"{\"every\": 1, \"wait_us\": [1], \"span_us\": []}",
		"{\"every\": 1, \"wait_us\": [-1], \"span_us\": [1]}",
		"{\"every\": 1, \"wait_us\": [1.5], \"span_us\": [1]}",
		"{\"every\": 1, \"wait_us\": [4294967295], \"span_us\": [1]}",
		"{\"every\": 1, \"wait_us\": 1, \"span_us\": 1}",
		"{\"every\": 1, \"first\": 262144, \"wait_us\": [1], \"span_us\": [1]}",
		"{\"every\": 9223372036854775807, \"wait_us\": [1], \"span_us\": [1]}",
		"[]",
	};

	refused("", 0, "empty");
	refused("x", 1, "no JSON");
	refused("[]", 2, "not a report");
	refused("{\"format\": 1}", 13, "not a report");
	refused("{" HEAD, 44, "no JSON");
	for (size_t i = 0; i < ARRAY_LEN(logs); i++) {
		AUTO_FREE char *text = NULL;
		int n = asprintf(&text, "{" HEAD ", \"ranks\": [{\"rank\": 7, \"log\": %s}]}",
				 logs[i]);

		CHECK(n > 0);
		refused(text, (size_t)n, "rank 7");
	}
#define RANKS(list) "{" HEAD ", \"ranks\": [" list "]}"
#define REFUSED(list, why) refused(RANKS(list), sizeof(RANKS(list)) - 1, why)
	REFUSED("{\"rank\": 7, \"replay\": {\"every\": 1, \"with_us\": [1], \"without_us\": []}}",
		"rank 7");
	REFUSED("1", "a rank has no number");
	REFUSED("{\"rank\": -1}", "a rank has no number");
	REFUSED("{\"rank\": 4294967295}", "a rank has no number");
	REFUSED("{\"rank\": 4, \"world\": 4}", "a rank has no number");
	REFUSED("{\"rank\": 0, \"world\": 4294967296}", "a rank has no number");
	REFUSED("{\"rank\": 1}, {\"rank\": 1}", "rank 1 is there twice");
}

/* Any part of a good report may have been replaced. */
static void any_bytes_are_refused_or_harmless(void)
{
	static const char good[] =
		RANKS("{\"rank\": 1, \"world\": 2, \"steps\": 3, \"wait_seconds\":"
		      " 1e300, \"removed\": {\"at_least_seconds\": -1}, \"log\":"
		      "{\"every\": 2, \"first\": 1, \"wait_us\": [1, null],"
		      "\"span_us\": [2, 3]}}");
	uint64_t state = check_seed();

	for (int round = 0; round < 3000; round++) {
		AUTO_FREE char *text = strdup(good);
		struct report_node node;
		struct report_job job;
		struct err err = { 0 };

		for (uint64_t k = check_rand_below(&state, 4); k > 0; k--)
			text[check_rand_below(&state, sizeof(good) - 1)] =
				"0123456789-.,:[]{}\"e \n\xff"[check_rand_below(&state, 23)];
		if (report_node_parse(text, sizeof(good) - 1, &node, &err) == 0) {
			CHECK_INT(report_merge(&node, 1, &job, &err), 0);
			free(report_to_json(&node, 1, &job));
			report_node_fini(&node);
		} else {
			CHECK(err.msg[0] && !strchr(err.msg, '\n'));
		}
	}
}

/* --- files of records --- */

static size_t batch(struct clairfs_steps *s, uint32_t rank, uint32_t n, uint64_t first)
{
	memset(s, 0, sizeof(*s));
	s->magic = CLAIRFS_STEPS_MAGIC;
	s->version = CLAIRFS_STEPS_VERSION;
	s->world = 4;
	s->count = n;
	s->run = 1;
	strcpy(s->job, "33");
	for (uint32_t i = 0; i < n; i++)
		s->step[i] = (struct clairfs_step_record){ .rank = rank,
							   .step = first + i,
							   .t_request = 1000 * (first + i + 1),
							   .t_ready = 1000 * (first + i + 1) + 400,
							   .t_next = 1000 * (first + i + 2) };
	return offsetof(struct clairfs_steps, step) + n * sizeof(s->step[0]);
}

static void records_of_several_ranks_are_read(void)
{
	static char bytes[4 * sizeof(struct clairfs_steps)];
	struct clairfs_steps s;
	struct report_node node;
	struct report_job job;
	struct err err = { 0 };
	size_t size = 0;

	for (uint32_t i = 0; i < 4; i++) {
		size_t n = batch(&s, 3 - i % 2, 10, 10 * (i / 2));

		memcpy(bytes + size, &s, n);
		size += n;
	}
	CHECK_INT(report_node_parse(bytes, size, &node, &err), 0);
	CHECK_U64(node.n_ranks, 2);
	CHECK_U64(node.ranks[0].rank, 2);
	CHECK_U64(node.ranks[1].totals.steps, 20);
	CHECK_U64(node.ranks[1].totals.wait_ns, 20 * 400);
	CHECK_INT(report_merge(&node, 1, &job, &err), 0);
	CHECK(fabs(job.wait_s - 20 * 400e-9) < 2e-6);
	CHECK_STR(job.job, "33");
	report_node_fini(&node);
}

static void a_rank_started_again_begins_anew(void)
{
	static char bytes[2 * sizeof(struct clairfs_steps)];
	struct clairfs_steps s;
	struct report_node node;
	struct err err = { 0 };
	size_t size = batch(&s, 0, 10, 0), n;

	memcpy(bytes, &s, size);
	n = batch(&s, 0, 3, 0);
	s.run = 2;
	for (int i = 0; i < 3; i++) {
		s.step[i].t_request += 1000000;
		s.step[i].t_ready += 1000000;
		s.step[i].t_next += 1000000;
	}
	memcpy(bytes + size, &s, n);
	CHECK_INT(report_node_parse(bytes, size + n, &node, &err), 0);
	CHECK_U64(node.ranks[0].restarts, 1);
	CHECK_U64(node.ranks[0].log.n, 3);
	CHECK_U64(node.ranks[0].totals.steps, 13);
	report_node_fini(&node);
}

static void hostile_records_are_refused(void)
{
	struct clairfs_steps s;
	size_t size = batch(&s, 0, 5, 0);

	refused((char *)&s, size - 1, "it ends within step 5");
	refused((char *)&s, 40, "no steps after 0");
	s.count = CLAIRFS_STEPS + 1;
	refused((char *)&s, sizeof(s), "no steps after 0");
	batch(&s, 0, 5, 0);
	s.version = 2;
	refused((char *)&s, size, "no steps after 0");
	batch(&s, 4, 5, 0);
	refused((char *)&s, size, "step 1 cannot be right");
	batch(&s, 0, 5, 0);
	s.step[3].t_request = s.step[2].t_next - 1;
	refused((char *)&s, size, "step 4 cannot be right");
	batch(&s, 0, 5, 0);
	s.step[1].step = UINT64_MAX;
	refused((char *)&s, size, "step 2 cannot be right");
}

static const struct check_test tests[] = {
	{ "the_slowest_rank_of_each_step_counts", the_slowest_rank_of_each_step_counts },
	{ "random_jobs_agree_with_brute_force", random_jobs_agree_with_brute_force },
	{ "random_replays_agree_with_brute_force", random_replays_agree_with_brute_force },
	{ "an_estimate_needs_all_ranks", an_estimate_needs_all_ranks },
	{ "mixtures_are_refused", mixtures_are_refused },
	{ "what_is_not_known_is_no_number", what_is_not_known_is_no_number },
	{ "what_no_rank_has_is_the_nodes", what_no_rank_has_is_the_nodes },
	{ "a_log_survives_its_file", a_log_survives_its_file },
	{ "hostile_reports_are_refused", hostile_reports_are_refused },
	{ "any_bytes_are_refused_or_harmless", any_bytes_are_refused_or_harmless },
	{ "records_of_several_ranks_are_read", records_of_several_ranks_are_read },
	{ "a_rank_started_again_begins_anew", a_rank_started_again_begins_anew },
	{ "hostile_records_are_refused", hostile_records_are_refused },
};
CHECK_MAIN(tests)
