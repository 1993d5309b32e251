/* SPDX-License-Identifier: Apache-2.0 */
/* clairfs top without a terminal: lines of one mount, rates between two readings, and that nothing
 * a mount says gets to the terminal as it is. */
#include <stdlib.h>
#include <string.h>

#include "../../src/cli/top.h"
#include "check.h"

static json_t *stats(const char *text)
{
	json_error_t why;
	json_t *root = json_loads(text, 0, &why);

	if (!root)
		printf("# line %d: %s\n", why.line, why.text);
	CHECK(root != NULL);
	return root;
}

/* All lines, each with its end, heap. */
static char *view(const struct top_mount *m, uint32_t width)
{
	struct top_lines lines = { .width = width };
	char *text;
	size_t at = 0;

	top_view(m, &lines);
	text = malloc((size_t)lines.n * (TOP_LINE + 1) + 1);
	CHECK(text != NULL);
	for (uint32_t i = 0; i < lines.n; i++)
		at += (size_t)sprintf(text + at, "%s\n", lines.line[i]);
	top_lines_fini(&lines);
	return text;
}

static char *view_of(const char *now, const char *before, double seconds)
{
	struct top_mount m = { .path = (char *)(uintptr_t) "/mnt/data",
			       .now = stats(now),
			       .before = before ? stats(before) : NULL,
			       .before_ns = 1000,
			       .now_ns = 1000 + (uint64_t)(seconds * 1e9) };
	char *text = view(&m, 200);

	json_decref(m.now);
	json_decref(m.before);
	return text;
}

static bool has(const char *text, const char *part)
{
	return strstr(text, part) != NULL;
}

static void rates_are_differences_over_time(void)
{
	AUTO_FREE char *text =
		view_of("{\"counters\": {\"source_reads\": 150, \"source_bytes\": 3145728,"
			" \"prefetch_issued\": 40, \"process_cpu\": 3.5}}",
			"{\"counters\": {\"source_reads\": 100, \"source_bytes\": 1048576,"
			" \"prefetch_issued\": 20, \"process_cpu\": 3}}",
			2);

	CHECK_CONTAINS(text, "source    25.0 reads/s, 1 MiB/s");
	CHECK_CONTAINS(text, "ahead     10.0/s");
	CHECK_CONTAINS(text, "daemon    25.0 % of a CPU");
}

static void the_first_reading_is_since_the_mount_began(void)
{
	AUTO_FREE char *text =
		view_of("{\"mount\": {\"uptime_seconds\": 50, \"source\": \"/lustre\"},"
			" \"counters\": {\"source_reads\": 100}}",
			NULL, 0);

	CHECK_CONTAINS(text, "/lustre on /mnt/data, up 50 s");
	CHECK_CONTAINS(text, "source    2.0 reads/s");
}

/* It counts from 0 again: no rate of its own is below that. */
static void a_daemon_that_was_started_again(void)
{
	AUTO_FREE char *text = view_of("{\"counters\": {\"source_reads\": 5}}",
				       "{\"counters\": {\"source_reads\": 1000}}", 1);

	CHECK_CONTAINS(text, "source    0.0 reads/s");
	CHECK(!has(text, "-"));
}

static void where_reads_were_served_from(void)
{
	AUTO_FREE char *text =
		view_of("{\"reads\": {\"staged\": {\"reads\": 190, \"bytes\": 2097152},"
			" \"miss\": {\"reads\": 20, \"bytes\": 0}, \"arena\": {\"reads\": 7}}}",
			"{\"reads\": {\"staged\": {\"reads\": 100, \"bytes\": 0},"
			" \"miss\": {\"reads\": 10}, \"arena\": {\"reads\": 7}}}",
			10);

	CHECK_CONTAINS(text, "reads     10.0/s");
	CHECK_CONTAINS(text, "staged 90.0 %");
	CHECK_CONTAINS(text, "miss 10.0 %");
	CHECK_CONTAINS(text, "arena 0.0 %"); /* it served some before */
	CHECK(!has(text, "store 0.0"));      /* and this one never */
}

static void latencies_of_what_came_in_since(void)
{
	AUTO_FREE char *text = view_of(
		"{\"histograms\": {\"source_latency\": {\"count\": 30, \"sum_seconds\": 0.5,"
		" \"p99_seconds\": 0.25}}}",
		"{\"histograms\": {\"source_latency\": {\"count\": 10, \"sum_seconds\": 0.1}}}", 1);

	CHECK_CONTAINS(text, "mean 20.00 ms, p99 250.00 ms");
}

static void bars_of_what_there_is(void)
{
	AUTO_FREE char *text =
		view_of("{\"gauges\": {\"arena_bytes\": 524288, \"arena_limit_bytes\": 1048576,"
			" \"stage_bytes\": 3145728, \"stage_limit_bytes\": 1048576}}",
			NULL, 0);

	CHECK_CONTAINS(text, "arena     [##########          ]  50 %  512 KiB of 1 MiB");
	CHECK_CONTAINS(
		text, "stage     [####################] 300 %  3 MiB of 1 MiB"); /* over, not beyond
										    its end */
	CHECK(!has(text, "store     ["));
}

static void the_store_where_there_is_one(void)
{
	AUTO_FREE char *
		with = view_of(
		       "{\"gauges\": {\"store_limit_bytes\": 1024}, \"store\": {\"why\": \"full\"}}",
		       NULL, 0),
	       *without = view_of("{\"store\": {\"why\": \"the directory is gone\"}}", NULL, 0);

	CHECK_CONTAINS(with, "store     0.0 reads/s");
	CHECK_CONTAINS(with, "full");
	CHECK_CONTAINS(without, "store     the directory is gone");
	CHECK(!has(without, "store     0.0"));
}

static void the_order_and_other_jobs(void)
{
	AUTO_FREE char *text = view_of(
		"{\"order\": {\"state\": \"following\", \"why\": \"as told\", \"spec\": \"s\","
		" \"doing\": \"reads\","
		" \"epoch\": {\"number\": 3, \"position\": 25, \"length\": 100, \"lead\": 9,"
		" \"match_percent\": 98}},"
		" \"jobs\": [{\"state\": \"a\", \"spec\": \"first\"},"
		" {\"state\": \"lost\", \"spec\": \"other:spec\", \"epoch\": 1, \"length\": 10,"
		" \"position\": 5},"
		" {\"state\": \"checking\", \"spec\": \"third\", \"length\": 0}]}",
		NULL, 0);

	CHECK_CONTAINS(text, "order     following: as told");
	CHECK_CONTAINS(text, "the job reads");
	CHECK_CONTAINS(text, "epoch 3, position 25 of 100 (25 %), lead 9, 98 % as predicted");
	CHECK_CONTAINS(text, "others    lost, epoch 1, 50 %");
	CHECK_CONTAINS(text, "          checking, epoch 0, 0 %");
	CHECK(!has(text, ": first"));
}

static void a_mount_that_says_nothing(void)
{
	struct top_mount m = { .path = (char *)(uintptr_t) "/mnt/x", .problem = "it hangs" };
	AUTO_FREE char *text = view(&m, 80), *empty = NULL;

	CHECK_STR(text, "/mnt/x\n          it hangs\n");
	empty = view_of("{}", NULL, 0); /* an older daemon, of which nothing is known */
	CHECK_CONTAINS(empty, "gpu wait  not measured by this daemon");
	CHECK(!has(empty, "nan") && !has(empty, "(null)"));
}

static void an_old_reading_says_why(void)
{
	struct top_mount m = { .path = (char *)(uintptr_t) "/mnt/x",
			       .now = stats("{\"is_degraded\": true}"),
			       .problem = "no answer for 10 s" };
	AUTO_FREE char *text = view(&m, 200);

	CHECK_CONTAINS(text, "old       no answer for 10 s");
	CHECK_CONTAINS(text, "degraded");
	json_decref(m.now);
}

static void words_are_continued_beneath_themselves(void)
{
	struct top_mount m = { .path = (char *)(uintptr_t) "/m",
			       .problem = "one two three four five six seven" };
	AUTO_FREE char *text = view(&m, 30);
	char *line = text;

	CHECK_CONTAINS(text, "          one two three four\n          five six seven\n");
	for (char *end; (end = strchr(line, '\n')); line = end + 1)
		CHECK(end - line <= 30);
	snprintf(m.problem, sizeof(m.problem), "%s", "aaaaaaaaaabbbbbbbbbbccccccccccdd");
	free(TAKE(text));
	text = view(&m, 30); /* a word that fits nowhere is cut */
	CHECK_CONTAINS(text, "          aaaaaaaaaabbbbbbbbbb\n          ccccccccccdd\n");
	free(TAKE(text));
	text = view(&m, 3); /* a window of nothing */
	CHECK_CONTAINS(text, "          aaaaaaaaaa\n");
}

static void nothing_reaches_the_terminal_as_it_is(void)
{
	AUTO_FREE char *text = view_of("{\"mount\": {\"source\": \"/a\\u001b[2Jb\\n\\u0007\"},"
				       " \"order\": {\"state\": \"x\\u001b]0;t\\u0007\"},"
				       " \"gpu_wait\": {\"words\": \"\\u009b31m\"}}",
				       NULL, 0);

	for (const char *c = text; *c; c++)
		CHECK(*c == '\n' || (unsigned char)*c >= ' ');
	CHECK(!has(text, "\x1b") && !has(text, "\xc2\x9b"));
}

static void lines_are_as_many_as_there_are(void)
{
	struct top_lines lines = { .width = 80 };
	char longest[TOP_LINE * 2];

	for (int i = 0; i < 500; i++)
		top_add(&lines, "line %d", i);
	CHECK_U64(lines.n, 500);
	CHECK_STR(lines.line[0], "line 0");
	CHECK_STR(lines.line[499], "line 499");
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = 0;
	top_add(&lines, "%s", longest);
	CHECK(strlen(lines.line[500]) < TOP_LINE);
	top_lines_fini(&lines);
	CHECK(lines.n == 0 && lines.width == 80);
}

static const struct check_test tests[] = {
	{ "rates_are_differences_over_time", rates_are_differences_over_time },
	{ "the_first_reading_is_since_the_mount_began",
	  the_first_reading_is_since_the_mount_began },
	{ "a_daemon_that_was_started_again", a_daemon_that_was_started_again },
	{ "where_reads_were_served_from", where_reads_were_served_from },
	{ "latencies_of_what_came_in_since", latencies_of_what_came_in_since },
	{ "bars_of_what_there_is", bars_of_what_there_is },
	{ "the_store_where_there_is_one", the_store_where_there_is_one },
	{ "the_order_and_other_jobs", the_order_and_other_jobs },
	{ "a_mount_that_says_nothing", a_mount_that_says_nothing },
	{ "an_old_reading_says_why", an_old_reading_says_why },
	{ "words_are_continued_beneath_themselves", words_are_continued_beneath_themselves },
	{ "nothing_reaches_the_terminal_as_it_is", nothing_reaches_the_terminal_as_it_is },
	{ "lines_are_as_many_as_there_are", lines_are_as_many_as_there_are },
};

CHECK_MAIN(tests)
