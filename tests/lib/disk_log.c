/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log of a directory and its rebuilding after a crash. The files are played through in memory
 * up to the cut and written out as they then are: tests make hundreds of directories from one log.
 *
 * What a power cut may do is what devices and filesystems without fsync are known to do: blocks of
 * writes that were not synced are lost each for itself; names are lost in reverse (a journal) or
 * each for itself; a file may have any size that it had since it was synced. What was synced is
 * never lost: losing that too is a broken device, which bit flips stand for.
 *
 * Bails out of the test program when out of memory. One thread at a time.
 */
#include "disk_log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

#define PAGE 4096u

enum op_kind { OP_CREATE, OP_WRITE, OP_RESIZE, OP_SYNC, OP_SYNC_DIR, OP_RENAME, OP_UNLINK };

struct op {
	enum op_kind kind;
	unsigned file;
	char *name, *to;
	uint64_t at, size; /* write: where, bytes; resize: -, the size */
	uint8_t *bytes;
};

struct disk_log {
	struct op *ops;
	size_t n, room;
	unsigned n_files;
};

struct file {
	uint8_t *data;
	uint64_t size, room;
	uint64_t sizes[8]; /* that it had since it was synced; a random choice of them */
	unsigned n_sizes;
	const char *name; /* NULL: it has none */
};

/* A rebuilding on its way. */
struct replay {
	const struct disk_log *log;
	const struct disk_cut *cut;
	struct file *files;
	size_t *synced_at; /* by file: operations before this one are safe */
	size_t dir_synced_at;
	size_t journal_end;
	unsigned loose; /* blocks met that are not synced */
};

static void *must(void *memory)
{
	if (memory)
		return memory;
	puts("Bail out! disk_log: out of memory");
	exit(99);
}

struct disk_log *disk_log_new(void)
{
	return must(calloc(1, sizeof(struct disk_log)));
}

void disk_log_free(struct disk_log *log)
{
	for (size_t i = 0; i < log->n; i++) {
		free(log->ops[i].name);
		free(log->ops[i].to);
		free(log->ops[i].bytes);
	}
	free(log->ops);
	free(log);
}

static struct op *add(struct disk_log *log, enum op_kind kind)
{
	if (log->n == log->room) {
		log->room = log->room ? 2 * log->room : 64;
		log->ops = must(realloc(log->ops, log->room * sizeof(log->ops[0])));
	}
	log->ops[log->n] = (struct op){ .kind = kind };
	return &log->ops[log->n++];
}

unsigned disk_log_create(struct disk_log *log, const char *name)
{
	struct op *op = add(log, OP_CREATE);

	op->name = must(strdup(name));
	op->file = log->n_files++;
	return op->file;
}

void disk_log_write(struct disk_log *log, unsigned file, uint64_t at, const void *bytes, size_t n)
{
	struct op *op = add(log, OP_WRITE);

	op->file = file;
	op->at = at;
	op->size = n;
	op->bytes = must(malloc(n + 1));
	memcpy(op->bytes, bytes, n);
}

void disk_log_resize(struct disk_log *log, unsigned file, uint64_t size)
{
	struct op *op = add(log, OP_RESIZE);

	op->file = file;
	op->size = size;
}

void disk_log_sync(struct disk_log *log, unsigned file)
{
	add(log, OP_SYNC)->file = file;
}

void disk_log_sync_dir(struct disk_log *log)
{
	add(log, OP_SYNC_DIR);
}

void disk_log_rename(struct disk_log *log, const char *from, const char *to)
{
	struct op *op = add(log, OP_RENAME);

	op->name = must(strdup(from));
	op->to = must(strdup(to));
}

void disk_log_unlink(struct disk_log *log, const char *name)
{
	add(log, OP_UNLINK)->name = must(strdup(name));
}

size_t disk_log_count(const struct disk_log *log)
{
	return log->n;
}

const char *disk_log_describe(const struct disk_log *log, size_t i, char out[128])
{
	static const char *const kinds[] = { "create",   "write",  "resize", "sync",
					     "sync dir", "rename", "unlink" };
	const struct op *op = &log->ops[i];

	snprintf(out, 128, "%s %s file %u at %llu, %llu", kinds[op->kind], op->name ? op->name : "",
		 op->file, (unsigned long long)op->at, (unsigned long long)op->size);
	return out;
}

/* --- playing it through --- */

static void grow(struct file *file, uint64_t size)
{
	if (size > file->room) {
		uint64_t room = ALIGN_UP(MAX(size, 2 * file->room), PAGE);

		file->data = must(realloc(file->data, room));
		memset(file->data + file->room, 0, room - file->room);
		file->room = room;
	}
}

static void remember_size(struct replay *r, struct file *file)
{
	if (file->n_sizes < ARRAY_LEN(file->sizes))
		file->sizes[file->n_sizes++] = file->size;
	else if (r->cut->random)
		file->sizes[check_rand_below(r->cut->random, ARRAY_LEN(file->sizes))] = file->size;
}

static void set_size(struct replay *r, struct file *file, uint64_t size)
{
	if (size == file->size)
		return;
	remember_size(r, file);
	grow(file, size);
	if (size < file->size && file->data)
		memset(file->data + size, 0, file->size - size);
	file->size = size;
}

/* What is found where a block was not written; NULL: what was there. */
static const uint8_t *lost_block(struct replay *r, uint32_t n, uint8_t *room)
{
	const struct disk_log *log = r->log;

	if (r->cut->lost == DISK_LOST_GARBAGE) {
		for (uint32_t i = 0; i < n; i++)
			room[i] = (uint8_t)check_rand_u64(r->cut->random);
		return room;
	}
	for (unsigned tries = 0; r->cut->lost == DISK_LOST_STALE && tries < 8; tries++) {
		const struct op *op = &log->ops[check_rand_below(r->cut->random, log->n)];

		if (op->kind == OP_WRITE && op->size >= n) {
			uint64_t n_blocks = op->size / n;

			return op->bytes + check_rand_below(r->cut->random, n_blocks) * n;
		}
	}
	return NULL;
}

static bool is_block_lost(struct replay *r)
{
	unsigned at = r->loose++;

	if (r->cut->has_mask)
		return at < 64 && !(r->cut->mask >> at & 1);
	return check_rand_below(r->cut->random, 100) < r->cut->lost_percent;
}

static void play_write(struct replay *r, size_t i)
{
	const struct op *op = &r->log->ops[i];
	struct file *file = &r->files[op->file];
	uint64_t size = op->size;
	uint8_t room[PAGE];

	if (i + 1 == r->cut->n_ops)
		size -= MIN(r->cut->missing_tail, size);
	if (size == 0)
		return;
	if (op->at + size > file->size)
		set_size(r, file, op->at + size);
	if (i < r->synced_at[op->file] || (!r->cut->random && !r->cut->has_mask)) {
		memcpy(file->data + op->at, op->bytes, size);
		return;
	}
	for (uint64_t at = 0; at < size;) {
		/* Up to the end of a block of the device. */
		uint32_t n =
			(uint32_t)MIN(r->cut->block - (op->at + at) % r->cut->block, size - at);
		const uint8_t *bytes = op->bytes + at;

		if (is_block_lost(r))
			bytes = r->cut->random ? lost_block(r, n, room) : NULL;
		if (bytes)
			memcpy(file->data + op->at + at, bytes, n);
		at += n;
	}
}

static bool is_name_lost(const struct replay *r, size_t i)
{
	if (!r->cut->random || i < r->dir_synced_at)
		return false;
	if (r->cut->has_journal)
		return i >= r->journal_end;
	return check_rand_below(r->cut->random, 100) < r->cut->lost_percent;
}

static struct file *named(struct replay *r, const char *name)
{
	for (unsigned f = 0; f < r->log->n_files; f++)
		if (r->files[f].name && strcmp(r->files[f].name, name) == 0)
			return &r->files[f];
	return NULL;
}

static void give_name(struct replay *r, struct file *file, const char *name)
{
	struct file *before = named(r, name);

	if (before)
		before->name = NULL;
	file->name = name;
}

static void play(struct replay *r, size_t i)
{
	const struct op *op = &r->log->ops[i];
	struct file *file;

	switch (op->kind) {
	case OP_WRITE:
		play_write(r, i);
		break;
	case OP_RESIZE:
		set_size(r, &r->files[op->file], op->size);
		break;
	case OP_SYNC:
		r->files[op->file].n_sizes = 0;
		break;
	case OP_SYNC_DIR:
		break;
	case OP_CREATE:
		if (!is_name_lost(r, i))
			give_name(r, &r->files[op->file], op->name);
		break;
	case OP_RENAME:
		file = named(r, op->name);
		if (file && !is_name_lost(r, i))
			give_name(r, file, op->to);
		break;
	case OP_UNLINK:
		file = named(r, op->name);
		if (file && !is_name_lost(r, i))
			file->name = NULL;
		break;
	}
}

static void find_synced(struct replay *r)
{
	size_t n_ops = r->cut->n_ops;

	r->synced_at = must(calloc(r->log->n_files + 1, sizeof(r->synced_at[0])));
	for (size_t i = 0; i < n_ops; i++) {
		if (r->log->ops[i].kind == OP_SYNC)
			r->synced_at[r->log->ops[i].file] = i;
		if (r->log->ops[i].kind == OP_SYNC_DIR)
			r->dir_synced_at = i;
	}
	r->journal_end = n_ops;
	if (r->cut->random)
		r->journal_end = r->dir_synced_at +
				 check_rand_below(r->cut->random, n_ops - r->dir_synced_at + 1);
}

static void replay_init(struct replay *r, const struct disk_log *log, const struct disk_cut *cut)
{
	*r = (struct replay){ .log = log, .cut = cut };
	CHECK(cut->n_ops <= log->n);
	CHECK(cut->block <= PAGE);
	r->files = must(calloc(log->n_files + 1, sizeof(r->files[0])));
	find_synced(r);
	for (size_t i = 0; i < cut->n_ops; i++)
		play(r, i);
	for (unsigned f = 0; f < log->n_files && cut->random; f++) {
		struct file *file = &r->files[f];

		if (file->n_sizes > 0 && check_rand_below(cut->random, 100) < cut->lost_percent)
			set_size(r, file,
				 file->sizes[check_rand_below(cut->random, file->n_sizes)]);
	}
}

static void replay_fini(struct replay *r)
{
	for (unsigned f = 0; f < r->log->n_files; f++)
		free(r->files[f].data);
	free(r->files);
	free(r->synced_at);
}

size_t disk_log_loose_blocks(const struct disk_log *log, size_t n_ops, uint32_t block)
{
	struct disk_cut cut = { .n_ops = n_ops, .block = block, .has_mask = true, .mask = ~0ull };
	struct replay r;

	replay_init(&r, log, &cut);
	replay_fini(&r);
	return r.loose;
}

static void empty_dir(int dirfd)
{
	DIR *dir = fdopendir(dup(dirfd));
	struct dirent *entry;

	CHECK(dir);
	rewinddir(dir);
	while ((entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			CHECK_INT(unlinkat(dirfd, entry->d_name, 0), 0);
	closedir(dir);
}

/* Holes stay holes. */
static void write_out(int dirfd, const struct file *file)
{
	static const uint8_t zeros[PAGE];
	AUTO_FD int fd = openat(dirfd, file->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	CHECK(fd >= 0);
	CHECK_INT(ftruncate(fd, (off_t)file->size), 0);
	for (uint64_t at = 0; at < file->size; at += PAGE) {
		size_t n = MIN(file->size - at, (uint64_t)PAGE);

		if (memcmp(file->data + at, zeros, n) != 0)
			CHECK_INT(pwrite(fd, file->data + at, n, (off_t)at), (int64_t)n);
	}
}

void disk_log_rebuild(const struct disk_log *log, const struct disk_cut *cut, const char *dir)
{
	AUTO_FD int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct replay r;

	CHECK(dirfd >= 0);
	empty_dir(dirfd);
	replay_init(&r, log, cut);
	for (unsigned f = 0; f < log->n_files; f++)
		if (r.files[f].name)
			write_out(dirfd, &r.files[f]);
	replay_fini(&r);
}
