/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files whose bytes the kernel may serve without asking us would never be seen to change: this
 * thread compares them with the source from time to time. Only files that were read, fetched or
 * staged ("touched"), at most RATE of them per second, so that a parallel filesystem's metadata
 * server does not notice. Symlinks are followed, as everywhere.
 *
 * Its own thread, because a stat of a dead filesystem hangs. It must never hold a lock while it
 * asks the source.
 */
#include "cache_priv.h"

#include <fcntl.h>

enum { RATE = 1000, BATCH = 10 };

/* False when the cache stops. */
static bool nap(struct cache *c, uint64_t ns)
{
	bool is_stopping, is_over = false;

	mutex_lock(&c->reval_mu);
	while (!c->reval_stop && !is_over)
		is_over = cond_wait_for(&c->reval_cv, &c->reval_mu, ns);
	is_stopping = c->reval_stop;
	mutex_unlock(&c->reval_mu);
	return !is_stopping;
}

static void check_entry(struct cache *c, struct entry_id entry)
{
	struct file_identity known, now;
	char path[4096];
	struct stat st;

	if (dataset_path(c->p.dataset, entry, path, sizeof(path)) != 0)
		return;
	if (fstatat(dataset_source_fd(c->p.dataset), path, &st, 0) != 0) {
		if (errno != ENOENT && errno != ENOTDIR)
			return; /* says nothing about the file */
		st.st_mode = 0;
	}
	if (!S_ISREG(st.st_mode)) {
		bits_clear(c->touched, entry.v); /* after this nobody holds anything of it */
		change_file(c, entry, NULL);
		return;
	}
	dataset_identity(c->p.dataset, entry, &known);
	now = file_identity_of(&st);
	if (!file_identity_eq(&known, &now))
		change_file(c, entry, &st);
}

/* One round over all touched files; false when the cache stops. */
static bool check_all(struct cache *c)
{
	uint32_t n = dataset_n_entries(c->p.dataset), in_batch = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (!atomic_load_explicit(&c->touched[i / 64], memory_order_relaxed)) {
			i |= 63;
			continue;
		}
		if (!bits_get(c->touched, i))
			continue;
		check_entry(c, (struct entry_id){ i });
		if (++in_batch < BATCH)
			continue;
		in_batch = 0;
		if (!nap(c, BATCH * NS_PER_S / RATE))
			return false;
	}
	return true;
}

void *revalidate_main(void *cache)
{
	struct cache *c = cache;

	while (nap(c, c->p.revalidate_ns) && check_all(c))
		;
	return NULL;
}
