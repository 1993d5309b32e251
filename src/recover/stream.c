/* SPDX-License-Identifier: Apache-2.0 */
/* Where a loader's own draw is looked for: behind what a job draws before it, which is mostly the
 * weights of a model (ResNet-18: 23 million words, ResNet-50: 49 million, since torchvision draws
 * convolutions twice). How far is told by how likely a seed is: a position costs as much as a seed
 * of the search of all of them, so all positions together must cost much less than that.
 *
 *	glance    the likeliest seeds, a small model                a tenth of a second of a core
 *	models    and right behind the ResNets                      as much again
 *	shallow   every seed of the table, a million words          a second
 *	deep      from there on, as far as the table says           13 seconds
 *	lookup    further, and for seeds 0..9999: comparing with a  5 seconds
 *	          seed that is known takes a nanosecond a position
 *
 * A seed that is looked up among 2^32 positions is found there by chance, too. So a place that a
 * look-up gives is no finding; a second epoch behind it makes it one. Set-up code. */
#include <errno.h>

#include "recover_priv.h"

#define MILLION (1u << 20)
#define SEGMENT (16 * MILLION) /* longer streams are cut, for several threads */
#define LOOKUP_TYPED 10000
#define OTHERS 10 /* of the table, for numpy's and Python's generators */

enum likelihood { EVERYWHERE, OFTEN, SOMETIMES };

/* Millions of words, up to where. */
static const struct {
	uint32_t glance, shallow, deep, lookup;
} reach[] = {
	[EVERYWHERE] = { 1, 1, 100, 256 },
	[OFTEN] = { 0, 1, 25, 128 },
	[SOMETIMES] = { 0, 1, 4, 32 },
};

/* What people call manual_seed with, the likeliest first. */
static const struct {
	uint32_t seed;
	enum likelihood likelihood;
} likely[] = {
	{ 42, EVERYWHERE }, /* the answer; HF's and timm's default, most tutorials */
	{ 0, EVERYWHERE },  /* torch's own examples, MAE, DeiT, Swin, detectron2 */
	{ 1, OFTEN },	    /* torch's MNIST example, fairseq */
	{ 1234, OFTEN },    /* Megatron, NVIDIA's examples */
	{ 1337, OFTEN },    /* nanoGPT and whoever learned from it */
	{ 3407, OFTEN },    /* "torch.manual_seed(3407) is all you need" */
	{ 123, OFTEN },	    /* counted on the fingers */
	{ 2023, OFTEN },    /* the year it was written in, to 2030 below */
	{ 2024, OFTEN },
	{ 2025, OFTEN },
	{ 2020, SOMETIMES },
	{ 2021, SOMETIMES },
	{ 2022, SOMETIMES },
	{ 2026, SOMETIMES },
	{ 2027, SOMETIMES },
	{ 2028, SOMETIMES },
	{ 2029, SOMETIMES },
	{ 2030, SOMETIMES },
	{ 2019, SOMETIMES },
	{ 2018, SOMETIMES },
	{ 43, SOMETIMES }, /* 42 and 0 plus the rank, or the second run */
	{ 44, SOMETIMES },
	{ 45, SOMETIMES },
	{ 2, SOMETIMES },
	{ 3, SOMETIMES },
	{ 4, SOMETIMES },
	{ 5, SOMETIMES },
	{ 7, SOMETIMES },
	{ 10, SOMETIMES }, /* round */
	{ 100, SOMETIMES },
	{ 1000, SOMETIMES },
	{ 12345, SOMETIMES }, /* counted on */
	{ 123456, SOMETIMES },
	{ 11, SOMETIMES }, /* primes and the like */
	{ 13, SOMETIMES },
	{ 17, SOMETIMES },
	{ 21, SOMETIMES },
	{ 111, SOMETIMES }, /* one key pressed */
	{ 666, SOMETIMES },
	{ 777, SOMETIMES },
	{ 888, SOMETIMES },
	{ 999, SOMETIMES },
	{ 1111, SOMETIMES },
	{ 1024, SOMETIMES }, /* a power of two */
	{ 4242, SOMETIMES },
	{ 31337, SOMETIMES },
	{ 10086, SOMETIMES }, /* China Mobile, a birthday, an exclamation: known from courses */
	{ 19260817, SOMETIMES },
	{ 114514, SOMETIMES },
};

/* What torchvision's and timm's ResNets draw: convolutions twice, then the last layer, of 1000 classes
 * or of few. The loader is right behind. */
#define BEHIND (MILLION / 16)
static const struct {
	uint32_t from, to;
} models[] = {
	{ 22333824, 22846824 + BEHIND },      /* ResNet-18, any number of classes */
	{ 42535296, 43048296 + BEHIND },      /* ResNet-34 */
	{ 48958824, 48958824 + BEHIND },      /* ResNet-50 */
	{ 46909824, 46909824 + 4 * BEHIND },  /* of 100 classes at most */
	{ 86838632, 86838632 + BEHIND },      /* ResNet-101 */
	{ 118033768, 118033768 + BEHIND },    /* ResNet-152 */
};

struct list {
	struct recover_stream *stream;
	size_t n, room;
};

/* Words from..to of a stream. False: out of memory. */
static bool put_words(struct list *l, enum recover_draw draw, uint32_t seed, uint32_t from,
		      uint32_t to)
{
	while (from < to) {
		uint32_t count = MIN(to - from, SEGMENT);

		if (l->n == l->room) {
			struct recover_stream *more;

			l->room = MAX(2 * l->room, 64);
			more = realloc(l->stream, l->room * sizeof(*more));
			if (!more)
				return false;
			l->stream = more;
		}
		l->stream[l->n++] = (struct recover_stream){ { draw, seed, from }, count };
		from += count;
	}
	return true;
}

static bool put_glance(struct list *l)
{
	bool is_fine = true;

	for (size_t i = 0; i < ARRAY_LEN(likely) && is_fine; i++)
		is_fine = put_words(l, RECOVER_TORCH, likely[i].seed, 0,
				    reach[likely[i].likelihood].glance * MILLION);
	return is_fine;
}

/* Of seeds whose words are tried everywhere. */
static bool put_models(struct list *l)
{
	bool is_fine = put_glance(l);

	for (size_t i = 0; i < ARRAY_LEN(likely); i++)
		for (size_t k = 0; k < ARRAY_LEN(models) && is_fine; k++)
			if (likely[i].likelihood == EVERYWHERE)
				is_fine = put_words(l, RECOVER_TORCH, likely[i].seed,
						    models[k].from,
						    models[k].to);
	return is_fine;
}

static bool put_shallow(struct list *l)
{
	bool is_fine = true;

	for (size_t i = 0; i < ARRAY_LEN(likely) && is_fine; i++)
		is_fine = put_words(l, RECOVER_TORCH, likely[i].seed, 0,
				    reach[likely[i].likelihood].shallow * MILLION);
	for (size_t i = 0; i < OTHERS && is_fine; i++)
		is_fine = put_words(l, RECOVER_NUMPY, likely[i].seed, 0, MILLION / 64) &&
			  put_words(l, RECOVER_PYTHON, likely[i].seed, 0, MILLION / 64);
	return is_fine;
}

static bool put_deep(struct list *l)
{
	bool is_fine = true;

	for (size_t i = 0; i < ARRAY_LEN(likely) && is_fine; i++)
		is_fine = put_words(l, RECOVER_TORCH, likely[i].seed,
				    reach[likely[i].likelihood].shallow * MILLION,
				    reach[likely[i].likelihood].deep * MILLION);
	for (size_t i = 0; i < OTHERS && is_fine; i++)
		is_fine = put_words(l, RECOVER_NUMPY, likely[i].seed, MILLION / 64, MILLION) &&
			  put_words(l, RECOVER_PYTHON, likely[i].seed, MILLION / 64, MILLION);
	return is_fine;
}

static bool put_lookup(struct list *l)
{
	bool is_fine = true;

	for (size_t i = 0; i < ARRAY_LEN(likely) && is_fine; i++)
		is_fine = put_words(l, RECOVER_TORCH, likely[i].seed, 0,
				    reach[likely[i].likelihood].lookup * MILLION);
	for (size_t i = 0; i < OTHERS && is_fine; i++)
		is_fine = put_words(l, RECOVER_NUMPY, likely[i].seed, 0, MILLION) &&
			  put_words(l, RECOVER_PYTHON, likely[i].seed, 0, MILLION);
	for (uint32_t seed = 0; seed < LOOKUP_TYPED && is_fine; seed++)
		is_fine = put_words(l, RECOVER_TORCH, seed, 0, MILLION / 8);
	return is_fine;
}

int recover_streams_new(enum recover_depth depth, struct recover_stream **ret, size_t *ret_n)
{
	struct list l = { 0 };
	bool is_fine = depth == RECOVER_GLANCE	 ? put_glance(&l)
		       : depth == RECOVER_MODELS  ? put_models(&l)
		       : depth == RECOVER_SHALLOW ? put_shallow(&l)
		       : depth == RECOVER_DEEP	? put_deep(&l)
						: put_lookup(&l);

	*ret = NULL;
	*ret_n = 0;
	if (!is_fine) {
		free(l.stream);
		return -ENOMEM;
	}
	*ret = l.stream;
	*ret_n = l.n;
	return 0;
}

int feed_seek(struct feed *feed, const struct recover_place *at)
{
	if (feed->words && feed->at.draw == at->draw && feed->at.manual_seed == at->manual_seed &&
	    feed->at.word == at->word)
		return 0;
	feed_fini(feed);
	feed->at = *at;
	return order_words_new(at->manual_seed, at->draw == RECOVER_PYTHON, at->word,
			       &feed->words);
}

void feed_take(struct feed *feed, uint32_t *out, size_t count)
{
	order_words_take(feed->words, out, count);
	for (size_t i = 0; feed->at.draw == RECOVER_NUMPY && i < count; i++)
		out[i] &= INT32_MAX;
	feed->at.word += (uint32_t)count;
}

void feed_fini(struct feed *feed)
{
	order_words_free(feed->words);
	feed->words = NULL;
}

uint32_t recover_place_word(const struct recover_place *place)
{
	struct feed feed = { 0 };
	uint32_t word = 0;

	if (feed_seek(&feed, place) == 0)
		feed_take(&feed, &word, 1);
	feed_fini(&feed);
	return word;
}
