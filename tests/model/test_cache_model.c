/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random reads by several threads while files change, vanish and come back, and while the source
 * fails or is slow: whatever the timing, an answer is bytes of exactly one version of the file that
 * has existed, or an error that the source has given. Everything else the cache is told (opens,
 * forgets, lost opens) comes at random too.
 */
#include <stdio.h>
#include <string.h>

#include "cache_rig.h"

#define MIB (1u << 20)

enum { FILES = 12, READERS = 6, OPS = 800, CHANGES = 150 };

/* Versions of a file have sizes that follow from their number. */
static uint64_t size_of(uint32_t file, uint32_t version)
{
	static const uint64_t base[] = { 100, 5000, 110000, MIB, 2 * MIB + 100, 3 * MIB - 7 };
	uint64_t size = base[file % ARRAY_LEN(base)];

	return version % 3 == 0 ? size : size + (uint64_t)version * 37 % 9000;
}

struct world {
	struct rig *rig;
	uint64_t seed;
	bool has_faults;
	_Atomic uint32_t n_errors, n_good, next;
	_Atomic bool is_over;
};

static bool is_version(const struct rig_read *r, uint32_t version)
{
	uint64_t end = MIN(r->read.offset + r->read.length, size_of(r->file, version));
	uint64_t want = r->read.offset < end ? end - r->read.offset : 0;

	if (r->n_bytes != want)
		return false;
	if (want && r->bytes[0] != rig_byte(r->file, version, r->read.offset))
		return false;
	AUTO_FREE uint8_t *bytes = malloc(want + 1);
	rig_fill(bytes, r->file, version, r->read.offset, want);
	return memcmp(bytes, r->bytes, want) == 0;
}

static void check_answer(struct world *w, struct rig_read *r)
{
	uint32_t newest = atomic_load(&w->rig->version[r->file]) + 1; /* one may be on its way */
	bool is_known = false;

	if (r->status != 0) {
		/* Refused is only who may have another version's pages already. */
		bool is_replaced = r->read.offset > 0 ||
				   r->read.renewal !=
					   dataset_renewal(w->rig->dataset, r->read.entry);
		bool is_allowed = r->status == -ENOENT || (r->status == -ESTALE && is_replaced) ||
				  (w->has_faults && r->status == -EIO);

		CHECK(is_allowed);
		atomic_fetch_add(&w->n_errors, 1);
		return;
	}
	for (uint32_t v = newest + 1; v-- > 0 && !is_known;)
		is_known = is_version(r, v);
	if (!is_known)
		printf("# file %u offset %llu length %u: %llu bytes of no version up to %u\n",
		       r->file, (unsigned long long)r->read.offset, r->read.length,
		       (unsigned long long)r->n_bytes, newest);
	CHECK(is_known);
	atomic_fetch_add(&w->n_good, 1);
}

static void tell(struct world *w, uint64_t *seed, struct entry_id entry)
{
	switch (check_rand_below(seed, 12)) {
	case 0:
		cache_note_forget(w->rig->cache, entry);
		break;
	case 1:
		if (check_rand_below(seed, 20) == 0)
			cache_note_blind(w->rig->cache);
		break;
	default:
		cache_note_open(w->rig->cache, entry);
	}
}

static void *reader_main(void *arg)
{
	struct world *w = arg;
	uint32_t me = atomic_fetch_add(&w->next, 1);
	uint64_t seed = w->seed + me * 7919;

	for (int i = 0; i < OPS; i++) {
		/* mostly in the order's sequence, so that there is something to follow */
		uint32_t file = check_rand_below(&seed, 4)
					? (uint32_t)i % FILES
					: (uint32_t)check_rand_below(&seed, FILES + 1);
		uint64_t size = file < FILES ? size_of(file, 0) : 100;
		uint64_t at = check_rand_below(&seed, 2) ? 0 : check_rand_below(&seed, size + 100);
		uint32_t length = 1 + (uint32_t)check_rand_below(
					      &seed, check_rand_below(&seed, 4) ? 131072 : MIB);
		struct rig_read *r;

		tell(w, &seed, rig_entry(w->rig, file));
		r = rig_read_start(w->rig, file, at, length);
		rig_read_wait(r);
		if (file < FILES)
			check_answer(w, r);
		rig_read_free(r);
	}
	return NULL;
}

static void set_fault(struct world *w, uint64_t *seed)
{
	struct fault_io_rule rule = { .kind = FAULT_IO_FAIL,
				      .countdown = (unsigned)check_rand_below(seed, 5),
				      .repeat = 1 + (unsigned)check_rand_below(seed, 3),
				      .status = -EIO };

	if (check_rand_below(seed, 3) == 0) {
		rule.kind = FAULT_IO_DELAY;
		rule.delay_ns = check_rand_below(seed, 3 * NS_PER_MS);
		rule.repeat = 20;
	}
	fault_io_set(w->rig->io, &rule);
}

static void *changer_main(void *arg)
{
	struct world *w = arg;
	uint64_t seed = w->seed ^ 0x5bd1e995;

	for (int i = 0; i < CHANGES && !atomic_load(&w->is_over); i++) {
		uint32_t file = (uint32_t)check_rand_below(&seed, FILES);
		struct timespec pause = { .tv_nsec = (long)check_rand_below(&seed, 4 * NS_PER_MS) };

		if (check_rand_below(&seed, 5) == 0)
			rig_remove(w->rig, file);
		if (w->has_faults)
			set_fault(w, &seed);
		nanosleep(&pause, NULL); /* pace, not synchronisation */
		rig_replace(w->rig, file, size_of(file, atomic_load(&w->rig->version[file]) + 1));
	}
	fault_io_set(w->rig->io, NULL);
	return NULL;
}

static void check_end(struct world *w)
{
	struct rig *rig = w->rig;

	/* With the source quiet, what is read settles on the newest version of everything. */
	for (uint32_t f = 0; f < FILES; f++) {
		uint64_t until = rig_deadline();
		bool is_newest = false;

		do {
			struct rig_read *r = rig_read_start(rig, f, 0, MIB);

			rig_read_wait(r);
			is_newest = r->status == 0 && is_version(r, atomic_load(&rig->version[f]));
			rig_read_free(r);
		} while (!is_newest && rig_pause(until));
		CHECK(is_newest);
	}
	printf("# %u good, %u errors, %llu changes seen\n", atomic_load(&w->n_good),
	       atomic_load(&w->n_errors),
	       (unsigned long long)rig_metric(rig, METRIC_SOURCE_CHANGED));
	CHECK(atomic_load(&w->n_good) > READERS * OPS / 2);
}

static void run(struct rig_options options, bool has_faults)
{
	struct world w = { .has_faults = has_faults, .seed = check_seed() };
	struct thr readers[READERS], changer;
	uint64_t sizes[FILES];
	struct err err = { 0 };

	for (uint32_t f = 0; f < FILES; f++)
		sizes[f] = size_of(f, 0);
	options.n = FILES;
	options.sizes = sizes;
	options.other_size = 100;
	options.revalidate_ns = 5 * NS_PER_MS;
	w.rig = rig_new(&options);
	CHECK_INT(thr_start(&changer, "changer", changer_main, &w, &err), 0);
	for (int i = 0; i < READERS; i++)
		CHECK_INT(thr_start(&readers[i], "reader", reader_main, &w, &err), 0);
	for (int i = 0; i < READERS; i++)
		thr_join(&readers[i]);
	atomic_store(&w.is_over, true);
	thr_join(&changer);
	check_end(&w);
	rig_free(w.rig);
}

static void without_an_order(void)
{
	run((struct rig_options){ .arena_limit = 8 * MIB, .arena_bytes = 4 * MIB, .keeps_files = true },
	    false);
}

static void without_an_order_and_with_faults(void)
{
	run((struct rig_options){ .arena_limit = 2 * MIB, .arena_bytes = 1 * MIB, .keeps_files = true },
	    true);
}

static void with_an_order(void)
{
	run((struct rig_options){ .order = "sequential",
				  .arena_limit = 24 * MIB,
				  .arena_bytes = 16 * MIB },
	    false);
}

static void with_an_order_a_store_and_faults(void)
{
	run((struct rig_options){ .order = "sequential",
				  .arena_limit = 12 * MIB,
				  .arena_bytes = 8 * MIB,
				  .has_store = true },
	    true);
}

static const struct check_test tests[] = {
	{ "without_an_order", without_an_order },
	{ "without_an_order_and_with_faults", without_an_order_and_with_faults },
	{ "with_an_order", with_an_order },
	{ "with_an_order_a_store_and_faults", with_an_order_a_store_and_faults },
};
CHECK_MAIN(tests)
