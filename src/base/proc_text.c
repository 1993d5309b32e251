/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What /proc says, as numbers. The kernel writes these texts, but a process chooses the name within
 * them, and in a container /proc may be anything that is mounted there.
 */
#include "clairfs/base/proc_text.h"

#include <stdio.h>
#include <string.h>

#include "clairfs/base/text.h"

enum {
	FIELD_STATE = 3,
	FIELD_PARENT = 4,
	FIELD_SESSION = 6,
	FIELD_START = 22,
	FIELD_CODE_END = 27,
	FIELD_STACK = 28,
};

/* One word of stat; false: it should be a number and is none. */
static bool take_stat_field(int field, const char *word, struct proc_stat *ret)
{
	uint64_t *value = field == FIELD_PARENT    ? &ret->parent
			  : field == FIELD_SESSION ? &ret->session
			  : field == FIELD_START   ? &ret->start
			  : field == FIELD_CODE_END ? &ret->code_end
			  : field == FIELD_STACK   ? &ret->stack
						   : NULL;

	if (field == FIELD_STATE)
		ret->state = word[0];
	return !value || text_to_u64(word, value) == 0;
}

/* "PID (NAME) STATE PARENT ...": a name may have blanks and brackets, but no line of numbers. */
bool proc_parse_stat(char *text, struct proc_stat *ret)
{
	char *name = strchr(text, '('), *end = strrchr(text, ')'), *rest;

	*ret = (struct proc_stat){ .state = '\0' };
	if (!name || !end || end < name || end[1] != ' ')
		return false;
	*end = '\0';
	snprintf(ret->name, sizeof(ret->name), "%s", name + 1);
	rest = end + 2;
	for (int field = FIELD_STATE; field <= FIELD_STACK; field++) {
		const char *word = strsep(&rest, " ");

		if (!word || !take_stat_field(field, word, ret))
			return field > FIELD_START; /* beyond, it is of use without */
	}
	return true;
}

/* A number that ends with the line or a blank. */
static bool take_stat_number(const char *text, uint64_t *ret)
{
	char word[24];
	size_t n = strcspn(text, " \n");

	if (n >= sizeof(word))
		return false;
	memcpy(word, text, n);
	word[n] = '\0';
	return text_to_u64(word, ret) == 0;
}

int proc_parse_tgid(const char *text)
{
	static const char key[] = "\nTgid:\t";
	const char *at = strstr(text, key);
	uint64_t pid;

	if (!at || !take_stat_number(at + strlen(key), &pid) || pid > INT32_MAX)
		return 0;
	return (int)pid;
}

bool proc_parse_statm(const char *text, uint64_t *ret_resident)
{
	const char *second = strchr(text, ' ');
	uint64_t total;

	return second && take_stat_number(text, &total) && take_stat_number(second + 1, ret_resident);
}
