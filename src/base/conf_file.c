/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The option table as a file. inih parses; the lines are read here and handed to it one by one,
 * because inih alone would cut a long line silently, take an indented line as more of the value
 * above, and stop at a NUL. Here a line that does not fit into inih's buffer is an error that names
 * the limit, and indented lines are ordinary lines. The first error ends the file. Must never
 * guess: a line that is neither comment, section nor NAME = VALUE is an error.
 */
#include "clairfs/base/conf.h"

#include <errno.h>
#include <ini.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

struct conf_file {
	const struct conf_table *table;
	void *values;
	FILE *file;
	char *line; /* getline's buffer */
	size_t capacity;
	int line_no;
	int rc; /* the first error, which is in err */
	struct err *err;
};

/* inih's reader: gives it one whole line, or NULL at the end and after an error. */
static char *conf_file_read(char *out, int size, void *stream)
{
	struct conf_file *f = stream;
	const char *text;
	ssize_t len;
	size_t n;

	if (f->rc < 0)
		return NULL;
	errno = 0;
	len = getline(&f->line, &f->capacity, f->file);
	if (len < 0) {
		if (!feof(f->file))
			f->rc = err_set_errno(f->err, errno ? -errno : -EIO, "cannot read");
		return NULL;
	}
	f->line_no++;
	text = f->line + strspn(f->line, " \t");
	n = strcspn(text, "\r\n");
	if (strlen(f->line) != (size_t)len) {
		f->rc = err_set(f->err, -EINVAL, "the line holds a NUL byte");
		return NULL;
	}
	if (n + 2 > (size_t)size) {
		f->rc = err_set(f->err, -EINVAL, "the line is longer than %d characters", size - 2);
		return NULL;
	}
	memcpy(out, text, n);
	memcpy(out + n, "\n", 2);
	return out;
}

/* inih's handler: 1 for success. */
static int conf_file_handle(void *user, const char *section, const char *name, const char *value)
{
	struct conf_file *f = user;

	if (f->rc < 0)
		return 0;
	if (*section && strcmp(section, f->table->section) != 0)
		f->rc = err_set(f->err, -EINVAL, "unknown section [%s]; the only one is [%s]",
				section, f->table->section);
	else
		f->rc = conf_set(f->table, f->values, name, value, f->err);
	return f->rc == 0;
}

int conf_load(const struct conf_table *table, void *values, const char *path, struct err *err)
{
	AUTO_FILE FILE *file = fopen(path, "re");
	struct conf_file f = { .table = table, .values = values, .file = file, .err = err };
	int rc;

	if (!file)
		return err_set_errno(err, -errno, "cannot open %s", path);
	rc = ini_parse_stream(conf_file_read, &f, conf_file_handle, &f);
	free(f.line);
	if (f.rc < 0 && f.line_no == 0) {
		err_prefix(err, "%s", path);
		return f.rc;
	}
	if (rc > 0 && (f.rc == 0 || rc < f.line_no)) {
		/* inih itself refused a line, and maybe went on to one that f.rc is about. */
		return err_set(err, -EINVAL, "%s:%d: neither NAME = VALUE nor [%s] nor a comment",
			       path, rc, table->section);
	}
	if (f.rc < 0)
		err_prefix(err, "%s:%d", path, f.line_no);
	else if (rc < 0)
		f.rc = err_set_errno(err, -ENOMEM, "%s", path);
	return f.rc;
}

/* Writes text as comment lines of at most 78 columns. */
static void conf_print_comment(const char *text, FILE *out)
{
	size_t column = 0;

	while (*text) {
		size_t n = strcspn(text, " \n");

		if (column > 0 && column + 1 + n > 78) {
			fputc('\n', out);
			column = 0;
		}
		if (n > 0) {
			fprintf(out, column ? " %.*s" : "# %.*s", (int)MIN(n, INT_MAX), text);
			column += n + (column ? 1 : 2);
		}
		text += n;
		text += strspn(text, " \n");
	}
	if (column > 0)
		fputc('\n', out);
}

static void conf_print_limits(const struct conf_option *option, FILE *out)
{
	const struct conf_option as_number = { .type = option->type };
	char min[32], max[32];

	switch (option->type) {
	case CONF_BOOL:
		fputs("# on or off", out);
		break;
	case CONF_U64:
	case CONF_BYTES:
		conf_format(&as_number, &option->min, min, sizeof(min));
		conf_format(&as_number, &option->max, max, sizeof(max));
		fprintf(out, "# a %s, %s%s%s%s%s", option->type == CONF_BYTES ? "size" : "number",
			min, option->max ? " to " : " or more", option->max ? max : "",
			option->choices ? ", or " : "", option->choices ? option->choices[0] : "");
		break;
	case CONF_REAL:
		fprintf(out, "# a number, %" PRIu64, option->min);
		if (option->max)
			fprintf(out, " to %" PRIu64, option->max);
		else
			fputs(" or more", out);
		break;
	case CONF_CHOICE:
		fputs("# one of:", out);
		for (size_t i = 0; option->choices[i]; i++)
			fprintf(out, "%s %s", i ? "," : "", option->choices[i]);
		break;
	case CONF_TEXT:
		fputs("# a text, may be empty", out);
		break;
	case CONF_KEYS:
		fputs("# KEY:VALUE[+KEY:VALUE]..., may be empty", out);
		break;
	}
	if (option->initial && *option->initial)
		fprintf(out, "; default: %s", option->initial);
	fputc('\n', out);
}

/* The value of one option, whatever its length; numbers fit into `number`. */
static const char *conf_value(const struct conf_option *option, const void *values, char number[64])
{
	const void *at = (const char *)values + option->offset;
	const char *text = NULL;

	number[0] = '\0';
	if (option->type == CONF_TEXT)
		text = *(char *const *)at;
	else if (option->type == CONF_CHOICE)
		text = option->choices[*(const int *)at];
	else
		conf_format(option, values, number, 64);
	return text ? text : number;
}

/* " KEY:VALUE+KEY:VALUE" of those that were set to something else than they are at first. */
static void conf_print_keys(const struct conf_table *keys, const void *values, FILE *out)
{
	const char *mark = " ";

	for (const struct conf_option *option = keys->options; option->name; option++) {
		char number[64];
		const char *value = conf_value(option, values, number);

		if (strcmp(value, option->initial ? option->initial : "") == 0)
			continue;
		fprintf(out, "%s%s:", mark, option->name);
		mark = "+";
		for (; *value; value++)
			fprintf(out, "%s%c", *value == '+' ? "\\" : "", *value);
	}
	fputc('\n', out);
}

static void conf_print_help(const struct conf_option *option, FILE *out)
{
	conf_print_comment(option->help ? option->help : "", out);
	conf_print_limits(option, out);
}

void conf_print(const struct conf_table *table, const void *values, FILE *out)
{
	fprintf(out, "[%s]\n", table->section);
	for (const struct conf_option *option = table->options; option->name; option++) {
		const struct conf_option *key = table->keys ? table->keys->options : NULL;
		char number[64];
		const char *value;

		fputc('\n', out);
		conf_print_help(option, out);
		if (option->type == CONF_KEYS) {
			for (; key->name; key++) {
				fprintf(out, "#\n# %s:\n", key->name);
				conf_print_help(key, out);
			}
			fprintf(out, "%s =", option->name);
			conf_print_keys(table->keys, values, out);
			continue;
		}
		value = conf_value(option, values, number);
		fprintf(out, "%s =%s%s\n", option->name, *value ? " " : "", value);
	}
}
