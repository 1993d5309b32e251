/* SPDX-License-Identifier: Apache-2.0 */
/* The cache as fs sees it, with every decision in the hands of the test: it reads the source, notes
 * what it is told, and fails, delays or holds reads when asked to. */
#ifndef CLAIRFS_TESTS_FAKE_CACHE_H
#define CLAIRFS_TESTS_FAKE_CACHE_H

#include <stdatomic.h>

#include "clairfs/base/thr.h"
#include "clairfs/cache.h"

struct cache {
	struct dataset *dataset;
	_Atomic int fail_with;    /* errno of every read, 0 = none */
	_Atomic bool is_holding;  /* reads wait for fake_cache_release */
	_Atomic bool is_threaded; /* reads are answered by another thread */
	_Atomic bool may_refuse_open;
	_Atomic uint32_t reads, blinds;

	struct mutex mu;
	struct cond cv;        /* something was noted, or a read is held */
	struct list held;      /* mu */
	uint32_t n_held;       /* mu */
	uint32_t *opened;      /* mu: samples in the order of their opens */
	size_t n_opened, room; /* mu */
	uint32_t *forgotten;   /* mu: per entry, how often */
	struct queue jobs;
	struct thr worker;
};

void fake_cache_init(struct cache *c, struct dataset *ds);
/* Answers what is still held, as cache_stop does. */
void fake_cache_fini(struct cache *c);
void fake_cache_release(struct cache *c);
/* False when it did not come to that within a minute. */
bool fake_cache_wait_opened(struct cache *c, size_t n);
bool fake_cache_wait_held(struct cache *c, uint32_t n);
bool fake_cache_wait_forgotten(struct cache *c, struct entry_id entry, uint32_t times);
void fake_cache_forget_notes(struct cache *c);

#endif
