/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bounded cursor: byte order, every way to run off the end, and reading back what was written.
 */
#include "clairfs/base/buf.h"

#include <string.h>

#include "check.h"

static const uint8_t bytes[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff };

static void reads_little_endian(void)
{
	struct buf_reader r;

	buf_reader_init(&r, bytes, sizeof(bytes));
	CHECK_U64(buf_get_u8(&r), 1);
	CHECK_U64(buf_get_u16(&r), 0x0302);
	CHECK_U64(buf_get_u32(&r), 0x07060504);
	CHECK_U64(buf_get_u64(&r), 0xff0e0d0c0b0a0908);
	CHECK_U64(r.at, sizeof(bytes));
	CHECK(!r.is_bad);
}

static void failed_read_is_zero_and_sticks(void)
{
	struct buf_reader r;

	buf_reader_init(&r, bytes, 3);
	CHECK_U64(buf_get_u32(&r), 0);
	CHECK(r.is_bad);
	CHECK_U64(buf_get_u8(&r), 0); /* although three bytes are left */
	CHECK(buf_get_bytes(&r, 0) == NULL);
}

static void every_width_stops_one_short(void)
{
	struct buf_reader r;

	buf_reader_init(&r, bytes, 0);
	CHECK_U64(buf_get_u8(&r), 0);
	CHECK(r.is_bad);
	buf_reader_init(&r, bytes, 1);
	CHECK_U64(buf_get_u16(&r), 0);
	CHECK(r.is_bad);
	buf_reader_init(&r, bytes, 7);
	CHECK_U64(buf_get_u64(&r), 0);
	CHECK(r.is_bad);
	buf_reader_init(&r, bytes, 8);
	CHECK(buf_get_u64(&r) != 0);
	CHECK(!r.is_bad);
}

static void bytes_are_borrowed(void)
{
	struct buf_reader r;

	buf_reader_init(&r, bytes, sizeof(bytes));
	buf_get_u8(&r);
	CHECK(buf_get_bytes(&r, 4) == bytes + 1);
	CHECK(buf_get_bytes(&r, 10) == bytes + 5);
	CHECK(buf_get_bytes(&r, 1) == NULL);
	CHECK(r.is_bad);
}

static void huge_length_does_not_wrap(void)
{
	struct buf_reader r;

	buf_reader_init(&r, bytes, sizeof(bytes));
	buf_get_u16(&r);
	CHECK(buf_get_bytes(&r, SIZE_MAX) == NULL);
	CHECK(r.is_bad);
	buf_reader_init(&r, bytes, sizeof(bytes));
	buf_get_u16(&r);
	CHECK(buf_get_bytes(&r, SIZE_MAX - 1) == NULL);
	CHECK(r.is_bad);
}

static void no_bytes_of_nothing_is_fine(void)
{
	struct buf_reader r;

	buf_reader_init(&r, NULL, 0);
	CHECK(buf_get_bytes(&r, 0) != NULL);
	CHECK(!r.is_bad);
}

static void writes_little_endian(void)
{
	struct buf_writer w;

	buf_writer_init(&w);
	buf_put_u8(&w, 1);
	buf_put_u16(&w, 0x0302);
	buf_put_u32(&w, 0x07060504);
	buf_put_u64(&w, 0xff0e0d0c0b0a0908);
	CHECK(!w.is_bad);
	CHECK_U64(w.size, sizeof(bytes));
	CHECK_BYTES(w.data, bytes, sizeof(bytes));
	buf_writer_fini(&w);
}

static void printf_appends_without_terminator(void)
{
	struct buf_writer w;

	buf_writer_init(&w);
	buf_put_u8(&w, 'a');
	buf_printf(&w, "%s-%d", "bc", 12);
	buf_printf(&w, "%s", "");
	buf_put_u8(&w, '!');
	CHECK_U64(w.size, 7);
	CHECK_BYTES(w.data, "abc-12!", 7);
	buf_writer_fini(&w);
}

static void printf_of_any_length_fits(void)
{
	char text[200];

	/* Around the first capacities, where the terminator needs the room. */
	for (size_t len = 1; len < sizeof(text); len++) {
		struct buf_writer w;

		memset(text, 'x', len);
		text[len] = '\0';
		buf_writer_init(&w);
		buf_printf(&w, "%s", text);
		CHECK_U64(w.size, len);
		CHECK_BYTES(w.data, text, len);
		buf_writer_fini(&w);
	}
}

static void empty_bytes_may_be_null(void)
{
	struct buf_writer w;

	buf_writer_init(&w);
	buf_put_bytes(&w, NULL, 0);
	CHECK(!w.is_bad);
	CHECK_U64(w.size, 0);
	buf_writer_fini(&w);
}

static void out_of_memory_sticks(void)
{
	struct buf_writer w;

	buf_writer_init(&w);
	buf_put_u32(&w, 7);
	buf_put_bytes(&w, bytes, SIZE_MAX / 2); /* is refused before a byte is copied */
	CHECK(w.is_bad);
	CHECK_U64(w.size, 4);
	buf_put_u8(&w, 1);
	buf_printf(&w, "x");
	CHECK_U64(w.size, 4);
	buf_writer_fini(&w);

	buf_writer_init(&w);
	buf_put_bytes(&w, bytes, SIZE_MAX - 3);
	CHECK(w.is_bad);
	buf_writer_fini(&w);
}

static void random_fields_come_back(void)
{
	uint64_t rng = check_seed(), start;
	struct buf_writer w;
	struct buf_reader r;
	const int n = 5000;

	buf_writer_init(&w);
	start = rng;
	for (int i = 0; i < n; i++) {
		uint64_t v = check_rand_u64(&rng);

		switch (v % 5) {
		case 0:
			buf_put_u8(&w, (uint8_t)(v >> 8));
			break;
		case 1:
			buf_put_u16(&w, (uint16_t)(v >> 8));
			break;
		case 2:
			buf_put_u32(&w, (uint32_t)(v >> 8));
			break;
		case 3:
			buf_put_u64(&w, v);
			break;
		default:
			buf_put_bytes(&w, &v, v % 8);
		}
	}
	CHECK(!w.is_bad);
	buf_reader_init(&r, w.data, w.size);
	rng = start;
	for (int i = 0; i < n; i++) {
		uint64_t v = check_rand_u64(&rng);

		switch (v % 5) {
		case 0:
			CHECK_U64(buf_get_u8(&r), (uint8_t)(v >> 8));
			break;
		case 1:
			CHECK_U64(buf_get_u16(&r), (uint16_t)(v >> 8));
			break;
		case 2:
			CHECK_U64(buf_get_u32(&r), (uint32_t)(v >> 8));
			break;
		case 3:
			CHECK_U64(buf_get_u64(&r), v);
			break;
		default:
			CHECK_BYTES(buf_get_bytes(&r, v % 8), &v, v % 8);
		}
	}
	CHECK(!r.is_bad);
	CHECK_U64(r.at, w.size);
	buf_writer_fini(&w);
}

static const struct check_test tests[] = {
	{ "reads_little_endian", reads_little_endian },
	{ "failed_read_is_zero_and_sticks", failed_read_is_zero_and_sticks },
	{ "every_width_stops_one_short", every_width_stops_one_short },
	{ "bytes_are_borrowed", bytes_are_borrowed },
	{ "huge_length_does_not_wrap", huge_length_does_not_wrap },
	{ "no_bytes_of_nothing_is_fine", no_bytes_of_nothing_is_fine },
	{ "writes_little_endian", writes_little_endian },
	{ "printf_appends_without_terminator", printf_appends_without_terminator },
	{ "printf_of_any_length_fits", printf_of_any_length_fits },
	{ "empty_bytes_may_be_null", empty_bytes_may_be_null },
	{ "out_of_memory_sticks", out_of_memory_sticks },
	{ "random_fields_come_back", random_fields_come_back },
};

CHECK_MAIN(tests)
