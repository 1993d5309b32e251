/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Appending records to the open segment.
 *
 * Records that are put together lie together and go to the drive in one call: a call costs as much
 * as the bytes of a small sample, and filesystems pay for each one by marking what was written in
 * the segment's reservation. The pages of a payload are written from the caller's memory as they
 * are; only a record's last page, where the seal is, is put together here. Several threads append
 * at once: each takes its blocks under the lock and writes them without, so that the drive has
 * several calls to work on.
 *
 * A record enters the index and the list for the footer only after the call that wrote it has ended
 * well; of a call that failed none does, whatever of it has reached the drive. Any thread. Must
 * never write over a record.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "store_priv.h"

#define DROP_BYTES (16ull << 20)

/* --- space --- */

/* Whether n more blocks fit before a footer that lists them. */
static bool segment_has_room(const struct store_segment *segment, uint32_t n)
{
	return (uint64_t)segment->tail + n + store_footer_blocks(segment->n_promised + 1) + 1 <=
	       segment->header.n_blocks;
}

static bool take_one_locked(struct store *s, struct store_record *record) REQUIRES(s->mu)
{
	struct store_segment *segment = s->open;
	uint32_t n = store_record_blocks(record->what.length);

	if (!segment || !segment_has_room(segment, n))
		return false;
	assert(segment->tail >= 1 && segment->n_writers > 0); /* behind the header; it is open */
	record->what.block = segment->tail;
	segment->tail += n;
	segment->n_promised++;
	return true;
}

/* Blocks that follow each other, for as many of the records as the open segment has room for, which
 * is one at least: *ret_n of *ret, whose writer the caller is now. */
static int take_blocks(struct store *s, struct store_record *records, uint32_t n,
		       struct store_segment **ret, uint32_t *ret_n)
{
	int rc = 0;

	*ret_n = 0;
	mutex_lock(&s->mu);
	while (rc == 0 && *ret_n == 0) {
		if (s->is_turning) {
			cond_wait(&s->turned, &s->mu);
			rc = atomic_load(&s->is_full)        ? -ENOSPC
			     : atomic_load(&s->write_status) ? -EAGAIN
							     : 0;
			continue;
		}
		while (*ret_n < n && take_one_locked(s, &records[*ret_n]))
			++*ret_n;
		if (*ret_n == 0)
			rc = store_segment_turn_locked(s,
						       store_record_blocks(records->what.length));
	}
	if (rc == 0) {
		*ret = s->open;
		s->open->n_writers++;
	}
	mutex_unlock(&s->mu);
	return rc;
}

/* --- bytes --- */

/* The way to the device of dirty pages is started now; what was started a while ago is dropped. */
static void clean_up_behind(const struct store *s, int fd, uint64_t at, uint64_t n)
{
	uint64_t step = at / DROP_BYTES;

	if (s->dir.is_direct)
		return;
	(void)sync_file_range(fd, (off_t)at, (off_t)n, SYNC_FILE_RANGE_WRITE);
	if ((at + n) / DROP_BYTES != step)
		store_drop_cache(&s->dir, fd, (step > 0 ? step - 1 : 0) * DROP_BYTES,
				 2 * DROP_BYTES);
}

/* O_DIRECT takes aligned memory only; the arena's is. */
static bool is_copied(const struct store *s, const struct store_record *record)
{
	return s->dir.is_direct && ((uintptr_t)record->data & (STORE_BLOCK - 1)) != 0;
}

/* What goes to the drive from the caller's memory. */
static uint32_t whole_bytes(const struct store *s, const struct store_record *record)
{
	return is_copied(s, record) ? 0 : ALIGN_DOWN(record->what.length, STORE_BLOCK);
}

static uint32_t rest_bytes(const struct store *s, const struct store_record *record)
{
	return store_record_bytes(record->what.length) - whole_bytes(s, record);
}

/* The two parts of a record; the second one is made at `rest`. */
static void lay_out_record(const struct store *s, const struct store_segment *segment,
			   const struct store_record *record, uint8_t *rest, struct iovec iov[2])
{
	uint32_t whole = whole_bytes(s, record), n = rest_bytes(s, record);
	uint32_t length = record->what.length;
	struct store_seal seal = { .what = record->what,
				   .segment = segment->header.segment,
				   .fsid = segment->header.fsid,
				   .payload_sum = store_payload_sum(record->data, length) };

	assert(whole % STORE_BLOCK == 0 && n >= length - whole + STORE_SEAL_BYTES);
	if (length > whole)
		memcpy(rest, (const uint8_t *)record->data + whole, length - whole);
	memset(rest + (length - whole), 0, n - (length - whole));
	store_seal_encode(&seal, rest + n - STORE_SEAL_BYTES);
	iov[0] = (struct iovec){ (void *)record->data, whole };
	iov[1] = (struct iovec){ rest, n };
}

static int write_records(struct store *s, const struct store_segment *segment,
			 const struct store_record *records, uint32_t n)
{
	uint64_t at = (uint64_t)records->what.block * STORE_BLOCK, n_bytes = 0;
	struct iovec iov[2 * STORE_BATCH_MAX];
	uint8_t *memory = NULL, *rest;
	size_t n_rest = 0;
	int rc;

	assert(n >= 1 && n <= STORE_BATCH_MAX);
	for (uint32_t i = 0; i < n; i++)
		n_rest += rest_bytes(s, &records[i]);
	if (posix_memalign((void **)&memory, STORE_BLOCK, n_rest) != 0)
		return -ENOMEM;
	rest = memory;
	for (uint32_t i = 0; i < n; i++) {
		lay_out_record(s, segment, &records[i], rest, &iov[(size_t)2 * i]);
		rest += rest_bytes(s, &records[i]);
		n_bytes += store_record_bytes(records[i].what.length);
	}
	assert(rest == memory + n_rest);
	assert(at + n_bytes <= (uint64_t)segment->header.n_blocks * STORE_BLOCK);
	rc = store_write_all(&s->dir, segment->fd, iov, (int)(2 * n), at);
	free(memory);
	if (rc == 0)
		clean_up_behind(s, segment->fd, at, n_bytes);
	return rc;
}

/* --- what was written --- */

static void note_entry_locked(struct store_segment *segment, const struct store_entry *what)
{
	if (segment->n_entries == segment->entries_room) {
		uint32_t room = segment->entries_room ? segment->entries_room * 2 : 256;
		struct store_entry *more = realloc(segment->entries, room * sizeof(*more));

		if (more) {
			segment->entries = more;
			segment->entries_room = room;
		}
	}
	if (segment->n_entries < segment->entries_room)
		segment->entries[segment->n_entries++] = *what;
	else
		segment->is_entries_lost = true;
}

/* For the footer. Without memory the segment goes on and is not sealed. */
static void note_entries(struct store *s, struct store_segment *segment,
			 const struct store_record *records, uint32_t n)
{
	uint64_t n_bytes = 0;

	mutex_lock(&s->mu);
	for (uint32_t i = 0; i < n; i++) {
		note_entry_locked(segment, &records[i].what);
		n_bytes += store_record_bytes(records[i].what.length);
	}
	mutex_unlock(&s->mu);
	atomic_fetch_add(&segment->bytes, n_bytes);
	atomic_fetch_add(&s->bytes, n_bytes);
	metrics_add(s->metrics, METRIC_STORE_BYTES_WRITTEN, n_bytes);
}

/* Where another one was faster that one is used, and wanted. */
static int keep_in_index(struct store *s, struct store_segment *segment, const struct store_entry *what,
			 uint32_t flags)
{
	int rc = store_segment_keep(s, segment, what, flags);
	struct store_tag tag;

	if (rc == -EEXIST) {
		tag = store_tag_of(&s->index, segment->header.fsid, &what->identity, what->piece);
		(void)store_want_kept(s, &tag, what->length);
	}
	return rc;
}

/* As many as lie together; how many that were is *ret_n when it is not an error of all that are
 * left. */
static int append_some(struct store *s, struct store_record *records, uint32_t n, uint32_t *ret_n)
{
	uint32_t flags = STORE_WANTED | (s->p.verify == STORE_VERIFY_OFF ? STORE_VERIFIED : 0);
	struct store_segment *segment = NULL;
	int rc = take_blocks(s, records, n, &segment, ret_n);

	if (rc < 0)
		return rc;
	rc = store_without_room(write_records(s, segment, records, *ret_n));
	if (rc == 0)
		note_entries(s, segment, records, *ret_n);
	for (uint32_t i = 0; rc == 0 && i < *ret_n; i++)
		records[i].status = keep_in_index(s, segment, &records[i].what, flags);
	store_writer_put(s, segment);
	return rc;
}

void store_append(struct store *s, struct store_record *records, uint32_t n)
{
	while (n > 0) {
		uint32_t n_done;
		int rc = append_some(s, records, n, &n_done);

		/* What could not be written now could not be a moment later. */
		for (uint32_t i = 0; rc < 0 && i < n; i++)
			records[i].status = rc;
		if (rc < 0)
			return;
		records += n_done;
		n -= n_done;
	}
}
