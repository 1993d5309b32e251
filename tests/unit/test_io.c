/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract of the I/O engines. Every behaviour runs on the pool and on the ring (pool_x,
 * uring_x); what is about load and life time is in test_io_load.c. Where a system refuses rings,
 * the uring_ tests check that the refusal is reported with a reason instead.
 */
#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/magic.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include "io_jobs.h"

#define MIB (1u << 20)

static int tmp_dirfd(void)
{
	int fd = open(check_tmpdir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	CHECK(fd >= 0);
	return fd;
}

static void make_file(const char *name, size_t size)
{
	AUTO_FREE uint8_t *bytes = malloc(size + 1);
	AUTO_FREE char *path = NULL;

	for (size_t i = 0; i < size; i++)
		bytes[i] = pattern_byte(i);
	path = check_write_file(name, bytes, size);
}

static unsigned count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* Reads [offset, offset + length) of a file of `size` bytes both ways and compares with the
 * model. */
static void check_read(struct io *io, int dirfd, const char *name, size_t size, uint64_t offset,
		       uint32_t length)
{
	size_t want = offset >= size ? 0 : MIN(length, size - offset);
	AUTO_FREE uint8_t *buf = malloc(length + 1);
	AUTO_FD int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC);
	struct waited_job w;

	for (int kind = IO_READ_PATH; kind <= IO_READ_FD; kind++) {
		waited_init(&w);
		w.job.kind = (enum io_kind)kind;
		w.job.dirfd = dirfd;
		w.job.path = name;
		w.job.fd = fd;
		w.job.want_stat = w.job.want_check = true;
		w.job.offset = offset;
		w.job.length = length;
		w.job.buf = buf;
		memset(buf, 0xee, length + 1);
		CHECK_INT(waited_run(io, &w), 0);
		CHECK_U64(w.job.got, want);
		for (size_t i = 0; i < want; i++) {
			if (buf[i] != pattern_byte(offset + i))
				CHECK_INT(buf[i], pattern_byte(offset + i));
		}
		CHECK_INT(buf[length], 0xee);
		CHECK_INT(w.job.st.st_size, size);
		CHECK(S_ISREG(w.job.st.st_mode));
		CHECK_U64(w.job.st_after.st_ino, w.job.st.st_ino);
		CHECK_INT(w.job.st_after.st_size, size);
		CHECK(w.job.started_ns > 0 && w.job.done_ns >= w.job.started_ns);
		CHECK_INT(w.job.fd, kind == IO_READ_FD ? fd : -1);
	}
}

static void reads_all_sizes(enum io_engine engine)
{
	static const size_t sizes[] = { 0, 1, 4095, 4096, 4097, 65536, MIB + 1 };
	static const uint64_t offsets[] = { 0, 1, 4095, 4096, MIB, MIB + 1, MIB + 2, 1ull << 40 };
	static const uint32_t lengths[] = { 0, 1, 4095, 4096, 4097, MIB + 1, 2 * MIB };
	struct io *io = engine_or_reason(engine, 4);
	AUTO_FD int dirfd = tmp_dirfd();

	if (!io)
		return;
	for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
		make_file("sized", sizes[s]);
		for (size_t o = 0; o < ARRAY_LEN(offsets); o++) {
			for (size_t l = 0; l < ARRAY_LEN(lengths); l++)
				check_read(io, dirfd, "sized", sizes[s], offsets[o], lengths[l]);
		}
	}
	io_free(io);
}

/* Files of /proc are handed out a page or less at a time: each read is short, and none of them
 * is the end. */
static void continues_short_reads(enum io_engine engine)
{
	enum { SIZE = 6 * 4096 };
	AUTO_FREE uint8_t *want = calloc(1, SIZE);
	AUTO_FREE uint8_t *got = calloc(1, SIZE);
	AUTO_FD int fd = open("/proc/kallsyms", O_RDONLY | O_CLOEXEC);
	struct io *io = engine_or_reason(engine, 4);
	size_t n = 0;
	ssize_t k;
	struct waited_job w;

	if (!io)
		return;
	CHECK(fd >= 0);
	k = pread(fd, want, SIZE, 0);
	CHECK(k > 0 && k < SIZE); /* else this test shows nothing */
	for (; k > 0; k = pread(fd, want + n, SIZE - n, (off_t)n))
		n += (size_t)k;
	waited_init(&w);
	w.job.kind = IO_READ_FD;
	w.job.fd = fd;
	w.job.buf = got;
	w.job.length = SIZE;
	CHECK_INT(waited_run(io, &w), 0);
	CHECK_U64(w.job.got, n);
	CHECK_BYTES(got, want, n);
	/* Wherever a short read ends, each byte gets to its place. */
	for (uint32_t head = 0; head <= n; head += 1021) {
		AUTO_FREE uint8_t *tail = calloc(1, SIZE);

		w.job.tail = tail;
		w.job.head = head;
		CHECK_INT(waited_run(io, &w), 0);
		CHECK_U64(w.job.got, n);
		CHECK_BYTES(got, want, head);
		CHECK_BYTES(tail, want + head, n - head);
	}
	io_free(io);
}

static void reads_into_two_places(enum io_engine engine)
{
	enum { SIZE = 9000, GUARD = 0xa5 };
	static const uint32_t heads[] = { 0, 1, 4096, SIZE - 1, SIZE, SIZE + 5 };
	static const uint32_t lengths[] = { 0, 1, 4096, 4097, SIZE, SIZE + 100 };
	struct io *io = engine_or_reason(engine, 2);
	AUTO_FD int dirfd = tmp_dirfd();
	AUTO_FD int fd = -1;

	if (!io)
		return;
	make_file("places", SIZE);
	fd = openat(dirfd, "places", O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	for (size_t i = 0; i < ARRAY_LEN(heads) * ARRAY_LEN(lengths); i++) {
		uint32_t head = heads[i / ARRAY_LEN(lengths)];
		uint32_t length = lengths[i % ARRAY_LEN(lengths)], got = MIN(length, SIZE);
		uint8_t places[2][SIZE + 200];
		struct waited_job w;

		memset(places, GUARD, sizeof(places));
		waited_init(&w);
		w.job.kind = IO_READ_FD;
		w.job.fd = fd;
		w.job.buf = places[0];
		w.job.tail = places[1];
		w.job.head = head;
		w.job.length = length;
		CHECK_INT(waited_run(io, &w), 0);
		CHECK_U64(w.job.got, got);
		for (uint32_t k = 0; k < SIZE + 200; k++) {
			CHECK_INT(places[0][k], k < MIN(head, got) ? pattern_byte(k) : GUARD);
			CHECK_INT(places[1][k], head + k < got ? pattern_byte(head + k) : GUARD);
		}
	}
	io_free(io);
}

static void make_special_files(void)
{
	AUTO_FREE char *fifo = check_tmpfile("fifo");
	AUTO_FREE char *loop = check_tmpfile("loop");
	AUTO_FREE char *dir = check_tmpfile("dir");

	make_file("plain", 10);
	if (mkfifo(fifo, 0600) < 0)
		CHECK_INT(errno, EEXIST);
	if (symlink("loop", loop) < 0)
		CHECK_INT(errno, EEXIST);
	if (mkdir(dir, 0700) < 0)
		CHECK_INT(errno, EEXIST);
}

static void reports_errors(enum io_engine engine)
{
	static const struct {
		const char *path;
		int status;
	} cases[] = {
		{ "missing", -ENOENT },
		{ "missing/file", -ENOENT },
		{ "plain/file", -ENOTDIR },
		{ "loop", -ELOOP },
		{ "dir", -EISDIR },
		{ "fifo", -EIO }, /* nobody writes to it: a blocking open would hang */
		{ "/dev/zero", -EIO },
		{ "", -ENOENT },
	};
	struct io *io = engine_or_reason(engine, 2);
	AUTO_FD int dirfd = tmp_dirfd();
	unsigned n_fds;
	struct waited_job w;
	uint8_t buf[16];

	if (!io)
		return;
	make_special_files();
	n_fds = count_fds();
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		waited_init(&w);
		w.job.dirfd = dirfd;
		w.job.path = cases[i].path;
		w.job.buf = buf;
		w.job.length = sizeof(buf);
		w.job.keep_open = true; /* not on failure */
		w.job.fd = 5;
		printf("# %s\n", cases[i].path);
		CHECK_INT(waited_run(io, &w), cases[i].status);
		CHECK_INT(w.job.fd, -1);
		CHECK_INT(w.job.got, 0);
		CHECK(w.job.done_ns >= w.job.started_ns && w.job.started_ns > 0);
	}
	waited_init(&w);
	w.job.kind = IO_READ_FD;
	w.job.buf = buf;
	w.job.length = sizeof(buf);
	CHECK_INT(waited_run(io, &w), -EBADF);
	w.job.want_stat = true;
	CHECK_INT(waited_run(io, &w), -EBADF);
	w.job.kind = IO_READ_PATH;
	w.job.path = "plain";
	CHECK_INT(waited_run(io, &w), -EBADF); /* dirfd */
	w.job.dirfd = dirfd;
	w.job.buf = NULL;
	CHECK_INT(waited_run(io, &w), -EFAULT);
	w.job.buf = buf; /* the engine lives on */
	CHECK_INT(waited_run(io, &w), 0);
	io_free(io);
	/* What the ring itself had open is gone too, hence "at most". */
	CHECK(count_fds() <= n_fds);
}

static bool is_open_in_this_process(const char *path)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *e;
	bool found = false;

	while ((e = readdir(dir))) {
		char link[4096];
		ssize_t n = readlinkat(dirfd(dir), e->d_name, link, sizeof(link) - 1);

		if (n <= 0)
			continue;
		link[n] = '\0';
		found |= strcmp(link, path) == 0;
	}
	closedir(dir);
	return found;
}

struct close_probe {
	struct waited_job w;
	char *path;
	bool was_open;
};

static void probe_done(struct io_job *job)
{
	struct close_probe *p = job->ctx;

	p->was_open = is_open_in_this_process(p->path);
	sem_post(&p->w.is_done);
}

static void closes_after_done(enum io_engine engine)
{
	struct io *io = engine_or_reason(engine, 2);
	AUTO_FD int dirfd = tmp_dirfd();
	AUTO_FREE char *path = check_tmpfile("probe");
	AUTO_FREE char *real = NULL;
	struct close_probe p = { .was_open = false };
	uint8_t buf[100];

	if (!io)
		return;
	make_file("probe", 100);
	real = realpath(path, NULL);
	waited_init(&p.w);
	p.path = real;
	p.w.job.done = probe_done;
	p.w.job.ctx = &p;
	p.w.job.dirfd = dirfd;
	p.w.job.path = "probe";
	p.w.job.buf = buf;
	p.w.job.length = 100;
	CHECK_INT(waited_run(io, &p.w), 0);
	CHECK(p.was_open);
	io_free(io);
	CHECK(!is_open_in_this_process(real));
}

static void hands_descriptor_over(enum io_engine engine)
{
	struct io *io = engine_or_reason(engine, 2);
	AUTO_FD int dirfd = tmp_dirfd();
	struct waited_job w;
	uint8_t buf[100];

	if (!io)
		return;
	make_file("kept", 100);
	waited_init(&w);
	w.job.dirfd = dirfd;
	w.job.path = "kept";
	w.job.buf = buf;
	w.job.length = 10;
	w.job.keep_open = true;
	CHECK_INT(waited_run(io, &w), 0);
	CHECK(w.job.fd >= 0);
	CHECK_INT(fcntl(w.job.fd, F_GETFL) & (O_NONBLOCK | O_ACCMODE), O_RDONLY);
	CHECK_INT(fcntl(w.job.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	w.job.kind = IO_READ_FD;
	w.job.offset = 10;
	CHECK_INT(waited_run(io, &w), 0);
	CHECK_INT(w.job.got, 10);
	CHECK_INT(buf[0], pattern_byte(10));
	io_free(io);
	CHECK_INT(fcntl(w.job.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC); /* still open */
	close(w.job.fd);
}

struct resizer {
	int fd;
	_Atomic bool is_over;
	pthread_t thread;
};

static void *resizer_run(void *arg)
{
	struct resizer *r = arg;

	for (unsigned i = 0; !atomic_load(&r->is_over); i++)
		CHECK_INT(ftruncate(r->fd, 8 * MIB - (off_t)(i % 4096)), 0);
	return NULL;
}

/* A file that is truncated during the read shows in st_after; which of many reads meets it is
 * left to chance. */
static void notices_truncation(enum io_engine engine)
{
	struct io *io = engine_or_reason(engine, 2);
	AUTO_FD int dirfd = tmp_dirfd();
	AUTO_FREE uint8_t *buf = malloc(8 * MIB);
	struct resizer r = { .fd = -1 };
	struct waited_job w;
	unsigned reads = 0;

	if (!io)
		return;
	make_file("resized", 8 * MIB);
	r.fd = openat(dirfd, "resized", O_RDWR | O_CLOEXEC);
	CHECK(r.fd >= 0);
	CHECK_INT(pthread_create(&r.thread, NULL, resizer_run, &r), 0);
	waited_init(&w);
	w.job.dirfd = dirfd;
	w.job.path = "resized";
	w.job.buf = buf;
	w.job.length = 8 * MIB;
	w.job.want_check = true;
	do {
		w.job.status = waited_run(io, &w);
	} while (w.job.status == 0 && w.job.st.st_size == w.job.st_after.st_size &&
		 ++reads < 20000);
	atomic_store(&r.is_over, true);
	pthread_join(r.thread, NULL);
	close(r.fd);
	io_free(io);
	CHECK_INT(w.job.status, 0);
	CHECK(w.job.st.st_size != w.job.st_after.st_size);
}

/* Somebody holds a lease: open with O_NONBLOCK fails then, but the read must wait and succeed. */
static void waits_for_lease(enum io_engine engine)
{
	struct io *io = engine_or_reason(engine, 1);
	AUTO_FD int dirfd = tmp_dirfd();
	AUTO_FD int fd = -1;
	struct waited_job w;
	sigset_t set;
	uint8_t buf[10];
	int sig = 0;

	if (!io)
		return;
	make_file("leased", 10);
	sigemptyset(&set);
	sigaddset(&set, SIGIO);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	fd = openat(dirfd, "leased", O_RDWR | O_CLOEXEC);
	if (fcntl(fd, F_SETLEASE, F_WRLCK) < 0) {
		printf("# no leases here (%s): nothing to wait for\n", strerror(errno));
		io_free(io);
		return;
	}
	waited_init(&w);
	w.job.dirfd = dirfd;
	w.job.path = "leased";
	w.job.buf = buf;
	w.job.length = sizeof(buf);
	io_submit(io, &w.job);
	sigwait(&set, &sig);
	CHECK_INT(sig, SIGIO);
	CHECK_INT(fcntl(fd, F_SETLEASE, F_UNLCK), 0);
	waited_wait(&w);
	CHECK_INT(w.job.status, 0);
	CHECK_INT(w.job.got, 10);
	io_free(io);
}

static void stays_beneath_where_asked(enum io_engine engine)
{
	static const struct {
		const char *path;
		int status;
	} rows[] = { { "inside/file", 0 },	   { "inside/near", 0 },
		     { "inside/../inside/file", 0 }, { "inside/out", -EXDEV },
		     { "../outside", -EXDEV },	   { "inside/root", -EXDEV },
		     { "inside/none", -ENOENT },   { "inside", -EISDIR } };
	struct io *io = engine_or_reason(engine, 4);
	AUTO_FREE char *root = check_tmpfile("beneath"), *inside = check_tmpfile("beneath/inside");
	AUTO_FD int fd = -1;
	uint8_t buf[16];

	if (!io)
		return;
	(void)mkdir(root, 0755); /* by whichever engine comes first */
	if (mkdir(inside, 0755) == 0) {
		make_file("outside", 10);
		make_file("beneath/inside/file", 10);
		fd = open(inside, O_PATH | O_DIRECTORY | O_CLOEXEC);
		CHECK_INT(symlinkat("file", fd, "near"), 0);
		CHECK_INT(symlinkat("../../outside", fd, "out"), 0);
		CHECK_INT(symlinkat("/", fd, "root"), 0);
		close(fd);
	}
	fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct waited_job w;

		printf("# %s\n", rows[i].path);
		waited_init(&w);
		w.job.kind = IO_READ_PATH;
		w.job.dirfd = fd;
		w.job.path = rows[i].path;
		w.job.is_beneath = true;
		w.job.length = sizeof(buf);
		w.job.buf = buf;
		CHECK_INT(waited_run(io, &w), rows[i].status);
		if (rows[i].status == -EXDEV) {
			w.job.is_beneath = false;
			CHECK_INT(waited_run(io, &w), i == 5 ? -EISDIR : 0);
		}
	}
	io_free(io);
}

static void refuses_bad_params(enum io_engine engine)
{
	static const unsigned bad[] = { 0, 1000000 };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct io_params params = { .name = "test", .max_inflight = bad[i] };
		struct io *io = NULL;
		struct err err = { 0 };
		int r = engine == IO_ENGINE_POOL ? io_pool_new(&params, &io, &err)
						 : io_uring_new(&params, &io, &err);

		CHECK(r == -EINVAL || (engine == IO_ENGINE_URING && r == -ENOSYS));
		CHECK(io == NULL);
		CHECK(err.msg[0]);
	}
}

static void auto_asks_the_filesystem(void)
{
	struct io_params params = { .name = "test", .max_inflight = 2 };
	AUTO_FD int dirfd = tmp_dirfd();
	AUTO_FD int mem = memfd_create("tmpfs", MFD_CLOEXEC);
	AUTO_FD int proc = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
	const char *why = NULL;
	struct io_caps caps;
	struct statfs fs;
	struct io *io;
	bool is_local;

	CHECK_INT(io_new(IO_ENGINE_AUTO, mem, &params, &io, &why, NULL), 0);
	CHECK_STR(io_name(io), "pool");
	CHECK_CONTAINS(why, "tmpfs");
	io_free(io);
	CHECK_INT(io_new(IO_ENGINE_AUTO, proc, &params, &io, &why, NULL), 0);
	CHECK_STR(io_name(io), "pool");
	CHECK_CONTAINS(why, "not known");
	io_free(io);
	CHECK_INT(io_new(IO_ENGINE_AUTO, -1, &params, &io, &why, NULL), 0);
	CHECK_STR(io_name(io), "pool");
	io_free(io);
	CHECK_INT(io_new(IO_ENGINE_POOL, dirfd, &params, &io, &why, NULL), 0);
	CHECK_STR(io_name(io), "pool");
	CHECK_STR(why, "asked for");
	io_free(io);

	io_probe_caps(&caps);
	CHECK_INT(fstatfs(dirfd, &fs), 0);
	is_local = fs.f_type == EXT4_SUPER_MAGIC || fs.f_type == 0x58465342 ||
		   fs.f_type == BTRFS_SUPER_MAGIC;
	CHECK_INT(io_new(IO_ENGINE_AUTO, dirfd, &params, &io, &why, NULL), 0);
	printf("# %s: %s\n", io_name(io), why);
	CHECK_STR(io_name(io), is_local && caps.has_uring ? "uring" : "pool");
	io_free(io);
	io_free(NULL);
}

/* From here on this thread and those it starts are refused rings, as in a container. */
static void refuse_rings(int code)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)code),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { ARRAY_LEN(filter), filter };

	CHECK_INT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	CHECK_INT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static void *refused_run(void *arg)
{
	const int *code = arg;
	struct io_params params = { .name = "test", .max_inflight = 2 };
	AUTO_FD int dirfd = tmp_dirfd();
	const char *why = "";
	struct err err = { 0 };
	struct io_caps caps;
	struct io *io = NULL;
	int r;

	refuse_rings(*code);
	io_probe_caps(&caps);
	CHECK(!caps.has_uring && caps.uring_why_not[0]);
	r = io_uring_new(&params, &io, &err);
	CHECK_INT(r, caps.built_with_uring ? -*code : -ENOSYS);
	CHECK_CONTAINS(err.msg, caps.uring_why_not);
	CHECK(io == NULL);
	r = io_new(IO_ENGINE_AUTO, dirfd, &params, &io, &why, NULL);
	CHECK_INT(r, 0);
	if (r == 0)
		CHECK_STR(io_name(io), "pool");
	io_free(io);
	return NULL;
}

static void falls_back_where_rings_are_refused(void)
{
	static const int codes[] = { EPERM, ENOSYS, ENOMEM };

	for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
		int code = codes[i];
		pthread_t thread;

		CHECK_INT(pthread_create(&thread, NULL, refused_run, &code), 0);
		CHECK_INT(pthread_join(thread, NULL), 0);
	}
}

static void caps_agree_with_the_engine(void)
{
	struct io *io = engine_or_reason(IO_ENGINE_URING, 1);
	struct io_caps caps;

	io_probe_caps(&caps);
	CHECK_INT(caps.has_uring, io != NULL);
	CHECK_INT(caps.has_uring, caps.uring_why_not[0] == '\0');
	CHECK(caps.built_with_uring || !caps.has_uring);
	/* The kernel allows the second only with the first. */
	CHECK(caps.has_single_issuer || !caps.has_defer_taskrun);
	CHECK(caps.has_uring || !caps.has_direct_descriptors);
	for (enum io_engine e = IO_ENGINE_AUTO; e <= IO_ENGINE_URING; e++)
		CHECK(io_engine_names[e] != NULL);
	CHECK(io_engine_names[IO_ENGINE_URING + 1] == NULL);
	io_free(io);
}

IO_BOTH(reads_all_sizes)
IO_BOTH(continues_short_reads)
IO_BOTH(reads_into_two_places)
IO_BOTH(reports_errors)
IO_BOTH(closes_after_done)
IO_BOTH(hands_descriptor_over)
IO_BOTH(notices_truncation)
IO_BOTH(waits_for_lease)
IO_BOTH(stays_beneath_where_asked)
IO_BOTH(refuses_bad_params)

static const struct check_test tests[] = {
	IO_ROWS(reads_all_sizes),
	IO_ROWS(continues_short_reads),
	IO_ROWS(reads_into_two_places),
	IO_ROWS(reports_errors),
	IO_ROWS(closes_after_done),
	IO_ROWS(hands_descriptor_over),
	IO_ROWS(notices_truncation),
	IO_ROWS(waits_for_lease),
	IO_ROWS(stays_beneath_where_asked),
	IO_ROWS(refuses_bad_params),
	{ "auto_asks_the_filesystem", auto_asks_the_filesystem },
	{ "falls_back_where_rings_are_refused", falls_back_where_rings_are_refused },
	{ "caps_agree_with_the_engine", caps_agree_with_the_engine },
};
CHECK_MAIN(tests)
