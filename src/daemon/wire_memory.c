/* SPDX-License-Identifier: Apache-2.0 */
/* The budgets of a mount: what was told, else what the limits of this process leave (memlimit.c);
 * and what becomes of them while it runs (pressure.c). */
#include "clairfs/base/log.h"
#include "clairfs/base/text.h"
#include "daemon_priv.h"

void wire_budget(struct wire *w)
{
	struct memlimit_wish wish = { .ram = w->opts->ram,
				      .stage = w->opts->stage,
				      .inflight = w->opts->source_max_inflight,
				      .inodes_ahead = w->opts->inodes_ahead,
				      .n_samples = dataset_n_samples(w->dataset),
				      .n_entries = dataset_n_entries(w->dataset),
				      .sample_bytes = dataset_sample_bytes(w->dataset),
				      .index_bytes = dataset_memory_bytes(w->dataset) };
	struct memlimit_budget *b = &w->memory;
	char ram[32], stage[32], limit[32], tables[32], arena[32];
	struct memlimits limits;

	memlimit_read(&limits);
	memlimit_derive(&limits, &wish, b);
	if (b->is_over)
		log_warn("ram %s and stage %s are more than there is: the limit is %s (%s)",
			 text_from_bytes(b->ram, ram, sizeof(ram)),
			 text_from_bytes(b->stage, stage, sizeof(stage)),
			 text_from_bytes(b->limit, limit, sizeof(limit)), b->from);
	if (b->tables > b->ram / 2)
		log_warn("ram %s: index and tables of %u samples are %s, of samples %s are kept "
			 "beside that",
			 text_from_bytes(b->ram, ram, sizeof(ram)), dataset_n_samples(w->dataset),
			 text_from_bytes(b->tables, tables, sizeof(tables)),
			 text_from_bytes(b->arena, arena, sizeof(arena)));
}

uint64_t wire_memory_need(const struct wire *w)
{
	return memlimit_need(&w->memory, dataset_n_entries(w->dataset));
}

int wire_make_pressure(struct wire *w, struct err *err)
{
	struct pressure_params params = { .cache = w->cache,
					  .metrics = w->metrics,
					  .ram = w->memory.arena,
					  .stage = w->memory.stage };

	return pressure_new(&params, &w->pressure, err);
}

/* What the daemon has in RAM, and what it is. The parts are counted, not measured; "other" is what is
 * left: code, stacks and buffers of threads, the estimate of GPU wait, what malloc holds. */
static json_t *resident_json(struct wire *w)
{
	uint64_t resident = metrics_get(w->metrics, METRIC_PROCESS_RSS), peak = memlimit_peak();
	uint64_t arena = arena_used(w->arena), index = dataset_memory_bytes(w->dataset);
	uint64_t tables, known;
	struct cache_status cache;
	struct fs_status fs;

	cache_get_status(w->cache, &cache);
	fs_get_status(w->fs, &fs);
	tables = cache.table_bytes + fs.table_bytes + arena_table_bytes(w->arena);
	known = arena + cache.held_bytes + index + tables;
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "bytes", (json_int_t)resident,
			 "peak", (json_int_t)(peak == MEMLIMIT_NONE ? 0 : peak), "arena",
			 (json_int_t)arena, "samples_held", (json_int_t)cache.held_bytes, "index",
			 (json_int_t)index, "tables", (json_int_t)tables, "other",
			 (json_int_t)(resident > known ? resident - known : 0));
}

json_t *wire_memory_json(struct wire *w)
{
	const struct memlimit_budget *b = &w->memory;
	struct pressure_view view;

	pressure_look(w->pressure, &view);
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:b, s:I, s:I, s:I, s:s, s:o}", "ram",
			 (json_int_t)b->ram, "arena", (json_int_t)b->arena, "stage",
			 (json_int_t)b->stage, "source_max_inflight", (json_int_t)b->inflight,
			 "inodes_ahead", (json_int_t)b->inodes_ahead,
			 "limit", (json_int_t)(b->limit == MEMLIMIT_NONE ? 0 : b->limit), "from",
			 b->from, "is_over", b->is_over, "ram_now", (json_int_t)view.ram,
			 "stage_now", (json_int_t)view.stage, "shrunk", (json_int_t)view.shrunk,
			 "pressure", view.by, "resident", resident_json(w));
}
