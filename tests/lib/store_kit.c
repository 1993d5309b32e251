/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kit of the store's tests. The bytes of segments are laid out here a second time, from
 * FORMAT.md: a writer and a reader that agree on the same mistake would not be found otherwise, and
 * a hostile segment must have sums that are right.
 *
 * One thread at a time, but puts and reads of a store may run on several.
 */
#include "store_kit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "check.h"

#define SEAL_BYTES 96u
#define ENTRY_BYTES 48u

uint64_t kit_size(struct kit_file file)
{
	uint64_t z = (file.set + 1) * 0x9e3779b97f4a7c15ull + file.n * 0xbf58476d1ce4e5b9ull;

	z = (z ^ (z >> 29)) * 0x94d049bb133111ebull;
	z ^= z >> 32;
	switch (file.n % 16) {
	case 3: /* the seal just fits, and just does not */
		return 4096 - SEAL_BYTES;
	case 7:
		return 8192 - SEAL_BYTES + 1;
	case 11:
		return 12288;
	default:
		return z % 20000 + 1;
	}
}

struct file_identity kit_identity(struct kit_file file)
{
	return (struct file_identity){ .ino = file.n + 1000,
				       .size = kit_size(file),
				       .mtime_ns = (int64_t)file.set * 1000 - 5,
				       .ctime_ns = (int64_t)file.set + 7 };
}

static uint64_t stamp_of(struct kit_file file)
{
	return file.set * 1000003ull + file.n;
}

static void *aligned(size_t n)
{
	void *memory = NULL;

	CHECK_INT(posix_memalign(&memory, KIT_BLOCK, ALIGN_UP(n + 1, (size_t)KIT_BLOCK)), 0);
	memset(memory, 0, ALIGN_UP(n + 1, (size_t)KIT_BLOCK));
	return memory;
}

uint8_t *kit_bytes(struct kit_file file, uint32_t piece, uint32_t *ret_length)
{
	uint32_t length = piece_length(kit_size(file), piece);
	uint8_t *bytes = aligned(length);

	for (uint32_t i = 0; i < length; i++)
		bytes[i] = version_byte(stamp_of(file), (uint64_t)piece * PIECE_BYTES + i);
	*ret_length = length;
	return bytes;
}

static char shm_dir[] = "/dev/shm/clairfs-kit-XXXXXX";

static void remove_shm_dir(void)
{
	DIR *dir = opendir(shm_dir);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		char *path AUTO_FREE = NULL;

		if (entry->d_name[0] == '.' || asprintf(&path, "%s/%s", shm_dir, entry->d_name) < 0)
			continue;
		kit_clear(path);
		rmdir(path);
	}
	if (dir)
		closedir(dir);
	rmdir(shm_dir);
}

const char *kit_dir(const char *name)
{
	static struct {
		char name[32], *path;
	} known[32];
	static bool is_made, is_shm;
	unsigned i = 0;

	while (i < ARRAY_LEN(known) && known[i].path && strcmp(known[i].name, name) != 0)
		i++;
	CHECK(i < ARRAY_LEN(known));

	if (!is_made) {
		is_shm = mkdtemp(shm_dir) != NULL;
		if (is_shm)
			atexit(remove_shm_dir);
		is_made = true;
	}
	if (!known[i].path) {
		snprintf(known[i].name, sizeof(known[i].name), "%s", name);
		CHECK(asprintf(&known[i].path, "%s/%s", is_shm ? shm_dir : check_tmpdir(), name) >
		      0);
	}
	CHECK(mkdir(known[i].path, 0700) == 0 || errno == EEXIST);
	return known[i].path;
}

void kit_clear(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			(void)unlinkat(dirfd(dir), entry->d_name, 0);
	if (dir)
		closedir(dir);
}

struct store_params kit_params(const char *dir)
{
	return (struct store_params){ .dir = dir,
				      .is_persistent = true,
				      .fsid = KIT_FSID,
				      .limit_bytes = 64u << 20,
				      .segment_bytes = 128u << 10,
				      .engine = IO_ENGINE_POOL,
				      .max_inflight = 2 };
}

struct store *kit_open(const struct store_params *params)
{
	struct store *store = NULL;
	struct err err = { 0 };
	int rc = store_open(params, &store, &err);

	if (rc < 0)
		printf("# store_open: %s\n", err.msg);
	CHECK_INT(rc, 0);
	return store;
}

int kit_put(struct store *store, struct kit_file file, uint32_t piece)
{
	struct file_identity id = kit_identity(file);
	uint32_t length;
	AUTO_FREE uint8_t *bytes = kit_bytes(file, piece, &length);

	return store_put(store, (struct piece_key){ { file.n }, piece }, &id, bytes, length);
}

int kit_put_file(struct store *store, struct kit_file file)
{
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < piece_count(kit_size(file)); i++)
		rc = kit_put(store, file, i);
	return rc;
}

void kit_put_files(struct store *store, struct kit_file first, uint32_t step, uint32_t n,
		   int *statuses)
{
	enum { MAX = 64 };
	struct file_identity ids[MAX];
	struct tier_piece pieces[MAX];
	uint32_t of[MAX], n_pieces = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct kit_file file = { first.set, first.n + i * step };

		ids[i] = kit_identity(file);
		statuses[i] = 0;
		for (uint32_t k = 0; k < piece_count(kit_size(file)); k++) {
			uint32_t length;

			CHECK(n_pieces < MAX);
			of[n_pieces] = i;
			pieces[n_pieces].data = kit_bytes(file, k, &length);
			pieces[n_pieces].key = (struct piece_key){ { file.n }, k };
			pieces[n_pieces].identity = &ids[i];
			pieces[n_pieces++].length = length;
		}
	}
	store_put_many(store, pieces, n_pieces);
	for (uint32_t i = 0; i < n_pieces; i++) {
		if (statuses[of[i]] == 0)
			statuses[of[i]] = pieces[i].status;
		free((void *)pieces[i].data);
	}
}

int kit_get(struct store *store, struct kit_file file, uint32_t piece)
{
	struct file_identity id = kit_identity(file);
	/* Another number than it was put with: it is no part of what is asked for. */
	struct waited_read *w = waited_read_new((struct entry_id){ file.n + 5 }, piece, NULL, &id);
	int status = waited_read_run(store_tier(store), w);

	if (status == 0) {
		uint32_t length;
		AUTO_FREE uint8_t *want = kit_bytes(file, piece, &length);

		CHECK_BYTES(w->read.ask.buf, want, length);
	}
	waited_read_free(w);
	return status;
}

unsigned kit_served(struct store *store, uint32_t set, uint32_t n)
{
	unsigned served = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct kit_file file = { set, i };

		for (uint32_t piece = 0; piece < piece_count(kit_size(file)); piece++) {
			int status = kit_get(store, file, piece);

			if (status == -EIO)
				CHECK_INT(kit_get(store, file, piece), -ENOENT);
			else if (status == 0)
				CHECK_INT(kit_get(store, file, piece), 0);
			else
				CHECK_INT(status, -ENOENT);
			served += status == 0;
		}
	}
	return served;
}

unsigned kit_pieces(uint32_t set, uint32_t n)
{
	unsigned pieces = 0;

	for (uint32_t i = 0; i < n; i++)
		pieces += piece_count(kit_size((struct kit_file){ set, i }));
	return pieces;
}

/* --- by hand --- */

static void put_u32(uint8_t *at, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		at[i] = (uint8_t)(v >> (8 * i));
}

static void put_u64(uint8_t *at, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		at[i] = (uint8_t)(v >> (8 * i));
}

static uint32_t get_u32(const uint8_t *at)
{
	return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
	       (uint32_t)at[3] << 24;
}

uint64_t kit_record_bytes(uint32_t length)
{
	return ALIGN_UP((uint64_t)length + SEAL_BYTES, (uint64_t)KIT_BLOCK);
}

void kit_sum_header(uint8_t *header, uint64_t number)
{
	put_u64(header + 40, XXH3_64bits_withSeed(header, 40, number));
}

void kit_sum_seal(uint8_t seal[SEAL_BYTES], const uint8_t *payload, uint32_t length,
		  uint64_t number)
{
	put_u64(seal + 80, XXH3_64bits(payload, length));
	put_u64(seal + 88, XXH3_64bits_withSeed(seal, 88, number));
}

void kit_sum_footer(struct kit_image *image)
{
	uint8_t *trailer = image->bytes + image->size - KIT_BLOCK;
	uint64_t at = (uint64_t)image->footer_block * KIT_BLOCK;
	uint64_t n =
		MIN((uint64_t)get_u32(trailer + 12) * ENTRY_BYTES, image->size - KIT_BLOCK - at);

	put_u64(trailer + 40, XXH3_64bits_withSeed(image->bytes + at, n, image->number));
	put_u64(trailer + 48, XXH3_64bits_withSeed(trailer, 48, image->number));
}

static void put_identity(uint8_t *at, struct kit_file file)
{
	struct file_identity id = kit_identity(file);

	put_u64(at, id.ino);
	put_u64(at + 8, id.size);
	put_u64(at + 16, (uint64_t)id.mtime_ns);
	put_u64(at + 24, (uint64_t)id.ctime_ns);
}

static void make_record(struct kit_image *image, const struct kit_record *record)
{
	uint8_t *at = image->bytes + (uint64_t)record->block * KIT_BLOCK, *seal;
	uint32_t length;
	AUTO_FREE uint8_t *payload = kit_bytes(record->file, record->piece, &length);

	seal = at + kit_record_bytes(length) - SEAL_BYTES;
	memcpy(at, payload, length);
	memcpy(seal, "CLFSSEAL", 8);
	put_u32(seal + 8, 2);
	put_u32(seal + 12, record->block);
	put_u64(seal + 16, image->number);
	put_u64(seal + 24, record->fsid ? record->fsid : KIT_FSID);
	put_u32(seal + 32, record->piece);
	put_u32(seal + 36, length);
	put_identity(seal + 40, record->file);
	put_u32(seal + 72, record->entry);
	if (record->spoil)
		record->spoil(at, length, seal);
	kit_sum_seal(seal, at, length, image->number);
}

static void make_footer(struct kit_image *image, const struct kit_record *records, unsigned n)
{
	uint8_t *trailer = image->bytes + image->size - KIT_BLOCK;

	for (unsigned i = 0; i < n; i++) {
		uint8_t *at =
			image->bytes + (uint64_t)image->footer_block * KIT_BLOCK + i * ENTRY_BYTES;

		put_u32(at, records[i].block);
		put_u32(at + 4, records[i].piece);
		put_u32(at + 8, piece_length(kit_size(records[i].file), records[i].piece));
		put_u32(at + 12, records[i].entry);
		put_identity(at + 16, records[i].file);
	}
	memcpy(trailer, "CLFSFOOT", 8);
	put_u32(trailer + 8, 2);
	put_u32(trailer + 12, n);
	put_u64(trailer + 16, image->number);
	put_u64(trailer + 24, KIT_FSID);
	put_u32(trailer + 32, image->footer_block);
	put_u32(trailer + 36, (uint32_t)(image->size / KIT_BLOCK) - image->footer_block - 1);
	kit_sum_footer(image);
}

void kit_image_make(struct kit_image *image, uint64_t number, struct kit_record *records,
		    unsigned n, bool is_sealed)
{
	uint64_t size = KIT_BLOCK;

	for (unsigned i = 0; i < n; i++) {
		records[i].block = (uint32_t)(size / KIT_BLOCK);
		size += kit_record_bytes(piece_length(kit_size(records[i].file), records[i].piece));
	}
	*image = (struct kit_image){ .number = number,
				     .footer_block = (uint32_t)(size / KIT_BLOCK) };
	size += ALIGN_UP((uint64_t)n * ENTRY_BYTES, (uint64_t)KIT_BLOCK) + KIT_BLOCK;
	image->size = size;
	image->bytes = aligned(size);
	memcpy(image->bytes, "CLFSSEGM", 8);
	put_u32(image->bytes + 8, 2);
	put_u32(image->bytes + 12, (uint32_t)(size / KIT_BLOCK) + 10);
	put_u64(image->bytes + 16, number);
	put_u64(image->bytes + 24, KIT_FSID);
	put_u64(image->bytes + 32, 1700000000000000000ull);
	kit_sum_header(image->bytes, number);
	for (unsigned i = 0; i < n; i++)
		make_record(image, &records[i]);
	if (is_sealed)
		make_footer(image, records, n);
}

static void write_file(int dirfd, const char *name, const void *bytes, size_t n)
{
	AUTO_FD int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	CHECK(fd >= 0);
	for (size_t at = 0; at < n;) {
		ssize_t got = write(fd, (const uint8_t *)bytes + at, n - at);

		CHECK(got > 0);
		at += (size_t)got;
	}
}

void kit_image_write(const struct kit_image *image, const char *dir)
{
	static const char marker[] = "clairfs store 2\n";
	AUTO_FD int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char name[32];

	CHECK(dirfd >= 0);
	write_file(dirfd, "clairfs-store", marker, sizeof(marker) - 1);
	snprintf(name, sizeof(name), "seg-%016llx", (unsigned long long)image->number);
	write_file(dirfd, name, image->bytes, image->size);
}
