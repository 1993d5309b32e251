/* SPDX-License-Identifier: Apache-2.0 */
/* What a person is told of a mount is a function of its stats.json. */
#include "../lib/publish_kit.h"

/* Heap. */
static char *told_of(const json_t *stats)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	CHECK(out);
	publish_status(stats, out);
	CHECK_INT(fclose(out), 0);
	return text;
}

static void a_mount_is_told_of_in_lines_that_stay(void)
{
	struct metrics *m = metrics_new();
	char wanted[4096], doing[PLAN_TEXT];
	struct published p;
	json_t *stats;

	published_made_up(&p, m);
	metrics_add(m, METRIC_READS_STAGED, 3);
	metrics_add(m, METRIC_READ_BYTES_STAGED, 3 << 20);
	metrics_add(m, METRIC_READS_MISS, 1);
	stats = publish_stats(&p);
	CHECK(stats);
	plan_status_text(&p.drive.plan, doing);
	snprintf(wanted, sizeof(wanted),
		 "/s on /m, up 2 s\n"
		 "dataset   10 samples, 1000 B, layout files\n"
		 "order     sequential\n"
		 "          following\n"
		 "          the job %s\n"
		 "          the order was told\n"
		 "          epoch 2, position 4 of 10, lead 3, 99 %% of the last reads as "
		 "predicted\n"
		 "reads     4\n"
		 "          staged           3   75.0 %%  3 MiB\n"
		 "          miss             1   25.0 %%  0 B\n",
		 doing);
	AUTO_FREE char *text = told_of(stats);

	CHECK(strlen(text) > strlen(wanted));
	text[strlen(wanted)] = 0;
	CHECK_STR(text, wanted);
	json_decref(stats);
	published_fini(&p);
	metrics_free(m);
}

/* Each line is there when what it is about is, and only then. */
static void a_line_is_there_when_it_says_something(void)
{
	static const struct {
		const char *stats, *line;
	} rows[] = {
		{ "{'mount': {'watch_why': 'W'}}", "it cannot be watched, as W" },
		{ "{'dataset': {'snapshot_why': 'W'}}", "no snapshot of it is kept: W" },
		{ "{'announced': {'is_refused': true, 'answer': 'A'}}",
		  "the last one announced was refused: A" },
		{ "{'order': {'not_taken': 'W'}}",
		  "order     none\n          that of the mount was not taken: W\n" },
		{ "{'is_degraded': true}", "degraded: " },
		{ "{'counters': {'source_changed': 2}}", "2 files have changed there\n" },
		{ "{'counters': {'source_changed': 2, 'source_touched': 1}}",
		  ", of which 1 in permissions" },
		{ "{'memory': {'ram': 64, 'is_over': true}}", "that is more than the limit" },
		{ "{'memory': {'ram': 64, 'arena': 32, 'ram_now': 64}}", "of ram 32 B are for" },
		{ "{'memory': {'ram': 64, 'ram_now': 16, 'shrunk': 3}}",
		  "shrunk under memory pressure to 16 B, 3 times" },
		{ "{'memory': {'ram': 64, 'limit': 128, 'from': 'F'}}", "limit 128 B (F)" },
		{ "{'memory': {'ram': 64, 'resident': {'bytes': 9}}}", "the daemon has 9 B" },
		{ "{'store': {'why': 'W'}}", "store     none: W" },
		{ "{'gauges': {'store_limit_bytes': 64}, 'store': {'why': 'W'}}", "0 B of 64 B" },
		{ "{'counters': {'upcall_open': 3, 'sample_opens': 6}}",
		  "0.500 per open of a sample" },
		{ "{'order': {'search': {'others': [{'doing': 'D'}]}}}", "another job: D" },
		{ "{'order': {'search': {'records': [{'path': 'P', 'read': 'R', 'order_words': ''}]}}}",
		  "records   P: R\n" },
		{ "{'order': {'search': {'records': [{'path': 'P', 'read': 'R', 'order_words': 'W', "
		  "'tell': {'index': 'I', 'order': 'O'}}]}}}",
		  "          W\n          a table of them: I\n"
		  "          with it the next mount can be told: order=O\n" },
		{ "{'order': {'search': {'records': [{'path': 'P', 'read': 'R', 'order_words': 'W', "
		  "'tell': {'index': '', 'order': 'O'}}]}}}",
		  "          W\n          it can be told: order=O\n" },
		{ "{'order': {'search': {'ended': 'sequential'}}}",
		  "the last job that has ended read sequential" },
		{ "{'jobs': [{'spec': 'sequential'}, {'spec': 'sequential', 'pid': 5}]}",
		  "job 2     sequential, told by process 5" },
		{ "{'jobs': [{}, {'pid': 5, 'is_found': true}]}", "found; read by process 5" },
		{ "{'jobs': [{}, {}]}", "gpu wait is accounted for this job" },
	};
	/* Of whatever there is nothing, not even none. */
	static const char *const never[] = { "have changed there", "shrunk under", "store     ",
					     "memory    ",	   "of ram",	   "another job", "records   ",
					     "job 1",		   "degraded",	   "per open" };
	json_t *nothing = json_object();
	AUTO_FREE char *without = told_of(nothing);

	for (size_t i = 0; i < ARRAY_LEN(never); i++)
		CHECK(!strstr(without, never[i]));

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		AUTO_FREE char *quoted = strdup(rows[i].stats);

		for (char *at = quoted; *at; at++)
			*at = *at == '\'' ? '"' : *at;
		json_t *stats = json_loads(quoted, 0, NULL);

		CHECK(stats);
		AUTO_FREE char *text = told_of(stats);

		CHECK_CONTAINS(text, rows[i].line);
		CHECK(!strstr(without, rows[i].line));
		json_decref(stats);
	}
	json_decref(nothing);
}

/* Of another version, or damaged. */
static void what_is_of_another_kind_is_left_out(void)
{
	static const char *const rows[] = { "{}", "[]", "{\"order\": 5, \"jobs\": {}}",
					    "{\"jobs\": [1, 2], \"reads\": \"x\"}",
					    "{\"memory\": {\"ram\": 64, \"resident\": []}}" };

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		json_t *stats = json_loads(rows[i], 0, NULL);

		CHECK(stats);
		AUTO_FREE char *text = told_of(stats);

		CHECK_CONTAINS(text, "order     none given\n");
		json_decref(stats);
	}
}

static const struct check_test tests[] = {
	{ "a_mount_is_told_of_in_lines_that_stay", a_mount_is_told_of_in_lines_that_stay },
	{ "a_line_is_there_when_it_says_something", a_line_is_there_when_it_says_something },
	{ "what_is_of_another_kind_is_left_out", what_is_of_another_kind_is_left_out },
};
CHECK_MAIN(tests)
