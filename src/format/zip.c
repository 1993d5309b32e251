/* SPDX-License-Identifier: Apache-2.0 */
/* zip (and npz): the members, by the central directory alone.
 *
 *   member 0 | member 1 | ... | central directory | [ zip64 end | zip64 locator ] | end
 *
 * A member reaches from its local header to the next one's, as nothing in the directory says how
 * long a local header is. So members must lie in the directory's order, which all writers of
 * archives keep to that do not edit them; else the file is one sample (-ENOTSUP). Directories are
 * no records. Pure, any thread. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "format_priv.h"

#define END_BYTES 22u
#define COMMENT_MAX 65535u
#define LOCATOR_BYTES 20u
#define LARGE_END_BYTES 56u
#define ENTRY_BYTES 46u
#define LOCAL_BYTES 30u

static int zip_damaged(const struct format_scan *s, struct err *err)
{
	return err_set(err, -EBADMSG, "the directory of the archive is damaged near %" PRIu64,
		       s->want.offset);
}

/* The member before this offset is complete. */
static int put_last(struct format_scan *s, uint64_t end, struct err *err)
{
	struct zip_state *z = &s->zip;

	if (!z->has_last)
		return 0;
	if (end < z->last_end)
		return err_set(err, -ENOTSUP, "members are not in the order of the directory");
	return z->last_is_file ? format_put(s, z->last_start, end - z->last_start, 1, err) : 0;
}

static int step_entry(struct format_scan *s, struct buf_reader *r, struct err *err);

static int want_entry(struct format_scan *s, struct err *err)
{
	struct zip_state *z = &s->zip;

	s->step = step_entry;
	if (z->n == 0) {
		format_done(s);
		return put_last(s, z->directory_at, err);
	}
	if (!range_is_within(z->at, ENTRY_BYTES, z->end))
		return zip_damaged(s, err);
	z->n--;
	return format_want(s, z->at, ENTRY_BYTES, "an entry of the directory", err);
}

static int end_entry(struct format_scan *s, bool is_file, struct err *err)
{
	struct zip_state *z = &s->zip;
	uint64_t least;
	int rc = put_last(s, z->start, err);

	if (rc < 0)
		return rc;
	if (__builtin_add_overflow(z->packed, z->start, &least) ||
	    __builtin_add_overflow(least, LOCAL_BYTES + z->name_len, &least) ||
	    least > z->directory_at)
		return err_set(err, -EBADMSG, "a member reaches into the directory: cut short?");
	z->last_start = z->start;
	z->last_end = least;
	z->last_is_file = is_file;
	z->has_last = true;
	z->at += ENTRY_BYTES + z->name_len + z->extra_len + z->comment_len;
	return want_entry(s, err);
}

/* Sizes and offsets that do not fit 32 bits stand there, in a fixed sequence. */
static bool take_extra(struct zip_state *z, struct buf_reader *r)
{
	while (r->at < r->size) {
		unsigned id = buf_get_u16(r), size = buf_get_u16(r);
		struct buf_reader field;
		const void *bytes = buf_get_bytes(r, size);

		if (!bytes)
			return false;
		if (id != 1)
			continue;
		buf_reader_init(&field, bytes, size);
		if (z->is_unpacked_large)
			(void)buf_get_u64(&field);
		if (z->packed == UINT32_MAX)
			z->packed = buf_get_u64(&field);
		if (z->start == UINT32_MAX)
			z->start = buf_get_u64(&field);
		return !field.is_bad;
	}
	/* Without the field the numbers are what they are. */
	return true;
}

static int step_names(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	const char *name = buf_get_bytes(r, s->zip.name_len);
	bool is_dir = s->zip.name_len > 0 && name[s->zip.name_len - 1] == '/';

	if ((s->zip.is_unpacked_large || s->zip.packed == UINT32_MAX || s->zip.start == UINT32_MAX) &&
	    !take_extra(&s->zip, r))
		return zip_damaged(s, err);
	return end_entry(s, !is_dir, err);
}

static int step_entry(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	struct zip_state *z = &s->zip;
	uint64_t more;

	if (buf_get_u32(r) != 0x02014b50)
		return zip_damaged(s, err);
	(void)buf_get_bytes(r, 16); /* versions, flags, method, time, checksum */
	z->packed = buf_get_u32(r);
	z->is_unpacked_large = buf_get_u32(r) == UINT32_MAX;
	z->name_len = buf_get_u16(r);
	z->extra_len = buf_get_u16(r);
	z->comment_len = buf_get_u16(r);
	(void)buf_get_bytes(r, 8); /* disk, attributes */
	z->start = buf_get_u32(r);
	more = (uint64_t)z->name_len + z->extra_len;
	if (!range_is_within(z->at + ENTRY_BYTES, more + z->comment_len, z->end))
		return zip_damaged(s, err);
	if (more == 0)
		return end_entry(s, true, err);
	s->step = step_names;
	return format_want(s, z->at + ENTRY_BYTES, more, "a name of the directory", err);
}

static int begin_directory(struct format_scan *s, uint64_t at, uint64_t size, struct err *err)
{
	struct zip_state *z = &s->zip;

	if (!range_is_within(at, size, s->index_bytes) || z->n > size / ENTRY_BYTES)
		return err_set(err, -EBADMSG,
			       "a directory of %" PRIu64 " bytes at %" PRIu64 " with %" PRIu64
			       " members cannot be: cut short?",
			       size, at, z->n);
	z->directory_at = z->at = at;
	z->end = at + size;
	return want_entry(s, err);
}

static int step_large_end(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	uint64_t size;

	if (buf_get_u32(r) != 0x06064b50)
		return zip_damaged(s, err);
	(void)buf_get_bytes(r, 28); /* size, versions, disks, members of this one */
	s->zip.n = buf_get_u64(r);
	size = buf_get_u64(r);
	return begin_directory(s, buf_get_u64(r), size, err);
}

/* The end record, at `at` of the bytes read. */
static int take_end(struct format_scan *s, struct buf_reader *r, size_t at, struct err *err)
{
	struct buf_reader end, locator;
	uint64_t size, offset;

	buf_reader_init(&end, r->data + at, END_BYTES);
	(void)buf_get_bytes(&end, 10);
	s->zip.n = buf_get_u16(&end);
	size = buf_get_u32(&end);
	offset = buf_get_u32(&end);
	if (at >= LOCATOR_BYTES) {
		buf_reader_init(&locator, r->data + at - LOCATOR_BYTES, LOCATOR_BYTES);
		if (buf_get_u32(&locator) == 0x07064b50) {
			(void)buf_get_u32(&locator);
			s->step = step_large_end;
			return format_want(s, buf_get_u64(&locator), LARGE_END_BYTES,
					   "the end of the directory", err);
		}
	}
	return begin_directory(s, offset, size, err);
}

static int step_end(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	for (size_t at = r->size - END_BYTES + 1; at-- > 0;) {
		struct buf_reader look;

		buf_reader_init(&look, r->data + at, END_BYTES);
		if (buf_get_u32(&look) != 0x06054b50)
			continue;
		(void)buf_get_bytes(&look, 16);
		if (buf_get_u16(&look) == r->size - at - END_BYTES)
			return take_end(s, r, at, err);
	}
	return err_set(err, -EBADMSG, "no end of an archive: cut short, or no zip file");
}

int zip_begin(struct format_scan *s, struct err *err)
{
	uint64_t bytes = MIN(s->index_bytes, LOCATOR_BYTES + END_BYTES + COMMENT_MAX);

	if (bytes < END_BYTES)
		return err_set(err, -EBADMSG, "too short for a zip file");
	s->step = step_end;
	return format_want(s, s->index_bytes - bytes, bytes, "the end of the archive", err);
}
