/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a mount begins and ends: what is refused before mounting and in which words, what the mount
 * table shows, the ways to end (from outside, by fs_stop, with files open, with readers waiting)
 * and that nothing hangs or is left behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "fake_cache.h"
#include "fs_child_mount.h"
#include "fs_kit.h"

/* A push of one byte. */
static int store_x(struct kit *k)
{
	struct stage_file file = { .entry = kit_entry(k, "d0/s1") };

	return fs_stage_ops()->store(k->fs, file, 0, "x", 1);
}

/* The line of the mount table for this mountpoint, heap; NULL when it is not mounted. */
static char *mount_line(const char *mountpoint)
{
	AUTO_FILE FILE *f = fopen("/proc/self/mountinfo", "re");
	AUTO_FREE char *line = NULL;
	size_t room = 0;

	while (f && getline(&line, &room, f) > 0)
		if (strstr(line, mountpoint))
			return TAKE(line);
	return NULL;
}

static bool is_mounted(const char *mountpoint)
{
	AUTO_FREE char *line = mount_line(mountpoint);

	return line != NULL;
}

static void test_the_mount_table_shows_it(void)
{
	static const struct kit_options options = { .shown_source = "/a, b\\c=d/e f" };
	AUTO_FREE char *line = NULL;
	struct fs_status status;
	static struct kit k;

	kit_init(&k);
	kit_add_samples(&k, 1, 2, 10);
	kit_mount(&k, &options);
	line = mount_line(k.mountpoint);
	CHECK(line != NULL);
	CHECK_CONTAINS(line, " fuse.clairfs ");
	CHECK_CONTAINS(line, " /a,\\040b\\134c=d/e\\040f ");
	CHECK_CONTAINS(line, "ro,nosuid,nodev");
	CHECK_CONTAINS(line, "default_permissions");
	CHECK(strstr(line, "allow_other") == NULL);
	fs_get_status(k.fs, &status);
	CHECK_INT(status.proto_major, 7);
	CHECK(status.proto_minor >= 23);
	kit_fini(&k);
}

static void check_refused(struct kit *k, const char *mountpoint, int rc, const char *words)
{
	struct fs_params params = { .dataset = k->dataset,
				    .cache = k->cache,
				    .metrics = k->metrics,
				    .clock = clock_monotonic(),
				    .mountpoint = mountpoint,
				    .source = "source" };
	struct err err = { .code = 0 };
	struct fs *fs = NULL;

	CHECK_INT(fs_new(&params, &fs, &err), rc);
	CHECK_CONTAINS(err.msg, words);
	CHECK(strchr(err.msg, '\n') == NULL);
	CHECK(fs == NULL);
}

static void test_bad_mountpoints_are_refused(void)
{
	AUTO_FREE char *missing = NULL;
	AUTO_FREE char *file = NULL;
	AUTO_FREE char *full = NULL;
	static struct kit k;

	kit_init(&k);
	kit_add_samples(&k, 1, 2, 10);
	kit_mount(&k, NULL);
	missing = check_tmpfile("missing");
	file = check_write_file("file", "", 0);
	full = check_tmpfile(".");
	check_refused(&k, missing, -ENOENT, "does not exist");
	check_refused(&k, file, -ENOTDIR, "is not a directory");
	check_refused(&k, full, -ENOTEMPTY, "is not empty");
	check_refused(&k, k.mountpoint, -EBUSY, "is mounted already");
	check_refused(&k, "relative", -EINVAL, "is not an absolute path");
	kit_fini(&k);
}

static void test_a_dead_mount_is_named(void)
{
	AUTO_FREE char *dead = check_tmpfile("dead");
	struct kit_child child;
	char line[64];
	static struct kit k;

	kit_init(&k);
	kit_add_samples(&k, 1, 2, 10);
	kit_mount(&k, NULL);
	CHECK_INT(mkdir(dead, 0755), 0);
	/* A FUSE server that dies without unmounting. */
	kit_child_start(&child, "serve", dead, NULL);
	kit_child_line(&k, &child, line, sizeof(line));
	CHECK_STR(line, "mounted");
	kill(child.pid, SIGKILL);
	kit_child_wait(&k, &child);
	check_refused(&k, dead, -ENOTCONN, "is a dead mount: run clairfs umount");
	CHECK_INT(umount2(dead, MNT_DETACH), 0);
	kit_fini(&k);
}

static void *wait_main(void *fs)
{
	fs_wait(fs);
	return NULL;
}

static void test_unmount_from_outside_ends_the_wait(void)
{
	struct thr thr;
	static struct kit k;

	kit_init(&k);
	kit_add_samples(&k, 2, 50, 10);
	kit_mount(&k, NULL);
	CHECK_INT(thr_start(&thr, "wait", wait_main, k.fs, NULL), 0);
	CHECK_INT(kit_child(&k, "umount", k.mountpoint, NULL), 0);
	thr_join(&thr);
	CHECK(!is_mounted(k.mountpoint));
	CHECK(store_x(&k) < 0);
	kit_fini(&k);
}

static void test_stop_ends_the_wait_and_leaves_the_mount_to_unmount(void)
{
	AUTO_FREE char *file = NULL;
	struct thr thr;
	static struct kit k;

	kit_init(&k);
	kit_add_samples(&k, 1, 2, 10);
	kit_mount(&k, NULL);
	file = kit_path(&k, "d0/s1");
	CHECK_INT(thr_start(&thr, "wait", wait_main, k.fs, NULL), 0);
	fs_stop(k.fs);
	thr_join(&thr);
	CHECK_INT(kit_child(&k, "print", file, NULL), 0);
	fs_unmount(k.fs);
	CHECK(!is_mounted(k.mountpoint));
	CHECK(store_x(&k) < 0);
	kit_fini(&k);
}

static void test_umount_right_after_mount_is_not_busy(void)
{
	static struct kit k;

	for (int i = 0; i < 10; i++) {
		kit_init(&k);
		kit_add_samples(&k, 2, 500, 1);
		kit_mount(&k, NULL);
		CHECK_INT(kit_child(&k, "umount", k.mountpoint, NULL), 0);
		kit_fini(&k);
	}
}

static void test_unmount_with_a_reader_waiting_ends_its_read(void)
{
	AUTO_FREE char *file = NULL;
	struct kit_child child;
	static struct kit k;
	int status;

	kit_init(&k);
	kit_add_samples(&k, 1, 2, 112640);
	kit_mount(&k, NULL);
	file = kit_path(&k, "d0/s1");
	atomic_store(&k.cache->is_holding, true);
	kit_child_start(&child, "print", file, NULL);
	CHECK(fake_cache_wait_held(k.cache, 1));
	fs_unmount(k.fs);
	status = kit_child_wait(&k, &child);
	CHECK(status == ECONNABORTED || status == ENOTCONN || status == EIO);
	CHECK(!is_mounted(k.mountpoint));
	kit_fini(&k); /* answers the read into a connection that is gone */
}

static void test_unmount_with_a_file_open_is_lazy(void)
{
	AUTO_FREE char *file = NULL;
	struct kit_child child;
	char line[64];
	static struct kit k, again;

	kit_init(&k);
	kit_add_samples(&k, 1, 2, 112640);
	kit_mount(&k, NULL);
	file = kit_path(&k, "d0/s1");
	kit_child_start(&child, "hold", file, NULL);
	kit_child_line(&k, &child, line, sizeof(line));
	CHECK_STR(line, "open");
	CHECK_INT(kit_child(&k, "umount", k.mountpoint, NULL), EBUSY);
	fs_unmount(k.fs);
	CHECK(!is_mounted(k.mountpoint));
	/* The place is free for the next one, and ending the first does not touch it. */
	again = (struct kit){ .source = strdup(k.source), .mountpoint = strdup(k.mountpoint) };
	kit_mount(&again, NULL);
	kill(child.pid, SIGKILL);
	kit_child_wait(&k, &child);
	kit_fini(&k);
	CHECK_INT(kit_child(&again, "compare", again.source, again.mountpoint), 0);
	kit_fini(&again);
}

static void test_unmount_does_not_touch_what_was_mounted_since(void)
{
	AUTO_FREE char *file = NULL;
	struct kit_child child;
	char line[64];
	static struct kit k;

	kit_init(&k);
	kit_add_samples(&k, 1, 2, 112640);
	kit_mount(&k, NULL);
	file = kit_path(&k, "d0/s1");
	kit_child_start(&child, "hold", file, NULL);
	kit_child_line(&k, &child, line, sizeof(line));
	CHECK_INT(kit_child(&k, "umount", k.mountpoint, "lazy"), 0);
	CHECK_INT(mount("tmpfs", k.mountpoint, "tmpfs", 0, "size=64k"), 0);
	fs_unmount(k.fs);
	CHECK(is_mounted(k.mountpoint));
	CHECK_INT(umount2(k.mountpoint, 0), 0);
	kill(child.pid, SIGKILL);
	kit_child_wait(&k, &child);
	kit_fini(&k);
}

/* As far as fs_new, or fs_start beside a stop that came first. */
static void begin_only(struct kit *k, bool is_starting)
{
	struct fs_params params = { .dataset = k->dataset,
				    .cache = k->cache,
				    .clock = clock_monotonic(),
				    .source = "source",
				    .inodes_ahead = 100 };
	AUTO_FREE char *mountpoint = check_tmpfile(is_starting ? "stopped" : "not_started");
	struct err err = { .code = 0 };
	struct fs *fs;

	CHECK_INT(mkdir(mountpoint, 0755), 0);
	params.mountpoint = mountpoint;
	CHECK_INT(fs_new(&params, &fs, &err), 0);
	CHECK(is_mounted(mountpoint));
	if (is_starting) {
		fs_stop(fs);
		CHECK_INT(fs_start(fs, &err), -EINTR);
		fs_wait(fs);
	}
	fs_free(fs);
	CHECK(!is_mounted(mountpoint));
}

static void test_a_mount_that_never_started_can_be_freed(void)
{
	static struct kit k;

	kit_init(&k);
	kit_add_samples(&k, 3, 20, 10);
	kit_mount(&k, NULL);
	begin_only(&k, false);
	begin_only(&k, true);
	kit_fini(&k);
}

/* Mounts in a user namespace that allows few watches. */
static void test_too_few_watches_keep_open_answered(void)
{
	struct kit none = { .fs = NULL };

	CHECK_INT(kit_child(&none, "few-watches", check_tmpdir(), NULL), 0);
}

static void test_caps_name_what_there_is(void)
{
	struct fs_caps caps;

	fs_probe_caps(&caps);
	CHECK(caps.has_dev_fuse);
	CHECK_STR(caps.dev_fuse_why, "");
	CHECK(caps.libfuse_version[0] == '3');
	CHECK(caps.inotify_max_watches > 0 && caps.inotify_max_queued > 0);
}

static const struct check_test tests[] = {
	{ "the_mount_table_shows_it", test_the_mount_table_shows_it },
	{ "bad_mountpoints_are_refused", test_bad_mountpoints_are_refused },
	{ "a_dead_mount_is_named", test_a_dead_mount_is_named },
	{ "unmount_from_outside_ends_the_wait", test_unmount_from_outside_ends_the_wait },
	{ "stop_ends_the_wait_and_leaves_the_mount_to_unmount",
	  test_stop_ends_the_wait_and_leaves_the_mount_to_unmount },
	{ "umount_right_after_mount_is_not_busy", test_umount_right_after_mount_is_not_busy },
	{ "unmount_with_a_reader_waiting_ends_its_read",
	  test_unmount_with_a_reader_waiting_ends_its_read },
	{ "unmount_with_a_file_open_is_lazy", test_unmount_with_a_file_open_is_lazy },
	{ "unmount_does_not_touch_what_was_mounted_since",
	  test_unmount_does_not_touch_what_was_mounted_since },
	{ "a_mount_that_never_started_can_be_freed", test_a_mount_that_never_started_can_be_freed },
	{ "too_few_watches_keep_open_answered", test_too_few_watches_keep_open_answered },
	{ "caps_name_what_there_is", test_caps_name_what_there_is },
};

int main(int argc, char **argv)
{
	static const struct check_test few_watches = { "few_watches", child_few_watches };

	if (argc > 2 && strcmp(argv[1], "--child") == 0 && strcmp(argv[2], "few-watches") == 0)
		return check_main(1, argv, &few_watches, 1);
	if (argc > 3 && strcmp(argv[1], "--child") == 0 && strcmp(argv[2], "serve") == 0)
		return child_serve(argv[3]);
	return kit_main(argc, argv, tests, ARRAY_LEN(tests));
}
