/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A number for the filesystem of the source that survives a restart. The device number does not:
 * network filesystems get the next free one at each mount. The id that statfs gives is stable where
 * the filesystem has one (a UUID on local ones, Lustre's), 0 or made from the device number
 * elsewhere; what a filesystem is mounted from ("server:/export") is stable for all of those. So
 * both count, and for the type whose id is made from the device number only the latter. Neither
 * tells two of a kind apart that were mounted from sources of one name (every sshfs of a user, two
 * images of one path), nor do inode numbers that a filesystem makes up or times in whole seconds:
 * the real path of the source directory counts, too. The worst of a number that changes is a cold
 * store, the worst of one that is shared are wrong bytes.
 *
 * Set-up only; reads /proc/self/mountinfo, whose lines are foreign: each is cut at its spaces.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <xxhash.h>

#include "clairfs/tier/store.h"

#define XFS_MAGIC 0x58465342

/* Type and source of the mount in a line of mountinfo ("... - ext4 /dev/vda rw"), if its third
 * field is this device. */
static char *mount_of(char *line, const char *device)
{
	char *save = NULL, *field = strtok_r(line, " ", &save);
	char *type, *source, *text = NULL;

	for (int i = 0; field && i < 2; i++)
		field = strtok_r(NULL, " ", &save);
	if (!field || strcmp(field, device) != 0)
		return NULL;
	while (field && strcmp(field, "-") != 0)
		field = strtok_r(NULL, " ", &save);
	type = strtok_r(NULL, " ", &save);
	source = strtok_r(NULL, " \n", &save);
	if (!type || !source || asprintf(&text, "%s %s", type, source) < 0)
		return NULL;
	return text;
}

/* "type source", heap; NULL when it is not found. */
static char *find_mount(dev_t dev)
{
	AUTO_FILE FILE *f = fopen("/proc/self/mountinfo", "re");
	AUTO_FREE char *line = NULL;
	char device[32], *found = NULL;
	size_t size = 0;

	snprintf(device, sizeof(device), "%u:%u", major(dev), minor(dev));
	while (f && !found && getline(&line, &size, f) > 0)
		found = mount_of(line, device);
	return found;
}

/* seed when the path is not known. */
static uint64_t add_path(int dirfd, uint64_t seed)
{
	char link[64], path[4096];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", dirfd);
	n = readlink(link, path, sizeof(path));
	return n > 0 ? XXH3_64bits_withSeed(path, (size_t)n, seed) : seed;
}

uint64_t store_fsid(int dirfd)
{
	AUTO_FREE char *mount = NULL;
	struct statfs fs;
	struct stat st;
	uint64_t seed = 0, id = 0;

	if (fstat(dirfd, &st) == 0)
		mount = find_mount(st.st_dev);
	if (fstatfs(dirfd, &fs) == 0) {
		seed = (uint64_t)fs.f_type;
		memcpy(&id, &fs.f_fsid, sizeof(id));
		if (seed == XFS_MAGIC && mount)
			id = 0;
	}
	seed = XXH3_64bits_withSeed(&id, sizeof(id), seed);
	if (mount)
		seed = XXH3_64bits_withSeed(mount, strlen(mount), seed);
	return add_path(dirfd, seed);
}
