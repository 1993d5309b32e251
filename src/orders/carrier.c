/* SPDX-License-Identifier: Apache-2.0 */
/* What carries orders out, as this module sees it: the drive. A test brings one of its own and steps
 * the owner without threads. */
#include "clairfs/cache.h"
#include "orders_priv.h"

static uint32_t carrier_get_jobs(void *drive, struct drive_job ret[PLAN_JOBS])
{
	return drive_get_jobs(drive, ret);
}

static int carrier_add(void *drive, struct order *take_order, uint32_t instead_of, uint32_t *ret_id)
{
	return drive_add_order(drive, take_order, instead_of, ret_id);
}

static int carrier_end(void *drive, uint32_t id, const char *why)
{
	return drive_end_order(drive, id, why);
}

static int carrier_clear(void *drive)
{
	return drive_set_order(drive, NULL);
}

static uint32_t carrier_generation(void *drive)
{
	return drive_generation(drive);
}

static uint32_t carrier_last_opens(void *drive, struct sample_id *ret, uint32_t max)
{
	return drive_last_opens(drive, ret, max);
}

static uint32_t carrier_reader_of(void *drive, struct sample_id sample)
{
	return drive_reader_of(drive, sample);
}

static void carrier_cut(void *drive, struct entry_id entry)
{
	drive_note_cut(drive, entry);
}

static void carrier_come(void *drive, const struct unit_id *unit, size_t n)
{
	drive_note_come(drive, unit, n);
}

const struct carrier carrier_drive = { .get_jobs = carrier_get_jobs,
				       .add = carrier_add,
				       .end = carrier_end,
				       .clear = carrier_clear,
				       .generation = carrier_generation,
				       .last_opens = carrier_last_opens,
				       .reader_of = carrier_reader_of,
				       .cut = carrier_cut,
				       .come = carrier_come };
