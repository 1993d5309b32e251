/* SPDX-License-Identifier: Apache-2.0 */
/* A mount at a moment, made up: what is shown of it can be told without one. */
#ifndef CLAIRFS_TESTS_PUBLISH_KIT_H
#define CLAIRFS_TESTS_PUBLISH_KIT_H

#include <string.h>

#include "check.h"
#include "clairfs/publish.h"

/* With an order, one job and a store. To be given to published_fini; metrics_free is the caller's.
 */
static inline void published_made_up(struct published *p, struct metrics *metrics)
{
	*p = (struct published){
		.version = "1.2.3",
		.pid = 77,
		.now_ns = 7500000000,
		.mount = { .source = "/s",
			   .mountpoint = "/m",
			   .start_ns = 5000000000,
			   .is_watch_complete = true,
			   .watches = 3,
			   .inodes_known = 12 },
		.dataset = { .layout = LAYOUT_FILES,
			     .samples = 10,
			     .entries = 11,
			     .bytes = 1000,
			     .stats = { .dirs_scanned = 2, .stats = 13 } },
		.drive = { .plan = { .state = PLAN_FOLLOWING,
				     .why = "",
				     .epoch = 2,
				     .position = 4,
				     .length = 10,
				     .lead = 3,
				     .match_percent = 99,
				     .span = 10 } },
		.spec = strdup("sequential"),
		.n_jobs = 1,
		.source_engine = "pool",
		.store_engine = "uring",
		.has_store = true,
		.store = { .is_persistent = true, .why = "", .records = 5 },
		.memory = { .ram = 64,
			    .arena = 60,
			    .stage = 16,
			    .from = "no limit is known",
			    .by = "what is free",
			    .resident = 100,
			    .arena_used = 40,
			    .index = 10 },
		.search = json_pack("{s:s}", "doing", "the order was told"),
		.gpu_wait = json_pack("{s:s}", "words", "not known"),
		.hook = json_pack("{s:s, s:[]}", "job", "", "ranks"),
		.metrics = metrics,
	};
	p->job[0] = (struct orders_job){ .spec = strdup("sequential"),
					    .pid = 78,
					    .is_accounted = true,
					    .at = { .id = 1, .plan = p->drive.plan } };
	p->job[0].at.read_ns = 7000000000;
	CHECK(p->spec && p->job[0].spec && p->search && p->gpu_wait && p->hook);
}

#endif
