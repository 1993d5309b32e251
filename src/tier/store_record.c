/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a record of the store: payload, zeros, seal. FORMAT.md has the table.
 *
 * What comes back from the device is foreign: it is compared, never followed. No length or offset
 * of the seal is used for anything; the reader knows what it asked for, and a record that says
 * something else is wrong. So there is nothing a damaged device could make us do but read the
 * source again.
 *
 * Any thread; no state.
 */
#include <errno.h>
#include <string.h>
#include <xxhash.h>

#include "clairfs/base/buf.h"
#include "store_priv.h"

#define SEAL_MAGIC 0x4c41455353464c43ull /* "CLFSSEAL" in this order of bytes */
#define SEAL_VERSION 1u
#define SEAL_SUMMED (STORE_SEAL_BYTES - 8)

int store_record_make(const struct store_record *record, const void *data, uint8_t *out)
{
	uint32_t n = store_record_bytes(record->length);
	struct buf_writer w;
	int rc;

	buf_writer_init(&w);
	buf_put_u64(&w, SEAL_MAGIC);
	buf_put_u32(&w, SEAL_VERSION);
	buf_put_u32(&w, record->key.entry.v);
	buf_put_u32(&w, record->key.piece);
	buf_put_u32(&w, record->length);
	buf_put_u64(&w, record->identity.ino);
	buf_put_u64(&w, record->identity.size);
	buf_put_u64(&w, (uint64_t)record->identity.mtime_ns);
	buf_put_u64(&w, (uint64_t)record->identity.ctime_ns);
	buf_put_u64(&w, XXH3_64bits(data, record->length));
	buf_put_u64(&w, w.is_bad ? 0 : XXH3_64bits(w.data, w.size));
	rc = w.is_bad ? -ENOMEM : 0;
	if (rc == 0) {
		if (record->length)
			memcpy(out, data, record->length);
		memset(out + record->length, 0, n - STORE_SEAL_BYTES - record->length);
		memcpy(out + n - STORE_SEAL_BYTES, w.data, STORE_SEAL_BYTES);
	}
	buf_writer_fini(&w);
	return rc;
}

bool store_record_is(const struct store_record *record, const uint8_t *bytes)
{
	const uint8_t *seal = bytes + store_record_bytes(record->length) - STORE_SEAL_BYTES;
	struct file_identity identity;
	struct buf_reader r;
	uint64_t payload_sum;
	bool is_ours;

	buf_reader_init(&r, seal, STORE_SEAL_BYTES);
	is_ours = buf_get_u64(&r) == SEAL_MAGIC;
	is_ours &= buf_get_u32(&r) == SEAL_VERSION;
	is_ours &= buf_get_u32(&r) == record->key.entry.v;
	is_ours &= buf_get_u32(&r) == record->key.piece;
	is_ours &= buf_get_u32(&r) == record->length;
	identity.ino = buf_get_u64(&r);
	identity.size = buf_get_u64(&r);
	identity.mtime_ns = (int64_t)buf_get_u64(&r);
	identity.ctime_ns = (int64_t)buf_get_u64(&r);
	is_ours &= file_identity_eq(&identity, &record->identity);
	payload_sum = buf_get_u64(&r);
	is_ours &= buf_get_u64(&r) == XXH3_64bits(seal, SEAL_SUMMED);
	return is_ours && !r.is_bad && payload_sum == XXH3_64bits(bytes, record->length);
}
