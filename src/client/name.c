/* SPDX-License-Identifier: Apache-2.0 */
/* Under which name the command tells an order. Any thread that changes no environment. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client_priv.h"

/* The process of one of several ranks, of which nobody speaks for the node. */
static bool is_for_itself(const char *spec, bool has_rank)
{
	const char *local = getenv("LOCAL_RANK"), *locals = getenv("LOCAL_WORLD_SIZE");

	if (local && locals && atoi(locals) == 1)
		return false;
	return has_rank || (!local && (strcmp(spec, "none") == 0 || strncmp(spec, "list:", 5) == 0));
}

void client_job_name(const char *spec, char ret[CLAIRFS_HINT_JOB])
{
	const char *rank = getenv("RANK"), *world = getenv("WORLD_SIZE"), *told = strstr(spec, ":rank=");
	char behind[24];

	clairfs_job_name(ret);
	if (!rank || !world || atoi(world) < 2 || !is_for_itself(spec, told != NULL))
		return;
	snprintf(behind, sizeof(behind), "-rank%d", atoi(told ? told + strlen(":rank=") : rank));
	ret[CLAIRFS_HINT_JOB - 1 - strlen(behind)] = '\0'; /* as long as it may be, with that */
	strcat(ret, behind);
}
