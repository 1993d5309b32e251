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
#include "mount_store.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "clairfs/base/log.h"

#define STORE_MAX_INFLIGHT 32

static bool is_kept(struct store *store, const struct dataset *ds, struct entry_id entry,
		    uint64_t *bytes)
{
	struct file_identity id, kept;

	if (dataset_kind(ds, entry) != ENTRY_KIND_FILE)
		return false;
	dataset_identity(ds, entry, &id);
	if (dataset_kept_identity(ds, entry, &id, &kept) != 0)
		return false;
	for (uint32_t i = 0; i < piece_count(id.size); i++) {
		struct piece_key key = { entry, i };

		if (!store_has(store, key, &kept)) /* the others are of no use without it */
			return false;
	}
	*bytes += id.size;
	return true;
}

static void claim_segments(struct store *store, const struct dataset *ds, const char *dir)
{
	uint32_t n = store_bytes(store) ? dataset_n_entries(ds) : 0, n_kept = 0;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < n; i++)
		n_kept += is_kept(store, ds, (struct entry_id){ i }, &bytes);
	store_claimed(store);
	if (n)
		log_info("store %s: %u files of this dataset, %llu MB", dir, n_kept,
			 (unsigned long long)(bytes / 1000000));
}

/* What the samples take if all that fit are kept. */
static uint64_t expected_bytes(const struct dataset *ds, uint64_t budget)
{
	uint32_t n = dataset_n_samples(ds);
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < n; i++)
		bytes += store_cost(dataset_size(ds, (struct entry_id){ i }));
	return MIN(bytes, budget);
}

/* The rest is for the source: a read of the job must never find none left. */
static uint32_t segments_allowed(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) < 0)
		return 0;
	return (uint32_t)MIN(MAX(lim.rlim_cur / (lim.rlim_cur < 2048 ? 4 : 2), 1), UINT16_MAX);
}

int mount_store_open(const struct mount_opts *o, const struct dataset *ds, struct metrics *metrics,
		     struct mount_store *ret, struct err *err)
{
	struct store_params sp = { .dir = o->store_dir,
				   .is_persistent = o->store_dir && o->store_keep,
				   .fsid = store_fsid(dataset_source_fd(ds)),
				   .limit_bytes = o->store_bytes,
				   .keep_free_bytes = o->store_keep_free,
				   .write_bytes_per_s = o->store_max_mbps * 1000000,
				   .verify = (enum store_verify)o->store_verify,
				   .engine = (enum io_engine)o->store_engine,
				   .max_inflight = STORE_MAX_INFLIGHT,
				   .max_segments = segments_allowed(),
				   .metrics = metrics };
	struct store_status st;
	int rc;

	*ret = (struct mount_store){ .store = NULL };
	if (!sp.dir && !sp.limit_bytes)
		return 0;
	if (!sp.dir)
		sp.dir = getenv("TMPDIR");
	if (!sp.dir)
		return err_set(err, -EINVAL,
			       "option store_bytes: give store_dir too, or set TMPDIR for a store "
			       "that lasts as long as the mount");
	rc = store_open(&sp, &ret->store, err);
	if (store_is_drive_error(rc)) {
		log_warn("%s; the mount goes on without a store", err->msg);
		metrics_add(metrics, METRIC_STORE_OFF_TIMES, 1);
		ret->is_lost = true;
		return 0;
	}
	if (rc < 0) {
		err_prefix(err, "option store_dir");
		return rc;
	}
	store_get_status(ret->store, &st);
	ret->bytes = st.limit_bytes;
	ret->found_bytes = st.record_bytes;
	metrics_gauge_set(metrics, METRIC_STORE_EXPECTED_BYTES, expected_bytes(ds, ret->bytes));
	if (sp.is_persistent)
		claim_segments(ret->store, ds, o->store_dir);
	return 0;
}

bool mount_store_look(const struct mount_store *s, bool is_kept, struct store_status *ret)
{
	*ret = (struct store_status){ .is_off = true,
				      .is_write_off = true,
				      .is_persistent = is_kept,
				      .why = "its directory could not be opened; the mount began "
					     "without it" };
	if (s->store)
		store_get_status(s->store, ret);
	return s->store || s->is_lost;
}
