/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the queue of news: news.c. Of its own, as tests fill it. */
#ifndef CLAIRFS_CACHE_NEWS_PRIV_H
#define CLAIRFS_CACHE_NEWS_PRIV_H

#include "clairfs/base/thr.h"
#include "clairfs/cache/news.h"

enum {
	NEWS_MAX = 32768,    /* items kept */
	NEWS_RESERVE = 8192, /* of these not for opens */
};

struct news {
	struct mutex mu;
	struct cond cv;
	uint32_t n_words; /* of a bitmap of samples */
	struct news_item *fill;  /* mu, like all below */
	struct news_item *drain; /* who takes only, besides the swap */
	uint32_t n_fill;
	/* Per kind and sample: such an item found no room. Pages that nobody writes to take no
	 * memory. */
	uint64_t *late_fill[NEWS_LATE_KINDS];  /* mu, like all below */
	uint64_t *late_drain[NEWS_LATE_KINDS]; /* who takes only, besides the swap */
	bool has_late;
	struct list answers;
	bool is_waiting, is_called, is_asked, is_blind, has_lost, is_stopping;
	/* Who takes only: where it is in late_drain; words before are empty. */
	uint32_t late_kind, late_word;
};

#endif
