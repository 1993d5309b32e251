/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon's accounting makes of reads and orders as they come: late, out of order, and of
 * an order that is gone already. The numbers themselves: test_wait_stall.c. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "clairfs/base/clock.h"
#include "clairfs/order.h"
#include "src/wait/wait_priv.h"
#include "src/wait/verdicts.h"
#include "src/wait/stall_priv.h"

enum { READS = 400, BATCH = 4 };

static void order_is(struct wait *a, uint32_t generation)
{
	static const uint32_t ranks[] = { 0 };
	struct order_info info = {
		.n_ranks = 1, .ranks = ranks, .batch = BATCH, .workers = 2, .prefetch_factor = 2
	};

	wait_set_order(a, &info, generation, true);
}

/* Reads [from, to) of the only pass of an order; each sixteenth is a control read. */
static void reads_are(struct wait *a, uint32_t generation, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++) {
		struct read_facts note = {
			.unit.v = i,
			.read_class = i % 16 ? READ_STAGED : READ_MISS,
			.traits = { .mark = i % 16 ? 0 : WAIT_CONTROL },
			.has_use = true,
			.generation = generation,
			.use = { .position = i, .length = READS },
			.bytes = 100000,
			.opened_ns = 1000000000ull * (1000 * generation) + i * 1000000ull,
			.wait_ns = i % 16 ? 0 : 900000,
		};

		wait_reads(a, &note, 1);
	}
}

static json_int_t number(json_t *json, const char *name)
{
	json_t *value = json_object_get(json, name);

	CHECK(json_is_integer(value));
	return json_integer_value(value);
}

static int unplaced(struct wait *a)
{
	json_t *json = wait_json(a);
	int n = (int)number(json_object_get(json, "control"), "unplaced_reads");

	json_decref(json);
	return n;
}

/* Until the thread has taken all that was told so far: it is told a read of no order, too. */
static void wait_until_taken(struct wait *a)
{
	uint64_t until = clock_now(clock_monotonic()) + 120 * NS_PER_S;
	int before = unplaced(a);

	wait_reads(a, &(struct read_facts){ .opened_ns = 1 }, 1);
	while (unplaced(a) == before && clock_now(clock_monotonic()) < until)
		usleep(5000);
	CHECK(unplaced(a) > before);
}

static struct wait *start(struct metrics *m)
{
	struct wait_params params = { .control_share = 1.0 / 16 };
	struct wait *a;
	struct err err = { 0 };

	CHECK_INT(wait_new(&params, READS, m, &a, &err), 0);
	CHECK_INT(wait_start(a, &err), 0);
	return a;
}

static void end(struct wait *a, struct metrics *m, uint32_t judged, uint32_t unplaced)
{
	json_t *json;

	wait_stop(a);
	json = wait_json(a);
	CHECK_INT((int)number(json, "passes_judged"), (int)judged);
	CHECK_INT((int)number(json, "passes_unjudged"), 0);
	CHECK_INT((int)number(json, "dropped"), 0);
	CHECK_INT((int)number(json_object_get(json, "control"), "unplaced_reads"), (int)unplaced);
	CHECK_INT((int)number(json_array_get(json_object_get(json, "ranks"), 0), "reads"),
		  (int)(judged * READS));
	json_decref(json);
	wait_free(a);
	metrics_free(m);
}

/* As of a job that announces its next epoch at once. */
static void last_reads_of_an_order_come_after_the_next_one(void)
{
	struct metrics *m = metrics_new();
	struct wait *a = start(m);

	order_is(a, 1);
	reads_are(a, 1, 0, READS / 2);
	wait_until_taken(a);
	order_is(a, 2);
	reads_are(a, 2, 0, READS / 4);
	reads_are(a, 1, READS / 2, READS);
	reads_are(a, 2, READS / 4, READS);
	end(a, m, 2, 1);
}

/* A job that tells the order of each epoch does not wait for anybody. */
static void orders_told_within_a_second_have_their_reads_each(void)
{
	struct metrics *m = metrics_new();
	struct wait *a = start(m);

	for (uint32_t generation = 1; generation <= 5; generation++) {
		order_is(a, generation);
		reads_are(a, generation, 0, READS / 2);
		if (generation > 1)
			reads_are(a, generation - 1, READS / 2, READS);
	}
	reads_are(a, 5, READS / 2, READS);
	end(a, m, 5, 0);
}

/* The planner puts an order in force a moment before accounting hears of it. */
static void reads_may_be_told_before_their_order(void)
{
	struct metrics *m = metrics_new();
	struct wait *a = start(m);

	reads_are(a, 1, 0, READS / 4);
	wait_until_taken(a);
	order_is(a, 1);
	wait_until_taken(a);
	reads_are(a, 1, READS / 4, READS);
	reads_are(a, 2, 0, READS / 2);
	wait_until_taken(a);
	order_is(a, 2);
	reads_are(a, 2, READS / 2, READS);
	reads_are(a, 3, 0, 7); /* and of one that is never told */
	end(a, m, 2, 3 + 7);
}

static void many_orders_at_once_are_survived(void)
{
	struct metrics *m = metrics_new();
	struct wait *a = start(m);

	for (uint32_t generation = 1; generation <= 1000; generation++)
		order_is(a, generation);
	reads_are(a, 1000, 0, READS);
	end(a, m, 1, 0);
}

static void words_know_of_an_order_at_once(void)
{
	struct metrics *m = metrics_new();
	struct wait *a = start(m);
	json_t *json = wait_json(a);

	CHECK_STR(json_string_value(json_object_get(json, "words")),
		  "not known: the order of the job is not known, so nothing was fetched ahead");
	json_decref(json);
	order_is(a, 1);
	json = wait_json(a);
	CHECK_STR(json_string_value(json_object_get(json, "words")),
		  "not known: no pass over the dataset is over yet");
	json_decref(json);
	wait_stop(a);
	wait_free(a);
	metrics_free(m);
}

/* Of one whose samples are in parts nothing is said, and why not; its reads have no place. */
static void order_that_is_not_measured_is_said_to_be_none(void)
{
	static const uint32_t ranks[] = { 0 };
	const struct order_info info = { .n_ranks = 1, .ranks = ranks, .batch = BATCH, .workers = 2 };
	const struct wait_params params = { .control_share = 1 };
	const struct probe_use use = { .unit = { 1 }, .bytes = 100000 };
	struct metrics *m = metrics_new();
	const struct drive_probe *probe;
	struct err err = { 0 };
	struct wait *a;
	json_t *json;

	CHECK_INT(wait_new(&params, READS, m, &a, &err), 0);
	CHECK_INT(wait_start(a, &err), 0);
	probe = wait_drive_probe(a);
	wait_set_order(a, &info, 1, false);
	CHECK_INT(probe->hold_back(probe->ctx, &use), 0); /* for nothing */
	reads_are(a, 1, 0, READS);
	json = wait_json(a);
	CHECK_STR(json_string_value(json_object_get(json, "why")), stall_why_words[STALL_CUT]);
	json_decref(json);
	order_is(a, 2); /* the next one is */
	CHECK(probe->hold_back(probe->ctx, &use) != 0);
	json = wait_json(a);
	CHECK_STR(json_string_value(json_object_get(json, "why")), stall_why_words[STALL_NOTHING_READ]);
	json_decref(json);
	wait_stop(a);
	CHECK_INT(unplaced(a), READS);
	wait_free(a);
	metrics_free(m);
}

/* Each pass with the order it was of; the last ones only. */
static void verdicts_are_told_by_pass(void)
{
	enum { ORDERS = VERDICTS_KEPT + 6 };
	struct metrics *m = metrics_new();
	struct wait *a = start(m);
	json_t *json, *list, *one;
	size_t i;

	for (uint32_t generation = 1; generation <= ORDERS; generation++) {
		order_is(a, generation);
		reads_are(a, generation, generation == 20 ? READS - 1 : 0, READS);
		if (generation == 20)
			reads_are(a, generation, 0, 1);
		if (generation == VERDICTS_KEPT / 2) /* no more are taken at once */
			wait_until_taken(a);
	}
	wait_stop(a);
	json = wait_json(a);
	list = json_object_get(json_array_get(json_object_get(json, "ranks"), 0), "verdicts");
	CHECK_INT((int)json_array_size(list), VERDICTS_KEPT);
	json_array_foreach(list, i, one)
	{
		bool is_judged = number(one, "order") != 20;

		CHECK_STR(json_string_value(json_object_get(one, "why")),
			  is_judged ? "judged" : "too many reads of the pass were not seen");
		CHECK(json_is_real(json_object_get(one, "removed_lower_seconds")) == is_judged);
		CHECK(json_is_real(json_object_get(one, "removed_replay_seconds")) == is_judged);
		CHECK(json_is_null(json_object_get(one, "removed_hook_seconds")));
		CHECK_INT((int)number(one, "reads"), is_judged ? READS : 2);
	}
	json_decref(json);
	wait_free(a);
	metrics_free(m);
}

static void orders_told_in_a_row_are_accounted_for_once(void)
{
	struct metrics *m = metrics_new();
	struct wait *a = start(m);

	for (uint32_t generation = 1; generation <= 20; generation++)
		order_is(a, generation);
	reads_are(a, 20, 0, READS);
	end(a, m, 1, 0);
}

static void reads_of_no_order_have_no_place(void)
{
	struct metrics *m = metrics_new();
	struct wait *a = start(m);

	reads_are(a, 7, 0, 10);
	order_is(a, 8);
	reads_are(a, 8, 0, READS);
	wait_until_taken(a);
	wait_set_order(a, NULL, 9, true);
	reads_are(a, 9, 0, 10);
	end(a, m, 1, 21);
}

/* A read of the second or first of two jobs, the only one of its time. */
static void read_is(struct wait *a, uint32_t generation, uint64_t pass, uint32_t i,
		    uint64_t opened_ns, uint64_t wait_ns)
{
	struct read_facts note = {
		.unit.v = i,
		.read_class = i % 16 ? READ_STAGED : READ_MISS,
		.traits = { .mark = i % 16 ? 0 : WAIT_CONTROL },
		.has_use = true,
		.generation = generation,
		.use = { .position = i, .pass = pass, .length = READS },
		.bytes = 100000,
		.opened_ns = opened_ns,
		.wait_ns = wait_ns,
	};

	wait_reads(a, &note, 1);
}

/* Time that was judged for one of them is not judged for the other as well. */
static void of_two_jobs_one_has_places_at_a_time(void)
{
	const uint64_t before_ns = 1000000; /* since this machine was started */
	struct metrics *m = metrics_new();
	struct wait *a = start(m);
	uint64_t now_ns;

	order_is(a, 1);
	wait_other_jobs(a, 2);
	for (uint32_t i = 0; i < READS; i++) {
		read_is(a, 1, 0, i, before_ns + i * 1000, i % 16 ? 0 : 900);
		read_is(a, 2, 0, i, before_ns + i * 1000, i % 16 ? 0 : 900);
	}
	wait_until_taken(a);
	CHECK_INT(unplaced(a), READS + 1); /* and not after a while */
	order_is(a, 2);
	now_ns = clock_now(clock_monotonic());
	for (uint32_t i = 0; i < READS / 2; i++)
		read_is(a, 2, 1, i, before_ns + i * 1000, 0);
	read_is(a, 1, 1, 0, before_ns, now_ns + NS_PER_S); /* its end is in the other's time */
	for (uint32_t i = 0; i < READS; i++)
		read_is(a, 2, 2, i, now_ns + i * 1000000ull, i % 16 ? 0 : 900000);
	end(a, m, 2, READS + 1 + READS / 2 + 1);
}

/* Orders that are told one by one beside those of another job are not taken for its own. */
static void reads_beside_another_job_may_be_told_before_their_order(void)
{
	struct metrics *m = metrics_new();
	struct wait *a = start(m);

	order_is(a, 1);
	wait_other_jobs(a, 2);
	reads_are(a, 1, 0, READS);
	reads_are(a, 3, 0, READS / 2); /* the first one's next */
	reads_are(a, 2, 0, 5);
	wait_until_taken(a);
	CHECK_INT(unplaced(a), 5 + 1);
	order_is(a, 3);
	reads_are(a, 3, READS / 2, READS);
	end(a, m, 2, 5 + 1);
}

static void last_reads_of_a_job_that_has_left_have_their_places(void)
{
	struct metrics *m = metrics_new();
	struct wait *a = start(m);
	/* However slow this is, they are not given up meanwhile. */
	uint64_t began_ns = clock_now(clock_monotonic()) + 3600 * NS_PER_S;

	order_is(a, 1);
	for (uint32_t i = 0; i < READS; i++) {
		if (i == READS / 2) {
			wait_until_taken(a);
			for (int k = 0; k < 3; k++)
				wait_set_order(a, NULL, 1, true);
			wait_until_taken(a);
		}
		read_is(a, 1, 0, i, began_ns + i * 1000000ull, i % 16 ? 0 : 900000);
	}
	end(a, m, 1, 2);
}

static void workers_of_one_job_are_not_the_next_ones(void)
{
	static const uint32_t ranks[] = { 0 };
	struct order_info info = { .n_ranks = 1, .ranks = ranks, .batch = BATCH };
	struct metrics *m = metrics_new();
	struct wait *a = start(m);

	order_is(a, 1);
	CHECK_INT((int)sampling_readers(wait_sampling(a)), 2);
	reads_are(a, 1, 0, READS - 1);
	wait_until_taken(a);
	wait_set_order(a, &info, 2, true);
	wait_until_taken(a);
	reads_are(a, 1, READS - 1, READS); /* judged when the next one is in force */
	reads_are(a, 1, 0, 1);
	wait_until_taken(a);
	wait_until_taken(a);
	CHECK_INT((int)sampling_readers(wait_sampling(a)), 0);
	wait_stop(a);
	wait_free(a);
	metrics_free(m);
}

static int judged(struct wait *a)
{
	json_t *json = wait_json(a);
	int n = (int)number(json, "passes_judged");

	json_decref(json);
	return n;
}

/* An open was lost, and the next pass goes on: the one before is judged while that lasts, and what
 * is said meanwhile is not that none is over. */
static void pass_that_lacks_a_read_is_judged_when_all_others_are_told(void)
{
	struct metrics *m = metrics_new();
	struct wait *a = start(m);
	/* So time alone ends nothing. */
	uint64_t began_ns = clock_now(clock_monotonic()) + 3600 * NS_PER_S;
	uint64_t until = clock_now(clock_monotonic()) + 120 * NS_PER_S;
	json_t *json;

	order_is(a, 1);
	for (uint32_t i = 1; i < READS; i++)
		read_is(a, 1, 0, i, began_ns + i * 1000000ull, i % 16 ? 0 : 900000);
	for (uint32_t i = 0; i < READS / 2; i++)
		read_is(a, 1, 1, i, began_ns + (READS + i) * 1000000ull, i % 16 ? 0 : 900000);
	wait_until_taken(a);
	wait_until_taken(a);
	json = wait_json(a);
	CHECK_INT((int)number(json, "passes_judged"), 0);
	CHECK_STR(json_string_value(json_object_get(json, "words")),
		  "not known: a pass over the dataset is over, and its last reads are being counted");
	json_decref(json);
	wait_settled(a, began_ns + READS * 1000000ull + NS_PER_S);
	while (judged(a) == 0 && clock_now(clock_monotonic()) < until)
		usleep(5000);
	CHECK_INT(judged(a), 1);
	wait_stop(a);
	wait_free(a);
	metrics_free(m);
}

/* Workers end with their epoch, before it is judged: then what they waited for a CPU must be known
 * still. */
static void readers_that_are_gone_were_crowded_all_the_same(void)
{
	struct stall_params params = { .n_units = 1, .crowded_share = 0.3 };
	struct machine m = { .dataset = NULL };
	pid_t gone = fork();
	struct stall *s;
	int status;

	if (gone == 0)
		_exit(0);
	CHECK_INT((int)waitpid(gone, &status, 0), (int)gone);
	CHECK_INT(stall_new(&params, &s), 0);
	for (uint64_t t = 1; t <= 5; t++) {
		CHECK(!machine_pages(&m, s));
		if (t < 5)
			machine_saw(&m, 0, (uint32_t)(t % 2 ? getpid() : gone));
		machine_feed(&m, s, t * NS_PER_S);
	}
	CHECK(m.crowds.n == 1 || s->crowd.n == 0); /* not where the kernel has no PSI */
	CHECK_INT((int)s->crowd.n, m.crowds.n ? 5 : 0);
	stall_free(s);
}

/* How crowded CPUs are is asked of the job's own readers, not of whoever read last. */
static void other_readers_say_nothing_of_the_machine(void)
{
	static const struct wait_params params = { .control_share = 1.0 / 16 };
	struct read_facts note = { .generation = 1, .opened_ns = NS_PER_S };
	struct metrics *m = metrics_new();
	const pid_t *reader;
	struct wait *a;
	struct err err = { 0 };

	CHECK_INT(wait_new(&params, READS, m, &a, &err), 0);
	order_is(a, 1);
	for (uint32_t i = 1; i <= 4; i++) {
		note.reader = 2000000000 + i;
		note.has_use = i == 2;
		note.use = (struct read_place){ .position = i, .length = READS };
		wait_reads(a, &note, 1);
	}
	wait_stop(a); /* so that there is one round */
	CHECK_INT(wait_start(a, &err), 0);
	wait_stop(a);
	reader = wait_machine(a)->reader;
	CHECK_INT(reader[0], 2000000002);
	for (uint32_t i = 1; i < CROWD_READERS; i++)
		CHECK_INT(reader[i], 0);
	wait_free(a);
	metrics_free(m);
}

/* Pages, seen after a read and before any of it; share in percent, -1: not known. */
static void what_is_seen_of_pages(void)
{
	static const struct {
		uint32_t seen[RESIDENCES], warm[RESIDENCES], n;
		enum stall_pages pages;
		int percent;
	} of[] = {
		{ { 0, 3, 0 }, { 32, 0, 0 }, 32, STALL_PAGES_KEPT, 0 },
		{ { 3, 0, 0 }, { 32, 0, 0 }, 32, STALL_PAGES_NOT_KEPT, 0 },
		{ { 0, 3, 0 }, { 16, 16, 0 }, 32, STALL_PAGES_KEPT, 50 },
		/* Nowhere was a page seen, not even right after a read: overlayfs, ZFS, direct I/O. */
		{ { 0, 0, 3 }, { 32, 0, 0 }, 32, STALL_PAGES_UNKNOWN, -1 },
		{ { 0, 0, 3 }, { 8, 8, 0 }, 16, STALL_PAGES_UNKNOWN, 50 },
		{ { 0, 0, 3 }, { 0, 0, 32 }, 32, STALL_PAGES_UNKNOWN, -1 },
		{ { 0, 3, 0 }, { 2, 2, 28 }, 32, STALL_PAGES_KEPT, -1 }, /* too few */
		{ { 0, 2, 0 }, { 1, 1, 0 }, 2, STALL_PAGES_KEPT, 50 },
		{ { 0, 0, 0 }, { 0, 0, 0 }, 0, STALL_PAGES_UNKNOWN, -1 },
	};

	for (size_t i = 0; i < ARRAY_LEN(of); i++) {
		struct wait_pages found = { .pages = STALL_PAGES_UNKNOWN,
						    .warm_share = -1 };

		source_pages_judge(of[i].seen, of[i].warm, of[i].n, &found);
		CHECK_INT((int)found.pages, (int)of[i].pages);
		CHECK_INT((int)(found.warm_share < 0 ? -1 : 100 * found.warm_share), of[i].percent);
	}
}

static void say(const char *file, unsigned us)
{
	FILE *f = fopen(file, "w");

	fprintf(f, "some avg10=0.00 avg60=0.00 avg300=0.00 total=%u\n", us);
	CHECK_INT(fclose(f), 0);
}

/* Ranks in containers of their own: the job waits while one of them does. */
static void a_job_may_be_in_several_cgroups(void)
{
	char dir[] = "/tmp/clairfs-test.XXXXXX", one[600], two[600];
	struct crowds *c = calloc(1, sizeof(*c));

	CHECK(mkdtemp(dir) != NULL);
	snprintf(one, sizeof(one), "%s/one", dir);
	snprintf(two, sizeof(two), "%s/two", dir);
	say(one, 5000000);
	say(two, 100);
	crowds_add(c, one, NS_PER_S);
	crowds_add(c, two, NS_PER_S);
	crowds_add(c, "/nowhere/cpu.pressure", NS_PER_S);
	CHECK_U64(c->n, 2);
	crowds_look(c);
	CHECK_U64(c->waited_ns, 0); /* what was before does not count */
	say(one, 5300000);
	say(two, 900100);
	crowds_look(c);
	CHECK_U64(c->waited_ns, 900 * NS_PER_MS);
	say(one, 5400000);
	crowds_look(c);
	CHECK_U64(c->waited_ns, 1000 * NS_PER_MS);
	CHECK_INT(remove(two), 0);
	say(one, 5450000);
	crowds_look(c);
	CHECK_U64(c->waited_ns, 1050 * NS_PER_MS);
	CHECK_U64(c->n, 1);
	say(two, 7);
	crowds_add(c, two, 70 * NS_PER_S); /* the job has moved there, a minute ago */
	CHECK_U64(c->n, 1);
	CHECK_STR(c->source[0].file, two);
	CHECK_INT(remove(one), 0);
	CHECK_INT(remove(two), 0);
	CHECK_INT(remove(dir), 0);
	free(c);
}

static const struct check_test tests[] = {
	{ "a_job_may_be_in_several_cgroups", a_job_may_be_in_several_cgroups },
	{ "what_is_seen_of_pages", what_is_seen_of_pages },
	{ "other_readers_say_nothing_of_the_machine", other_readers_say_nothing_of_the_machine },
	{ "readers_that_are_gone_were_crowded_all_the_same",
	  readers_that_are_gone_were_crowded_all_the_same },
	{ "pass_that_lacks_a_read_is_judged_when_all_others_are_told",
	  pass_that_lacks_a_read_is_judged_when_all_others_are_told },
	{ "last_reads_of_an_order_come_after_the_next_one",
	  last_reads_of_an_order_come_after_the_next_one },
	{ "orders_told_within_a_second_have_their_reads_each",
	  orders_told_within_a_second_have_their_reads_each },
	{ "reads_may_be_told_before_their_order", reads_may_be_told_before_their_order },
	{ "many_orders_at_once_are_survived", many_orders_at_once_are_survived },
	{ "words_know_of_an_order_at_once", words_know_of_an_order_at_once },
	{ "order_that_is_not_measured_is_said_to_be_none",
	  order_that_is_not_measured_is_said_to_be_none },
	{ "verdicts_are_told_by_pass", verdicts_are_told_by_pass },
	{ "orders_told_in_a_row_are_accounted_for_once",
	  orders_told_in_a_row_are_accounted_for_once },
	{ "reads_of_no_order_have_no_place", reads_of_no_order_have_no_place },
	{ "of_two_jobs_one_has_places_at_a_time", of_two_jobs_one_has_places_at_a_time },
	{ "reads_beside_another_job_may_be_told_before_their_order",
	  reads_beside_another_job_may_be_told_before_their_order },
	{ "last_reads_of_a_job_that_has_left_have_their_places",
	  last_reads_of_a_job_that_has_left_have_their_places },
	{ "workers_of_one_job_are_not_the_next_ones", workers_of_one_job_are_not_the_next_ones },
};

CHECK_MAIN(tests)
