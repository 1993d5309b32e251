/* SPDX-License-Identifier: Apache-2.0 */
/* The index on disk (FORMAT.md): written whole under another name and renamed, read whole into
 * memory. It is a cache of what a scan finds, so any doubt about it (owner, mode, checksum, counts,
 * structure, other source) means a scan and never an error; and a snapshot that cannot be written
 * costs time at the next start, nothing else. There is no fsync: what a crash leaves half-written
 * fails the checksum. It is read, not mapped: a file that shrinks under a mapping would kill the
 * daemon. Must never follow a symlink in the snapshot directory, nor use one that others can write
 * to. Runs in the thread that opens the dataset. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <xxhash.h>

#include "clairfs/base/buf.h"
#include "clairfs/base/text.h"
#include "dataset_priv.h"

#define SNAPSHOT_MAGIC "CLAIRDIX"
#define SNAPSHOT_VERSION 2u
#define SNAPSHOT_HASHED_FROM 16u /* behind magic and checksum */
#define SNAPSHOT_HEADER_SIZE 88u
#define SNAPSHOT_IS_SHARED 1u   /* flag: of a mount with allow_other */
#define SNAPSHOT_STEM_SIZE 33u /* 32 hex digits */

void snapshot_key_of(const char *source, int fd, uint64_t ino, struct snapshot_key *ret)
{
	AUTO_FREE char *real = realpath(source, NULL);
	struct statfs fs;

	*ret = (struct snapshot_key){ .ino = ino };
	snprintf(ret->path, sizeof(ret->path), "%s", real ? real : source);
	if (fstatfs(fd, &fs) == 0)
		memcpy(&ret->fsid, &fs.f_fsid, MIN(sizeof(ret->fsid), sizeof(fs.f_fsid)));
}

/* The name is made of everything in the key, so two sources never fight about one file. */
static void stem_of(const struct snapshot_key *key, char out[SNAPSHOT_STEM_SIZE])
{
	struct buf_writer w;
	XXH128_hash_t hash;

	buf_writer_init(&w);
	buf_put_u64(&w, key->fsid);
	buf_put_u64(&w, key->ino);
	buf_put_bytes(&w, key->path, strlen(key->path));
	if (key->is_shared)
		buf_put_u8(&w, 0); /* which is in no path */
	hash = XXH3_128bits(w.data, w.is_bad ? 0 : w.size);
	buf_writer_fini(&w);
	snprintf(out, SNAPSHOT_STEM_SIZE, "%016llx%016llx", (unsigned long long)hash.high64,
		 (unsigned long long)hash.low64);
}

void snapshot_name(const struct snapshot_key *key, char out[SNAPSHOT_NAME_SIZE])
{
	char stem[SNAPSHOT_STEM_SIZE];

	stem_of(key, stem);
	snprintf(out, SNAPSHOT_NAME_SIZE, "%s.snapshot", stem);
}

static int make_dirs(const char *path)
{
	char part[DATASET_PATH_MAX + 1];
	size_t len = strlen(path);

	if (len == 0 || len > DATASET_PATH_MAX)
		return len == 0 ? -ENOENT : -ENAMETOOLONG;
	for (size_t i = 1; i <= len; i++) {
		if (path[i] != '/' && path[i] != '\0')
			continue;
		memcpy(part, path, i);
		part[i] = '\0';
		if (mkdir(part, 0700) < 0 && errno != EEXIST)
			return -errno;
	}
	return 0;
}

char *dataset_snapshot_place(const char *told)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	char *dir = NULL;

	if (told)
		return strcmp(told, "none") == 0 ? NULL : strdup(told);
	if (geteuid() == 0)
		return strdup("/var/cache/clairfs");
	if (cache && *cache == '/')
		return asprintf(&dir, "%s/clairfs", cache) < 0 ? NULL : dir;
	if (home && *home == '/')
		return asprintf(&dir, "%s/.cache/clairfs", home) < 0 ? NULL : dir;
	return NULL;
}

int snapshot_dir_open(const char *path, char why[DATASET_WHY])
{
	char shown[DATASET_WHY / 2];
	AUTO_FD int fd = -1;
	struct stat st;
	int error = make_dirs(path);

	text_escape(path, strlen(path), shown, sizeof(shown));
	if (error == 0) {
		fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		error = fd < 0 || fstat(fd, &st) < 0 ? -errno : 0;
	}
	if (error < 0) {
		snprintf(why, DATASET_WHY, "%s: %s", shown, strerror(-error));
		return -1;
	}
	if (st.st_uid != geteuid() || (st.st_mode & 077) != 0) {
		snprintf(why, DATASET_WHY, "%s must belong to the user and have mode 0700", shown);
		return -1;
	}
	return take_fd(&fd);
}

static uint64_t padded_path_size(uint32_t path_len)
{
	return ALIGN_UP((uint64_t)path_len, 8);
}

struct header {
	uint64_t checksum, file_size;
	uint32_t version, layout, auto_layout, path_len, flags;
	uint64_t fsid, ino;
	uint64_t records_bytes; /* 0: no records */
};

static void read_header(struct buf_reader *r, struct header *h, struct table *t)
{
	h->checksum = buf_get_u64(r);
	h->version = buf_get_u32(r);
	h->layout = buf_get_u32(r);
	h->auto_layout = buf_get_u32(r);
	h->path_len = buf_get_u32(r);
	h->file_size = buf_get_u64(r);
	h->fsid = buf_get_u64(r);
	h->ino = buf_get_u64(r);
	t->n_samples = buf_get_u32(r);
	t->n_dirs = buf_get_u32(r);
	t->n_others = buf_get_u32(r);
	h->flags = buf_get_u32(r);
	t->names_bytes = buf_get_u64(r);
	h->records_bytes = buf_get_u64(r);
}

/* The table, and what brings the records behind it to a multiple of 8. */
static uint64_t padded_table_size(const struct table *t, uint64_t records_bytes)
{
	return records_bytes ? ALIGN_UP(table_blob_bytes(t), 8) : table_blob_bytes(t);
}

static uint64_t size_of(uint32_t path_len, const struct table *t, uint64_t records_bytes)
{
	return SNAPSHOT_HEADER_SIZE + padded_path_size(path_len) +
	       padded_table_size(t, records_bytes) + records_bytes;
}

static bool is_layout(uint32_t layout)
{
	return layout == LAYOUT_IMAGEFOLDER || layout == LAYOUT_FILES;
}

static bool has_sane_header(const struct header *h, const struct table *t, size_t size)
{
	return h->version == SNAPSHOT_VERSION && (h->flags & ~SNAPSHOT_IS_SHARED) == 0 &&
	       is_layout(h->layout) &&
	       is_layout(h->auto_layout) && h->path_len <= DATASET_PATH_MAX &&
	       h->file_size == size &&
	       (uint64_t)t->n_samples + t->n_dirs + t->n_others < DATASET_ENTRIES_MAX &&
	       t->names_bytes <= DATASET_NAMES_MAX && h->records_bytes <= DATASET_SNAPSHOT_MAX &&
	       size_of(h->path_len, t, h->records_bytes) == size;
}

static bool is_of_key(const struct snapshot_key *key, const struct header *h, const char *path)
{
	return !key ||
	       ((h->flags == SNAPSHOT_IS_SHARED) == key->is_shared && h->fsid == key->fsid &&
		h->ino == key->ino && h->path_len == strlen(key->path) &&
		memcmp(path, key->path, h->path_len) == 0);
}

/* The header and the sizes in it, if the first bytes of the file say that it is as large as it is.
 */
static bool read_head(int fd, uint64_t size, struct header *ret)
{
	uint8_t bytes[SNAPSHOT_HEADER_SIZE];
	struct buf_reader r;
	struct table t;

	if (pread(fd, bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes) ||
	    memcmp(bytes, SNAPSHOT_MAGIC, 8) != 0)
		return false;
	buf_reader_init(&r, bytes + 8, sizeof(bytes) - 8);
	read_header(&r, ret, &t);
	return !r.is_bad && has_sane_header(ret, &t, size);
}

bool snapshot_read_key(int fd, uint64_t size, struct snapshot_key *ret)
{
	struct header h;

	*ret = (struct snapshot_key){ .ino = 0 };
	if (!read_head(fd, size, &h) ||
	    pread(fd, ret->path, h.path_len, SNAPSHOT_HEADER_SIZE) != (ssize_t)h.path_len)
		return false;
	ret->fsid = h.fsid;
	ret->ino = h.ino;
	return strlen(ret->path) == h.path_len;
}

bool snapshot_is_of_other_version(int fd)
{
	uint8_t bytes[20];
	uint32_t version;

	if (pread(fd, bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes) ||
	    memcmp(bytes, SNAPSHOT_MAGIC, 8) != 0)
		return false;
	memcpy(&version, bytes + SNAPSHOT_HASHED_FROM, sizeof(version));
	return version != SNAPSHOT_VERSION;
}

static bool parse(uint8_t *bytes, size_t size, const struct snapshot_key *key, struct snapshot *ret)
{
	struct buf_reader r;
	struct header h;
	const void *magic, *path, *blob, *records;

	buf_reader_init(&r, bytes, size);
	magic = buf_get_bytes(&r, 8);
	if (!magic || memcmp(magic, SNAPSHOT_MAGIC, 8) != 0)
		return false;
	read_header(&r, &h, &ret->t);
	if (r.is_bad || !has_sane_header(&h, &ret->t, size) ||
	    XXH3_64bits(bytes + SNAPSHOT_HASHED_FROM, size - SNAPSHOT_HASHED_FROM) != h.checksum)
		return false;
	path = buf_get_bytes(&r, padded_path_size(h.path_len));
	blob = buf_get_bytes(&r, padded_table_size(&ret->t, h.records_bytes));
	records = buf_get_bytes(&r, h.records_bytes);
	if (!path || !blob || !records || !is_of_key(key, &h, path))
		return false;
	/* The same memory, found by checked steps above; it is ours and may be written. */
	table_place(&ret->t, bytes + ((const uint8_t *)blob - bytes));
	ret->layout = (enum dataset_layout)h.layout;
	ret->auto_layout = (enum dataset_layout)h.auto_layout;
	if (!table_is_valid(&ret->t))
		return false;
	return h.records_bytes == 0 ||
	       (records_place(&ret->records, bytes + ((const uint8_t *)records - bytes),
			      h.records_bytes) &&
		records_is_valid(&ret->records, &ret->t));
}

void snapshot_fini(struct snapshot *snap)
{
	records_fini(&snap->records);
	table_fini(&snap->t);
}

int snapshot_parse(void *take_bytes, size_t size, const struct snapshot_key *key,
		   struct snapshot *ret)
{
	*ret = (struct snapshot){ 0 };
	if (!parse(take_bytes, size, key, ret)) {
		free(take_bytes);
		*ret = (struct snapshot){ 0 };
		return -EBADMSG;
	}
	ret->t.memory = take_bytes;
	return 0;
}

static int read_all(int fd, uint8_t *bytes, size_t size)
{
	for (size_t at = 0; at < size;) {
		ssize_t n = read(fd, bytes + at, size - at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EBADMSG;
		at += (size_t)n;
	}
	return 0;
}

int snapshot_load(int dir_fd, const struct snapshot_key *key, struct snapshot *ret)
{
	const struct timespec used[2] = { { .tv_nsec = UTIME_NOW }, { .tv_nsec = UTIME_OMIT } };
	char name[SNAPSHOT_NAME_SIZE];
	AUTO_FREE uint8_t *bytes = NULL;
	struct header head;
	AUTO_FD int fd = -1;
	struct stat st;
	int error;

	snapshot_name(key, name);
	fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022) != 0)
		return -EPERM;
	if (st.st_size < (off_t)SNAPSHOT_HEADER_SIZE || (uint64_t)st.st_size > DATASET_SNAPSHOT_MAX)
		return -EBADMSG;
	if (!read_head(fd, (uint64_t)st.st_size, &head))
		return -EBADMSG; /* before any memory is taken for what a stranger says it is */
	bytes = malloc((size_t)st.st_size);
	if (!bytes)
		return -ENOMEM;
	error = read_all(fd, bytes, (size_t)st.st_size);
	if (error < 0)
		return error;
	(void)futimens(fd, used); /* for snapshot_tidy.c; a filesystem may not let us */
	return snapshot_parse(TAKE(bytes), (size_t)st.st_size, key, ret);
}

static int write_all(int fd, const uint8_t *bytes, size_t size)
{
	for (size_t at = 0; at < size;) {
		ssize_t n = write(fd, bytes + at, size - at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		at += (size_t)n;
	}
	return 0;
}

/* What stands behind the table where there are records. */
static size_t padding_of(const struct snapshot *snap, const uint8_t **ret)
{
	static const uint8_t zeros[8];

	*ret = zeros;
	return padded_table_size(&snap->t, snap->records.blob_bytes) - table_blob_bytes(&snap->t);
}

static uint64_t checksum_of(const struct buf_writer *head, const struct snapshot *snap)
{
	const uint8_t *padding;
	size_t n = padding_of(snap, &padding);
	XXH3_state_t *state = XXH3_createState();
	uint64_t sum;

	if (!state)
		return 0;
	XXH3_64bits_reset(state);
	XXH3_64bits_update(state, head->data, head->size);
	XXH3_64bits_update(state, snap->t.blob, table_blob_bytes(&snap->t));
	XXH3_64bits_update(state, padding, n);
	if (snap->records.blob_bytes > 0)
		XXH3_64bits_update(state, snap->records.blob, snap->records.blob_bytes);
	sum = XXH3_64bits_digest(state);
	XXH3_freeState(state);
	return sum;
}

/* Everything in front of the sections but magic and checksum. */
static void put_header(struct buf_writer *w, const struct snapshot_key *key,
		       const struct snapshot *snap)
{
	const struct table *t = &snap->t;
	uint32_t path_len = (uint32_t)strlen(key->path);

	buf_put_u32(w, SNAPSHOT_VERSION);
	buf_put_u32(w, snap->layout);
	buf_put_u32(w, snap->auto_layout);
	buf_put_u32(w, path_len);
	buf_put_u64(w, size_of(path_len, t, snap->records.blob_bytes));
	buf_put_u64(w, key->fsid);
	buf_put_u64(w, key->ino);
	buf_put_u32(w, t->n_samples);
	buf_put_u32(w, t->n_dirs);
	buf_put_u32(w, t->n_others);
	buf_put_u32(w, key->is_shared ? SNAPSHOT_IS_SHARED : 0);
	buf_put_u64(w, t->names_bytes);
	buf_put_u64(w, snap->records.blob_bytes);
	buf_put_bytes(w, key->path, path_len);
	for (uint64_t i = path_len; i < padded_path_size(path_len); i++)
		buf_put_u8(w, 0);
}

static int write_snapshot(int fd, const struct snapshot_key *key, const struct snapshot *snap)
{
	struct buf_writer first, head;
	const uint8_t *padding;
	size_t n = padding_of(snap, &padding);
	int error;

	buf_writer_init(&first);
	buf_writer_init(&head);
	put_header(&head, key, snap);
	buf_put_bytes(&first, SNAPSHOT_MAGIC, 8);
	buf_put_u64(&first, head.is_bad ? 0 : checksum_of(&head, snap));
	error = first.is_bad || head.is_bad ? -ENOMEM : write_all(fd, first.data, first.size);
	if (error == 0)
		error = write_all(fd, head.data, head.size);
	if (error == 0)
		error = write_all(fd, snap->t.blob, table_blob_bytes(&snap->t));
	if (error == 0)
		error = write_all(fd, padding, n);
	if (error == 0)
		error = write_all(fd, snap->records.blob, snap->records.blob_bytes);
	buf_writer_fini(&first);
	buf_writer_fini(&head);
	return error;
}

int snapshot_save(int dir_fd, const struct snapshot_key *key, const struct snapshot *snap)
{
	char stem[SNAPSHOT_STEM_SIZE], name[SNAPSHOT_NAME_SIZE], temporary[64];
	AUTO_FD int fd = -1;
	int error;

	stem_of(key, stem);
	snapshot_name(key, name);
	/* The thread's number: two mounts that start at the same time write two files. */
	snprintf(temporary, sizeof(temporary), "%s.%ld.tmp", stem, (long)gettid());
	unlinkat(dir_fd, temporary, 0);
	fd = openat(dir_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	error = write_snapshot(fd, key, snap);
	/* Errors of a network filesystem may come as late as this. */
	if (close(take_fd(&fd)) < 0 && error == 0)
		error = -errno;
	if (error == 0 && renameat(dir_fd, temporary, dir_fd, name) < 0)
		error = -errno;
	if (error < 0)
		unlinkat(dir_fd, temporary, 0);
	return error;
}
