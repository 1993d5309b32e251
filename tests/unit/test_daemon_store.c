/* SPDX-License-Identifier: Apache-2.0 */
/* Which store the options of a mount mean, without a mount. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "../lib/dataset_kit.h"
#include "check.h"
#include "src/daemon/mount_store.h"

#define MIB (1ull << 20)

struct made {
	struct mount_opts opts;
	struct dataset *ds;
	struct metrics *m;
	struct mount_store s;
	struct err err;
};

static void begin(struct made *t, const char *name)
{
	static const char *const files[] = { "a.bin", "b.bin", NULL };
	AUTO_FREE char *source = kit_tree(name, files);

	*t = (struct made){ .m = metrics_new() };
	CHECK_INT(conf_init(&mount_option_table, &t->opts, &t->err), 0);
	t->ds = kit_open(source, (struct kit_open){ .layout = LAYOUT_FILES, .threads = 1 });
	CHECK(t->ds && t->m);
}

static int opened(struct made *t)
{
	return mount_store_open(&t->opts, t->ds, t->m, &t->s, &t->err);
}

static void end(struct made *t)
{
	store_close(t->s.store);
	dataset_free(t->ds);
	metrics_free(t->m);
	conf_fini(&mount_option_table, &t->opts);
}

static char *new_dir(const char *name)
{
	char *dir = check_tmpfile(name);

	CHECK_INT(mkdir(dir, 0700), 0);
	return dir;
}

static void nothing_is_asked_for(void)
{
	struct store_status st;
	struct made t;

	begin(&t, "none");
	CHECK_INT(opened(&t), 0);
	CHECK(!t.s.store && !t.s.is_lost && !t.s.bytes);
	CHECK(!mount_store_look(&t.s, true, &st));
	end(&t);
}

static void a_budget_alone_is_a_private_store_of_the_job(void)
{
	AUTO_FREE char *dir = new_dir("tmp");
	struct store_status st;
	struct made t;

	begin(&t, "private");
	t.opts.store_bytes = 256 * MIB;
	CHECK_INT(unsetenv("TMPDIR"), 0);
	CHECK_INT(opened(&t), -EINVAL);
	CHECK_CONTAINS(t.err.msg, "give store_dir too, or set TMPDIR");
	CHECK_INT(setenv("TMPDIR", dir, 1), 0);
	CHECK_INT(opened(&t), 0);
	CHECK(t.s.store && !t.s.is_lost);
	CHECK_U64(t.s.bytes, 256 * MIB);
	CHECK(mount_store_look(&t.s, true, &st));
	CHECK(!st.is_persistent && !st.is_off);
	CHECK(metrics_get(t.m, METRIC_STORE_EXPECTED_BYTES) > 0);
	CHECK(metrics_get(t.m, METRIC_STORE_EXPECTED_BYTES) < MIB); /* two small files */
	end(&t);
}

static void a_directory_that_is_named_is_kept_if_told_so(void)
{
	for (int is_kept = 0; is_kept < 2; is_kept++) {
		AUTO_FREE char *dir = new_dir(is_kept ? "kept" : "emptied");
		struct store_status st;
		struct made t;

		begin(&t, is_kept ? "of_kept" : "of_emptied");
		t.opts.store_dir = strdup(dir);
		t.opts.store_bytes = 256 * MIB;
		t.opts.store_keep = is_kept;
		CHECK_INT(opened(&t), 0);
		CHECK(t.s.store);
		CHECK_U64(t.s.found_bytes, 0);
		CHECK(mount_store_look(&t.s, is_kept, &st));
		CHECK_INT(st.is_persistent, is_kept);
		end(&t);
	}
}

static void what_is_wrong_with_the_directory_is_an_error(void)
{
	struct made t;

	begin(&t, "wrong");
	t.opts.store_dir = check_write_file("no_directory", "", 0);
	t.opts.store_bytes = 256 * MIB;
	CHECK(opened(&t) < 0);
	CHECK_CONTAINS(t.err.msg, "option store_dir: ");
	CHECK(!t.s.store && !t.s.is_lost);
	CHECK_U64(metrics_get(t.m, METRIC_STORE_OFF_TIMES), 0);
	end(&t);
}

/* Whoever looks is told that there was to be one. */
static void a_store_whose_drive_failed_is_shown_as_off(void)
{
	struct mount_store s = { .is_lost = true };
	struct store_status st;

	CHECK(mount_store_look(&s, true, &st));
	CHECK(st.is_off && st.is_write_off && st.is_persistent);
	CHECK_CONTAINS(st.why, "the mount began without it");
	CHECK(mount_store_look(&s, false, &st));
	CHECK(!st.is_persistent);
}

static const struct check_test tests[] = {
	{ "nothing_is_asked_for", nothing_is_asked_for },
	{ "a_budget_alone_is_a_private_store_of_the_job",
	  a_budget_alone_is_a_private_store_of_the_job },
	{ "a_directory_that_is_named_is_kept_if_told_so",
	  a_directory_that_is_named_is_kept_if_told_so },
	{ "what_is_wrong_with_the_directory_is_an_error",
	  what_is_wrong_with_the_directory_is_an_error },
	{ "a_store_whose_drive_failed_is_shown_as_off",
	  a_store_whose_drive_failed_is_shown_as_off },
};
CHECK_MAIN(tests)
