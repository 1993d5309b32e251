/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a mount while stage operations wait inside the kernel for pages of READs that the
 * source has not answered. Such an operation cannot be killed and keeps the FUSE device open, so an
 * unmount that takes the device away from under it hangs for good: readers, stagers and the daemon.
 *
 * Each test runs three times: as root, who may abort the connection; as root of a user namespace,
 * who may not; and as an ordinary user, who has to ask fusermount3. The latter two are children in
 * mount namespaces of their own, so nothing of the machine changes.
 *
 * Threads: the test's, one per stage operation, those of fs.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <time.h>

#include "fake_cache.h"
#include "fs_child_mount.h"
#include "fs_kit.h"

#define WAIT_S 60
#define NOBODY 65534
#define FUSE_MAJOR_MINOR makedev(10, 229)
#define FILE_BYTES 200000
#define FILES 20

struct op {
	pthread_t thread;
	struct kit *kit;
	struct entry_id entry;
	bool is_store;
	bool is_repeated; /* over all samples until it is refused */
	_Atomic int tid;
	int rc;
};

static const uint8_t page[4096];

static int run_once(struct op *op, struct entry_id entry)
{
	const struct stage_ops *ops = fs_stage_ops();
	int rc;

	if (!op->is_store)
		return ops->inval(op->kit->fs, (struct stage_file){ .entry = entry }, 0, 0);
	rc = ops->store(op->kit->fs, (struct stage_file){ .entry = entry }, 0, page, sizeof(page));
	return rc == -ENOENT ? ops->lookup(op->kit->fs, entry) : rc;
}

static void *op_main(void *arg)
{
	struct op *op = arg;
	uint32_t n = dataset_n_samples(op->kit->dataset), at = 0;

	atomic_store(&op->tid, gettid());
	do {
		op->rc = run_once(op, op->is_repeated ? (struct entry_id){ at++ % n } : op->entry);
	} while (op->is_repeated && op->rc != -ENOTCONN);
	return NULL;
}

static void op_start(struct op *op)
{
	CHECK_INT(pthread_create(&op->thread, NULL, op_main, op), 0);
}

/* Until the kernel says that it sleeps and takes no signals: it waits for a page. */
static void op_wait_stuck(struct op *op)
{
	char path[64], text[256], state = '?';

	for (int ms = 0; ms < WAIT_S * 1000 && state != 'D'; ms++) {
		AUTO_FD int fd = -1;
		const char *after;
		ssize_t got;

		usleep(1000);
		snprintf(path, sizeof(path), "/proc/self/task/%d/stat", atomic_load(&op->tid));
		fd = open(path, O_RDONLY | O_CLOEXEC);
		got = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
		text[MAX(got, 0)] = '\0';
		after = strrchr(text, ')');
		state = after && after[1] ? after[2] : '?';
	}
	CHECK(state == 'D');
}

static void op_join(struct op *op)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += WAIT_S;
	CHECK_INT(pthread_timedjoin_np(op->thread, NULL, &until), 0);
}

static bool is_end(int status)
{
	return status == 0 || status == ENOENT || status == ENOTCONN || status == ECONNABORTED ||
	       status == EIO;
}

static char *sample_list(struct kit *k, unsigned times)
{
	struct buf_writer w;
	char *list;

	buf_writer_init(&w);
	for (unsigned i = 0; i < times * FILES; i++)
		buf_printf(&w, "%s/d0/s%u\n", k->mountpoint, i % FILES);
	list = check_write_file("list", w.data, w.size);
	buf_writer_fini(&w);
	return list;
}

/* The source answers nothing; a store and an inval wait for its READ; the mount must end. */
static void stage_waits(void)
{
	static struct kit k;
	static struct op ops[2];
	AUTO_FREE char *list = NULL;
	struct kit_child reader;

	kit_init(&k);
	kit_add_samples(&k, 1, FILES, FILE_BYTES);
	kit_mount(&k, NULL);
	list = sample_list(&k, 1);
	atomic_store(&k.cache->is_holding, true);
	kit_child_start(&reader, "read-list", list, NULL);
	CHECK(fake_cache_wait_held(k.cache, 1));
	for (int i = 0; i < 2; i++) {
		ops[i] = (struct op){ .kit = &k, .entry = kit_entry(&k, "d0/s0"), .is_store = i };
		op_start(&ops[i]);
		op_wait_stuck(&ops[i]);
	}
	fs_unmount(k.fs);
	for (int i = 0; i < 2; i++)
		op_join(&ops[i]);
	CHECK(is_end(kit_child_wait(&k, &reader)));
	CHECK(fs_stage_ops()->inval_attr(k.fs, ops[0].entry) == -ENOTCONN);
	CHECK(fs_stage_ops()->lookup(k.fs, ops[0].entry) == -ENOTCONN);
	kit_fini(&k); /* the READ is completed, to nobody */
}

/* Everything at once: READs, pushes, drops and the unmount at any moment. */
static void all_at_once(void)
{
	static struct kit k;
	static struct op ops[2];
	AUTO_FREE char *list = NULL;
	struct kit_child readers[2];

	kit_init(&k);
	kit_add_samples(&k, 1, FILES, FILE_BYTES);
	kit_mount(&k, NULL);
	list = sample_list(&k, 10000);
	atomic_store(&k.cache->is_threaded, true);
	for (int i = 0; i < 2; i++) {
		ops[i] = (struct op){ .kit = &k, .is_store = i, .is_repeated = true };
		op_start(&ops[i]);
		kit_child_start(&readers[i], "read-list", list, NULL);
	}
	while (atomic_load(&k.cache->reads) < 200)
		usleep(1000);
	/* From here on some READs are left unanswered. */
	atomic_store(&k.cache->is_holding, true);
	CHECK(fake_cache_wait_held(k.cache, 1));
	fs_unmount(k.fs);
	for (int i = 0; i < 2; i++) {
		op_join(&ops[i]);
		CHECK(is_end(kit_child_wait(&k, &readers[i])));
	}
	kit_fini(&k);
}

static void child_namespace_waits(void)
{
	CHECK_INT(child_enter_namespace("10000"), 0);
	stage_waits();
}

static void child_namespace_all(void)
{
	CHECK_INT(child_enter_namespace("10000"), 0);
	all_at_once();
}

/* Becomes nobody, with a FUSE device that anybody may open. What is left in the directory is removed
 * with the parent's. */
static void become_user(void)
{
	AUTO_FREE char *dir = check_tmpfile("dev");
	AUTO_FREE char *node = check_tmpfile("dev/fuse");

	CHECK_INT(unshare(CLONE_NEWNS), 0);
	CHECK_INT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	CHECK_INT(mkdir(dir, 0755), 0);
	CHECK_INT(mount("tmpfs", dir, "tmpfs", 0, "mode=0755"), 0);
	CHECK_INT(mknod(node, S_IFCHR, FUSE_MAJOR_MINOR), 0);
	CHECK_INT(chmod(node, 0666), 0);
	CHECK_INT(mount(node, "/dev/fuse", NULL, MS_BIND, NULL), 0);
	CHECK_INT(chmod(getenv("TMPDIR"), 0711), 0); /* the parent's */
	CHECK_INT(chmod(check_tmpdir(), 0777), 0);
	CHECK(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
}

static void child_user_waits(void)
{
	become_user();
	stage_waits();
}

static void child_user_all(void)
{
	become_user();
	all_at_once();
}

static const struct check_test children[] = {
	{ "namespace_waits", child_namespace_waits },
	{ "namespace_all", child_namespace_all },
	{ "user_waits", child_user_waits },
	{ "user_all", child_user_all },
};

static void as_child(const char *name)
{
	struct kit none = { .fs = NULL };

	CHECK_INT(kit_child(&none, name, check_tmpdir(), NULL), 0);
}

static void test_unmount_ends_stage_operations_as_root(void)
{
	stage_waits();
}

static void test_unmount_ends_stage_operations_in_a_user_namespace(void)
{
	as_child("namespace_waits");
}

static void test_unmount_ends_stage_operations_as_a_user(void)
{
	as_child("user_waits");
}

static void test_unmount_among_reads_and_pushes_as_root(void)
{
	all_at_once();
}

static void test_unmount_among_reads_and_pushes_in_a_user_namespace(void)
{
	as_child("namespace_all");
}

static void test_unmount_among_reads_and_pushes_as_a_user(void)
{
	as_child("user_all");
}

/* In place of the library's: a source that may hang. */
static _Atomic bool is_source_hung;
static _Atomic int n_asking;

int fstatvfs(int fd, struct statvfs *ret)
{
	char path[64];
	int rc;

	atomic_fetch_add(&n_asking, 1);
	while (atomic_load(&is_source_hung))
		usleep(1000);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	rc = statvfs(path, ret);
	atomic_fetch_sub(&n_asking, 1);
	return rc;
}

static void test_a_source_that_hangs_in_statfs_holds_up_nothing(void)
{
	static struct kit k;

	kit_init(&k);
	kit_add_samples(&k, 2, 3, 1000);
	atomic_store(&is_source_hung, true);
	kit_mount(&k, NULL);
	CHECK_INT(atomic_load(&n_asking), 1);
	CHECK_INT(kit_child(&k, "compare", k.source, k.mountpoint), 0);
	/* Answered at once, with other numbers than the source's. */
	CHECK_INT(kit_child(&k, "statfs", k.source, k.mountpoint), EPROTO);
	kit_fini(&k);
	CHECK_INT(atomic_load(&n_asking), 1);
	/* Who was left behind may come back when everything is gone. */
	atomic_store(&is_source_hung, false);
	for (int ms = 0; ms < WAIT_S * 1000 && atomic_load(&n_asking); ms++)
		usleep(1000);
	CHECK_INT(atomic_load(&n_asking), 0);
}

static const struct check_test tests[] = {
	{ "unmount_ends_stage_operations_as_root", test_unmount_ends_stage_operations_as_root },
	{ "unmount_ends_stage_operations_in_a_user_namespace",
	  test_unmount_ends_stage_operations_in_a_user_namespace },
	{ "unmount_ends_stage_operations_as_a_user", test_unmount_ends_stage_operations_as_a_user },
	{ "unmount_among_reads_and_pushes_as_root", test_unmount_among_reads_and_pushes_as_root },
	{ "unmount_among_reads_and_pushes_in_a_user_namespace",
	  test_unmount_among_reads_and_pushes_in_a_user_namespace },
	{ "a_source_that_hangs_in_statfs_holds_up_nothing",
	  test_a_source_that_hangs_in_statfs_holds_up_nothing },
	{ "unmount_among_reads_and_pushes_as_a_user",
	  test_unmount_among_reads_and_pushes_as_a_user },
};

int main(int argc, char **argv)
{
	if (argc > 2 && strcmp(argv[1], "--child") == 0)
		for (size_t i = 0; i < ARRAY_LEN(children); i++)
			if (strcmp(argv[2], children[i].name) == 0)
				return check_main(1, argv, &children[i], 1);
	return kit_main(argc, argv, tests, ARRAY_LEN(tests));
}
