/* SPDX-License-Identifier: Apache-2.0 */
/* Options: one table row per option feeds -o KEY=VALUE, the INI file, --print-config and the
 * documentation checks. Values live in a struct of the caller; a row says at which offset. */
#ifndef CLAIRFS_BASE_CONF_H
#define CLAIRFS_BASE_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "clairfs/base/err.h"

enum conf_type {
	CONF_BOOL,   /* bool */
	CONF_U64,    /* uint64_t */
	CONF_BYTES,  /* uint64_t, "16G" */
	CONF_REAL,   /* double, "0.25"; finite */
	CONF_CHOICE, /* int: index into choices */
	CONF_TEXT,   /* char *, heap; "" is stored as NULL */
	CONF_KEYS,   /* nothing: "KEY:VALUE+KEY:VALUE" sets rows of the table's keys */
};

#define CONF_AUTO UINT64_MAX /* a number that is to be made up */

struct conf_option {
	const char *name;
	enum conf_type type;
	size_t offset;
	const char *initial; /* default, as text */
	uint64_t min, max;   /* of numbers; max 0 = none */
	/* CONF_CHOICE: the words, NULL-terminated. CONF_U64, CONF_BYTES: NULL, or one word that
	 * stands for CONF_AUTO. */
	const char *const *choices;
	const char *help; /* one or two sentences */
};

/* An option that there was once. */
struct conf_gone {
	const char *name;
	const char *instead; /* what whoever set it should do now: a clause */
};

struct conf_table {
	const struct conf_option *options; /* ends with name == NULL */
	const char *section;               /* the only one of the INI file */
	const struct conf_gone *gone;      /* NULL, or ends with name == NULL */
	/* Of its one option of CONF_KEYS: what only tests and those who look for a fault set, in the
	 * same values. NULL: there is no such option. */
	const struct conf_table *keys;
};

/* Fills `values` with the defaults. Call conf_fini for the texts. */
int conf_init(const struct conf_table *table, void *values, struct err *err) MUST_USE;
void conf_fini(const struct conf_table *table, void *values);
/* Sets one option. Unknown names and bad values give one line that names the option and the nearest
 * right one; names that are gone or among the keys, what is to be done instead. Keys that are not
 * named stay as they are. */
int conf_set(const struct conf_table *table, void *values, const char *name, const char *value,
	     struct err *err) MUST_USE;
/* Parses "KEY=VALUE,KEY=VALUE"; a key without '=' is a bool set to on. Within a value '\,' is a
 * comma. */
int conf_set_list(const struct conf_table *table, void *values, const char *list,
		  struct err *err) MUST_USE;
/* Reads an INI file, the table's section or none; the error names file and line. */
int conf_load(const struct conf_table *table, void *values, const char *path,
	      struct err *err) MUST_USE;
/* Writes every option with its help as comment: the format of conf/clairfs.conf. Of the keys, those
 * that are not as they are at first. */
void conf_print(const struct conf_table *table, const void *values, FILE *out);
/* Writes the value of one option, not of CONF_KEYS, as conf_set would take it. */
void conf_format(const struct conf_option *option, const void *values, char *out, size_t size);

#endif
