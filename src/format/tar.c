/* SPDX-License-Identifier: Apache-2.0 */
/* tar, as webdataset reads it: members that follow each other and have one key, which is the path
 * up to the first dot of the last part, are one sample. Other kinds of members, names without a
 * dot and __names__ are none.
 *
 *   header (512) [ data, padded to 512 ] header [ data ] ... zeros
 *
 * One scan from header to header. Understood are ustar, pax (path, size, names of sparse files),
 * long names of GNU tar and its old sparse headers; sizes in octal and in base 256. It ends where
 * Python's tarfile ends: at the first header of zeros, or with the file. A sample reaches from its
 * first header, with what extends that, to the end of its last data. Of keys a hash is kept, which
 * is enough to tell neighbours apart. Pure, any thread. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "format_priv.h"

#define BLOCK 512u

static uint64_t padded(uint64_t bytes)
{
	return ALIGN_UP(bytes, BLOCK);
}

/* FNV-1a */
static uint64_t hash_of(uint64_t hash, const void *bytes, size_t n)
{
	const uint8_t *p = bytes;

	for (size_t i = 0; i < n; i++)
		hash = (hash ^ p[i]) * 0x100000001b3ull;
	return hash;
}

/* webdataset leaves out what begins with __this__. */
static bool is_meta(const char *path, size_t len)
{
	const char *slash = memchr(path, '/', len);
	size_t n = slash ? (size_t)(slash - path) : len;

	return n >= 4 && memcmp(path, "__", 2) == 0 && memcmp(path + n - 2, "__", 2) == 0;
}

/* Bytes of the key by webdataset's ((?:.*[/]|)[^.]+)[.]([^/]*), 0: it does not match. */
static size_t key_length(const char *path, size_t len)
{
	size_t base = len, before;
	const char *dot;

	while (base > 0 && path[base - 1] != '/')
		base--;
	dot = memchr(path + base, '.', len - base);
	if (!dot)
		return 0;
	if (dot > path + base)
		return (size_t)(dot - path);
	/* .name: the directory is the key, if its own name has no dot. */
	for (before = base; before > 0 && path[before - 1] != '.'; before--)
		if (before < base && path[before - 1] == '/')
			break;
	return before < base && (before == 0 || path[before - 1] == '/') ? base : 0;
}

/* False: a member of this name is part of no sample. */
static bool key_of(const char *path, size_t len, uint64_t *ret)
{
	size_t n = is_meta(path, len) ? 0 : key_length(path, len);

	*ret = hash_of(0xcbf29ce484222325ull, path, n);
	return n > 0;
}

/* Octal digits between blanks and NULs, or base 256. */
static bool number_of(const uint8_t *field, size_t len, uint64_t *ret)
{
	size_t i = 0;

	*ret = 0;
	if (field[0] & 0x80) {
		if (field[0] != 0x80)
			return false; /* negative, or more than 2^64 has */
		for (i = 1; i < len; i++) {
			if (*ret >> 56)
				return false;
			*ret = *ret << 8 | field[i];
		}
		return true;
	}
	while (i < len && field[i] == ' ')
		i++;
	for (; i < len && field[i] >= '0' && field[i] <= '7'; i++)
		*ret = *ret << 3 | (uint64_t)(field[i] - '0'); /* 12 digits at most */
	return i == len || field[i] == ' ' || field[i] == '\0';
}

static bool has_checksum(const uint8_t *block)
{
	uint64_t wanted, sum = 0;
	int64_t signed_sum = 0;

	if (!number_of(block + 148, 8, &wanted))
		return false;
	for (unsigned i = 0; i < BLOCK; i++) {
		uint8_t c = i >= 148 && i < 156 ? ' ' : block[i];

		sum += c;
		signed_sum += (int8_t)c;
	}
	return wanted == sum || wanted == (uint64_t)signed_sum;
}

static int put_sample(struct format_scan *s, struct err *err)
{
	struct tar_state *t = &s->tar;

	if (!t->has_sample)
		return 0;
	t->has_sample = false;
	return format_put(s, t->start, MIN(t->end, s->data_bytes) - t->start, 1, err);
}

static int end_archive(struct format_scan *s, struct err *err)
{
	format_done(s);
	return put_sample(s, err);
}

static int step_header(struct format_scan *s, struct buf_reader *r, struct err *err);

/* The next header is at `at`. */
static int want_header(struct format_scan *s, uint64_t at, struct err *err)
{
	s->tar.at = at;
	s->step = step_header;
	if (at >= s->index_bytes)
		return end_archive(s, err);
	return format_want(s, at, BLOCK, "a header", err);
}

/* Behind the data of this header. */
static int pass_over(struct format_scan *s, struct err *err)
{
	struct tar_state *t = &s->tar;

	if (!range_is_within(t->data, t->size, s->index_bytes))
		return err_set(err, -EBADMSG,
			       "the member at %" PRIu64 " should have %" PRIu64
			       " bytes, but the file has %" PRIu64 ": cut short?",
			       t->at, t->size, s->index_bytes);
	/* No overflow: a file has less than 2^63 bytes. */
	return want_header(s, t->data + padded(t->size), err);
}

/* The member is known whole; what extended it was for it alone. */
static int end_member(struct format_scan *s, struct err *err)
{
	struct tar_state *t = &s->tar;
	uint64_t end = t->data + MIN(padded(t->size), s->index_bytes), member = t->member;
	int rc = 0;

	t->member = end;
	t->has_long_name = t->has_long_size = false;
	if (!t->is_sample || !range_is_within(t->data, t->size, s->index_bytes))
		return pass_over(s, err);
	if (!t->has_sample || t->key != t->sample_key) {
		rc = put_sample(s, err);
		t->start = member;
		t->sample_key = t->key;
		t->has_sample = true;
	}
	t->end = end;
	return rc < 0 ? rc : pass_over(s, err);
}

static int step_sparse(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	const uint8_t *block = buf_get_bytes(r, BLOCK);

	s->tar.data += BLOCK;
	return block[504] ? format_want(s, s->tar.data, BLOCK, "a map of holes", err)
			  : end_member(s, err);
}

static int step_long_name(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	struct tar_state *t = &s->tar;
	const char *name = buf_get_bytes(r, r->size);

	t->has_long_name = true;
	t->long_is_sample = key_of(name, strnlen(name, r->size), &t->long_key);
	return pass_over(s, err);
}

/* "LENGTH key=value\n", where LENGTH counts all of it. NULL: not so. */
static const char *pax_record(const char *text, size_t left, size_t *ret_len, size_t *ret_head)
{
	size_t len = 0, i = 0;

	for (; i < left && i < 7 && text[i] >= '0' && text[i] <= '9'; i++)
		len = len * 10 + (size_t)(text[i] - '0');
	if (i == 0 || i == left || text[i] != ' ' || len > left || len < i + 3 ||
	    text[len - 1] != '\n')
		return NULL;
	*ret_len = len;
	*ret_head = i + 1;
	return memchr(text + i + 1, '=', len - i - 2);
}

static bool take_pax(struct tar_state *t, const char *key, size_t key_len, const char *value,
		     size_t len)
{
	uint64_t size = 0;

	if ((key_len == 4 && memcmp(key, "path", 4) == 0) ||
	    (key_len == 15 && memcmp(key, "GNU.sparse.name", 15) == 0)) {
		t->has_long_name = true;
		t->long_is_sample = key_of(value, len, &t->long_key);
		return true;
	}
	if (key_len != 4 || memcmp(key, "size", 4) != 0)
		return true;
	for (size_t i = 0; i < len; i++)
		if (value[i] < '0' || value[i] > '9' || __builtin_mul_overflow(size, 10, &size) ||
		    __builtin_add_overflow(size, (uint64_t)(value[i] - '0'), &size))
			return false;
	t->has_long_size = true;
	t->long_size = size;
	return len > 0;
}

static int step_pax(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	struct tar_state *t = &s->tar;
	const char *text = buf_get_bytes(r, r->size);
	size_t left = r->size, len, head;

	while (left > 0 && *text != '\0') {
		const char *equals = pax_record(text, left, &len, &head);

		if (!equals || !take_pax(t, text + head, (size_t)(equals - text) - head, equals + 1,
					 (size_t)(text + len - 1 - (equals + 1))))
			return err_set(err, -EBADMSG, "the pax header at %" PRIu64 " is damaged",
				       t->at);
		text += len;
		left -= len;
	}
	return pass_over(s, err);
}

/* The name in the header, with the prefix that ustar has. */
static void take_name(struct tar_state *t, const uint8_t *block)
{
	size_t n = strnlen((const char *)block, 100), front = 0;
	char path[155 + 1 + 100];

	if (memcmp(block + 257, "ustar\0", 6) == 0) /* of GNU's something else is there */
		front = strnlen((const char *)block + 345, 155);
	if (front > 0) {
		memcpy(path, block + 345, front);
		path[front++] = '/';
	}
	memcpy(path + front, block, n);
	t->is_sample = key_of(path, front + n, &t->key);
	if (!t->has_long_name)
		return;
	t->is_sample = t->long_is_sample;
	t->key = t->long_key;
}

static int take_file(struct format_scan *s, const uint8_t *block, struct err *err)
{
	struct tar_state *t = &s->tar;
	char type = (char)block[156];
	size_t name_len = strnlen((const char *)block, 100);
	/* The oldest kind of directory. */
	bool is_dir = type == '\0' && name_len > 0 && block[name_len - 1] == '/';

	if (t->has_long_size)
		t->size = t->long_size;
	take_name(t, block);
	if (is_dir || (type != '0' && type != '\0' && type != '7' && type != 'S'))
		t->is_sample = false;
	if (is_dir || (type >= '1' && type <= '6'))
		t->size = 0; /* whatever it says, no data follows */
	if (type != 'S' || block[482] == 0)
		return end_member(s, err);
	s->step = step_sparse;
	return format_want(s, t->data, BLOCK, "a map of holes", err);
}

static int step_header(struct format_scan *s, struct buf_reader *r, struct err *err)
{
	static const uint8_t zeros[BLOCK];
	struct tar_state *t = &s->tar;
	const uint8_t *block = buf_get_bytes(r, BLOCK);

	if (memcmp(block, zeros, BLOCK) == 0)
		return end_archive(s, err);
	if (!has_checksum(block) || !number_of(block + 124, 12, &t->size))
		return err_set(err, -EBADMSG, "no header of a tar archive at %" PRIu64, t->at);
	t->data = t->at + BLOCK;
	switch (block[156]) {
	case 'x':
	case 'X':
		s->step = step_pax;
		break;
	case 'L':
		s->step = step_long_name;
		break;
	case 'g': /* of all that follow: no part of the next one */
		t->member = t->data + padded(MIN(t->size, s->index_bytes));
		return pass_over(s, err);
	case 'K':
		return pass_over(s, err);
	default:
		return take_file(s, block, err);
	}
	return t->size == 0 ? pass_over(s, err)
			    : format_want(s, t->data, t->size, "a header's extension", err);
}

int tar_begin(struct format_scan *s, struct err *err)
{
	return want_header(s, 0, err);
}
