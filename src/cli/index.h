/* SPDX-License-Identifier: Apache-2.0 */
/* clairfs index, of which the table of records is a file of its own. */
#ifndef CLAIRFS_CLI_INDEX_H
#define CLAIRFS_CLI_INDEX_H

#include "clairfs/dataset/records.h"
#include "clairfs/format.h"

struct index_args {
	struct dataset_params params;
	enum dataset_sort sort;
	const char *under;
	/* index_records.c */
	const char *records;      /* --records, NULL: not given */
	const char *snapshot_dir; /* --snapshot-dir, NULL: where mounts keep it */
	const char **imports;     /* --import, [n_imports] */
	size_t n_imports;
	bool is_auto;
	enum format format;
};

/* Whether --records has a word that is known; sets what follows from it. -EINVAL. */
int index_records_parse(struct index_args *a, struct err *err) MUST_USE;
/* Makes, forgets or prints the table that is kept of a source. Returns the exit code. */
int index_records_run(struct index_args *a);

#endif
