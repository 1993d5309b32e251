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
#include <sys/mount.h>
#include <sys/stat.h>

#include "fake_cache.h"
#include "fs_child_mount.h"
#include "fs_kit.h"

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

void child_few_watches(void)
{
	AUTO_FREE char *list = NULL;
	struct fs_status status;
	struct buf_writer w;
	static struct kit k;

	CHECK_INT(child_enter_namespace("2"), 0);
	kit_init(&k);
	kit_add_samples(&k, 5, 4, 100);
	kit_mount(&k, NULL);
	atomic_store(&k.cache->may_refuse_open, true);
	fs_get_status(k.fs, &status);
	CHECK(!status.is_watch_complete);
	CHECK_INT(status.watches, 2);
	buf_writer_init(&w);
	for (int d = 0; d < 5; d++)
		for (int i = 0; i < 4; i++)
			buf_printf(&w, "%s/d%d/s%d\n", k.mountpoint, d, i);
	list = check_write_file("list", w.data, w.size);
	buf_writer_fini(&w);
	/* Every open once, whether the watcher or the upcall saw it. */
	for (int turn = 0; turn < 3; turn++)
		CHECK_INT(kit_child(&k, "read-list", list, NULL), 0);
	CHECK(fake_cache_wait_opened(k.cache, 60));
	CHECK_U64(kit_counter(&k, METRIC_UPCALL_OPEN), 60);
	CHECK_U64(k.cache->n_opened, 60);
	fs_get_status(k.fs, &status);
	CHECK(!status.is_open_refused);
	kit_fini(&k);
}
