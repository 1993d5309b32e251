/* SPDX-License-Identifier: Apache-2.0 */
/* The table of records of an open dataset: what others ask it, and writing it into the snapshot.
 * For that the snapshot is read again, since the open dataset may show other attributes than it
 * keeps (rights above the source); it must be of the same names. Where a container was changed in
 * place since its directory was scanned, the snapshot learns what it is now. Runs in any thread;
 * dataset_keep_records in one that may block. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "dataset_priv.h"

bool dataset_has_records(const struct dataset *ds)
{
	return ds->records.blob != NULL;
}

uint32_t dataset_n_records(const struct dataset *ds)
{
	return ds->records.blob ? (uint32_t)records_count(&ds->records) : ds->t.n_samples;
}

struct dataset_extent dataset_locate(const struct dataset *ds, struct record_no record)
{
	struct format_range range = { 0, UINT64_MAX };
	uint32_t slot = record.v;

	if (ds->records.blob)
		records_locate(&ds->records, record.v, &slot, &range);
	if (range.length == UINT64_MAX)
		range.length = dataset_size(ds, (struct entry_id){ slot });
	return (struct dataset_extent){ .entry = { slot },
					.offset = range.offset,
					.length = range.length };
}

struct record_no dataset_record_at(const struct dataset *ds, struct entry_id e, uint64_t offset)
{
	uint32_t record = dataset_is_sample(ds, e) ? e.v : UINT32_MAX;

	if (ds->records.blob)
		record = records_at(&ds->records, dataset_slot(ds, e), offset);
	return (struct record_no){ record };
}

bool dataset_record_identity(const struct dataset *ds, struct entry_id e, struct file_identity *ret)
{
	const struct run *s =
		ds->records.blob ? records_of_file(&ds->records, dataset_slot(ds, e)) : NULL;

	if (!s || s->kind == RECORDS_WHOLE)
		return false;
	*ret = s->identity;
	return true;
}

int dataset_runs(const struct dataset *ds, struct dataset_run **ret, size_t *ret_n)
{
	const struct records *r = &ds->records;
	size_t n = 0, at = 0;

	for (uint32_t i = 0; i < r->n_runs; i++)
		n += r->run[i].kind == RECORDS_WHOLE ? r->run[i].count : 1;
	*ret = reallocarray(NULL, MAX(n, 1), sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	for (uint32_t i = 0; i < r->n_runs; i++) {
		const struct run *s = &r->run[i];
		uint64_t files = s->kind == RECORDS_WHOLE ? s->count : 1;

		for (uint64_t k = 0; k < files; k++)
			(*ret)[at++] = (struct dataset_run){ { s->slot + (uint32_t)k },
							       s->count / files };
	}
	*ret_n = n;
	return 0;
}

void dataset_records_stats(const struct dataset *ds, struct dataset_records_stats *ret)
{
	const struct records *r = &ds->records;

	*ret = (struct dataset_records_stats){ .bytes = r->blob_bytes };
	if (!r->blob)
		ret->records[RECORDS_WHOLE] = ret->files[RECORDS_WHOLE] = ds->t.n_samples;
	for (uint32_t i = 0; i < r->n_runs; i++) {
		const struct run *s = &r->run[i];

		ret->records[s->kind] += s->count;
		ret->files[s->kind] += s->kind == RECORDS_WHOLE ? s->count : 1;
	}
}

void dataset_drop_records(struct dataset *ds)
{
	records_fini(&ds->records);
}

/* The same entries by the same numbers. */
static bool has_same_names(const struct table *a, const struct table *b)
{
	size_t n = a->n_entries;

	return a->n_samples == b->n_samples && a->n_dirs == b->n_dirs && a->n_others == b->n_others &&
	       a->names_bytes == b->names_bytes &&
	       memcmp(a->parent, b->parent, (n + 1) * sizeof(*a->parent)) == 0 &&
	       memcmp(a->name_off, b->name_off, (n + 2) * sizeof(*a->name_off)) == 0 &&
	       memcmp(a->names, b->names, a->names_bytes) == 0;
}

static void renew_attributes(struct table *t, const struct records *r)
{
	for (uint32_t i = 0; i < r->n_runs; i++) {
		const struct run *s = &r->run[i];

		if (s->kind == RECORDS_WHOLE)
			continue;
		t->size[s->slot] = s->identity.size;
		t->ino[s->slot] = s->identity.ino;
		t->mtime_ns[s->slot] = s->identity.mtime_ns;
		t->ctime_ns[s->slot] = s->identity.ctime_ns;
	}
}

static int records_save(int dir_fd, const struct snapshot_key *key, const struct dataset *ds,
			struct err *err)
{
	struct snapshot snap = { 0 };
	int rc = snapshot_load(dir_fd, key, &snap);

	if (rc < 0)
		return err_set(err, rc == -EBADMSG ? -ENOENT : rc,
			       "there is no index of it yet that could be read");
	if (!has_same_names(&snap.t, &ds->t)) {
		snapshot_fini(&snap);
		return err_set(err, -ESTALE, "the source has changed meanwhile: try again");
	}
	renew_attributes(&snap.t, &ds->records);
	records_fini(&snap.records);
	snap.records = ds->records;
	rc = snapshot_save(dir_fd, key, &snap);
	snap.records = (struct records){ 0 };
	snapshot_fini(&snap);
	return rc < 0 ? err_set_errno(err, rc, "its index cannot be written") : 0;
}

int dataset_keep_records(const struct dataset *ds, const struct dataset_params *params,
			 struct err *err)
{
	AUTO_FD int fd = -1, dir_fd = -1;
	struct snapshot_key key;
	char why[DATASET_WHY];
	struct stat st;
	int rc;

	fd = openat(ds->source_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set_errno(err, -errno, "source %s", params->source);
	snapshot_key_of(params->source, fd, st.st_ino, &key);
	key.is_shared = params->is_shared;
	dir_fd = params->snapshot_dir ? snapshot_dir_open(params->snapshot_dir, why) : -1;
	if (dir_fd < 0)
		return err_set(err, -ENOENT, "no index is kept: %s",
			       params->snapshot_dir ? why : "there is no directory for it");
	rc = records_save(dir_fd, &key, ds, err);
	if (rc < 0 && err)
		err_prefix(err, "source %s", params->source);
	return rc;
}
