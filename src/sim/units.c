/* SPDX-License-Identifier: Apache-2.0 */
/* Samples larger than a unit: what caches hold, fetch and drop are units then, and the workers read
 * those of a sample one after the other. Ranks are dealt samples all the same. So a job has each
 * epoch twice: in samples, as it is dealt (setup_dealt), and in units, as the models have it, by the
 * same expansion as in the daemon. Where no sample is cut both are one. */
#include <errno.h>

#include "sim_priv.h"

static int cut_sizes(struct sim_setup *s, const uint32_t *first, uint32_t n_units)
{
	uint64_t *size = malloc((uint64_t)n_units * sizeof(*size));

	if (!size)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->n; i++) {
		uint64_t left = s->size[i];

		bool is_whole = unit_cut(left) == 1;

		for (uint32_t u = first[i]; u < first[i + 1]; u++) {
			size[u] = is_whole ? left : MIN(left, UNIT_BYTES);
			left -= size[u];
		}
	}
	free(s->size);
	s->size = size;
	s->smallest = UINT64_MAX;
	s->largest = 0;
	for (uint32_t u = 0; u < n_units; u++) {
		s->smallest = MIN(s->smallest, size[u]);
		s->largest = MAX(s->largest, size[u]);
	}
	return 0;
}

int setup_cut(struct sim_setup *s, struct err *err)
{
	uint64_t n = 0;
	uint32_t *first;

	s->map = (struct unit_map){ .n_samples = s->n, .n_units = s->n };
	s->largest_sample = s->largest;
	s->n_valid_units = s->n_valid;
	if (unit_cut(s->largest) == 1)
		return 0;
	for (uint32_t i = 0; i < s->n; i++)
		n += unit_cut(s->size[i]);
	if (n > UINT32_MAX - 2)
		return err_set(err, -EINVAL, "the dataset has more than 2^32 parts of 4 MiB");
	s->first = first = malloc(((size_t)s->n + 1) * sizeof(*first));
	if (!first)
		return err_set_errno(err, -ENOMEM, "units");
	first[0] = 0;
	for (uint32_t i = 0; i < s->n; i++)
		first[i + 1] = first[i] + (uint32_t)unit_cut(s->size[i]);
	if (cut_sizes(s, first, (uint32_t)n) < 0)
		return err_set_errno(err, -ENOMEM, "units");
	s->map.n_units = (uint32_t)n;
	s->map.first = first;
	s->n = (uint32_t)n;
	s->n_valid_units = 0;
	for (uint64_t i = 0; i < s->n_valid; i++)
		s->n_valid_units += unit_count(&s->map, (struct sample_id){ s->valid[i] });
	return 0;
}

/* As the loader reads it, which an order need not say. */
static struct order_info expansion_info(const struct sim_setup *s, uint32_t job)
{
	struct order_info info = *order_info(s->order[job]);

	info.batch = s->batch;
	info.workers = s->workers;
	return info;
}

struct order_epoch *setup_expand(const struct sim_setup *s, uint32_t job, uint64_t index,
				 const struct order_epoch *dealt, struct err *err)
{
	struct order_info info = expansion_info(s, job);
	struct order_epoch part = *dealt, *ep = NULL, *valid = NULL;
	int rc;

	part.length = setup_end(s, dealt, index);
	part.start = MIN(setup_start(s, job, index), part.length);
	rc = order_epoch_expand(&part, &info, &s->map, &ep);
	if (rc == 0 && part.length < dealt->length) {
		part.sample += part.length;
		part.length = dealt->length - part.length;
		part.start = 0;
		rc = order_epoch_expand(&part, &info, &s->map, &valid);
		if (rc == 0 && !setup_append(ep, valid->sample, valid->length))
			rc = -ENOMEM;
		if (rc == 0) /* not of what was appended */
			free(TAKE(ep->place));
	}
	order_epoch_free(valid);
	if (rc == 0)
		return ep;
	order_epoch_free(ep);
	err_set_errno(err, rc, "epoch %llu in units", (unsigned long long)index);
	return NULL;
}

struct order_epoch *setup_epoch(const struct sim_setup *s, uint32_t job, uint64_t index,
				struct err *err)
{
	struct order_epoch *dealt = setup_dealt(s, job, index, err), *ep;

	if (!dealt || !s->map.first)
		return dealt;
	ep = setup_expand(s, job, index, dealt, err);
	order_epoch_free(dealt);
	return ep;
}

/* Positions of a sample before this one. */
static uint64_t times_before(const struct order_epoch *ep, uint64_t pos)
{
	uint64_t times = 0;

	for (uint32_t at = ep->first[ep->sample[pos]]; at != pos; at = ep->next_same[at])
		times++;
	return times;
}

uint64_t setup_unit_pos(const struct order_epoch *dealt, const struct order_epoch *ep, uint64_t pos,
			uint32_t unit)
{
	uint64_t times = times_before(dealt, pos);
	uint32_t at = ep->first[unit];

	while (times--)
		at = ep->next_same[at];
	return at;
}

uint64_t setup_from(const struct sim_setup *s, uint32_t job, uint64_t index,
		    const struct order_epoch *ep)
{
	return s->map.first ? ep->start : setup_start(s, job, index);
}
