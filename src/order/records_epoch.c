/* SPDX-License-Identifier: Apache-2.0 */
/* Orders of records as plans of parts of files need them: what was told, and whole epochs, with where
 * each record of the table stands. records.c makes epochs of files of the same. How many records there
 * are is what a file claims, so memory is asked for before each array is made. Any thread, but for
 * order_records_describe, which is set-up code. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "clairfs/order/records.h"
#include "order_priv.h"

enum { NEAR_MOST = 8, NEAR_PART = 64, NEAR_STEPS = 4096 };

static uint64_t table_records(const struct order *order)
{
	return order->records.first[order->records.n];
}

/* Bitmap of the records that the map does not lead to; NULL: all are numbered. */
static int list_outside(struct order *order, uint64_t **ret)
{
	uint64_t n = table_records(order), bytes = DIV_ROUND_UP(n, 64) * sizeof(**ret);

	*ret = NULL;
	if (!order->map || order->info.n == n)
		return 0;
	*ret = malloc(bytes);
	if (!*ret)
		return -ENOMEM;
	memset(*ret, 0xff, bytes);
	for (uint64_t i = 0; i < order->info.n; i++)
		(*ret)[order->map[i] / 64] &= ~(1ull << order->map[i] % 64);
	return 0;
}

int order_records_describe(struct order *order)
{
	int rc = list_outside(order, &order->records_outside);

	order->of_records = order->info;
	order->of_records.n = table_records(order);
	order->of_records.outside = order->records_outside;
	return rc;
}

const struct order_info *order_records_info(const struct order *order)
{
	return order->records.n > 0 ? &order->of_records : NULL;
}

bool order_is_in_records(const struct order *order, const struct unit_map *files)
{
	return order_n_records(order) > 0 && (files->of_records || order_units(order));
}

void order_set_units(struct order *order, struct unit_map *take_map)
{
	assert(!order->units && take_map->n_samples == order->of_records.n);
	order->units = take_map;
}

const struct unit_map *order_units(const struct order *order)
{
	return order->units;
}

static int records_fill(const struct order *order, struct order_epoch *e, struct err *err)
{
	const struct order_part all = { .epoch = e->epoch, .count = UINT64_MAX };
	int rc = order_check_memory(order->memory, order_head_bytes(order, &all), err);

	if (rc == 0)
		rc = order_head(order, &all, &e->sample, &e->length, err);
	if (rc == 0)
		rc = order_check_memory(order->memory, (uint64_t)e->n * sizeof(*e->first), err);
	if (rc < 0)
		return rc;
	e->start = order_epoch_start(&order->of_records, e);
	e->first = order_alloc_u32(e->n);
	if (!e->first)
		return err_set(err, -ENOMEM, "out of memory for an epoch of %" PRIu64 " positions",
			       e->length);
	return order_index_positions(e, order->memory, err);
}

/* How far apart records are near: of few records many are so by chance. */
static uint64_t near_most(uint64_t n_records)
{
	return MIN(MAX(n_records / NEAR_PART, (uint64_t)1), (uint64_t)NEAR_MOST);
}

static bool are_near(uint32_t a, uint32_t b, uint64_t most)
{
	return (a < b ? b - a : a - b) <= most;
}

bool order_records_are_near(const struct order *order)
{
	const struct order_info *info = &order->of_records;
	uint64_t lag = MAX(info->n_ranks, 1u), most = near_most(table_records(order));
	const struct order_part head = { .epoch = info->start_epoch, .count = NEAR_STEPS * lag };
	uint32_t *record AUTO_FREE = NULL;
	uint64_t length = 0, n_near = 0;
	struct err err = { 0 };

	assert(order->records.n > 0);
	if (order_check_memory(order->memory, order_head_bytes(order, &head), &err) < 0 ||
	    order_head(order, &head, &record, &length, &err) < 0)
		return false;
	for (uint64_t i = lag; i < length; i++)
		n_near += are_near(record[i], record[i - 1], most) ||
			  are_near(record[i], record[i - lag], most);
	return length > lag && n_near > (length - lag) / 2;
}

int order_records_epoch_new(const struct order *order, uint64_t epoch, struct order_epoch **ret,
			    struct err *err)
{
	struct order_epoch *e = calloc(1, sizeof(*e));
	int rc;

	assert(order->records.n > 0);
	*ret = NULL;
	if (!e)
		return err_set(err, -ENOMEM, "out of memory");
	e->epoch = epoch;
	e->n = (uint32_t)table_records(order);
	rc = records_fill(order, e, err);
	if (rc < 0) {
		order_epoch_free(e);
		return rc;
	}
	*ret = e;
	return 0;
}
