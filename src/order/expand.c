/* SPDX-License-Identifier: Apache-2.0 */
/* From an epoch of samples to one of units, where some samples are several (base/units.h). A worker
 * reads the units of a sample one after the other, and all workers read at once. So the units of
 * samples that are read side by side come in turns, as they do when all take their time alike:
 *
 *   two workers, batches of one:    samples       A       B   C         D
 *                                   units         A0 A1   B0  C0 C1 C2  D0
 *                                   expanded      A0 B0 A1 | C0 D0 C1 C2
 *
 * A round is one batch of each worker of each rank: positions that follow each other. It is a
 * stretch of its own. A round whose samples are one unit each stays as it is: its order is the one
 * in which batches are taken. What the job has read before it begins (start) is expanded apart from
 * the rest, so it is the same samples as before. Pure; any thread. */
#include <errno.h>
#include <string.h>

#include "order_priv.h"

/* One worker of one rank in a round. */
struct stream {
	uint64_t next, end; /* positions of its samples: from next on, a rank apart */
	uint64_t at;        /* of the one that it reads */
	uint32_t unit, left;
};

struct expansion {
	const struct order_epoch *from;
	const struct unit_map *map;
	struct order_epoch *to;
	uint64_t ranks, per_batch, per_round; /* positions: n_ranks; batch of all ranks; round */
	struct stream *stream;
};

static uint64_t saturated(uint64_t a, uint64_t b, uint64_t most)
{
	uint64_t product;

	return __builtin_mul_overflow(a, b, &product) ? most : MIN(product, most);
}

static uint64_t units_between(const struct expansion *x, uint64_t from, uint64_t end)
{
	uint64_t units = 0;

	for (uint64_t pos = from; pos < end; pos++)
		units += unit_count(x->map, (struct sample_id){ x->from->sample[pos] });
	return units;
}

/* False: it has no more samples. */
static bool stream_next(const struct expansion *x, struct stream *s)
{
	struct sample_id sample;

	if (s->next >= s->end)
		return false;
	sample.v = x->from->sample[s->next];
	s->unit = unit_first(x->map, sample).v;
	s->left = unit_count(x->map, sample);
	s->at = s->next;
	s->next += x->ranks;
	return true;
}

/* The streams of the round [from, end), in the order in which they begin. */
static uint64_t round_begin(struct expansion *x, uint64_t from, uint64_t end)
{
	uint64_t n = 0;

	for (uint64_t batch = from; batch < end; batch += x->per_batch)
		for (uint64_t first = batch; first < MIN(batch + x->ranks, end); first++) {
			x->stream[n] = (struct stream){ first, MIN(batch + x->per_batch, end),
							first, 0, 0 };
			if (stream_next(x, &x->stream[n]))
				n++;
		}
	return n;
}

static void expand_round(struct expansion *x, uint64_t from, uint64_t end)
{
	uint32_t *out = &x->to->sample[x->to->length];
	uint32_t *place = &x->to->place[x->to->length];
	uint64_t n;

	if (units_between(x, from, end) == end - from) {
		for (uint64_t pos = from; pos < end; pos++) {
			*out++ = unit_first(x->map, (struct sample_id){ x->from->sample[pos] }).v;
			*place++ = (uint32_t)pos;
		}
		x->to->length += end - from;
		return;
	}
	n = round_begin(x, from, end);
	while (n) {
		uint64_t left = 0;

		for (uint64_t i = 0; i < n; i++) {
			struct stream s = x->stream[i];

			*out++ = s.unit++;
			*place++ = (uint32_t)s.at;
			if (--s.left || stream_next(x, &s))
				x->stream[left++] = s; /* the others close up */
		}
		x->to->length += n;
		n = left;
	}
}

static void expand_part(struct expansion *x, uint64_t from, uint64_t end)
{
	for (; from < end; from += x->per_round)
		expand_round(x, from, MIN(from + x->per_round, end));
}

static int expand_all(struct expansion *x, const struct order_info *info)
{
	uint64_t length = x->from->length, units = units_between(x, 0, length);
	uint64_t workers = MAX(info->workers, 1);
	struct err err = { 0 };

	if (units > UINT32_MAX)
		return -EOVERFLOW;
	x->ranks = MIN(MAX(info->n_ranks, 1), MAX(length, 1));
	x->per_batch = saturated(x->ranks, MAX(info->batch, 1), MAX(length, 1));
	x->per_round = saturated(x->per_batch, workers, MAX(length, 1));
	x->stream = mem_alloc(MAX(saturated(x->ranks, workers, length), 1), sizeof(*x->stream));
	x->to->sample = order_alloc_u32(units);
	x->to->place = order_alloc_u32(units);
	x->to->places = length;
	if (!x->stream || !x->to->sample || !x->to->place)
		return -ENOMEM;
	expand_part(x, 0, x->from->start);
	x->to->start = x->to->length;
	expand_part(x, x->from->start, length);
	assert(x->to->length == units);
	x->to->first = order_alloc_u32(x->to->n);
	return x->to->first ? order_index_positions(x->to, NULL, &err) : -ENOMEM;
}

int order_epoch_expand(const struct order_epoch *samples, const struct order_info *info,
		       const struct unit_map *map, struct order_epoch **ret)
{
	struct expansion x = { .from = samples, .map = map };
	int rc;

	assert(map->first && map->n_samples == samples->n && samples->start <= samples->length);
	*ret = NULL;
	x.to = calloc(1, sizeof(*x.to));
	if (!x.to)
		return -ENOMEM;
	x.to->epoch = samples->epoch;
	x.to->n = map->n_units;
	rc = expand_all(&x, info);
	free(x.stream);
	if (rc == 0)
		*ret = x.to;
	else
		order_epoch_free(x.to);
	return rc;
}

/* Sets the bits [from, end). */
static void set_bits(uint64_t *bits, uint64_t from, uint64_t end)
{
	for (; from < end; from++)
		bits[from / 64] |= 1ull << from % 64;
}

/* The unit behind the last one. */
static uint64_t unit_past(const struct unit_map *map, uint32_t i)
{
	struct sample_id sample = { i };

	return (uint64_t)unit_first(map, sample).v + unit_count(map, sample);
}

/* Into ret->inner and the bitmap `outside`, what is set there before is of no sample. */
static void expand_bits(const struct order_info *info, const struct unit_map *map,
			struct order_info *ret, uint64_t *inner, uint64_t *outside)
{
	for (uint32_t i = 0; i < map->n_samples; i++) {
		uint64_t first = unit_first(map, (struct sample_id){ i }).v,
			 end = unit_past(map, i);

		set_bits(inner, first + 1, end);
		if (info->outside && info->outside[i / 64] >> i % 64 & 1) {
			set_bits(outside, first, end);
		} else {
			ret->samples++;
			ret->units += end - first;
		}
	}
}

/* Units that are of no sample, or of none that the order numbers. */
static bool expand_unnumbered(const struct order_info *info, const struct unit_map *map,
			      uint64_t *outside)
{
	uint64_t left = map->n_units;

	set_bits(outside, 0, map->n_units);
	for (uint32_t i = 0; i < map->n_samples; i++) {
		if (info->outside && info->outside[i / 64] >> i % 64 & 1)
			continue;
		for (uint64_t u = unit_first(map, (struct sample_id){ i }).v;
		     u < unit_past(map, i); u++) {
			left -= outside[u / 64] >> u % 64 & 1;
			outside[u / 64] &= ~(1ull << u % 64);
		}
	}
	return left > 0;
}

int order_info_expand(const struct order_info *info, const struct unit_map *map,
		      struct order_info *ret, uint64_t **ret_bits)
{
	uint64_t words = (uint64_t)map->n_units / 64 + 1, *bits = calloc(2 * words, sizeof(*bits));
	bool has_outside = info->outside != NULL;

	assert(map->first && map->n_samples == info->n);
	*ret_bits = NULL;
	if (!bits)
		return -ENOMEM;
	*ret = *info;
	ret->n = map->n_units;
	ret->start_step = 0;
	ret->samples = ret->units = 0;
	ret->inner = bits;
	expand_bits(info, map, ret, bits, bits + words);
	if (map->past || map->later) /* a unit may be of several samples, or of none */
		has_outside = expand_unnumbered(info, map, bits + words);
	ret->outside = has_outside ? bits + words : NULL;
	*ret_bits = bits;
	if (ret->units == ret->samples) { /* what is cut is not what it reads */
		ret->inner = NULL;
		ret->units = ret->samples = 0;
	}
	return 0;
}
