/* SPDX-License-Identifier: Apache-2.0 */
/* Orders: from a spec to the order of this mount's dataset, at the start and whenever a job tells
 * another one through the mount.
 *
 * Whoever may reach the mount may read through it, but an order is everybody's: with allow_other
 * only the mount's owner and root may change it. The rank and world of the environment are those of
 * whoever types a spec, so clients fill them in; the daemon's own environment says nothing about a
 * job that comes later. wire_announce runs on the announce thread of fs, one at a time, and may
 * read a list file for as long as that takes; the text is read by the reactor. An order is made
 * before change_mu is taken: nobody else may ever wait for a file. The last one told wins, because
 * they come one at a time and a found or renumbered one is refused when one was told meanwhile. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "clairfs/base/log.h"
#include "clairfs/hint.h"
#include "daemon_priv.h"

void wire_order_init(struct wire *w)
{
	mutex_init(&w->order_mu);
	mutex_init(&w->change_mu);
}

void wire_order_fini(struct wire *w)
{
	told_list_fini(&w->list);
	free(w->told.answer);
	free(w->order_text);
	mutex_fini(&w->change_mu);
	mutex_fini(&w->order_mu);
}

static int make_order(struct wire *w, const struct order_spec *spec, const struct told_list *list,
		      struct order **ret, struct err *err)
{
	struct order_params op;
	int rc;

	daemon_order_params(w->dataset, &op);
	op.told = list ? list->sample : NULL;
	op.n_told = list ? list->n : 0;
	/* What was told reads no file, and until we are mounted nobody waits for us. */
	if (list || !w->maker)
		rc = order_new(spec, &op, ret, err);
	else
		rc = order_make(w->maker, spec, &op, ret, err);
	return rc;
}

int wire_make_order(struct wire *w, const struct order_spec *spec, struct order **ret,
		    struct err *err)
{
	return make_order(w, spec, NULL, ret, err);
}

void wire_log_note(const struct order_spec *spec, const struct order *order)
{
	if (order_note(order))
		log_info("order %s: %s", order_spec_text(spec), order_note(order));
}

int wire_set_order_text(struct wire *w, const char *text)
{
	char *copy = text ? strdup(text) : NULL, *old;

	if (text && !copy)
		return -ENOMEM;
	mutex_lock(&w->order_mu);
	old = w->order_text;
	w->order_text = copy;
	mutex_unlock(&w->order_mu);
	free(old);
	return 0;
}

char *wire_get_order_text(struct wire *w)
{
	char *copy;

	mutex_lock(&w->order_mu);
	copy = w->order_text ? strdup(w->order_text) : NULL;
	mutex_unlock(&w->order_mu);
	return copy;
}

int wire_render_order(void *ctx, struct buf_writer *out)
{
	AUTO_FREE char *text = wire_get_order_text(ctx);

	buf_printf(out, "%s\n", text ? text : "none");
	return out->is_bad ? -ENOMEM : 0;
}

int wire_render_answer(void *ctx, struct buf_writer *out)
{
	struct told_last told;

	wire_get_told(ctx, &told);
	buf_printf(out, "%s%s\n", told.is_refused ? "error: " : "",
		   told.answer ? told.answer : "nothing was announced");
	free(told.answer);
	return out->is_bad ? -ENOMEM : 0;
}

void wire_get_told(struct wire *w, struct told_last *ret)
{
	mutex_lock(&w->order_mu);
	*ret = w->told;
	ret->answer = w->told.answer ? strdup(w->told.answer) : NULL;
	mutex_unlock(&w->order_mu);
}

/* For those who get no answer, and for everybody else who wonders. */
static void keep_answer(struct wire *w, const char *answer, bool is_refused)
{
	char *copy = strdup(answer), *old;

	mutex_lock(&w->order_mu);
	w->told.n++;
	w->told.n_refused += is_refused;
	w->told.is_refused = is_refused;
	old = w->told.answer;
	w->told.answer = copy;
	mutex_unlock(&w->order_mu);
	free(old);
}

int wire_replace_order(struct wire *w, const struct order_spec *spec, struct order *take_order,
		       struct err *err)
{
	struct order_info info = { 0 };
	AUTO_FREE uint32_t *ranks = NULL;
	int rc;

	if (take_order) { /* the cache's in a moment */
		info = *order_info(take_order);
		ranks = calloc(MAX(info.n_ranks, 1u), sizeof(*ranks));
		if (ranks)
			memcpy(ranks, info.ranks, info.n_ranks * sizeof(*ranks));
		info.n_ranks = ranks ? info.n_ranks : 0;
		info.ranks = ranks;
	}
	rc = cache_set_order(w->cache, take_order);
	if (rc == 0)
		accounting_set_order(w->accounting, take_order ? &info : NULL,
				     cache_generation(w->cache));
	if (rc < 0)
		return err_set_errno(err, rc, "the order stays as it was");
	if (wire_set_order_text(w, spec ? order_spec_text(spec) : NULL) < 0)
		log_warn("out of memory: status shows the order before");
	return 0;
}

int wire_change_order(struct wire *w, const char *before, const char *text, struct err *err)
{
	AUTO_FREE char *now = NULL;
	struct order_spec *spec = NULL;
	struct order *order = NULL;
	int rc = order_spec_parse(text, &spec, err);

	if (rc == 0)
		rc = wire_make_order(w, spec, &order, err);
	mutex_lock(&w->change_mu);
	now = wire_get_order_text(w);
	if (rc == 0 && (!now || strcmp(now, before) != 0))
		rc = -EAGAIN;
	if (rc == 0)
		rc = wire_replace_order(w, spec, TAKE(order), err);
	if (rc == 0) /* and what is being looked for is no longer wanted */
		job_note_replaced(w->job, text);
	mutex_unlock(&w->change_mu);
	order_free(order);
	order_spec_free(spec);
	return rc;
}

/* A spec, "none", or a part of a list. *ret_is_over: false when more parts are to come. */
static int take(struct wire *w, const struct fs_told *told, struct order_spec **ret,
		bool *ret_is_over, struct err *err)
{
	*ret_is_over = true;
	if (told->uid != 0 && told->uid != geteuid() && told->uid != FS_TOLD_BY_MODE)
		return err_set(err, -EPERM,
			       "only root and the user who mounted it may announce an order");
	if (told->size >= CLAIRFS_HINT_TEXT)
		return err_set(err, -EINVAL, "the order is longer than %d bytes",
			       CLAIRFS_HINT_TEXT - 1);
	if (memchr(told->text, 0, told->size))
		return err_set(err, -EINVAL, "the order has a zero byte");
	if (told->list) {
		*ret_is_over = told->list->flags & CLAIRFS_LIST_LAST;
		return told_list_add(&w->list, told->list, dataset_n_samples(w->dataset), ret, err);
	}
	return strcmp(told->text, "none") == 0 ? 0 : order_spec_parse(told->text, ret, err);
}

static void log_told(struct wire *w, const struct fs_told *told, const char *line, bool is_refused)
{
	if (is_refused)
		log_limited(told->uid == FS_TOLD_BY_MODE ? LOG_LEVEL_WARN : LOG_LEVEL_INFO,
			    "%s: an announced order was not taken: %s", w->mountpoint, line);
	else if (told->uid == FS_TOLD_BY_MODE)
		log_limited(LOG_LEVEL_INFO, "%s: order written: %s", w->mountpoint, line);
	else
		log_limited(LOG_LEVEL_INFO, "%s: order announced by user %u: %s", w->mountpoint,
			    told->uid, line);
}

static int announce(struct wire *w, const struct fs_told *told, bool *ret_is_over, struct err *err)
{
	struct order_spec *spec = NULL;
	struct order *order = NULL;
	int rc = take(w, told, &spec, ret_is_over, err);
	bool is_list = told->list && spec; /* it is whole; else it is somebody else's, or waits */

	if (rc == 0 && spec)
		rc = make_order(w, spec, is_list ? &w->list : NULL, &order, err);
	if (rc == 0 && spec && !is_list) /* a list told in parts lacks the others yet */
		wire_log_note(spec, order);
	if (is_list)
		told_list_fini(&w->list);
	mutex_lock(&w->change_mu);
	if (rc == 0 && *ret_is_over)
		rc = wire_replace_order(w, spec, TAKE(order), err);
	if (rc == 0 && *ret_is_over) /* what is being looked for is no longer wanted */
		job_note_told(w->job, spec ? order_spec_text(spec) : NULL);
	mutex_unlock(&w->change_mu);
	order_free(order);
	order_spec_free(spec);
	return rc;
}

int wire_announce(void *ctx, const struct fs_told *told, struct buf_writer *answer)
{
	struct wire *w = ctx;
	struct err err = { 0 };
	bool is_over;
	int rc = announce(w, told, &is_over, &err);
	AUTO_FREE char *now = rc == 0 ? wire_get_order_text(w) : NULL;
	const char *line = rc < 0 ? err.msg : now ? now : "none";

	buf_printf(answer, "%s", line);
	if (rc < 0 || is_over) {
		keep_answer(w, line, rc < 0);
		log_told(w, told, line, rc < 0);
	}
	return rc;
}
