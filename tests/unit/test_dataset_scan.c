/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a scan finds, what it leaves out and counts, and what it costs. Permissions mean nothing to
 * root, so as root those tests put the effective user aside for the time of the scan.
 */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "dataset_kit.h"

#define PATHS(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define SOMEBODY 65534

static struct dataset *open_as_somebody(const char *source)
{
	struct dataset *ds;
	bool is_root = geteuid() == 0;

	if (is_root) {
		CHECK_INT(chmod(check_tmpdir(), 0755), 0);
		CHECK_INT(seteuid(SOMEBODY), 0);
	}
	ds = kit_open(source, (struct kit_open){ .layout = LAYOUT_FILES });
	if (is_root)
		CHECK_INT(seteuid(0), 0);
	return ds;
}

static void check_refused(const char *source, int code)
{
	struct dataset_params params = { .source = source, .scan_threads = 1 };
	struct dataset *ds = NULL;
	struct err err = { 0 };

	CHECK_INT(dataset_open(&params, &ds, &err), code);
	CHECK_CONTAINS(err.msg, source);
	CHECK(!strchr(err.msg, '\n'));
	CHECK(!ds);
}

static void a_source_that_is_not_there_is_refused(void)
{
	AUTO_FREE char *missing = check_tmpfile("missing");
	AUTO_FREE char *file = check_write_file("file", "x", 1);

	check_refused(missing, -ENOENT);
	check_refused(file, -ENOTDIR);
}

static void a_source_without_permission_is_refused(void)
{
	AUTO_FREE char *root = kit_tree("locked", PATHS("a"));
	bool is_root = geteuid() == 0;

	CHECK_INT(chmod(root, 0111), 0);
	if (is_root) {
		CHECK_INT(chmod(check_tmpdir(), 0755), 0);
		CHECK_INT(seteuid(SOMEBODY), 0);
	}
	check_refused(root, -EACCES);
	if (is_root)
		CHECK_INT(seteuid(0), 0);
	CHECK_INT(chmod(root, 0755), 0);
}

static void no_threads_is_refused(void)
{
	struct dataset_params params = { .source = "/", .scan_threads = 0 };
	struct dataset *ds = NULL;
	struct err err = { 0 };

	CHECK_INT(dataset_open(&params, &ds, &err), -EINVAL);
	params.scan_threads = 65;
	CHECK_INT(dataset_open(&params, &ds, &err), -EINVAL);
}

static void an_empty_source_is_an_empty_dataset(void)
{
	AUTO_FREE char *root = kit_tree("empty", (const char *const[]){ NULL });
	struct dataset *ds = kit_open(root, (struct kit_open){ 0 });

	CHECK_INT(dataset_n_entries(ds), 0);
	CHECK_INT(dataset_n_children(ds, ENTRY_ROOT), 0);
	CHECK(kit_has(ds, ""));
	CHECK(!kit_has(ds, "a"));
	dataset_free(ds);
}

static void a_scan_costs_one_stat_per_file_and_directory(void)
{
	AUTO_FREE char *root = kit_tree("cost", PATHS("a/1", "a/2", "b/3", "b/c/4", "5"));
	struct dataset *ds = kit_open(root, (struct kit_open){ 0 });
	struct dataset_stats stats = kit_stats(ds);

	/* 5 files, 4 directories with the root, and one to find the snapshot. */
	CHECK_U64(stats.stats, 10);
	CHECK_U64(stats.dirs_scanned, 4);
	CHECK_U64(stats.dirs_reused, 0);
	CHECK(!stats.from_snapshot);
	dataset_free(ds);
}

static void a_large_flat_directory_is_complete(void)
{
	AUTO_FREE char *root = kit_tree("flat", PATHS("d/"));
	struct dataset *ds;
	char name[32];

	for (int i = 0; i < 2000; i++) {
		snprintf(name, sizeof(name), "d/%04d", i);
		kit_file(root, name, (size_t)i);
	}
	ds = kit_open(root, (struct kit_open){ .threads = 8, .layout = LAYOUT_FILES });
	CHECK_INT(dataset_n_samples(ds), 2000);
	for (uint32_t i = 0; i < 2000; i++)
		CHECK_U64(dataset_size(ds, (struct entry_id){ i }), i);
	dataset_free(ds);
}

static void symlinks_show_their_targets(void)
{
	AUTO_FREE char *root = kit_tree("links", PATHS("d/1", "d/e/2"));
	struct dataset *ds;
	struct stat st;

	kit_file(root, "d/1", 77);
	kit_link(root, "to_file", "d/1");
	kit_link(root, "to_dir", "d/e");
	ds = kit_open(root, (struct kit_open){ .layout = LAYOUT_FILES });
	dataset_stat(ds, kit_find(ds, "to_file"), &st);
	CHECK(S_ISREG(st.st_mode));
	CHECK_INT(st.st_size, 77);
	dataset_stat(ds, kit_find(ds, "to_dir"), &st);
	CHECK(S_ISDIR(st.st_mode));
	CHECK(kit_has(ds, "to_dir/2"));
	CHECK_U64(kit_stats(ds).skipped, 0);
	dataset_free(ds);
}

static void loops_are_cut_and_counted(void)
{
	AUTO_FREE char *root = kit_tree("loops", PATHS("a/b/1", "c/2"));
	struct dataset *ds;

	kit_link(root, "a/b/up", "..");
	kit_link(root, "a/top", "../../loops");
	kit_link(root, "c/self", ".");
	kit_link(root, "c/eloop", "eloop");
	/* No loops: the same directory twice, side by side. */
	kit_link(root, "again", "c");
	ds = kit_open(root, (struct kit_open){ .layout = LAYOUT_FILES });
	CHECK(!kit_has(ds, "a/b/up"));
	CHECK(!kit_has(ds, "a/top"));
	CHECK(!kit_has(ds, "c/self"));
	CHECK(!kit_has(ds, "again/self"));
	CHECK(kit_has(ds, "again/2"));
	/* Three loops and one that never ends, two of them seen twice. */
	CHECK_U64(kit_stats(ds).skipped, 6);
	dataset_free(ds);
}

static void dangling_links_and_sockets_are_left_out_and_counted(void)
{
	AUTO_FREE char *root = kit_tree("odd", PATHS("file"));
	AUTO_FREE char *fifo = kit_path(root, "fifo");
	AUTO_FREE char *log = NULL;
	struct dataset *ds;
	int saved;

	CHECK_INT(mkfifo(fifo, 0600), 0);
	kit_link(root, "dangling", "nowhere");
	kit_link(root, "to_fifo", "fifo");
	saved = kit_log_begin();
	ds = kit_open(root, (struct kit_open){ .layout = LAYOUT_FILES });
	log = kit_log_end(saved);
	CHECK_INT(dataset_n_entries(ds), 1);
	CHECK_U64(kit_stats(ds).skipped, 3);
	CHECK_CONTAINS(log, "./dangling: dangling symlink");
	CHECK_CONTAINS(log, "./fifo: neither a file nor a directory");
	dataset_free(ds);
}

static void only_the_first_skipped_names_are_logged(void)
{
	AUTO_FREE char *root = kit_tree("many", (const char *const[]){ NULL });
	AUTO_FREE char *log = NULL;
	struct dataset *ds;
	char name[16];
	int saved, lines = 0;

	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "%d", i);
		kit_link(root, name, "nowhere");
	}
	saved = kit_log_begin();
	ds = kit_open(root, (struct kit_open){ 0 });
	log = kit_log_end(saved);
	for (const char *at = log; (at = strchr(at, '\n')); at++)
		lines++;
	CHECK_INT(lines, 8);
	CHECK_U64(kit_stats(ds).skipped, 100);
	dataset_free(ds);
}

static void a_directory_without_permission_is_listed_empty(void)
{
	AUTO_FREE char *root = kit_tree("closed", PATHS("a/1", "b/2"));
	AUTO_FREE char *closed = kit_path(root, "a");
	AUTO_FREE char *log = NULL;
	struct dataset *ds;
	struct stat st;
	int saved;

	CHECK_INT(chmod(closed, 0), 0);
	saved = kit_log_begin();
	ds = open_as_somebody(root);
	log = kit_log_end(saved);
	CHECK_INT(chmod(closed, 0755), 0);
	CHECK_INT(dataset_kind(ds, kit_find(ds, "a")), ENTRY_KIND_DIR);
	CHECK_INT(dataset_n_children(ds, kit_find(ds, "a")), 0);
	dataset_stat(ds, kit_find(ds, "a"), &st);
	CHECK_INT(st.st_mode & 07777, 0);
	CHECK(kit_has(ds, "b/2"));
	CHECK_U64(kit_stats(ds).skipped, 1);
	CHECK_CONTAINS(log, "./a: Permission denied");
	dataset_free(ds);
}

static void a_file_without_permission_has_attributes(void)
{
	AUTO_FREE char *root = kit_tree("unreadable", PATHS("x"));
	AUTO_FREE char *file = kit_path(root, "x");
	struct dataset *ds;
	struct stat st;

	kit_file(root, "x", 123);
	CHECK_INT(chmod(file, 0), 0);
	ds = open_as_somebody(root);
	dataset_stat(ds, kit_find(ds, "x"), &st);
	CHECK_INT(st.st_mode, S_IFREG);
	CHECK_INT(st.st_size, 123);
	CHECK_U64(kit_stats(ds).skipped, 0);
	dataset_free(ds);
}

static void names_that_cannot_be_stated_are_left_out(void)
{
	AUTO_FREE char *root = kit_tree("no_search", PATHS("a/1", "a/sub/2"));
	AUTO_FREE char *dir = kit_path(root, "a");
	struct dataset *ds;

	/* May be listed, but nothing in it may be looked at. */
	CHECK_INT(chmod(dir, 0444), 0);
	ds = open_as_somebody(root);
	CHECK_INT(chmod(dir, 0755), 0);
	CHECK(!kit_has(ds, "a/1"));
	CHECK(!kit_has(ds, "a/sub"));
	CHECK_U64(kit_stats(ds).skipped, 2);
	dataset_free(ds);
}

static void long_and_odd_names_are_kept(void)
{
	char name[256], odd[] = "two words\nand\ttab\x01\xff\xfe";
	AUTO_FREE char *root = kit_tree("names", (const char *const[]){ NULL });
	struct dataset *ds;
	size_t len;

	memset(name, 'n', 255);
	name[255] = '\0';
	kit_file(root, name, 1);
	kit_file(root, odd, 2);
	ds = kit_open(root, (struct kit_open){ .layout = LAYOUT_FILES });
	CHECK(kit_has(ds, name));
	CHECK_BYTES(dataset_name(ds, kit_find(ds, odd), &len), odd, strlen(odd));
	CHECK_U64(len, strlen(odd));
	dataset_name(ds, kit_find(ds, name), &len);
	CHECK_U64(len, 255);
	dataset_free(ds);
}

/* Goes down a chain of directories with names of 200 bytes, making it; leaves a file in each. */
static void make_chain(const char *root, int depth)
{
	char name[201];
	AUTO_FD int fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);

	memset(name, 'd', 200);
	name[200] = '\0';
	for (int i = 0; i < depth; i++) {
		int next, file;

		CHECK_INT(mkdirat(fd, name, 0755), 0);
		next = openat(fd, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		CHECK(next >= 0);
		close(fd);
		fd = next;
		file = openat(fd, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		CHECK(file >= 0);
		close(file);
	}
}

static void paths_that_no_call_takes_are_left_out(void)
{
	AUTO_FREE char *root = kit_tree("chain", (const char *const[]){ NULL });
	AUTO_FREE char *command = NULL;
	struct dataset *ds;
	char path[PATH_MAX];

	make_chain(root, 25);
	ds = kit_open(root, (struct kit_open){ .layout = LAYOUT_FILES });
	/* 20 directories make 4019 bytes, one more does not fit into 4095. */
	CHECK_INT(dataset_n_samples(ds), 20);
	CHECK_INT(dataset_n_entries(ds), 40);
	CHECK_U64(kit_stats(ds).skipped, 1);
	CHECK_INT(dataset_path(ds, (struct entry_id){ 0 }, path, sizeof(path)), 0);
	CHECK_INT(dataset_path(ds, (struct entry_id){ 0 }, path, 10), -ENAMETOOLONG);
	dataset_free(ds);
	CHECK(asprintf(&command, "rm -rf '%s'", root) > 0);
	CHECK_INT(system(command), 0);
}

static void deep_trees_need_no_stack(void)
{
	AUTO_FREE char *root = kit_tree("deep", (const char *const[]){ NULL });
	AUTO_FREE char *command = NULL;
	AUTO_FD int fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct dataset *ds;

	for (int i = 0; i < 2000; i++) {
		int next;

		CHECK_INT(mkdirat(fd, "d", 0755), 0);
		next = openat(fd, "d", O_PATH | O_DIRECTORY | O_CLOEXEC);
		CHECK(next >= 0);
		close(fd);
		fd = next;
	}
	close(openat(fd, "x.jpg", O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
	ds = kit_open(root, (struct kit_open){ 0 });
	CHECK_INT(dataset_layout(ds), LAYOUT_IMAGEFOLDER);
	CHECK_INT(dataset_n_entries(ds), 2001);
	CHECK_INT(dataset_n_samples(ds), 1);
	dataset_free(ds);
	CHECK(asprintf(&command, "rm -rf '%s'", root) > 0);
	CHECK_INT(system(command), 0);
}

static void count_progress(void *ctx, uint64_t entries)
{
	*(uint64_t *)ctx = entries;
}

static void progress_ends_with_all_names(void)
{
	AUTO_FREE char *root = kit_tree("progress", PATHS("a/1", "a/2", "b/3"));
	uint64_t seen = 0;
	struct dataset_params params = {
		.source = root, .scan_threads = 2, .progress = count_progress, .progress_ctx = &seen
	};
	struct dataset *ds = NULL;
	struct err err = { 0 };

	CHECK_INT(dataset_open(&params, &ds, &err), 0);
	CHECK_U64(seen, 5);
	dataset_free(ds);
}

static const struct check_test tests[] = {
	{ "a_source_that_is_not_there_is_refused", a_source_that_is_not_there_is_refused },
	{ "a_source_without_permission_is_refused", a_source_without_permission_is_refused },
	{ "no_threads_is_refused", no_threads_is_refused },
	{ "an_empty_source_is_an_empty_dataset", an_empty_source_is_an_empty_dataset },
	{ "a_scan_costs_one_stat_per_file_and_directory",
	  a_scan_costs_one_stat_per_file_and_directory },
	{ "a_large_flat_directory_is_complete", a_large_flat_directory_is_complete },
	{ "symlinks_show_their_targets", symlinks_show_their_targets },
	{ "loops_are_cut_and_counted", loops_are_cut_and_counted },
	{ "dangling_links_and_sockets_are_left_out_and_counted",
	  dangling_links_and_sockets_are_left_out_and_counted },
	{ "only_the_first_skipped_names_are_logged", only_the_first_skipped_names_are_logged },
	{ "a_directory_without_permission_is_listed_empty",
	  a_directory_without_permission_is_listed_empty },
	{ "a_file_without_permission_has_attributes", a_file_without_permission_has_attributes },
	{ "names_that_cannot_be_stated_are_left_out", names_that_cannot_be_stated_are_left_out },
	{ "long_and_odd_names_are_kept", long_and_odd_names_are_kept },
	{ "paths_that_no_call_takes_are_left_out", paths_that_no_call_takes_are_left_out },
	{ "deep_trees_need_no_stack", deep_trees_need_no_stack },
	{ "progress_ends_with_all_names", progress_ends_with_all_names },
};
CHECK_MAIN(tests)
