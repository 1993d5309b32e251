/* SPDX-License-Identifier: Apache-2.0 */
/* The report of a mount is a function of what it showed at the end; and where it goes. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../lib/publish_kit.h"

#define S 1000000000ull

struct made {
	struct metrics *m;
	struct published last;
	struct published_report r;
};

static void begin(struct made *t)
{
	t->m = metrics_new();
	published_made_up(&t->last, t->m);
	t->r = (struct published_report){ .last = &t->last,
					  .ended = 1000,
					  .job = "7",
					  .host = "n1",
					  .cpu_user_s = 1,
					  .cpu_system_s = 2,
					  .ranks = json_array() };
}

/* Ranks that GPU wait was judged of; passes: all, and those with an estimate. */
static void judge(struct made *t, uint32_t rank, uint64_t passes, uint64_t replayed)
{
	struct wait_view *v = &t->r.wait;

	v->rank = realloc(v->rank, (v->n_ranks + 1) * sizeof(*v->rank));
	t->r.replay = realloc(t->r.replay, (v->n_ranks + 1) * sizeof(*t->r.replay));
	CHECK(v->rank && t->r.replay);
	v->rank[v->n_ranks] = (struct stall_numbers){ .rank = rank,
						      .lower_ns = 2 * S,
						      .judged = passes,
						      .judged_replay = replayed,
						      .estimate_ns = 3 * S };
	t->r.replay[v->n_ranks++] = json_pack("{s:i}", "of", (int)rank);
}

static json_t *parsed(struct made *t)
{
	AUTO_FREE char *text = publish_report_text(&t->r);
	json_t *root = text ? json_loads(text, 0, NULL) : NULL;

	CHECK(root);
	return root;
}

static void end(struct made *t, json_t *root)
{
	json_decref(root);
	published_report_fini(&t->r);
	published_fini(&t->last);
	metrics_free(t->m);
}

static void the_head_says_what_and_when(void)
{
	struct made t;
	json_t *root, *stats;
	double mounted = 0;
	const char *format = "", *job = "", *host = "", *source = "";
	int version = 0, pid = 0, begun = 0, ended = 0;

	begin(&t);
	root = parsed(&t);
	CHECK_INT(json_unpack(root, "{s:s, s:i, s:s, s:s, s:i, s:i, s:i, s:F, s:s}", "format",
			      &format, "version", &version, "job", &job, "host", &host, "pid",
			      &pid, "begun", &begun, "ended", &ended, "mounted_seconds", &mounted,
			      "source", &source),
		  0);
	CHECK_STR(format, "clairfs-report");
	CHECK_STR(job, "7");
	CHECK_STR(host, "n1");
	CHECK_STR(source, "/s");
	CHECK(version == 1 && pid == 77 && begun == 998 && ended == 1000 && mounted == 2.5);
	CHECK(json_real_value(json_object_get(json_object_get(root, "daemon"), "cpu_seconds")) ==
	      3);
	stats = publish_stats(&t.last);
	CHECK(json_equal(json_object_get(root, "stats"), stats));
	json_decref(stats);
	end(&t, root);
}

/* Of a rank, if it is known of which; else of the node. */
static void what_was_removed_is_of_the_rank_it_was_judged_of(void)
{
	static const struct {
		const char *spec;
		int told[2]; /* ranks that told steps; -1: none */
		int at;      /* in "ranks", or -1: of the node */
		size_t n_ranks;
	} rows[] = {
		{ "torch-distributed:world=8:rank=3", { 3, 5 }, 0, 2 },
		{ "torch-distributed:world=8:rank=3", { 5, 3 }, 1, 2 },
		{ "torch-distributed:world=8:rank=3", { 5, -1 }, 1, 2 }, /* it told none */
		{ "torch-distributed:world=8:rank=3", { -1, -1 }, 0, 1 },
		{ "sequential", { 5, -1 }, 0, 1 },  /* the only one there is */
		{ "sequential", { 5, 3 }, -1, 2 },
		{ NULL, { -1, -1 }, -1, 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct made t;
		json_t *root, *place, *ranks;

		begin(&t);
		free(t.last.spec);
		t.last.spec = rows[i].spec ? strdup(rows[i].spec) : NULL;
		for (int k = 0; k < 2 && rows[i].told[k] >= 0; k++)
			json_array_append_new(t.r.ranks, json_pack("{s:i}", "rank", rows[i].told[k]));
		judge(&t, 3, 2, 2);
		root = parsed(&t);
		ranks = json_object_get(root, "ranks");
		CHECK_INT(json_array_size(ranks), rows[i].n_ranks);
		place = rows[i].at < 0 ? root : json_array_get(ranks, (size_t)rows[i].at);
		CHECK(json_real_value(json_object_get(json_object_get(place, "removed"),
						      "at_least_seconds")) == 2);
		CHECK_INT(json_integer_value(
				  json_object_get(json_object_get(place, "replay"), "of")),
			  3);
		end(&t, root);
	}
}

static void an_estimate_of_some_passes_is_none_of_all(void)
{
	static const struct {
		uint64_t passes, replayed;
		bool is_judged, has_estimate;
	} rows[] = { { 2, 2, true, true }, { 2, 1, true, false }, { 0, 0, false, false } };

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct made t;
		json_t *root, *removed;

		begin(&t);
		judge(&t, 0, rows[i].passes, rows[i].replayed);
		root = parsed(&t);
		removed = json_object_get(root, "removed");
		CHECK_INT(removed != NULL, rows[i].is_judged);
		CHECK_INT(json_is_real(json_object_get(removed, "replay_seconds")),
			  rows[i].has_estimate);
		CHECK(!json_is_real(json_object_get(removed, "hook_seconds")));
		end(&t, root);
	}
}

/* What any cache of this size had to read. The dataset has 1000 bytes. */
static void the_least_is_what_had_no_room(void)
{
	static const struct {
		uint64_t read, held, arena, store, length;
		int64_t least; /* -1: cannot be said */
	} rows[] = {
		{ 1000, 0, 100, 0, 10, 1000 },
		{ 1000, 400, 100, 400, 10, 600 },
		{ 1000, 5000, 100, 5000, 10, 0 },
		{ 3000, 0, 250, 250, 10, 2000 }, /* two more passes, half of each had no room */
		{ 3000, 0, 1000, 1000, 10, 1000 },
		{ 400, 0, 100, 0, 10, 400 },
		{ 1000, 0, 100, 0, 9, -1 }, /* the order leaves samples out */
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct made t;
		json_t *root, *least;

		begin(&t);
		metrics_add(t.m, METRIC_READ_BYTES_MISS, rows[i].read);
		metrics_gauge_set(t.m, METRIC_ARENA_LIMIT_BYTES, rows[i].arena);
		t.last.drive.plan.length = rows[i].length;
		t.r.store_bytes = rows[i].store;
		t.r.store_found_bytes = rows[i].held;
		root = parsed(&t);
		least = json_object_get(json_object_get(root, "data"), "least_source_bytes");
		CHECK_INT(json_is_null(least) ? -1 : json_integer_value(least), rows[i].least);
		end(&t, root);
	}
}

static void without_a_part_there_is_no_report(void)
{
	struct made t;

	begin(&t);
	json_decref(t.r.ranks);
	t.r.ranks = NULL;
	CHECK(!publish_report_text(&t.r));
	end(&t, NULL);
}

/* --- where it goes --- */

static char *read_back(const char *path)
{
	char *text = calloc(1, 256);
	AUTO_FILE FILE *f = fopen(path, "re");

	CHECK(f && text);
	(void)!fread(text, 1, 255, f);
	return text;
}

static void a_report_goes_where_the_option_says(void)
{
	static const struct {
		const char *option, *written; /* below the directory */
	} rows[] = { { "", "clairfs-7-n1-77.json" }, { "/x.json", "x.json" } };
	struct made t;

	begin(&t);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		AUTO_FREE char *dir = check_tmpfile(rows[i].option[0] ? "file" : "dir");
		AUTO_FREE char *option = NULL, *path = NULL, *text = NULL;
		struct report_place place = { 0 };
		struct err err = { 0 };

		CHECK_INT(mkdir(dir, 0700), 0);
		CHECK(asprintf(&option, "%s%s", dir, rows[i].option) > 0);
		CHECK(asprintf(&path, "%s/%s", dir, rows[i].written) > 0);
		CHECK_INT(report_place_find(&place, option, "/m", &err), 0);
		CHECK(!report_place_is_none(&place));
		report_place_write(&place, &t.r, NULL); /* a warning, and no file */
		CHECK_INT(access(path, F_OK), -1);
		report_place_write(&place, &t.r, "what it says");
		text = read_back(path);
		CHECK_STR(text, "what it says");
		report_place_fini(&place);
	}
	end(&t, NULL);
}

static void a_descriptor_takes_the_place_of_the_option(void)
{
	AUTO_FREE char *path = check_write_file("given", "", 0), *text = NULL;
	struct report_place place = { .fd = open(path, O_WRONLY | O_CLOEXEC) };
	struct err err = { 0 };
	struct made t;

	begin(&t);
	CHECK(place.fd > 0);
	CHECK_INT(report_place_find(&place, "/nowhere/at/all", "/m", &err), 0);
	report_place_write(&place, &t.r, NULL);
	report_place_write(&place, &t.r, "once");
	report_place_fini(&place);
	text = read_back(path);
	CHECK_STR(text, "once");
	end(&t, NULL);
}

static void a_place_that_cannot_be_is_refused(void)
{
	static const char *const none[] = { NULL, "" };
	struct report_place place = { 0 };
	struct err err = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(none); i++) {
		CHECK_INT(report_place_find(&place, none[i], "/m", &err), 0);
		CHECK(report_place_is_none(&place));
	}
	CHECK_INT(report_place_find(&place, "/nowhere/at/all", "/m", &err), -ENOENT);
	report_place_fini(&place);
	place = (struct report_place){ 0 };
	AUTO_FREE char *real = realpath(check_tmpdir(), NULL);

	CHECK_INT(report_place_find(&place, check_tmpdir(), real, &err), -EPERM);
	CHECK_CONTAINS(err.msg, "is within the mount");
	report_place_fini(&place);
}

static const struct check_test tests[] = {
	{ "the_head_says_what_and_when", the_head_says_what_and_when },
	{ "what_was_removed_is_of_the_rank_it_was_judged_of",
	  what_was_removed_is_of_the_rank_it_was_judged_of },
	{ "an_estimate_of_some_passes_is_none_of_all", an_estimate_of_some_passes_is_none_of_all },
	{ "the_least_is_what_had_no_room", the_least_is_what_had_no_room },
	{ "without_a_part_there_is_no_report", without_a_part_there_is_no_report },
	{ "a_report_goes_where_the_option_says", a_report_goes_where_the_option_says },
	{ "a_descriptor_takes_the_place_of_the_option",
	  a_descriptor_takes_the_place_of_the_option },
	{ "a_place_that_cannot_be_is_refused", a_place_that_cannot_be_is_refused },
};
CHECK_MAIN(tests)
