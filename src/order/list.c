/* SPDX-License-Identifier: Apache-2.0 */
/* Kind "list": the order is in a file that the job (or a person) wrote. The one source of orders
 * that is always right. It reads its file (as only megatron does besides) once, in order_new.
 *
 *   text          a sample per line: its number (digits only) or its path below the root;
 *                 "# epoch E" starts an epoch, in any sequence (without one, every epoch is the
 *                 whole file); other lines with '#' in front and blank lines are skipped; CR LF
 *                 is understood; a path of digits only or with '#' in front is written "./PATH"
 *   *.u32, *.u64  raw little-endian numbers, the same in every epoch
 *
 * Samples that stand twice in an epoch or are missing are allowed, and noted (order_note). Every
 * sample is checked here, so an epoch computed later cannot fail on its content; errors name
 * the line. The text is read through a small window and never kept: a list of many epochs may be
 * far larger than its 4 bytes per sample. Set-up code of one thread; fills and lengths from any
 * thread. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "clairfs/base/bitmap.h"
#include "clairfs/base/buf.h"
#include "clairfs/base/text.h"
#include "order_priv.h"

/* Bytes of the file looked at together, which is also the longest line: PATH_MAX with room. */
#define WINDOW (64 << 10)
#define SHOWN 200 /* bytes of a foreign name in a message */

static const struct order_key list_keys[] = {
	{ .name = "path", .type = ORDER_KEY_TEXT, .is_required = true },
	{ .name = NULL },
};

struct list_epoch {
	uint64_t epoch, from, line; /* its samples start at sample[from]; its heading's line */
	uint64_t length;            /* known when all is read */
};

struct list {
	uint32_t *sample; /* of all epochs, in the order of the file */
	uint64_t n_samples, capacity;
	struct list_epoch *epochs; /* sorted by epoch; one for all epochs without headings */
	size_t n_epochs;
	bool has_headings;
};

/* What a list is read from: a file, or bytes in memory (fd < 0). */
struct list_source {
	int fd;
	const uint8_t *at;
	size_t left;
};

/* The place in a file that messages name. */
struct list_parser {
	struct list *list;
	const struct order_params *params;
	uint64_t line; /* from 1; raw files: entry, from 1 */
};

/* Whether messages may show what is in the file: only to who could read it anyway. */
static bool shows_content(const struct list_parser *p)
{
	return !p->params->open_file && !p->params->bytes;
}

static int source_read(struct list_source *source, void *buf, size_t size, size_t *ret,
		       struct err *err)
{
	if (source->fd >= 0)
		return order_file_read(source->fd, buf, size, ret, err);
	*ret = MIN(size, source->left);
	if (*ret > 0)
		memcpy(buf, source->at, *ret);
	source->at += *ret;
	source->left -= *ret;
	return 0;
}

static int list_add(struct list *list, uint32_t sample, struct err *err)
{
	if (list->n_samples == list->capacity) {
		uint64_t capacity = MAX(list->capacity * 2, 1024);
		uint32_t *more = realloc(list->sample, capacity * sizeof(*more));

		if (!more)
			return err_set(err, -ENOMEM, "out of memory for %" PRIu64 " samples",
				       capacity);
		list->sample = more;
		list->capacity = capacity;
	}
	list->sample[list->n_samples++] = sample;
	return 0;
}

static int list_add_epoch(struct list *list, uint64_t epoch, uint64_t line, struct err *err)
{
	struct list_epoch *more = realloc(list->epochs, (list->n_epochs + 1) * sizeof(*more));

	if (!more)
		return err_set(err, -ENOMEM, "out of memory");
	list->epochs = more;
	more[list->n_epochs++] =
		(struct list_epoch){ .epoch = epoch, .from = list->n_samples, .line = line };
	return 0;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Digits as a number, UINT64_MAX if they are too many. */
static uint64_t digits_value(const char *text, size_t len)
{
	uint64_t v = 0;

	for (size_t i = 0; i < len; i++) {
		uint64_t digit = (uint64_t)(text[i] - '0');

		if (v > (UINT64_MAX - digit) / 10)
			return UINT64_MAX;
		v = v * 10 + digit;
	}
	return v;
}

static size_t count_digits(const char *text, size_t len)
{
	size_t n = 0;

	while (n < len && is_digit(text[n]))
		n++;
	return n;
}

static size_t skip_blanks(const char *text, size_t len, size_t at)
{
	while (at < len && is_blank(text[at]))
		at++;
	return at;
}

/* A line that starts with '#'. Only "# epoch" followed by a digit is meant as a heading, and then
 * it must be one. */
static int parse_comment(struct list_parser *p, const char *text, size_t len, struct err *err)
{
	static const char word[] = "epoch";
	size_t at = skip_blanks(text, len, 1), digits;
	uint64_t epoch;

	if (len - at < sizeof(word) || memcmp(text + at, word, sizeof(word) - 1) != 0)
		return 0;
	at += sizeof(word) - 1;
	if (!is_blank(text[at]))
		return 0;
	at = skip_blanks(text, len, at);
	digits = count_digits(text + at, len - at);
	if (digits == 0)
		return 0;
	epoch = digits_value(text + at, digits);
	if (skip_blanks(text, len, at + digits) != len || epoch == UINT64_MAX)
		return err_set(err, -EINVAL, "expected \"# epoch E\" with a number E");
	if (!p->list->has_headings && p->list->n_samples > 0)
		return err_set(err, -EINVAL, "samples stand before the first \"# epoch\" heading");
	p->list->has_headings = true;
	return list_add_epoch(p->list, epoch, p->line, err);
}

static int parse_path(struct list_parser *p, const char *path, size_t len, struct err *err)
{
	const struct order_params *params = p->params;
	char shown[SHOWN];
	uint32_t sample;
	bool is_found;

	text_escape(path, len, shown, sizeof(shown));
	if (!shows_content(p))
		snprintf(shown, sizeof(shown), "...");
	if (!params->resolve)
		return err_set(err, -EINVAL,
			       "\"%s\" is not a sample number, and paths are unknown here", shown);
	is_found = params->resolve(params->resolve_ctx, path, len, &sample);
	if (!is_found && len > 2 && path[0] == '.' && path[1] == '/')
		is_found = params->resolve(params->resolve_ctx, path + 2, len - 2, &sample);
	if (!is_found && !shows_content(p))
		return err_set(err, -EINVAL,
			       "expected the number or the path of a sample, or \"# epoch E\"");
	if (!is_found)
		return err_set(err, -EINVAL, "the dataset has no sample \"%s\"", shown);
	if (sample >= params->n)
		return err_set(err, -EINVAL, "\"%s\" is sample %u of %" PRIu64, shown, sample,
			       params->n);
	return list_add(p->list, sample, err);
}

static int out_of_range(const struct list_parser *p, const char *shown, struct err *err)
{
	if (!shows_content(p))
		return err_set(err, -EINVAL, "expected the number of a sample below %" PRIu64,
			       p->params->n);
	return err_set(err, -EINVAL, "sample %s is out of range, the dataset has %" PRIu64, shown,
		       p->params->n);
}

/* One line without its line end. */
static int parse_line(struct list_parser *p, const char *text, size_t len, struct err *err)
{
	char shown[SHOWN];
	size_t at, digits;

	if (len > 0 && text[len - 1] == '\r')
		len--;
	if (len > 0 && text[0] == '#')
		return parse_comment(p, text, len, err);
	at = skip_blanks(text, len, 0);
	if (at == len)
		return 0;
	if (memchr(text, '\0', len))
		return err_set(err, -EINVAL,
			       "NUL byte (raw numbers need a name ending in .u32 or .u64)");
	digits = count_digits(text + at, len - at);
	if (digits == 0 || skip_blanks(text, len, at + digits) != len)
		return parse_path(p, text, len, err);
	if (digits_value(text + at, digits) >= p->params->n)
		return out_of_range(p, text_escape(text + at, digits, shown, sizeof(shown)), err);
	return list_add(p->list, (uint32_t)digits_value(text + at, digits), err);
}

/* Parses the lines that are complete in window[0, *used); moves the rest to the front. */
static int parse_window(struct list_parser *p, char *window, size_t *used, bool is_last,
			struct err *err)
{
	size_t at = 0;

	while (at < *used) {
		const char *end = memchr(window + at, '\n', *used - at);
		size_t len = end ? (size_t)(end - (window + at)) : *used - at;
		int rc;

		if (!end && !is_last)
			break;
		p->line++;
		rc = parse_line(p, window + at, len, err);
		if (rc < 0) {
			err_prefix(err, "line %" PRIu64, p->line);
			return rc;
		}
		at += len + (end ? 1 : 0);
	}
	if (at == 0 && !is_last)
		return err_set(err, -EINVAL, "line %" PRIu64 " is longer than %d bytes",
			       p->line + 1, WINDOW);
	memmove(window, window + at, *used - at);
	*used -= at;
	return 0;
}

static int read_text(struct list_parser *p, struct list_source *source, struct err *err)
{
	char *window AUTO_FREE = malloc(WINDOW);
	size_t used = 0, got = 1;

	if (!window)
		return err_set(err, -ENOMEM, "out of memory");
	while (got > 0) {
		int rc = source_read(source, window + used, WINDOW - used, &got, err);

		if (rc < 0)
			return rc;
		used += got;
		rc = parse_window(p, window, &used, got == 0 || used < WINDOW, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int read_raw(struct list_parser *p, struct list_source *source, unsigned width,
		    struct err *err)
{
	uint8_t *window AUTO_FREE = malloc(WINDOW);
	struct buf_reader r;
	char shown[24];
	size_t got;
	int rc;

	if (!window)
		return err_set(err, -ENOMEM, "out of memory");
	do {
		rc = source_read(source, window, WINDOW, &got, err);
		if (rc < 0)
			return rc;
		if (got % width != 0)
			return err_set(err, -EINVAL, "the size is not a multiple of %u bytes",
				       width);
		buf_reader_init(&r, window, got);
		while (r.at < got && rc == 0) {
			uint64_t sample = width == 4 ? buf_get_u32(&r) : buf_get_u64(&r);

			p->line++;
			if (sample >= p->params->n) {
				snprintf(shown, sizeof(shown), "%" PRIu64, sample);
				rc = out_of_range(p, shown, err);
				err_prefix(err, "entry %" PRIu64, p->line);
				return rc;
			}
			rc = list_add(p->list, (uint32_t)sample, err);
		}
	} while (rc == 0 && got == WINDOW);
	return rc;
}

static bool has_suffix(const char *path, const char *suffix)
{
	size_t len = strlen(path), n = strlen(suffix);

	return len >= n && strcmp(path + len - n, suffix) == 0;
}

static int read_source(struct list_parser *p, struct list_source *source, unsigned width,
		       struct err *err)
{
	return width ? read_raw(p, source, width, err) : read_text(p, source, err);
}

static int read_file(struct list_parser *p, const char *path, struct err *err)
{
	int fd AUTO_FD = -1;
	uint64_t size;
	int rc = order_file_open(p->params, path, &fd, &size, err);
	unsigned width = has_suffix(path, ".u32") ? 4 : has_suffix(path, ".u64") ? 8 : 0;

	return rc < 0 ? rc : read_source(p, &(struct list_source){ .fd = fd }, width, err);
}

static int read_bytes(struct list_parser *p, struct err *err)
{
	const struct order_params *params = p->params;
	struct list_source source = { .fd = -1, .at = params->bytes, .left = params->n_bytes };

	return read_source(p, &source, params->bytes_width, err);
}

static int read_told(struct list_parser *p, struct err *err)
{
	int rc = 0;

	for (uint64_t i = 0; rc == 0 && i < p->params->n_told; i++) {
		if (p->params->told[i] >= p->params->n)
			return err_set(err, -EINVAL,
				       "entry %" PRIu64
				       ": sample %u is out of range, the dataset has "
				       "%" PRIu64,
				       i + 1, p->params->told[i], p->params->n);
		rc = list_add(p->list, p->params->told[i], err);
	}
	return rc;
}

static int compare_epochs(const void *a, const void *b)
{
	const struct list_epoch *x = a, *y = b;

	if (x->epoch != y->epoch)
		return x->epoch < y->epoch ? -1 : 1;
	return (x->line > y->line) - (x->line < y->line);
}

/* Lengths and look-up order of the epochs. */
static int list_finish(const struct list_parser *p, struct err *err)
{
	char shown[32] = "the epoch";
	struct list *list = p->list;
	int rc = 0;

	if (!list->has_headings) {
		if (list->n_samples == 0)
			return err_set(err, -EINVAL, "the file has no samples");
		rc = list_add_epoch(list, 0, 0, err);
		if (rc < 0)
			return rc;
		list->epochs[0].from = 0;
	}
	for (size_t i = 0; i < list->n_epochs; i++)
		list->epochs[i].length =
			(i + 1 < list->n_epochs ? list->epochs[i + 1].from : list->n_samples) -
			list->epochs[i].from;
	qsort(list->epochs, list->n_epochs, sizeof(*list->epochs), compare_epochs);
	for (size_t i = 1; i < list->n_epochs; i++) {
		if (list->epochs[i].epoch != list->epochs[i - 1].epoch)
			continue;
		if (shows_content(p))
			snprintf(shown, sizeof(shown), "epoch %" PRIu64, list->epochs[i].epoch);
		return err_set(err, -EINVAL, "line %" PRIu64 ": %s is already on line %" PRIu64,
			       list->epochs[i].line, shown, list->epochs[i - 1].line);
	}
	return 0;
}

/* How many places of an epoch hold a sample that stands before, and how many samples it lacks. */
static void count_odd(const struct list *list, const struct list_epoch *e, struct bitmap *seen,
		      uint64_t *ret_again, uint64_t *ret_missing)
{
	uint64_t distinct = 0;

	bitmap_clear_all(seen);
	for (uint64_t i = 0; i < e->length; i++)
		distinct += bitmap_set(seen, list->sample[e->from + i]);
	*ret_again = e->length - distinct;
	*ret_missing = seen->size - distinct;
}

/* A job may read samples again or not at all, but so looks a list that was cut short or put
 * together wrongly, too: say it. Names the first such epoch of the job. */
static int list_make_note(struct order *order, struct err *err)
{
	const struct list *list = order->state;
	const struct list_epoch *odd = NULL;
	uint64_t others = 0, again = 0, missing = 0;
	char which[40] = "the list", more[60] = "";
	struct bitmap seen;

	if (bitmap_init(&seen, order->info.n) < 0)
		return err_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < list->n_epochs; i++) {
		uint64_t a, m;

		count_odd(list, &list->epochs[i], &seen, &a, &m);
		others += odd && (a || m);
		if (odd || !(a || m))
			continue;
		odd = &list->epochs[i];
		again = a;
		missing = m;
	}
	bitmap_fini(&seen);
	if (!odd)
		return 0;
	if (list->has_headings)
		snprintf(which, sizeof(which), "epoch %" PRIu64 " of the list", odd->epoch);
	if (others > 0)
		snprintf(more, sizeof(more), "; %" PRIu64 " more epochs are like that", others);
	if (asprintf(&order->note,
		     "%s reads samples again at %" PRIu64 " places and leaves out %" PRIu64
		     " of %" PRIu64 " samples%s",
		     which, again, missing, order->info.n, more) < 0) {
		order->note = NULL;
		return err_set(err, -ENOMEM, "out of memory");
	}
	return 0;
}

/* A file with headings says how many epochs there are, unless the spec says less. */
static void list_set_epochs(struct order *order)
{
	const struct list *list = order->state;
	struct order_info *info = &order->info;
	uint64_t last = list->epochs[list->n_epochs - 1].epoch;

	if (list->has_headings && info->epochs == 0 && last >= info->start_epoch)
		info->epochs = last - info->start_epoch + 1;
}

static int list_open(struct order *order, const struct order_spec *spec,
		     const struct order_params *params, struct err *err)
{
	const char *path = order_spec_path(spec, "path");
	struct list_parser parser = { .params = params };
	char shown[SHOWN];
	int rc;

	order->state = parser.list = calloc(1, sizeof(*parser.list));
	if (!order->state)
		return err_set(err, -ENOMEM, "out of memory");
	if (params->told)
		rc = read_told(&parser, err);
	else
		rc = params->bytes ? read_bytes(&parser, err) : read_file(&parser, path, err);
	if (rc == 0)
		rc = list_finish(&parser, err);
	if (rc < 0)
		err_prefix(err, "%s", text_escape(path, strlen(path), shown, sizeof(shown)));
	order->info.is_same_every_epoch = !parser.list->has_headings;
	if (rc < 0)
		return rc;
	list_set_epochs(order);
	return list_make_note(order, err);
}

static void list_close(struct order *order)
{
	struct list *list = order->state;

	if (!list)
		return;
	free(list->sample);
	free(list->epochs);
	free(list);
}

/* NULL: the file has no such epoch. */
static const struct list_epoch *list_find(const struct list *list, uint64_t epoch)
{
	size_t low = 0, high = list->n_epochs;

	if (!list->has_headings)
		return list->epochs;
	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (list->epochs[mid].epoch < epoch)
			low = mid + 1;
		else
			high = mid;
	}
	return low < list->n_epochs && list->epochs[low].epoch == epoch ? &list->epochs[low] : NULL;
}

static int list_common_length(const struct order *order, uint64_t epoch, uint64_t *ret,
			      struct err *err)
{
	const struct list_epoch *found = list_find(order->state, epoch);

	if (!found)
		return err_set(err, -ENOENT, "list has no epoch %" PRIu64, epoch);
	*ret = found->length;
	return 0;
}

static int list_common_fill(const struct order *order, uint64_t epoch, uint64_t length,
			    uint32_t *out, struct err *err)
{
	const struct list *list = order->state;
	const struct list_epoch *found = list_find(list, epoch);

	if (length > 0)
		memcpy(out, list->sample + found->from, length * sizeof(*out));
	return 0;
}

static int list_head_fill(const struct order *order, const struct order_span *common,
			  uint64_t count, uint32_t *out, struct err *err)
{
	return list_common_fill(order, common->epoch, count, out, err);
}

const struct order_kind order_kind_list = {
	.help = "what a file says, one sample number or path per line with \"# epoch E\" headings, "
		"or raw .u32/.u64; keys: "
		"path" ORDER_HELP_COMMON,
	.keys = list_keys,
	.open = list_open,
	.close = list_close,
	.common_length = list_common_length,
	.common_fill = list_common_fill,
	.head_fill = list_head_fill,
};
