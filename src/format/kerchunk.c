/* SPDX-License-Identifier: Apache-2.0 */
/* kerchunk's references: which bytes of which file each chunk of an array is.
 *
 *   {"version": 1, "templates": {"u": "file:///data"}, "refs": {"x/.zarray": "{...}",
 *    "x/0.0": ["{{u}}/a.h5", 2048, 100000], "x/1.0": [...], ...}}
 *
 * or, version 0, what is in refs alone. Chunks are told by variable and chunk number, that is in
 * the natural order of their keys, as JSON has no order. What is in the references themselves, and
 * whole files without an offset, are no records. Generated references (gen) are not understood.
 * Pure, any thread. */
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "format_priv.h"

#define PATH_BYTES 4096u

struct chunk {
	const char *key;
	const json_t *value;
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Runs of digits compare as numbers, of any length. */
static int natural_cmp(const char *a, const char *b)
{
	while (*a && *b) {
		size_t na, nb;
		int order;

		if (!is_digit(*a) || !is_digit(*b)) {
			if (*a != *b)
				return (uint8_t)*a < (uint8_t)*b ? -1 : 1;
			a++;
			b++;
			continue;
		}
		a += strspn(a, "0");
		b += strspn(b, "0");
		na = strspn(a, "0123456789");
		nb = strspn(b, "0123456789");
		order = na != nb ? (na < nb ? -1 : 1) : memcmp(a, b, na);
		if (order)
			return order;
		a += na;
		b += nb;
	}
	return (*a != '\0') - (*b != '\0');
}

static int chunk_cmp(const void *a, const void *b)
{
	const struct chunk *x = a, *y = b;
	int order = natural_cmp(x->key, y->key);

	return order ? order : strcmp(x->key, y->key); /* "01" and "1" */
}

/* Puts templates into a path; NULL: too long, or a template that is not there. */
static const char *expand(const char *url, const json_t *templates, char out[PATH_BYTES])
{
	size_t n = 0;

	while (*url) {
		const char *end = strncmp(url, "{{", 2) == 0 ? strstr(url, "}}") : NULL;
		const char *text = url;
		size_t len = 1;

		if (end) {
			char name[64];
			size_t name_len = (size_t)(end - url) - 2;

			if (name_len >= sizeof(name))
				return NULL;
			memcpy(name, url + 2, name_len);
			name[name_len] = '\0';
			text = json_string_value(json_object_get(templates, name));
			if (!text)
				return NULL;
			len = strlen(text);
		}
		if (len >= PATH_BYTES - n)
			return NULL;
		memcpy(out + n, text, len);
		n += len;
		url = end ? end + 2 : url + 1;
	}
	out[n] = '\0';
	return out;
}

/* The number at place i of a reference; false: there is none. */
static bool kerchunk_number_at(const json_t *value, size_t i, uint64_t *ret)
{
	const json_t *number = json_array_get(value, i);

	if (!json_is_integer(number) || json_integer_value(number) < 0)
		return false;
	*ret = (uint64_t)json_integer_value(number);
	return true;
}

static int tell_chunk(const struct chunk *c, uint64_t number, const json_t *templates,
		      int (*line)(void *ctx, const struct format_line *line), void *ctx,
		      struct err *err)
{
	struct format_line told = { .number = number };
	const char *url = json_string_value(json_array_get(c->value, 0));
	char path[PATH_BYTES];
	int rc;

	if (!url || !kerchunk_number_at(c->value, 1, &told.offset) ||
	    !kerchunk_number_at(c->value, 2, &told.length))
		return err_set(err, -EBADMSG, "reference %.200s is not [path, offset, length]", c->key);
	told.path = expand(url, templates, path);
	if (!told.path)
		return err_set(err, -EBADMSG, "reference %.200s: its template is not there, or it is too long",
			       c->key);
	if (strncmp(told.path, "file://", 7) == 0)
		told.path += 7;
	told.len = strlen(told.path);
	if (told.len == 0)
		return err_set(err, -EBADMSG, "reference %.200s has no path", c->key);
	rc = line(ctx, &told);
	if (rc < 0 && err)
		err_prefix(err, "reference %.200s", c->key);
	return rc;
}

static int tell_all(json_t *refs, const json_t *templates,
		    int (*line)(void *ctx, const struct format_line *line), void *ctx,
		    struct err *err)
{
	AUTO_FREE struct chunk *chunks = calloc(json_object_size(refs) + 1, sizeof(*chunks));
	size_t n = 0;
	const char *key;
	json_t *value;

	if (!chunks)
		return err_set(err, -ENOMEM, "out of memory");
	json_object_foreach(refs, key, value)
		if (json_array_size(value) > 1)
			chunks[n++] = (struct chunk){ key, value };
	qsort(chunks, n, sizeof(*chunks), chunk_cmp);
	for (size_t i = 0; i < n; i++) {
		int rc = tell_chunk(&chunks[i], i + 1, templates, line, ctx, err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

int kerchunk_read(const void *bytes, size_t size,
		  int (*line)(void *ctx, const struct format_line *line), void *ctx, struct err *err)
{
	json_t *root = NULL, *refs;
	int rc = format_json_load(bytes, size, &root, err);

	if (rc < 0)
		return rc;
	refs = json_object_get(root, "refs");
	if (!json_is_object(root) || (refs && !json_is_object(refs)))
		rc = err_set(err, -EBADMSG, "no references of kerchunk's");
	else if (json_array_size(json_object_get(root, "gen")) > 0)
		rc = err_set(err, -ENOTSUP, "generated references (gen) are not understood");
	else
		rc = tell_all(refs ? refs : root, json_object_get(root, "templates"), line, ctx, err);
	json_decref(root);
	return rc;
}
