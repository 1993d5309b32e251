/* SPDX-License-Identifier: Apache-2.0 */
/* clairfs index --records and --import: makes the table of where samples are within larger files,
 * and keeps it where mounts find it. Whatever is wrong ends with one line, and what was kept before
 * stays. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "clairfs/base/text.h"
#include "cli.h"
#include "index.h"

#define READ_THREADS 8
#define IMPORT_MAX (UINT64_C(4) << 30)

static const char *const words[] = { "auto", "kept", "none", NULL };

int index_records_parse(struct index_args *a, struct err *err)
{
	const char *near, *advice;

	a->is_auto = strcmp(a->records, "auto") == 0;
	a->format = FORMAT_NONE;
	for (int i = 0; format_names[i]; i++)
		if (strcmp(a->records, format_names[i]) == 0)
			a->format = (enum format)i;
	for (int i = 0; words[i]; i++)
		if (strcmp(a->records, words[i]) == 0)
			return 0;
	if (a->format != FORMAT_NONE)
		return 0;
	advice = format_advice_for_word(a->records);
	if (advice)
		return err_set(err, -EINVAL, "no format '%s': %s", a->records, advice);
	near = text_nearest(a->records, format_names);
	return err_set(err, -EINVAL, "no format '%s'%s%s%s", a->records, near ? ", did you mean '" : "",
		       near ? near : "", near ? "'?" : "");
}

static bool is_format_word(const struct index_args *a, const char *word)
{
	return a->records && strcmp(a->records, word) == 0;
}

static int print_kept(const struct dataset *ds)
{
	static char path[PATH_MAX * 4], escaped[PATH_MAX * 16];
	uint32_t n = dataset_n_records(ds);
	struct entry_id last = ENTRY_NONE;

	for (uint32_t i = 0; i < n && !ferror(stdout); i++) {
		struct dataset_extent x = dataset_locate(ds, (struct record_no){ i });

		if (!entry_eq(x.entry, last)) {
			if (dataset_path(ds, x.entry, path, sizeof(path)) < 0)
				continue;
			text_escape(path, strlen(path), escaped, sizeof(escaped));
			last = x.entry;
		}
		printf("%" PRIu32 "\t%s\t%" PRIu64 "\t%" PRIu64 "\n", i, escaped, x.offset, x.length);
	}
	return cli_finish();
}

static int print_summary(const struct dataset *ds, const struct index_args *a,
			 const struct dataset_find *find)
{
	struct dataset_records_stats st;
	char bytes[32];

	dataset_records_stats(ds, &st);
	printf("%" PRIu32 " samples, %s in %s\n", dataset_n_records(ds),
	       text_from_bytes(st.bytes, bytes, sizeof(bytes)), a->params.snapshot_dir);
	for (int kind = 0; kind < RECORDS_KINDS; kind++)
		if (st.records[kind] > 0)
			printf("%-8s %" PRIu64 " %s in %" PRIu64 " %s\n", records_kind_names[kind],
			       st.records[kind], st.records[kind] == 1 ? "sample" : "samples",
			       st.files[kind], st.files[kind] == 1 ? "file" : "files");
	if (find->n_plain > 0)
		printf("%" PRIu64 " files without records are no samples\n", find->n_plain);
	return cli_finish();
}

/* All of a file, heap. */
static int read_list(const char *path, char **ret, size_t *ret_size, struct err *err)
{
	AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	AUTO_FREE char *bytes = NULL;
	size_t n = 0, capacity = 1 << 16;

	if (fd < 0)
		return err_set_errno(err, -errno, "%s", path);
	for (;;) {
		char *bigger = n + 1 < capacity && bytes ? bytes : realloc(bytes, capacity *= 2);
		ssize_t got;

		if (!bigger)
			return err_set(err, -ENOMEM, "%s: out of memory", path);
		bytes = bigger;
		got = read(fd, bytes + n, capacity - n);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_set_errno(err, -errno, "%s", path);
		if (got == 0)
			break;
		n += (size_t)got;
		if (n > IMPORT_MAX)
			return err_set(err, -E2BIG, "%s: more than 4 GiB", path);
	}
	*ret = TAKE(bytes);
	*ret_size = n;
	return 0;
}

static int import_all(struct dataset *ds, const struct index_args *a, struct err *err)
{
	struct dataset_import *import;
	int rc = dataset_import_new(ds, a->params.source, &import, err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < a->n_imports && rc == 0; i++) {
		AUTO_FREE char *bytes = NULL;
		size_t size = 0;

		rc = read_list(a->imports[i], &bytes, &size, err);
		if (rc < 0)
			break;
		rc = dataset_import_add(import, a->imports[i], bytes, size, err);
		if (rc < 0)
			err_prefix(err, "%s", a->imports[i]);
	}
	if (rc == 0)
		rc = dataset_import_finish(import, ds, err);
	dataset_import_free(import);
	return rc;
}

static int make_records_table(struct dataset *ds, const struct index_args *a, struct dataset_find *find,
			      struct err *err)
{
	int rc = 0;

	*find = (struct dataset_find){ .is_auto = a->is_auto,
				       .format = a->format,
				       .under = a->under,
				       .threads = READ_THREADS };
	if (is_format_word(a, "none"))
		dataset_drop_records(ds);
	else
		rc = a->n_imports > 0 ? import_all(ds, a, err) : dataset_find_records(ds, find, err);
	return rc < 0 ? rc : dataset_keep_records(ds, &a->params, err);
}

int index_records_run(struct index_args *a)
{
	AUTO_FREE char *dir = dataset_snapshot_place(a->snapshot_dir);
	struct dataset_find find = { 0 };
	struct dataset *ds = NULL;
	struct err err = { 0 };
	int rc;

	a->params.snapshot_dir = dir;
	if (!dir) {
		(void)err_set(&err, -ENOENT, "there is no directory for an index: say --snapshot-dir");
		return cli_fail(&err);
	}
	rc = dataset_open(&a->params, &ds, &err);
	if (rc == 0 && is_format_word(a, "kept") && !dataset_has_records(ds))
		rc = err_set(&err, -ENOENT, "no table of records is kept of %s", a->params.source);
	if (rc == 0 && !is_format_word(a, "kept"))
		rc = make_records_table(ds, a, &find, &err);
	if (rc < 0)
		rc = cli_fail(&err);
	else if (is_format_word(a, "kept"))
		rc = print_kept(ds);
	else
		rc = is_format_word(a, "none") ? cli_finish() : print_summary(ds, a, &find);
	dataset_free(ds);
	a->params.snapshot_dir = NULL;
	return rc;
}
