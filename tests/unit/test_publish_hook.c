/* SPDX-License-Identifier: Apache-2.0 */
/* What training loops tell is judged record by record: what may be wrong or made up is left out,
 * and the rest is counted for its rank. With a clock of our own. */
#include <string.h>

#include "check.h"
#include "clairfs/publish/hook.h"

#define S 1000000000ull

struct manual {
	struct clock clock;
	uint64_t now;
};

static uint64_t now_of(struct clock *clock)
{
	return ((struct manual *)clock)->now;
}

/* The mount began at 100 s, and it is 200 s. */
static void begin(struct hook *h, struct manual *clock)
{
	*clock = (struct manual){ { now_of }, 100 * S };
	hook_init(h, &clock->clock);
	clock->now = 200 * S;
}

/* Asked at `t`, had it a second later, computed for a second. */
static struct clairfs_step_record step_at(uint32_t rank, uint64_t step, uint64_t t)
{
	return (struct clairfs_step_record){ .rank = rank,
					     .step = step,
					     .t_request = t,
					     .t_ready = t + S,
					     .t_next = t + 2 * S };
}

static uint32_t tell(struct hook *h, uint32_t uid, uint64_t run, struct clairfs_step_record step)
{
	struct clairfs_step_record taken[CLAIRFS_STEPS];
	struct clairfs_steps *steps = calloc(1, sizeof(*steps));
	uint32_t n;

	CHECK(steps);
	*steps = (struct clairfs_steps){ .world = 1024, .count = 1, .run = run, .job = "job-7" };
	steps->step[0] = step;
	n = hook_take(h, uid, steps, taken);
	if (n)
		CHECK_BYTES(&taken[0], &step, sizeof(step));
	free(steps);
	return n;
}

static json_int_t of_rank(struct hook *h, size_t i, const char *name)
{
	json_t *root = hook_json(h);
	json_t *value = json_object_get(json_array_get(json_object_get(root, "ranks"), i), name);
	json_int_t n = json_is_integer(value) ? json_integer_value(value) : -1;

	json_decref(root);
	return n;
}

static void each_record_is_judged_by_itself(void)
{
	static const struct {
		const char *what;
		uint64_t t_request, t_ready, t_next, run;
		uint32_t rank, flags, taken;
	} rows[] = {
		{ "right", 150, 151, 152, 120, 0, 0, 1 },
		{ "another rank", 150, 151, 152, 120, 1, 0, 1 },
		{ "overlaps the last one", 151, 152, 153, 120, 0, 0, 0 },
		{ "lies within the last one", 151, 152, 152, 120, 0, CLAIRFS_STEP_INNER, 1 },
		{ "goes on", 152, 153, 154, 120, 0, 0, 1 },
		{ "before the mount", 99, 151, 152, 120, 2, 0, 0 },
		{ "in the future", 199, 200, 201, 120, 2, 0, 0 },
		{ "ready before it was asked for", 150, 149, 152, 120, 2, 0, 0 },
		{ "a rank beyond the world", 150, 151, 152, 120, 1024, 0, 0 },
		{ "a process of the future", 160, 161, 162, 201, 2, 0, 0 },
		{ "a process that began before", 160, 161, 162, 119, 0, 0, 0 },
		{ "another process took it over", 160, 161, 162, 130, 0, 0, 1 },
		{ "the one before sends still", 170, 171, 172, 120, 0, 0, 0 },
		{ "waited longer than there was time", 100, 199, 200, 140, 1, 0, 0 },
	};
	struct manual clock;
	struct hook h;

	begin(&h, &clock);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct clairfs_step_record step = { .rank = rows[i].rank,
						    .flags = rows[i].flags,
						    .step = i,
						    .t_request = rows[i].t_request * S,
						    .t_ready = rows[i].t_ready * S,
						    .t_next = rows[i].t_next * S };

		printf("# %s\n", rows[i].what);
		CHECK_INT(tell(&h, 5, rows[i].run * S, step), rows[i].taken);
	}
	CHECK_INT(of_rank(&h, 0, "steps"), 4);
	CHECK_INT(of_rank(&h, 0, "restarts"), 1);
	CHECK_INT(of_rank(&h, 0, "world"), 1024);
	CHECK_INT(of_rank(&h, 1, "steps"), 1);
	CHECK_INT(of_rank(&h, 2, "steps"), 0);
	hook_fini(&h);
}

/* Memory is bounded, and no user takes the room of another one. */
static void a_user_has_so_many_ranks_and_no_more(void)
{
	struct manual clock;
	struct hook h;

	begin(&h, &clock);
	for (uint32_t i = 0; i < HOOK_MAX_RANKS; i++)
		CHECK_INT(tell(&h, 1000, 120 * S, step_at(i, 0, 150 * S)), 1);
	CHECK_INT(tell(&h, 1000, 120 * S, step_at(HOOK_MAX_RANKS, 0, 150 * S)), 0);
	CHECK_INT(tell(&h, 0, 120 * S, step_at(HOOK_MAX_RANKS, 0, 150 * S)), 1);
	CHECK_INT(tell(&h, 1000, 120 * S, step_at(0, 1, 160 * S)), 1);
	hook_fini(&h);
}

static void what_was_told_is_in_the_report(void)
{
	struct manual clock;
	char job[CLAIRFS_JOB_NAME];
	struct hook h;
	json_t *ranks, *log;

	begin(&h, &clock);
	hook_job(&h, job);
	CHECK_STR(job, "");
	for (uint32_t i = 0; i < 3; i++)
		CHECK_INT(tell(&h, 5, 120 * S, step_at(3, i, (150 + 2 * i) * S)), 1);
	hook_job(&h, job);
	CHECK_STR(job, "job-7");
	ranks = hook_report_json(&h);
	CHECK_INT(json_array_size(ranks), 1);
	CHECK(json_real_value(json_object_get(json_array_get(ranks, 0), "wait_seconds")) == 3);
	log = json_object_get(json_array_get(ranks, 0), "log");
	CHECK(json_is_object(log));
	json_decref(ranks);
	hook_fini(&h);
}

static const struct check_test tests[] = {
	{ "each_record_is_judged_by_itself", each_record_is_judged_by_itself },
	{ "a_user_has_so_many_ranks_and_no_more", a_user_has_so_many_ranks_and_no_more },
	{ "what_was_told_is_in_the_report", what_was_told_is_in_the_report },
};
CHECK_MAIN(tests)
