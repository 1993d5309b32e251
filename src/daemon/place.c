/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks of a job are on this node, as its launcher says in the environment. A mount serves a
 * node, not a process, so the rank of whoever asks is not enough: all ranks of the node are meant,
 * and in a batch script SLURM_PROCID is 0 whatever the job is.
 *
 *   torchrun  RANK, WORLD_SIZE; with LOCAL_RANK and LOCAL_WORLD_SIZE the ranks are those from
 *             RANK - LOCAL_RANK on
 *   Slurm     SLURM_PROCID and SLURM_NTASKS say that there is a job; SLURM_TASKS_PER_NODE
 *             ("8(x2),4") and SLURM_NODEID say which tasks are here, counted node by node. Where
 *             SLURM_LOCALID shows that they are dealt out otherwise, or nothing says how many are
 *             here, that is an error rather than a guess
 *
 * Values are kept as text: they are judged, and named in the message, where a spec needs them.
 * Any thread that may read the environment. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "daemon_priv.h"

/* A plain number below 2^32; false for anything else. */
static bool parse_id(const char *text, uint64_t *ret)
{
	char *end;

	if (!text || !isdigit((unsigned char)*text))
		return false;
	errno = 0;
	*ret = strtoull(text, &end, 10);
	return errno == 0 && *end == '\0' && *ret <= UINT32_MAX;
}

static void say_ranks(struct job_place *p, uint64_t first, uint64_t count)
{
	if (count > 1)
		snprintf(p->rank, sizeof(p->rank), "%" PRIu64 "-%" PRIu64, first,
			 first + count - 1);
	else
		snprintf(p->rank, sizeof(p->rank), "%" PRIu64, first);
	p->place.rank = p->rank;
}

static void torchrun_place(struct job_place *p)
{
	uint64_t rank, local, count;

	p->place = (struct order_place){ .rank = getenv("RANK"),
					 .world = getenv("WORLD_SIZE"),
					 .rank_name = "RANK",
					 .world_name = "WORLD_SIZE" };
	if (parse_id(p->place.rank, &rank) && parse_id(getenv("LOCAL_RANK"), &local) &&
	    parse_id(getenv("LOCAL_WORLD_SIZE"), &count) && local <= rank && local < count)
		say_ranks(p, rank - local, count);
}

/* "8(x2),4": tasks of node 0, 1, 2. *ret_first and *ret_count: of this node. */
static bool tasks_of_node(const char *text, uint64_t node, uint64_t *ret_first, uint64_t *ret_count,
			  uint64_t *ret_all)
{
	uint64_t at = 0, all = 0;

	*ret_count = 0;
	while (text && *text) {
		char *end;
		uint64_t tasks = strtoull(text, &end, 10), nodes = 1;

		if (!isdigit((unsigned char)*text) || tasks > UINT32_MAX)
			return false;
		if (strncmp(end, "(x", 2) == 0 && isdigit((unsigned char)end[2])) {
			nodes = strtoull(end + 2, &end, 10);
			if (*end++ != ')' || nodes > UINT32_MAX)
				return false;
		}
		if (node >= at && node - at < nodes) {
			*ret_first = all + (node - at) * tasks;
			*ret_count = tasks;
		}
		at += nodes;
		all += nodes * tasks;
		if (all > UINT32_MAX || (*end != ',' && *end != '\0'))
			return false;
		text = *end ? end + 1 : end;
	}
	*ret_all = all;
	return *ret_count > 0;
}

static void slurm_place(struct job_place *p)
{
	uint64_t node = 0, first = 0, count = 0, all = 0, proc, local, world;
	bool has_node = parse_id(getenv("SLURM_NODEID"), &node);
	bool has_proc = parse_id(getenv("SLURM_PROCID"), &proc);

	p->place = (struct order_place){ .rank = getenv("SLURM_PROCID"),
					 .world = getenv("SLURM_NTASKS"),
					 .rank_name = "SLURM_PROCID",
					 .world_name = "SLURM_NTASKS" };
	if (!has_proc || !parse_id(p->place.world, &world) || world <= 1 || proc >= world)
		return; /* nothing to share, or nothing that can be right */
	if (!has_node || !tasks_of_node(getenv("SLURM_TASKS_PER_NODE"), node, &first, &count, &all))
		p->place.why =
			"SLURM_NODEID and SLURM_TASKS_PER_NODE do not say which tasks are on "
			"this node";
	else if (all != world)
		p->place.why = "SLURM_TASKS_PER_NODE does not have SLURM_NTASKS tasks";
	else if (parse_id(getenv("SLURM_LOCALID"), &local) && first + local != proc)
		p->place.why = "the tasks are not dealt out node by node";
	else
		say_ranks(p, first, count);
}

void daemon_job_place(struct job_place *ret)
{
	memset(ret, 0, sizeof(*ret));
	torchrun_place(ret);
	if (!ret->place.rank || !ret->place.world)
		slurm_place(ret);
}
