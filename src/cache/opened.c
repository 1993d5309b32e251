/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is heard of opens, and what is passed on to whoever plans. Any thread; never blocks.
 */
#include "cache_priv.h"

/* May be called with the lock of a shard held. */
void note_news(struct cache *c, const struct news_item *item)
{
	if (c->p.news)
		news_put(c->p.news, item);
}

void note_unit(struct cache *c, enum news_kind kind, struct unit_id unit)
{
	if (!unit_eq(unit, UNIT_NONE))
		note_news(c, &(struct news_item){ .kind = kind, .unit = unit });
}

void note_units(struct cache *c, enum news_kind kind, struct entry_id entry)
{
	struct unit_id first;
	uint32_t n = dataset_units_of(c->p.dataset, entry, &first);

	if (n == 1)
		note_unit(c, kind, first);
	else if (n && c->p.news)
		news_put_many(c->p.news, kind, first, n);
}

/* Of records that were found, the first one that ends at that byte or behind it. Nor has the file fewer now. */
static struct unit_id first_not_before(struct cache *c, struct entry_id entry, struct unit_id first,
				   uint64_t size)
{
	struct unit_id unit = dataset_unit_before(c->p.dataset, entry, size);

	for (unit = unit_eq(unit, UNIT_NONE) ? first : unit; unit.v > first.v; unit.v--) {
		struct dataset_extent x =
			dataset_unit_extent(c->p.dataset, (struct unit_id){ unit.v - 1 });

		if (x.offset + x.length < size)
			break;
	}
	return unit;
}

void note_resized(struct cache *c, struct entry_id entry, uint64_t before, uint64_t now)
{
	struct unit_id first;
	uint32_t n = dataset_units_of(c->p.dataset, entry, &first);
	uint32_t from = 0, end = n;

	if (n > 1 && !dataset_is_in_records(c->p.dataset, entry)) {
		from = (uint32_t)MIN((uint64_t)n, MIN(before, now) / UNIT_BYTES);
		end = (uint32_t)MIN((uint64_t)n, MAX(before, now) / UNIT_BYTES + 1);
	} else if (n > 1 && dataset_unit_is_found(c->p.dataset, first)) {
		/* Of a table's all: they need not follow each other. */
		from = first_not_before(c, entry, first, MIN(before, now)).v - first.v;
	}
	if (n == 1)
		note_news(c, &(struct news_item){
				     .kind = NEWS_RESIZED,
				     .unit = first,
				     .bytes = dataset_unit_extent(c->p.dataset, first).length });
	else if (from < end && c->p.news)
		news_put_many(c->p.news, NEWS_RESIZED, (struct unit_id){ first.v + from },
			      end - from);
}

void cache_note_cut(struct cache *c, struct entry_id entry)
{
	struct unit_id first;
	uint32_t n = dataset_units_of(c->p.dataset, entry, &first);

	if (c->p.news)
		news_put_many(c->p.news, NEWS_RESIZED, first, n);
}

void cache_note_come(struct cache *c, const struct unit_id *unit, size_t n)
{
	for (size_t i = 0; i < n; i++)
		note_unit(c, NEWS_REACHED, unit[i]);
}

/* How far ahead the prefetch was, at the first open only: a copy that is kept was not prefetched
 * for the next one. */
static void observe_lead(struct cache *c, struct entry_id entry, uint64_t now_ns)
{
	struct shard *s = shard_of(c, entry);
	struct object *obj;
	uint64_t ready_ns = 0;

	mutex_lock(&s->mu);
	obj = object_find_locked(c, s, entry, 0);
	if (obj) {
		ready_ns = obj->ready_ns;
		obj->ready_ns = 0;
	}
	mutex_unlock(&s->mu);
	if (ready_ns)
		metrics_observe(c->p.metrics, METRIC_HIST_PREFETCH_LEAD,
				now_ns > ready_ns ? now_ns - ready_ns : 0);
}

void cache_note_open(struct cache *c, struct entry_id entry)
{
	uint64_t now_ns = clock_now(c->p.clock);
	struct unit_id first;

	if (!dataset_is_sample(c->p.dataset, entry))
		return;
	/* A file that is empty so far is never asked for: this is all that is seen of its reader.
	 */
	entry_touch(c, entry);
	metrics_add(c->p.metrics, METRIC_SAMPLE_OPENS, 1);
	observe_lead(c, entry, now_ns);
	(void)dataset_units_of(c->p.dataset, entry, &first);
	if (!dataset_is_in_records(c->p.dataset, entry)) /* there a read is one of a record */
		account_open(c, first, now_ns);
	note_unit(c, NEWS_OPENED, first);
}

void cache_note_blind(struct cache *c)
{
	if (c->p.news)
		news_blind(c->p.news);
}
