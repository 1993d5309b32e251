/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store of a mount, from the options: none, private or persistent. A directory that the user
 * names is persistent unless he says otherwise; a budget without a directory is a private store in
 * the job's temporary directory, which on most clusters is on the node's drive and emptied with the
 * job.
 *
 * What a persistent store already holds of this dataset is looked up once before the mount is
 * ready: segments of which nothing is wanted may be given up from then on. Set-up, main thread.
 * Must not take a directory that nobody has named for a persistent store, nor fail a mount for what
 * a drive does: without its store it is slower, and no more.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "clairfs/base/log.h"
#include "daemon_priv.h"

#define STORE_MAX_INFLIGHT 32

static bool is_kept(struct wire *w, struct entry_id entry, uint64_t *bytes)
{
	struct file_identity id, kept;

	if (dataset_kind(w->dataset, entry) != ENTRY_KIND_FILE)
		return false;
	dataset_identity(w->dataset, entry, &id);
	if (dataset_kept_identity(w->dataset, entry, &id, &kept) != 0)
		return false;
	for (uint32_t i = 0; i < piece_count(id.size); i++) {
		struct piece_key key = { entry, i };

		if (!store_has(w->store, key, &kept)) /* the others are of no use without it */
			return false;
	}
	*bytes += id.size;
	return true;
}

static void claim(struct wire *w)
{
	uint32_t n = store_bytes(w->store) ? dataset_n_entries(w->dataset) : 0, n_kept = 0;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < n; i++)
		n_kept += is_kept(w, (struct entry_id){ i }, &bytes);
	store_claimed(w->store);
	if (n)
		log_info("store %s: %u files of this dataset, %llu MB", w->opts->store_dir, n_kept,
			 (unsigned long long)(bytes / 1000000));
}

/* What the samples take if all that fit are kept. */
static uint64_t expected_bytes(const struct wire *w)
{
	uint32_t n = dataset_n_samples(w->dataset);
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < n; i++)
		bytes += store_cost(dataset_size(w->dataset, (struct entry_id){ i }));
	return MIN(bytes, w->store_bytes);
}

/* The rest is for the source: a read of the job must never find none left. */
static uint32_t segments_allowed(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) < 0)
		return 0;
	return (uint32_t)MIN(MAX(lim.rlim_cur / (lim.rlim_cur < 2048 ? 4 : 2), 1), UINT16_MAX);
}

int wire_make_store(struct wire *w, struct err *err)
{
	const struct mount_opts *o = w->opts;
	struct store_params sp = { .dir = o->store_dir,
				   .is_persistent = o->store_dir && o->store_keep,
				   .fsid = store_fsid(dataset_source_fd(w->dataset)),
				   .limit_bytes = o->store_bytes,
				   .keep_free_bytes = o->store_keep_free,
				   .write_bytes_per_s = o->store_max_mbps * 1000000,
				   .verify = (enum store_verify)o->store_verify,
				   .engine = (enum io_engine)o->store_engine,
				   .max_inflight = STORE_MAX_INFLIGHT,
				   .max_segments = segments_allowed(),
				   .metrics = w->metrics };
	struct store_status st;
	int rc;

	if (!sp.dir && !sp.limit_bytes)
		return 0;
	if (!sp.dir)
		sp.dir = getenv("TMPDIR");
	if (!sp.dir)
		return err_set(err, -EINVAL,
			       "option store_bytes: give store_dir too, or set TMPDIR for a store "
			       "that lasts as long as the mount");
	rc = store_open(&sp, &w->store, err);
	if (store_is_drive_error(rc)) {
		log_warn("%s; the mount goes on without a store", err->msg);
		metrics_add(w->metrics, METRIC_STORE_OFF_TIMES, 1);
		w->is_store_lost = true;
		return 0;
	}
	if (rc < 0) {
		err_prefix(err, "option store_dir");
		return rc;
	}
	store_get_status(w->store, &st);
	w->store_bytes = st.limit_bytes;
	metrics_gauge_set(w->metrics, METRIC_STORE_EXPECTED_BYTES, expected_bytes(w));
	w->store_held_bytes = st.record_bytes;
	if (sp.is_persistent)
		claim(w);
	return 0;
}
