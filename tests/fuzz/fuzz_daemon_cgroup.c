/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as /proc/PID/cgroup, and what follows a line "=" as /proc/PID/mountinfo;
 * all of it as the files with numbers. Besides not crashing: what is found is a text that ends, and
 * the directory of a cgroup lies below its mount. */
#include <assert.h>
#include <string.h>

#include "clairfs/base/cgroup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look_for(const char *text, size_t len, const char *mounts, size_t mounts_len,
		     const char *controller)
{
	static struct cgroup_mount mount;
	static char path[PATH_MAX], dir[PATH_MAX];

	if (!cgroup_path(text, len, controller, path))
		return;
	assert(path[0] == '/' && strlen(path) < PATH_MAX);
	if (!cgroup_find_mount(mounts, mounts_len, controller, path, &mount))
		return;
	assert(strlen(mount.at) < PATH_MAX && strlen(mount.root) < PATH_MAX);
	if (cgroup_dir(&mount, path, dir))
		assert(strncmp(dir, mount.at, strlen(mount.at)) == 0 &&
		       !strstr(dir + strlen(mount.at), "/.."));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const controllers[] = { NULL, "memory", "cpu" };
	const char *text = (const char *)data, *split = memmem(data, size, "\n=\n", 3);
	size_t len = split ? (size_t)(split - text) + 1 : size;
	const char *mounts = split ? split + 3 : text;
	size_t mounts_len = split ? size - len - 2 : size;

	for (size_t i = 0; i < 3; i++)
		look_for(text, len, mounts, mounts_len, controllers[i]);
	(void)cgroup_stalled_us(text, size);
	assert(cgroup_stalled(text, size) <= 10000);
	(void)cgroup_value(text, size, "high");
	(void)cgroup_value(text, size, "hierarchical_memory_limit");
	(void)cgroup_value(text, size, "");
	return 0;
}
