/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The option table. One row drives everything: parsing, limits, printing, error messages. Values
 * live in a plain struct of the caller at the offset in the row, so that reading an option is a
 * member access. A bad value never changes the old one. Texts that the INI format cannot carry are
 * refused here, whatever way they came in: what conf_print writes must mean the same when it is
 * loaded again. Used at start-up and by the control commands, one thread at a time.
 */
#include "clairfs/base/conf.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "clairfs/base/text.h"

#define CONF_OPTIONS_MAX 256 /* for the list of names that text_nearest looks at */

static void *conf_at(const struct conf_option *option, void *values)
{
	return (char *)values + option->offset;
}

static const void *conf_at_const(const struct conf_option *option, const void *values)
{
	return (const char *)values + option->offset;
}

static const struct conf_option *conf_row(const struct conf_table *table, const char *name)
{
	const struct conf_option *option = table->options;

	while (option->name && strcmp(option->name, name) != 0)
		option++;
	return option->name ? option : NULL;
}

/* What there is no row for. */
static void conf_unknown(const struct conf_table *table, const char *name, struct err *err)
{
	const char *names[CONF_OPTIONS_MAX + 1] = { NULL };
	const struct conf_option *option = table->options;
	const char *near, *keys = NULL;
	size_t n = 0;

	for (const struct conf_gone *gone = table->gone; gone && gone->name; gone++) {
		if (strcmp(gone->name, name) == 0) {
			err_set(err, -EINVAL, "option %s is gone: %s", name, gone->instead);
			return;
		}
	}
	for (; option->name && n < CONF_OPTIONS_MAX; option++) {
		names[n++] = option->name;
		if (option->type == CONF_KEYS)
			keys = option->name;
	}
	near = text_nearest(name, names);
	if (table->keys && conf_row(table->keys, name))
		err_set(err, -EINVAL,
			"option %s is gone: it is decided by itself; to look for a fault: "
			"%s=%s:VALUE",
			name, keys, name);
	else if (near)
		err_set(err, -EINVAL, "unknown option \"%s\"; did you mean \"%s\"?", name, near);
	else
		err_set(err, -EINVAL, "unknown option \"%s\"", name);
}

static const struct conf_option *conf_find(const struct conf_table *table, const char *name,
					   struct err *err)
{
	const struct conf_option *option = conf_row(table, name);

	if (!option)
		conf_unknown(table, name, err);
	return option;
}

static int conf_bad(const struct conf_option *option, const char *value, const char *why,
		    struct err *err)
{
	return err_set(err, -EINVAL, "option %s: \"%s\" %s", option->name, value, why);
}

static void conf_format_number(enum conf_type type, uint64_t v, char *out, size_t size)
{
	static const char units[] = "KMGT";
	size_t u = 0;

	while (type == CONF_BYTES && u < 4 && v != 0 && v % 1024 == 0) {
		v /= 1024;
		u++;
	}
	/* (gcc 12 without optimisation does not survive a conditional text here.) */
	snprintf(out, size, "%" PRIu64 "%.*s", v, u > 0, &units[MAX(u, 1) - 1]);
}

static int conf_set_number(const struct conf_option *option, uint64_t *at, const char *value,
			   struct err *err)
{
	bool is_bytes = option->type == CONF_BYTES;
	char limit[32];
	uint64_t v;
	int rc;

	if (option->choices && strcmp(value, option->choices[0]) == 0) {
		*at = CONF_AUTO;
		return 0;
	}
	rc = is_bytes ? text_to_bytes(value, &v) : text_to_u64(value, &v);
	if (rc == 0 && v == CONF_AUTO)
		rc = -ERANGE;
	if (rc == -ERANGE)
		return conf_bad(option, value, "is too large", err);
	if (rc < 0)
		return conf_bad(
			option, value,
			is_bytes ? "is not a size like 512M or 16G" : "is not a whole number", err);
	if (v < option->min) {
		conf_format_number(option->type, option->min, limit, sizeof(limit));
		return err_set(err, -EINVAL, "option %s: %s is below the minimum %s", option->name,
			       value, limit);
	}
	if (option->max != 0 && v > option->max) {
		conf_format_number(option->type, option->max, limit, sizeof(limit));
		return err_set(err, -EINVAL, "option %s: %s is above the maximum %s", option->name,
			       value, limit);
	}
	*at = v;
	return 0;
}

static int conf_set_real(const struct conf_option *option, double *at, const char *value,
			 struct err *err)
{
	double v;
	int rc = text_to_real(value, &v);

	if (rc == -ERANGE)
		return conf_bad(option, value, "is too large", err);
	if (rc < 0)
		return conf_bad(option, value, "is not a number like 0.25 or 120", err);
	if (v < (double)option->min)
		return err_set(err, -EINVAL, "option %s: %s is below the minimum %" PRIu64,
			       option->name, value, option->min);
	if (option->max != 0 && v > (double)option->max)
		return err_set(err, -EINVAL, "option %s: %s is above the maximum %" PRIu64,
			       option->name, value, option->max);
	*at = v;
	return 0;
}

static int conf_set_choice(const struct conf_option *option, int *at, const char *value,
			   struct err *err)
{
	const char *near;
	char list[512];
	size_t used = 0;

	list[0] = '\0';
	for (int i = 0; option->choices[i]; i++) {
		if (strcmp(option->choices[i], value) == 0) {
			*at = i;
			return 0;
		}
		if (used < sizeof(list))
			used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
						 i ? ", " : "", option->choices[i]);
	}
	near = text_nearest(value, option->choices);
	if (near)
		return err_set(err, -EINVAL,
			       "option %s: \"%s\" is none of: %s; did you mean \"%s\"?",
			       option->name, value, list, near);
	return err_set(err, -EINVAL, "option %s: \"%s\" is none of: %s", option->name, value, list);
}

/* Whether an INI line can carry the text: no control characters, no blank at an end, nothing like a
 * comment. */
static bool conf_is_plain_text(const char *text)
{
	size_t len = strlen(text);

	for (size_t i = 0; i < len; i++) {
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
			return false;
		if (text[i] == ';' && (i == 0 || text[i - 1] == ' '))
			return false;
	}
	return len == 0 || (text[0] != ' ' && text[len - 1] != ' ');
}

static int conf_set_text(const struct conf_option *option, char **at, const char *value,
			 struct err *err)
{
	char *copy = NULL;

	if (!conf_is_plain_text(value)) {
		char shown[256];

		text_escape(value, strlen(value), shown, sizeof(shown));
		return conf_bad(option, shown,
				"has control characters, a blank at an end, or ';' after a blank",
				err);
	}
	if (*value) {
		copy = strdup(value);
		if (!copy)
			return err_set_errno(err, -ENOMEM, "option %s", option->name);
	}
	free(*at);
	*at = copy;
	return 0;
}

static int conf_set_items(const struct conf_table *table, void *values, const char *list,
			  const char marks[2], struct err *err);

static int conf_set_option(const struct conf_table *table, const struct conf_option *option,
			   void *values, const char *value, struct err *err)
{
	int rc = -EINVAL;
	void *at = conf_at(option, values);

	switch (option->type) {
	case CONF_BOOL:
		if (text_to_bool(value, at) < 0)
			return conf_bad(option, value, "is neither on nor off", err);
		return 0;
	case CONF_U64:
	case CONF_BYTES:
		return conf_set_number(option, at, value, err);
	case CONF_REAL:
		return conf_set_real(option, at, value, err);
	case CONF_CHOICE:
		return conf_set_choice(option, at, value, err);
	case CONF_TEXT:
		return conf_set_text(option, at, value, err);
	case CONF_KEYS:
		rc = conf_set_items(table->keys, values, value, "+:", err);
		if (rc < 0)
			err_prefix(err, "%s", option->name);
		return rc;
	}
	return err_set(err, rc, "option %s has no type", option->name);
}

int conf_set(const struct conf_table *table, void *values, const char *name, const char *value,
	     struct err *err)
{
	const struct conf_option *option = conf_find(table, name, err);

	return option ? conf_set_option(table, option, values, value, err) : -EINVAL;
}

static void conf_clear(const struct conf_table *table, void *values)
{
	for (const struct conf_option *option = table->options; option->name; option++) {
		if (option->type == CONF_TEXT)
			*(char **)conf_at(option, values) = NULL;
	}
	if (table->keys)
		conf_clear(table->keys, values);
}

static int conf_set_defaults(const struct conf_table *table, void *values, struct err *err)
{
	int rc = table->keys ? conf_set_defaults(table->keys, values, err) : 0;

	for (const struct conf_option *option = table->options; rc == 0 && option->name; option++)
		rc = conf_set_option(table, option, values, option->initial ? option->initial : "",
				     err);
	return rc;
}

int conf_init(const struct conf_table *table, void *values, struct err *err)
{
	int rc;

	conf_clear(table, values);
	rc = conf_set_defaults(table, values, err);
	if (rc < 0) {
		err_prefix(err, "default");
		conf_fini(table, values);
	}
	return rc;
}

void conf_fini(const struct conf_table *table, void *values)
{
	for (const struct conf_option *option = table->options; option->name; option++) {
		if (option->type == CONF_TEXT) {
			char **at = conf_at(option, values);

			free(*at);
			*at = NULL;
		}
	}
	if (table->keys)
		conf_fini(table->keys, values);
}

/* Sets one "KEY=VALUE" or "KEY"; cuts item at the '=', or what stands for it. */
static int conf_set_item(const struct conf_table *table, void *values, char *item, char equals,
			 struct err *err)
{
	const struct conf_option *option;
	char *value = strchr(item, equals);

	if (value)
		*value++ = '\0';
	option = conf_find(table, item, err);
	if (!option)
		return -EINVAL;
	if (!value && option->type != CONF_BOOL)
		return err_set(err, -EINVAL, "option %s needs a value: %s%c...", option->name,
			       option->name, equals);
	return conf_set_option(table, option, values, value ? value : "on", err);
}

/* marks: what stands between items, and between key and value. */
static int conf_set_items(const struct conf_table *table, void *values, const char *list,
			  const char marks[2], struct err *err)
{
	AUTO_FREE char *item = malloc(strlen(list) + 1);
	int rc;

	if (!item)
		return err_set_errno(err, -ENOMEM, "options");
	while (*list) {
		size_t len = 0;

		for (; *list && *list != marks[0]; list++) {
			if (list[0] == '\\' && list[1] == marks[0])
				list++;
			item[len++] = *list;
		}
		if (*list)
			list++;
		item[len] = '\0';
		/* Empty items are left by people who append to a list: harmless. */
		rc = len > 0 ? conf_set_item(table, values, item, marks[1], err) : 0;
		if (rc < 0)
			return rc;
	}
	return 0;
}

int conf_set_list(const struct conf_table *table, void *values, const char *list, struct err *err)
{
	return conf_set_items(table, values, list, ",=", err);
}

void conf_format(const struct conf_option *option, const void *values, char *out, size_t size)
{
	const void *at = conf_at_const(option, values);
	const char *text = "";

	switch (option->type) {
	case CONF_BOOL:
		text = *(const bool *)at ? "on" : "off";
		break;
	case CONF_U64:
	case CONF_BYTES:
		if (option->choices && *(const uint64_t *)at == CONF_AUTO) {
			text = option->choices[0];
			break;
		}
		conf_format_number(option->type, *(const uint64_t *)at, out, size);
		return;
	case CONF_REAL:
		snprintf(out, size, "%.15g", *(const double *)at);
		return;
	case CONF_CHOICE:
		text = option->choices[*(const int *)at];
		break;
	case CONF_TEXT:
		if (*(char *const *)at)
			text = *(char *const *)at;
		break;
	case CONF_KEYS:
		break;
	}
	snprintf(out, size, "%s", text);
}
