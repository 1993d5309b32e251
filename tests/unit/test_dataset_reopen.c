/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening again with a snapshot: what is believed, what is looked at again, and that nothing about
 * the snapshot or its directory can make opening fail. Changes of a directory are made visible
 * without waiting: settle() goes on until its timestamps differ.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "clairfs/base/thr.h"
#include "dataset_kit.h"

#define PATHS(...) ((const char *const[]){ __VA_ARGS__, NULL })

static struct stat stamp(const char *root, const char *name)
{
	AUTO_FREE char *path = kit_path(root, name);
	struct stat st;

	CHECK_INT(stat(path, &st), 0);
	return st;
}

/* Makes sure that a directory that changed shows it, however coarse the clock of the filesystem. */
static void settle(const char *root, const char *name, struct stat before)
{
	AUTO_FREE char *path = kit_path(root, name);

	for (;;) {
		struct stat now = stamp(root, name);

		if (now.st_mtim.tv_sec != before.st_mtim.tv_sec ||
		    now.st_mtim.tv_nsec != before.st_mtim.tv_nsec)
			return;
		CHECK_INT(utimensat(AT_FDCWD, path, NULL, 0), 0);
	}
}

/* Opens for the first time and throws the result away. */
static void make_snapshot(const char *root, const char *dir)
{
	dataset_free(kit_open(root, (struct kit_open){ .snapshot_dir = dir }));
}

static void check_cost(const struct dataset *ds, uint64_t scanned, uint64_t reused, uint64_t stats)
{
	struct dataset_stats got = kit_stats(ds);

	CHECK(got.from_snapshot);
	CHECK_U64(got.dirs_scanned, scanned);
	CHECK_U64(got.dirs_reused, reused);
	CHECK_U64(got.stats, stats);
}

static void nothing_changed_costs_one_stat_per_directory(void)
{
	AUTO_FREE char *root = kit_tree("same", PATHS("a/1", "a/2", "b/3", "b/c/4"));
	AUTO_FREE char *dir = check_tmpfile("same_snapshots");
	struct dataset *first = kit_open(root, (struct kit_open){ .snapshot_dir = dir });
	struct dataset *ds = kit_open(root, (struct kit_open){ .snapshot_dir = dir });
	AUTO_FREE char *samples = kit_samples(ds), *before = kit_samples(first);

	CHECK(!kit_stats(first).from_snapshot);
	check_cost(ds, 0, 4, 5);
	CHECK_STR(samples, before);
	CHECK_U64(dataset_sample_bytes(ds), dataset_sample_bytes(first));
	dataset_free(first);
	dataset_free(ds);
}

static void fresh_directories_are_scanned_again(void)
{
	AUTO_FREE char *root = kit_tree("fresh", PATHS("a/1", "b/2"));
	AUTO_FREE char *dir = check_tmpfile("fresh_snapshots");
	struct kit_open how = { .snapshot_dir = dir, .is_fresh = true };
	struct dataset *ds;

	dataset_free(kit_open(root, how));
	/* The clock is ahead now, but the snapshot remembers that they were fresh when scanned. */
	ds = kit_open(root, (struct kit_open){ .snapshot_dir = dir });
	CHECK_U64(kit_stats(ds).dirs_scanned, 3);
	CHECK_U64(kit_stats(ds).dirs_reused, 0);
	dataset_free(ds);
	ds = kit_open(root, (struct kit_open){ .snapshot_dir = dir });
	CHECK_U64(kit_stats(ds).dirs_scanned, 0);
	dataset_free(ds);
}

static void only_the_changed_directory_is_scanned(void)
{
	AUTO_FREE char *root = kit_tree("changed", PATHS("a/1", "b/2", "b/c/3", "d/4"));
	AUTO_FREE char *dir = check_tmpfile("changed_snapshots");
	struct stat before = stamp(root, "b");
	struct dataset *ds;

	make_snapshot(root, dir);
	kit_file(root, "b/new", 5);
	settle(root, "b", before);
	ds = kit_open(root, (struct kit_open){ .snapshot_dir = dir });
	/* 5 directories and one, then b again and its two files. */
	check_cost(ds, 1, 4, 9);
	CHECK_U64(dataset_size(ds, kit_find(ds, "b/new")), 5);
	CHECK(kit_has(ds, "b/c/3"));
	dataset_free(ds);
	ds = kit_open(root, (struct kit_open){ .snapshot_dir = dir });
	check_cost(ds, 0, 5, 6);
	CHECK(kit_has(ds, "b/new"));
	dataset_free(ds);
}

static void new_subdirectories_are_scanned(void)
{
	AUTO_FREE char *root = kit_tree("sub", PATHS("a/1", "b/2"));
	AUTO_FREE char *dir = check_tmpfile("sub_snapshots");
	struct stat before = stamp(root, ".");
	struct dataset *ds;

	make_snapshot(root, dir);
	kit_file(root, "x/y/3", 1);
	kit_remove(root, "a/1");
	kit_remove(root, "a");
	settle(root, ".", before);
	ds = kit_open(root, (struct kit_open){ .snapshot_dir = dir });
	CHECK(kit_has(ds, "x/y/3"));
	CHECK(!kit_has(ds, "a"));
	CHECK(!kit_has(ds, "a/1"));
	CHECK_U64(kit_stats(ds).dirs_scanned, 3);
	CHECK_U64(kit_stats(ds).dirs_reused, 1);
	dataset_free(ds);
}

static void a_change_of_mode_shows(void)
{
	AUTO_FREE char *root = kit_tree("mode", PATHS("a/1"));
	AUTO_FREE char *dir = check_tmpfile("mode_snapshots");
	AUTO_FREE char *path = kit_path(root, "a");
	struct stat before = stamp(root, "a"), st;
	struct dataset *ds;

	make_snapshot(root, dir);
	do {
		CHECK_INT(chmod(path, 0711), 0);
		st = stamp(root, "a");
	} while (st.st_ctim.tv_sec == before.st_ctim.tv_sec &&
		 st.st_ctim.tv_nsec == before.st_ctim.tv_nsec);
	ds = kit_open(root, (struct kit_open){ .snapshot_dir = dir });
	dataset_stat(ds, kit_find(ds, "a"), &st);
	CHECK_INT(st.st_mode & 07777, 0711);
	dataset_free(ds);
}

static void a_symlinked_directory_is_looked_at(void)
{
	AUTO_FREE char *outside = kit_tree("out_dir", PATHS("1"));
	AUTO_FREE char *root = kit_tree("link_dir", PATHS("a/x"));
	AUTO_FREE char *dir = check_tmpfile("link_dir_snapshots");
	struct stat before = stamp(outside, ".");
	struct dataset *ds;

	kit_link(root, "a/link", outside);
	make_snapshot(root, dir);
	kit_file(outside, "2", 1);
	settle(outside, ".", before);
	ds = kit_open(root, (struct kit_open){ .snapshot_dir = dir });
	CHECK(kit_has(ds, "a/link/2"));
	dataset_free(ds);
	kit_remove(outside, "1");
	kit_remove(outside, "2");
	CHECK_INT(rmdir(outside), 0);
	ds = kit_open(root, (struct kit_open){ .snapshot_dir = dir });
	CHECK(!kit_has(ds, "a/link"));
	CHECK(kit_has(ds, "a/x"));
	CHECK_U64(kit_stats(ds).skipped, 1);
	dataset_free(ds);
}

/* The snapshot's directory and link are fresh, so nothing is stat'ed before the scan. */
static void a_symlink_that_leads_to_a_file_now_is_a_file(void)
{
	AUTO_FREE char *outside = kit_tree("out_any", PATHS("target/1"));
	AUTO_FREE char *root = kit_tree("link_any", PATHS("a/x"));
	AUTO_FREE char *dir = check_tmpfile("link_any_snapshots");
	AUTO_FREE char *target = kit_path(outside, "target");
	struct dataset *ds;

	kit_link(root, "a/link", target);
	make_snapshot(root, dir);
	/* a is believed; what a/link leads to becomes fresh by this scan. */
	kit_file(outside, "target/2", 1);
	dataset_free(kit_open(root, (struct kit_open){ .snapshot_dir = dir, .is_fresh = true }));
	kit_remove(outside, "target/1");
	kit_remove(outside, "target/2");
	kit_remove(outside, "target");
	kit_file(outside, "target", 9);
	ds = kit_open(root, (struct kit_open){ .snapshot_dir = dir });
	CHECK_INT(dataset_kind(ds, kit_find(ds, "a/link")), ENTRY_KIND_FILE);
	CHECK_U64(dataset_size(ds, kit_find(ds, "a/link")), 9);
	dataset_free(ds);
}

static void a_symlinked_file_is_looked_at(void)
{
	AUTO_FREE char *outside = kit_tree("out_file", PATHS("1"));
	AUTO_FREE char *root = kit_tree("link_file", PATHS("a/x"));
	AUTO_FREE char *dir = check_tmpfile("link_file_snapshots");
	AUTO_FREE char *target = kit_path(outside, "1");
	struct dataset *ds;

	kit_link(root, "a/link", target);
	make_snapshot(root, dir);
	kit_file(outside, "1", 1000);
	ds = kit_open(root, (struct kit_open){ .snapshot_dir = dir });
	CHECK_U64(dataset_size(ds, kit_find(ds, "a/link")), 1000);
	/* Two directories, one symlink, and one. */
	check_cost(ds, 0, 2, 4);
	dataset_free(ds);
	kit_remove(outside, "1");
	ds = kit_open(root, (struct kit_open){ .snapshot_dir = dir });
	CHECK(!kit_has(ds, "a/link"));
	CHECK_U64(kit_stats(ds).skipped, 1);
	dataset_free(ds);
	/* What was dangling may be there again without any change of a. */
	kit_file(outside, "1", 3);
	ds = kit_open(root, (struct kit_open){ .snapshot_dir = dir });
	CHECK_U64(dataset_size(ds, kit_find(ds, "a/link")), 3);
	dataset_free(ds);
}

static void a_loop_that_ends_is_followed(void)
{
	AUTO_FREE char *outside = kit_tree("out_loop", PATHS("real/1"));
	AUTO_FREE char *root = kit_tree("was_loop", PATHS("a/x"));
	AUTO_FREE char *dir = check_tmpfile("was_loop_snapshots");
	AUTO_FREE char *step = kit_path(outside, "step");
	struct dataset *ds;

	kit_link(outside, "step", root);
	kit_link(root, "a/link", step);
	make_snapshot(root, dir);
	kit_remove(outside, "step");
	kit_link(outside, "step", "real");
	ds = kit_open(root, (struct kit_open){ .snapshot_dir = dir });
	CHECK(kit_has(ds, "a/link/1"));
	CHECK_U64(kit_stats(ds).skipped, 0);
	dataset_free(ds);
	/* And the other way round. */
	kit_remove(outside, "step");
	kit_link(outside, "step", root);
	ds = kit_open(root, (struct kit_open){ .snapshot_dir = dir });
	CHECK(!kit_has(ds, "a/link"));
	CHECK_U64(kit_stats(ds).skipped, 1);
	dataset_free(ds);
}

static void what_was_left_out_is_counted_again(void)
{
	AUTO_FREE char *root = kit_tree("counted", PATHS("a/1"));
	AUTO_FREE char *dir = check_tmpfile("counted_snapshots");
	AUTO_FREE char *fifo = kit_path(root, "a/fifo");
	struct dataset *ds;

	CHECK_INT(mkfifo(fifo, 0600), 0);
	make_snapshot(root, dir);
	ds = kit_open(root, (struct kit_open){ .snapshot_dir = dir });
	CHECK_U64(kit_stats(ds).skipped, 1);
	check_cost(ds, 0, 2, 3);
	dataset_free(ds);
}

static void another_layout_numbers_anew_without_scanning(void)
{
	AUTO_FREE char *root = kit_tree("layouts", PATHS("a/1.jpg", "a/x.txt", "top"));
	AUTO_FREE char *dir = check_tmpfile("layouts_snapshots");
	AUTO_FREE char *text = NULL;
	struct dataset *ds;

	make_snapshot(root, dir);
	ds = kit_open(root, (struct kit_open){ .snapshot_dir = dir, .layout = LAYOUT_IMAGEFOLDER });
	text = kit_samples(ds);
	CHECK_STR(text, "a/1.jpg\n");
	check_cost(ds, 0, 2, 3);
	dataset_free(ds);
	/* auto is what the rule says, not what the snapshot happens to be numbered by. */
	ds = kit_open(root, (struct kit_open){ .snapshot_dir = dir, .layout = LAYOUT_AUTO });
	CHECK_STR(dataset_layout_names[dataset_layout(ds)], "files");
	CHECK_INT(dataset_n_samples(ds), 3);
	dataset_free(ds);
}

static void two_sources_have_two_snapshots(void)
{
	AUTO_FREE char *one = kit_tree("one", PATHS("a"));
	AUTO_FREE char *two = kit_tree("two", PATHS("b"));
	AUTO_FREE char *dir = check_tmpfile("two_snapshots");
	struct dataset *ds;

	make_snapshot(one, dir);
	make_snapshot(two, dir);
	ds = kit_open(one, (struct kit_open){ .snapshot_dir = dir });
	CHECK(kit_stats(ds).from_snapshot);
	CHECK(kit_has(ds, "a"));
	dataset_free(ds);
}

/* The one snapshot in dir, heap. */
static char *find_snapshot(const char *dir)
{
	AUTO_FREE char *command = NULL;
	char *line = NULL;
	size_t size = 0;
	FILE *f;

	CHECK(asprintf(&command, "ls '%s'/*", dir) > 0);
	f = popen(command, "r");
	CHECK(f);
	CHECK(getline(&line, &size, f) > 0);
	line[strcspn(line, "\n")] = '\0';
	CHECK(getc(f) == EOF);
	pclose(f);
	return line;
}

static void snapshot_is_private(void)
{
	AUTO_FREE char *root = kit_tree("private", PATHS("a"));
	AUTO_FREE char *dir = check_tmpfile("p/q/r");
	AUTO_FREE char *file = NULL;
	struct stat st;

	make_snapshot(root, dir);
	CHECK_INT(stat(dir, &st), 0);
	CHECK_INT(st.st_mode & 07777, 0700);
	file = find_snapshot(dir);
	CHECK_INT(stat(file, &st), 0);
	CHECK_INT(st.st_mode & 07777, 0600);
}

struct opener {
	const char *root, *dir;
};

static void *open_often(void *arg)
{
	struct opener *o = arg;

	for (int i = 0; i < 20; i++) {
		/* With the real clock everything is fresh, so each one writes. */
		struct dataset *ds = kit_open(o->root, (struct kit_open){ .snapshot_dir = o->dir,
									  .is_fresh = true });

		CHECK(ds && dataset_n_entries(ds) == 4);
		dataset_free(ds);
	}
	return NULL;
}

static void mounts_that_start_at_once_leave_one_good_snapshot(void)
{
	AUTO_FREE char *root = kit_tree("at_once", PATHS("a/1", "b/2"));
	AUTO_FREE char *dir = check_tmpfile("at_once_snapshots");
	AUTO_FREE char *file = NULL, *log = NULL;
	struct opener o = { .root = root, .dir = dir };
	struct thr threads[4] = { 0 };
	struct err err = { 0 };
	struct dataset *ds;
	int saved = kit_log_begin();

	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		CHECK_INT(thr_start(&threads[i], "opener", open_often, &o, &err), 0);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		thr_join(&threads[i]);
	log = kit_log_end(saved);
	CHECK_STR(log, "");
	file = find_snapshot(dir);
	ds = kit_open(root, (struct kit_open){ .snapshot_dir = dir });
	CHECK(kit_stats(ds).from_snapshot);
	dataset_free(ds);
}

static void check_warns_and_works(const char *root, const char *dir, const char *warning)
{
	AUTO_FREE char *log = NULL;
	struct dataset *ds;
	int saved = kit_log_begin();

	ds = kit_open(root, (struct kit_open){ .snapshot_dir = dir, .layout = LAYOUT_FILES });
	log = kit_log_end(saved);
	CHECK_CONTAINS(log, warning);
	CHECK(!kit_stats(ds).from_snapshot);
	CHECK_INT(dataset_n_samples(ds), 1);
	dataset_free(ds);
}

static void an_open_snapshot_directory_is_not_used(void)
{
	AUTO_FREE char *root = kit_tree("open", PATHS("a"));
	AUTO_FREE char *dir = kit_tree("open_snapshots", (const char *const[]){ NULL });

	check_warns_and_works(root, dir, "must belong to the user and have mode 0700");
	check_warns_and_works(root, dir, "must belong to the user and have mode 0700");
}

static void a_symlink_as_snapshot_directory_is_not_used(void)
{
	AUTO_FREE char *root = kit_tree("linked", PATHS("a"));
	AUTO_FREE char *dir = kit_path(check_tmpdir(), "linked_real");
	AUTO_FREE char *link = kit_path(check_tmpdir(), "linked_dir");

	make_snapshot(root, dir);
	kit_link(check_tmpdir(), "linked_dir", "linked_real");
	check_warns_and_works(root, link, "no snapshot of the dataset is kept");
}

static void a_foreign_owner_of_the_snapshot_directory_is_refused(void)
{
	AUTO_FREE char *root = kit_tree("foreign", PATHS("a"));
	AUTO_FREE char *dir = check_tmpfile("foreign_snapshots");

	/* Others than root cannot give a directory away: / is nobody's but root's. */
	if (geteuid() != 0) {
		check_warns_and_works(root, "/", "no snapshot of the dataset is kept");
		return;
	}
	make_snapshot(root, dir);
	CHECK_INT(chown(dir, 65534, 65534), 0);
	check_warns_and_works(root, dir, "must belong to the user and have mode 0700");
}

static void a_snapshot_that_is_a_symlink_or_open_to_others_is_not_used(void)
{
	AUTO_FREE char *root = kit_tree("file_checks", PATHS("a"));
	AUTO_FREE char *dir = check_tmpfile("file_checks_snapshots");
	AUTO_FREE char *away = check_tmpfile("file_checks_away");
	AUTO_FREE char *file = NULL;
	struct dataset *ds;

	make_snapshot(root, dir);
	file = find_snapshot(dir);
	CHECK_INT(chmod(file, 0622), 0);
	check_warns_and_works(root, dir, "the source is scanned");
	CHECK_INT(rename(file, away), 0);
	CHECK_INT(symlink(away, file), 0);
	check_warns_and_works(root, dir, "the source is scanned");
	/* The second one replaced the symlink by a good snapshot. */
	ds = kit_open(root, (struct kit_open){ .snapshot_dir = dir });
	CHECK(kit_stats(ds).from_snapshot);
	dataset_free(ds);
}

static void a_snapshot_of_another_source_is_not_used(void)
{
	AUTO_FREE char *one = kit_tree("mine", PATHS("a"));
	AUTO_FREE char *two = kit_tree("theirs", PATHS("b"));
	AUTO_FREE char *dir_one = check_tmpfile("mine_snapshots");
	AUTO_FREE char *dir_two = check_tmpfile("theirs_snapshots");
	AUTO_FREE char *file_one = NULL, *file_two = NULL;

	make_snapshot(one, dir_one);
	make_snapshot(two, dir_two);
	file_one = find_snapshot(dir_one);
	file_two = find_snapshot(dir_two);
	CHECK_INT(rename(file_two, file_one), 0);
	check_warns_and_works(one, dir_one, "the source is scanned");
}

static void a_snapshot_directory_that_cannot_be_made_is_a_warning(void)
{
	AUTO_FREE char *root = kit_tree("nowhere", PATHS("a"));
	AUTO_FREE char *file = check_write_file("no_directory", "x", 1);
	AUTO_FREE char *dir = kit_path(file, "snapshots");

	check_warns_and_works(root, dir, "no snapshot of the dataset is kept");
}

static const struct check_test tests[] = {
	{ "nothing_changed_costs_one_stat_per_directory",
	  nothing_changed_costs_one_stat_per_directory },
	{ "fresh_directories_are_scanned_again", fresh_directories_are_scanned_again },
	{ "only_the_changed_directory_is_scanned", only_the_changed_directory_is_scanned },
	{ "new_subdirectories_are_scanned", new_subdirectories_are_scanned },
	{ "a_change_of_mode_shows", a_change_of_mode_shows },
	{ "a_symlinked_directory_is_looked_at", a_symlinked_directory_is_looked_at },
	{ "a_symlink_that_leads_to_a_file_now_is_a_file",
	  a_symlink_that_leads_to_a_file_now_is_a_file },
	{ "a_symlinked_file_is_looked_at", a_symlinked_file_is_looked_at },
	{ "a_loop_that_ends_is_followed", a_loop_that_ends_is_followed },
	{ "what_was_left_out_is_counted_again", what_was_left_out_is_counted_again },
	{ "another_layout_numbers_anew_without_scanning",
	  another_layout_numbers_anew_without_scanning },
	{ "two_sources_have_two_snapshots", two_sources_have_two_snapshots },
	{ "snapshot_is_private", snapshot_is_private },
	{ "mounts_that_start_at_once_leave_one_good_snapshot",
	  mounts_that_start_at_once_leave_one_good_snapshot },
	{ "an_open_snapshot_directory_is_not_used", an_open_snapshot_directory_is_not_used },
	{ "a_symlink_as_snapshot_directory_is_not_used",
	  a_symlink_as_snapshot_directory_is_not_used },
	{ "a_foreign_owner_of_the_snapshot_directory_is_refused",
	  a_foreign_owner_of_the_snapshot_directory_is_refused },
	{ "a_snapshot_that_is_a_symlink_or_open_to_others_is_not_used",
	  a_snapshot_that_is_a_symlink_or_open_to_others_is_not_used },
	{ "a_snapshot_of_another_source_is_not_used", a_snapshot_of_another_source_is_not_used },
	{ "a_snapshot_directory_that_cannot_be_made_is_a_warning",
	  a_snapshot_directory_that_cannot_be_made_is_a_warning },
};
CHECK_MAIN(tests)
