/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts the real cache behind the mount of a kit, wired as the daemon does it: the drive learns the
 * stage operations and starts when the mount answers, stops after the unmount, and the session
 * lives until every read is answered.
 */
#include "fs_kit_real.h"

static void must(int rc, const struct err *err)
{
	if (rc < 0)
		CHECK_STR(err->msg, "");
}

static void order_make(struct kit *k, struct kit_real *r, struct err *err)
{
	struct order_params params = { .n = dataset_n_samples(k->dataset) };

	if (!r->order_text)
		return;
	must(order_spec_parse(r->order_text, &r->spec, err), err);
	must(order_new(r->spec, &params, &r->order, err), err);
}

void kit_cache_new(struct kit *k)
{
	struct kit_real *r = k->rest;
	struct io_params io = { .name = "kit", .max_inflight = 8 };
	struct source_params source = { .metrics = k->metrics,
					.open_files = 4,
					.reopen_ns = NS_PER_S };
	struct cache_params cache = { .dataset = k->dataset,
				      .metrics = k->metrics,
				      .clock = clock_monotonic(),
				      .arena_bytes = r->arena_bytes };
	struct drive_params params = { .stage_bytes = r->stage_bytes,
				       .inflight_min = 2,
				       .inflight_max = 8,
				       .stagers = 2 };
	struct err err = { .code = 0 };

	must(io_pool_new(&io, &r->io, &err), &err);
	source.dirfd = dataset_source_fd(k->dataset);
	source.io = r->io;
	must(source_new(&source, &r->source, &err), &err);
	must(arena_new(2 * r->arena_bytes, &r->arena, &err), &err);
	order_make(k, r, &err);
	cache.tiers = &r->source;
	cache.n_tiers = 1;
	cache.arena = r->arena;
	params.cache = cache;
	params.order = r->order;
	must(drive_new(&params, &r->drive, &err), &err);
	k->cache = drive_cache(r->drive);
}

void kit_cache_start(struct kit *k)
{
	const struct kit_real *r = k->rest;
	struct err err = { .code = 0 };

	drive_set_stage(r->drive, fs_stage_ops(), k->fs);
	must(drive_start(r->drive, &err), &err);
}

void kit_cache_stop(struct kit *k)
{
	const struct kit_real *r = k->rest;

	drive_stop(r->drive);
}

void kit_cache_free(struct kit *k)
{
	struct kit_real *r = k->rest;

	drive_free(r->drive);
	tier_free(r->source);
	io_free(r->io);
	arena_free(r->arena);
	order_free(r->order);
	order_spec_free(r->spec);
}
