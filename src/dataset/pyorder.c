/* SPDX-License-Identifier: Apache-2.0 */
/* The order of names as Python strings. A framework sorts what os.fsdecode made of the bytes: UTF-8
 * by code point, and each byte that is no UTF-8 as the lone surrogate U+DC00 + byte. Valid names
 * therefore sort bytewise, but an odd byte sorts behind U+D7FF and before U+E000, whatever its
 * value. Names of real datasets are plain, so the bytes are compared first and only what stands
 * around the first difference is decoded. Must never depend on the locale. Pure; any thread. */
#include <string.h>

#include "dataset_priv.h"

#define PY_END (-1)

/* The byte at i; behind the name the '/' it may have, then PY_END. */
static int byte_at(const struct py_name *n, uint32_t i)
{
	if (i < n->len)
		return (uint8_t)n->bytes[i];
	return i == n->len && n->has_slash ? '/' : PY_END;
}

static bool is_continuation(const struct py_name *n, uint32_t i)
{
	return i < n->len && ((uint8_t)n->bytes[i] & 0xc0) == 0x80;
}

/* The code point at *i, which moves on. Strict UTF-8: no overlong form, no surrogate, nothing above
 * U+10FFFF. */
int32_t py_next_code_point(const struct py_name *n, uint32_t *i)
{
	static const int32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	int lead = byte_at(n, *i);
	uint32_t len = lead >= 0xf0 && lead < 0xf8   ? 4
		       : lead >= 0xe0 && lead < 0xf0 ? 3
		       : lead >= 0xc0                ? 2
						     : 1;
	int32_t cp;
	bool is_good = lead < 0xf8;

	if (lead < 0x80) {
		(*i)++;
		return lead;
	}
	cp = len == 4 ? lead & 0x07 : len == 3 ? lead & 0x0f : lead & 0x1f;
	for (uint32_t k = 1; is_good && k < len; k++) {
		is_good = is_continuation(n, *i + k);
		if (is_good)
			cp = cp << 6 | ((uint8_t)n->bytes[*i + k] & 0x3f);
	}
	if (!is_good || len == 1 || cp < least[len] || cp > 0x10ffff ||
	    (cp >= 0xd800 && cp <= 0xdfff)) {
		(*i)++;
		return 0xdc00 + lead;
	}
	*i += len;
	return cp;
}

int py_name_cmp(const struct py_name *a, const struct py_name *b)
{
	uint32_t shorter = MIN(a->len, b->len), at = 0, ia, ib;
	int ca, cb;

	while (at < shorter && a->bytes[at] == b->bytes[at])
		at++;
	ca = byte_at(a, at);
	cb = byte_at(b, at);
	if (ca == cb && ca == PY_END)
		return 0;
	if (ca != cb && ca < 0x80 && cb < 0x80)
		return ca < cb ? -1 : 1;
	/* The difference may lie inside of a sequence: decode from the last place where both are in
	 * step. */
	while (at > 0 && (uint8_t)a->bytes[at - 1] >= 0x80)
		at--;
	ia = ib = at;
	for (;;) {
		int32_t pa = py_next_code_point(a, &ia), pb = py_next_code_point(b, &ib);

		if (pa != pb)
			return pa < pb ? -1 : 1;
		if (pa == PY_END)
			return 0;
	}
}
