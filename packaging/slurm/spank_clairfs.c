/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SPANK plugin: the option --clairfs=SPEC of srun, sbatch and salloc, and nothing else. Slurm
 * forwards the value of a plugin's option to the prolog and the epilog, as the environment
 * variable SPANK__SLURM_SPANK_OPTION_clairfs_clairfs; what it means is decided there
 * (src/slurm/spec.c). So this file has no logic that could go wrong inside slurmd or slurmstepd.
 * It is built for one version of Slurm: others refuse to load it.
 */
#include <slurm/spank.h>

SPANK_PLUGIN(clairfs, 1)

static int accept(int value, const char *text, int is_remote)
{
	(void)value;
	(void)text;
	(void)is_remote;
	return ESPANK_SUCCESS;
}

static char name[] = "clairfs";
static char argument[] = "SPEC";
static char usage[] = "mount a dataset for this job: SOURCE[,order=...][,ram=...], or off";

int slurm_spank_init(spank_t spank, int n, char **arguments);
int slurm_spank_init(spank_t spank, int n, char **arguments)
{
	struct spank_option option = { name, argument, usage, 1, 0, accept };

	(void)n;
	(void)arguments;
	switch (spank_context()) {
	case S_CTX_LOCAL:
	case S_CTX_REMOTE:
	case S_CTX_ALLOCATOR:
		return spank_option_register(spank, &option) == ESPANK_SUCCESS ? 0 : -1;
	default:
		return 0;
	}
}
