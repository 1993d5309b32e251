/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict parsing and safe printing. Not strtoull: it takes signs, blanks, octal and "-1" as 2^64-1,
 * all of which are typing errors in an option. Printing escapes what could change a terminal or
 * forge a line; names with valid UTF-8 stay readable. Pure functions, any thread.
 */
#include "clairfs/base/text.h"

#include <errno.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

/* Reads digits at *text and moves it behind them. */
static int text_digits(const char **text, uint64_t *ret)
{
	const char *p = *text;
	uint64_t v = 0;

	if (*p < '0' || *p > '9')
		return -EINVAL;
	for (; *p >= '0' && *p <= '9'; p++) {
		if (__builtin_mul_overflow(v, UINT64_C(10), &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
			return -ERANGE;
	}
	*text = p;
	*ret = v;
	return 0;
}

int text_to_u64(const char *text, uint64_t *ret)
{
	uint64_t v;
	int rc = text_digits(&text, &v);

	if (rc < 0)
		return rc;
	if (*text)
		return -EINVAL;
	*ret = v;
	return 0;
}

/* strtod alone would also take blanks, signs, hexadecimal, "inf" and "nan". The program never calls
 * setlocale, so the point is a point. */
int text_to_real(const char *text, double *ret)
{
	const char *digits = "0123456789";
	size_t whole = strspn(text, digits), n = whole, fraction = 0;
	double v;

	if (text[n] == '.') {
		fraction = strspn(text + n + 1, digits);
		n += 1 + fraction;
	}
	if (whole + fraction == 0)
		return -EINVAL;
	if (text[n] == 'e' || text[n] == 'E') {
		size_t sign = text[n + 1] == '-' || text[n + 1] == '+';
		size_t power = strspn(text + n + 1 + sign, digits);

		if (!power)
			return -EINVAL;
		n += 1 + sign + power;
	}
	if (text[n])
		return -EINVAL;
	v = strtod(text, NULL);
	if (v > DBL_MAX)
		return -ERANGE;
	*ret = v;
	return 0;
}

int text_to_seed(const char *text, uint64_t *ret)
{
	bool is_negative = *text == '-';
	uint64_t v;
	int rc = text_to_u64(text + is_negative, &v);

	if (rc < 0)
		return rc;
	if (is_negative && v > UINT64_C(1) << 63)
		return -ERANGE;
	*ret = is_negative ? -v : v;
	return 0;
}

int text_to_bytes(const char *text, uint64_t *ret)
{
	static const char units[] = "KMGT";
	unsigned int shift = 0;
	const char *unit;
	uint64_t v;
	int rc = text_digits(&text, &v);

	if (rc < 0)
		return rc;
	if (*text) {
		unit = strchr(units, *text);
		if (!unit || text[1])
			return -EINVAL;
		shift = 10 * (unsigned int)(unit - units + 1);
	}
	if (v > UINT64_MAX >> shift)
		return -ERANGE;
	*ret = v << shift;
	return 0;
}

int text_to_bool(const char *text, bool *ret)
{
	static const char *const words[][2] = {
		{ "0", "1" },
		{ "no", "yes" },
		{ "false", "true" },
		{ "off", "on" },
	};

	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		for (int value = 0; value < 2; value++) {
			if (strcmp(text, words[i][value]) == 0) {
				*ret = value;
				return 0;
			}
		}
	}
	return -EINVAL;
}

#define TEXT_WORD_MAX 64 /* longer words are near to nothing */

/* Edit distance (insert, delete, replace); both words are at most TEXT_WORD_MAX long. */
static size_t text_distance(const char *a, const char *b)
{
	size_t row[TEXT_WORD_MAX + 1], n = strlen(b);

	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 0; a[i]; i++) {
		size_t diagonal = row[0];

		row[0] = i + 1;
		for (size_t j = 1; j <= n; j++) {
			size_t replaced = diagonal + (a[i] != b[j - 1]);

			diagonal = row[j];
			row[j] = MIN(replaced, MIN(row[j], row[j - 1]) + 1);
		}
	}
	return row[n];
}

const char *text_nearest(const char *word, const char *const *candidates)
{
	const char *best = NULL;
	size_t len = strlen(word);
	size_t limit = MAX((len + 1) / 3, 1) + 1; /* one wrong letter in three is still near */

	if (len > TEXT_WORD_MAX)
		return NULL;
	for (; *candidates; candidates++) {
		size_t distance;

		if (strlen(*candidates) > TEXT_WORD_MAX)
			continue;
		distance = text_distance(word, *candidates);
		/* Not "near" if nothing of the word is left. */
		if (distance < limit && distance < MAX(len, strlen(*candidates))) {
			best = *candidates;
			limit = distance;
		}
	}
	return best;
}

/* Length of a UTF-8 character by its first byte, or 0. */
static size_t text_utf8_lead(unsigned char c)
{
	if (c < 0x80)
		return 1;
	if (c >> 5 == 0x6)
		return 2;
	if (c >> 4 == 0xe)
		return 3;
	return c >> 3 == 0x1e ? 4 : 0;
}

/* Length of the valid, printable UTF-8 character at p, or 0. */
static size_t text_utf8_len(const unsigned char *p, size_t len)
{
	/* Per length; anything smaller is overlong. U+0080 to U+009F are controls. */
	static const uint32_t smallest[] = { 0, 0, 0xa0, 0x800, 0x10000 };
	size_t n = text_utf8_lead(p[0]);
	uint32_t v;

	if (n == 0 || n > len)
		return 0;
	if (n == 1)
		return p[0] >= 0x20 && p[0] != 0x7f && p[0] != '\\';
	v = p[0] & (0xffu >> (n + 1));
	for (size_t i = 1; i < n; i++) {
		if (p[i] >> 6 != 2)
			return 0;
		v = v << 6 | (p[i] & 0x3fu);
	}
	if (v < smallest[n] || v > 0x10ffff || (v >= 0xd800 && v <= 0xdfff))
		return 0;
	return n;
}

/* Writes the printable form of the first character at p to unit; returns how many bytes of p it
 * stands for. */
static size_t text_escape_one(const unsigned char *p, size_t len, char unit[static 5])
{
	static const char hex[] = "0123456789abcdef";
	size_t n = text_utf8_len(p, len);

	if (n > 0) {
		memcpy(unit, p, n);
		unit[n] = '\0';
		return n;
	}
	unit[0] = '\\';
	unit[2] = '\0';
	if (*p == '\\' || *p == '\n' || *p == '\t') {
		unit[1] = *p == '\\' ? '\\' : *p == '\n' ? 'n' : 't';
	} else {
		unit[1] = 'x';
		unit[2] = hex[*p >> 4];
		unit[3] = hex[*p & 15];
		unit[4] = '\0';
	}
	return 1;
}

char *text_escape(const char *name, size_t len, char *out, size_t size)
{
	size_t at = 0, cut = 0; /* cut: last end of a character that leaves room for the dots */

	if (size == 0)
		return out;
	while (len > 0) {
		char unit[5];
		size_t used = text_escape_one((const unsigned char *)name, len, unit);
		size_t n = strlen(unit);

		if (n >= size - at) {
			snprintf(out + cut, size - cut, "...");
			return out;
		}
		memcpy(out + at, unit, n);
		at += n;
		if (at + 4 <= size)
			cut = at;
		name += used;
		len -= used;
	}
	out[at] = '\0';
	return out;
}

char *text_from_bytes(uint64_t bytes, char *out, size_t size)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	uint64_t unit, whole, rest, tenths;
	unsigned int u = 0;

	while (u + 1 < ARRAY_LEN(units) && bytes >> (10 * (u + 1)))
		u++;
	unit = UINT64_C(1) << (10 * u);
	whole = bytes / unit;
	rest = bytes % unit;
	if (rest == 0) {
		snprintf(out, size, "%llu %s", (unsigned long long)whole, units[u]);
		return out;
	}
	tenths = whole * 10 + (rest * 10 + unit / 2) / unit;
	if (tenths >= 10240 && u + 1 < ARRAY_LEN(units)) {
		/* Rounded up to 1024.0 of a unit: that is 1.0 of the next one. */
		tenths = 10;
		u++;
	}
	snprintf(out, size, "%llu.%llu %s", (unsigned long long)(tenths / 10),
		 (unsigned long long)(tenths % 10), units[u]);
	return out;
}
