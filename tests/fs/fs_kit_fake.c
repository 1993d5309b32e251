/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts the fake cache behind the mount of a kit. It needs no start: it answers from the first read
 * on, and a read that it holds is answered when the test says so or at the end, into a connection
 * that may be gone by then.
 */
#include "fake_cache.h"
#include "fs_kit.h"

void kit_cache_new(struct kit *k)
{
	k->cache = calloc(1, sizeof(*k->cache));
	CHECK(k->cache != NULL);
	fake_cache_init(k->cache, k->dataset);
}

void kit_cache_start(struct kit *k)
{
}

void kit_cache_stop(struct kit *k)
{
	fake_cache_fini(k->cache);
}

void kit_cache_free(struct kit *k)
{
	free(k->cache);
}
