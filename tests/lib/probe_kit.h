/* SPDX-License-Identifier: Apache-2.0 */
/* A probe that holds nothing back and only hears of reads. Header-only. */
#ifndef CLAIRFS_TESTS_PROBE_KIT_H
#define CLAIRFS_TESTS_PROBE_KIT_H

#include "clairfs/cache/probe.h"

static inline bool probe_kit_may_send(void *ctx, struct probe_request *request)
{
	(void)ctx;
	(void)request;
	return true;
}

static inline bool probe_kit_answered(void *ctx, struct probe_request *request, struct list *go)
{
	(void)ctx;
	(void)request;
	(void)go;
	return false;
}

static inline bool probe_kit_may_prefetch(void *ctx)
{
	(void)ctx;
	return true;
}

static inline bool probe_kit_tick(void *ctx, uint64_t now_ns, struct list *go)
{
	(void)ctx;
	(void)now_ns;
	(void)go;
	return false;
}

static inline void probe_kit_end(void *ctx, struct list *go)
{
	(void)ctx;
	(void)go;
}

static inline struct probe
probe_kit(void *ctx, void (*observed)(void *ctx, const struct read_facts *facts, uint32_t n),
	  void (*settled)(void *ctx, uint64_t before_ns))
{
	return (struct probe){ .ctx = ctx,
			       .may_send = probe_kit_may_send,
			       .answered = probe_kit_answered,
			       .may_prefetch = probe_kit_may_prefetch,
			       .tick = probe_kit_tick,
			       .end = probe_kit_end,
			       .observed = observed,
			       .settled = settled };
}

#endif
