/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store against a table of what it was given: random puts of versions, forgets, reads and
 * questions, with several pieces per file and the budget small enough to run full. Whatever it
 * serves must be the version in the table; what the table does not have must not be served. Then
 * one writer beside readers, askers and a forgetter on other threads.
 */
#include <errno.h>

#include "clairfs/base/thr.h"
#include "src/tier/store_priv.h"
#include "tier_reads.h"

#define MIB (1ull << 20)
enum { N_ENTRIES = 60, MAX_PIECES = 3, VERSIONS = 3 };

struct model {
	struct store *store;
	bool kept[N_ENTRIES][MAX_PIECES][VERSIONS];
	uint64_t n_puts, n_hits, n_misses;
};

static uint64_t size_of(uint32_t entry, uint64_t version)
{
	uint64_t z = entry * 1000003ull + version * 10007;

	z = (z ^ (z >> 13)) * 0x9e3779b97f4a7c15ull >> 20;
	return entry % 10 == 0 ? z % (MAX_PIECES * MIB) + 1 : z % 60000;
}

static struct file_identity identity_of(uint32_t entry, uint64_t version)
{
	return (struct file_identity){ .ino = entry,
				       .size = size_of(entry, version),
				       .mtime_ns = (int64_t)version,
				       .ctime_ns = (int64_t)version };
}

static uint64_t stamp_of(uint32_t entry, uint64_t version)
{
	return entry * 100000ull + version;
}

static struct store *open_store(uint64_t limit, enum io_engine engine)
{
	struct store_params params = {
		.dir = check_tmpdir(), .limit_bytes = limit, .engine = engine, .max_inflight = 4
	};
	struct store *store;

	CHECK_INT(store_open(&params, &store, NULL), 0);
	return store;
}

static int put(struct store *store, uint32_t entry, uint32_t piece, uint64_t version)
{
	struct file_identity id = identity_of(entry, version);
	uint32_t length = piece_length(id.size, piece);
	AUTO_FREE uint8_t *bytes = version_bytes(stamp_of(entry, version), piece * MIB, length);

	return store_put(store, (struct piece_key){ { entry }, piece }, &id, bytes, length);
}

static bool is_version(const uint8_t *bytes, uint32_t entry, uint32_t piece, uint64_t version,
		       uint32_t length)
{
	for (uint32_t i = 0; i < length; i++)
		if (bytes[i] != version_byte(stamp_of(entry, version), piece * MIB + i))
			return false;
	return true;
}

static int get(struct store *store, uint32_t entry, uint32_t piece, uint64_t version)
{
	struct file_identity id = identity_of(entry, version);
	struct waited_read *w = waited_read_new((struct entry_id){ entry }, piece, NULL, &id);
	int status = waited_read_run(store_tier(store), w);

	if (status == 0)
		CHECK(is_version(w->read.ask.buf, entry, piece, version, w->read.ask.length));
	waited_read_free(w);
	return status;
}

static void model_put(struct model *m, uint32_t entry, uint32_t piece, uint64_t version)
{
	bool was_full = store_is_full(m->store);
	uint64_t before = store_bytes(m->store);
	bool *kept = &m->kept[entry][piece][version];
	int status = put(m->store, entry, piece, version);

	if (*kept) {
		CHECK_INT(status, -EEXIST);
	} else if (was_full) {
		CHECK_INT(status, -ENOSPC);
		CHECK_U64(store_bytes(m->store), before);
	} else if (status == 0) {
		*kept = true;
		m->n_puts++;
	} else {
		CHECK_INT(status, -ENOSPC);
		CHECK(store_is_full(m->store));
	}
}

static void model_get(struct model *m, uint32_t entry, uint32_t piece, uint64_t version)
{
	struct file_identity id = identity_of(entry, version);
	struct piece_key key = { { entry }, piece };
	int want = m->kept[entry][piece][version] ? 0 : -ENOENT;

	CHECK(store_has(m->store, key, &id) == (want == 0));
	CHECK_INT(get(m->store, entry, piece, version), want);
	*(want == 0 ? &m->n_hits : &m->n_misses) += 1;
}

static void model_step(struct model *m, uint64_t *seed)
{
	uint32_t entry = (uint32_t)check_rand_below(seed, N_ENTRIES);
	uint64_t version = check_rand_below(seed, VERSIONS);
	uint32_t n = piece_count(size_of(entry, version));
	uint32_t piece = (uint32_t)check_rand_below(seed, n);
	uint64_t die = check_rand_below(seed, 100);

	if (die < 30) {
		model_put(m, entry, piece, version);
	} else if (die < 34) {
		struct file_identity id = identity_of(entry, version);

		n = (uint32_t)check_rand_below(seed, MAX_PIECES + 1);
		store_forget(m->store, &id, 0, n);
		for (uint32_t i = 0; i < n; i++)
			m->kept[entry][i][version] = false;
	} else {
		model_get(m, entry, piece, version);
	}
}

static void store_agrees_with_a_table(void)
{
	uint64_t seed = check_seed(), limit = 24 * MIB;
	bool was_full = false;

	for (enum io_engine engine = IO_ENGINE_AUTO; engine <= IO_ENGINE_POOL; engine++) {
		struct model m = { .store = open_store(limit, engine) };

		for (unsigned i = 0; i < 2500; i++) {
			model_step(&m, &seed);
			CHECK(store_bytes(m.store) <= limit);
		}
		was_full = store_is_full(m.store);
		printf("# %s: %llu puts, %llu hits, %llu misses, %s\n", store_engine_name(m.store),
		       (unsigned long long)m.n_puts, (unsigned long long)m.n_hits,
		       (unsigned long long)m.n_misses, was_full ? "full" : "not full");
		CHECK(m.n_hits > 100 && m.n_misses > 20);
		store_close(m.store);
	}
	CHECK(was_full);
}

/* Many sets and removals at few keys: the gaps in the runs of a table are where such code breaks.
 */
static void index_agrees_with_an_array(void)
{
	static struct store_index index;
	static uint32_t places[3000]; /* place + 1 */
	uint64_t seed = check_seed(), bytes, pieces, n = 0;
	struct file_identity id = { .ino = 1 };

	store_index_init(&index, seed);
	for (uint32_t i = 0; i < 300000; i++) {
		uint32_t at = (uint32_t)check_rand_below(&seed, ARRAY_LEN(places));
		struct store_tag tag = store_tag_of(&index, 7, &id, at);
		struct store_found found;

		switch (check_rand_below(&seed, 5)) {
		case 0:
		case 1:
			CHECK_INT(store_index_add(&index, &tag, i, 0), places[at] ? -EEXIST : 0);
			n += places[at] == 0;
			places[at] = places[at] ? places[at] : i + 1;
			break;
		case 2:
			CHECK(store_index_remove(&index, &tag, STORE_NO_PLACE, &found) ==
			      (places[at] != 0));
			n -= places[at] != 0;
			places[at] = 0;
			break;
		case 3: /* of a place where it is not */
			CHECK(!store_index_remove(&index, &tag, places[at], &found));
			break;
		default:
			CHECK(store_index_find(&index, &tag, NULL, &found) == (places[at] != 0));
			if (places[at])
				CHECK_U64(found.place + 1, places[at]);
		}
	}
	for (uint32_t slot = 0; slot < 2; slot++) { /* 300000 places are in two segments */
		store_index_sweep(&index, slot);
		for (uint32_t at = 0; at < ARRAY_LEN(places); at++) {
			struct store_tag tag = store_tag_of(&index, 7, &id, at);
			struct store_found found;

			if (places[at] && store_place_slot(places[at] - 1) == slot) {
				places[at] = 0;
				n--;
			}
			CHECK(store_index_find(&index, &tag, NULL, &found) == (places[at] != 0));
		}
		store_index_usage(&index, &bytes, &pieces);
		CHECK_U64(pieces, n);
	}
	CHECK_U64(n, 0);
	store_index_fini(&index);
}

/* --- threads --- */
enum { N_READERS = 3, N_FILES = 400, FORGOTTEN_EVERY = 16 };

struct shared {
	struct store *store;
	_Atomic uint32_t n_put; /* entries below are or were in the store */
	_Atomic bool is_over;
};

struct reader {
	struct thr thr;
	struct shared *shared;
	uint64_t seed, n_hits, n_wrong;
};

static void *read_all(void *arg)
{
	struct reader *r = arg;

	while (!r->shared->is_over || r->n_hits == 0) {
		uint32_t n = r->shared->n_put;
		uint32_t entry = n ? (uint32_t)check_rand_below(&r->seed, n) : 0;
		struct file_identity id = identity_of(entry, 0);
		struct waited_read *w;
		int status;

		if (n == 0) /* the writer's turn */
			continue;
		w = waited_read_new((struct entry_id){ entry }, 0, NULL, &id);
		(void)store_has(r->shared->store, w->read.ask.key, &id);
		status = waited_read_run(store_tier(r->shared->store), w);
		if (status == 0)
			r->n_hits++;
		/* Only those that are forgotten may be missing. */
		r->n_wrong += status == 0 ? !is_version(w->read.ask.buf, entry, 0, 0,
							w->read.ask.length)
					  : status != -ENOENT || entry % FORGOTTEN_EVERY != 0;
		waited_read_free(w);
	}
	return NULL;
}

static void one_writer_beside_readers(void)
{
	struct shared shared = { .store = open_store(256 * MIB, IO_ENGINE_AUTO) };
	struct reader readers[N_READERS];
	uint64_t seed = check_seed();

	for (size_t i = 0; i < N_READERS; i++) {
		readers[i] = (struct reader){ .shared = &shared, .seed = check_rand_u64(&seed) };
		CHECK_INT(thr_start(&readers[i].thr, "reader", read_all, &readers[i], NULL), 0);
	}
	for (uint32_t i = 0; i < N_FILES; i++) {
		struct file_identity id = identity_of(i, 0);

		CHECK_INT(put(shared.store, i, 0, 0), 0);
		shared.n_put = i + 1;
		if (i % FORGOTTEN_EVERY == 0)
			store_forget(shared.store, &id, 0, 1);
	}
	shared.is_over = true;
	for (size_t i = 0; i < N_READERS; i++) {
		thr_join(&readers[i].thr);
		CHECK_U64(readers[i].n_wrong, 0);
		CHECK(readers[i].n_hits > 0);
	}
	store_close(shared.store);
}

static const struct check_test tests[] = {
	{ "store_agrees_with_a_table", store_agrees_with_a_table },
	{ "index_agrees_with_an_array", index_agrees_with_an_array },
	{ "one_writer_beside_readers", one_writer_beside_readers },
};

CHECK_MAIN(tests)
