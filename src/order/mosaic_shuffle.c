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

#define INSERT_MAX 24 /* samples of a bucket that insertion sorts */

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

/* Scratch of py1e, for the samples of a part. */
struct moved {
	double *place;   /* [n] where a sample moves to, in [0, n) */
	uint32_t *count; /* [n + 1] samples of each bucket, then where its next one goes */
	uint32_t *order; /* [n] indices of samples by place */
};

static void moved_fini(struct moved *m)
{
	free(m->place);
	free(m->count);
	free(m->order);
}

/* Moves the samples of a span at `offset` by up to half of what a random block is larger than
 * it, and not out of the part. */
static void move_span(struct work *w, const struct moved *m, uint32_t offset, uint32_t size,
		      uint32_t n)
{
	double room = ((double)random_block(w->shuffle, &w->rng) - size) / 2;
	double low, high;

	if (room < 0)
		room = 0;
	low = MAX(-room, -(double)offset);
	high = MIN(room, (double)(n - offset - size));
	for (uint32_t i = 0; i < size; i++) {
		/* Rounded like numpy's: the product may not be fused with the sum. */
		volatile double shift =
			(high - low) * ((double)(pcg64_u64(&w->rng) >> 11) * 0x1p-53);

		m->place[offset + i] = (double)(offset + i) + (low + shift);
	}
}

static int compare_places(const void *a, const void *b, void *ctx)
{
	const double *place = ctx;
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	if (place[x] != place[y])
		return place[x] < place[y] ? -1 : 1;
	return (x > y) - (x < y);
}

/* Sorts a bucket; it is in ascending sequence of indices. */
static void sort_bucket(const double *place, uint32_t *order, uint32_t n)
{
	if (n > INSERT_MAX) {
		qsort_r(order, n, sizeof(*order), compare_places, (void *)place);
		return;
	}
	for (uint32_t i = 1; i < n; i++) {
		uint32_t at = order[i], k = i;

		for (; k > 0 && place[order[k - 1]] > place[at]; k--)
			order[k] = order[k - 1];
		order[k] = at;
	}
}

static uint32_t bucket_of(double place, uint32_t n)
{
	return place < n ? (uint32_t)place : n - 1;
}

/* The samples are spread about one to a unit of place: a bucket for each unit. */
static void sort_places(const struct moved *m, uint32_t n)
{
	uint32_t from = 0;

	memset(m->count, 0, (n + 1ull) * sizeof(*m->count));
	for (uint32_t i = 0; i < n; i++)
		m->count[bucket_of(m->place[i], n) + 1]++;
	for (uint32_t i = 0; i < n; i++)
		m->count[i + 1] += m->count[i];
	for (uint32_t i = 0; i < n; i++)
		m->order[m->count[bucket_of(m->place[i], n)]++] = i;
	for (uint32_t i = 0; i < n; i++) { /* count[i] is now where bucket i ends */
		sort_bucket(m->place, m->order + from, m->count[i] - from);
		from = m->count[i];
	}
}

static void fill_py1e_part(struct work *w, const struct moved *m, uint32_t part, uint32_t n,
			   uint32_t *out)
{
	uint32_t offset = 0;

	for (uint32_t i = part_begin(w, part); i < w->part_end[part]; i++) {
		put_span(w->span[i], out + offset);
		shuffle_numpy_pcg64(out + offset, w->span[i].size, &w->rng);
		offset += w->span[i].size;
	}
	offset = 0;
	for (uint32_t i = part_begin(w, part); i < w->part_end[part]; i++) {
		move_span(w, m, offset, w->span[i].size, n);
		offset += w->span[i].size;
	}
	sort_places(m, n);
	for (uint32_t i = 0; i < n; i++)
		m->count[i] = out[m->order[i]];
	memcpy(out, m->count, n * sizeof(*out));
}

static int fill_py1e(struct work *w, uint32_t *out, struct err *err)
{
	uint64_t n = w->shuffle->n, canonical = w->shuffle->canonical;
	uint64_t most = DIV_ROUND_UP(n, canonical), begin = 0;
	struct moved m = {
		.place = malloc(MAX(most, 1) * sizeof(*m.place)),
		.count = order_alloc_u32(most + 1),
		.order = order_alloc_u32(most),
	};

	if (!m.place || !m.count || !m.order) {
		moved_fini(&m);
		return err_set(err, -ENOMEM, "out of memory for %u samples", w->shuffle->n);
	}
	for (uint64_t part = 0; part < canonical; part++) {
		uint64_t end = n * (part + 1) / canonical;

		fill_py1e_part(w, &m, (uint32_t)part, (uint32_t)(end - begin), out + begin);
		begin = end;
	}
	moved_fini(&m);
	return 0;
}

static int fill(struct work *w, uint32_t *samples, uint64_t epoch, uint32_t *out, struct err *err)
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
		rc = fill(&w, samples, epoch, out, err);
	work_fini(&w);
	return rc;
}
