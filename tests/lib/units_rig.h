/* SPDX-License-Identifier: Apache-2.0 */
/* What whoever plans asks of the units of a cache, done by hand on a rig that is not started: each is
 * waited for and must succeed, where nothing else is said. */
#ifndef CLAIRFS_TESTS_UNITS_RIG_H
#define CLAIRFS_TESTS_UNITS_RIG_H

#include "cache_rig.h"
#include "src/cache/cache_priv.h"
#include "src/cache/news_priv.h"
#include "src/drive/drive_priv.h"

/* A fetch that is asked for by cache_hold: { .fetch = { .answer_to = &a.answer } }. */
struct unit_asked {
	struct cache_fetch fetch;
	struct news_answer answer;
};
/* Its answer is the next one in the news: takes it out of there. */
bool unit_is_answered(struct rig *rig, struct unit_asked *a);
/* Returns what the fetch of the unit was answered. */
int unit_hold(struct rig *rig, uint32_t unit);
void unit_let_go(struct rig *rig, uint32_t unit);
/* How often the news that nobody has taken have it of that unit. */
uint32_t unit_told(struct rig *rig, enum news_kind kind, uint32_t unit);
/* All but its tracer page. READs of its file that end meanwhile are waited for. */
void unit_push(struct rig *rig, uint32_t unit);
/* That the source has given. */
uint64_t rig_source_bytes(struct rig *rig);

#endif
