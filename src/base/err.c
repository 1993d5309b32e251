/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors of set-up paths. Every function formats into a local buffer first, so that a caller may
 * pass the old message as an argument of the new one. A message that does not fit is cut: it is for
 * a person, and the code is exact. Any thread, each with its own struct err; nothing here
 * allocates, so running out of memory can be reported too.
 */
#include "clairfs/base/err.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>

static void err_store(struct err *err, int code, const char *msg)
{
	size_t len = strlen(msg);

	err->code = code;
	memcpy(err->msg, msg, len + 1);
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)msg[i] < ' ' || msg[i] == 0x7f)
			err->msg[i] = '?'; /* names may hold newlines; an error is one line */
}

int err_set(struct err *err, int code, const char *fmt, ...)
{
	char msg[sizeof(err->msg)];
	va_list ap;

	assert(code < 0);
	if (!err)
		return code;
	va_start(ap, fmt);
	vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	err_store(err, code, msg);
	return code;
}

/* Appends ": " and `tail` to the string in msg, as far as there is room. */
static void err_append(char *msg, size_t size, const char *tail)
{
	strncat(msg, ": ", size - 1 - strlen(msg));
	strncat(msg, tail, size - 1 - strlen(msg));
}

int err_set_errno(struct err *err, int code, const char *fmt, ...)
{
	char msg[sizeof(err->msg)], reason[128];
	va_list ap;

	assert(code < 0);
	if (!err)
		return code;
	va_start(ap, fmt);
	vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	err_append(msg, sizeof(msg), strerror_r(-code, reason, sizeof(reason)));
	err_store(err, code, msg);
	return code;
}

void err_prefix(struct err *err, const char *fmt, ...)
{
	char msg[sizeof(err->msg)];
	va_list ap;

	if (!err)
		return;
	va_start(ap, fmt);
	vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	err_append(msg, sizeof(msg), err->msg);
	err_store(err, err->code, msg);
}
