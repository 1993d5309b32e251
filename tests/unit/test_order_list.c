/* SPDX-License-Identifier: Apache-2.0 */
/* List files as people and programs write them, right and wrong. */
#include "clairfs/order.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "check.h"

#define N                                                                                          \
	10 /* samples of the dataset: 0..9, with the paths "d/0.jpg".."d/9.jpg" and "#9" for 9     \
	    */

static bool resolve(void *ctx, const char *path, size_t len, uint32_t *ret_sample)
{
	++*(unsigned *)ctx;
	if (len == 2 && memcmp(path, "#9", 2) == 0) {
		*ret_sample = 9;
		return true;
	}
	if (len == 3 &&
	    memcmp(path, "far", 3) == 0) { /* a resolver that knows more samples than there are */
		*ret_sample = N;
		return true;
	}
	if (len != 7 || memcmp(path, "d/", 2) != 0 || memcmp(path + 3, ".jpg", 4) != 0)
		return false;
	*ret_sample = (uint32_t)(path[2] - '0');
	return *ret_sample < N;
}

static int open_path(const char *path, bool has_resolve, struct order **ret, struct err *err)
{
	unsigned calls = 0;
	struct order_params params = { .n = N,
				       .resolve = has_resolve ? resolve : NULL,
				       .resolve_ctx = &calls };
	struct order_spec *spec;
	char text[512];
	int rc;

	snprintf(text, sizeof(text), "list:path=%s", path);
	rc = order_spec_parse(text, &spec, err);
	CHECK_INT(rc, 0);
	rc = order_new(spec, &params, ret, err);
	order_spec_free(spec);
	return rc;
}

static int open_list(const char *name, const void *bytes, size_t size, struct order **ret,
		     struct err *err)
{
	char *path AUTO_FREE = check_write_file(name, bytes, size);

	return open_path(path, true, ret, err);
}

static void epoch_is(const struct order *order, uint64_t epoch, const char *want)
{
	struct err err = { 0 };
	struct order_epoch *e;
	char text[400] = "";
	int rc = order_epoch_new(order, epoch, &e, &err);

	CHECK_STR(err.msg, "");
	CHECK_INT(rc, 0);
	for (uint64_t i = 0; i < e->length; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%u", i ? " " : "",
			 e->sample[i]);
	CHECK_STR(text, want);
	order_epoch_free(e);
}

/* A list that is the same in every epoch. */
static void reads(const char *text, const char *want)
{
	struct err err = { 0 };
	struct order *order;
	int rc = open_list("list.txt", text, strlen(text), &order, &err);

	CHECK_STR(err.msg, "");
	CHECK_INT(rc, 0);
	CHECK(order_info(order)->is_same_every_epoch);
	epoch_is(order, 0, want);
	epoch_is(order, UINT64_MAX, want);
	order_free(order);
}

/* `want` is the part of the message behind the path. */
static void fails_as(const char *name, const void *bytes, size_t size, const char *want)
{
	struct err err = { 0 };
	struct order *order;
	const char *part;
	int rc = open_list(name, bytes, size, &order, &err);

	CHECK_INT(rc, -EINVAL);
	CHECK(order == NULL);
	CHECK(strncmp(err.msg, "order list: /", 13) == 0);
	part = strstr(err.msg, name);
	CHECK(part);
	CHECK_STR(part + strlen(name) + 2, want);
}

static void fails(const char *text, const char *want)
{
	fails_as("list.txt", text, strlen(text), want);
}

static void indices(void)
{
	reads("3\n1\n2\n", "3 1 2");
	reads("3\n1\n2", "3 1 2");
	reads("3\r\n1\r\n2\r\n", "3 1 2");
	reads("\n\n 3\n\t1\t\n   \n2 \r\n\r\n", "3 1 2");
	reads("# a comment\n3\n#1\n# epochs follow\n# epoch order of today\n#epoch\n2\n", "3 2");
	reads("0003\n0\n00\n", "3 0 0");
	reads("5\n5\n5\n", "5 5 5");
}

static void paths(void)
{
	reads("d/3.jpg\nd/1.jpg", "3 1");
	reads("./d/3.jpg\r\n2\r\n./#9\r\n", "3 2 9");
	fails("d/3.jpg\n\nd/x.jpg\n", "line 3: the dataset has no sample \"d/x.jpg\"");
	fails("d/3.jpg \n", "line 1: the dataset has no sample \"d/3.jpg \"");
	fails("-1\n", "line 1: the dataset has no sample \"-1\"");
	fails("1 2\n", "line 1: the dataset has no sample \"1 2\"");
	fails("1.0\n", "line 1: the dataset has no sample \"1.0\"");
	fails("\x1b[31m\n", "line 1: the dataset has no sample \"\\x1b[31m\"");
	fails("1\nfar\n", "line 2: \"far\" is sample 10 of 10");
}

static void paths_without_a_resolver(void)
{
	char *path AUTO_FREE = check_write_file("list.txt", "1\nd/3.jpg\n", 10);
	struct err err = { 0 };
	struct order *order;

	CHECK_INT(open_path(path, false, &order, &err), -EINVAL);
	CHECK_CONTAINS(err.msg,
		       "line 2: \"d/3.jpg\" is not a sample number, and paths are unknown here");
}

static void numbers_out_of_range(void)
{
	fails("9\n10\n", "line 2: sample 10 is out of range, the dataset has 10");
	fails("4294967296\n", "line 1: sample 4294967296 is out of range, the dataset has 10");
	fails("18446744073709551616\n",
	      "line 1: sample 18446744073709551616 is out of range, the dataset has 10");
	fails("1\n\n99999999999999999999999999",
	      "line 3: sample 99999999999999999999999999 is out of range, the dataset has 10");
}

/* What order_note says about a list, "" for nothing. */
static void notes(const char *text, const char *want)
{
	struct err err = { 0 };
	struct order *order;

	CHECK_INT(open_list("list.txt", text, strlen(text), &order, &err), 0);
	CHECK_STR(order_note(order) ? order_note(order) : "", want);
	order_free(order);
}

static void repeats_and_holes_are_noted(void)
{
	notes("0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n", "");
	notes("9\n1\n2\n3\n4\n5\n6\n7\n8\nd/0.jpg\n", "");
	notes("3\n3\n3\n",
	      "the list reads samples again at 2 places and leaves out 9 of 10 samples");
	notes("0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n3\n",
	      "the list reads samples again at 1 places and leaves out 0 of 10 samples");
	notes("# epoch 7\n0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n# epoch 2\n0\n1\n# epoch 5\n",
	      "epoch 2 of the list reads samples again at 0 places and leaves out 8 of 10 samples; "
	      "1 more epochs are like that");
}

static void headings(void)
{
	static const char text[] =
		"# written by job 7\n# epoch 5\n1\n2\n#epoch 0\n3\n#\tepoch\t18446744073709551614 \r\n"
		"# epoch 7\n9\n9\n";
	struct err err = { 0 };
	struct order *order;
	struct order_epoch *e;

	CHECK_INT(open_list("list.txt", text, sizeof(text) - 1, &order, &err), 0);
	CHECK(!order_info(order)->is_same_every_epoch);
	epoch_is(order, 0, "3");
	epoch_is(order, 5, "1 2");
	epoch_is(order, 7, "9 9");
	epoch_is(order, UINT64_MAX - 1, "");
	CHECK_INT(order_epoch_new(order, 1, &e, &err), -ENOENT);
	CHECK_STR(err.msg, "list has no epoch 1");
	CHECK_INT(order_epoch_new(order, UINT64_MAX, &e, &err), -ENOENT);
	order_free(order);
}

static void wrong_headings(void)
{
	fails("1\n# epoch 0\n2\n", "line 2: samples stand before the first \"# epoch\" heading");
	fails("# epoch 1\n1\n# epoch 2\n1\n# epoch 1\n", "line 5: epoch 1 is already on line 1");
	fails("# epoch 1st\n", "line 1: expected \"# epoch E\" with a number E");
	fails("# epoch 1 2\n", "line 1: expected \"# epoch E\" with a number E");
	fails("# epoch 99999999999999999999\n", "line 1: expected \"# epoch E\" with a number E");
}

static void nothing_in_it(void)
{
	fails("", "the file has no samples");
	fails("\n\n#\n", "the file has no samples");
	fails_as("empty.u32", "", 0, "the file has no samples");
}

static void nul_bytes(void)
{
	fails_as("list.txt", "1\n\0\0\0\n", 6,
		 "line 2: NUL byte (raw numbers need a name ending in .u32 or .u64)");
	fails_as("list.txt", "\1\0\0\0\2\0\0\0", 8,
		 "line 1: NUL byte (raw numbers need a name ending in .u32 or .u64)");
}

/* Lines across the borders of what is read at once; the longest line that fits and the shortest
 * that does not. */
static void long_files_and_lines(void)
{
	enum { LINES = 100000, WINDOW = 64 << 10 };
	struct buf {
		char text[2 * WINDOW];
	} *line = malloc(sizeof(*line));
	char *text = malloc(LINES * 2 + 1);
	struct err err = { 0 };
	struct order *order;
	struct order_epoch *e;

	for (int i = 0; i < LINES; i++)
		memcpy(text + 2 * i, (char[]){ (char)('0' + i % N), '\n' }, 2);
	text[0] = '\n'; /* an odd shift of everything behind */
	CHECK_INT(open_list("list.txt", text, LINES * 2 - 1, &order, &err), 0);
	CHECK_INT(order_epoch_new(order, 0, &e, &err), 0);
	CHECK_U64(e->length, LINES - 1);
	CHECK_U64(e->sample[LINES - 2], (LINES - 1) % N);
	order_epoch_free(e);
	order_free(order);
	free(text);

	memset(line, ' ', sizeof(*line));
	memcpy(line->text + WINDOW - 2, "7\n8", 3);
	CHECK_INT(open_list("list.txt", line->text, WINDOW + 1, &order, &err), 0);
	epoch_is(order, 0, "7 8");
	order_free(order);
	memcpy(line->text + WINDOW - 2, " 7\n", 3);
	fails_as("list.txt", line->text, WINDOW + 1, "line 1 is longer than 65536 bytes");
	free(line);
}

static void raw_numbers(void)
{
	struct err err = { 0 };
	struct order *order;

	CHECK_INT(open_list("a.u32", "\3\0\0\0\1\0\0\0\3\0\0\0", 12, &order, &err), 0);
	CHECK(order_info(order)->is_same_every_epoch);
	epoch_is(order, 4, "3 1 3");
	order_free(order);
	CHECK_INT(open_list("a.u64", "\3\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0", 16, &order, &err), 0);
	epoch_is(order, 4, "3 1");
	order_free(order);
	fails_as("b.u32", "\1\0\0\0\12\0\0\0", 8,
		 "entry 2: sample 10 is out of range, the dataset has 10");
	fails_as("b.u64", "\1\0\0\0\1\0\0\0", 8,
		 "entry 1: sample 4294967297 is out of range, the dataset has 10");
	fails_as("b.u32", "\1\0\0\0\1", 5, "the size is not a multiple of 4 bytes");
	fails_as("b.u64", "\1\0\0\0\0\0\0\0\1\0\0\0", 12, "the size is not a multiple of 8 bytes");
}

static void raw_file_of_many_windows(void)
{
	enum { COUNT = 50000 };
	uint32_t *numbers = malloc(COUNT * sizeof(*numbers));
	struct err err = { 0 };
	struct order *order;
	struct order_epoch *e;

	for (uint32_t i = 0; i < COUNT; i++)
		numbers[i] = i % 7;
	CHECK_INT(open_list("c.u32", numbers, COUNT * sizeof(*numbers), &order, &err), 0);
	CHECK_INT(order_epoch_new(order, 0, &e, &err), 0);
	CHECK_U64(e->length, COUNT);
	CHECK_BYTES(e->sample, numbers, COUNT * sizeof(*numbers));
	order_epoch_free(e);
	order_free(order);
	free(numbers);
}

static void files_that_cannot_be_read(void)
{
	char *missing AUTO_FREE = check_tmpfile("no-such-file");
	char *fifo AUTO_FREE = check_tmpfile("fifo");
	struct err err = { 0 };
	struct order *order;

	CHECK_INT(open_path(missing, true, &order, &err), -ENOENT);
	CHECK_CONTAINS(err.msg, "no-such-file: cannot open: No such file or directory");
	CHECK_INT(open_path(check_tmpdir(), true, &order, &err), -EINVAL);
	CHECK_CONTAINS(err.msg, ": not a regular file");
	CHECK_INT(mkfifo(fifo, 0600), 0);
	CHECK_INT(open_path(fifo, true, &order, &err), -EINVAL);
	CHECK_CONTAINS(err.msg, "fifo: not a regular file");
}

static int open_bytes(const void *bytes, size_t size, unsigned width, struct order **ret,
		      struct err *err)
{
	struct order_params params = {
		.n = N, .resolve = resolve, .bytes = bytes, .n_bytes = size, .bytes_width = width
	};
	unsigned calls = 0;
	struct order_spec *spec;
	int rc = order_spec_parse("list:path=told", &spec, err);

	CHECK_INT(rc, 0);
	params.resolve_ctx = &calls;
	rc = order_new(spec, &params, ret, err);
	order_spec_free(spec);
	return rc;
}

static void bytes_without_a_file(void)
{
	static const char text[] = "# epoch 1\n3\nd/1.jpg\n# epoch 0\n2";
	static const uint8_t raw[] = { 7, 0, 0, 0, 1, 0, 0, 0 };
	struct err err = { 0 };
	struct order *order;

	CHECK_INT(open_bytes(text, strlen(text), 0, &order, &err), 0);
	epoch_is(order, 0, "2");
	epoch_is(order, 1, "3 1");
	order_free(order);
	CHECK_INT(open_bytes(raw, sizeof(raw), 4, &order, &err), 0);
	epoch_is(order, 0, "7 1");
	order_free(order);
	CHECK_INT(open_bytes("", 0, 0, &order, &err), -EINVAL);
	CHECK_CONTAINS(err.msg, "told: the file has no samples");
}

/* What somebody else has told is answered without a byte of the file. */
static void messages_to_others_show_no_content(void)
{
	static const struct {
		const char *text, *want;
	} cases[] = {
		{ "1\nsecret\n", "told: line 2: expected the number or the path of a sample" },
		{ "424242\n", "told: line 1: expected the number of a sample below 10" },
		{ "far\n", "told: line 1: \"...\" is sample 10 of 10" },
		{ "# epoch 4242\n1\n# epoch 4242\n1\n",
		  "told: line 3: the epoch is already on line 1" },
		{ "# epoch 4242x\n", "told: line 1: expected \"# epoch E\" with a number E" },
	};
	struct err err = { 0 };
	struct order *order;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		CHECK_INT(open_bytes(cases[i].text, strlen(cases[i].text), 0, &order, &err),
			  -EINVAL);
		CHECK_CONTAINS(err.msg, cases[i].want);
		CHECK(!strstr(err.msg, "secret") && !strstr(err.msg, "4242"));
	}
	CHECK_INT(open_bytes("4242", 4, 4, &order, &err), -EINVAL);
	CHECK_CONTAINS(err.msg, "told: entry 1: expected the number of a sample below 10");
}

static const struct check_test tests[] = {
	{ "indices", indices },
	{ "paths", paths },
	{ "paths_without_a_resolver", paths_without_a_resolver },
	{ "numbers_out_of_range", numbers_out_of_range },
	{ "repeats_and_holes_are_noted", repeats_and_holes_are_noted },
	{ "headings", headings },
	{ "wrong_headings", wrong_headings },
	{ "nothing_in_it", nothing_in_it },
	{ "nul_bytes", nul_bytes },
	{ "long_files_and_lines", long_files_and_lines },
	{ "raw_numbers", raw_numbers },
	{ "raw_file_of_many_windows", raw_file_of_many_windows },
	{ "files_that_cannot_be_read", files_that_cannot_be_read },
	{ "bytes_without_a_file", bytes_without_a_file },
	{ "messages_to_others_show_no_content", messages_to_others_show_no_content },
};

CHECK_MAIN(tests)
