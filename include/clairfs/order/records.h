/* SPDX-License-Identifier: Apache-2.0 */
/* An order that numbers the records of a dataset's table (order_n_records is not 0), told in records:
 * for plans of parts of files. order.h tells the same order in files. */
#ifndef CLAIRFS_ORDER_RECORDS_H
#define CLAIRFS_ORDER_RECORDS_H

#include "clairfs/base/units.h"
#include "clairfs/order.h"

/* As order_info, of records: n is how many the table has, of which the job numbers order_n_records;
 * start_epoch, epochs, start_step, batch and prefetch_factor are as they were told; outside has the
 * records that it does not number. NULL: the order numbers samples. Borrowed, lives as long as the
 * order; any thread. */
const struct order_info *order_records_info(const struct order *order);

/* As order_epoch_new, of records: n is how many the table has, sample[] are numbers of the table,
 * first[] and next_same[] are of these. It is whole, and `start` is where start_step says. Beside the epoch it
 * takes one transient array of 4 bytes for each position of the world. Also -ENOMEM: it takes more
 * than order_params.memory says is there, which is asked before each array. The order must number
 * records. Freed by order_epoch_free; any thread, if order_params.memory is for any. */
int order_records_epoch_new(const struct order *order, uint64_t epoch, struct order_epoch **ret,
			    struct err *err) MUST_USE;

/* Whether who reads by it goes through the table: most records are near the one that was read before, by
 * the same rank or by the one before it. Told by the head of its first epoch; false where that takes more
 * memory than there is. The order must number records. Any thread, if order_params.memory is for any. */
bool order_records_are_near(const struct order *order);

/* Of an order whose table somebody made up, of records that were found: it has the map of these to units
 * with it, one block of the heap. Set once, before others have it. NULL: the dataset has the map. */
void order_set_units(struct order *order, struct unit_map *take_map);
const struct unit_map *order_units(const struct order *order);

/* Whether it is planned in records: it numbers them, and they are units. files: the map of the dataset. */
bool order_is_in_records(const struct order *order, const struct unit_map *files);

#endif
