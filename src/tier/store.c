/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store: pieces kept on a local device for the time of one mount. Pieces are written once, one
 * behind the other, and stay; a file that changes is forgotten in the index and its records are
 * dead space. No policy of replacement is worth the wear of the device as long as one node reads
 * its dataset once per epoch.
 *
 * A store that fails only loses what it was to keep: the first write that fails ends all writing,
 * with one line in the log; what is kept goes on being served, and verified at each read.
 *
 * store_put() belongs to one thread at a time and blocks; the others may run beside it on any
 * thread. A piece is entered into the index only after its record was written.
 */
#include <errno.h>
#include <string.h>

#include "clairfs/base/log.h"
#include "store_priv.h"

static int store_set_up(struct store *s, const struct store_params *params,
			const struct store_sys *sys, struct err *err)
{
	const struct io_params io = { .name = "store", .max_inflight = params->max_inflight };
	void *buffer = NULL;
	int rc = store_file_open(&s->file, params, sys, err);

	if (rc < 0)
		return rc;
	rc = posix_memalign(&buffer, STORE_BLOCK, STORE_RECORD_MAX);
	if (rc != 0)
		return err_set_errno(err, -rc, "store");
	s->write_buffer = buffer;
	rc = io_new(params->engine, s->file.fd, &io, &s->io, &s->engine_why, err);
	if (rc < 0) {
		err_prefix(err, "store");
		return rc;
	}
	rc = store_reader_init(&s->reader, params->max_inflight);
	if (rc < 0)
		return err_set_errno(err, rc, "store");
	return 0;
}

static void store_tear_down(struct store *s)
{
	io_free(s->io);
	if (s->file.fd >= 0)
		close(s->file.fd);
	free(s->write_buffer);
	free(s);
}

int store_open_with(const struct store_params *params, const struct store_sys *sys,
		    struct store **ret, struct err *err)
{
	void *mem = NULL;
	struct store *s;
	int rc = posix_memalign(&mem, _Alignof(struct store), sizeof(*s));

	if (rc != 0)
		return err_set_errno(err, -rc, "store");
	s = mem;
	memset(s, 0, sizeof(*s));
	s->file.fd = -1;
	s->metrics = params->metrics;
	rc = store_set_up(s, params, sys, err);
	if (rc < 0) {
		store_tear_down(s);
		return rc;
	}
	store_index_init(&s->index);
	atomic_init(&s->put_status, 0);
	*ret = s;
	return 0;
}

int store_open(const struct store_params *params, struct store **ret, struct err *err)
{
	return store_open_with(params, &store_sys_real, ret, err);
}

void store_close(struct store *store)
{
	if (!store)
		return;
	store_reader_fini(&store->reader);
	store_index_fini(&store->index);
	store_tear_down(store);
}

/* Ends all writing. Not an error of anybody's read, so it is said here. */
static int store_stop_writing(struct store *s, int status)
{
	atomic_store_explicit(&s->put_status, status, memory_order_relaxed);
	if (status == -ENOSPC) {
		log_info("store: full with %llu bytes", (unsigned long long)store_bytes(s));
		return status;
	}
	metrics_add(s->metrics, METRIC_STORE_ERRORS, 1);
	log_warn("store: no more samples are kept: %s", strerror(-status));
	return status;
}

int store_put(struct store *store, struct piece_key key, const struct file_identity *identity,
	      const void *data, uint32_t length)
{
	const struct store_record record = { key, *identity, length };
	uint32_t n = store_record_bytes(length), block;
	int rc = atomic_load_explicit(&store->put_status, memory_order_relaxed);

	if (rc < 0)
		return rc;
	if (key.piece >= piece_count(identity->size) ||
	    length != piece_length(identity->size, key.piece))
		return -EINVAL;
	if (store_index_find(&store->index, key, identity, &block) == 0)
		return -EEXIST;
	rc = store_record_make(&record, data, store->write_buffer);
	if (rc < 0)
		return rc;
	rc = store_file_append(&store->file, store->write_buffer, n, &block);
	if (rc < 0)
		return store_stop_writing(store, rc);
	metrics_add(store->metrics, METRIC_STORE_BYTES_WRITTEN, n);
	return store_index_set(&store->index, key, identity, block);
}

bool store_has(struct store *store, struct piece_key key, const struct file_identity *identity)
{
	uint32_t block;

	return store_index_find(&store->index, key, identity, &block) == 0;
}

void store_forget(struct store *store, struct entry_id entry, uint32_t n_pieces)
{
	for (uint32_t piece = 0; piece < n_pieces; piece++)
		store_index_remove(&store->index, (struct piece_key){ entry, piece },
				   STORE_NO_BLOCK);
}

bool store_is_full(const struct store *store)
{
	return atomic_load_explicit(&store->put_status, memory_order_relaxed) < 0;
}

uint64_t store_bytes(const struct store *store)
{
	return atomic_load_explicit(&store->file.tail, memory_order_relaxed);
}

const char *store_engine_name(const struct store *store)
{
	return io_name(store->io);
}
