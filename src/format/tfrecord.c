/* SPDX-License-Identifier: Apache-2.0 */
/* TFRecord: u64 length | u32 masked CRC-32C of it | payload | u32 masked CRC-32C of the payload,
 * until the end of the file. One scan over the lengths, which leaves payloads out. A record is all
 * of that, as readers read it and as tfrecord2idx counts it. Pure, any thread. */
#include <errno.h>
#include <inttypes.h>

#include "format_priv.h"

#define HEAD 12u
#define TAIL 4u

/* Of eight bytes only, so no table is worth its cache lines. */
static uint32_t masked_crc(uint64_t v)
{
	uint32_t crc = 0xffffffffu;

	for (int i = 0; i < 8; i++) {
		crc ^= (uint32_t)(v >> (8 * i)) & 0xff;
		for (int k = 0; k < 8; k++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
	}
	crc = ~crc;
	return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static int step_record(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	uint64_t at = s->want.offset, length = buf_get_u64(r), end;
	uint32_t crc = buf_get_u32(r);
	int rc;

	if (crc != masked_crc(length))
		return err_set(err, -EBADMSG,
			       "the checksum of the length at %" PRIu64
			       " is wrong: compressed, or no TFRecord",
			       at);
	if (__builtin_add_overflow(length, HEAD + TAIL, &length))
		return err_set(err, -EBADMSG, "the record at %" PRIu64 " is too long", at);
	rc = format_put(s, at, length, 1, err);
	if (rc < 0)
		return rc;
	end = at + length; /* within the file, as format_put has seen */
	return end == s->index_bytes ? format_done(s)
				     : format_want(s, end, HEAD, "the length of a record", err);
}

int tfrecord_begin(struct format_scan *s, struct err *err)
{
	s->step = step_record;
	return s->index_bytes == 0 ? format_done(s)
				   : format_want(s, 0, HEAD, "the length of a record", err);
}
