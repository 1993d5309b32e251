/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lookups, paths and listings of an open dataset, and attributes while another thread changes them
 * (this is the one the thread sanitizer looks at).
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#include "clairfs/base/thr.h"
#include "dataset_kit.h"

#define PATHS(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void lookup_finds_each_child_and_nothing_else(void)
{
	AUTO_FREE char *root = kit_tree("lookup", PATHS("a", "ab", "abc/x", "b", "\xff"));
	struct dataset *ds = kit_open(root, (struct kit_open){ .layout = LAYOUT_FILES });
	struct entry_id abc = dataset_lookup(ds, ENTRY_ROOT, "abc", 3);

	CHECK_INT(dataset_kind(ds, abc), ENTRY_KIND_DIR);
	CHECK(entry_eq(dataset_lookup(ds, abc, "x", 1), kit_find(ds, "abc/x")));
	CHECK(entry_eq(dataset_parent(ds, kit_find(ds, "abc/x")), abc));
	CHECK(entry_eq(dataset_parent(ds, abc), ENTRY_ROOT));
	CHECK(entry_eq(dataset_lookup(ds, ENTRY_ROOT, "abcd", 4), ENTRY_NONE));
	CHECK(entry_eq(dataset_lookup(ds, ENTRY_ROOT, "", 0), ENTRY_NONE));
	CHECK(entry_eq(dataset_lookup(ds, ENTRY_ROOT, "abc", 2), kit_find(ds, "ab")));
	CHECK(entry_eq(dataset_lookup(ds, ENTRY_ROOT, "A", 1), ENTRY_NONE));
	CHECK(entry_eq(dataset_lookup(ds, kit_find(ds, "a"), "x", 1), ENTRY_NONE));
	CHECK_INT(dataset_n_children(ds, kit_find(ds, "a")), 0);
	dataset_free(ds);
}

static void children_are_sorted_by_bytes(void)
{
	AUTO_FREE char *root =
		kit_tree("sorted", PATHS("b", "\xee\x80\x80", "\x80", "a-", "a/x", "B"));
	struct dataset *ds = kit_open(root, (struct kit_open){ .layout = LAYOUT_FILES });
	const char *const want[] = { "B", "a", "a-", "b", "\x80", "\xee\x80\x80" };
	size_t len;

	CHECK_INT(dataset_n_children(ds, ENTRY_ROOT), 6);
	for (uint32_t i = 0; i < 6; i++) {
		const char *name = dataset_name(ds, dataset_child(ds, ENTRY_ROOT, i), &len);

		CHECK_U64(len, strlen(want[i]));
		CHECK_BYTES(name, want[i], len);
	}
	dataset_free(ds);
}

static void resolve_passes_over_dots_and_slashes(void)
{
	AUTO_FREE char *root = kit_tree("resolve", PATHS("a/b/c"));
	struct dataset *ds = kit_open(root, (struct kit_open){ .layout = LAYOUT_FILES });
	struct entry_id c = kit_find(ds, "a/b/c");

	CHECK(!entry_eq(c, ENTRY_NONE));
	CHECK(entry_eq(kit_find(ds, "/a//b/./c"), c));
	CHECK(entry_eq(kit_find(ds, "./a/b/c/"), c));
	CHECK(entry_eq(kit_find(ds, ""), ENTRY_ROOT));
	CHECK(entry_eq(kit_find(ds, "."), ENTRY_ROOT));
	CHECK(entry_eq(kit_find(ds, "a/../a/b/c"), ENTRY_NONE));
	CHECK(entry_eq(kit_find(ds, "a/b/c/d"), ENTRY_NONE));
	dataset_free(ds);
}

static void paths_fit_exactly_or_not_at_all(void)
{
	AUTO_FREE char *root = kit_tree("paths", PATHS("ab/cd"));
	struct dataset *ds = kit_open(root, (struct kit_open){ .layout = LAYOUT_FILES });
	char path[8];

	CHECK_INT(dataset_path(ds, kit_find(ds, "ab/cd"), path, 6), 0);
	CHECK_STR(path, "ab/cd");
	CHECK_INT(dataset_path(ds, kit_find(ds, "ab/cd"), path, 5), -ENAMETOOLONG);
	CHECK_INT(dataset_path(ds, ENTRY_ROOT, path, 2), 0);
	CHECK_STR(path, ".");
	CHECK_INT(dataset_path(ds, ENTRY_ROOT, path, 1), -ENAMETOOLONG);
	dataset_free(ds);
}

static void stat_says_what_the_source_says(void)
{
	AUTO_FREE char *root = kit_tree("stat", PATHS("d/e/", "d/f/", "d/x"));
	AUTO_FREE char *file = kit_path(root, "d/x");
	struct timespec times[] = { { .tv_sec = 5 }, { .tv_sec = -2, .tv_nsec = 999999999 } };
	struct dataset *ds;
	struct stat st;

	kit_file(root, "d/x", 1025);
	CHECK_INT(chmod(file, 0640), 0);
	CHECK_INT(utimensat(AT_FDCWD, file, times, 0), 0);
	ds = kit_open(root, (struct kit_open){ .layout = LAYOUT_FILES });
	dataset_stat(ds, kit_find(ds, "d/x"), &st);
	CHECK_INT(st.st_mode, S_IFREG | 0640);
	CHECK_INT(st.st_nlink, 1);
	CHECK_INT(st.st_ino, 0);
	CHECK_INT(st.st_size, 1025);
	CHECK_INT(st.st_blocks, 3);
	CHECK_INT(st.st_blksize, 4096);
	CHECK_INT(st.st_uid, geteuid());
	CHECK_INT(st.st_mtim.tv_sec, -2);
	CHECK_INT(st.st_mtim.tv_nsec, 999999999);
	CHECK_INT(st.st_atim.tv_sec, -2);
	dataset_stat(ds, kit_find(ds, "d"), &st);
	CHECK(S_ISDIR(st.st_mode));
	CHECK_INT(st.st_nlink, 4);
	dataset_stat(ds, ENTRY_ROOT, &st);
	CHECK_INT(st.st_nlink, 3);
	dataset_free(ds);
}

static void times_beyond_64_bits_of_ns_do_not_trap(void)
{
	struct stat st = { .st_mtim = { .tv_sec = INT64_MAX, .tv_nsec = 1 },
			   .st_ctim = { .tv_sec = INT64_MIN } };
	struct file_identity a = file_identity_of(&st), b = file_identity_of(&st);

	CHECK(file_identity_eq(&a, &b));
	st.st_mtim.tv_nsec = 2;
	b = file_identity_of(&st);
	CHECK(!file_identity_eq(&a, &b));
}

static int64_t shown(struct dataset *ds, int64_t sec)
{
	struct stat st = { .st_mode = S_IFREG, .st_mtim = { sec, 7 }, .st_ctim = { sec, 999999999 } };
	struct stat got;

	dataset_update(ds, kit_find(ds, "x"), &st);
	dataset_stat(ds, kit_find(ds, "x"), &got);
	CHECK_INT(got.st_mtim.tv_nsec, 7);
	CHECK_INT(got.st_ctim.tv_nsec, 999999999);
	CHECK_INT(got.st_ctim.tv_sec, got.st_mtim.tv_sec);
	return got.st_mtim.tv_sec;
}

/* The years 1901 to 2486 are shown as they are, others as the nearest of these. */
static void times_are_shown_right_or_as_the_nearest(void)
{
	static const int64_t right[] = { -2147483648, -631152000, -1,          0,
					 1,           4294967296, 9223372035,  9223372036,
					 9223372037,  10413792000, 15032385535, 16299260424 };
	AUTO_FREE char *root = kit_tree("times", PATHS("x"));
	struct dataset *ds = kit_open(root, (struct kit_open){ .layout = LAYOUT_FILES });

	for (size_t i = 0; i < ARRAY_LEN(right); i++)
		CHECK_INT(shown(ds, right[i]), right[i]);
	CHECK_INT(shown(ds, 16299260425), 16299260424);
	CHECK_INT(shown(ds, INT64_MAX), 16299260424);
	CHECK_INT(shown(ds, -2147483649), -2147483648);
	CHECK_INT(shown(ds, INT64_MIN), -2147483648);
	dataset_free(ds);
}

static void update_replaces_attributes_but_not_the_kind(void)
{
	AUTO_FREE char *root = kit_tree("update", PATHS("x", "y"));
	struct dataset *ds = kit_open(root, (struct kit_open){ .layout = LAYOUT_FILES });
	struct entry_id x = kit_find(ds, "x"), y = kit_find(ds, "y");
	struct stat st = { .st_mode = S_IFDIR | 0600,
			   .st_size = 4321,
			   .st_ino = 99,
			   .st_uid = 7,
			   .st_gid = 8,
			   .st_mtim = { .tv_sec = 1, .tv_nsec = 2 },
			   .st_ctim = { .tv_sec = 3, .tv_nsec = 4 } };
	struct stat got;
	struct file_identity id;

	dataset_update(ds, x, &st);
	dataset_identity(ds, x, &id);
	CHECK_U64(id.ino, 99);
	CHECK_U64(id.size, 4321);
	CHECK_INT(id.mtime_ns, 1000000002);
	CHECK_INT(id.ctime_ns, 3000000004);
	dataset_stat(ds, x, &got);
	CHECK_INT(got.st_mode, S_IFREG | 0600);
	CHECK_INT(got.st_uid, 7);
	CHECK_INT(got.st_gid, 8);
	CHECK_U64(dataset_size(ds, y), 1);
	CHECK_U64(dataset_sample_bytes(ds), 2);
	dataset_free(ds);
}

#define UPDATES 20000
#define IDENTITY_UPDATES 2000000
#define NEW_LEAST 200 /* versions that the reader meets: else it read before it began, or after */

struct updating {
	struct dataset *ds;
	struct entry_id entry;
	int updates; /* at least; in the end, how many there were */
	atomic_int n_new;
	atomic_bool is_over;
};

/* Each version has one number in all its fields, so a mixture of two versions shows. */
static void *update_often(void *arg)
{
	struct updating *u = arg;
	int i = 0;

	while (i < u->updates || atomic_load(&u->n_new) < NEW_LEAST) {
		if (i++ >= u->updates)
			sched_yield();
		struct stat st = { .st_mode = S_IFREG | 0644,
				   .st_size = i,
				   .st_ino = (ino_t)i,
				   .st_mtim = { .tv_nsec = i },
				   .st_ctim = { .tv_nsec = i } };

		dataset_update(u->ds, u->entry, &st);
	}
	u->updates = i;
	atomic_store(&u->is_over, true);
	return NULL;
}

static void readers_see_one_version_at_a_time(void)
{
	AUTO_FREE char *root = kit_tree("threads", PATHS("x"));
	struct updating u = { .ds = kit_open(root, (struct kit_open){ .layout = LAYOUT_FILES }),
			      .updates = UPDATES };
	struct thr thr = { 0 };
	struct err err = { 0 };
	struct file_identity id;
	uint64_t last = 0;
	struct stat st = { .st_mode = S_IFREG };

	u.entry = kit_find(u.ds, "x");
	dataset_update(u.ds, u.entry, &st);
	CHECK_INT(thr_start(&thr, "updater", update_often, &u, &err), 0);
	while (!atomic_load(&u.is_over)) {
		dataset_identity(u.ds, u.entry, &id);
		CHECK(id.ino == id.size && id.mtime_ns == (int64_t)id.size &&
		      id.ctime_ns == id.mtime_ns);
		CHECK(id.size >= last);
		atomic_fetch_add(&u.n_new, id.size > last);
		last = id.size;
		dataset_stat(u.ds, u.entry, &st);
		CHECK(st.st_size == st.st_mtim.tv_nsec && (uint64_t)st.st_size >= last);
		CHECK(kit_has(u.ds, "x"));
	}
	thr_join(&thr);
	CHECK_U64(dataset_size(u.ds, u.entry), (uint64_t)u.updates);
	dataset_free(u.ds);
}

/* Identities are read without the lock. Nothing else is done here, so that every read meets some
 * change. */
static void identity_is_never_of_two_versions(void)
{
	AUTO_FREE char *root = kit_tree("torn", PATHS("x"));
	struct updating u = { .ds = kit_open(root, (struct kit_open){ .layout = LAYOUT_FILES }),
			      .updates = IDENTITY_UPDATES };
	struct stat st = { .st_mode = S_IFREG };
	struct thr thr = { 0 };
	struct err err = { 0 };
	struct file_identity id;
	uint64_t n_torn = 0, last = 0;

	u.entry = kit_find(u.ds, "x");
	dataset_update(u.ds, u.entry, &st);
	CHECK_INT(thr_start(&thr, "updater", update_often, &u, &err), 0);
	while (!atomic_load(&u.is_over)) {
		dataset_identity(u.ds, u.entry, &id);
		n_torn += id.ino != id.size || id.mtime_ns != (int64_t)id.size ||
			  id.ctime_ns != id.mtime_ns;
		if (id.size != last)
			atomic_fetch_add_explicit(&u.n_new, 1, memory_order_relaxed);
		last = id.size;
	}
	thr_join(&thr);
	CHECK_U64(n_torn, 0);
	dataset_free(u.ds);
}

static const struct check_test tests[] = {
	{ "lookup_finds_each_child_and_nothing_else", lookup_finds_each_child_and_nothing_else },
	{ "children_are_sorted_by_bytes", children_are_sorted_by_bytes },
	{ "resolve_passes_over_dots_and_slashes", resolve_passes_over_dots_and_slashes },
	{ "paths_fit_exactly_or_not_at_all", paths_fit_exactly_or_not_at_all },
	{ "stat_says_what_the_source_says", stat_says_what_the_source_says },
	{ "times_beyond_64_bits_of_ns_do_not_trap", times_beyond_64_bits_of_ns_do_not_trap },
	{ "times_are_shown_right_or_as_the_nearest", times_are_shown_right_or_as_the_nearest },
	{ "update_replaces_attributes_but_not_the_kind",
	  update_replaces_attributes_but_not_the_kind },
	{ "readers_see_one_version_at_a_time", readers_see_one_version_at_a_time },
	{ "identity_is_never_of_two_versions", identity_is_never_of_two_versions },
};
CHECK_MAIN(tests)
