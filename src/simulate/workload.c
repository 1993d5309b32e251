/* SPDX-License-Identifier: Apache-2.0 */
/* Workload files: a name is a file of the installed directory, anything with a slash a path. A
 * program that is run where it was built (BUILD/src/cli/clairfs) takes those of its build
 * (BUILD/conf). Another directory may be set in the environment. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "clairfs/simulate.h"

#define BUILT_AS "/src/cli/clairfs"
#define BUILT_DIR "/conf"
#define BUILT_FILE BUILT_DIR "/default.conf" /* one that is always there */

/* The build's directory if this program lies in one, and the workloads were built as well. */
static bool find_build(char path[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - sizeof(BUILT_FILE));
	size_t len = n > 0 ? (size_t)n : 0, end = strlen(BUILT_AS);

	path[len] = '\0';
	if (len <= end || strcmp(path + len - end, BUILT_AS) != 0)
		return false;
	memcpy(path + len - end, BUILT_FILE, sizeof(BUILT_FILE));
	if (access(path, R_OK) < 0)
		return false;
	path[len - end + strlen(BUILT_DIR)] = '\0';
	return true;
}

static const char *workload_dir(char built[PATH_MAX])
{
	const char *dir = getenv("CLAIRFS_WORKLOADS");

	if (dir && *dir)
		return dir;
	return find_build(built) ? built : CLAIRFS_WORKLOADS_DIR;
}

static int compare_names(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_workload(const struct dirent *entry)
{
	size_t len = strlen(entry->d_name);

	return len > 5 && strcmp(entry->d_name + len - 5, ".conf") == 0;
}

/* The names there are, for an error. */
static void workload_names(const char *dir, char *out, size_t size)
{
	struct dirent **list = NULL;
	int n = scandir(dir, &list, is_workload, compare_names);

	*out = '\0';
	for (int i = 0; i < n; i++) {
		size_t used = strlen(out);

		snprintf(out + used, size - used, "%s%.*s", i ? ", " : "",
			 (int)strlen(list[i]->d_name) - 5, list[i]->d_name);
		free(list[i]);
	}
	free(list);
}

int simulate_workload(const char *name, struct sim_params *params, struct err *err)
{
	char built[PATH_MAX], path[PATH_MAX + 80], names[768];
	const char *dir;

	if (strchr(name, '/'))
		return conf_load(&sim_option_table, params, name, err);
	dir = workload_dir(built);
	if (snprintf(path, sizeof(path), "%s/%s.conf", dir, name) < (int)sizeof(path) &&
	    access(path, R_OK) == 0)
		return conf_load(&sim_option_table, params, path, err);
	workload_names(dir, names, sizeof(names));
	if (!*names)
		return err_set(err, -EINVAL, "--workload: no workloads in %.512s", dir);
	return err_set(err, -EINVAL, "--workload: no '%.64s' among %s; a file needs a slash", name,
		       names);
}
