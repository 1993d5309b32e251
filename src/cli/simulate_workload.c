/* SPDX-License-Identifier: Apache-2.0 */
/* Workload files: a name is a file of the installed directory, anything with a slash a path. The
 * directory may be set in the environment, for a build that is not installed. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "simulate.h"

static const char *workload_dir(void)
{
	const char *dir = getenv("CLAIRFS_WORKLOADS");

	return dir && *dir ? dir : CLAIRFS_WORKLOADS_DIR;
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
static void workload_names(char *out, size_t size)
{
	struct dirent **list = NULL;
	int n = scandir(workload_dir(), &list, is_workload, compare_names);

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
	char path[PATH_MAX], names[768];

	if (strchr(name, '/'))
		return conf_load(&sim_option_table, params, name, err);
	if (snprintf(path, sizeof(path), "%s/%s.conf", workload_dir(), name) < (int)sizeof(path) &&
	    access(path, R_OK) == 0)
		return conf_load(&sim_option_table, params, path, err);
	workload_names(names, sizeof(names));
	if (!*names)
		return err_set(err, -EINVAL, "--workload: no workloads in %s", workload_dir());
	return err_set(err, -EINVAL, "--workload: no '%.64s' among %s; a file needs a slash", name,
		       names);
}
