/* SPDX-License-Identifier: Apache-2.0 */
/* The parallel scan. Work is a stack of directories to read and a stack of directories whose names
 * still need a stat (in batches, so that one flat directory of a million files keeps every thread
 * busy). Batches go first: a directory is opened only when no batch waits, so about as many are
 * open at a time as there are threads, however wide the tree. Directories are opened by path
 * relative to the source, which holds no descriptor per level of a deep tree. Must never keep the
 * lock over a system call. Runs in the scan threads; scan_init, scan_run and scan_fini in the
 * thread that opens the dataset. */
#include <errno.h>
#include <string.h>

#include "clairfs/base/log.h"
#include "clairfs/base/text.h"
#include "scan_priv.h"

#define SCAN_LOGGED_MAX 8u

void scan_init(struct scan *s, int source_fd, struct clock *wall_clock)
{
	*s = (struct scan){ .source_fd = source_fd, .wall_clock = wall_clock,
			    .links_max = SCAN_LINKS_DEEP };
	mutex_init(&s->mu);
	cond_init(&s->cv);
}

void scan_fini(struct scan *s)
{
	for (struct scan_node *node = s->all, *next; node; node = next) {
		next = node->next_all;
		if (node->stream)
			closedir(node->stream);
		free(node->recs);
		free(node->names);
		free(node);
	}
	cond_fini(&s->cv);
	mutex_fini(&s->mu);
}

struct scan_node *scan_node_new(struct scan *s, struct scan_node *parent, uint32_t name_off,
				uint32_t name_len)
{
	struct scan_node *node = calloc(1, sizeof(*node));

	if (!node)
		return NULL;
	node->parent = parent;
	node->name_off = name_off;
	node->name_len = name_len;
	node->old_dir = UINT32_MAX;
	if (parent) {
		node->path_len = parent->path_len + (parent->parent ? 1 : 0) + name_len;
		node->is_below_link = parent->is_below_link;
	}
	mutex_lock(&s->mu);
	node->next_all = s->all;
	s->all = node;
	mutex_unlock(&s->mu);
	return node;
}

void scan_queue_dir(struct scan *s, struct scan_node *node)
{
	mutex_lock(&s->mu);
	node->next_work = s->dirs;
	s->dirs = node;
	s->n_pending++;
	cond_signal(&s->cv);
	mutex_unlock(&s->mu);
}

void scan_node_path(const struct scan_node *node, char out[DATASET_PATH_MAX + 1])
{
	char *at = out + node->path_len;

	if (!node->parent) {
		memcpy(out, ".", sizeof("."));
		return;
	}
	*at = '\0';
	for (; node->parent; node = node->parent) {
		at -= node->name_len;
		memcpy(at, node->parent->names + node->name_off, node->name_len);
		if (at > out)
			*--at = '/';
	}
}

void scan_log_skip(struct scan *s, const struct scan_node *dir, const char *name, size_t len,
		   const char *why)
{
	uint64_t before = atomic_fetch_add(&s->n_logged, 1);
	char path[DATASET_PATH_MAX + 1], shown_dir[256], shown[256];

	if (before >= SCAN_LOGGED_MAX)
		return;
	scan_node_path(dir, path);
	text_escape(path, strlen(path), shown_dir, sizeof(shown_dir));
	text_escape(name, len, shown, sizeof(shown));
	log_warn("dataset: %s/%s: %s%s", shown_dir, shown, why,
		 before + 1 == SCAN_LOGGED_MAX ? "; more of this kind are only counted" : "");
}

static void fail_locked(struct scan *s, int error) REQUIRES(s->mu)
{
	if (error < 0 && s->error == 0)
		s->error = error;
	if (s->error != 0)
		cond_broadcast(&s->cv);
}

static void end_node_locked(struct scan *s) REQUIRES(s->mu)
{
	if (--s->n_pending == 0)
		cond_broadcast(&s->cv);
}

/* The next batch of names, from the directory that was read last. */
static struct scan_node *take_batch_locked(struct scan *s, uint32_t *ret_from, uint32_t *ret_to)
	REQUIRES(s->mu)
{
	struct scan_node *node = s->batches;

	if (!node)
		return NULL;
	*ret_from = node->next_rec;
	*ret_to = MIN(node->n_recs, node->next_rec + SCAN_BATCH);
	node->next_rec = *ret_to;
	if (node->next_rec == node->n_recs)
		s->batches = node->next_work;
	return node;
}

static void do_batch(struct scan *s, struct scan_node *node, uint32_t from, uint32_t to)
{
	int error = scan_dir_stat(s, node, from, to);
	bool is_last;

	mutex_lock(&s->mu);
	fail_locked(s, error);
	node->recs_left -= to - from;
	is_last = node->recs_left == 0;
	mutex_unlock(&s->mu);
	if (!is_last)
		return;
	scan_dir_finish(node);
	mutex_lock(&s->mu);
	end_node_locked(s);
	mutex_unlock(&s->mu);
}

static void do_dir(struct scan *s, struct scan_node *node)
{
	int error = scan_dir_read(s, node);
	bool has_batches = error == 0 && node->stream && node->n_recs > SCAN_BATCH;

	if (error == 0 && node->stream && !has_batches)
		error = scan_dir_stat(s, node, 0, node->n_recs);
	mutex_lock(&s->mu);
	fail_locked(s, error);
	if (has_batches) {
		node->recs_left = node->n_recs;
		node->next_work = s->batches;
		s->batches = node;
		cond_broadcast(&s->cv);
		mutex_unlock(&s->mu);
		return;
	}
	mutex_unlock(&s->mu);
	scan_dir_finish(node);
	mutex_lock(&s->mu);
	end_node_locked(s);
	mutex_unlock(&s->mu);
}

static void scan_main(void *arg)
{
	struct scan *s = arg;
	struct scan_node *batch, *dir;
	uint32_t from, to;

	for (;;) {
		mutex_lock(&s->mu);
		while (s->error == 0 && s->n_pending > 0 && !s->batches && !s->dirs)
			cond_wait(&s->cv, &s->mu);
		if (s->error != 0 || s->n_pending == 0) {
			mutex_unlock(&s->mu);
			return;
		}
		dir = NULL;
		batch = take_batch_locked(s, &from, &to);
		if (!batch) {
			dir = s->dirs;
			s->dirs = dir->next_work;
		}
		mutex_unlock(&s->mu);
		if (batch)
			do_batch(s, batch, from, to);
		else
			do_dir(s, dir);
	}
}

int scan_run(struct scan *s, const struct scan_options *options)
{
	s->root = scan_node_new(s, NULL, 0, 0);
	if (!s->root)
		return -ENOMEM;
	if (s->old)
		s->root->old_dir = s->old->n_entries;
	scan_queue_dir(s, s->root);
	crew_run(options, "clairfs-scan", scan_main, s);
	return s->error;
}
