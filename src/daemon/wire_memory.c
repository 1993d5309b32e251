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

int wire_make_pressure(struct wire *w, struct err *err)
{
	struct pressure_params params = { .cache = w->cache,
					  .metrics = w->metrics,
					  .ram = w->memory.arena,
					  .stage = w->memory.stage };

	return pressure_new(&params, &w->pressure, err);
}

void wire_look_memory(struct wire *w, uint64_t held_bytes, uint64_t table_bytes,
		      struct published_memory *ret)
{
	const struct memlimit_budget *b = &w->memory;
	uint64_t peak = memlimit_peak();
	struct pressure_view view;

	pressure_look(w->pressure, &view);
	*ret = (struct published_memory){
		.ram = b->ram,
		.arena = b->arena,
		.stage = b->stage,
		.inflight = b->inflight,
		.inodes_ahead = b->inodes_ahead,
		.limit = b->limit == MEMLIMIT_NONE ? 0 : b->limit,
		.from = b->from,
		.is_over = b->is_over,
		.ram_now = view.ram,
		.stage_now = view.stage,
		.shrunk = view.shrunk,
		.by = view.by,
		.resident = metrics_get(w->metrics, METRIC_PROCESS_RSS),
		.peak = peak == MEMLIMIT_NONE ? 0 : peak,
		.arena_used = arena_used(w->arena),
		.samples_held = held_bytes,
		.index = dataset_memory_bytes(w->dataset),
		.tables = table_bytes + arena_table_bytes(w->arena),
	};
}
