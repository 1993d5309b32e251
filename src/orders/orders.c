/* SPDX-License-Identifier: Apache-2.0 */
/* The life of the module, from the order of the start to the end of the mount, and what others ask of
 * the order in force. What is told comes in by announce.c, what is found by untold_find.c, and what is
 * numbered anew by renumber.c; jobs.c has the table. */
#include <errno.h>
#include <string.h>

#include "clairfs/base/log.h"
#include "orders_priv.h"

int orders_new(const struct orders_params *params, struct orders **ret, struct err *err)
{
	struct orders *o = calloc(1, sizeof(*o));

	*ret = o;
	if (!o)
		return err_set(err, -ENOMEM, "out of memory");
	mutex_init(&o->order_mu);
	mutex_init(&o->change_mu);
	jobs_init(&o->jobs);
	o->dataset = params->dataset;
	o->clock = params->clock;
	o->source = strdup(params->source);
	o->mountpoint = strdup(params->mountpoint);
	if (!o->source || !o->mountpoint)
		return err_set(err, -ENOMEM, "out of memory");
	return 0;
}

int orders_begin(struct orders *o, const struct order_spec *spec, struct err *err)
{
	int rc = order_spec_parse(order_spec_text(spec), &o->spec, err);

	if (rc == 0)
		rc = orders_make(o, o->spec, &o->order, err);
	if (rc < 0)
		return rc;
	orders_log_note(o->spec, o->order);
	return jobs_begin(o, o->spec, o->order, err);
}

struct order *orders_first(const struct orders *o)
{
	return o->order;
}

int orders_search(struct orders *o, const struct orders_search *search, struct err *err)
{
	const struct infer_params params = { .n = dataset_n_samples(o->dataset),
					     .effort = search->effort,
					     .threads = search->threads,
					     .world = search->world,
					     .memory = search->ram / 4,
					     .told = o->spec ? order_spec_text(o->spec) : NULL,
					     .clock = o->clock,
					     .metrics = search->metrics };

	o->search = *search;
	return untold_new(o, &params, &o->untold, err);
}

void orders_set_watch(struct orders *o, const struct orders_watch *watch)
{
	o->watch = *watch;
	if (o->jobs.n)
		jobs_account(o);
}

void orders_set_cache(struct orders *o, struct cache *cache)
{
	o->cache = cache;
}

int orders_listen(struct orders *o, struct err *err)
{
	return order_maker_new(dataset_source_fd(o->dataset), o->source, o->mountpoint, &o->maker,
			       err);
}

int orders_start(struct orders *o, struct err *err)
{
	int rc = untold_start(o->untold, err);

	if (rc == 0)
		rc = renumber_start(o, err);
	if (rc == 0)
		rc = jobs_start(o, err);
	return rc;
}

void orders_quit(struct orders *o)
{
	if (o)
		order_maker_quit(o->maker);
}

void orders_stop(struct orders *o)
{
	if (!o)
		return;
	untold_stop(o->untold);
	renumber_stop(o);
	jobs_stop(o);
}

bool orders_free(struct orders *o)
{
	bool may_free;

	if (!o)
		return true;
	untold_free(o->untold);
	order_free(o->order);
	may_free = order_maker_free(o->maker);
	order_spec_free(o->spec);
	for (unsigned i = 0; i < ORDERS_LANES; i++)
		told_list_fini(&o->list[i]);
	free(o->told.answer);
	jobs_fini(&o->jobs);
	mutex_fini(&o->change_mu);
	mutex_fini(&o->order_mu);
	free(o->source);
	free(o->mountpoint);
	free(o);
	return may_free;
}

void orders_opened(struct orders *o, const struct cache_open *open)
{
	untold_opened(o->untold, open);
}

void orders_planned(struct orders *o, enum plan_state state)
{
	untold_planned(o->untold, state);
}

/* --- what is so --- */

char *orders_text(struct orders *o)
{
	char *copy;

	mutex_lock(&o->order_mu);
	copy = o->jobs.n ? strdup(o->jobs.job[0].text) : NULL;
	mutex_unlock(&o->order_mu);
	return copy;
}

bool orders_is_found(struct orders *o)
{
	bool is_found;

	mutex_lock(&o->order_mu);
	is_found = o->jobs.n && o->jobs.job[0].is_found;
	mutex_unlock(&o->order_mu);
	return is_found;
}

uint64_t orders_numberings_tried(const struct orders *o)
{
	return atomic_load(&o->numberings_tried);
}

int orders_render_text(void *ctx, struct buf_writer *out)
{
	AUTO_FREE char *text = orders_text(ctx);

	buf_printf(out, "%s\n", text ? text : "none");
	return out->is_bad ? -ENOMEM : 0;
}

int orders_render_answer(void *ctx, struct buf_writer *out)
{
	struct told_last told;

	orders_get_told(ctx, &told);
	buf_printf(out, "%s%s\n", told.is_refused ? "error: " : "",
		   told.answer ? told.answer : "nothing was announced");
	free(told.answer);
	return out->is_bad ? -ENOMEM : 0;
}
