/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files below .clairfs: hidden but reachable, each open a new text of exactly the size that
 * stat says, one text per inode, and a bound on how many are kept: the newest, so that nobody who
 * looks one up is ever refused.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "fake_cache.h"
#include "fs_kit.h"

struct counter {
	_Atomic unsigned n;
};

/* "1\n", "2\n22\n", "3\n33\n333\n"...: every rendering is longer than the one before. */
static int render_count(void *ctx, struct buf_writer *out)
{
	struct counter *c = ctx;
	unsigned n = atomic_fetch_add(&c->n, 1) + 1;

	buf_printf(out, "rendering %u ", n);
	for (unsigned i = 0; i < n; i++)
		buf_printf(out, "x");
	return 0;
}

static int render_large(void *ctx, struct buf_writer *out)
{
	for (int i = 0; i < 30000; i++)
		buf_printf(out, "%d,", i);
	return 0;
}

static int render_nothing(void *ctx, struct buf_writer *out)
{
	return 0;
}

static int render_failure(void *ctx, struct buf_writer *out)
{
	buf_printf(out, "half of it");
	return -EAGAIN;
}

static struct counter count;
static const struct fs_vfile vfiles[] = {
	{ "count", render_count, &count },
	{ "large", render_large, NULL },
	{ "nothing", render_nothing, NULL },
	{ "failure", render_failure, NULL },
	{ NULL, NULL, NULL },
};
static const struct kit_options options = { .vfiles = vfiles };

static unsigned print_count(struct kit *k, const char *path)
{
	struct kit_child child;
	char line[512];
	unsigned n;

	kit_child_start(&child, "print", path, NULL);
	kit_child_line(k, &child, line, sizeof(line));
	CHECK_INT(kit_child_wait(k, &child), 0);
	CHECK_INT(sscanf(line, "rendering %u ", &n), 1);
	/* Nothing cut off, nothing of another rendering: as many x as it says. */
	CHECK_U64(strlen(strrchr(line, ' ') + 1), n);
	CHECK_U64(strspn(strrchr(line, ' ') + 1, "x"), n);
	return n;
}

static void use_vfiles(struct kit *k)
{
	AUTO_FREE char *path = kit_path(k, ".clairfs/count");
	AUTO_FREE char *large = kit_path(k, ".clairfs/large");
	AUTO_FREE char *nothing = kit_path(k, ".clairfs/nothing");
	AUTO_FREE char *failure = kit_path(k, ".clairfs/failure");
	AUTO_FREE char *missing = kit_path(k, ".clairfs/missing");
	AUTO_FREE char *list = NULL;
	unsigned last = 0;

	for (int i = 0; i < 20; i++) {
		unsigned n = print_count(k, path);

		CHECK(n > last);
		last = n;
	}
	CHECK_INT(kit_child(k, "print", nothing, NULL), 0);
	CHECK_INT(kit_child(k, "print", failure, NULL), EAGAIN);
	CHECK_INT(kit_child(k, "print", missing, NULL), ENOENT);
	/* More than one READ, and the whole of it. */
	list = check_write_file("list", large, strlen(large));
	CHECK_INT(kit_child(k, "read-list", list, NULL), 0);
}

static void test_every_open_has_a_new_text_of_exact_size(void)
{
	static struct kit k;

	kit_init(&k);
	kit_add_samples(&k, 1, 2, 10);
	kit_mount(&k, &options);
	use_vfiles(&k);
	CHECK_INT(kit_child(&k, "compare", k.source, k.mountpoint), 0); /* not listed */
	atomic_store(&k.cache->may_refuse_open, true);
	use_vfiles(&k);
	CHECK_INT(kit_child(&k, "compare", k.source, k.mountpoint), 0);
	CHECK_U64(kit_counter(&k, METRIC_UPCALL_OPEN) > 0, true);
	kit_fini(&k);
}

static void test_the_directory_lists_them(void)
{
	AUTO_FREE char *dir = NULL;
	struct kit_child child;
	char line[256];
	static struct kit k;

	kit_init(&k);
	kit_add_samples(&k, 1, 2, 10);
	kit_mount(&k, &options);
	dir = kit_path(&k, ".clairfs");
	for (int i = 0; i < 2; i++) {
		kit_child_start(&child, "list", dir, NULL);
		kit_child_line(&k, &child, line, sizeof(line));
		CHECK_INT(kit_child_wait(&k, &child), 0);
		CHECK_STR(line, ". .. count failure large nothing ");
	}
	kit_fini(&k);
}

static void test_the_newest_are_kept_however_many_are_held(void)
{
	AUTO_FREE char *path = NULL;
	struct kit_child child;
	int opened, first_errno, readable_from;
	char line[64];
	static struct kit k;

	kit_init(&k);
	kit_add_samples(&k, 1, 2, 10);
	kit_mount(&k, &options);
	path = kit_path(&k, ".clairfs/large");
	for (int i = 0; i < 2; i++) {
		kit_child_start(&child, "hoard", path, NULL);
		kit_child_line(&k, &child, line, sizeof(line));
		CHECK_INT(kit_child_wait(&k, &child), 0);
		CHECK_INT(sscanf(line, "%d %d %d", &opened, &first_errno, &readable_from), 3);
		CHECK_INT(opened, 200);
		CHECK_INT(first_errno, ESTALE);
		CHECK(readable_from >= 200 - 64 && readable_from <= 200 - 8);
		CHECK_INT(kit_child(&k, "print", path, NULL), 0);
	}
	kit_fini(&k);
}

static void test_ours_wins_over_one_in_the_source(void)
{
	AUTO_FREE char *path = NULL;
	AUTO_FREE char *hidden = NULL;
	AUTO_FREE char *seen = NULL;
	struct fs_status status;
	static struct kit k;

	kit_init(&k);
	kit_add_samples(&k, 1, 2, 10);
	kit_add_file(&k, ".clairfs/deep/theirs", 10);
	kit_mount(&k, &options);
	path = kit_path(&k, ".clairfs/count");
	hidden = kit_path(&k, ".clairfs/deep/theirs");
	seen = kit_path(&k, "d0/s1");
	CHECK(print_count(&k, path) > 0);
	CHECK_INT(kit_child(&k, "print", hidden, NULL), ENOENT);
	CHECK_INT(kit_child(&k, "print", seen, NULL), 0);
	/* It cannot be opened, so it need not be watched. */
	fs_get_status(k.fs, &status);
	CHECK(status.is_watch_complete);
	kit_fini(&k);
}

static const struct check_test tests[] = {
	{ "every_open_has_a_new_text_of_exact_size", test_every_open_has_a_new_text_of_exact_size },
	{ "the_directory_lists_them", test_the_directory_lists_them },
	{ "the_newest_are_kept_however_many_are_held",
	  test_the_newest_are_kept_however_many_are_held },
	{ "ours_wins_over_one_in_the_source", test_ours_wins_over_one_in_the_source },
};

KIT_MAIN(tests)
