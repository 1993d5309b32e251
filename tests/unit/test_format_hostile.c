/* SPDX-License-Identifier: Apache-2.0 */
/* Containers that lie: lengths of 2^63, tables that fall or reach over the end, headers without an
 * end, directories that name one member twice. Each is refused with a line that says what is wrong
 * and nothing is asked for, or found, outside of the file (format_kit.h). */
#include <errno.h>
#include <string.h>

#include "clairfs/base/buf.h"
#include "format_kit.h"

static struct kit_found found;

/* A container that is refused: the error, and a part of what it says. */
static void refuses(enum format format, const struct buf_writer *w, int error, const char *part)
{
	CHECK(!w->is_bad);
	CHECK_INT(kit_scan(format, w->data, w->size, w->size, &found), error);
	CHECK_CONTAINS(found.err.msg, part);
}

static void put_zeros(struct buf_writer *w, size_t n)
{
	while (n-- > 0)
		buf_put_u8(w, 0);
}

static void put_npy(struct buf_writer *w, const char *header, size_t data)
{
	buf_writer_init(w);
	buf_put_bytes(w, "\x93NUMPY\1\0", 8);
	buf_put_u16(w, (uint16_t)strlen(header));
	buf_put_bytes(w, header, strlen(header));
	put_zeros(w, data);
}

static void refuses_npy(const char *header, size_t data, int error, const char *part)
{
	struct buf_writer w;

	put_npy(&w, header, data);
	refuses(FORMAT_NPY, &w, error, part);
	buf_writer_fini(&w);
}

static void npy_headers_are_not_believed(void)
{
	static const char order[] = "'fortran_order': False, ";
	struct buf_writer w;
	char text[2000];

	snprintf(text, sizeof(text), "{'descr': '<f4', %s'shape': (5, 2), }", order);
	refuses_npy(text, 39, -EBADMSG, "5 rows of 8 bytes: cut short?");
	refuses_npy(text, 80, -EBADMSG, "80 bytes, but");
	put_npy(&w, text, 40);
	CHECK_INT(kit_scan(FORMAT_NPY, w.data, w.size, w.size, &found), 0);
	CHECK_U64(found.n, 5);
	w.data[6] = 9;
	refuses(FORMAT_NPY, &w, -EBADMSG, "version 9");
	w.data[6] = 1;
	w.data[8] = w.data[9] = 0xff;
	refuses(FORMAT_NPY, &w, -EBADMSG, "cut short?");
	w.data[6] = 2; /* a length of 32 bits */
	refuses(FORMAT_NPY, &w, -EBADMSG, "allowed are 1 to");
	buf_writer_fini(&w);
	/* 2^63 * 2 rows, 2^64 of them, elements of 2^63 bytes. */
	snprintf(text, sizeof(text), "{'descr': '<f4', %s'shape': (2, 9223372036854775808), }", order);
	refuses_npy(text, 8, -EBADMSG, "not one that numpy writes");
	snprintf(text, sizeof(text), "{'descr': '<f4', %s'shape': (18446744073709551616,), }", order);
	refuses_npy(text, 8, -EBADMSG, "not one that numpy writes");
	snprintf(text, sizeof(text), "{'descr': '|V9223372036854775808', %s'shape': (4, 4), }", order);
	refuses_npy(text, 8, -EBADMSG, "not one that numpy writes");
	snprintf(text, sizeof(text), "{'descr': '<f4', %s'shape': (-1,), }", order);
	refuses_npy(text, 8, -EBADMSG, "not one that numpy writes");
	refuses_npy("{'descr': '<f4', 'shape': (2,), }", 8, -EBADMSG, "not one that numpy writes");
	refuses_npy("{'descr': '<f4', 'descr': '<f4', 'shape': (2,), }", 8, -EBADMSG, "not one");
	refuses_npy("{'descr': 'f", 8, -EBADMSG, "not one that numpy writes");
	refuses_npy("{", 8, -EBADMSG, "not one that numpy writes");
	memset(text, '[', 500); /* fields within fields without an end */
	snprintf(text + 500, sizeof(text) - 500, "'");
	refuses_npy(text, 8, -EBADMSG, "not one that numpy writes");
	memset(text, 0, sizeof(text));
	strcpy(text, "{'descr': ");
	for (int i = 0; i < 100; i++)
		strcat(text, "[('a', ");
	refuses_npy(text, 8, -EBADMSG, "not one that numpy writes");
}

/* A shard of these offsets, as long as `size`. */
static void refuses_offsets(uint32_t n, const uint32_t *offsets, size_t n_offsets, size_t size,
			    const char *part)
{
	struct buf_writer w;

	buf_writer_init(&w);
	buf_put_u32(&w, n);
	for (size_t i = 0; i < n_offsets; i++)
		buf_put_u32(&w, offsets[i]);
	put_zeros(&w, size - w.size);
	refuses(FORMAT_MDS, &w, -EBADMSG, part);
	refuses(FORMAT_LITDATA, &w, -EBADMSG, part);
	buf_writer_fini(&w);
}

static void tables_of_offsets_are_not_believed(void)
{
	refuses_offsets(UINT32_MAX, NULL, 0, 100, "cut short?");
	refuses_offsets(2, (uint32_t[]){ 16, 20, 30 }, 3, 29, "10 bytes at 20, but the file has 29");
	refuses_offsets(2, (uint32_t[]){ 16, 20, 30 }, 3, 31, "cut short, or not a shard?");
	refuses_offsets(2, (uint32_t[]){ 15, 20, 30 }, 3, 30, "sample 0 begins at 15");
	refuses_offsets(2, (uint32_t[]){ 16, 25, 20 }, 3, 20, "should be 9 bytes at 16");
	refuses_offsets(2, (uint32_t[]){ 16, 25, 20 }, 3, 30, "sample 2 begins at 20");
	refuses_offsets(2, (uint32_t[]){ 16, 0x80000000, 0xffffffff }, 3, 30, "a record should be");
	refuses_offsets(2, (uint32_t[]){ 16, 16, 16 }, 3, 16, "without a byte");
}

static uint32_t masked_crc_of(uint64_t v)
{
	uint32_t crc = 0xffffffffu;

	for (int i = 0; i < 64; i++, v >>= 1)
		crc = crc >> 1 ^ ((crc ^ (uint32_t)v) & 1 ? 0x82f63b78u : 0);
	crc = ~crc;
	return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void lengths_of_records_are_not_believed(void)
{
	const uint64_t lengths[] = { 5, 1ull << 63, UINT64_MAX, UINT64_MAX - 15, UINT64_MAX - 16 };

	for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
		struct buf_writer w;

		buf_writer_init(&w);
		buf_put_u64(&w, lengths[i]);
		buf_put_u32(&w, masked_crc_of(lengths[i]));
		put_zeros(&w, 4 + 4);
		refuses(FORMAT_TFRECORD, &w, -EBADMSG,
			lengths[i] > UINT64_MAX - 16 ? "too long" : "a record should be");
		w.data[8] ^= 1;
		refuses(FORMAT_TFRECORD, &w, -EBADMSG, "checksum of the length at 0");
		buf_writer_fini(&w);
	}
}

static void put_megatron(struct buf_writer *w, uint64_t n, uint64_t documents)
{
	buf_writer_init(w);
	buf_put_bytes(w, "MMIDIDX\0\0", 9);
	buf_put_u64(w, 1);
	buf_put_u8(w, 4);
	buf_put_u64(w, n);
	buf_put_u64(w, documents);
}

static void refuses_sequence(uint32_t length, uint64_t start, uint64_t data, const char *part)
{
	struct buf_writer w;

	put_megatron(&w, 1, 1);
	buf_put_u32(&w, length);
	buf_put_u64(&w, start);
	buf_put_u64(&w, 0);
	CHECK_INT(kit_scan(FORMAT_MEGATRON, w.data, w.size, data, &found), part ? -EBADMSG : 0);
	if (part)
		CHECK_CONTAINS(found.err.msg, part);
	buf_writer_fini(&w);
}

static void indexes_of_sequences_are_not_believed(void)
{
	const uint64_t counts[] = { 1, 1ull << 31, 1ull << 61, 1ull << 63, UINT64_MAX };
	struct buf_writer w;

	for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
		put_megatron(&w, counts[i], 0);
		put_zeros(&w, 11);
		refuses(FORMAT_MEGATRON, &w, -EBADMSG, "too short");
		buf_writer_fini(&w);
		put_megatron(&w, 0, counts[i]);
		refuses(FORMAT_MEGATRON, &w, -EBADMSG, "too short");
		buf_writer_fini(&w);
	}
	refuses_sequence(5, 10, 30, NULL);
	CHECK_U64(found.range[0].length, 20);
	refuses_sequence(5, 11, 30, "cut short?");
	refuses_sequence(UINT32_MAX, 0, UINT64_MAX, "negative length");
	refuses_sequence(5, UINT64_MAX - 4, 30, "a record should be");
	refuses_sequence(5, 1ull << 63, 30, "a record should be");
	put_megatron(&w, 0, 0);
	w.data[17] = 99;
	refuses(FORMAT_MEGATRON, &w, -EBADMSG, "type of tokens");
	buf_writer_fini(&w);
}

/* fairseq's, with or without Megatron's number of documents; three sequences of 4-byte tokens. */
static void put_fairseq(struct buf_writer *w, bool has_documents, const uint64_t starts[4])
{
	buf_writer_init(w);
	buf_put_bytes(w, "TNTIDX\0\0", 8);
	buf_put_u64(w, 1);
	buf_put_u64(w, 4);
	buf_put_u64(w, 4);
	buf_put_u64(w, 3);
	buf_put_u64(w, 3);
	if (has_documents)
		buf_put_u64(w, 2);
	for (uint64_t i = 0; i < 4; i++)
		buf_put_u64(w, i);
	for (int i = 0; i < 4; i++)
		buf_put_u64(w, starts[i]);
	put_zeros(w, 3 * 8 + (has_documents ? 2 * 8 : 0));
}

static void the_old_version_of_sequences_is_known(void)
{
	const uint64_t good[4] = { 0, 2, 2, 7 }, falls[4] = { 0, 5, 4, 7 },
		       huge[4] = { 0, 2, 1ull << 62, 1ull << 62 };

	for (int i = 0; i < 2; i++) {
		struct buf_writer w;

		put_fairseq(&w, i == 1, good);
		CHECK_INT(kit_scan(FORMAT_MEGATRON, w.data, w.size, 28, &found), 0);
		CHECK_U64(found.n, 3);
		CHECK_U64(found.range[0].length, 8);
		CHECK_U64(found.range[1].length, 0);
		CHECK_U64(found.range[2].offset, 8);
		CHECK_U64(found.range[2].length, 20);
		CHECK_INT(kit_scan(FORMAT_MEGATRON, w.data, w.size, 27, &found), -EBADMSG);
		buf_writer_fini(&w);
		put_fairseq(&w, i == 1, falls);
		refuses(FORMAT_MEGATRON, &w, -EBADMSG, "sequence 2 ends before");
		buf_writer_fini(&w);
		put_fairseq(&w, i == 1, huge);
		refuses(FORMAT_MEGATRON, &w, -EBADMSG, "sequence 2 ends before");
		buf_writer_fini(&w);
	}
}

/* A header of tar, with its checksum; size NULL: 0. Type 's' is 'S' with a map that goes on. */
static void put_tar(struct buf_writer *w, const char *name, char type, const char *size)
{
	char block[512] = { 0 };
	unsigned sum = 0;

	snprintf(block, 100, "%s", name);
	memcpy(block + 124, size ? size : "00000000000", 11);
	block[156] = type == 's' ? 'S' : type;
	block[482] = type == 's';
	memcpy(block + 257, "ustar\0" "00", 8);
	memset(block + 148, ' ', 8);
	for (size_t i = 0; i < sizeof(block); i++)
		sum += (uint8_t)block[i];
	snprintf(block + 148, 8, "%06o", sum & 0777777);
	buf_put_bytes(w, block, sizeof(block));
}

static void put_text(struct buf_writer *w, const char *text)
{
	buf_put_bytes(w, text, strlen(text));
	put_zeros(w, (512 - strlen(text) % 512) % 512);
}

static void refuses_tar(char type, const char *size, const char *data, const char *part)
{
	struct buf_writer w;

	buf_writer_init(&w);
	put_tar(&w, "a.jpg", '0', NULL);
	put_tar(&w, "b.jpg", type, size);
	put_text(&w, data);
	refuses(FORMAT_TAR, &w, -EBADMSG, part);
	buf_writer_fini(&w);
}

static void headers_of_members_are_not_believed(void)
{
	refuses_tar('0', "77777777777", "", "cut short?");
	refuses_tar('0', "\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff", "", "cut short?");
	refuses_tar('0', "\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff", "", "cut short?");
	refuses_tar('0', "\x80\0\0\xff\xff\xff\xff\xff\xff\xff\xff", "", "no header of a tar archive");
	refuses_tar('0', "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "", "no header of a tar");
	refuses_tar('0', "12x45670123", "", "no header of a tar archive at 512");
	refuses_tar('x', "00001000000", "", "cut short?"); /* more than a scan may ask for */
	refuses_tar('x', "00000000777", "", "cut short?");
	refuses_tar('x', "00000000017", "0 path=a.jpg.x\n", "the pax header at 512 is damaged");
	refuses_tar('x', "00000000017", "99 path=a.jpg.\n", "the pax header at 512 is damaged");
	refuses_tar('x', "00000000017", "15 path.a.jpg.\n", "the pax header at 512 is damaged");
	refuses_tar('x', "00000000017", "15 path=a.jpg.x", "the pax header at 512 is damaged");
	refuses_tar('x', "00000000036", "30 size=999999999999999999999\n", "the pax header at 512");
	refuses_tar('x', "00000000014", "12 size=-10\n", "the pax header at 512 is damaged");
	refuses_tar('K', "00000001000", "", "cut short?");
}

static void a_chain_of_maps_ends_with_the_file(void)
{
	struct buf_writer w;

	buf_writer_init(&w);
	put_tar(&w, "a.bin", 's', NULL);
	for (int i = 0; i < 20; i++) {
		put_zeros(&w, 504);
		buf_put_u64(&w, 1);
	}
	refuses(FORMAT_TAR, &w, -EBADMSG, "a map of holes");
	w.data[w.size - 8] = 0; /* the last one says so */
	put_tar(&w, "b.bin", '0', NULL);
	CHECK_INT(kit_scan(FORMAT_TAR, w.data, w.size, w.size, &found), 0);
	CHECK_U64(found.n, 2);
	CHECK_U64(found.range[0].length, 21 * 512);
	buf_writer_fini(&w);
}

static void long_names_and_sizes_are_of_the_next_member_only(void)
{
	struct buf_writer w;

	/* Length and text: "17 path=long.jpg\n" is 17, "12 size=600\n" is 12. */
	buf_writer_init(&w);
	put_tar(&w, "ext", 'x', "00000000035");
	put_text(&w, "17 path=long.jpg\n12 size=600\n");
	put_tar(&w, "short.jpg", '0', "00000000001");
	put_zeros(&w, 1024);
	put_tar(&w, "long.cls", '0', "00000000001");
	put_zeros(&w, 512);
	put_tar(&w, "short.txt", '0', NULL);
	CHECK_INT(kit_scan(FORMAT_TAR, w.data, w.size, w.size, &found), 0);
	CHECK_STR(found.err.msg, "");
	CHECK_U64(found.n, 2);
	CHECK_U64(found.range[0].offset, 0);
	CHECK_U64(found.range[0].length, 512 + 512 + 512 + 1024 + 512 + 512);
	buf_writer_fini(&w);
}

struct entry {
	uint32_t packed, start;
	uint16_t extra; /* bytes of a zip64 field, 0: none */
};

/* A zip file of members without names, 40 bytes each, and a directory of these entries. */
static void put_zip(struct buf_writer *w, const struct entry *entries, unsigned n)
{
	size_t directory;

	buf_writer_init(w);
	put_zeros(w, 40 * n);
	directory = w->size;
	for (unsigned i = 0; i < n; i++) {
		buf_put_u32(w, 0x02014b50);
		put_zeros(w, 16);
		buf_put_u32(w, entries[i].packed);
		buf_put_u32(w, 10);
		buf_put_u16(w, 0);
		buf_put_u16(w, entries[i].extra ? 4 + entries[i].extra : 0);
		put_zeros(w, 2 + 8);
		buf_put_u32(w, entries[i].start);
		if (entries[i].extra == 0)
			continue;
		buf_put_u16(w, 1);
		buf_put_u16(w, entries[i].extra);
		for (unsigned k = 0; k < entries[i].extra; k++)
			buf_put_u8(w, 0xff);
	}
	buf_put_u32(w, 0x06054b50);
	put_zeros(w, 6);
	buf_put_u16(w, (uint16_t)n);
	buf_put_u32(w, (uint32_t)(w->size - 12 - directory));
	buf_put_u32(w, (uint32_t)directory);
	buf_put_u16(w, 0);
}

static void refuses_zip(struct entry a, struct entry b, int error, const char *part)
{
	struct buf_writer w;

	put_zip(&w, (struct entry[]){ a, b }, 2);
	refuses(FORMAT_ZIP, &w, error, part);
	buf_writer_fini(&w);
}

static void directories_of_archives_are_not_believed(void)
{
	struct buf_writer w;

	put_zip(&w, (struct entry[]){ { 10, 0, 0 }, { 10, 40, 0 } }, 2);
	CHECK_INT(kit_scan(FORMAT_ZIP, w.data, w.size, w.size, &found), 0);
	CHECK_U64(found.n, 2);
	CHECK_U64(found.range[1].offset, 40);
	w.data[w.size - 12] = 200; /* members */
	refuses(FORMAT_ZIP, &w, -EBADMSG, "cannot be");
	w.data[w.size - 12] = 1;
	CHECK_INT(kit_scan(FORMAT_ZIP, w.data, w.size, w.size, &found), 0);
	w.data[w.size - 12] = 3;
	refuses(FORMAT_ZIP, &w, -EBADMSG, "cannot be");
	w.data[w.size - 3] = 0x7f; /* where it is */
	refuses(FORMAT_ZIP, &w, -EBADMSG, "cannot be");
	buf_writer_fini(&w);
	refuses_zip((struct entry){ 10, 40, 0 }, (struct entry){ 10, 0, 0 }, -ENOTSUP, "the order of");
	refuses_zip((struct entry){ 10, 0, 0 }, (struct entry){ 10, 0, 0 }, -ENOTSUP, "the order of");
	refuses_zip((struct entry){ 11, 0, 0 }, (struct entry){ 10, 40, 0 }, -ENOTSUP, "the order of");
	refuses_zip((struct entry){ 10, 0, 0 }, (struct entry){ 11, 40, 0 }, -EBADMSG, "reaches into");
	refuses_zip((struct entry){ 10, 0, 0 }, (struct entry){ UINT32_MAX - 1, 40, 0 }, -EBADMSG,
		    "reaches into");
	/* Sizes and offsets of 64 bits: too short a field, all ones. */
	refuses_zip((struct entry){ UINT32_MAX, 0, 7 }, (struct entry){ 10, 40, 0 }, -EBADMSG,
		    "damaged near");
	refuses_zip((struct entry){ UINT32_MAX, 0, 8 }, (struct entry){ 10, 40, 0 }, -EBADMSG,
		    "reaches into");
	refuses_zip((struct entry){ 10, UINT32_MAX, 8 }, (struct entry){ 10, 40, 0 }, -EBADMSG,
		    "reaches into");
}

static void an_end_of_an_archive_in_64_bits_is_not_believed(void)
{
	struct buf_writer w;

	buf_writer_init(&w);
	buf_put_u32(&w, 0x07064b50);
	buf_put_u32(&w, 0);
	buf_put_u64(&w, UINT64_MAX - 50); /* where it is */
	buf_put_u32(&w, 1);
	buf_put_u32(&w, 0x06054b50);
	put_zeros(&w, 18);
	refuses(FORMAT_ZIP, &w, -EBADMSG, "the end of the directory");
	buf_writer_fini(&w);
	buf_writer_init(&w);
	buf_put_u32(&w, 0x06064b50);
	put_zeros(&w, 28);
	buf_put_u64(&w, 1ull << 63);   /* members */
	buf_put_u64(&w, 1ull << 63);   /* bytes */
	buf_put_u64(&w, UINT64_MAX);   /* where */
	buf_put_u32(&w, 0x07064b50);
	buf_put_u32(&w, 0);
	buf_put_u64(&w, 0);
	buf_put_u32(&w, 1);
	buf_put_u32(&w, 0x06054b50);
	put_zeros(&w, 18);
	refuses(FORMAT_ZIP, &w, -EBADMSG, "cannot be");
	buf_writer_fini(&w);
}

/* A Parquet file of 40 bytes of pages and this footer. */
static void put_parquet(struct buf_writer *w, const char *footer, size_t n)
{
	buf_writer_init(w);
	put_zeros(w, 40);
	buf_put_bytes(w, footer, n);
	buf_put_u32(w, (uint32_t)n);
	buf_put_bytes(w, "PAR1", 4);
}

static void refuses_parquet(const char *footer, size_t n, int error, const char *part)
{
	struct buf_writer w;

	put_parquet(&w, footer, n);
	refuses(FORMAT_PARQUET, &w, error, part);
	buf_writer_fini(&w);
}
#define REFUSES_PARQUET(footer, error, part) refuses_parquet(footer, sizeof(footer) - 1, error, part)

/* Field 4, a list of one group: field 1, a list of one column: field 3, its metadata: fields 7 and
 * 9, bytes and first page in zigzag; field 3 of the group, its rows. */
#define GROUP(bytes, page, rows) "\x49\x1c\x19\x1c\x3c\x76" bytes "\x26" page "\0\0\x26" rows "\0\0"
#define HUGE_NUMBER "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"

static void footers_of_parquet_are_not_believed(void)
{
	char deep[200];
	struct buf_writer w;

	put_parquet(&w, GROUP("\x14", "\x08", "\x06"), sizeof(GROUP("\x14", "\x08", "\x06")) - 1);
	CHECK_INT(kit_scan(FORMAT_PARQUET, w.data, w.size, w.size, &found), 0);
	CHECK_U64(found.n, 1);
	CHECK_U64(found.range[0].offset, 4);
	CHECK_U64(found.range[0].length, 10);
	CHECK_U64(found.rows[0], 3);
	w.data[w.size - 5] = 0x7f; /* the footer's length */
	refuses(FORMAT_PARQUET, &w, -EBADMSG, "damaged");
	w.data[w.size - 1] = 'E';
	refuses(FORMAT_PARQUET, &w, -EBADMSG, "encrypted");
	buf_writer_fini(&w);
	REFUSES_PARQUET(GROUP("\x14", "\xc8\x01", "\x06"), -EBADMSG, "10 bytes at 100");
	REFUSES_PARQUET(GROUP(HUGE_NUMBER, "\x08", "\x06"), -EBADMSG, "should be");
	REFUSES_PARQUET(GROUP("\x14", HUGE_NUMBER, "\x06"), -EBADMSG, "should be"); /* less than none */
	REFUSES_PARQUET(GROUP("\0", "\x08", "\x06"), -EBADMSG, "damaged");
	REFUSES_PARQUET(GROUP("\x14", "\x08", HUGE_NUMBER), -EBADMSG, "damaged");
	REFUSES_PARQUET("\x49\xfc" HUGE_NUMBER, -EBADMSG, "damaged"); /* groups that are not there */
	REFUSES_PARQUET("\x48" HUGE_NUMBER, -EBADMSG, "damaged");      /* a string of 2^64 bytes */
	REFUSES_PARQUET("\x46\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", -EBADMSG, "damaged");
	REFUSES_PARQUET("\x4b\x01\x88", -EBADMSG, "damaged"); /* a map */
	REFUSES_PARQUET("\x49\x1c\x19\x1c\x18\x01x", -ENOTSUP, "in other files");
	REFUSES_PARQUET("\x49\x1e", -EBADMSG, "damaged");
	REFUSES_PARQUET("", -EBADMSG, "damaged");
	memset(deep, 0x1c, sizeof(deep)); /* structs within structs */
	refuses_parquet(deep, sizeof(deep), -EBADMSG, "damaged");
	memset(deep, 0x19, sizeof(deep)); /* lists within lists */
	refuses_parquet(deep, sizeof(deep), -EBADMSG, "damaged");
}

/* The end of an Arrow file: a footer of these bytes. */
static void refuses_arrow(const uint32_t *footer, size_t n, const char *part)
{
	struct buf_writer w;

	buf_writer_init(&w);
	put_zeros(&w, 64);
	for (size_t i = 0; i < n; i++)
		buf_put_u32(&w, footer[i]);
	buf_put_u32(&w, (uint32_t)(4 * n));
	buf_put_bytes(&w, "ARROW1", 6);
	refuses(FORMAT_ARROW, &w, -EBADMSG, part);
	buf_writer_fini(&w);
}

static void footers_of_arrow_are_not_believed(void)
{
	struct buf_writer w;

	/* Root, vtable (12 bytes: 12, 8, 0, 0, 0, 4), table {distance, offset of the vector}, count. */
	refuses_arrow((uint32_t[]){ 16, 8 << 16 | 12, 0, 4 << 16, 12, 4, 7 }, 7, "the footer of the Arrow");
	refuses_arrow((uint32_t[]){ 16, 8 << 16 | 12, 0, 4 << 16, 12, 4, UINT32_MAX }, 7, "the footer");
	refuses_arrow((uint32_t[]){ 16, 8 << 16 | 12, 0, 4 << 16, 12, 0x7fffffff, 1 }, 7, "the footer");
	refuses_arrow((uint32_t[]){ 16, 8 << 16 | 12, 0, 4 << 16, 0x80000000, 4, 1 }, 7, "the footer");
	refuses_arrow((uint32_t[]){ UINT32_MAX, 0, 0 }, 3, "the footer of the Arrow");
	refuses_arrow(NULL, 0, "the footer of the Arrow");
	/* A block that lies: far away, without a head, of 2^63 bytes. */
	refuses_arrow((uint32_t[]){ 16, 8 << 16 | 12, 0, 4 << 16, 12, 4, 1, 0, 1, 16, 0, 0, 0 }, 13,
		      "the head of a batch");
	refuses_arrow((uint32_t[]){ 16, 8 << 16 | 12, 0, 4 << 16, 12, 4, 1, 0, 0, 7, 0, 0, 0 }, 13,
		      "a block of the Arrow");
	refuses_arrow((uint32_t[]){ 16, 8 << 16 | 12, 0, 4 << 16, 12, 4, 1, 0, 0, 16, 0, 0, 1u << 31 }, 13,
		      "a batch of the Arrow");
	buf_writer_init(&w);
	put_zeros(&w, 30);
	refuses(FORMAT_ARROW, &w, -EBADMSG, "a stream of Arrow's");
	buf_writer_fini(&w);
}

static int take_line(void *ctx, const struct format_line *line)
{
	found.range[found.n++] = (struct format_range){ line->offset, line->length };
	return found.n == 3 ? -ECANCELED : 0;
}

static void refuses_list(enum format_list list, const char *text, int error, const char *part)
{
	struct err err = { 0 };

	found.n = 0;
	CHECK_INT(format_list_read(list, text, strlen(text), take_line, NULL, &err), error);
	CHECK_CONTAINS(err.msg, part);
}

static void lists_are_refused_with_the_line(void)
{
	refuses_list(FORMAT_LIST_PATHS, "a 0 1\n\n# c\na 1\n", -EBADMSG, "line 4 is not path, offset");
	refuses_list(FORMAT_LIST_PATHS, "a 0 18446744073709551616\n", -EBADMSG, "line 1 is not");
	refuses_list(FORMAT_LIST_PATHS, "0 1\n", -EBADMSG, "line 1 is not");
	refuses_list(FORMAT_LIST_PATHS, "a 0 -1\n", -EBADMSG, "line 1 is not");
	refuses_list(FORMAT_LIST_OFFSETS, "0 1\nx 1 2\n", -EBADMSG, "line 2 is not offset and length");
	refuses_list(FORMAT_LIST_OFFSETS, "0 1\n1 1\n2 1\n3 1", -ECANCELED, "line 3");
	refuses_list(FORMAT_LIST_WDS, "v1.2 2\njpg 512 7 a.jpg\n", -EBADMSG, "1 samples, but");
	refuses_list(FORMAT_LIST_WDS, "v1.3 1\njpg 512 7 a.jpg\n", -EBADMSG, "line 1 is not v1.1");
	refuses_list(FORMAT_LIST_WDS, "v1.2 1\njpg 512 18446744073709551615 a\n", -EBADMSG, "line 2");
	refuses_list(FORMAT_LIST_WDS, "v1.2 1\njpg 512\n", -EBADMSG, "line 2 is not");
	refuses_list(FORMAT_LIST_KERCHUNK, "[1]", -EBADMSG, "no references");
	refuses_list(FORMAT_LIST_KERCHUNK, "{\"refs\": 5}", -EBADMSG, "no references");
	refuses_list(FORMAT_LIST_KERCHUNK, "{\"x/0\": [\"a\", -1, 5]}", -EBADMSG, "x/0 is not [path");
	refuses_list(FORMAT_LIST_KERCHUNK, "{\"refs\": {\"x/0\": [\"{{u}}\", 1, 5]}}", -EBADMSG, "template");
	refuses_list(FORMAT_LIST_KERCHUNK, "{\"x/0\": [\"file://\", 1, 5]}", -EBADMSG, "has no path");
	refuses_list(FORMAT_LIST_KERCHUNK, "{\"gen\": [{}], \"refs\": {}}", -ENOTSUP, "gen");
	refuses_list(FORMAT_LIST_KERCHUNK, "{\"x/0\": [\"a\", 1, 5]", -EBADMSG, "no JSON: line 1");
}

static int no_shard(void *ctx, const struct format_shard *shard)
{
	return -ECANCELED;
}

static void indexes_of_shards_are_refused(void)
{
	static const struct {
		const char *text;
		int error;
		const char *part;
	} cases[] = {
		{ "{\"shards\": [{}]}", -EBADMSG, "shard 0 has no name" },
		{ "{\"shards\": [{\"raw_data\": {\"basename\": \"a\"}, \"samples\": -1}]}", -EBADMSG,
		  "shard 0 has no number" },
		{ "{\"shards\": [{\"raw_data\": {\"basename\": \"\"}, \"samples\": 1}]}", -EBADMSG,
		  "no name" },
		{ "{\"shards\": [{\"format\": \"csv\"}]}", -ENOTSUP, "another format than mds" },
		{ "{\"chunks\": [], \"config\": {\"compression\": \"zstd\"}}", -ENOTSUP, "compressed" },
		{ "{\"chunks\": [[[]]]}", -EBADMSG, "shard 0 has no name" },
		{ "{\"shards\": []", -EBADMSG, "no JSON" },
		{ "", -EBADMSG, "no JSON" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		enum format format;
		struct err err = { 0 };

		CHECK_INT(format_json_index(cases[i].text, strlen(cases[i].text), &format, no_shard,
					    NULL, &err),
			  cases[i].error);
		CHECK_CONTAINS(err.msg, cases[i].part);
	}
}

static const struct check_test tests[] = {
	{ "npy_headers_are_not_believed", npy_headers_are_not_believed },
	{ "tables_of_offsets_are_not_believed", tables_of_offsets_are_not_believed },
	{ "lengths_of_records_are_not_believed", lengths_of_records_are_not_believed },
	{ "indexes_of_sequences_are_not_believed", indexes_of_sequences_are_not_believed },
	{ "the_old_version_of_sequences_is_known", the_old_version_of_sequences_is_known },
	{ "headers_of_members_are_not_believed", headers_of_members_are_not_believed },
	{ "a_chain_of_maps_ends_with_the_file", a_chain_of_maps_ends_with_the_file },
	{ "long_names_and_sizes_are_of_the_next_member_only",
	  long_names_and_sizes_are_of_the_next_member_only },
	{ "directories_of_archives_are_not_believed", directories_of_archives_are_not_believed },
	{ "an_end_of_an_archive_in_64_bits_is_not_believed",
	  an_end_of_an_archive_in_64_bits_is_not_believed },
	{ "footers_of_parquet_are_not_believed", footers_of_parquet_are_not_believed },
	{ "footers_of_arrow_are_not_believed", footers_of_arrow_are_not_believed },
	{ "lists_are_refused_with_the_line", lists_are_refused_with_the_line },
	{ "indexes_of_shards_are_refused", indexes_of_shards_are_refused },
};
CHECK_MAIN(tests)
