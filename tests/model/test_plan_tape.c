/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever job is simulated, a fresh plan that is told what its tape says decides the same; and a
 * tape that somebody has changed is refused or decides something else, without ever bringing the
 * replay down by what it says of samples, jobs and sizes. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "../lib/tape_replay.h"
#include "check.h"
#include "clairfs/sim.h"
#include "clairfs/tape.h"

/* Records a simulated job; false: its options contradict each other. */
static bool simulate(const char *options, const char *path)
{
	struct sim_params params = { 0 };
	struct sim_result result = { 0 };
	struct sim_setup *setup = NULL;
	struct err err = { 0 };
	int rc;

	CHECK_INT(conf_init(&sim_option_table, &params, &err), 0);
	CHECK_INT(conf_set_list(&sim_option_table, &params, options, &err), 0);
	CHECK_INT(tape_open(path, &params.tape, &err), 0);
	rc = sim_setup_new(&params, NULL, &setup, &err);
	if (rc == 0)
		rc = sim_run(setup, "clairfs", NULL, &result, &err);
	CHECK(rc == 0 || rc == -EINVAL);
	sim_result_fini(&result);
	sim_setup_free(setup);
	tape_close(params.tape);
	conf_fini(&sim_option_table, &params);
	return rc == 0;
}

static void check_same(const char *path, struct tape_counts *counts)
{
	struct err err = { 0 };
	int rc = tape_replay(path, counts, &err);

	if (rc < 0)
		printf("# %s\n", err.msg);
	CHECK_INT(rc, 0);
}

static void simulated_jobs_replay(void)
{
	uint64_t seed = check_seed(), done = 0;

	for (int i = 0; i < 24; i++) {
		AUTO_FREE char *path = check_tmpfile("tape"), *options = NULL;
		struct tape_counts counts = { 0 };
		bool is_cut = i % 4 == 3; /* into units */

		CHECK(asprintf(&options,
			       "samples=%" PRIu64 ",sample_bytes=%" PRIu64
			       ",sample_bytes_stdev=%" PRIu64 ",epochs=3,jobs=%" PRIu64
			       ",seed=%" PRIu64 ",cache_fraction=0.%" PRIu64
			       ",store_fraction=0.%" PRIu64 ",batch=%" PRIu64 ",workers=%" PRIu64
			       ",source_mbps=200,compute_ms=%" PRIu64 ",inflight=16",
			       200 + check_rand_below(&seed, is_cut ? 60 : 800),
			       (is_cut ? 4u << 20 : 4096) +
				       check_rand_below(&seed, is_cut ? 30u << 20 : 60000),
			       check_rand_below(&seed, 2) * (is_cut ? 9000000 : 3000), 1 + check_rand_below(&seed, 3),
			       check_rand_below(&seed, 1000), 1 + check_rand_below(&seed, 9),
			       check_rand_below(&seed, 6), 1 + check_rand_below(&seed, 16),
			       1 + check_rand_below(&seed, 4), check_rand_below(&seed, 50)) > 0);
		if (simulate(options, path)) {
			printf("# %s\n", options);
			check_same(path, &counts);
			CHECK(counts.plans == 1 && counts.events > 600 && counts.actions > 0);
			done++;
		}
		CHECK_INT(unlink(path), 0);
	}
	CHECK(done > 12);
}

static char *whole(const char *path, size_t *ret_size)
{
	AUTO_FILE FILE *file = fopen(path, "re");
	char *text = calloc(1, 1 << 20);

	CHECK(file && text);
	*ret_size = fread(text, 1, (1 << 20) - 1, file);
	CHECK(*ret_size > 1000 && *ret_size < (1 << 20) - 1);
	return text;
}

/* As in a mount: what decides there decides here. */
static void a_simulated_job_that_is_over_leaves_the_plan(void)
{
	AUTO_FREE char *path = check_tmpfile("tape"), *text = NULL;
	uint32_t left = 0;
	size_t size;

	CHECK(simulate("samples=200,sample_bytes=100K,batch=8,workers=2,epochs=2,jobs=3", path));
	text = whole(path, &size);
	for (const char *at = text; (at = strstr(at, "\nleave 0 ")); at++)
		left++;
	CHECK_U64(left, 2); /* the last one stays */
	CHECK_INT(unlink(path), 0);
}

/* A tape that ends anywhere is that of a daemon that was killed. */
static void a_tape_may_end_anywhere(void)
{
	AUTO_FREE char *path = check_tmpfile("tape"), *text = NULL;
	uint64_t seed = check_seed();
	size_t size;

	CHECK(simulate("samples=40,sample_bytes=8K,batch=4,workers=1,epochs=1,compute_ms=1", path));
	text = whole(path, &size);
	for (int i = 0; i < 50; i++) {
		size_t cut = sizeof(TAPE_MAGIC) + check_rand_below(&seed, size - sizeof(TAPE_MAGIC));
		AUTO_FREE char *part = check_write_file("part", text, cut);
		struct tape_counts counts;

		check_same(part, &counts);
	}
}

#define PLAN                                                                                       \
	"plan 0 4 arena_bytes=65536 spare_bytes=0 stage_bytes=0 "                        \
	"store_bytes=0 pin_rule=0 inflight_min=1 inflight_max=1 source_bytes_per_s=0 span=0\n"

/* Lines with other numbers, in other places: what they say is checked before a plan hears of it. */
static void lines_that_make_no_sense_are_refused(void)
{
	static const char *const lines[] = {
		"event 0 5 opened 4 0 0 0 0 0",    /* there are four samples */
		"event 0 5 opened x 0 0 0 0 0",    /* no number */
		"event 0 5 opened 1 0 0 0 0",      /* too few */
		"event 0 5 moved 1 0 0 0 0 0",     /* no such event */
		"event 1 5 opened 1 0 0 0 0 0",    /* no such plan */
		"event 9999 5 opened 1 0 0 0 0 0", /* nor ever one */
		"step 0 4 9\nstep 0 3 9",          /* time goes back */
		"epoch 0 5 0 0 0 0 2 0 1 4",       /* samples that there are not */
		"epoch 0 5 0 0 0 0 99999999 0 1",  /* and too few of them */
		"epoch 0 5 0 0 0 0 -",             /* no epoch, and no error */
		"epoch 0 5 0 0 8 0 1 0 0",         /* of no job */
		PLAN, /* a second time */
		"sizes 0 4294967295 1",
		"hello 0",
		"",
	};

	for (size_t i = 0; i <= ARRAY_LEN(lines); i++) {
		AUTO_FREE char *text = NULL, *path = NULL;
		struct tape_counts counts;
		struct err err = { 0 };
		int rc;

		CHECK(asprintf(&text,
			       TAPE_MAGIC "\nsizes 0 4 4096\norder 0 4 0 1 0 1 0 0 0 0 0 1 0 0 0 0 0\n"
					  PLAN "%s\n",
			       i ? lines[i - 1] : "step 0 4 18446744073709551615") > 0);
		path = check_write_file("bad", text, strlen(text));
		printf("# line %zu\n", i);
		rc = tape_replay(path, &counts, &err);
		CHECK(i ? rc < 0 : rc == 0);
	}
}

static const struct check_test tests[] = {
	{ "simulated_jobs_replay", simulated_jobs_replay },
	{ "a_simulated_job_that_is_over_leaves_the_plan",
	  a_simulated_job_that_is_over_leaves_the_plan },
	{ "a_tape_may_end_anywhere", a_tape_may_end_anywhere },
	{ "lines_that_make_no_sense_are_refused", lines_that_make_no_sense_are_refused },
};
CHECK_MAIN(tests)
