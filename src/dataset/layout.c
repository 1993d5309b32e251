/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which files are samples and in which order: the order the training's own listing has when it
 * looks at the mount. Neither layout needs the paths as strings. Sorting whole paths is sorting
 * each directory's names, as long as a directory takes part under the name its paths have:
 *
 * - files: a directory stands for everything in it, under "name/" ("a-b" < "a/x" < "a0").
 * - imagefolder: os.walk's tuples are sorted by root, so below a class a directory takes part
 * twice, as "name" for its own files and as "name/" for what is deeper ("a" < "a-b" < "a/x"). At
 * the top, classes are sorted by name alone and each is finished before the next.
 *
 * An explicit stack, because trees may be as deep as a path is long. Must never use the locale.
 * Runs in the thread that opens the dataset.
 */
#include <errno.h>
#include <string.h>

#include "scan_priv.h"

static const char *const image_extensions[] = { ".jpg", ".jpeg", ".png",  ".ppm", ".bmp",
						".pgm", ".tif",  ".tiff", ".webp" };

/* Python compares name.lower(); no character outside of ASCII becomes a letter of these when
 * lowered. */
bool layout_is_image(const char *name, size_t len)
{
	for (size_t i = 0; i < ARRAY_LEN(image_extensions); i++) {
		size_t n = strlen(image_extensions[i]), k = 0;

		if (len < n)
			continue;
		for (; k < n; k++) {
			char c = name[len - n + k];

			if ((c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c) != image_extensions[i][k])
				break;
		}
		if (k == n)
			return true;
	}
	return false;
}

struct top_count {
	uint64_t files, images;
};

/* The number of the top directory each directory is in, counted from 0 in pre-order; UINT32_MAX for
 * the root. */
static void find_tops(const struct scan_tree *tree, uint32_t *top)
{
	top[0] = UINT32_MAX;
	for (uint32_t i = 1; i < tree->n_dirs; i++) {
		const struct scan_node *parent = tree->dirs[i]->parent;

		top[i] = parent->parent ? top[parent->ordinal] : i;
	}
}

int layout_detect(const struct scan_tree *tree, enum dataset_layout *ret)
{
	AUTO_FREE uint32_t *top = malloc(tree->n_dirs * sizeof(*top));
	AUTO_FREE struct top_count *counts = calloc(tree->n_dirs, sizeof(*counts));
	uint64_t images = 0, in_classes = 0;
	bool is_fit = true;

	if (!top || !counts)
		return -ENOMEM;
	find_tops(tree, top);
	for (uint32_t i = 0; i < tree->n_dirs; i++) {
		const struct scan_node *dir = tree->dirs[i];
		struct top_count *count = &counts[i == 0 ? 0 : top[i]];

		for (uint32_t k = 0; k < dir->n_recs; k++) {
			const struct scan_rec *rec = &dir->recs[k];

			if (rec->kind != REC_FILE)
				continue;
			count->files++;
			count->images += layout_is_image(dir->names + rec->name_off, rec->name_len);
		}
	}
	for (uint32_t i = 0; i < tree->n_dirs; i++) {
		images += counts[i].images;
		if (i == 0)
			continue;
		in_classes += counts[i].images;
		is_fit &= counts[i].files == 0 || counts[i].images > 0;
	}
	*ret = is_fit && in_classes > 0 && images * 2 >= tree->n_files ? LAYOUT_IMAGEFOLDER
								       : LAYOUT_FILES;
	return 0;
}

enum item_kind {
	ITEM_FILE,  /* one sample */
	ITEM_SELF,  /* the images of a directory, nothing deeper */
	ITEM_BELOW, /* what is inside of a directory */
	ITEM_CLASS, /* first its own images, then what is deeper */
};

struct item {
	uint32_t rec;
	uint8_t kind;
};

struct frame {
	struct scan_node *node;
	struct item *items;
	uint32_t n, at;
};

struct walk {
	struct frame *frames;
	size_t n, capacity;
	enum dataset_layout layout;
};

static struct py_name item_name(const struct scan_node *node, const struct item *item)
{
	const struct scan_rec *rec = &node->recs[item->rec];

	return (struct py_name){ .bytes = node->names + rec->name_off,
				 .len = rec->name_len,
				 .has_slash = item->kind == ITEM_BELOW };
}

static int item_cmp(const void *a, const void *b, void *arg)
{
	struct py_name na = item_name(arg, a), nb = item_name(arg, b);

	return py_name_cmp(&na, &nb);
}

static bool is_sorted(const struct frame *f)
{
	for (uint32_t i = 1; i < f->n; i++)
		if (item_cmp(&f->items[i - 1], &f->items[i], f->node) > 0)
			return false;
	return true;
}

static void add_item(struct frame *f, uint32_t rec, enum item_kind kind)
{
	f->items[f->n++] = (struct item){ .rec = rec, .kind = (uint8_t)kind };
}

/* The parts of a directory. `only_files`: a directory seen as itself, whose subdirectories come
 * elsewhere. */
static void fill_frame(struct frame *f, enum dataset_layout layout, bool only_files)
{
	const struct scan_node *node = f->node;

	for (uint32_t i = 0; i < node->n_recs; i++) {
		const struct scan_rec *rec = &node->recs[i];
		bool is_dir = rec->kind == REC_DIR;

		if (is_dir && (rec->dir->is_dropped || only_files))
			continue;
		if (layout == LAYOUT_FILES) {
			add_item(f, i, is_dir ? ITEM_BELOW : ITEM_FILE);
		} else if (only_files) {
			if (layout_is_image(node->names + rec->name_off, rec->name_len))
				add_item(f, i, ITEM_FILE);
		} else if (is_dir && !node->parent) {
			add_item(f, i, ITEM_CLASS);
		} else if (is_dir) {
			add_item(f, i, ITEM_SELF);
			add_item(f, i, ITEM_BELOW);
		}
	}
}

static int push_frame(struct walk *w, struct scan_node *node, bool only_files)
{
	struct frame f = { .node = node };

	if (node->n_recs == 0)
		return 0;
	if (w->n == w->capacity) {
		size_t capacity = w->capacity * 2 + 16;
		struct frame *bigger = realloc(w->frames, capacity * sizeof(*bigger));

		if (!bigger)
			return -ENOMEM;
		w->frames = bigger;
		w->capacity = capacity;
	}
	f.items = malloc((size_t)node->n_recs * 2 * sizeof(*f.items));
	if (!f.items)
		return -ENOMEM;
	fill_frame(&f, w->layout, only_files);
	if (!is_sorted(&f))
		qsort_r(f.items, f.n, sizeof(*f.items), item_cmp, node);
	w->frames[w->n++] = f;
	return 0;
}

static int enter(struct walk *w, struct scan_node *node, enum item_kind kind)
{
	int error = 0;

	/* The last one pushed is done first. */
	if (kind != ITEM_SELF)
		error = push_frame(w, node, false);
	if (error == 0 && kind != ITEM_BELOW)
		error = push_frame(w, node, true);
	return error;
}

int layout_walk(struct scan_node *root, enum dataset_layout layout,
		void (*emit)(void *ctx, struct scan_node *dir, struct scan_rec *rec), void *ctx)
{
	struct walk w = { .layout = layout };
	int error = push_frame(&w, root, false);

	while (error == 0 && w.n > 0) {
		struct frame *f = &w.frames[w.n - 1];
		struct scan_rec *rec;
		struct item item;

		if (f->at == f->n) {
			free(f->items);
			w.n--;
			continue;
		}
		item = f->items[f->at++];
		rec = &f->node->recs[item.rec];
		if (item.kind == ITEM_FILE)
			emit(ctx, f->node, rec);
		else
			error = enter(&w, rec->dir, item.kind);
	}
	for (size_t i = 0; i < w.n; i++)
		free(w.frames[i].items);
	free(w.frames);
	return error;
}
