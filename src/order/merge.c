/* SPDX-License-Identifier: Apache-2.0 */
/* From the common sequence of an epoch to what ranks read of it: one rank alone, the local ranks
 * merged, all of it or only the beginning.
 *
 * Ranks are read in chunks so that a common sequence of any size is walked once, not once per rank.
 * A beginning is made without the rest where the kind can: the first samples of torch's permutation
 * of 10^9 take as many draws as samples. Pure; any thread. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "order_priv.h"

#define CHUNK 256 /* samples of a rank merged at a time */

uint64_t order_rank_length(const struct order *order, const struct order_span *common,
			   uint64_t rank)
{
	return order->kind->rank_length
		       ? order->kind->rank_length(order, common->epoch, common->length, rank)
		       : common->length;
}

/* Does the one rank there is read the common sequence as it stands? */
bool order_reads_whole(const struct order *order)
{
	return !order->kind->rank_read || order->is_whole;
}

/* Length of the common sequence, if positions can be counted. */
static int countable_length(const struct order *order, uint64_t epoch, uint64_t *ret,
			    struct err *err)
{
	int rc = order_common_length(order, epoch, ret, err);

	if (rc < 0)
		return rc;
	if (*ret > UINT32_MAX)
		return err_set(err, -EOVERFLOW,
			       "epoch %" PRIu64 " has %" PRIu64 " positions, more than 2^32-1",
			       epoch, *ret);
	return 0;
}

int order_common_new(const struct order *order, uint64_t epoch, uint32_t **ret_sample,
		     struct order_span *ret, struct err *err)
{
	uint32_t *sample AUTO_FREE = NULL;
	uint64_t length;
	int rc = countable_length(order, epoch, &length, err);

	if (rc < 0)
		return rc;
	sample = order_alloc_u32(length);
	if (!sample)
		return err_set(err, -ENOMEM, "out of memory for an epoch of %" PRIu64 " samples",
			       length);
	rc = order->kind->common_fill(order, epoch, length, sample, err);
	if (rc < 0)
		return rc;
	*ret = (struct order_span){ .epoch = epoch, .sample = sample, .length = length };
	*ret_sample = TAKE(sample);
	return 0;
}

static void read_rank(const struct order *order, const struct order_span *common, uint64_t rank,
		      uint64_t length, uint32_t *out)
{
	for (uint64_t from = 0; from < length; from += CHUNK)
		order->kind->rank_read(order, common, rank, from,
				       (uint32_t)MIN(length - from, CHUNK), out + from);
}

/* Merges rows [row, row + CHUNK) of all local ranks to `out`; returns the number of samples
 * written. */
static uint64_t merge_chunk(const struct order *order, const struct order_span *common,
			    const uint64_t *length, uint64_t row, uint32_t *out)
{
	uint32_t read[CHUNK];
	uint64_t width[CHUNK] = {
		0
	}; /* ranks in each row, then where the row's next sample goes */
	uint64_t at = 0;

	for (uint32_t r = 0; r < order->info.n_ranks; r++)
		for (uint64_t i = 0; i < CHUNK && row + i < length[r]; i++)
			width[i]++;
	for (uint64_t i = 0; i < CHUNK; i++) {
		uint64_t start = at;

		at += width[i];
		width[i] = start;
	}
	for (uint32_t r = 0; r < order->info.n_ranks; r++) {
		uint32_t count = row < length[r] ? (uint32_t)MIN(length[r] - row, CHUNK) : 0;

		if (count > 0)
			order->kind->rank_read(order, common, order->ranks[r], row, count, read);
		for (uint32_t i = 0; i < count; i++)
			out[width[i]++] = read[i];
	}
	return at;
}

int order_merge(const struct order *order, const struct order_span *common, uint64_t rows,
		uint32_t **ret_sample, uint64_t *ret_length, struct err *err)
{
	uint64_t *length AUTO_FREE = malloc(order->info.n_ranks * sizeof(*length));
	uint64_t longest = 0, all = 0, at = 0;
	uint32_t *sample;

	if (!length)
		return err_set(err, -ENOMEM, "out of memory");
	for (uint32_t r = 0; r < order->info.n_ranks; r++) {
		length[r] = MIN(order_rank_length(order, common, order->ranks[r]), rows);
		longest = MAX(longest, length[r]);
		all += length[r];
	}
	if (all > UINT32_MAX)
		return err_set(err, -EOVERFLOW,
			       "epoch %" PRIu64 " has %" PRIu64 " positions, more than 2^32-1",
			       common->epoch, all);
	sample = order_alloc_u32(all);
	if (!sample)
		return err_set(err, -ENOMEM, "out of memory for an epoch of %" PRIu64 " positions",
			       all);
	if (order->info.n_ranks == 1)
		read_rank(order, common, order->ranks[0], longest, sample);
	for (uint64_t row = 0; order->info.n_ranks > 1 && row < longest; row += CHUNK)
		at += merge_chunk(order, common, length, row, sample + at);
	*ret_sample = sample;
	*ret_length = all;
	return 0;
}

/* --- the beginning of an epoch --- */

/* Samples in the first rows of the local ranks. */
static uint64_t samples_in(const struct order *order, const struct order_span *common,
			   uint64_t rows)
{
	uint64_t n = 0;

	for (uint32_t r = 0; r < order->info.n_ranks; r++)
		n += MIN(order_rank_length(order, common, order->ranks[r]), rows);
	return n;
}

/* How many samples of each rank the first `count` of the merged sequence need. Each step adds at
 * most what is missing. */
static uint64_t rows_for(const struct order *order, const struct order_span *common, uint64_t count)
{
	uint64_t rows = 0, have = 0;

	count = MIN(count, samples_in(order, common, UINT64_MAX));
	while (have < count) {
		rows += DIV_ROUND_UP(count - have, order->info.n_ranks);
		have = samples_in(order, common, rows);
	}
	return rows;
}

/* How much of the common sequence the first rows of all ranks are read from. */
static uint64_t head_reach(const struct order *order, const struct order_span *common,
			   uint64_t rows)
{
	uint64_t reach = common->length;

	if (order_reads_whole(order))
		reach = rows;
	else if (order->kind->head_reach)
		reach = order->kind->head_reach(order, common->length, rows);
	return MIN(reach, common->length);
}

/* The beginning of the common sequence that the first rows of all ranks are read from: in
 * common->sample, as if the rest were there. The caller frees *ret_sample. */
static int head_new(const struct order *order, uint64_t rows, struct order_span *common,
		    uint32_t **ret_sample, struct err *err)
{
	const struct order_kind *kind = order->kind;
	uint64_t reach = head_reach(order, common, rows);
	uint32_t *sample AUTO_FREE = NULL;
	int rc;

	if (!kind->head_fill || reach >= common->length)
		return order_common_new(order, common->epoch, ret_sample, common, err);
	sample = order_alloc_u32(reach);
	if (!sample)
		return err_set(err, -ENOMEM, "out of memory for %" PRIu64 " samples", reach);
	rc = kind->head_fill(order, common, reach, sample, err);
	if (rc < 0)
		return rc;
	common->sample = sample;
	*ret_sample = TAKE(sample);
	return 0;
}

static int check_rank(const struct order *order, uint64_t rank, struct err *err)
{
	return rank < order->info.world
		       ? 0
		       : err_set(err, -EINVAL,
				 "rank %" PRIu64 " is outside the world of %" PRIu64
				 ", ranks count from 0",
				 rank, order->info.world);
}

/* Samples of one rank: `length` at most. */
static int rank_new(const struct order *order, const struct order_span *common, uint64_t rank,
		    uint64_t length, uint32_t **ret, struct err *err)
{
	*ret = order_alloc_u32(length);
	if (!*ret)
		return err_set(err, -ENOMEM, "out of memory for an epoch of %" PRIu64 " samples",
			       length);
	read_rank(order, common, rank, length, *ret);
	return 0;
}

int order_head(const struct order *order, const struct order_part *part, uint32_t **ret_sample,
	       uint64_t *ret_length, struct err *err)
{
	struct order_span common = { .epoch = part->epoch };
	uint32_t *all AUTO_FREE = NULL;
	uint64_t rows, length = 0;
	int rc = part->has_rank ? check_rank(order, part->rank, err) : 0;

	*ret_sample = NULL;
	*ret_length = 0;
	if (rc == 0)
		rc = countable_length(order, part->epoch, &common.length, err);
	if (rc < 0)
		return rc;
	if (order_reads_whole(order))
		rows = MIN(part->count, common.length);
	else if (part->has_rank)
		rows = MIN(part->count, order_rank_length(order, &common, part->rank));
	else
		rows = rows_for(order, &common, part->count);
	rc = head_new(order, rows, &common, &all, err);
	if (rc < 0)
		return rc;
	length = rows;
	if (order_reads_whole(order))
		*ret_sample = TAKE(all);
	else if (part->has_rank)
		rc = rank_new(order, &common, part->rank, rows, ret_sample, err);
	else
		rc = order_merge(order, &common, rows, ret_sample, &length, err);
	if (rc < 0)
		return rc;
	*ret_length = MIN(length, part->count);
	order_renumber(order, *ret_sample, *ret_length);
	return 0;
}

uint64_t order_head_bytes(const struct order *order, const struct order_part *part)
{
	struct order_span common = { .epoch = part->epoch };
	struct err ignored = { 0 };
	uint64_t rows, all, out;
	int rc = countable_length(order, part->epoch, &common.length, &ignored);

	if (rc < 0)
		return 0;
	rows = order_reads_whole(order) || part->has_rank
		       ? MIN(part->count, common.length)
		       : rows_for(order, &common, part->count);
	all = order->kind->head_fill ? head_reach(order, &common, rows) : common.length;
	out = order_reads_whole(order) ? 0
	      : part->has_rank	       ? rows
				       : samples_in(order, &common, rows);
	return (all + out) * sizeof(uint32_t);
}

int order_rank_epoch(const struct order *order, uint64_t epoch, uint64_t rank,
		     uint32_t **ret_sample, uint64_t *ret_length, struct err *err)
{
	struct order_part part = {
		.epoch = epoch, .count = UINT64_MAX, .has_rank = true, .rank = rank
	};

	return order_head(order, &part, ret_sample, ret_length, err);
}
