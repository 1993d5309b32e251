/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Children of the fs tests that mount something themselves: a server that is going to be killed,
 * and a mount in a user namespace of its own, where limits can be lowered without touching the
 * machine's.
 *
 * One thread besides those of fs.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "fake_cache.h"
#include "fs_child_mount.h"
#include "fs_kit.h"

#define DIRS 5
#define RESERVE 1024u /* of watch.c */

/* Mounts fs on `mountpoint` and serves until it is killed. */
int child_serve(const char *mountpoint)
{
	static struct kit k;

	kit_init(&k);
	free(k.mountpoint);
	k.mountpoint = strdup(mountpoint);
	kit_add_samples(&k, 1, 2, 10);
	kit_mount(&k, NULL);
	printf("mounted\n");
	fflush(stdout);
	fs_wait(k.fs);
	kit_fini(&k);
	return 0;
}

static int put(const char *path, const char *text)
{
	AUTO_FD int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : errno;
}

int child_enter_namespace(const char *watches)
{
	int rc;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return errno;
	rc = put("/proc/self/uid_map", "0 0 1");
	if (rc == 0)
		rc = put("/proc/self/setgroups", "deny");
	if (rc == 0)
		rc = put("/proc/self/gid_map", "0 0 1");
	if (rc == 0)
		rc = put("/proc/sys/user/max_inotify_watches", watches);
	return rc;
}

static int set_limit(uint32_t watches)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", watches);
	return put("/proc/sys/user/max_inotify_watches", text);
}

/* Watches so many files of its own; returns how many it got. */
static uint32_t hold_watches(int fd, uint32_t from, uint32_t to)
{
	uint32_t n = 0;
	char name[32];

	for (uint32_t i = from; i < to; i++) {
		AUTO_FREE char *path = NULL;

		snprintf(name, sizeof(name), "held%u", i);
		path = check_write_file(name, "", 0);
		n += inotify_add_watch(fd, path, IN_MODIFY) >= 0;
	}
	return n;
}

/* Five directories of four samples: nothing is watched, and every open is seen once. */
static void check_unwatched(const char *why)
{
	AUTO_FREE char *list = NULL;
	struct fs_status status;
	struct buf_writer w;
	static struct kit k;

	kit_init(&k);
	kit_add_samples(&k, DIRS, 4, 100);
	kit_mount(&k, NULL);
	atomic_store(&k.cache->may_refuse_open, true);
	fs_get_status(k.fs, &status);
	CHECK(!status.is_watch_complete);
	CHECK_INT(status.watches, 0);
	CHECK_CONTAINS(status.watch_why, why);
	buf_writer_init(&w);
	for (int d = 0; d < DIRS; d++)
		for (int i = 0; i < 4; i++)
			buf_printf(&w, "%s/d%d/s%d\n", k.mountpoint, d, i);
	list = check_write_file("list", w.data, w.size);
	buf_writer_fini(&w);
	for (int turn = 0; turn < 3; turn++)
		CHECK_INT(kit_child(&k, "read-list", list, NULL), 0);
	CHECK(fake_cache_wait_opened(k.cache, 60));
	CHECK_U64(kit_counter(&k, METRIC_UPCALL_OPEN), 60);
	CHECK_U64(k.cache->n_opened, 60);
	fs_get_status(k.fs, &status);
	CHECK(!status.is_open_refused);
	kit_fini(&k);
}

static void check_watched(void)
{
	struct fs_status status;
	static struct kit k;

	kit_init(&k);
	kit_add_samples(&k, DIRS, 4, 100);
	kit_mount(&k, NULL);
	fs_get_status(k.fs, &status);
	CHECK(status.is_watch_complete);
	CHECK_INT(status.watches, DIRS);
	CHECK_STR(status.watch_why, "");
	kit_fini(&k);
}

void child_few_watches(void)
{
	AUTO_FD int fd = -1;

	/* 1024 are for others. */
	CHECK_INT(child_enter_namespace("2"), 0);
	check_unwatched("max_user_watches is 2 ");
	CHECK_INT(set_limit(RESERVE + DIRS - 1), 0);
	check_unwatched("1024 of them are left to others");
	CHECK_INT(set_limit(RESERVE + DIRS), 0);
	check_watched();
	/* Others have so many that one of ours fails: all are given back. */
	fd = inotify_init1(IN_CLOEXEC);
	CHECK(fd >= 0);
	CHECK_U64(hold_watches(fd, 0, RESERVE + 1), RESERVE + 1);
	check_unwatched("others of this user");
	CHECK_U64(hold_watches(fd, RESERVE + 1, RESERVE + 10), DIRS - 1);
}
