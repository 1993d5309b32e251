/* SPDX-License-Identifier: Apache-2.0 */
/* A table of records from a list that somebody made. Each line names a file by its path, or the
 * list is for one file, which has its name. What the list says is compared with the source: a
 * record must lie within its file as that is now. Records have the numbers that their lines have,
 * whatever the sequence of files. Runs in the thread of the command. */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "clairfs/base/text.h"
#include "dataset_priv.h"

struct dataset_import {
	const struct dataset *ds;
	char *source, *real;            /* where absolute paths begin */
	struct records_part part;
	struct file_identity *identity; /* by slot */
	uint8_t *is_known;
	uint32_t slot;     /* of the line before, UINT32_MAX: none */
	uint32_t own_slot; /* of the list, where lines have no path */
	struct err *err;
};

int dataset_import_new(const struct dataset *ds, const char *source, struct dataset_import **ret,
		       struct err *err)
{
	struct dataset_import *import = calloc(1, sizeof(*import));

	if (import) {
		import->ds = ds;
		import->slot = UINT32_MAX;
		/* Of each file one run is free, as if it were read by itself. */
		import->part.runs_max = (uint32_t)MIN((uint64_t)RECORDS_RUNS_MAX + ds->t.n_samples,
						      UINT32_MAX);
		import->source = strdup(source);
		import->real = realpath(source, NULL);
		import->identity = calloc((size_t)ds->t.n_entries + 1, sizeof(*import->identity));
		import->is_known = calloc((size_t)ds->t.n_entries + 1, 1);
	}
	if (!import || !import->source || !import->identity || !import->is_known) {
		dataset_import_free(import);
		return err_set(err, -ENOMEM, "out of memory");
	}
	*ret = import;
	return 0;
}

void dataset_import_free(struct dataset_import *import)
{
	if (!import)
		return;
	records_part_fini(&import->part);
	free(import->source);
	free(import->real);
	free(import->identity);
	free(import->is_known);
	free(import);
}

/* What is left of an absolute path behind this directory; NULL: it is not below it. */
static const char *behind(const char *dir, const char *path, size_t len)
{
	size_t n = dir ? strlen(dir) : 0;

	while (n > 1 && dir[n - 1] == '/')
		n--;
	return n > 0 && len > n && memcmp(path, dir, n) == 0 && path[n] == '/' ? path + n + 1 : NULL;
}

/* UINT32_MAX: the source has no such file. */
static uint32_t file_of(const struct dataset_import *import, const char *path, size_t len)
{
	const struct table *t = &import->ds->t;
	const char *rest = path;
	uint32_t slot;

	if (len > 0 && path[0] == '/') {
		rest = behind(import->source, path, len);
		if (!rest)
			rest = behind(import->real, path, len);
		if (!rest)
			return UINT32_MAX;
	}
	slot = table_resolve(t, rest, len - (size_t)(rest - path));
	return slot == UINT32_MAX || table_is_dir(t, slot) ? UINT32_MAX : slot;
}

static int import_look_at(struct dataset_import *import, uint32_t slot)
{
	struct stat st;
	int rc;

	if (import->is_known[slot])
		return 0;
	rc = dataset_look(import->ds, (struct entry_id){ slot }, &st);
	if (rc < 0)
		return err_set_errno(import->err, rc, "the file cannot be looked at");
	if (!S_ISREG(st.st_mode))
		return err_set(import->err, -EBADMSG, "it is no file any more");
	import->identity[slot] = file_identity_of(&st);
	import->is_known[slot] = 1;
	return 0;
}

static int take_line(void *ctx, const struct format_line *line)
{
	struct dataset_import *import = ctx;
	struct format_range range = { line->offset, line->length };
	uint32_t slot = line->path ? file_of(import, line->path, line->len) : import->own_slot;
	uint64_t size;
	char shown[512];
	int rc = 0;

	if (slot == UINT32_MAX)
		return err_set(import->err, -ENOENT, "the source has no file %s",
			       text_escape(line->path, line->len, shown, sizeof(shown)));
	rc = import_look_at(import, slot);
	if (rc < 0)
		return rc;
	size = import->identity[slot].size;
	if (line->length == 0 || line->offset > size || line->length > size - line->offset)
		return err_set(import->err, -EBADMSG,
			       "%llu bytes at %llu are not in the file, which has %llu",
			       (unsigned long long)line->length, (unsigned long long)line->offset,
			       (unsigned long long)size);
	if (slot != import->slot)
		rc = records_part_file(&import->part, slot, &import->identity[slot]);
	if (rc == 0)
		rc = records_part_add(&import->part, &range, 1);
	import->slot = slot;
	return rc < 0 ? err_set(import->err, rc, "%s",
				rc == -ENOMEM ? "out of memory" :
				rc == -E2BIG  ? records_too_tangled :
						"too many records")
		      : 0;
}

/* The name without its last extension. */
static size_t stem_of(const char *name, size_t len)
{
	for (size_t i = len; i > 1; i--)
		if (name[i - 1] == '.')
			return i - 1;
	return len;
}

static bool is_for(const char *stem, size_t stem_len, const char *name, size_t len)
{
	if (format_is_sidecar(name, len))
		return false;
	return (len == stem_len || stem_of(name, len) == stem_len) &&
	       memcmp(name, stem, stem_len) == 0;
}

/* The one file that a list is for. */
static int find_own(struct dataset_import *import, const char *name, struct err *err)
{
	const struct table *t = &import->ds->t;
	const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
	size_t stem_len = stem_of(base, strlen(base));
	uint32_t len;

	import->own_slot = UINT32_MAX;
	for (uint32_t slot = 0; slot < t->n_entries; slot++) {
		const char *found = table_name(t, slot, &len);

		if (table_is_dir(t, slot) || !is_for(base, stem_len, found, len))
			continue;
		if (import->own_slot != UINT32_MAX)
			return err_set(err, -EBADMSG,
				       "it could be for several files of the source, as %.*s: use "
				       "lines with paths",
				       (int)len, found);
		import->own_slot = slot;
	}
	return import->own_slot != UINT32_MAX
		       ? 0
		       : err_set(err, -ENOENT, "the source has no file %.*s, or with an extension",
				 (int)stem_len, base);
}

int dataset_import_add(struct dataset_import *import, const char *name, const void *bytes,
		       size_t size, struct err *err)
{
	enum format_list list = format_list_of(bytes, size);
	int rc = 0;

	import->err = err;
	if (list == FORMAT_LIST_OFFSETS || list == FORMAT_LIST_WDS)
		rc = find_own(import, name, err);
	if (rc == 0)
		rc = format_list_read(list, bytes, size, take_line, import, err);
	import->err = NULL;
	return rc;
}

int dataset_import_finish(struct dataset_import *import, struct dataset *ds, struct err *err)
{
	struct records fresh = { 0 };
	int rc = records_join_for(&ds->t, &import->part, 1, &fresh, err);

	if (rc < 0)
		return rc;
	records_fini(&ds->records);
	ds->records = fresh;
	return 0;
}
