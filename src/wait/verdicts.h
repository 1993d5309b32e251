/* SPDX-License-Identifier: Apache-2.0 */
/* What became of the last passes of each rank, and the steps of all of them. */
#ifndef CLAIRFS_WAIT_VERDICTS_H
#define CLAIRFS_WAIT_VERDICTS_H

#include <jansson.h>

#include "clairfs/base/thr.h"
#include "clairfs/wait/stall.h"

#define VERDICTS_KEPT 64u /* per rank */

struct rank_verdicts;
struct verdicts {
	struct mutex mu;
	struct rank_verdicts *rank[STALL_RANKS_MAX]; /* mu, likewise n_ranks */
	uint32_t n_ranks;
};
void verdicts_init(struct verdicts *v);
void verdicts_fini(struct verdicts *v);
/* For stall_params.judged. */
void verdicts_add(void *verdicts, const struct stall_verdict *verdict);
/* A list, the oldest first; of fewer passes the more ranks there are. Any thread; NULL: no memory.
 */
json_t *verdicts_json(struct verdicts *v, uint32_t rank);
/* The object "replay" of a rank in a report; NULL: there is none. Any thread. */
json_t *verdicts_replay_json(struct verdicts *v, uint32_t rank);

#endif
