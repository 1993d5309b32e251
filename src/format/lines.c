/* SPDX-License-Identifier: Apache-2.0 */
/* Lists in text: one record a line.
 *
 *   path offset length            anybody's; the last two words are the numbers
 *   offset length                 tfrecord2idx, for one file
 *   v1.2 2                        wds2idx, for one file: the number of samples, then for each its
 *   jpg 512 1000 a.jpg cls 2048 1 a.cls    components. They are one range: readers want them all
 *
 * Nothing is copied: paths are parts of the text. Pure, any thread. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "format_priv.h"

struct cut { /* a line, or what is left of it */
	const char *at, *end;
};

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/* The next line without its end; false: there is none. */
static bool next_line(struct cut *text, struct cut *ret)
{
	const char *feed;

	if (text->at == text->end)
		return false;
	feed = memchr(text->at, '\n', (size_t)(text->end - text->at));
	*ret = (struct cut){ text->at, feed ? feed : text->end };
	text->at = feed ? feed + 1 : text->end;
	while (ret->at < ret->end && is_blank(*ret->at))
		ret->at++;
	while (ret->at < ret->end && is_blank(ret->end[-1]))
		ret->end--;
	return true;
}

/* The first word, which is taken off; empty at the end. */
static struct cut first_word(struct cut *line)
{
	struct cut word;

	while (line->at < line->end && is_blank(*line->at))
		line->at++;
	word.at = line->at;
	while (line->at < line->end && !is_blank(*line->at))
		line->at++;
	word.end = line->at;
	return word;
}

/* The last word, which is taken off with the blanks before it. */
static struct cut last_word(struct cut *line)
{
	struct cut word = { line->end, line->end };

	while (word.at > line->at && !is_blank(word.at[-1]))
		word.at--;
	line->end = word.at;
	while (line->end > line->at && is_blank(line->end[-1]))
		line->end--;
	return word;
}

static bool number_of(struct cut word, uint64_t *ret)
{
	*ret = 0;
	if (word.at == word.end)
		return false;
	for (; word.at < word.end; word.at++)
		if (*word.at < '0' || *word.at > '9' || __builtin_mul_overflow(*ret, 10, ret) ||
		    __builtin_add_overflow(*ret, (uint64_t)(*word.at - '0'), ret))
			return false;
	return true;
}

/* "path offset length" or "offset length" */
static bool take_range(struct cut line, bool has_path, struct format_line *ret)
{
	struct cut length = last_word(&line), offset = last_word(&line);

	if (!number_of(length, &ret->length) || !number_of(offset, &ret->offset))
		return false;
	ret->path = has_path ? line.at : NULL;
	ret->len = (size_t)(line.end - line.at);
	return has_path ? ret->len > 0 : ret->len == 0;
}

/* All components of a sample, as the range from the first to the last of them. */
static bool take_components(struct cut line, bool has_names, struct format_line *ret)
{
	uint64_t first = UINT64_MAX, last = 0;

	while (line.at < line.end) {
		uint64_t offset, size;

		(void)first_word(&line); /* the extension */
		if (!number_of(first_word(&line), &offset) || !number_of(first_word(&line), &size) ||
		    __builtin_add_overflow(offset, size, &size))
			return false;
		if (has_names && first_word(&line).at == line.end)
			return false;
		first = MIN(first, offset);
		last = MAX(last, size);
	}
	ret->offset = first;
	ret->length = last - first;
	return first <= last;
}

enum format_list format_list_of(const void *bytes, size_t size)
{
	struct cut text = { bytes, (const char *)bytes + size }, line;
	struct format_line range;

	while (next_line(&text, &line)) {
		if (line.at == line.end || *line.at == '#')
			continue;
		if (*line.at == '{')
			return FORMAT_LIST_KERCHUNK;
		if (line.end - line.at > 3 && memcmp(line.at, "v1.", 3) == 0)
			return FORMAT_LIST_WDS;
		return take_range(line, false, &range) ? FORMAT_LIST_OFFSETS : FORMAT_LIST_PATHS;
	}
	return FORMAT_LIST_PATHS;
}

/* "v1.2 N" */
static bool take_head(struct cut line, bool *ret_has_names, uint64_t *ret_n)
{
	struct cut version = first_word(&line);

	*ret_has_names = version.end - version.at == 4 && memcmp(version.at, "v1.2", 4) == 0;
	return (*ret_has_names ||
		(version.end - version.at == 4 && memcmp(version.at, "v1.1", 4) == 0)) &&
	       number_of(first_word(&line), ret_n) && line.at == line.end;
}

static int read_lines(enum format_list list, struct cut text,
		      int (*tell)(void *ctx, const struct format_line *line), void *ctx,
		      struct err *err)
{
	static const char *const wanted[] = { "path, offset and length", "offset and length",
					      "v1.1 or v1.2 and components" };
	bool has_names = false, has_head = list != FORMAT_LIST_WDS;
	uint64_t n = 0, told = 0;
	struct format_line range = { 0 };
	struct cut line;

	while (next_line(&text, &line)) {
		bool is_head = !has_head, is_good;
		int rc = 0;

		range.number++;
		if (line.at == line.end || *line.at == '#')
			continue;
		if (is_head)
			is_good = has_head = take_head(line, &has_names, &n);
		else if (list == FORMAT_LIST_WDS)
			is_good = take_components(line, has_names, &range);
		else
			is_good = take_range(line, list == FORMAT_LIST_PATHS, &range);
		if (!is_good)
			return err_set(err, -EBADMSG, "line %" PRIu64 " is not %s", range.number,
				       wanted[list]);
		rc = is_head ? 0 : tell(ctx, &range);
		if (rc < 0)
			err_prefix(err, "line %" PRIu64, range.number);
		if (rc < 0)
			return rc;
		told += !is_head;
	}
	if (list == FORMAT_LIST_WDS && told != n)
		return err_set(err, -EBADMSG,
			       "%" PRIu64 " samples, but the first line says %" PRIu64 ": cut short?",
			       told, n);
	return 0;
}

int format_list_read(enum format_list list, const void *bytes, size_t size,
		     int (*line)(void *ctx, const struct format_line *line), void *ctx,
		     struct err *err)
{
	if (list == FORMAT_LIST_KERCHUNK)
		return kerchunk_read(bytes, size, line, ctx, err);
	return read_lines(list, (struct cut){ bytes, (const char *)bytes + size }, line, ctx, err);
}
