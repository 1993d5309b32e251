/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue between the cache and whoever plans for it. Two buffers: one is filled by many threads,
 * the other one is read by the one that takes, without the lock. Its lock is a leaf: nothing is
 * called with it held, and nothing is logged.
 */
#include "news_priv.h"

#include <errno.h>
#include <stdlib.h>


int news_new(uint32_t n_units, struct news **ret)
{
	struct news *n = calloc(1, sizeof(*n));
	bool is_whole;

	if (!n)
		return -ENOMEM;
	mutex_init(&n->mu);
	cond_init(&n->cv);
	list_init(&n->answers);
	n->n_words = n_units / 64 + 1;
	n->late_kind = NEWS_LATE_KINDS;
	n->fill = calloc(NEWS_MAX, sizeof(*n->fill));
	n->drain = calloc(NEWS_MAX, sizeof(*n->drain));
	is_whole = n->fill && n->drain;
	for (int i = 0; i < NEWS_LATE_KINDS; i++) {
		n->late_fill[i] = calloc(n->n_words, sizeof(uint64_t));
		n->late_drain[i] = calloc(n->n_words, sizeof(uint64_t));
		is_whole &= n->late_fill[i] && n->late_drain[i];
	}
	if (!is_whole) {
		news_free(n);
		return -ENOMEM;
	}
	*ret = n;
	return 0;
}

void news_free(struct news *n)
{
	if (!n)
		return;
	free(n->fill);
	free(n->drain);
	for (int i = 0; i < NEWS_LATE_KINDS; i++) {
		free(n->late_fill[i]);
		free(n->late_drain[i]);
	}
	cond_fini(&n->cv);
	mutex_fini(&n->mu);
	free(n);
}

/* --- putting --- */

static void wake_locked(struct news *n) REQUIRES(n->mu)
{
	if (!n->is_waiting)
		return;
	n->is_waiting = false;
	cond_signal(&n->cv);
}

/* True for a kind that must not be lost. */
static bool put_late_locked(struct news *n, const struct news_item *item) REQUIRES(n->mu)
{
	if (item->kind >= NEWS_LATE_KINDS)
		return false;
	n->late_fill[item->kind][item->unit.v / 64] |= 1ull << (item->unit.v % 64);
	n->has_late = true;
	return true;
}

void news_put(struct news *n, const struct news_item *item)
{
	bool is_frequent = item->kind >= NEWS_LATE_KINDS;

	mutex_lock(&n->mu);
	if (n->n_fill < (is_frequent ? NEWS_MAX - NEWS_RESERVE : NEWS_MAX))
		n->fill[n->n_fill++] = *item;
	else if (!put_late_locked(n, item) &&
		 item->kind != NEWS_DEMAND) /* of those only a sum suffers */
		n->is_blind = n->has_lost = true;
	wake_locked(n);
	mutex_unlock(&n->mu);
}

void news_put_many(struct news *n, enum news_kind kind, struct unit_id first, uint32_t count)
{
	mutex_lock(&n->mu);
	for (uint32_t i = first.v; i < first.v + count; i++)
		(void)put_late_locked(
			n, &(struct news_item){ .kind = kind, .unit = { i } });
	wake_locked(n);
	mutex_unlock(&n->mu);
}

void news_answer(struct news *n, struct news_answer *take_answer)
{
	mutex_lock(&n->mu);
	take_answer->at = n->n_fill;
	list_push_tail(&n->answers, &take_answer->node);
	wake_locked(n);
	mutex_unlock(&n->mu);
}

void news_blind(struct news *n)
{
	mutex_lock(&n->mu);
	n->is_blind = true;
	wake_locked(n);
	mutex_unlock(&n->mu);
}

void news_wake(struct news *n)
{
	mutex_lock(&n->mu);
	n->is_called = true;
	wake_locked(n);
	mutex_unlock(&n->mu);
}

void news_ask(struct news *n)
{
	mutex_lock(&n->mu);
	n->is_asked = true;
	wake_locked(n);
	mutex_unlock(&n->mu);
}

void news_stop(struct news *n)
{
	mutex_lock(&n->mu);
	n->is_stopping = true;
	cond_broadcast(&n->cv);
	mutex_unlock(&n->mu);
}

void news_fetched_anew(struct news *n, struct unit_id unit)
{
	mutex_lock(&n->mu);
	if (n->has_late)
		n->late_fill[NEWS_LOST_COPY][unit.v / 64] &= ~(1ull << (unit.v % 64));
	mutex_unlock(&n->mu);
}

/* --- taking --- */

static void swap_late_locked(struct news *n) REQUIRES(n->mu)
{
	for (int i = 0; i < NEWS_LATE_KINDS; i++) {
		uint64_t *full = n->late_fill[i];

		n->late_fill[i] = n->late_drain[i];
		n->late_drain[i] = full;
	}
	n->late_kind = n->late_word = 0;
}

static bool has_news_locked(const struct news *n) REQUIRES(n->mu)
{
	return n->n_fill || !list_is_empty(&n->answers) || n->is_blind || n->has_late ||
	       n->is_called || n->is_asked || n->is_stopping;
}

void news_take(struct news *n, uint64_t wait_ns, struct news_batch *ret)
{
	struct news_item *full;

	list_init(&ret->answers);
	mutex_lock(&n->mu);
	if (!has_news_locked(n)) {
		n->is_waiting = true;
		cond_wait_for(&n->cv, &n->mu, wait_ns);
		n->is_waiting = false;
	}
	full = n->fill;
	n->fill = n->drain;
	n->drain = full;
	ret->items = full;
	ret->n_items = n->n_fill;
	n->n_fill = 0;
	list_splice_tail(&ret->answers, &n->answers);
	ret->is_blind = n->is_blind;
	ret->has_lost = n->has_lost;
	ret->has_late = n->has_late;
	ret->is_asked = n->is_asked;
	if (n->has_late)
		swap_late_locked(n);
	n->is_blind = n->has_lost = n->has_late = n->is_called = n->is_asked = false;
	mutex_unlock(&n->mu);
}

bool news_next_late(struct news *n, struct news_item *ret)
{
	for (; n->late_kind < NEWS_LATE_KINDS; n->late_kind++, n->late_word = 0)
		for (; n->late_word < n->n_words; n->late_word++) {
			uint64_t *word = &n->late_drain[n->late_kind][n->late_word];

			if (!*word)
				continue;
			*ret = (struct news_item){ .kind = n->late_kind };
			ret->unit.v = n->late_word * 64 + (uint32_t)__builtin_ctzll(*word);
			*word &= *word - 1;
			return true;
		}
	return false;
}

void news_rest(struct news *n, uint64_t ns)
{
	mutex_lock(&n->mu);
	if (!n->is_stopping)
		cond_wait_for(&n->cv, &n->mu, ns);
	mutex_unlock(&n->mu);
}
