/* SPDX-License-Identifier: Apache-2.0 */
/* .npy files as numpy writes them, as a killed job leaves them and as nobody should write them; and
 * Megatron's three index files, which must belong together. */
#include "src/order/npy.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "clairfs/base/buf.h"
#include "clairfs/order.h"

#define HEADER(type, shape) "{'descr': '" type "', 'fortran_order': False, 'shape': " shape ", }"

/* A file of version `major` with this header and `size` bytes of data, the numbers 0, 1, 2, ... of
 * `width` bytes. */
static char *write_npy(const char *name, unsigned major, const char *header, size_t size,
		       unsigned width)
{
	struct buf_writer w;
	char *path;

	buf_writer_init(&w);
	buf_put_bytes(&w, "\x93NUMPY", 6);
	buf_put_u8(&w, (uint8_t)major);
	buf_put_u8(&w, 0);
	if (major == 1)
		buf_put_u16(&w, (uint16_t)strlen(header));
	else
		buf_put_u32(&w, (uint32_t)strlen(header));
	buf_put_bytes(&w, header, strlen(header));
	for (uint64_t i = 0; i < size; i++)
		buf_put_u8(&w, i % width < 8 ? (uint8_t)(i / width >> 8 * (i % width)) : 0);
	CHECK(!w.is_bad);
	path = check_write_file(name, w.data, w.size);
	buf_writer_fini(&w);
	return path;
}

static void opens_as(unsigned major, const char *header, unsigned width, uint64_t rows,
		     uint64_t columns)
{
	char *path AUTO_FREE = write_npy("good.npy", major, header, rows * columns * width, width);
	struct err err = { 0 };
	struct npy npy;

	CHECK_INT(npy_open(NULL, path, &npy, &err), 0);
	CHECK_STR(err.msg, "");
	CHECK_U64(npy.rows, rows);
	CHECK_U64(npy.columns, columns);
	CHECK_U64(npy.width, width);
	if (npy.dimensions == 1) {
		uint32_t *out = malloc((rows + 1) * sizeof(*out));

		CHECK_INT(npy_read(&npy, rows, out, &err), 0);
		for (uint64_t i = 0; i < rows; i++)
			CHECK_U64(out[i], i);
		free(out);
	}
	npy_close(&npy);
	npy_close(&npy); /* twice does no harm */
}

static void what_numpy_writes(void)
{
	opens_as(1, HEADER("<u4", "(1000,)"), 4, 1000, 1);
	opens_as(1, HEADER("<i8", "(40000,)") "            \n", 8, 40000, 1);
	opens_as(2, HEADER("<i4", "(3,)"), 4, 3, 1);
	opens_as(3, HEADER("<u8", "(0,)"), 8, 0, 1);
	opens_as(1, HEADER("<i4", "(7, 2)"), 4, 7, 2);
	opens_as(1, "{'shape':(1,),'descr':'<u4','fortran_order':False}", 4, 1, 1);
}

static void refuses(const char *path, const char *message)
{
	struct err err = { 0 };
	struct npy npy;

	CHECK_INT(npy_open(NULL, path, &npy, &err), -EINVAL);
	CHECK_CONTAINS(err.msg, message);
	CHECK_INT(npy.fd, -1);
}

static void refuses_header(unsigned major, const char *header, const char *message)
{
	char *path AUTO_FREE = write_npy("bad.npy", major, header, 40, 4);

	refuses(path, message);
}

static void headers_that_are_wrong(void)
{
	static const char *const odd = "the header is not one that numpy writes";

	refuses_header(1, "", odd);
	refuses_header(1, "{", odd);
	refuses_header(1, "{}", odd);
	refuses_header(1, "{'descr': '<u4'}", odd);
	refuses_header(1, HEADER("<u4", "(10,)") "x", odd);
	refuses_header(1, "{'descr': '<u4' 'shape': (10,), 'fortran_order': False}", odd);
	refuses_header(
		1, "{'descr': '<u4', 'descr': '<u4', 'shape': (10,), 'fortran_order': False}", odd);
	refuses_header(1, "{'other': 1}", odd);
	refuses_header(0, HEADER("<u4", "(10,)"), "version 0 of the format");
	refuses_header(4, HEADER("<u4", "(10,)"), "version 4 of the format");
	refuses_header(1, "{'descr': '<u4', 'fortran_order': True, 'shape': (10,)}", "Fortran");
	refuses_header(1, HEADER(">u4", "(10,)"), "little-endian");
	refuses_header(1, HEADER("<f8", "(10,)"), "little-endian");
	refuses_header(1, HEADER("|O", "(10,)"), "little-endian");
	refuses_header(1, HEADER("<u4", "()"), "one or two dimensions");
	refuses_header(1, HEADER("<u4", "(10)"), "one or two dimensions");
	refuses_header(1, HEADER("<u4", "(-10,)"), "one or two dimensions");
	refuses_header(1, HEADER("<u4", "(2, 5, 1)"), "one or two dimensions");
	refuses_header(1, HEADER("<u4", "(99999999999999999999,)"), "one or two dimensions");
}

static void sizes_that_do_not_fit(void)
{
	refuses_header(1, HEADER("<u4", "(9,)"), "9 x 1 numbers of 4 bytes: cut short?");
	refuses_header(1, HEADER("<u4", "(11,)"), "11 x 1 numbers of 4 bytes: cut short?");
	refuses_header(1, HEADER("<u4", "(4611686018427387914,)"),
		       "cut short?"); /* 2^64 + 40 bytes */
	refuses_header(1, HEADER("<u4", "(4294967296, 4294967296)"), "cut short?");
}

/* Every file that a real one starts with. */
static void files_cut_short(void)
{
	char *whole AUTO_FREE = write_npy("whole.npy", 1, HEADER("<u4", "(10,)"), 40, 4);
	FILE *file AUTO_FILE = fopen(whole, "re");
	char bytes[200];
	size_t size = fread(bytes, 1, sizeof(bytes), file);

	CHECK(size > 50 && size < sizeof(bytes));
	for (size_t n = 0; n < size; n++) {
		char *path AUTO_FREE = check_write_file("cut.npy", bytes, n);
		struct npy npy;

		CHECK_INT(npy_open(NULL, path, &npy, NULL), -EINVAL);
	}
}

static void files_that_are_none(void)
{
	char *fifo AUTO_FREE = check_tmpfile("fifo");
	char *header AUTO_FREE = calloc(1, 5000);
	struct npy npy;

	CHECK_INT(mkfifo(fifo, 0600), 0);
	refuses(fifo, "not a regular file"); /* and does not wait for a writer */
	CHECK_INT(npy_open(NULL, "/nonexistent/x.npy", &npy, NULL), -ENOENT);
	memset(header, ' ', 4999);
	refuses_header(1, header, "the header is longer than 4096 bytes");
	refuses_header(2, header, "the header is longer than 4096 bytes");
}

static void entries_out_of_range(void)
{
	char *path AUTO_FREE = write_npy("ten.npy", 1, HEADER("<i8", "(10,)"), 80, 8);
	struct err err = { 0 };
	uint32_t out[10];
	struct npy npy;

	CHECK_INT(npy_open(NULL, path, &npy, &err), 0);
	CHECK_INT(npy_read(&npy, 9, out, &err), -EINVAL);
	CHECK_STR(err.msg, "entry 9 is out of range, allowed: 0-8");
	npy_close(&npy);
}

/* The trio of a run with n samples. */
static void write_trio(unsigned n, unsigned rows, unsigned columns)
{
	char header[100];

	snprintf(header, sizeof(header), HEADER("<u4", "(%u,)"), n);
	free(write_npy("run-shuffle_index.npy", 1, header, n * 4, 4));
	snprintf(header, sizeof(header), HEADER("<i4", "(%u, %u)"), rows, columns);
	free(write_npy("run-sample_index.npy", 1, header, (size_t)rows * columns * 4, 4));
	free(write_npy("run-document_index.npy", 1, HEADER("<i4", "(5,)"), 20, 4));
}

/* Returns what order_new does with the trio. */
static int megatron_new(uint64_t n, struct order **ret, struct err *err)
{
	struct order_spec *spec;
	char text[200];
	int rc;

	snprintf(text, sizeof(text), "megatron:path=%s/run:world=2:batch=2", check_tmpdir());
	CHECK_INT(order_spec_parse(text, &spec, err), 0);
	rc = order_new(spec, &(struct order_params){ .n = n }, ret, err);
	order_spec_free(spec);
	return rc;
}

static void megatron_fails(uint64_t n, const char *message)
{
	struct err err = { 0 };
	struct order *order;

	CHECK_INT(megatron_new(n, &order, &err), -EINVAL);
	CHECK_CONTAINS(err.msg, message);
}

static void megatron_index_files(void)
{
	static const uint32_t want[] = { 0, 2, 1, 3, 4, 6, 5, 7 }; /* ranks of 2, in step */
	struct err err = { 0 };
	struct order_epoch *e;
	struct order *order;
	char path[200];

	write_trio(10, 11, 2);
	CHECK_INT(megatron_new(10, &order, &err), 0);
	CHECK_INT(order_epoch_new(order, 0, &e, &err), 0);
	CHECK_U64(e->length, ARRAY_LEN(want)); /* the last round is not full */
	CHECK_BYTES(e->sample, want, sizeof(want));
	order_epoch_free(e);
	order_free(order);

	megatron_fails(9, "the shuffle index has 10 entries, the dataset 9 samples");
	write_trio(10, 12, 2);
	megatron_fails(10, "they belong to different runs");
	write_trio(10, 11, 3);
	megatron_fails(10, "they belong to different runs");
	free(write_npy("run-sample_index.npy", 1, HEADER("<i4", "(22,)"), 88, 4));
	megatron_fails(10, "run-sample_index.npy: an array of 1 dimensions, not of 2");
	write_trio(10, 11, 2);
	free(write_npy("run-document_index.npy", 1, HEADER("<i4", "(5,)"), 19, 4));
	megatron_fails(10, "run-document_index.npy: ");
	snprintf(path, sizeof(path), "%s/run-document_index.npy", check_tmpdir());
	unlink(path);
	CHECK_INT(megatron_new(10, &order, &err), -ENOENT);
}

static int one_file(void *ctx, struct order_shard **ret, size_t *ret_n)
{
	*ret = malloc(sizeof(**ret));
	CHECK(*ret);
	**ret = (struct order_shard){ .sample = 0, .count = *(const uint64_t *)ctx };
	*ret_n = 1;
	return 0;
}

static uint64_t memory_there;

static uint64_t memory(void)
{
	return memory_there;
}

/* What order_new does with the trio and a table of so many sequences, in one file. */
static int megatron_of_records(uint64_t records, struct order **ret, struct err *err)
{
	struct order_params params = {
		.n = 1,
		.n_records = records,
		.shards = one_file,
		.shards_ctx = &records,
		.memory = memory
	};
	struct order_spec *spec;
	char text[200];
	int rc;

	*err = (struct err){ 0 };
	snprintf(text, sizeof(text), "megatron:path=%s/run", check_tmpdir());
	CHECK_INT(order_spec_parse(text, &spec, err), 0);
	rc = order_new(spec, &params, ret, err);
	order_spec_free(spec);
	return rc;
}

/* Row i of the sample index is 2i, 2i+1, so sample i begins in entry 2i of the document index. */
static void megatron_samples_are_where_they_begin(void)
{
	const struct order_part all = { .count = UINT64_MAX };
	AUTO_FREE uint32_t *record = NULL;
	struct order *order;
	struct err err;
	uint64_t n;

	write_trio(10, 11, 2);
	free(write_npy("run-document_index.npy", 1, HEADER("<i4", "(20,)"), 80, 4));
	CHECK_INT(megatron_of_records(20, &order, &err), 0);
	CHECK_INT(order_head(order, &all, &record, &n, &err), 0);
	CHECK_U64(n, 10); /* more samples or less than sequences: they are cut anew */
	for (uint32_t i = 0; i < n; i++)
		CHECK_U64(record[i], 2 * i);
	order_free(order);
	CHECK_INT(megatron_of_records(19, &order, &err), -EINVAL);
	CHECK_CONTAINS(err.msg, "the table has 19 sequences (key \"under\" says of which file)");
	free(write_npy("run-document_index.npy", 1, HEADER("<i4", "(5,)"), 20, 4));
	CHECK_INT(megatron_of_records(20, &order, &err), -EINVAL);
	CHECK_CONTAINS(err.msg, "sample index: row 3 begins in no document of the document index");
}

/* A file may be as large as somebody made it, and takes no room but where it was written. */
static void arrays_of_no_run_take_no_memory(void)
{
	struct order *order;
	struct err err;
	struct stat st;
	char *path;

	write_trio(10, 11, 2);
	memory_there = 40;
	CHECK_INT(megatron_of_records(20, &order, &err), -ENOMEM);
	CHECK_CONTAINS(err.msg, "shuffle index: it takes 0 MiB of memory and");
	memory_there = 60; /* 10 numbers fit, the 22 of the sample index do not */
	CHECK_INT(megatron_of_records(20, &order, &err), -ENOMEM);
	CHECK_CONTAINS(err.msg, "sample_index: it takes");
	memory_there = 0;
	path = write_npy("run-document_index.npy", 1, HEADER("<i4", "(4294967295,)"), 0, 4);
	CHECK_INT(stat(path, &st), 0);
	CHECK_INT(truncate(path, st.st_size + 4294967295 * 4), 0);
	free(path);
	CHECK_INT(megatron_of_records(20, &order, &err), -EINVAL);
	CHECK_CONTAINS(err.msg, "4294967295 rows are too many, at most 4294967294");
}

static const struct check_test tests[] = {
	{ "arrays_of_no_run_take_no_memory", arrays_of_no_run_take_no_memory },
	{ "megatron_samples_are_where_they_begin", megatron_samples_are_where_they_begin },
	{ "what_numpy_writes", what_numpy_writes },
	{ "headers_that_are_wrong", headers_that_are_wrong },
	{ "sizes_that_do_not_fit", sizes_that_do_not_fit },
	{ "files_cut_short", files_cut_short },
	{ "files_that_are_none", files_that_are_none },
	{ "entries_out_of_range", entries_out_of_range },
	{ "megatron_index_files", megatron_index_files },
};

CHECK_MAIN(tests)
