/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces put together: each has the status and the bytes that it would have had alone, whatever the
 * others are, and wherever a segment ends among them; and they reach the drive in few calls. The
 * calls are counted by a store of system calls of its own, which have no context: the counter is
 * global.
 */
#include <errno.h>
#include <pthread.h>

#include "src/tier/store_priv.h"
#include "store_kit.h"

static _Atomic unsigned n_writes;

static ssize_t counting_pwritev(int fd, const struct iovec *iov, int n, off_t offset)
{
	atomic_fetch_add(&n_writes, 1);
	return pwritev(fd, iov, n, offset);
}

static struct store *open_counting(const struct store_params *params)
{
	static struct store_sys sys;
	struct store *store = NULL;

	sys = store_sys_real;
	sys.pwritev = counting_pwritev;
	CHECK_INT(store_open_with(params, &sys, &store, NULL), 0);
	atomic_store(&n_writes, 0);
	return store;
}

/* A directory of its own for each test. */
static struct store_params params_of(const char *name)
{
	struct store_params params = kit_params(kit_dir(name));

	kit_clear(params.dir);
	return params;
}

static void records_go_to_the_drive_together(void)
{
	struct store_params params = params_of("together");
	struct store *store;
	int rc[12];

	params.segment_bytes = 32u << 20;
	store = open_counting(&params);
	kit_put_files(store, (struct kit_file){ 0, 0 }, 1, ARRAY_LEN(rc), rc);
	for (size_t i = 0; i < ARRAY_LEN(rc); i++)
		CHECK_INT(rc[i], 0);
	/* Header and records; a drive may take a write in parts, but not in as many. */
	CHECK(atomic_load(&n_writes) < ARRAY_LEN(rc) / 2);
	CHECK_U64(kit_served(store, 0, ARRAY_LEN(rc)), kit_pieces(0, ARRAY_LEN(rc)));
	store_close(store);
}

/* Segments so small that a batch is spread over several, in this mount and the next. */
static void segments_end_among_them(void)
{
	enum { N = 40 };
	struct store_params params = params_of("segments");
	struct store_status status;
	struct store *store;
	int rc[N];

	params.segment_bytes = 64u << 10;
	store = open_counting(&params);
	kit_put_files(store, (struct kit_file){ 0, 0 }, 1, N, rc);
	for (size_t i = 0; i < N; i++)
		CHECK_INT(rc[i], 0);
	store_get_status(store, &status);
	CHECK(status.segments > 3);
	for (int mount = 0; mount < 2; mount++) {
		CHECK_U64(kit_served(store, 0, N), kit_pieces(0, N));
		store_close(store);
		store = kit_open(&params);
	}
	store_close(store);
}

static void each_has_its_own_status(void)
{
	struct store_params params = params_of("status");
	struct store *store = open_counting(&params);
	struct kit_file file[] = { { 0, 1 }, { 0, 2 }, { 0, 3 }, { 0, 2 }, { 0, 4 } };
	static const int want[] = { 0, -EEXIST, -EINVAL, -EEXIST, 0 };
	struct file_identity ids[ARRAY_LEN(file)];
	struct tier_piece pieces[ARRAY_LEN(file)];

	CHECK_INT(kit_put_file(store, file[1]), 0);
	for (size_t i = 0; i < ARRAY_LEN(file); i++) {
		ids[i] = kit_identity(file[i]);
		pieces[i].data = kit_bytes(file[i], 0, &pieces[i].length);
		pieces[i].key = (struct piece_key){ { file[i].n }, 0 };
		pieces[i].identity = &ids[i];
	}
	pieces[2].length++;
	store_put_many(store, pieces, ARRAY_LEN(file));
	for (size_t i = 0; i < ARRAY_LEN(file); i++) {
		CHECK_INT(pieces[i].status, want[i]);
		CHECK_INT(kit_get(store, file[i], 0), i == 2 ? -ENOENT : 0);
		free((void *)pieces[i].data);
	}
	store_put_many(store, NULL, 0);
	store_close(store);
}

/* The same piece twice at once: one of them is kept, and it is whole. */
static void twice_the_same_is_kept_once(void)
{
	struct store_params params = params_of("twice");
	struct store *store = open_counting(&params);
	struct kit_file file = { 0, 5 };
	struct file_identity id = kit_identity(file);
	struct tier_piece pieces[2];
	struct store_status status;

	for (int i = 0; i < 2; i++) {
		pieces[i].data = kit_bytes(file, 0, &pieces[i].length);
		pieces[i].key = (struct piece_key){ { file.n }, 0 };
		pieces[i].identity = &id;
	}
	store_put_many(store, pieces, 2);
	CHECK_INT(pieces[0].status, 0);
	CHECK_INT(pieces[1].status, -EEXIST);
	CHECK_INT(kit_get(store, file, 0), 0);
	store_get_status(store, &status);
	CHECK_U64(status.records, 1);
	free((void *)pieces[0].data);
	free((void *)pieces[1].data);
	store_close(store);
}

static void memory_of_any_alignment_is_written(void)
{
	enum { N = 8 };
	struct store_params params = params_of("aligned");
	struct store *store;
	struct file_identity ids[N];
	struct tier_piece pieces[N];
	uint8_t *moved[N];

	/* On a drive, so that it is written around the page cache where that is possible. */
	params.dir = check_tmpdir();
	params.is_persistent = false;
	store = open_counting(&params);
	for (uint32_t i = 0; i < N; i++) {
		struct kit_file file = { 0, i };
		AUTO_FREE uint8_t *bytes = kit_bytes(file, 0, &pieces[i].length);

		ids[i] = kit_identity(file);
		moved[i] = malloc(pieces[i].length + 2 * KIT_BLOCK);
		CHECK(moved[i] != NULL);
		pieces[i].data = (uint8_t *)ALIGN_UP((uintptr_t)moved[i], KIT_BLOCK) + i * 8;
		memcpy((void *)pieces[i].data, bytes, pieces[i].length);
		pieces[i].key = (struct piece_key){ { i }, 0 };
		pieces[i].identity = &ids[i];
	}
	store_put_many(store, pieces, N);
	for (uint32_t i = 0; i < N; i++) {
		CHECK_INT(pieces[i].status, 0);
		CHECK_INT(kit_get(store, (struct kit_file){ 0, i }, 0), 0);
		free(moved[i]);
	}
	store_close(store);
}

struct putting {
	pthread_t thread;
	struct store *store;
	struct kit_file first;
	int rc[12];
};

static void *put_some(void *arg)
{
	struct putting *p = arg;

	kit_put_files(p->store, p->first, 1, ARRAY_LEN(p->rc), p->rc);
	return NULL;
}

static void threads_put_beside_each_other(void)
{
	enum { THREADS = 4 };
	struct store_params params = params_of("threads");
	struct putting p[THREADS];
	struct store *store = open_counting(&params);

	for (uint32_t i = 0; i < THREADS; i++) {
		/* Each piece is put by two of them. */
		p[i].first = (struct kit_file){ i / 2, 0 };
		p[i].store = store;
		CHECK_INT(pthread_create(&p[i].thread, NULL, put_some, &p[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(p[i].thread, NULL);
		for (size_t k = 0; k < ARRAY_LEN(p[i].rc); k++)
			CHECK(p[i].rc[k] == 0 || p[i].rc[k] == -EEXIST);
	}
	for (uint32_t set = 0; set < THREADS / 2; set++)
		CHECK_U64(kit_served(store, set, ARRAY_LEN(p[0].rc)),
			  kit_pieces(set, ARRAY_LEN(p[0].rc)));
	store_close(store);
}

/* At a byte per second the second record would have to wait for hours. */
static void cap_holds_within_a_batch(void)
{
	struct store_params params = params_of("cap");
	struct putting p = { .first = { 0, 0 } };
	struct file_identity id = kit_identity(p.first);
	struct store *store;

	params.write_bytes_per_s = 1;
	store = open_counting(&params);
	p.store = store;
	CHECK_INT(pthread_create(&p.thread, NULL, put_some, &p), 0);
	while (!store_has(store, (struct piece_key){ { 0 }, 0 }, &id))
		sched_yield();
	store_stop(store);
	pthread_join(p.thread, NULL);
	CHECK_INT(p.rc[0], 0);
	for (size_t i = 1; i < ARRAY_LEN(p.rc); i++)
		CHECK_INT(p.rc[i], -ECANCELED);
	CHECK_INT(kit_get(store, p.first, 0), 0);
	store_close(store);
}

static const struct check_test tests[] = {
	{ "records_go_to_the_drive_together", records_go_to_the_drive_together },
	{ "segments_end_among_them", segments_end_among_them },
	{ "each_has_its_own_status", each_has_its_own_status },
	{ "twice_the_same_is_kept_once", twice_the_same_is_kept_once },
	{ "memory_of_any_alignment_is_written", memory_of_any_alignment_is_written },
	{ "threads_put_beside_each_other", threads_put_beside_each_other },
	{ "cap_holds_within_a_batch", cap_holds_within_a_batch },
};

CHECK_MAIN(tests)
