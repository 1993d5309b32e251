/* SPDX-License-Identifier: Apache-2.0 */
/* What an order of the bench numbers: files, records of the dataset's table, or, where it has none,
 * parts of one length that files are cut into. Pure but for the table, which nobody changes. */
#include <errno.h>

#include "bench_priv.h"
#include "clairfs/base/text.h"

const char *const bench_access_names[] = { "whole", "stream", "random", NULL };

struct dataset_extent bench_unit(const struct bench_setup *s, uint32_t unit)
{
	uint32_t low = 0, high = dataset_n_samples(s->ds);
	uint64_t size, at;

	if (s->args->access != BENCH_RANDOM)
		return (struct dataset_extent){
			.entry = { unit }, .length = dataset_size(s->ds, (struct entry_id){ unit })
		};
	if (!s->first)
		return dataset_locate(s->ds, (struct record_no){ unit });
	while (low + 1 < high) {
		uint32_t middle = low + (high - low) / 2;

		if (s->first[middle] <= unit)
			low = middle;
		else
			high = middle;
	}
	size = dataset_size(s->ds, (struct entry_id){ low });
	at = (uint64_t)(unit - s->first[low]) * s->args->record_bytes;
	return (struct dataset_extent){ .entry = { low },
					.offset = at,
					.length = MIN(s->args->record_bytes, size - at) };
}

static int cut(struct bench_setup *s, struct err *err)
{
	uint32_t n = dataset_n_samples(s->ds);
	uint64_t units = 0;

	s->first = calloc((size_t)n + 1, sizeof(*s->first));
	if (!s->first)
		return err_set_errno(err, -ENOMEM, "records");
	for (uint32_t i = 0; i <= n; i++) {
		s->first[i] = (uint32_t)units;
		if (i < n)
			units += DIV_ROUND_UP(dataset_size(s->ds, (struct entry_id){ i }),
					      s->args->record_bytes);
		if (units >= UINT32_MAX - 1)
			return err_set(err, -EINVAL,
				       "--record-bytes %llu: more than 2^32 records",
				       (unsigned long long)s->args->record_bytes);
	}
	s->n_units = (uint32_t)units;
	return units ? 0 : err_set(err, -ENODATA, "%.512s: all files are empty", s->path);
}

int bench_units_make(struct bench_setup *s, struct err *err)
{
	s->n_units = dataset_n_samples(s->ds);
	if (s->args->access != BENCH_RANDOM)
		return 0;
	if (s->args->record_bytes)
		return cut(s, err);
	if (!dataset_has_records(s->ds))
		return err_set(err, -EINVAL,
			       "--access random: no table of records is there (clairfs index "
			       "--records, and -o snapshot_dir here), so --record-bytes is needed");
	s->n_units = dataset_n_records(s->ds);
	return 0;
}
