/* SPDX-License-Identifier: Apache-2.0 */
/* The budgets of a mount: what was told, else what the limits of this process leave (memlimit.c).
 * What becomes of them while it runs is pressure.c's. */
#include "clairfs/base/log.h"
#include "clairfs/base/text.h"
#include "clairfs/dataset/units.h"
#include "daemon_priv.h"

/* Of a unit of a record that was not found: what the plan and its epochs have for each number. Once it is found
 * and held it takes what any unit takes, about 330 bytes (UNIT_MEMORY of orders.c), and 12 of the order's map.
 * These are not counted here: where memory gets short by them the arena gives way (pressure.c). */
#define RESERVED_BYTES 24u

void budget_derive(const struct mount_opts *opts, const struct dataset *ds,
		   struct memlimit_budget *b)
{
	struct memlimit_wish wish = { .ram = opts->ram,
				      .stage = opts->stage,
				      .inflight = opts->source_max_inflight,
				      .inodes_ahead = opts->inodes_ahead,
				      .n_units = dataset_n_file_units(ds),
				      .n_entries = dataset_n_entries(ds),
				      .sample_bytes = dataset_sample_bytes(ds),
				      .index_bytes = dataset_memory_bytes(ds) +
						     (uint64_t)dataset_n_reserved(ds) * RESERVED_BYTES };
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
			 text_from_bytes(b->ram, ram, sizeof(ram)), dataset_n_samples(ds),
			 text_from_bytes(b->tables, tables, sizeof(tables)),
			 text_from_bytes(b->arena, arena, sizeof(arena)));
}
