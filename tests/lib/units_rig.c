/* SPDX-License-Identifier: Apache-2.0 */
#include "units_rig.h"

bool unit_is_answered(struct rig *rig, struct unit_asked *a)
{
	struct news *n = rig->drive->news;
	bool is_first;

	mutex_lock(&n->mu);
	is_first = n->answers.next == &a->answer.node;
	if (is_first)
		list_remove(&a->answer.node);
	mutex_unlock(&n->mu);
	return is_first;
}

int unit_hold(struct rig *rig, uint32_t unit)
{
	struct unit_asked a = { .fetch = { .answer_to = &a.answer } };

	CHECK_INT(cache_hold(rig->cache, (struct unit_id){ unit }, &a.fetch), 0);
	RIG_UNTIL(unit_is_answered(rig, &a));
	return a.fetch.status;
}

void unit_let_go(struct rig *rig, uint32_t unit)
{
	cache_release(rig->cache, (struct unit_id){ unit }, false);
}

uint32_t unit_told(struct rig *rig, enum news_kind kind, uint32_t unit)
{
	struct news *n = rig->drive->news;
	uint32_t count = 0;

	mutex_lock(&n->mu);
	for (uint32_t i = 0; i < n->n_fill; i++)
		count += n->fill[i].kind == kind && n->fill[i].unit.v == unit;
	if (kind < NEWS_LATE_KINDS) /* of many units at once they are late */
		count += n->late_fill[kind][unit / 64] >> unit % 64 & 1;
	mutex_unlock(&n->mu);
	return count;
}

void unit_push(struct rig *rig, uint32_t unit)
{
	struct cache_push p;
	struct cache_copy copy;

	CHECK_INT(cache_push_begin(rig->cache, (struct unit_id){ unit }, &p), 0);
	for (uint32_t i = p.first; i < p.end; i++) {
		int rc;

		RIG_UNTIL((rc = cache_push_pin(rig->cache, &p, i, &copy)) != -EAGAIN); /* a READ ends */
		CHECK_INT(rc, 0);
		cache_push_unpin(rig->cache, &p, &copy, true);
	}
	CHECK_INT(cache_push_end(rig->cache, &p, 0), 0);
}

uint64_t rig_source_bytes(struct rig *rig)
{
	return rig_metric(rig, METRIC_SOURCE_BYTES);
}
