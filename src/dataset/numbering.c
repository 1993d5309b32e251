/* SPDX-License-Identifier: Apache-2.0 */
/* Other ways to number the samples: a job that lists only a part of the tree, or sorts the files in
 * another way than the index, means other files by the same numbers. Each way is a comparison of
 * two files by the path below the part that is listed; the files are sorted by it once, when an
 * order is set up, and the result is an array from the job's number to ours.
 *
 * Paths are never built: directories of the part get their path (with '/' at the end) in one
 * buffer, and a comparison runs over the two halves. What Python does to strings is done to code
 * points: names as os.fsdecode makes them, lower() by the simple mapping of Unicode (a capital
 * sigma at the end of a word is the one difference), digits are those of ASCII. Must never use the
 * locale of the process. Reads only what is immutable while the dataset is open: any thread. */
#include <errno.h>
#include <locale.h>
#include <string.h>
#include <wctype.h>

#include "clairfs/base/text.h"
#include "dataset_priv.h"
#include "scan_priv.h"

const char *const dataset_sort_names[] = { "index",   "torchvision", "timm", "path",
					   "natural", "nocase",      "walk", NULL };

struct part {
	const struct table *t;
	enum dataset_sort sort;
	uint32_t base;      /* slot of the directory that is listed */
	uint32_t *path_off; /* [n_dirs + 2] by directory number; equal ends: not in the part */
	bool *is_inside;    /* [n_dirs + 1] by directory number */
	char *paths;        /* of the directories, relative to base, each with '/' at its end */
	locale_t lower;     /* of lower-casing; 0: ASCII only */
	const struct records *records; /* NULL: none, or what describes them counts as well */
	uint32_t *sample;
	uint32_t n;
};

/* A path in two halves, read by code points. */
struct reader {
	struct py_name half[2];
	const struct part *part;
	uint32_t i, which;
	int32_t pushed; /* a code point that comes before the next one; 0: none */
};

static bool is_ascii_digit(int32_t c)
{
	return c >= '0' && c <= '9';
}

static struct py_name part_dir(const struct part *p, uint32_t sample)
{
	uint32_t no = table_dir_no(p->t, p->t->parent[sample]);

	return (struct py_name){ .bytes = p->paths + p->path_off[no],
				 .len = p->path_off[no + 1] - p->path_off[no] };
}

static struct py_name part_name(const struct part *p, uint32_t sample)
{
	struct py_name name = { 0 };

	name.bytes = table_name(p->t, sample, &name.len);
	return name;
}

static struct reader reader_of(const struct part *p, uint32_t sample)
{
	return (struct reader){ .half = { part_dir(p, sample), part_name(p, sample) }, .part = p };
}

static int32_t lowered(struct reader *r, int32_t c)
{
	if (c < 0x80)
		return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
	if (c == 0x130) { /* the one letter that becomes two */
		r->pushed = 0x307;
		return 'i';
	}
	return r->part->lower ? (int32_t)towlower_l((wint_t)c, r->part->lower) : c;
}

/* Negative at the end. */
static int32_t reader_next(struct reader *r)
{
	int32_t c = r->pushed;

	if (c) {
		r->pushed = 0;
		return c;
	}
	while (r->which < 2 && r->i == r->half[r->which].len) {
		r->i = 0;
		r->which++;
	}
	if (r->which == 2)
		return -1;
	c = py_next_code_point(&r->half[r->which], &r->i);
	return r->part->sort == DATASET_SORT_PATH ? c : lowered(r, c);
}

/* The digits from here on, without leading zeros; the reader is behind them. */
static struct py_name reader_digits(struct reader *r)
{
	const struct py_name *half = &r->half[r->which];
	uint32_t from = r->i - 1, to = r->i;

	while (to < half->len && is_ascii_digit(half->bytes[to]))
		to++;
	r->i = to;
	while (from + 1 < to && half->bytes[from] == '0')
		from++;
	return (struct py_name){ .bytes = half->bytes + from, .len = to - from };
}

static int compare_numbers(struct reader *a, struct reader *b)
{
	struct py_name da = reader_digits(a), db = reader_digits(b);

	if (da.len != db.len)
		return da.len < db.len ? -1 : 1;
	return memcmp(da.bytes, db.bytes, da.len);
}

/* Python's lists of text, number, text...: a number ends the text before it, so it comes before any
 * other character and behind the end of the path. */
static int compare_text(struct reader a, struct reader b, bool is_natural)
{
	for (;;) {
		int32_t ca = reader_next(&a), cb = reader_next(&b);
		bool is_number = is_natural && is_ascii_digit(ca);
		int order;

		if (is_natural && ca >= 0 && cb >= 0 && is_number != is_ascii_digit(cb))
			return is_number ? -1 : 1;
		if (is_number && is_ascii_digit(cb)) {
			order = compare_numbers(&a, &b);
			if (order)
				return order;
			continue;
		}
		if (ca != cb)
			return ca < cb ? -1 : 1;
		if (ca < 0)
			return 0;
	}
}

/* os.walk of this mount, which lists names by their bytes: a directory's own files, then what is
 * deeper; or the other way round when it is walked from the bottom. */
static int compare_walk(const struct part *p, uint32_t a, uint32_t b, bool is_bottom_up)
{
	struct py_name da = part_dir(p, a), db = part_dir(p, b), na = part_name(p, a),
		       nb = part_name(p, b);
	uint32_t at = 0, i = 0, ea, eb;

	if (p->t->parent[a] == p->t->parent[b])
		return name_cmp(na.bytes, na.len, nb.bytes, nb.len);
	for (; i < MIN(da.len, db.len) && da.bytes[i] == db.bytes[i]; i++)
		if (da.bytes[i] == '/')
			at = i + 1;
	if (at == da.len || at == db.len)
		return (at == da.len) != is_bottom_up ? -1 : 1;
	for (ea = at; da.bytes[ea] != '/'; ea++)
		;
	for (eb = at; db.bytes[eb] != '/'; eb++)
		;
	return name_cmp(da.bytes + at, ea - at, db.bytes + at, eb - at);
}

/* Class directories by name; in each sorted(os.walk(...)); in each directory the sorted names. */
static int compare_torchvision(const struct part *p, uint32_t a, uint32_t b)
{
	struct py_name da = part_dir(p, a), db = part_dir(p, b), ca = da, cb = db, na, nb;
	int order;

	if (p->t->parent[a] == p->t->parent[b]) {
		na = part_name(p, a);
		nb = part_name(p, b);
		return py_name_cmp(&na, &nb);
	}
	ca.len = (uint32_t)((const char *)memchr(da.bytes, '/', da.len) - da.bytes);
	cb.len = (uint32_t)((const char *)memchr(db.bytes, '/', db.len) - db.bytes);
	order = py_name_cmp(&ca, &cb);
	da.len--;
	db.len--;
	return order ? order : py_name_cmp(&da, &db);
}

static int part_compare(const void *x, const void *y, void *arg)
{
	const struct part *p = arg;
	uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
	int order = 0;

	switch (p->sort) {
	case DATASET_SORT_INDEX:
		break;
	case DATASET_SORT_TORCHVISION:
		order = compare_torchvision(p, a, b);
		break;
	case DATASET_SORT_TIMM:
		order = compare_text(reader_of(p, a), reader_of(p, b), true);
		if (!order)
			order = compare_walk(p, a, b, true);
		break;
	case DATASET_SORT_PATH:
	case DATASET_SORT_NOCASE:
		order = compare_text(reader_of(p, a), reader_of(p, b), false);
		break;
	case DATASET_SORT_NATURAL:
		order = compare_text(reader_of(p, a), reader_of(p, b), true);
		break;
	case DATASET_SORT_WALK:
		order = compare_walk(p, a, b, false);
		break;
	}
	return order ? order : (a > b) - (a < b);
}

/* Python's os.path.splitext: dots at the start begin no extension. */
static bool has_timm_extension(const char *name, size_t len)
{
	static const char *const extensions[] = { ".png", ".jpg", ".jpeg" };

	while (len && *name == '.') {
		name++;
		len--;
	}
	for (size_t i = 0; i < ARRAY_LEN(extensions); i++) {
		size_t n = strlen(extensions[i]);

		if (len > n && strncasecmp(name + len - n, extensions[i], n) == 0)
			return true;
	}
	return false;
}

static bool part_takes(const struct part *p, uint32_t sample)
{
	uint32_t len, parent = p->t->parent[sample];
	const char *name = table_name(p->t, sample, &len);

	if (!p->is_inside[table_dir_no(p->t, parent)])
		return false;
	/* Where records are samples, what only describes them is none. */
	if (p->records && records_is_sidecar(p->records, p->t, sample))
		return false;
	if (p->sort == DATASET_SORT_TORCHVISION)
		return parent != p->base && layout_is_image(name, len);
	return p->sort != DATASET_SORT_TIMM || has_timm_extension(name, len);
}

/* Directories come in pre-order, so a parent is known before its children; the root comes last. */
static void part_mark(struct part *p)
{
	const struct table *t = p->t;

	p->is_inside[t->n_dirs] = p->base == t->n_entries;
	for (uint32_t no = 0; no < t->n_dirs; no++) {
		uint32_t slot = table_dir_slot(t, no);

		p->is_inside[no] =
			slot == p->base || p->is_inside[table_dir_no(t, t->parent[slot])];
	}
}

static uint32_t dir_parent_no(const struct part *p, uint32_t no)
{
	return table_dir_no(p->t, p->t->parent[table_dir_slot(p->t, no)]);
}

static bool has_path(const struct part *p, uint32_t no)
{
	return p->is_inside[no] && table_dir_slot(p->t, no) != p->base;
}

static int part_make_paths(struct part *p)
{
	const struct table *t = p->t;
	AUTO_FREE uint32_t *len = calloc((size_t)t->n_dirs + 1, sizeof(*len));
	uint64_t bytes = 0;
	uint32_t name_len;

	if (!len)
		return -ENOMEM;
	for (uint32_t no = 0; no < t->n_dirs; no++) {
		(void)table_name(t, table_dir_slot(t, no), &name_len);
		if (has_path(p, no))
			len[no] = len[dir_parent_no(p, no)] + name_len + 1;
		p->path_off[no] = (uint32_t)bytes;
		bytes += len[no];
	}
	p->path_off[t->n_dirs] = p->path_off[t->n_dirs + 1] = (uint32_t)bytes;
	if (bytes > UINT32_MAX)
		return -EOVERFLOW;
	p->paths = malloc(bytes + 1);
	if (!p->paths)
		return -ENOMEM;
	for (uint32_t no = 0; no < t->n_dirs; no++) {
		const char *name = table_name(t, table_dir_slot(t, no), &name_len);
		char *path = p->paths + p->path_off[no];
		uint32_t above = len[no] ? len[dir_parent_no(p, no)] : 0;

		if (!len[no])
			continue;
		memcpy(path, p->paths + p->path_off[dir_parent_no(p, no)], above);
		memcpy(path + above, name, name_len);
		path[above + name_len] = '/';
	}
	return 0;
}

static int part_sort(struct part *p)
{
	bool is_sorted = true;
	int rc = part_make_paths(p);

	if (rc < 0)
		return rc;
	if (p->sort != DATASET_SORT_PATH)
		p->lower = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
	for (uint32_t i = 1; i < p->n && is_sorted; i++)
		is_sorted = part_compare(&p->sample[i - 1], &p->sample[i], p) < 0;
	if (!is_sorted)
		qsort_r(p->sample, p->n, sizeof(*p->sample), part_compare, p);
	if (p->lower)
		freelocale(p->lower);
	return 0;
}

static int part_fill(struct part *p)
{
	const struct table *t = p->t;

	p->is_inside = calloc((size_t)t->n_dirs + 1, sizeof(*p->is_inside));
	p->path_off = calloc((size_t)t->n_dirs + 2, sizeof(*p->path_off));
	if (!p->is_inside || !p->path_off)
		return -ENOMEM;
	part_mark(p);
	for (uint32_t i = 0; i < t->n_samples; i++)
		p->n += part_takes(p, i);
	p->sample = malloc(MAX(p->n, 1) * sizeof(*p->sample));
	if (!p->sample)
		return -ENOMEM;
	p->n = 0;
	for (uint32_t i = 0; i < t->n_samples; i++)
		if (part_takes(p, i))
			p->sample[p->n++] = i;
	return p->sort == DATASET_SORT_INDEX ? 0 : part_sort(p);
}

int dataset_sort_parse(const char *name, enum dataset_sort *ret, struct err *err)
{
	char shown[80];
	const char *near;

	for (int i = 0; dataset_sort_names[i]; i++)
		if (strcmp(name, dataset_sort_names[i]) == 0) {
			*ret = (enum dataset_sort)i;
			return 0;
		}
	text_escape(name, strlen(name), shown, sizeof(shown));
	near = text_nearest(name, dataset_sort_names);
	if (near)
		return err_set(err, -EINVAL, "unknown sort \"%s\", did you mean \"%s\"?", shown,
			       near);
	return err_set(err, -EINVAL,
		       "unknown sort \"%s\", known: index, torchvision, timm, path, natural, "
		       "nocase, walk",
		       shown);
}

static int number_part(const struct dataset *ds, struct part *p, const char *under, struct err *err)
{
	char shown[256];
	int rc;

	text_escape(under ? under : "", under ? strlen(under) : 0, shown, sizeof(shown));
	if (under) {
		struct entry_id e = dataset_resolve(ds, under, strlen(under));

		if (entry_eq(e, ENTRY_NONE) || dataset_kind(ds, e) != ENTRY_KIND_DIR)
			return err_set(err, -ENOENT, "there is no directory \"%s\" in the dataset",
				       shown);
		p->base = dataset_slot(ds, e);
	}
	rc = part_fill(p);
	free(p->is_inside);
	free(p->path_off);
	free(p->paths);
	if (rc == 0 && p->n == 0)
		rc = err_set(err, -ENOENT, "there is no sample below \"%s\"", *shown ? shown : ".");
	else if (rc < 0)
		err_set(err, rc, "not enough memory to sort the samples");
	if (rc < 0)
		free(TAKE(p->sample));
	return rc;
}

static struct part all_of(const struct dataset *ds, enum dataset_sort sort)
{
	return (struct part){ .t = &ds->t, .sort = sort, .base = ds->t.n_entries };
}

int dataset_numbering(const struct dataset *ds, enum dataset_sort sort, const char *under,
		      uint32_t **ret_sample, uint32_t *ret_n, struct err *err)
{
	struct part p = all_of(ds, sort);
	int rc;

	p.records = dataset_has_records(ds) ? &ds->records : NULL;
	rc = number_part(ds, &p, under, err);
	*ret_sample = p.sample;
	*ret_n = p.n;
	return rc;
}

int dataset_number_all(const struct dataset *ds, enum dataset_sort sort, const char *under,
		       uint32_t **ret_sample, uint32_t *ret_n, struct err *err)
{
	struct part p = all_of(ds, sort);
	int rc = number_part(ds, &p, under, err);

	*ret_sample = p.sample;
	*ret_n = p.n;
	return rc;
}
