/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store piece by piece: every length comes back, a flipped bit on the device never does, the
 * directory is looked at before it is trusted, nothing is left behind in it, and the index by
 * itself. The device is reached through the store's own descriptor.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <xxhash.h>

#include "src/tier/store_format.h"
#include "src/tier/store_priv.h"
#include "tier_reads.h"

#define MIB (1ull << 20)

static struct store_params params_of(const char *dir)
{
	return (struct store_params){
		.dir = dir, .limit_bytes = 64 * MIB, .engine = IO_ENGINE_POOL, .max_inflight = 4
	};
}

static struct store *open_store(void)
{
	struct store_params params = params_of(check_tmpdir());
	struct store *store;
	struct err err = { 0 };

	params.metrics = metrics_new();
	if (store_open(&params, &store, &err) < 0)
		printf("# %s\n", err.msg);
	CHECK_INT(err.code, 0);
	return store;
}

static void close_store(struct store *store)
{
	struct metrics *metrics = store->metrics;

	store_close(store);
	metrics_free(metrics);
}

static struct file_identity identity_of(uint64_t version, uint64_t size)
{
	return (struct file_identity){ .ino = 1000 + version,
				       .size = size,
				       .mtime_ns = -5 * (int64_t)version,
				       .ctime_ns = (int64_t)version << 40 };
}

static struct piece_key key_of(uint32_t entry, uint32_t piece)
{
	return (struct piece_key){ { entry }, piece };
}

/* Puts a piece of a file of this version and size. */
static int put(struct store *store, uint32_t entry, uint32_t piece, uint64_t version, uint64_t size)
{
	struct file_identity id = identity_of(version, size);
	uint32_t length = piece_length(size, piece);
	AUTO_FREE uint8_t *bytes = version_bytes(version, piece * MIB, length);

	return store_put(store, key_of(entry, piece), &id, bytes, length);
}

/* Reads it back; checks the bytes on success. */
static int get(struct store *store, uint32_t entry, uint32_t piece, uint64_t version, uint64_t size)
{
	struct file_identity id = identity_of(version, size);
	struct waited_read *w = waited_read_new((struct entry_id){ entry }, piece, NULL, &id);
	int status = waited_read_run(store_tier(store), w);

	if (status == 0) {
		AUTO_FREE uint8_t *want = version_bytes(version, piece * MIB, w->read.ask.length);

		CHECK_BYTES(w->read.ask.buf, want, w->read.ask.length);
	}
	CHECK(!w->read.answer.has_st);
	waited_read_free(w);
	return status;
}

static void pieces_of_all_lengths_come_back(void)
{
	static const uint32_t near[] = { 0, 4096, 8192, 110 * 1024, PIECE_BYTES };
	struct store *store = open_store();
	uint64_t n = 0, n_bytes = 0, n_file = 0;

	/* Around pages, and around the place where the seal needs a page of its own. */
	for (uint32_t i = 0; i < ARRAY_LEN(near); i++)
		for (uint32_t d = 0; d < 160; d += d < 6 || (d > 60 && d < 80) ? 1 : 13) {
			uint32_t size = near[i] + 6 - d;

			if (d > near[i] + 6 || size > PIECE_BYTES)
				continue;
			CHECK_INT(put(store, (uint32_t)n, 0, n, size), 0);
			CHECK_INT(get(store, (uint32_t)n, 0, n, size), 0);
			n++;
			n_bytes += size;
			n_file += store_record_bytes(size);
		}
	CHECK_U64(store_bytes(store), n_file + STORE_BLOCK); /* the header of the segment */
	CHECK_U64(metrics_get(store->metrics, METRIC_STORE_READS), n);
	CHECK_U64(metrics_get(store->metrics, METRIC_STORE_READ_BYTES), n_bytes);
	CHECK_U64(metrics_get(store->metrics, METRIC_STORE_BYTES_WRITTEN), n_file + STORE_BLOCK);
	CHECK_U64(metrics_get(store->metrics, METRIC_STORE_ERRORS), 0);
	close_store(store);
}

static void pieces_of_a_large_file_are_kept_apart(void)
{
	struct store *store = open_store();
	uint64_t size = 5 * MIB / 2;
	struct file_identity id = identity_of(1, size);

	for (uint32_t piece = 0; piece < 3; piece++) {
		CHECK(!store_has(store, key_of(7, piece), &id));
		CHECK_INT(get(store, 7, piece, 1, size), -ENOENT);
		CHECK_INT(put(store, 7, piece, 1, size), 0);
		CHECK(store_has(store, key_of(7, piece), &id));
	}
	for (uint32_t piece = 0; piece < 3; piece++)
		CHECK_INT(get(store, 7, piece, 1, size), 0);
	CHECK_INT(put(store, 7, 1, 1, size), -EEXIST);
	store_forget(store, &id, 0, 2);
	CHECK_INT(get(store, 7, 0, 1, size), -ENOENT);
	CHECK_INT(get(store, 7, 1, 1, size), -ENOENT);
	CHECK_INT(get(store, 7, 2, 1, size), 0);
	CHECK_INT(put(store, 7, 1, 1, size), 0);
	CHECK_INT(get(store, 7, 1, 1, size), 0);
	close_store(store);
}

static bool is_wanted(struct store *store, const struct file_identity *id, uint32_t piece)
{
	struct store_tag tag = store_tag_of(&store->index, store->p.fsid, id, piece);
	struct store_found found;

	return store_index_find(&store->index, &tag, NULL, &found) && found.flags & STORE_WANTED;
}

/* 4 PiB, all but a piece of it a hole: a file has as many pieces as there are numbers, and to go
 * through them takes ten minutes. */
static void work_is_for_what_is_kept_and_not_for_what_a_file_has(void)
{
	enum { PIECE = 5 };
	struct store *store = open_store();
	uint64_t size = 4ull << 50;
	struct file_identity id = identity_of(1, size);
	uint32_t n = piece_count(size);

	store_unwant(store, &id, 0, n);
	store_forget(store, &id, 0, n);
	CHECK_INT(put(store, 7, PIECE, 1, size), 0);
	CHECK_U64(atomic_load(&store->pieces_end), PIECE + 1);
	CHECK(is_wanted(store, &id, PIECE));
	store_unwant(store, &id, 0, n);
	CHECK(!is_wanted(store, &id, PIECE));
	store_forget(store, &id, PIECE + 1, n);
	CHECK_INT(get(store, 7, PIECE, 1, size), 0);
	store_forget(store, &id, 0, n);
	CHECK_INT(get(store, 7, PIECE, 1, size), -ENOENT);
	close_store(store);
}

static void another_version_is_not_found(void)
{
	struct store *store = open_store();
	struct file_identity id = identity_of(1, 5000), other = identity_of(2, 5000);

	CHECK_INT(put(store, 3, 0, 1, 5000), 0);
	CHECK_INT(get(store, 3, 0, 2, 5000), -ENOENT);
	CHECK_INT(get(store, 3, 0, 1, 4000), -ENOENT);
	CHECK(!store_has(store, key_of(3, 0), &other));
	CHECK_INT(get(store, 3, 0, 1, 5000), 0); /* asking harms nothing */
	CHECK_INT(put(store, 3, 0, 2, 5000), 0);
	CHECK_INT(get(store, 3, 0, 2, 5000), 0);
	store_forget(store, &id, 0, 1); /* of the old version */
	CHECK_INT(get(store, 3, 0, 1, 5000), -ENOENT);
	CHECK(!store_has(store, key_of(3, 0), &id));
	CHECK_INT(get(store, 9, 0, 2, 5000), 0); /* another name of the same file */
	close_store(store);
}

static void wrong_lengths_are_refused(void)
{
	struct store *store = open_store();
	struct file_identity id = identity_of(1, 5000);
	static const uint8_t bytes[5001];

	CHECK_INT(store_put(store, key_of(1, 0), &id, bytes, 4999), -EINVAL);
	CHECK_INT(store_put(store, key_of(1, 0), &id, bytes, 5001), -EINVAL);
	CHECK_INT(store_put(store, key_of(1, 1), &id, bytes, 0), -EINVAL);
	CHECK_INT(store_put(store, key_of(1, 0), &id, bytes, 5000), 0); /* did not switch it off */
	close_store(store);
}

/* Where the next record will be. */
static uint64_t end_of(const struct store *store)
{
	return store->open ? (uint64_t)store->open->tail * STORE_BLOCK : STORE_BLOCK;
}

/* Flips bits of a byte of the file of the store, around its page cache or not. */
static void flip(struct store *store, uint64_t at, uint8_t bits)
{
	char path[64];
	uint8_t byte;
	AUTO_FD int fd = -1;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", store->open->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0);
	CHECK_INT(pread(fd, &byte, 1, (off_t)at), 1);
	byte ^= bits;
	CHECK_INT(pwrite(fd, &byte, 1, (off_t)at), 1);
	CHECK_INT(fdatasync(fd), 0);
}

static void flipped_bits_are_never_served(void)
{
	static const uint32_t sizes[] = { 0, 1, 5000, 4096 - STORE_SEAL_BYTES, 8190, 20000 };
	struct store *store = open_store();
	uint64_t seed = check_seed(), n_flips = 0;

	for (uint32_t i = 0; i < ARRAY_LEN(sizes); i++) {
		uint32_t size = sizes[i], n = store_record_bytes(size), left = 0;

		/* Every byte of the seal, and bytes of the payload: first, last, others at random.
		 */
		for (uint32_t at = 0; at < n; at++) {
			bool is_seal = at >= n - STORE_SEAL_BYTES;
			uint64_t base = end_of(store);

			if (!is_seal && (at >= size || (at && at + 1 < size && left++ % 997)))
				continue;
			CHECK_INT(put(store, i, 0, at, size), 0);
			flip(store, base + at, (uint8_t)(1u << check_rand_below(&seed, 8)));
			CHECK_INT(get(store, i, 0, at, size), -EIO);
			/* Forgotten: not tried again, and may be put again. */
			CHECK_INT(get(store, i, 0, at, size), -ENOENT);
			n_flips++;
		}
	}
	printf("# %llu flips\n", (unsigned long long)n_flips);
	CHECK(n_flips > ARRAY_LEN(sizes) * STORE_SEAL_BYTES);
	CHECK_U64(metrics_get(store->metrics, METRIC_STORE_ERRORS), n_flips);
	CHECK_INT(put(store, 0, 0, 0, sizes[0]), 0);
	CHECK_INT(get(store, 0, 0, 0, sizes[0]), 0);
	close_store(store);
}

/* A whole record in the place of another one: right sums, wrong piece. */
static void record_of_another_piece_is_never_served(void)
{
	struct store *store = open_store();
	uint64_t first = end_of(store), second;
	uint8_t record[4096];
	char path[64];
	AUTO_FD int fd = -1;

	CHECK_INT(put(store, 1, 0, 1, 3000), 0);
	second = end_of(store);
	CHECK_INT(put(store, 2, 0, 2, 3000), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", store->open->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	CHECK_INT(pread(fd, record, sizeof(record), (off_t)first), sizeof(record));
	CHECK_INT(pwrite(fd, record, sizeof(record), (off_t)second), sizeof(record));
	CHECK_INT(fdatasync(fd), 0);
	CHECK_INT(get(store, 2, 0, 2, 3000), -EIO);
	CHECK_INT(get(store, 1, 0, 1, 3000), 0);
	close_store(store);
}

static void many_reads_share_few_buffers(void)
{
	enum { N = 100 };
	struct store *store = open_store();
	struct file_identity id = identity_of(1, 4 * MIB);
	struct waited_read *w[N];

	for (uint32_t i = 0; i < 4; i++)
		CHECK_INT(put(store, 1, i, 1, 4 * MIB), 0);
	for (uint32_t i = 0; i < N; i++) {
		w[i] = waited_read_new((struct entry_id){ 1 }, i % 4, NULL, &id);
		w[i]->read.ask.is_urgent = i % 3 == 0;
		tier_read(store_tier(store), &w[i]->read);
	}
	for (uint32_t i = 0; i < N; i++) {
		AUTO_FREE uint8_t *want = version_bytes(1, i % 4 * MIB, MIB);

		CHECK_INT(waited_read_wait(w[i]), 0);
		CHECK_BYTES(w[i]->read.ask.buf, want, MIB);
		waited_read_free(w[i]);
	}
	tier_free(store_tier(store)); /* only waits */
	CHECK_U64(store->reader.n_free, store->reader.n_buffers);
	CHECK(store->reader.n_buffers <= 4);
	CHECK_INT(get(store, 1, 0, 1, 4 * MIB), 0);
	close_store(store);
	store_close(NULL);
}

static void every_engine_reads_the_same(void)
{
	for (enum io_engine engine = IO_ENGINE_AUTO; engine <= IO_ENGINE_URING; engine++) {
		struct store_params params = params_of(check_tmpdir());
		struct store *store;
		struct err err = { 0 };

		params.engine = engine;
		if (store_open(&params, &store, &err) < 0) {
			/* Rings may be switched off; the pool never. */
			CHECK(engine == IO_ENGINE_URING);
			CHECK_CONTAINS(err.msg, "store: ");
			continue;
		}
		printf("# %s: %s, %s\n", io_engine_names[engine], store_engine_name(store),
		       store->dir.is_direct ? "direct" : "through the page cache");
		for (uint32_t i = 0; i < 40; i++)
			CHECK_INT(put(store, i, 0, i, 1 + i * 9000), 0);
		for (uint32_t i = 0; i < 40; i++)
			CHECK_INT(get(store, i, 0, i, 1 + i * 9000), 0);
		store_close(store);
	}
}

/* tmpfs, or whatever refuses O_DIRECT here: forced, so that it is tested on every machine. */
static void store_works_through_the_page_cache(void)
{
	struct store *store = open_store();

	store->dir.is_direct = false;
	for (uint32_t i = 0; i < 50; i++)
		CHECK_INT(put(store, i, 0, i, MIB), 0);
	for (uint32_t i = 0; i < 50; i++)
		CHECK_INT(get(store, i, 0, i, MIB), 0);
	close_store(store);
}

static int count_files(const char *path)
{
	DIR *dir = opendir(path);
	int n = 0;

	CHECK(dir != NULL);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n - 2;
}

static void directories_of_others_are_refused(void)
{
	AUTO_FREE char *dir = check_tmpfile("dir"), *link = check_tmpfile("link"),
		       *file = check_write_file("file", "x", 1);
	struct store_params params = params_of(dir);
	struct store *store;
	struct err err;

	CHECK_INT(store_open(&params, &store, &err), -ENOENT);
	CHECK_CONTAINS(err.msg, dir);
	CHECK_INT(mkdir(dir, 0700), 0);
	CHECK_INT(chmod(dir, 0770), 0);
	CHECK_INT(store_open(&params, &store, &err), -EPERM);
	CHECK_CONTAINS(err.msg, "chmod go-w");
	CHECK_INT(chmod(dir, 0707), 0);
	CHECK_INT(store_open(&params, &store, &err), -EPERM);
	CHECK_INT(chmod(dir, 01777), 0);
	CHECK_INT(store_open(&params, &store, &err), 0);
	store_close(store);
	CHECK_INT(chmod(dir, 0755), 0);
	CHECK_INT(store_open(&params, &store, &err), 0);
	CHECK_INT(count_files(dir), 0);
	store_close(store);
	CHECK_INT(symlink(dir, link), 0);
	params.dir = link;
	CHECK(store_open(&params, &store, &err) < 0);
	params.dir = file;
	CHECK_INT(store_open(&params, &store, &err), -ENOTDIR);
	if (geteuid() == 0) {
		CHECK_INT(chown(dir, 12345, 12345), 0);
		params.dir = dir;
		CHECK_INT(store_open(&params, &store, &err), -EPERM);
		CHECK_CONTAINS(err.msg, "12345");
	}
	params.dir = check_tmpdir();
	params.max_inflight = 0; /* an error after the file was made */
	CHECK_INT(store_open(&params, &store, &err), -EINVAL);
}

static void killed_store_leaves_nothing_behind(void)
{
	AUTO_FREE char *dir = check_tmpfile("killed");
	int pipes[2], status;
	char ready = 0;
	pid_t pid;

	CHECK_INT(mkdir(dir, 0700), 0);
	CHECK_INT(pipe(pipes), 0);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		struct store_params params = params_of(dir);
		struct store *store;

		close(pipes[0]);
		if (store_open(&params, &store, NULL) == 0 && put(store, 1, 0, 1, MIB) == 0)
			ready = 1;
		(void)!write(pipes[1], &ready, 1);
		for (;;)
			pause();
	}
	close(pipes[1]);
	CHECK_INT(read(pipes[0], &ready, 1), 1);
	CHECK_INT(ready, 1);
	CHECK_INT(kill(pid, SIGKILL), 0);
	CHECK_INT(waitpid(pid, &status, 0), pid);
	close(pipes[0]);
	CHECK_INT(count_files(dir), 0);
	CHECK_INT(rmdir(dir), 0);
}

static void file_made_under_a_name_has_none(void)
{
	AUTO_FREE char *dir = check_tmpfile("named");
	struct store_dir at = { .sys = &store_sys_real };
	AUTO_FD int a = -1, b = -1;
	struct stat st;

	CHECK_INT(mkdir(dir, 0700), 0);
	at.fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	a = store_file_make_named(&at, 0);
	b = store_file_make_named(&at, 0);
	CHECK(a >= 0 && b >= 0);
	CHECK_INT(count_files(dir), 0);
	CHECK_INT(fstat(a, &st), 0);
	CHECK_U64(st.st_nlink, 0);
	CHECK_INT(st.st_mode & 0777, 0600);
	CHECK_INT(pwrite(a, "x", 1, 0), 1);
	CHECK_INT(rmdir(dir), 0);
	CHECK_INT(store_file_make_named(&at, 0), -ENOENT);
	close(at.fd);
}

static void index_takes_40_bytes_per_record_at_most(void)
{
	static struct store_index index;
	struct file_identity id = identity_of(1, 1);
	struct store_found found;
	uint64_t bytes, pieces, next = 1024;
	struct store_tag tag;

	store_index_init(&index, 42);
	tag = store_tag_of(&index, 1, &id, 0);
	CHECK(!store_index_find(&index, &tag, NULL, &found));
	CHECK(!store_index_remove(&index, &tag, STORE_NO_PLACE, &found));
	for (uint32_t i = 0; i < 200000; i++) {
		tag = store_tag_of(&index, 1, &id, i);
		CHECK_INT(store_index_add(&index, &tag, i, 0), 0);
		if (i != next)
			continue;
		next = next * 9 / 8;
		store_index_usage(&index, &bytes, &pieces);
		CHECK_U64(pieces, i + 1);
		/* Small tables come in steps; a few thousand records are a few pages anyway. */
		CHECK(bytes <= 40 * pieces || pieces < 8192);
	}
	for (uint32_t i = 0; i < 200000; i++) {
		tag = store_tag_of(&index, 1, &id, i);
		CHECK(store_index_find(&index, &tag, NULL, &found));
		CHECK_U64(found.place, i);
	}
	store_index_fini(&index);
}

/* The one that is chosen for the processor is the one that the format names. */
static void sums_of_payloads_are_those_of_the_format(void)
{
	uint64_t state = check_seed();
	AUTO_FREE uint8_t *bytes = malloc(PIECE_BYTES);

	CHECK(bytes);
	for (uint32_t i = 0; i < PIECE_BYTES; i++)
		bytes[i] = (uint8_t)check_rand_u64(&state);
	for (uint32_t n = 0; n < 600; n++)
		CHECK_U64(store_payload_sum(bytes, n), XXH3_64bits(bytes, n));
	for (int i = 0; i < 100; i++) {
		uint32_t n = (uint32_t)check_rand_below(&state, PIECE_BYTES + 1);
		uint32_t at = (uint32_t)check_rand_below(&state, PIECE_BYTES - n + 1);

		CHECK_U64(store_payload_sum(bytes + at, n), XXH3_64bits(bytes + at, n));
	}
}

static const struct check_test tests[] = {
	{ "sums_of_payloads_are_those_of_the_format", sums_of_payloads_are_those_of_the_format },
	{ "pieces_of_all_lengths_come_back", pieces_of_all_lengths_come_back },
	{ "pieces_of_a_large_file_are_kept_apart", pieces_of_a_large_file_are_kept_apart },
	{ "work_is_for_what_is_kept_and_not_for_what_a_file_has",
	  work_is_for_what_is_kept_and_not_for_what_a_file_has },
	{ "another_version_is_not_found", another_version_is_not_found },
	{ "wrong_lengths_are_refused", wrong_lengths_are_refused },
	{ "flipped_bits_are_never_served", flipped_bits_are_never_served },
	{ "record_of_another_piece_is_never_served", record_of_another_piece_is_never_served },
	{ "many_reads_share_few_buffers", many_reads_share_few_buffers },
	{ "every_engine_reads_the_same", every_engine_reads_the_same },
	{ "store_works_through_the_page_cache", store_works_through_the_page_cache },
	{ "directories_of_others_are_refused", directories_of_others_are_refused },
	{ "killed_store_leaves_nothing_behind", killed_store_leaves_nothing_behind },
	{ "file_made_under_a_name_has_none", file_made_under_a_name_has_none },
	{ "index_takes_40_bytes_per_record_at_most", index_takes_40_bytes_per_record_at_most },
};

CHECK_MAIN(tests)
