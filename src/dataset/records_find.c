/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the records of a dataset. First the files that are containers are chosen, by what describes
 * them (index.json, NAME.idx) and by their names, in the order of the samples of the index; those
 * of one index.json come in its order, where the first of them is. Then several threads read them
 * (records_read.c), and their tables are joined. Must never take a file for a container that only
 * looks like one by its place: every parser checks what it reads, and an array of numpy or a zip
 * file may be one sample, so these have to be asked for by name. */
#include <errno.h>
#include <string.h>

#include "clairfs/base/log.h"
#include "clairfs/base/text.h"
#include "scan_priv.h"

#define LOGGED_MAX 8u

const char records_too_tangled[] =
	"its records are numbered to and fro, too often for an index; sorted by offset they would do";

struct tasks {
	struct records_task *task;
	size_t n, capacity;
};

struct group { /* what one index describes */
	size_t first, n; /* in `grouped` */
	bool is_used;
};

struct finder {
	const struct dataset *ds;
	struct dataset_find *find;
	uint32_t *sample, n; /* slots, in the order of the samples */
	uint32_t *group_of;  /* by slot, from 1; 0: none */
	struct group *group;
	size_t n_groups, groups_capacity;
	struct tasks grouped, chosen;
	bool has_names; /* some file has a name of the format that was asked for */
};

struct reading {
	const struct finder *f;
	struct records_part *part;
	atomic_size_t next;
	atomic_uint_fast64_t n_failed;
	struct mutex mu;
	size_t failed_task; /* mu */
	struct err err;     /* mu: of that task, the first one of those that failed */
	int rc;             /* mu */
};

static bool wants(const struct finder *f, enum format format)
{
	return f->find->is_auto ? format != FORMAT_NPY && format != FORMAT_ZIP
				: f->find->format == format;
}

static int add_task(struct tasks *t, const struct records_task *task)
{
	if (t->n == t->capacity) {
		size_t capacity = t->capacity * 2 + 64;
		void *bigger = reallocarray(t->task, capacity, sizeof(*t->task));

		if (!bigger)
			return -ENOMEM;
		t->task = bigger;
		t->capacity = capacity;
	}
	t->task[t->n++] = *task;
	return 0;
}

/* The files of a group are its own from here on. False: one is there twice, and none is. */
static bool own_files(struct finder *f, const struct group *g, uint32_t number)
{
	for (size_t i = g->first; i < g->first + g->n; i++) {
		uint32_t *group_of = &f->group_of[f->grouped.task[i].slot];

		if (*group_of == 0) {
			*group_of = number;
			continue;
		}
		while (i-- > g->first)
			f->group_of[f->grouped.task[i].slot] = 0;
		return false;
	}
	return true;
}

/* -EEXIST: it describes a file twice. */
static int add_group(struct finder *f, uint32_t index_slot, size_t first)
{
	struct group group = { .first = first, .n = f->grouped.n - first };

	if (f->n_groups == f->groups_capacity) {
		size_t capacity = f->groups_capacity * 2 + 16;
		void *bigger = reallocarray(f->group, capacity, sizeof(*f->group));

		if (!bigger)
			return -ENOMEM;
		f->group = bigger;
		f->groups_capacity = capacity;
	}
	if (!own_files(f, &group, (uint32_t)f->n_groups + 1)) {
		f->grouped.n = first;
		return -EEXIST;
	}
	f->group[f->n_groups++] = group;
	f->group_of[index_slot] = (uint32_t)f->n_groups;
	return 0;
}

/* While the shards of an index.json are told. */
struct shards {
	struct finder *f;
	uint32_t dir;
	struct err *err;
};

/* A file beside another one, by its name, that is a sample and nobody's yet; UINT32_MAX. */
static uint32_t file_beside(const struct finder *f, uint32_t dir, const char *name, size_t len)
{
	const struct table *t = &f->ds->t;
	uint32_t slot = table_resolve_from(t, dir, name, len);

	return slot < t->n_samples && f->group_of[slot] == 0 ? slot : UINT32_MAX;
}

static int take_shard(void *ctx, const struct format_shard *shard)
{
	struct shards *s = ctx;
	struct records_task task = { .samples = shard->samples };
	char shown[256];

	task.slot = task.index_slot = file_beside(s->f, s->dir, shard->name, shard->len);
	if (task.slot == UINT32_MAX)
		return err_set(s->err, -EBADMSG,
			       "%s is not there, or compressed, or described by another index",
			       text_escape(shard->name, shard->len, shown, sizeof(shown)));
	return add_task(&s->f->grouped, &task);
}

/* The shards of an index.json, if it is of a kind that is wanted. */
static int take_index(struct finder *f, uint32_t slot, const char *path, struct err *err)
{
	struct shards s = { .f = f, .dir = f->ds->t.parent[slot], .err = err };
	AUTO_FREE uint8_t *bytes = NULL;
	size_t size, first = f->grouped.n;
	enum format format = FORMAT_NONE;
	int rc;

	if (!wants(f, FORMAT_MDS) && !wants(f, FORMAT_LITDATA))
		return 0;
	rc = records_read_all(f->ds, path, FORMAT_JSON_MAX, &bytes, &size, err);

	if (rc == 0)
		rc = format_json_index(bytes, size, &format, take_shard, &s, err);
	if (rc < 0 || format == FORMAT_NONE || !wants(f, format)) {
		f->grouped.n = first;
		return format == FORMAT_NONE || wants(f, format) ? rc : 0;
	}
	for (size_t i = first; i < f->grouped.n; i++)
		f->grouped.task[i].format = format;
	rc = add_group(f, slot, first);
	return rc == -EEXIST ? err_set(err, -EBADMSG, "a shard is described twice") : rc;
}

/* NAME.idx beside NAME.bin */
static int take_pair(struct finder *f, uint32_t slot, const char *name, uint32_t len)
{
	struct records_task task = { .index_slot = slot,
				     .format = FORMAT_MEGATRON,
				     .samples = UINT64_MAX };
	char data[DATASET_NAME_MAX + 1];
	size_t first = f->grouped.n;
	int rc;

	memcpy(data, name, len);
	memcpy(data + len - 3, "bin", 3);
	task.slot = file_beside(f, f->ds->t.parent[slot], data, len);
	if (task.slot == UINT32_MAX)
		return 0;
	rc = add_task(&f->grouped, &task);
	return rc < 0 ? rc : add_group(f, slot, first);
}

static void warn(uint64_t before, const struct err *err, const char *so)
{
	if (before < LOGGED_MAX)
		log_warn("records: %s: %s%s", err->msg, so,
			 before + 1 == LOGGED_MAX ? "; more of this kind are only counted" : "");
}

/* Files that describe others. */
static int take_described(struct finder *f, struct err *err)
{
	char path[DATASET_PATH_MAX + 1], shown[512];

	for (uint32_t i = 0; i < f->n; i++) {
		uint32_t slot = f->sample[i], len;
		const char *name = table_name(&f->ds->t, slot, &len);
		struct err why = { 0 };
		int rc = 0;

		if (len == 10 && memcmp(name, "index.json", 10) == 0 &&
		    table_path(&f->ds->t, slot, path, sizeof(path)) == 0) {
			rc = take_index(f, slot, path, &why);
			if (rc < 0)
				err_prefix(&why, "%s",
					   text_escape(path, strlen(path), shown, sizeof(shown)));
		} else if (len > 4 && memcmp(name + len - 4, ".idx", 4) == 0 &&
			   wants(f, FORMAT_MEGATRON)) {
			rc = take_pair(f, slot, name, len);
		}
		if (rc == -ENOMEM)
			return err_set(err, rc, "out of memory");
		if (rc < 0 && !f->find->is_auto)
			return err_set(err, rc, "%s", why.msg);
		if (rc < 0)
			warn(f->find->n_failed++, &why, "its shards are taken by their names");
	}
	return 0;
}

/* What a file is by its name, FORMAT_NONE: nothing that is wanted. */
static enum format format_for(const struct finder *f, uint32_t slot)
{
	uint32_t len;
	const char *name = table_name(&f->ds->t, slot, &len);
	enum format format = format_of_name(name, len);

	/* These have no names of their own, but what describes them. */
	if (format_is_sidecar(name, len) || f->find->format == FORMAT_LITDATA ||
	    f->find->format == FORMAT_MEGATRON)
		return FORMAT_NONE;
	if (!f->find->is_auto && !f->has_names)
		return f->find->format;
	return format != FORMAT_NONE && wants(f, format) ? format : FORMAT_NONE;
}

static int take_group(struct finder *f, uint32_t slot)
{
	struct group *g = &f->group[f->group_of[slot] - 1];

	for (size_t i = 0; i < g->n && !g->is_used; i++) {
		int rc = add_task(&f->chosen, &f->grouped.task[g->first + i]);

		if (rc < 0)
			return rc;
	}
	g->is_used = true;
	return 0;
}

/* Whether some file is of the format that was asked for by its name. */
static bool has_names(struct finder *f)
{
	f->has_names = true;
	for (uint32_t i = 0; i < f->n; i++)
		if (f->group_of[f->sample[i]] || format_for(f, f->sample[i]) != FORMAT_NONE)
			return true;
	return false;
}

/* The first file that something else makes a table of says what. */
static int say_none(const struct finder *f, struct err *err)
{
	char path[DATASET_PATH_MAX + 1], shown[512];

	for (uint32_t i = 0; i < f->n; i++) {
		uint32_t len;
		const char *name = table_name(&f->ds->t, f->sample[i], &len);
		const char *advice = format_advice_for_name(name, len);

		if (!advice || table_path(&f->ds->t, f->sample[i], path, sizeof(path)) < 0)
			continue;
		return err_set(err, -ENODATA, "no file has records that are known; %s is %s",
			       text_escape(path, strlen(path), shown, sizeof(shown)), advice);
	}
	return err_set(err, -ENODATA,
		       "no file has records that are known; --import takes a list of where they are");
}

static int choose(struct finder *f, struct err *err)
{
	int rc = take_described(f, err);

	if (rc < 0)
		return rc;
	f->has_names = f->find->is_auto || has_names(f);
	for (uint32_t i = 0; i < f->n; i++) {
		struct records_task task = { .slot = f->sample[i],
					     .index_slot = f->sample[i],
					     .format = format_for(f, f->sample[i]),
					     .samples = UINT64_MAX };

		if (f->group_of[task.slot])
			rc = take_group(f, task.slot);
		else if (task.format != FORMAT_NONE)
			rc = add_task(&f->chosen, &task);
		if (rc < 0)
			return err_set(err, rc, "out of memory");
	}
	return f->chosen.n > 0 ? 0 : say_none(f, err);
}

/* A container that cannot be read is one sample, or the end. */
static void fail(struct reading *r, size_t i, int rc, const struct err *err)
{
	bool is_whole = rc == -ENOTSUP || r->f->find->is_auto;

	if (is_whole && rc != -ENOMEM) {
		warn(atomic_fetch_add(&r->n_failed, 1), err, "one sample as a whole");
		rc = records_part_whole(&r->part[i], r->f->chosen.task[i].slot);
	}
	if (rc == 0)
		return;
	mutex_lock(&r->mu);
	if (r->rc == 0 || i < r->failed_task) {
		r->failed_task = i;
		r->rc = rc;
		r->err = *err;
	}
	mutex_unlock(&r->mu);
}

static void read_main(void *arg)
{
	struct reading *r = arg;

	for (;;) {
		size_t i = atomic_fetch_add(&r->next, 1);
		struct err err = { 0 };
		bool is_over;
		int rc;

		if (i >= r->f->chosen.n)
			return;
		mutex_lock(&r->mu);
		is_over = r->rc < 0 && r->failed_task < i; /* else an earlier one may be told */
		mutex_unlock(&r->mu);
		if (is_over)
			return;
		rc = records_read(r->f->ds, &r->f->chosen.task[i], &r->part[i], &err);
		if (rc == 0) /* here, so that what is wrong with a file costs that file only */
			rc = records_settle_for(&r->f->ds->t, &r->part[i], &err);
		if (rc < 0)
			fail(r, i, rc, &err);
	}
}

static int join_error(const struct table *t, int rc, uint32_t slot, struct err *err)
{
	char path[DATASET_PATH_MAX + 1] = "a file", shown[512];

	if (rc == -EEXIST || rc == -E2BIG) {
		if (slot < t->n_entries && table_path(t, slot, path, sizeof(path)) < 0)
			strcpy(path, "a file"); /* UNTESTED: no path of the index is longer */
		return err_set(err, rc == -EEXIST ? -EBADMSG : rc, "%s: %s",
			       text_escape(path, strlen(path), shown, sizeof(shown)),
			       rc == -EEXIST ? "records overlap" : records_too_tangled);
	}
	if (rc == -EOVERFLOW)
		return err_set(err, rc, "more records than an index can number (2^32)");
	if (rc == -ENODATA)
		return err_set(err, rc, "there are no records");
	return rc < 0 ? err_set(err, rc, "out of memory") : 0;
}

int records_settle_for(const struct table *t, struct records_part *part, struct err *err)
{
	uint32_t slot;
	int rc = records_part_settle(part, &slot);

	return join_error(t, rc, slot, err);
}

int records_join_for(const struct table *t, struct records_part *parts, size_t n,
		     struct records *ret, struct err *err)
{
	uint32_t slot;
	int rc = records_join(parts, n, ret, &slot);

	return join_error(t, rc, slot, err);
}

static int read_chosen(struct finder *f, struct records *ret, struct err *err)
{
	struct scan_options options = { .threads = f->find->threads };
	struct reading r = { .f = f };
	int rc;

	r.part = calloc(f->chosen.n, sizeof(*r.part));
	if (!r.part)
		return err_set(err, -ENOMEM, "out of memory");
	mutex_init(&r.mu);
	crew_run(&options, "clairfs-records", read_main, &r);
	mutex_fini(&r.mu);
	f->find->n_failed += r.n_failed;
	rc = r.rc < 0 ? err_set(err, r.rc, "%s", r.err.msg)
		      : records_join_for(&f->ds->t, r.part, f->chosen.n, ret, err);
	for (size_t i = 0; i < f->chosen.n; i++)
		records_part_fini(&r.part[i]);
	free(r.part);
	return rc;
}

/* Files that have no records and do not only describe some. */
static uint64_t count_plain(const struct finder *f, const struct records *r)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < f->n; i++)
		n += !records_of_file(r, f->sample[i]) &&
		     !records_is_sidecar(r, &f->ds->t, f->sample[i]);
	return n;
}

/* A table that has whole files only says nothing that the index does not. */
static bool has_only_whole(const struct records *r)
{
	for (uint32_t i = 0; i < r->n_runs; i++)
		if (r->run[i].kind != RECORDS_WHOLE)
			return false;
	return true;
}

int dataset_find_records(struct dataset *ds, struct dataset_find *find, struct err *err)
{
	struct finder f = { .ds = ds, .find = find };
	struct records fresh = { 0 };
	int rc;

	find->n_plain = find->n_failed = 0;
	if (find->is_auto)
		find->format = FORMAT_NONE;
	rc = dataset_number_all(ds, DATASET_SORT_INDEX, find->under, &f.sample, &f.n, err);
	f.group_of = calloc((size_t)ds->t.n_samples + 1, sizeof(*f.group_of));
	if (rc == 0 && !f.group_of)
		rc = err_set(err, -ENOMEM, "out of memory");
	if (rc == 0)
		rc = choose(&f, err);
	if (rc == 0)
		rc = read_chosen(&f, &fresh, err);
	if (rc == 0 && has_only_whole(&fresh)) {
		records_fini(&fresh);
		rc = say_none(&f, err);
	}
	if (rc == 0) {
		find->n_plain = count_plain(&f, &fresh);
		records_fini(&ds->records);
		ds->records = fresh;
	}
	free(f.sample);
	free(f.group_of);
	free(f.group);
	free(f.grouped.task);
	free(f.chosen.task);
	return rc;
}
