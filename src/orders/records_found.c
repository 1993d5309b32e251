/* SPDX-License-Identifier: Apache-2.0 */
/* An order of records that was found in a file is put in force. Who has found it (strides.c, thread
 * cl-strides) makes it, of a table of these records that nobody else has, and asks the owner of all orders
 * (obey_records, cl-orders). That has the file cut into its records, tells the drive how large these are,
 * puts the order in force as one of any job that was found, and shows it which records were read before: so
 * it stands where its readers are.
 *
 * An order that somebody told wins, whatever file it is of, and so does the word that there is none. One of files
 * that was found stays as long as it lasts, and is refused while records are followed (untold_found). A file must
 * never be cut while an order of files is in force, which has its units as they were. */
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "clairfs/base/log.h"
#include "clairfs/dataset/records.h"
#include "clairfs/dataset/units.h"
#include "clairfs/order/records.h"
#include "orders_priv.h"

#define WHY_BUSY "another order is in force, or none is to be"
#define WHY_TOO_MANY "there is no room for as many"

/* --- making it --- */

/* The table: n records of one file. */
static int list_one(void *ctx, struct order_shard **ret, size_t *ret_n)
{
	*ret_n = 1;
	*ret = malloc(sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	**ret = *(const struct order_shard *)ctx;
	return 0;
}

/* As a value of a spec is written. */
static void escape_value(const char *path, char out[3 * PATH_MAX])
{
	for (; *path; path++)
		if (strchr(":,%", *path) || (unsigned char)*path <= ' ' || *path == 127)
			out += sprintf(out, "%%%02X", (unsigned char)*path);
		else
			*out++ = *path;
	*out = 0;
}

/* What it is called: as the next mount may be told, where the name of the file is for everybody. */
static int make_spec(const struct orders *o, const char *text, struct entry_id e,
		     struct order_spec **ret, struct err *err)
{
	AUTO_FREE char *full = malloc(INFER_SPEC_MAX + 4 * PATH_MAX);
	char path[PATH_MAX], value[3 * PATH_MAX];
	int n;

	if (!full)
		return err_set(err, -ENOMEM, "out of memory");
	n = sprintf(full, "%.*s:records=1", INFER_SPEC_MAX, text);
	if (strides_may_name(o->dataset, e) && dataset_path(o->dataset, e, path, sizeof(path)) == 0) {
		escape_value(path, value);
		sprintf(full + n, ":under=%s", value);
	}
	return order_spec_parse(full, ret, err);
}

static int make_order(struct orders *o, const struct records_found *found, const struct order_spec *spec,
		struct order **ret, struct err *err)
{
	struct order_shard all = { .sample = found->at.entry.v, .count = found->n };
	struct order_params op;
	int rc;

	orders_dataset_params(o->dataset, &op);
	op.n_records = found->n;
	op.shards = list_one;
	op.shards_ctx = &all;
	op.dir_path = NULL;
	op.memory = o->memory;
	rc = order_new(spec, &op, ret, err);
	if (rc < 0 || !order_records_are_near(*ret))
		return rc;
	order_free(TAKE(*ret));
	return err_set(err, -ENOTSUP, "the job goes through the file");
}

static bool is_another_in_force(const struct orders *o)
{
	bool is_another = o->is_none_told;

	for (uint32_t i = 0; i < o->jobs.n; i++)
		is_another |= !o->jobs.job[i].is_of_records;
	return is_another;
}

/* What is cheap to know before an order is made, and shuffled. The owner has the last word. */
static int look_before(struct orders *o, const struct records_found *found, struct err *err)
{
	bool is_another;

	mutex_lock(&o->order_mu);
	is_another = is_another_in_force(o);
	mutex_unlock(&o->order_mu);
	if (is_another)
		return err_set(err, -EBUSY, "%s", WHY_BUSY);
	if (found->n > dataset_n_reserved(o->dataset))
		return err_set(err, -E2BIG, "%s", WHY_TOO_MANY);
	return 0;
}

int records_follow(struct orders *o, const char *text, struct records_found *found, struct err *err)
{
	struct message m = { .kind = MESSAGE_RECORDS, .records = found };
	struct order_spec *spec = NULL;
	int rc = look_before(o, found, err);

	if (rc == 0)
		rc = make_spec(o, text, found->at.entry, &spec, err);
	m.spec = spec;
	if (rc == 0)
		rc = make_order(o, found, spec, &m.take_order, err);
	if (rc == 0) {
		inbox_post(&o->inbox, &m);
		rc = inbox_await(&o->inbox, &m);
		*err = m.err;
	}
	order_spec_free(spec);
	return rc;
}

/* --- the owner --- */

void records_take_units(struct orders *o, struct order *order)
{
	const struct dataset *ds = o->dataset;
	struct dataset_found found = { .n = dataset_n_records(ds) };
	struct dataset_records_stats st;
	struct unit_map *map;
	uint32_t first;

	if (!order_n_records(order) || !dataset_has_records(ds) || found.n < 2)
		return;
	dataset_records_stats(ds, &st);
	if (st.records[RECORDS_AFFINE] != found.n || st.files[RECORDS_AFFINE] != 1)
		return;
	found.entry = dataset_locate(ds, (struct record_no){ 0 }).entry;
	found.low = found.at = found.high = dataset_locate(ds, (struct record_no){ 0 }).offset;
	found.stride = dataset_locate(ds, (struct record_no){ 1 }).offset - found.at;
	if (dataset_is_cut_so(ds, &found, &first) &&
	    dataset_found_map(ds, found.entry, first, found.n, &map) == 0)
		order_set_units(order, map);
}

bool records_are_followed(struct orders *o, uint32_t id, struct drive_job *ret)
{
	struct drive_job views[PLAN_JOBS];
	const struct drive_job *view;
	bool is_there = false;

	if (id == DRIVE_NO_JOB)
		return false;
	mutex_lock(&o->order_mu);
	for (uint32_t i = 0; i < o->jobs.n; i++)
		is_there |= o->jobs.job[i].id == id && o->jobs.job[i].is_of_records;
	mutex_unlock(&o->order_mu);
	if (!ret || !is_there)
		return is_there;
	view = jobs_view_of(views, o->carrier->get_jobs(o->carrier_ctx, views), id);
	*ret = view ? *view : (struct drive_job){ .id = id };
	return true;
}

static const char *why_not_cut(int rc)
{
	switch (rc) {
	case -EEXIST:
		return "the file is in other records";
	case -E2BIG:
		return WHY_TOO_MANY;
	case -ENOMEM:
		return "out of memory";
	default:
		return "they do not fit in the file, or are too small";
	}
}

/* The map is the order's then, which may be over at once; so what was read is looked up before. */
static int put_in_force(struct orders *o, struct message *m, struct unit_map *take_map)
{
	const struct records_found *found = m->records;
	AUTO_FREE struct unit_id *unit = malloc(MAX(found->n_begun, 1) * sizeof(*unit));
	struct order *order = TAKE(m->take_order);
	int rc;

	for (size_t i = 0; unit && i < found->n_begun; i++)
		unit[i] = unit_first(take_map, (struct sample_id){ found->begun[i] });
	assert(take_map->n_samples == found->n);
	order_set_units(order, take_map);
	rc = jobs_put_records(o, &m->records->id, m->spec, order, &m->err);
	if (rc == 0 && unit)
		o->carrier->come(o->carrier_ctx, unit, found->n_begun);
	return rc;
}

int records_obey(struct orders *o, struct message *m)
{
	struct records_found *found = m->records;
	bool was_cut = dataset_is_in_records(o->dataset, found->at.entry);
	struct unit_map *map = NULL;
	uint32_t first;
	int rc;

	assert(m->kind == MESSAGE_RECORDS && m->take_order && found->n > 0);
	if (o->jobs.is_first_away || is_another_in_force(o))
		return err_set(&m->err, -EBUSY, "%s", WHY_BUSY);
	rc = dataset_cut_found(o->dataset, &found->at, &first);
	/* Also where no order comes of it: its units have sizes from here on. */
	if (rc == 0 && !was_cut)
		o->carrier->cut(o->carrier_ctx, found->at.entry);
	if (rc == 0)
		rc = dataset_found_map(o->dataset, found->at.entry, first, found->n, &map);
	if (rc < 0)
		return err_set(&m->err, rc, "%s", why_not_cut(rc));
	return put_in_force(o, m, map);
}
