/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as texts that the hooks look at as root: stat, environ and cmdline of a
 * process, the table of mounts, and what squeue answers. */
#include <assert.h>
#include <string.h>

#include "src/slurm/slurm_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	struct slurm_mount *mount = malloc(sizeof(*mount));
	char top[PATH_MAX], *answer = strndup(text, size);
	uint64_t start;
	bool is_v2;

	assert(mount && answer);
	if (!slurm_words_is_over(answer, 17))
		assert(strstr(answer, "17"));
	free(answer);
	if (slurm_words_start(text, size, &start))
		assert(memchr(text, ')', size));
	if (slurm_words_is_of_job(text, size, 17))
		assert(memmem(text, size, "SLURM_JOB_ID=17", 15));
	if (slurm_words_is_step(text, size, 17))
		assert(memcmp(text, "slurmstepd: [17.", 16) == 0);
	if (slurm_words_is_slurmstepd(text, size))
		assert(memmem(text, size, "\nUid:\t0\t", 8));
	if (slurm_mount_parse(text, size, mount))
		assert(mount->path[0] == '/' && memmem(text, size, "fuse.clairfs", 12));
	if (slurm_cgroup_hierarchy(text, size, &is_v2, top))
		assert(top[0] == '/' && memmem(text, size, "cgroup", 6));
	free(mount);
	return 0;
}
