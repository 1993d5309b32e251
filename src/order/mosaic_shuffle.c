/* SPDX-License-Identifier: Apache-2.0 */
/* MosaicML Streaming's shuffles. All but naive shuffle the shards once for the whole run, cut that
 * list into equal parts, one for each canonical node (a shard may be cut in two), shuffle the
 * pieces of each part anew each epoch, and then differ:
 *
 *   py1s   shuffles the samples within each piece
 *   py2s   shuffles the samples within each shard for the run, and within each piece for the epoch
 *   py1br  shuffles the samples of a part in blocks of random length and random start
 *   py1e   shuffles within each piece, then moves each sample by a random distance and sorts
 *
 * Two samples of py1e that move to exactly the same place are left as they were (numpy's sort does
 * not say; 53 random bits make it a matter of once in hundreds of epochs of 10^7 samples).
 *
 * Both generators are numpy's default_rng. The sequence of draws is the algorithm: it must not
 * draw what Streaming does not. Pure; any thread. */
#include <errno.h>
#include <string.h>

#include "mosaic.h"
#include "order_priv.h"
#include "perm.h"

#define COARSE 256 /* places that are sorted together: what the first cache holds */

/* Part of a shard: samples [begin, begin + size). */
struct span {
	uint32_t begin, size;
};

struct work {
	const struct mosaic_shuffle *shuffle;
	struct span *span; /* [n_spans] in the sequence of the parts */
	uint32_t n_spans;
	uint32_t *part_end;    /* [canonical] first span behind each part */
	uint32_t *index;       /* [n_spans] scratch of shuffle_spans */
	struct span *shuffled; /* [n_spans] likewise */
	struct pcg64 rng;      /* of the epoch */
};

static void work_fini(struct work *w)
{
	free(w->span);
	free(w->part_end);
	free(w->index);
	free(w->shuffled);
}

static void shuffle_spans(struct work *w, uint32_t from, uint32_t to, struct pcg64 *rng)
{
	uint32_t n = to - from;

	perm_identity(w->index, n);
	shuffle_numpy_pcg64(w->index, n, rng);
	for (uint32_t i = 0; i < n; i++)
		w->shuffled[i] = w->span[from + w->index[i]];
	memcpy(w->span + from, w->shuffled, n * sizeof(*w->span));
}

/* Cuts the shards at the ends of the parts. */
static void divide(struct work *w, const struct span *shard, uint32_t n_shards)
{
	uint64_t n = w->shuffle->n, canonical = w->shuffle->canonical, so_far = 0;
	struct span rest = { 0 };
	uint32_t s = 0;

	for (uint64_t part = 0; part < canonical; part++) {
		uint64_t end = n * (part + 1) / canonical;

		while (so_far < end && (rest.size > 0 || s < n_shards)) {
			uint32_t take;

			if (rest.size == 0)
				rest = shard[s++];
			take = (uint32_t)MIN(rest.size, end - so_far);
			w->span[w->n_spans++] = (struct span){ rest.begin, take };
			rest.begin += take;
			rest.size -= take;
			so_far += take;
		}
		w->part_end[part] = w->n_spans;
	}
}

/* The shards of the run. `samples` (py2s): shuffled in itself along with them. */
static int work_init(struct work *w, const struct mosaic_shuffle *shuffle, uint32_t *samples,
		     struct err *err)
{
	uint32_t n_shards = shuffle->shards.n, begin = 0;
	uint64_t most = (uint64_t)n_shards + shuffle->canonical;
	struct span *shard AUTO_FREE = NULL;
	struct pcg64 rng;

	*w = (struct work){
		.shuffle = shuffle,
		.span = malloc(most * sizeof(*w->span)),
		.part_end = order_alloc_u32(shuffle->canonical),
		.index = order_alloc_u32(most),
		.shuffled = malloc(most * sizeof(*w->shuffled)),
	};
	shard = malloc(most * sizeof(*shard));
	if (!w->span || !w->part_end || !w->index || !w->shuffled || !shard)
		return err_set(err, -ENOMEM, "out of memory for %u shards", n_shards);
	for (uint32_t i = 0; i < n_shards; i++) {
		w->span[i] = (struct span){ begin, shuffle->shards.size[i] };
		begin += shuffle->shards.size[i];
	}
	pcg64_seed(&rng, shuffle->seed);
	shuffle_spans(w, 0, n_shards, &rng);
	memcpy(shard, w->span, n_shards * sizeof(*shard));
	for (uint32_t i = 0; samples && i < n_shards; i++)
		shuffle_numpy_pcg64(samples + shard[i].begin, shard[i].size, &rng);
	divide(w, shard, n_shards);
	return 0;
}

static uint32_t part_begin(const struct work *w, uint32_t part)
{
	return part > 0 ? w->part_end[part - 1] : 0;
}

/* Writes the samples of a span; returns behind the last. */
static uint32_t *put_span(struct span span, uint32_t *out)
{
	for (uint32_t i = 0; i < span.size; i++)
		out[i] = span.begin + i;
	return out + span.size;
}

/* Generator.integers(low, high) for one number; 0 < high - low < 2^32. */
static uint64_t integers(struct pcg64 *rng, uint64_t low, uint64_t high)
{
	uint32_t range = (uint32_t)(high - low);
	uint64_t product;

	if (range == 1)
		return low; /* numpy does not draw */
	product = (uint64_t)pcg64_u32(rng) * range;
	if ((uint32_t)product < range)
		while ((uint32_t)product < -range % range)
			product = (uint64_t)pcg64_u32(rng) * range;
	return low + (product >> 32);
}

/* Three and five quarters of the block, rounded down as Python's int() does. */
static uint64_t random_block(const struct mosaic_shuffle *shuffle, struct pcg64 *rng)
{
	return integers(rng, shuffle->block * 3 / 4, shuffle->block * 5 / 4);
}

static void fill_py1s(struct work *w, uint32_t *out)
{
	for (uint32_t i = 0; i < w->n_spans; i++) {
		uint32_t *end = put_span(w->span[i], out);

		shuffle_numpy_pcg64(out, w->span[i].size, &w->rng);
		out = end;
	}
}

/* The pieces of a part are shuffled, then their samples, before the next part. */
static void fill_py2s(struct work *w, uint32_t *samples, uint32_t *out)
{
	for (uint32_t part = 0; part < w->shuffle->canonical; part++) {
		shuffle_spans(w, part_begin(w, part), w->part_end[part], &w->rng);
		for (uint32_t i = part_begin(w, part); i < w->part_end[part]; i++) {
			shuffle_numpy_pcg64(samples + w->span[i].begin, w->span[i].size, &w->rng);
			memcpy(out, samples + w->span[i].begin, w->span[i].size * sizeof(*out));
			out += w->span[i].size;
		}
	}
}

/* Blocks of a part of n samples: all lengths are drawn before the first block is shuffled, so they
 * are drawn twice. The first block is cut off at the front by `stagger`, and blocks overlap. */
static void shuffle_blocks(struct work *w, uint64_t stagger, uint64_t n, uint32_t *part)
{
	struct pcg64 lengths = w->rng;

	for (unsigned pass = 0; pass < 2; pass++) {
		uint64_t end = 0;

		while (end < n) {
			uint64_t length = random_block(w->shuffle, pass ? &lengths : &w->rng);
			uint64_t from = end > stagger ? end - stagger : 0;
			uint64_t to = MIN(end + length - stagger, n);

			if (pass)
				shuffle_numpy_pcg64(part + from, (uint32_t)(to - from), &w->rng);
			end += to - from;
		}
	}
}

static int fill_py1br(struct work *w, uint32_t *out, struct err *err)
{
	uint32_t *stagger AUTO_FREE = order_alloc_u32(w->shuffle->canonical);

	if (!stagger)
		return err_set(err, -ENOMEM, "out of memory");
	for (uint32_t part = 0; part < w->shuffle->canonical; part++)
		stagger[part] = (uint32_t)integers(&w->rng, 0, w->shuffle->block * 3 / 4);
	for (uint32_t part = 0; part < w->shuffle->canonical; part++) {
		uint32_t *end = out;

		for (uint32_t i = part_begin(w, part); i < w->part_end[part]; i++)
			end = put_span(w->span[i], end);
		shuffle_blocks(w, stagger[part], (uint64_t)(end - out), out);
		out = end;
	}
	return 0;
}

/* Scratch of py1e, for the samples of a part. Those that move to [k * COARSE, (k + 1) * COARSE) are
 * gathered, in the sequence in which they stood, and then sorted among themselves. */
struct moved {
	double *place;    /* [n] where a sample moves to, in [0, n] */
	uint32_t *sample; /* [n] likewise */
	uint32_t *end;    /* [n / COARSE + 1] samples of each group, then where its next one goes */
};

static void moved_fini(struct moved *m)
{
	free(m->place);
	free(m->sample);
	free(m->end);
}

/* A span within its part of n samples. */
struct moving {
	uint32_t offset, size, n;
};

/* Moves the samples of a span by up to half of what a random block is larger than it, and not out
 * of the part. Counts the groups, or fills them. */
static inline __attribute__((always_inline)) void move_span(struct work *w, const struct moved *m,
							    struct moving span,
							    const uint32_t *sample, bool is_filling)
{
	double room = ((double)random_block(w->shuffle, &w->rng) - span.size) / 2;
	double low, high;

	if (room < 0)
		room = 0;
	low = MAX(-room, -(double)span.offset);
	high = MIN(room, (double)(span.n - span.offset - span.size));
	for (uint32_t i = 0; i < span.size; i++) {
		/* Rounded like numpy's: the product may not be fused with the sum. */
		volatile double shift =
			(high - low) * ((double)(pcg64_u64(&w->rng) >> 11) * 0x1p-53);
		double place = (double)(span.offset + i) + (low + shift);
		uint32_t *end = &m->end[(uint32_t)place / COARSE];

		if (is_filling) {
			m->place[*end] = place;
			m->sample[*end] = sample[span.offset + i];
		}
		++*end;
	}
}

/* Sorts m->sample[0, n) by m->place, both of a group that starts at place `base`, to out; equal
 * places keep their sequence. First by the whole number, then by insertion: there is about one
 * sample to a number. */
static void sort_group(const double *place, const uint32_t *sample, uint32_t n, uint32_t base,
		       double *sorted, uint32_t *out)
{
	uint32_t at[COARSE + 2] = { 0 };

	for (uint32_t i = 0; i < n; i++)
		at[(uint32_t)place[i] - base + 1]++;
	for (uint32_t k = 0; k <= COARSE; k++)
		at[k + 1] += at[k];
	for (uint32_t i = 0; i < n; i++) {
		uint32_t to = at[(uint32_t)place[i] - base]++;

		sorted[to] = place[i];
		out[to] = sample[i];
	}
	for (uint32_t i = 1; i < n; i++) {
		double p = sorted[i];
		uint32_t s = out[i], k = i;

		for (; k > 0 && sorted[k - 1] > p; k--) {
			sorted[k] = sorted[k - 1];
			out[k] = out[k - 1];
		}
		sorted[k] = p;
		out[k] = s;
	}
}

/* Gathers the samples of a part in groups. The places are drawn twice, first to count. */
static void gather(struct work *w, const struct moved *m, uint32_t part, uint32_t n,
		   const uint32_t *sample)
{
	uint32_t groups = n / COARSE + 1, at = 0;
	struct pcg64 again = w->rng;

	memset(m->end, 0, groups * sizeof(*m->end));
	for (unsigned pass = 0; pass < 2; pass++) {
		struct moving span = { .n = n };

		for (uint32_t i = part_begin(w, part); i < w->part_end[part]; i++) {
			span.size = w->span[i].size;
			if (pass)
				move_span(w, m, span, sample, true);
			else
				move_span(w, m, span, sample, false);
			span.offset += span.size;
		}
		if (pass)
			return;
		w->rng = again;
		for (uint32_t g = 0; g < groups; g++) {
			uint32_t start = at;

			at += m->end[g];
			m->end[g] = start;
		}
	}
}

static int fill_py1e_part(struct work *w, const struct moved *m, uint32_t part, uint32_t n,
			  uint32_t *out, struct err *err)
{
	double *sorted AUTO_FREE = NULL;
	uint32_t offset = 0, largest = 1;

	for (uint32_t i = part_begin(w, part); i < w->part_end[part]; i++) {
		put_span(w->span[i], out + offset);
		shuffle_numpy_pcg64(out + offset, w->span[i].size, &w->rng);
		offset += w->span[i].size;
	}
	gather(w, m, part, n, out);
	for (uint32_t g = 0; g <= n / COARSE; g++)
		largest = MAX(largest, m->end[g] - (g > 0 ? m->end[g - 1] : 0));
	sorted = malloc(largest * sizeof(*sorted));
	if (!sorted)
		return err_set(err, -ENOMEM, "out of memory");
	for (uint32_t g = 0; g <= n / COARSE; g++) {
		uint32_t from = g > 0 ? m->end[g - 1] : 0;

		sort_group(m->place + from, m->sample + from, m->end[g] - from, g * COARSE, sorted,
			   out + from);
	}
	return 0;
}

static int fill_py1e(struct work *w, uint32_t *out, struct err *err)
{
	uint64_t n = w->shuffle->n, canonical = w->shuffle->canonical;
	uint64_t most = DIV_ROUND_UP(n, canonical), begin = 0;
	struct moved m = {
		.place = (double *)order_alloc_u32(2 * most),
		.sample = order_alloc_u32(most),
		.end = order_alloc_u32(most / COARSE + 1),
	};
	int rc = 0;

	if (!m.place || !m.sample || !m.end)
		rc = err_set(err, -ENOMEM, "out of memory for %u samples", w->shuffle->n);
	for (uint64_t part = 0; rc == 0 && part < canonical; part++) {
		uint64_t end = n * (part + 1) / canonical;

		rc = fill_py1e_part(w, &m, (uint32_t)part, (uint32_t)(end - begin), out + begin,
				    err);
		begin = end;
	}
	moved_fini(&m);
	return rc;
}

static int mosaic_fill(struct work *w, uint32_t *samples, uint64_t epoch, uint32_t *out,
		       struct err *err)
{
	enum mosaic_algorithm algorithm = w->shuffle->algorithm;

	pcg64_seed(&w->rng, (unsigned __int128)w->shuffle->seed + epoch);
	if (algorithm == MOSAIC_PY2S) {
		fill_py2s(w, samples, out);
		return 0;
	}
	for (uint32_t part = 0; part < w->shuffle->canonical; part++)
		shuffle_spans(w, part_begin(w, part), w->part_end[part], &w->rng);
	if (algorithm == MOSAIC_PY1BR)
		return fill_py1br(w, out, err);
	if (algorithm == MOSAIC_PY1E)
		return fill_py1e(w, out, err);
	fill_py1s(w, out);
	return 0;
}

int mosaic_shuffle_fill(const struct mosaic_shuffle *shuffle, uint64_t epoch, uint32_t *out,
			struct err *err)
{
	uint32_t *samples AUTO_FREE = NULL;
	struct pcg64 rng;
	struct work w;
	int rc;

	if (shuffle->algorithm == MOSAIC_NAIVE) {
		pcg64_seed(&rng, (unsigned __int128)shuffle->seed + epoch);
		perm_identity(out, shuffle->n);
		shuffle_numpy_pcg64(out, shuffle->n, &rng);
		return 0;
	}
	if (shuffle->algorithm == MOSAIC_PY2S) {
		samples = order_alloc_u32(shuffle->n);
		if (!samples)
			return err_set(err, -ENOMEM, "out of memory for %u samples", shuffle->n);
		perm_identity(samples, shuffle->n);
	}
	rc = work_init(&w, shuffle, samples, err);
	if (rc == 0)
		rc = mosaic_fill(&w, samples, epoch, out, err);
	work_fini(&w);
	return rc;
}
