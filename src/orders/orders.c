/* SPDX-License-Identifier: Apache-2.0 */
/* One thread, cl-orders, owns the jobs and their orders. What is told (announce.c), found
 * (untold_find.c) and numbered anew (renumber.c) are messages to it. It answers them, and looks now and
 * then who reads, which jobs are over and whether an order is lost. jobs.c has the table; everybody else
 * may read that, and nobody changes it.
 *
 * Orders are made by who sends them, as that may take a file that hangs. So the owner waits for
 * nothing but the planner, and who comes last wins: what was found or numbered anew meanwhile is
 * refused. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "clairfs/base/log.h"
#include "orders_priv.h"

#define LOOK_NS NS_PER_S
#define MESSAGES_MOST 16u /* of a step */

int orders_new(const struct orders_params *params, struct orders **ret, struct err *err)
{
	struct orders *o = calloc(1, sizeof(*o));

	*ret = o;
	if (!o)
		return err_set(err, -ENOMEM, "out of memory");
	mutex_init(&o->order_mu);
	inbox_init(&o->inbox);
	jobs_init(&o->jobs);
	o->dataset = params->dataset;
	o->clock = params->clock;
	o->memory = params->memory;
	o->source = strdup(params->source);
	o->mountpoint = strdup(params->mountpoint);
	if (!o->source || !o->mountpoint)
		return err_set(err, -ENOMEM, "out of memory");
	return 0;
}

/* It was right while the dataset had a table, and is again when that was made anew. */
static int begin_without(struct orders *o, struct err *err)
{
	o->not_taken = strdup(err->msg);
	if (!o->not_taken)
		return err_set(err, -ENOMEM, "out of memory");
	log_warn("mounted without an order, mount again when there is a table: %s", err->msg);
	*err = (struct err){ 0 };
	order_spec_free(TAKE(o->spec));
	return 0;
}

int orders_begin(struct orders *o, const struct order_spec *spec, struct err *err)
{
	struct order_params op;
	int rc = order_spec_parse(order_spec_text(spec), &o->spec, err);

	if (rc < 0)
		return rc;
	rc = orders_make(o, o->spec, &o->order, err);
	orders_dataset_params(o->dataset, &op);
	if (rc == -EINVAL && order_lacks_records(o->spec, &op))
		return begin_without(o, err);
	if (rc < 0)
		return rc;
	orders_log_note(o->spec, o->order);
	return jobs_begin(o, o->spec, o->order, err);
}

const char *orders_not_taken(const struct orders *o)
{
	return o->not_taken;
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

	int rc;

	assert(!o->untold);
	o->search = *search;
	rc = untold_new(o, &params, &o->untold, err);
	return rc == 0 ? strides_new(o, &o->strides, err) : rc;
}

struct reads *orders_reads(const struct orders *o)
{
	return strides_reads(o->strides);
}

void orders_set_watch(struct orders *o, const struct orders_watch *watch)
{
	o->watch = *watch;
	jobs_cut(o);
	if (o->jobs.n)
		jobs_account(o);
}

void orders_set_drive(struct orders *o, struct drive *drive)
{
	assert(!o->carrier);
	o->carrier = &carrier_drive;
	o->carrier_ctx = drive;
}

int orders_listen(struct orders *o, struct err *err)
{
	return order_maker_new(dataset_source_fd(o->dataset), o->source, o->mountpoint, &o->maker,
			       err);
}

/* --- the owner --- */

static int obey_told(struct orders *o, struct message *m)
{
	int rc;

	records_take_units(o, m->take_order);
	rc = jobs_put(o, m->spec, m->by, TAKE(m->take_order), &m->err);
	if (rc < 0)
		return rc;
	o->is_none_told = false;
	/* And what is being looked for is no longer wanted. */
	untold_told(o->untold, order_spec_text(m->spec));
	/* It took the place of one of those that were found, at most. */
	return MIN(jobs_end_records(o, "another order was told", &m->err), 0);
}

static int obey_withdrawn(struct orders *o, struct message *m)
{
	int rc = jobs_withdraw(o, m->by, &m->err);

	if (rc < 0)
		return rc;
	o->is_none_told = !o->jobs.n;
	untold_told(o->untold, NULL);
	return 0;
}

static int obey_renumbered(struct orders *o, struct message *m)
{
	int rc = jobs_put_first(o, m->before, m->spec, TAKE(m->take_order), &m->err);

	if (rc == 0)
		untold_replaced(o->untold, order_spec_text(m->spec));
	return rc;
}

static int obey(struct orders *o, struct message *m)
{
	switch (m->kind) {
	case MESSAGE_TOLD:
		return obey_told(o, m);
	case MESSAGE_WITHDRAWN:
		return obey_withdrawn(o, m);
	case MESSAGE_FOUND:
		return untold_found(m);
	case MESSAGE_RENUMBERED:
		return obey_renumbered(o, m);
	case MESSAGE_RECORDS:
		return records_obey(o, m);
	}
	return -EINVAL;
}

uint64_t orders_step(struct orders *o, uint64_t now_ns)
{
	struct message *m;
	uint32_t n = 0;

	assert(now_ns >= o->now_ns);
	o->now_ns = now_ns;
	/* Not all of them: who tells without a pause must not keep the looks from being had. */
	while (n++ < MESSAGES_MOST && (m = inbox_take(&o->inbox)))
		inbox_answer(&o->inbox, m, obey(o, m));
	if (now_ns >= o->look_ns) {
		jobs_look(o);
		o->look_ns = now_ns + LOOK_NS;
	}
	return MIN(o->look_ns,
		   MIN(untold_step(o->untold, now_ns), renumber_step(o->renumber, now_ns)));
}

static void *orders_main(void *arg)
{
	struct orders *o = arg;
	uint64_t now = clock_now(o->clock), next;

	o->look_ns = now + LOOK_NS;
	do {
		next = orders_step(o, clock_now(o->clock));
		now = clock_now(o->clock);
	} while (inbox_wait(&o->inbox, next > now ? next - now : 0));
	return NULL;
}

int orders_start(struct orders *o, struct err *err)
{
	int rc = untold_start(o->untold, err);

	assert(o->carrier);
	if (rc == 0)
		rc = renumber_start(o, err);
	if (rc == 0)
		rc = strides_start(o->strides, err);
	if (rc == 0)
		rc = thr_start(&o->thr, "cl-orders", orders_main, o, err);
	return rc;
}

void orders_quit(struct orders *o)
{
	if (!o)
		return;
	order_maker_quit(o->maker);
	strides_quit(o->strides);
	if (!o->thr.is_started) /* nobody would answer */
		inbox_close(&o->inbox);
}

void orders_stop(struct orders *o)
{
	if (!o)
		return;
	inbox_close(&o->inbox);
	thr_join(&o->thr);
	untold_stop(o->untold);
	strides_stop(o->strides);
	renumber_stop(o);
}

bool orders_free(struct orders *o)
{
	bool may_free;

	if (!o)
		return true;
	assert(!o->thr.is_started);
	untold_free(o->untold);
	strides_free(o->strides);
	order_free(o->order);
	may_free = order_maker_free(o->maker);
	order_spec_free(o->spec);
	free(o->not_taken);
	for (unsigned i = 0; i < ORDERS_LANES; i++)
		told_list_fini(&o->list[i]);
	free(o->told.answer);
	jobs_fini(&o->jobs);
	inbox_fini(&o->inbox);
	mutex_fini(&o->order_mu);
	free(o->source);
	free(o->mountpoint);
	free(o);
	return may_free;
}

void orders_opened(struct orders *o, const struct drive_open *open)
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
	struct orders_told told;

	orders_get_told(ctx, &told);
	buf_printf(out, "%s%s\n", told.is_refused ? "error: " : "",
		   told.answer ? told.answer : "nothing was announced");
	free(told.answer);
	return out->is_bad ? -ENOMEM : 0;
}

/* False when out of memory. */
static bool copy_job(const struct job *job, const struct drive_job *view, struct orders_job *ret)
{
	*ret = (struct orders_job){ .spec = strdup(job->text),
				    .name = job->by.name ? strdup(job->by.name) : NULL,
				    .pid = job->n_readers ? job->reader[0].pid : job->by.process.id.pid,
				    .is_found = job->is_found,
				    .at = *view };
	if (ret->spec && (ret->name || !job->by.name))
		return true;
	free(ret->spec);
	free(ret->name);
	return false;
}

uint32_t orders_get_jobs(struct orders *o, struct orders_job ret[PLAN_JOBS])
{
	struct drive_job views[PLAN_JOBS];
	uint32_t n_views = o->carrier->get_jobs(o->carrier_ctx, views), n = 0;

	mutex_lock(&o->order_mu);
	for (uint32_t i = 0; i < o->jobs.n; i++) {
		const struct job *job = &o->jobs.job[i];
		const struct drive_job *view = jobs_view_of(views, n_views, job->id);

		if (!view || !copy_job(job, view, &ret[n]))
			continue;
		ret[n++].is_accounted = i == 0;
	}
	mutex_unlock(&o->order_mu);
	return n;
}

json_t *orders_search_json(struct orders *o)
{
	json_t *json = untold_json(o->untold), *records = strides_json(o->strides);

	if (!json || !records) {
		json_decref(records);
		return json;
	}
	(void)json_object_set_new(json, "records", records);
	(void)json_object_set_new(json, "records_reads_lost", json_integer((json_int_t)strides_lost(o->strides)));
	return json;
}
