/* SPDX-License-Identifier: Apache-2.0 */
/* What carries orders out, as this module sees it: the cache. A test brings one of its own and steps
 * the owner without threads. */
#include "orders_priv.h"

static uint32_t drive_get_jobs(void *cache, struct cache_job ret[PLAN_JOBS])
{
	return cache_get_jobs(cache, ret);
}

static int drive_add(void *cache, struct order *take_order, uint32_t instead_of, uint32_t *ret_id)
{
	return cache_add_order(cache, take_order, instead_of, ret_id);
}

static int drive_end(void *cache, uint32_t id, const char *why)
{
	return cache_end_order(cache, id, why);
}

static int drive_clear(void *cache)
{
	return cache_set_order(cache, NULL);
}

static uint32_t drive_generation(void *cache)
{
	return cache_generation(cache);
}

static uint32_t drive_last_opens(void *cache, uint32_t *ret_sample, uint32_t max)
{
	return cache_last_opens(cache, ret_sample, max);
}

static uint32_t drive_reader_of(void *cache, uint32_t sample)
{
	return cache_reader_of(cache, sample);
}

const struct drive drive_cache = { .get_jobs = drive_get_jobs,
				   .add = drive_add,
				   .end = drive_end,
				   .clear = drive_clear,
				   .generation = drive_generation,
				   .last_opens = drive_last_opens,
				   .reader_of = drive_reader_of };
