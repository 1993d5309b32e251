/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of texts, and the lines of /proc/PID/mountinfo. Any thread. */
#include "clairfs/base/span.h"

#include <string.h>

#include "clairfs/base/text.h"

enum { AT_FIELDS = 6 };

bool span_take(struct span *rest, char end, struct span *ret)
{
	const char *stop;

	if (!rest->len)
		return false;
	stop = memchr(rest->at, end, rest->len);
	*ret = (struct span){ rest->at, stop ? (size_t)(stop - rest->at) : rest->len };
	rest->at += ret->len + (stop != NULL);
	rest->len -= ret->len + (stop != NULL);
	return true;
}

bool span_is(struct span s, const char *word)
{
	return s.len == strlen(word) && memcmp(s.at, word, s.len) == 0;
}

bool span_has(struct span list, const char *word)
{
	struct span one;

	while (span_take(&list, ',', &one))
		if (span_is(one, word))
			return true;
	return false;
}

bool span_number(struct span s, uint64_t *ret)
{
	char word[32];

	if (s.len >= sizeof(word) || memchr(s.at, 0, s.len))
		return false;
	memcpy(word, s.at, s.len);
	word[s.len] = 0;
	return text_to_u64(word, ret) == 0;
}

bool span_path(struct span s, char out[PATH_MAX])
{
	if (s.len >= PATH_MAX || memchr(s.at, 0, s.len))
		return false;
	memcpy(out, s.at, s.len);
	out[s.len] = 0;
	return true;
}

static bool is_octal(const char *at)
{
	return at[0] >= '0' && at[0] <= '3' && at[1] >= '0' && at[1] <= '7' && at[2] >= '0' &&
	       at[2] <= '7';
}

bool mountinfo_path(struct span s, char out[PATH_MAX])
{
	size_t n = 0;

	for (size_t i = 0; i < s.len; i++) {
		int c = (unsigned char)s.at[i];

		if (c == '\\' && s.len - i > 3 && is_octal(s.at + i + 1)) {
			c = (s.at[i + 1] - '0') * 64 + (s.at[i + 2] - '0') * 8 + s.at[i + 3] - '0';
			i += 3;
		}
		if (c == 0 || n + 1 >= PATH_MAX)
			return false;
		out[n++] = (char)c;
	}
	out[n] = 0;
	return true;
}

bool mountinfo_parse(struct span line, struct mountinfo *ret)
{
	struct span field[AT_FIELDS], word;

	for (int i = 0; i < AT_FIELDS; i++)
		if (!span_take(&line, ' ', &field[i]))
			return false;
	do { /* optional fields */
		if (!span_take(&line, ' ', &word))
			return false;
	} while (!span_is(word, "-"));
	*ret = (struct mountinfo){
		.id = field[0], .device = field[2], .root = field[3], .at = field[4]
	};
	if (!span_take(&line, ' ', &ret->type) || !span_take(&line, ' ', &word))
		return false;
	if (!span_take(&line, ' ', &ret->options))
		ret->options.at = line.at;
	return true;
}
