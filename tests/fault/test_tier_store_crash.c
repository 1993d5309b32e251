/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A persistent store whose process is killed or whose machine loses power, at every write. A
 * workload (two datasets one after the other, segments sealed and given up) runs once with all its
 * system calls recorded; the directory is then rebuilt as it was after each of them, or as a power
 * cut may have left it, and opened again. Three rules: opening never fails; nothing but right bytes
 * is served, and what a killed process had put is served; the store works on, and after that
 * everything is served by the next mount, too. Beside the simulation real processes are killed in
 * the middle of real writes, because of their locks.
 *
 * The recording is global: system calls have no context. Its lock also makes the order of the
 * operations that several threads end.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "disk_log.h"
#include "src/tier/store_priv.h"
#include "store_kit.h"

#define MARK_WRITE "write  file 0 "
enum { N = 24, TOGETHER = 4, MAX_FILES = 200, MAX_ACKS = 2000 };

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct {
	struct disk_log *log;
	ino_t ino[MAX_FILES];
	unsigned file[MAX_FILES], n;
} rec;

static int file_of(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -1;
	for (unsigned i = rec.n; i-- > 0;) /* the latest with this inode number */
		if (rec.ino[i] == st.st_ino)
			return (int)rec.file[i];
	return -1;
}

static int rec_openat(int dirfd, const char *name, int flags, mode_t mode)
{
	bool is_tmpfile = (flags & O_TMPFILE) == O_TMPFILE, is_new;
	struct stat st;
	int fd;

	pthread_mutex_lock(&mu);
	is_new = !is_tmpfile && (flags & O_CREAT) &&
		 fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0;
	fd = openat(dirfd, name, flags, mode);
	if (fd >= 0 && is_new && rec.n < MAX_FILES && fstat(fd, &st) == 0) {
		rec.ino[rec.n] = st.st_ino;
		rec.file[rec.n++] = disk_log_create(rec.log, name);
		/* The directory is marked once in its life, long before anything can be lost. */
		if (strncmp(name, "seg-", 4) != 0)
			disk_log_sync_dir(rec.log);
	}
	pthread_mutex_unlock(&mu);
	return fd;
}

static ssize_t rec_pwritev(int fd, const struct iovec *iov, int n, off_t offset)
{
	ssize_t got, left;
	int file;

	pthread_mutex_lock(&mu);
	got = left = pwritev(fd, iov, n, offset);
	file = file_of(fd);
	if (file >= 0 && got > 0) {
		uint8_t *bytes = malloc((size_t)got);

		for (int i = 0; left > 0 && bytes; i++) {
			size_t part = MIN((size_t)left, iov[i].iov_len);

			memcpy(bytes + (got - left), iov[i].iov_base, part);
			left -= (ssize_t)part;
		}
		disk_log_write(rec.log, (unsigned)file, (uint64_t)offset, bytes, (size_t)got);
		if (got < 64) /* the mark */
			disk_log_sync(rec.log, (unsigned)file);
		free(bytes);
	}
	pthread_mutex_unlock(&mu);
	return got;
}

static void resized(int fd)
{
	int file = file_of(fd);
	struct stat st;

	if (file >= 0 && fstat(fd, &st) == 0)
		disk_log_resize(rec.log, (unsigned)file, (uint64_t)st.st_size);
}

static int rec_fallocate(int fd, int mode, off_t offset, off_t length)
{
	int rc;

	pthread_mutex_lock(&mu);
	rc = fallocate(fd, mode, offset, length);
	if (rc == 0)
		resized(fd);
	pthread_mutex_unlock(&mu);
	return rc;
}

static int rec_ftruncate(int fd, off_t length)
{
	int rc;

	pthread_mutex_lock(&mu);
	rc = ftruncate(fd, length);
	if (rc == 0)
		resized(fd);
	pthread_mutex_unlock(&mu);
	return rc;
}

static int rec_unlinkat(int dirfd, const char *name, int flags)
{
	int rc;

	pthread_mutex_lock(&mu);
	rc = unlinkat(dirfd, name, flags);
	if (rc == 0)
		disk_log_unlink(rec.log, name);
	pthread_mutex_unlock(&mu);
	return rc;
}

static struct store_sys rec_sys(void)
{
	struct store_sys sys = store_sys_real;

	sys.openat = rec_openat;
	sys.pwritev = rec_pwritev;
	sys.fallocate = rec_fallocate;
	sys.ftruncate = rec_ftruncate;
	sys.unlinkat = rec_unlinkat;
	return sys;
}

/* --- the workload --- */

static struct {
	size_t at[2][N];   /* operations before the put of file [set][n] had ended; 0: never */
	size_t second_set; /* operations before the first dataset was no longer wanted */
} acks;

struct putter {
	pthread_t thread;
	struct store *store;
	uint32_t set, first;
};

/* One of the two puts its files one by one, the other some together. */
static void *put_half(void *arg)
{
	struct putter *p = arg;
	uint32_t n = p->first == 0 ? 1 : TOGETHER;

	for (uint32_t i = p->first; i < N; i += 2 * n) {
		int rc[TOGETHER];

		kit_put_files(p->store, (struct kit_file){ p->set, i }, 2, n, rc);
		pthread_mutex_lock(&mu);
		for (uint32_t k = 0; k < n; k++)
			if (rc[k] == 0)
				acks.at[p->set][i + 2 * k] = disk_log_count(rec.log);
		pthread_mutex_unlock(&mu);
	}
	return NULL;
}

static struct store *open_recorded(const char *dir, uint64_t limit)
{
	static struct store_sys sys;
	struct store_params params = kit_params(dir);
	struct store *store = NULL;

	sys = rec_sys();
	params.limit_bytes = limit;
	CHECK_INT(store_open_with(&params, &sys, &store, NULL), 0);
	return store;
}

static void put_set(struct store *store, uint32_t set)
{
	struct putter putters[2];

	for (uint32_t i = 0; i < 2; i++) {
		putters[i] = (struct putter){ .store = store, .set = set, .first = i };
		CHECK_INT(pthread_create(&putters[i].thread, NULL, put_half, &putters[i]), 0);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(putters[i].thread, NULL);
}

static void record_begin(void)
{
	memset(&rec, 0, sizeof(rec));
	memset(&acks, 0, sizeof(acks));
	rec.log = disk_log_new();
}

/* Two mounts, the second one with another dataset and no room for both. */
static void record_workload(void)
{
	const char *dir = kit_dir("recorded");
	uint64_t limit = 448u << 10;
	struct store *store;

	record_begin();
	kit_clear(dir);
	store = open_recorded(dir, limit);
	put_set(store, 0);
	store_close(store);
	store = open_recorded(dir, limit);
	CHECK_U64(kit_served(store, 0, 0), 0);
	acks.second_set = disk_log_count(rec.log);
	store_claimed(store); /* of the first one nothing was asked for */
	put_set(store, 1);
	store_close(store);
	kit_clear(dir);
}

/* --- after the crash --- */

static void check_acked(struct store *store, size_t n_ops)
{
	for (uint32_t set = 0; set < 2; set++)
		for (uint32_t i = 0; i < N; i++) {
			size_t at = acks.at[set][i];
			int status;

			if (at == 0 || at > n_ops || (set == 0 && n_ops > acks.second_set))
				continue;
			status = kit_get(store, (struct kit_file){ set, i }, 0);
			if (status != 0)
				printf("# file %u of dataset %u was put after %zu operations\n", i,
				       set, at);
			CHECK_INT(status, 0);
		}
}

/* Everything is put again where it is missing, and is there in the next mount. */
static void check_goes_on(const char *dir, struct store *store)
{
	struct store_params params = kit_params(dir);

	for (uint32_t set = 0; set < 2; set++)
		for (uint32_t i = 0; i < N; i++) {
			int rc = kit_put_file(store, (struct kit_file){ set, i });

			CHECK(rc == 0 || rc == -EEXIST);
		}
	CHECK_U64(kit_served(store, 0, N) + kit_served(store, 1, N), 2 * kit_pieces(0, N));
	store_close(store);
	store = kit_open(&params);
	CHECK_U64(kit_served(store, 0, N) + kit_served(store, 1, N), 2 * kit_pieces(0, N));
	store_close(store);
}

/* Pieces that were served. */
static unsigned check_cut(const char *dir, const struct disk_cut *cut, bool is_whole)
{
	struct store_params params = kit_params(dir);
	struct store *store;
	unsigned n;

	disk_log_rebuild(rec.log, cut, dir);
	store = kit_open(&params);
	n = kit_served(store, 0, N) + kit_served(store, 1, N);
	if (!cut->random && !cut->has_mask)
		check_acked(store, cut->n_ops);
	if (is_whole)
		check_goes_on(dir, store);
	else
		store_close(store);
	return n;
}

static void killed_after_every_operation(void)
{
	const char *dir = kit_dir("rebuilt");
	unsigned n_served = 0, n_given_up = 0;
	char what[128];
	size_t n;

	record_workload();
	n = disk_log_count(rec.log);
	for (size_t i = 0; i < n; i++)
		n_given_up += strstr(disk_log_describe(rec.log, i, what), "unlink") != NULL;
	printf("# %zu operations, %u segments given up\n", n, n_given_up);
	CHECK(n > N && n_given_up > 0);
	for (size_t i = 0; i <= n; i++) {
		struct disk_cut cut = { .n_ops = i, .block = 4096 };

		if (i > 0)
			printf("# killed after %zu: %s\n", i,
			       disk_log_describe(rec.log, i - 1, what));
		n_served += check_cut(dir, &cut, i % 5 == 0);
	}
	CHECK(n_served > n * N / 4);
	disk_log_free(rec.log);
}

/* A write that was on its way when the process was killed: any part of it from its start. */
static void killed_within_a_write(void)
{
	const char *dir = kit_dir("rebuilt");
	uint64_t seed = check_seed();

	record_workload();
	for (size_t i = 1; i <= disk_log_count(rec.log); i++) {
		struct disk_cut cut = { .n_ops = i, .block = 4096 };
		char what[128];

		if (strncmp(disk_log_describe(rec.log, i - 1, what), "write", 5) != 0)
			continue;
		cut.missing_tail = 1 + check_rand_below(&seed, 16384);
		/* What this very operation ended was not put yet. */
		for (uint32_t k = 0; k < 2 * N; k++)
			if (acks.at[k / N][k % N] == i)
				acks.at[k / N][k % N] = i + 1;
		(void)check_cut(dir, &cut, i % 7 == 0);
	}
	disk_log_free(rec.log);
}

static void power_cut_at_random(void)
{
	const char *dir = kit_dir("rebuilt");
	uint64_t seed = check_seed();
	unsigned n_served = 0;

	record_workload();
	for (unsigned round = 0; round < 150; round++) {
		struct disk_cut cut = {
			.n_ops = check_rand_below(&seed, disk_log_count(rec.log)) + 1,
			.random = &seed,
			.block = check_rand_below(&seed, 2) ? 512 : 4096,
			.lost_percent = (unsigned)check_rand_below(&seed, 60),
			.lost = (enum disk_lost)check_rand_below(&seed, 3),
			.has_journal = check_rand_below(&seed, 2),
		};
		char what[128];

		/* The mark of the directory is synced by the operation that follows. */
		if (strncmp(disk_log_describe(rec.log, cut.n_ops - 1, what), MARK_WRITE,
			    strlen(MARK_WRITE)) == 0)
			cut.n_ops++;
		n_served += check_cut(dir, &cut, round % 10 == 0);
	}
	printf("# %u pieces served\n", n_served);
	CHECK(n_served > 0);
	disk_log_free(rec.log);
}

/* Two records and a seal: every set of blocks that may have reached the drive. */
static void power_cut_with_every_set_of_blocks(void)
{
	const char *recorded = kit_dir("recorded"), *dir = kit_dir("rebuilt");
	unsigned n_served = 0, n_loose;
	struct store *store;
	size_t n;

	record_begin();
	kit_clear(recorded);
	store = open_recorded(recorded, 1u << 20);
	CHECK_INT(kit_put_file(store, (struct kit_file){ 0, 3 }), 0); /* a block each */
	CHECK_INT(kit_put_file(store, (struct kit_file){ 1, 3 }), 0);
	store_close(store);
	n = disk_log_count(rec.log);
	n_loose = (unsigned)disk_log_loose_blocks(rec.log, n, 4096);
	printf("# %zu operations, %u blocks\n", n, n_loose);
	CHECK(n_loose >= 5 && n_loose <= 9);
	for (uint64_t mask = 0; mask < 1ull << n_loose; mask++)
		n_served += check_cut(
			dir,
			&(struct disk_cut){
				.n_ops = n, .block = 4096, .has_mask = true, .mask = mask },
			false);
	CHECK(n_served >= 2 && n_served < 2u << n_loose);
	disk_log_free(rec.log);
	kit_clear(recorded);
}

/* --- real processes --- */

struct shared {
	_Atomic unsigned n_put;
};
static struct shared *shared;
static unsigned writes_left;
static uint64_t part_of_last;

/* Writes a part, and that is the end. */
static ssize_t deadly_pwritev(int fd, const struct iovec *iov, int n, off_t offset)
{
	if (writes_left-- > 0)
		return pwritev(fd, iov, n, offset);
	(void)!pwrite(fd, iov[0].iov_base, MIN(ALIGN_DOWN(part_of_last, 4096ul), iov[0].iov_len),
		      offset);
	raise(SIGKILL);
	return -1;
}

static void die_while_writing(const char *dir, uint32_t set)
{
	static struct store_sys sys;
	struct store_params params = kit_params(dir);
	struct store *store;

	sys = store_sys_real;
	sys.pwritev = deadly_pwritev;
	if (store_open_with(&params, &sys, &store, NULL) < 0)
		_exit(1);
	for (uint32_t i = 0; i < N; i++)
		if (kit_put_file(store, (struct kit_file){ set, i }) == 0)
			shared->n_put = i + 1;
	store_close(store);
	_exit(0);
}

static void processes_killed_in_the_middle_of_a_write(void)
{
	const char *dir = kit_dir("killed");
	uint64_t seed = check_seed();
	unsigned n_killed = 0;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	CHECK(shared != MAP_FAILED);
	for (unsigned writes = 0; writes < N + 8; writes += 2) {
		struct store_params params = kit_params(dir);
		struct store *store;
		int status;
		pid_t pid;

		kit_clear(dir);
		shared->n_put = 0;
		writes_left = writes;
		part_of_last = check_rand_below(&seed, 40000);
		fflush(stdout);
		pid = fork();
		CHECK(pid >= 0);
		if (pid == 0)
			die_while_writing(dir, 0);
		CHECK_INT(waitpid(pid, &status, 0), pid);
		n_killed += WIFSIGNALED(status);
		CHECK(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0);
		store = kit_open(&params);
		CHECK(kit_served(store, 0, N) >= shared->n_put);
		for (uint32_t i = 0; i < shared->n_put; i++)
			CHECK_INT(kit_get(store, (struct kit_file){ 0, i }, 0), 0);
		check_goes_on(dir, store);
	}
	printf("# %u processes killed\n", n_killed);
	CHECK(n_killed > N / 4);
}

static const struct check_test tests[] = {
	{ "processes_killed_in_the_middle_of_a_write", processes_killed_in_the_middle_of_a_write },
	{ "killed_after_every_operation", killed_after_every_operation },
	{ "killed_within_a_write", killed_within_a_write },
	{ "power_cut_with_every_set_of_blocks", power_cut_with_every_set_of_blocks },
	{ "power_cut_at_random", power_cut_at_random },
};

CHECK_MAIN(tests)
