/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The option table as a file: what is read, that every error names file and line, that no line is
 * cut silently, and that a printed table reads back as the same values.
 */
#include "clairfs/base/conf.h"

#include <errno.h>
#include <string.h>

#include "check.h"
#include "conf_sample.h"

static struct sample values;
static struct err err;

static int load_bytes(const char *bytes, size_t size)
{
	AUTO_FREE char *path = check_write_file("conf", bytes, size);

	err = (struct err){ 0 };
	CHECK_INT(conf_init(&sample_table, &values, &err), 0);
	return conf_load(&sample_table, &values, path, &err);
}

static int load(const char *text)
{
	return load_bytes(text, strlen(text));
}

/* Loads and wants an error behind "<path>". */
static void check_bad(const char *text, const char *message)
{
	AUTO_FREE char *path = check_tmpfile("conf");

	CHECK(load(text) < 0);
	CHECK_INT(strncmp(err.msg, path, strlen(path)), 0);
	CHECK_STR(err.msg + strlen(path), message);
	conf_fini(&sample_table, &values);
}

static void reads_names_and_values(void)
{
	CHECK_INT(load("# comment\n"
		       "; comment\n"
		       "\n"
		       "threads = 9\n"
		       "[mount]\n"
		       "  mode=none\n"
		       "\tquick : off ; not today\r\n"
		       "source = /a b/c=d#e\n"
		       "label ="),
		  0);
	CHECK_U64(values.threads, 9);
	CHECK_INT(values.mode, 0);
	CHECK(!values.is_quick);
	CHECK_STR(values.source, "/a b/c=d#e");
	CHECK_STR(values.label, NULL);
	conf_fini(&sample_table, &values);
}

static void empty_file_keeps_defaults(void)
{
	CHECK_INT(load(""), 0);
	CHECK_U64(values.threads, 4);
	conf_fini(&sample_table, &values);
}

static void indented_line_is_a_line(void)
{
	/* Not a second line of the value above it, as inih alone has it. */
	CHECK_INT(load("source = /a\n  label = b\n"), 0);
	CHECK_STR(values.source, "/a");
	CHECK_STR(values.label, "b");
	conf_fini(&sample_table, &values);
}

static void errors_name_file_and_line(void)
{
	check_bad("threads = 4\n\nthread = 5\n",
		  ":3: unknown option \"thread\"; did you mean \"threads\"?");
	check_bad("threads = 4\nthreads = 0\nmode = x\n",
		  ":2: option threads: 0 is below the minimum 1");
	check_bad("\n[cache]\nthreads = 4\n",
		  ":3: unknown section [cache]; the only one is [mount]");
	check_bad("threads = 4\nthreads\n", ":2: neither NAME = VALUE nor [mount] nor a comment");
	check_bad("[mount\nthreads = 4\n", ":1: neither NAME = VALUE nor [mount] nor a comment");
	check_bad("junk\nthreads = 0\n", ":1: neither NAME = VALUE nor [mount] nor a comment");
	check_bad("threads = 0\njunk\n", ":1: option threads: 0 is below the minimum 1");
}

static void first_error_ends_the_file(void)
{
	CHECK(load("threads = 0\nlabel = changed\n") < 0);
	CHECK_STR(values.label, "none");
	conf_fini(&sample_table, &values);
}

/* Loads "source = xxx..." with a value of `len` characters as line 2. */
static int load_long(size_t len)
{
	char text[5000] = "\nsource = ";
	size_t head = strlen(text);

	memset(text + head, 'x', len);
	memcpy(text + head + len, "\nthreads = 7\n", 14);
	return load(text);
}

static void overlong_line_is_an_error_never_cut(void)
{
	size_t len = 1, refused_len = 0;
	bool is_refused = false;
	const char *than;

	for (; len < 4500 && !is_refused; len++) {
		is_refused = load_long(len) < 0;
		refused_len = strlen("source = ") + len;
		if (!is_refused) {
			CHECK_U64(strlen(values.source), len);
			CHECK_U64(values.threads, 7);
		}
		conf_fini(&sample_table, &values);
	}
	if (!is_refused)
		return; /* an inih with long lines */
	CHECK(len > 150);
	CHECK_CONTAINS(err.msg, ":2: the line is longer than ");
	/* The limit it names is the real one: a line of just that length was taken. */
	than = strstr(err.msg, "than ") + strlen("than ");
	CHECK_U64(strtoull(than, NULL, 10), refused_len - 1);
	CHECK(load_long(4500) < 0);
	CHECK_CONTAINS(err.msg, ":2: the line is longer than ");
	conf_fini(&sample_table, &values);
}

static void nul_byte_is_an_error(void)
{
	CHECK_INT(load_bytes("threads = 4\nlabel = a\0b\n", 24), -EINVAL);
	CHECK_CONTAINS(err.msg, ":2: the line holds a NUL byte");
	conf_fini(&sample_table, &values);
}

static void missing_file_and_directory_are_errors(void)
{
	AUTO_FREE char *path = check_tmpfile("not-there");

	CHECK_INT(conf_init(&sample_table, &values, &err), 0);
	CHECK_INT(conf_load(&sample_table, &values, path, &err), -ENOENT);
	CHECK_CONTAINS(err.msg, path);
	CHECK_CONTAINS(err.msg, "No such file or directory");
	CHECK_INT(conf_load(&sample_table, &values, check_tmpdir(), &err), -EISDIR);
	CHECK_CONTAINS(err.msg, check_tmpdir());
	conf_fini(&sample_table, &values);
}

static void print_table(const struct conf_table *table, const void *of, char **ret_text)
{
	size_t size;
	FILE *out = open_memstream(ret_text, &size);

	CHECK(out != NULL);
	conf_print(table, of, out);
	fclose(out);
}

static void print_values(char **ret_text)
{
	print_table(&sample_table, &values, ret_text);
}

static void print_has_help_and_limits(void)
{
	AUTO_FREE char *text = NULL;

	CHECK_INT(conf_init(&sample_table, &values, &err), 0);
	print_values(&text);
	CHECK_STR(text,
		  "[mount]\n"
		  "\n# Be quick.\n# on or off; default: on\nquick = on\n"
		  "\n# How many threads work.\n# a number, 1 to 64; default: 4\nthreads = 4\n"
		  "\n# How much memory is used. More is better, up to the point where the job\n"
		  "# itself runs out of it, which is where the help text of this option needs its\n"
		  "# second line.\n# a size, 4M or more; default: 1G\nram_size = 1G\n"
		  "\n# What to do.\n# one of: none, plain, careful; default: plain\nmode = plain\n"
		  "\n# Where from.\n# a text, may be empty\nsource =\n"
		  "\n# A name.\n# a text, may be empty; default: none\nlabel = none\n");
	conf_fini(&sample_table, &values);
}

static void printed_values_read_back(void)
{
	AUTO_FREE char *first = NULL, *second = NULL;

	CHECK_INT(conf_init(&sample_table, &values, &err), 0);
	CHECK_INT(conf_set_list(
			  &sample_table, &values,
			  "quick=no,threads=11,ram_size=5M,mode=none,source=/x \\,y;z #1,label=",
			  &err),
		  0);
	print_values(&first);
	conf_fini(&sample_table, &values);
	CHECK_INT(load(first), 0);
	print_values(&second);
	CHECK_STR(second, first);
	CHECK_STR(values.source, "/x ,y;z #1");
	CHECK_STR(values.label, NULL);
	conf_fini(&sample_table, &values);
}

static void keys_are_printed_with_help_and_read_back(void)
{
	struct {
		uint64_t size;
		char *path;
	} v;
	static const struct conf_option keys[] = {
		{ "size", CONF_BYTES, offsetof(typeof(v), size), "1M", 0, 0, NULL, "How much." },
		{ "path", CONF_TEXT, offsetof(typeof(v), path), "", 0, 0, NULL, "Where." },
		{ 0 },
	};
	static const struct conf_table key_table = { .options = keys, .section = "debug" };
	static const struct conf_option options[] = {
		{ "debug", CONF_KEYS, 0, "", 0, 0, NULL, "The rest." },
		{ 0 },
	};
	static const struct conf_table table = { .options = options,
						 .section = "x",
						 .keys = &key_table };
	static const char help[] = "[x]\n\n# The rest.\n# KEY:VALUE[+KEY:VALUE]..., may be empty\n"
				   "#\n# size:\n# How much.\n# a size, 0 or more; default: 1M\n"
				   "#\n# path:\n# Where.\n# a text, may be empty\ndebug =";
	AUTO_FREE char *first = NULL, *second = NULL, *path = NULL;

	CHECK_INT(conf_init(&table, &v, &err), 0);
	print_table(&table, &v, &first);
	CHECK_INT(strncmp(first, help, strlen(help)), 0);
	CHECK_STR(first + strlen(help), "\n");
	CHECK_INT(conf_set(&table, &v, "debug", "size:4K+path:a\\+b\\", &err), 0);
	print_table(&table, &v, &second);
	CHECK_STR(second + strlen(help), " size:4K+path:a\\+b\\\n");
	conf_fini(&table, &v);
	CHECK_INT(conf_init(&table, &v, &err), 0);
	path = check_write_file("keys", second, strlen(second));
	CHECK_INT(conf_load(&table, &v, path, &err), 0);
	CHECK_U64(v.size, 4096);
	CHECK_STR(v.path, "a+b\\");
	conf_fini(&table, &v);
}

static const struct check_test tests[] = {
	{ "keys_are_printed_with_help_and_read_back", keys_are_printed_with_help_and_read_back },
	{ "reads_names_and_values", reads_names_and_values },
	{ "empty_file_keeps_defaults", empty_file_keeps_defaults },
	{ "indented_line_is_a_line", indented_line_is_a_line },
	{ "errors_name_file_and_line", errors_name_file_and_line },
	{ "first_error_ends_the_file", first_error_ends_the_file },
	{ "overlong_line_is_an_error_never_cut", overlong_line_is_an_error_never_cut },
	{ "nul_byte_is_an_error", nul_byte_is_an_error },
	{ "missing_file_and_directory_are_errors", missing_file_and_directory_are_errors },
	{ "print_has_help_and_limits", print_has_help_and_limits },
	{ "printed_values_read_back", printed_values_read_back },
};

CHECK_MAIN(tests)
