/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the tree of a scan into the table: gives every entry its number (samples in layout order,
 * then directories in pre-order, then other files), copies attributes and names into the arrays in
 * that order, then lists the children. Directories that turned out to be loops or to be gone are
 * left out here, and the directory that holds their name is marked to be scanned again, since their
 * coming back would not change it. Must never recurse: trees may be as deep as a path is long. Runs
 * in the thread that opens the dataset. */
#include <errno.h>
#include <string.h>

#include "scan_priv.h"

struct builder {
	struct table *t;
	uint32_t first_dir;
	uint32_t next; /* entry number */
	uint64_t name_at;
};

static bool is_live_dir(const struct scan_rec *rec)
{
	return rec->kind == REC_DIR && !rec->dir->is_dropped;
}

static uint64_t count_nodes(const struct scan *s)
{
	uint64_t n = 0;

	for (const struct scan_node *node = s->all; node; node = node->next_all)
		n++;
	return n;
}

/* Counts what a directory holds and puts its subdirectories on the stack, the first one on top. */
static void visit(struct scan_tree *tree, struct scan_node *dir, struct scan_node **stack,
		  uint64_t *depth)
{
	for (uint32_t i = dir->n_recs; i-- > 0;) {
		const struct scan_rec *rec = &dir->recs[i];

		if (rec->kind == REC_DIR && rec->dir->is_dropped) {
			dir->skipped++;
			dir->is_untrusted = true;
			continue;
		}
		tree->names_bytes += rec->name_len;
		if (rec->kind == REC_DIR) {
			stack[(*depth)++] = rec->dir;
			continue;
		}
		tree->n_files++;
		tree->n_images_in_classes +=
			dir->parent && layout_is_image(dir->names + rec->name_off, rec->name_len);
	}
}

/* All live directories in pre-order. dirs has room for all nodes. */
static int list_dirs(struct scan_node *root, uint64_t n_nodes, struct scan_tree *tree)
{
	AUTO_FREE struct scan_node **stack = malloc(n_nodes * sizeof(struct scan_node *));
	uint64_t depth = 0;

	tree->dirs = malloc(n_nodes * sizeof(struct scan_node *));
	if (!stack || !tree->dirs)
		return -ENOMEM;
	stack[depth++] = root;
	while (depth > 0) {
		struct scan_node *dir = stack[--depth];

		dir->ordinal = tree->n_dirs;
		tree->dirs[tree->n_dirs++] = dir;
		visit(tree, dir, stack, &depth);
	}
	return 0;
}

static uint32_t build_slot_of(const struct builder *b, const struct scan_node *dir)
{
	return dir->parent ? b->first_dir + dir->ordinal - 1 : b->t->n_entries;
}

/* The next entry: everything but attributes. */
static uint32_t put_name(struct builder *b, const struct scan_node *dir, const struct scan_rec *rec)
{
	struct table *t = b->t;
	uint32_t slot = b->next++;

	t->parent[slot] = build_slot_of(b, dir);
	t->name_off[slot] = (uint32_t)b->name_at;
	memcpy(t->names + b->name_at, dir->names + rec->name_off, rec->name_len);
	b->name_at += rec->name_len;
	t->flags[slot] = rec->is_link ? SLOT_IS_LINK : 0;
	return slot;
}

static void put_file(void *ctx, struct scan_node *dir, struct scan_rec *rec)
{
	struct builder *b = ctx;

	rec->id = put_name(b, dir, rec);
	table_set_attr(b->t, rec->id, &rec->attr);
}

static void put_dir_attr(struct table *t, uint32_t slot, const struct scan_node *dir)
{
	table_set_attr(t, slot, &dir->attr);
	t->flags[slot] =
		(dir->is_link ? SLOT_IS_LINK : 0) | (dir->is_untrusted ? SLOT_UNTRUSTED : 0);
	t->dir_skipped[table_dir_no(t, slot)] = dir->skipped;
}

static void put_dirs(struct builder *b, const struct scan_tree *tree)
{
	for (uint32_t i = 1; i < tree->n_dirs; i++) {
		const struct scan_node *dir = tree->dirs[i];
		struct scan_rec as_rec = { .name_off = dir->name_off,
					   .name_len = (uint8_t)dir->name_len };

		put_dir_attr(b->t, put_name(b, dir->parent, &as_rec), dir);
	}
}

static bool is_sample(const struct scan_node *dir, const struct scan_rec *rec,
		      enum dataset_layout layout)
{
	return layout == LAYOUT_FILES ||
	       (dir->parent && layout_is_image(dir->names + rec->name_off, rec->name_len));
}

static void put_others(struct builder *b, const struct scan_tree *tree, enum dataset_layout layout)
{
	for (uint32_t i = 0; i < tree->n_dirs; i++) {
		struct scan_node *dir = tree->dirs[i];

		for (uint32_t k = 0; k < dir->n_recs; k++)
			if (dir->recs[k].kind == REC_FILE && !is_sample(dir, &dir->recs[k], layout))
				put_file(b, dir, &dir->recs[k]);
	}
}

static void put_children(struct builder *b, const struct scan_tree *tree)
{
	struct table *t = b->t;
	uint32_t at = 0;

	/* tree->dirs has the root first, the table last. */
	for (uint32_t no = 0; no <= t->n_dirs; no++) {
		const struct scan_node *dir = tree->dirs[no == t->n_dirs ? 0 : no + 1];

		t->dir_first[no] = at;
		for (uint32_t k = 0; k < dir->n_recs; k++) {
			if (dir->recs[k].kind == REC_FILE)
				t->child[at++] = dir->recs[k].id;
			else if (is_live_dir(&dir->recs[k]))
				t->child[at++] = build_slot_of(b, dir->recs[k].dir);
		}
	}
	t->dir_first[t->n_dirs + 1] = at;
}

static void put_root(struct builder *b, const struct scan_node *root)
{
	struct table *t = b->t;

	t->parent[t->n_entries] = t->n_entries;
	t->name_off[t->n_entries] = t->name_off[t->n_entries + 1] = (uint32_t)b->name_at;
	put_dir_attr(t, t->n_entries, root);
}

static int fill_table(const struct scan_tree *tree, enum dataset_layout layout, struct table *t)
{
	struct builder b = { .t = t, .first_dir = t->n_samples };
	int error = layout_walk(tree->dirs[0], layout, put_file, &b);

	if (error < 0)
		return error;
	put_dirs(&b, tree);
	put_others(&b, tree, layout);
	put_root(&b, tree->dirs[0]);
	put_children(&b, tree);
	return 0;
}

static int make_table(const struct scan_tree *tree, enum dataset_layout layout, struct table *ret,
		      struct err *err)
{
	uint64_t n_samples = layout == LAYOUT_FILES ? tree->n_files : tree->n_images_in_classes;
	struct table t = { .n_samples = (uint32_t)n_samples,
			   .n_dirs = tree->n_dirs - 1,
			   .n_others = (uint32_t)(tree->n_files - n_samples),
			   .names_bytes = tree->names_bytes };
	int error;

	if (tree->n_files + tree->n_dirs > DATASET_ENTRIES_MAX ||
	    tree->names_bytes > DATASET_NAMES_MAX)
		return err_set(err, -EOVERFLOW,
			       "the source has more entries than an index can number (2^32)");
	error = table_alloc(&t);
	if (error == 0)
		error = fill_table(tree, layout, &t);
	if (error < 0) {
		table_fini(&t);
		return err_set(err, error, "not enough memory for the index of the source");
	}
	*ret = t;
	return 0;
}

int build_table(const struct scan *s, enum dataset_layout want, struct snapshot *ret,
		struct err *err)
{
	struct scan_tree tree = { 0 };
	enum dataset_layout layout;
	int error = list_dirs(s->root, count_nodes(s), &tree);

	if (error == 0)
		error = layout_detect(&tree, &ret->auto_layout);
	if (error < 0) {
		free(tree.dirs);
		return err_set(err, error, "not enough memory for the index of the source");
	}
	layout = want == LAYOUT_AUTO ? ret->auto_layout : want;
	ret->layout = layout;
	error = make_table(&tree, layout, &ret->t, err);
	free(tree.dirs);
	return error;
}
