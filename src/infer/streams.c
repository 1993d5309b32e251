/* SPDX-License-Identifier: Apache-2.0 */
/* Which words of seeded generators the job's loader may have drawn its seed from. Behind the places
 * where seeds of earlier epochs stand (all that happens between two epochs draws little: a loader's
 * own words, a validation loader, dropout on the CPU); behind any manual_seed that is likely; and
 * where a seed stands that was found among all, so that the next one is looked for behind it.
 *
 * What is tried when depends on what it costs; see README.md. Runs on the search thread. */
#include <errno.h>
#include <string.h>

#include "infer_priv.h"

#define NEAR_WORDS (1u << 16) /* a millisecond */
#define FAR_WORDS (1u << 22)  /* 0.1 s; all of it for the likeliest place only */
#define FAR_OTHERS (1u << 20)
#define FARTHEST_WORDS (1u << 26) /* a second */

static struct recover_stream behind(const struct recover_place *place, uint32_t from, uint32_t to)
{
	struct recover_stream s = { *place, to - from };
	uint64_t first = (uint64_t)place->word + 1 + from;

	s.from.word = (uint32_t)MIN(first, UINT32_MAX);
	s.count = (uint32_t)MIN(s.count, UINT32_MAX - s.from.word);
	return s;
}

/* How far behind the first place of a question, and behind the others. */
static int search_behind(const struct infer_question *q, uint32_t words, uint32_t others,
			 struct infer_answer *ret)
{
	struct recover_stream streams[2 * INFER_PLACES];
	size_t n = 0;

	for (size_t i = 0; i < MIN(q->n_places, INFER_PLACES); i++)
		streams[n++] = behind(&q->places[i], 0, NEAR_WORDS);
	for (size_t i = 0; i < MIN(q->n_places, INFER_PLACES); i++) {
		uint32_t to = i ? others : words;

		if (to > NEAR_WORDS)
			streams[n++] = behind(&q->places[i], NEAR_WORDS, to);
	}
	return n > 0 ? ask_streams(q, streams, n, ret) : -ENOENT;
}

static int search_likely(const struct infer_question *q, enum recover_depth depth,
			 struct infer_answer *ret)
{
	struct recover_stream *streams AUTO_FREE = NULL;
	size_t n;
	int rc = recover_streams_new(depth, &streams, &n);

	return rc < 0 ? rc : ask_streams(q, streams, n, ret);
}

int streams_known(const struct infer_question *q, struct infer_answer *ret)
{
	return q->is_first ? search_behind(q, NEAR_WORDS, NEAR_WORDS, ret)
			   : search_behind(q, FAR_WORDS, FAR_OTHERS, ret);
}

int streams_quick(const struct infer_question *q, struct infer_answer *ret)
{
	int rc;

	if (q->no_streams)
		return -ENOENT;
	if (q->is_unlikely)
		return search_likely(q, RECOVER_GLANCE, ret);
	rc = search_likely(q, RECOVER_MODELS, ret);
	return rc == -ENOENT && !q->is_first ? search_likely(q, RECOVER_SHALLOW, ret) : rc;
}

int streams_full(const struct infer_question *q, struct infer_answer *ret)
{
	int rc = search_behind(q, FARTHEST_WORDS, FARTHEST_WORDS / 4, ret);

	if (rc == -ENOENT && !q->no_streams)
		rc = search_likely(q, RECOVER_DEEP, ret);
	return rc;
}

int streams_lookup(const struct infer_question *q, struct infer_answer *ret)
{
	struct recover_stream *streams AUTO_FREE = NULL;
	size_t n;
	int rc = recover_streams_new(RECOVER_LOOKUP, &streams, &n);

	return rc < 0 ? rc : ask_places(q, streams, n, ret);
}
