/* SPDX-License-Identifier: Apache-2.0 */
/* The text of stats.json is a function of what was seen of a mount. Programs read it: names,
 * their order and their kinds are fixed here, letter by letter. */
#include <errno.h>

#include "../lib/publish_kit.h"

/* All but what the counters say. */
static const char wanted[] =
	"{\"version\":\"1.2.3\",\"pid\":77,\"is_degraded\":false,"
	"\"mount\":{\"source\":\"/s\",\"mountpoint\":\"/m\",\"uptime_seconds\":2.5,"
	"\"is_open_refused\":false,\"is_watch_complete\":true,\"watches\":3,\"watch_why\":\"\","
	"\"inodes_known\":12},"
	"\"dataset\":{\"layout\":\"files\",\"samples\":10,\"entries\":11,\"bytes\":1000,"
	"\"from_snapshot\":false,\"snapshot_why\":\"\",\"dirs_scanned\":2,\"dirs_reused\":0,"
	"\"stats\":13,\"skipped\":0},"
	"\"order\":{\"spec\":\"sequential\",\"state\":\"following\",\"why\":\"\",\"doing\":DOING,"
	"\"is_followed\":true,\"epoch\":{\"number\":2,\"position\":4,\"length\":10,\"lead\":3,"
	"\"match_percent\":99,\"span\":10},\"readers\":{\"outside\":0,\"outside_now\":0,"
	"\"other_percent\":0,\"lost\":0,\"lost_reads\":0,\"numberings_tried\":0},"
	"\"validation\":{\"expected\":0,\"read\":0,\"foreseen\":0},"
	"\"search\":{\"doing\":\"the order was told\"}},"
	"\"jobs\":[{\"id\":1,\"spec\":\"sequential\",\"pid\":78,\"state\":\"following\","
	"\"why\":\"\",\"doing\":DOING,\"epoch\":2,\"position\":4,\"length\":10,\"lead\":3,"
	"\"match_percent\":99,\"reads\":0,\"quiet_seconds\":0.5,\"is_accounted\":true,"
	"\"is_found\":false}],"
	"\"engines\":{\"source\":\"pool\",\"source_why\":\"\",\"store\":\"uring\"},"
	"\"store\":{\"is_persistent\":true,\"is_full\":false,\"is_off\":false,"
	"\"is_write_off\":false,\"why\":\"\",\"segments\":0,\"segments_of_others\":0,"
	"\"records\":5,\"record_bytes\":0,\"unverified\":0,\"index_bytes\":0},"
	"\"gpu_wait\":{\"words\":\"not known\"},"
	"\"announced\":{\"count\":0,\"refused\":0,\"is_refused\":false},"
	"\"hook\":{\"job\":\"\",\"ranks\":[]},"
	"\"memory\":{\"ram\":64,\"arena\":60,\"stage\":16,\"source_max_inflight\":0,"
	"\"inodes_ahead\":0,\"limit\":0,\"from\":\"no limit is known\",\"is_over\":false,"
	"\"ram_now\":0,\"stage_now\":0,\"shrunk\":0,\"pressure\":\"what is free\","
	"\"resident\":{\"bytes\":100,\"peak\":0,\"arena\":40,\"samples_held\":0,\"index\":10,"
	"\"tables\":0,\"other\":50}}}";

/* The words of the plan are its own. */
static char *with_doing(const struct published *p)
{
	char doing[PLAN_TEXT], quoted[PLAN_TEXT + 3], *out = calloc(1, sizeof(wanted) * 2);
	const char *from = wanted, *at;

	plan_status_text(&p->drive.plan, doing);
	snprintf(quoted, sizeof(quoted), "\"%s\"", doing);
	CHECK(out && !strchr(doing, '"'));
	while ((at = strstr(from, "DOING"))) {
		strncat(out, from, (size_t)(at - from));
		strcat(out, quoted);
		from = at + strlen("DOING");
	}
	return strcat(out, from);
}

static void every_name_is_where_it_was(void)
{
	static const char *const of_counters[] = { "reads", "counters", "gauges", "histograms" };
	struct metrics *m = metrics_new();
	struct published p;
	json_t *root;

	published_made_up(&p, m);
	root = publish_stats(&p);
	CHECK(root);
	for (size_t i = 0; i < ARRAY_LEN(of_counters); i++)
		CHECK_INT(json_object_del(root, of_counters[i]), 0);
	AUTO_FREE char *text = json_dumps(root, JSON_COMPACT);
	AUTO_FREE char *golden = with_doing(&p);

	CHECK_STR(text, golden);
	json_decref(root);
	published_fini(&p);
	metrics_free(m);
}

/* One thing is otherwise than in the mount that was made up. */
struct row {
	void (*change)(struct published *p);
	const char *group, *name;
	const char *value; /* compact JSON; NULL: there is no such member */
};

static void no_order(struct published *p)
{
	free(p->spec);
	p->spec = NULL;
}

static void not_taken(struct published *p)
{
	no_order(p);
	p->not_taken = "no table";
}

static void one_told_later(struct published *p)
{
	p->not_taken = "no table";
}

static void odd_bytes(struct published *p)
{
	p->mount.source = "/a\xff\nb";
}

static void no_store(struct published *p)
{
	p->has_store = false;
}

static void counted_twice(struct published *p)
{
	p->memory.tables = 1000;
}

static void told(struct published *p)
{
	p->told = (struct orders_told){ .n = 2, .n_refused = 1, .answer = strdup("no"),
					   .is_refused = true };
}

static void lost(struct published *p)
{
	p->drive.plan.state = PLAN_LOST;
}

static void slowed(struct published *p)
{
	p->drive.plan.state = PLAN_SLOWED;
}

static void nothing(struct published *p)
{
}

static void what_changes_is_shown(void)
{
	static const struct row rows[] = {
		{ no_order, "order", "spec", NULL },
		{ no_order, "order", "not_taken", NULL },
		{ not_taken, "order", "not_taken", "\"no table\"" },
		{ one_told_later, "order", "not_taken", NULL },
		{ odd_bytes, "mount", "source", "\"/a\\\\xff\\\\nb\"" },
		{ no_store, NULL, "store", "null" },
		{ counted_twice, "memory", "resident",
		  "{\"bytes\":100,\"peak\":0,\"arena\":40,\"samples_held\":0,\"index\":10,"
		  "\"tables\":1000,\"other\":0}" },
		{ told, NULL, "announced",
		  "{\"count\":2,\"refused\":1,\"answer\":\"no\",\"is_refused\":true}" },
		{ lost, "order", "is_followed", "false" },
		{ slowed, "order", "is_followed", "true" },
		{ nothing, "engines", "source_why", "\"\"" },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct row *row = &rows[i];
		struct metrics *m = metrics_new();
		struct published p;
		json_t *root, *group, *value;

		published_made_up(&p, m);
		row->change(&p);
		root = publish_stats(&p);
		CHECK(root);
		group = row->group ? json_object_get(root, row->group) : root;
		value = json_object_get(group, row->name);
		AUTO_FREE char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY)
					     : NULL;

		CHECK_STR(text, row->value);
		json_decref(root);
		published_fini(&p);
		metrics_free(m);
	}
}

static json_t *job_of(json_t *root, size_t i)
{
	return json_array_get(json_object_get(root, "jobs"), i);
}

static void jobs_are_shown_in_their_order(void)
{
	struct metrics *m = metrics_new();
	struct published p;
	json_t *root;

	published_made_up(&p, m);
	p.n_jobs = 2;
	p.job[1] = (struct orders_job){ .spec = strdup("list:/x"),
					   .name = strdup("two"),
					   .is_found = true,
					   .at = { .id = 9, .plan = p.drive.plan } };
	p.job[1].at.read_ns = p.now_ns + 1; /* by another thread, since */
	root = publish_stats(&p);
	CHECK_INT(json_array_size(json_object_get(root, "jobs")), 2);
	CHECK(!json_object_get(job_of(root, 0), "name"));
	CHECK_STR(json_string_value(json_object_get(job_of(root, 1), "name")), "two");
	CHECK(!json_object_get(job_of(root, 1), "pid"));
	CHECK(json_is_true(json_object_get(job_of(root, 1), "is_found")));
	CHECK(json_is_false(json_object_get(job_of(root, 1), "is_accounted")));
	CHECK(json_real_value(json_object_get(job_of(root, 1), "quiet_seconds")) == 0);
	json_decref(root);
	published_fini(&p);
	metrics_free(m);
}

static void counters_are_read_when_the_text_is_made(void)
{
	struct metrics *m = metrics_new();
	struct published p;
	struct buf_writer out;

	published_made_up(&p, m);
	metrics_add(m, METRIC_READS_MISS, 41);
	buf_writer_init(&out);
	CHECK_INT(publish_stats_text(&p, &out), 0);
	CHECK(out.size > 2 && memcmp(out.data + out.size - 2, "}\n", 2) == 0);
	buf_put_u8(&out, 0);
	CHECK_CONTAINS((const char *)out.data, "\"miss\": {\n      \"reads\": 41,");
	CHECK_CONTAINS((const char *)out.data, "\"reads_miss\": 41,");
	buf_writer_fini(&out);
	published_fini(&p);
	metrics_free(m);
}

/* Whose owner ran out of memory. */
static void a_part_that_is_missing_is_no_text(void)
{
	struct metrics *m = metrics_new();
	struct published p;
	struct buf_writer out;

	published_made_up(&p, m);
	json_decref(p.gpu_wait);
	p.gpu_wait = NULL;
	buf_writer_init(&out);
	CHECK_INT(publish_stats_text(&p, &out), -ENOMEM);
	CHECK_INT(out.size, 0);
	buf_writer_fini(&out);
	published_fini(&p);
	metrics_free(m);
}

static const struct check_test tests[] = {
	{ "every_name_is_where_it_was", every_name_is_where_it_was },
	{ "what_changes_is_shown", what_changes_is_shown },
	{ "jobs_are_shown_in_their_order", jobs_are_shown_in_their_order },
	{ "counters_are_read_when_the_text_is_made", counters_are_read_when_the_text_is_made },
	{ "a_part_that_is_missing_is_no_text", a_part_that_is_missing_is_no_text },
};
CHECK_MAIN(tests)
