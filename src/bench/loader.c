/* SPDX-License-Identifier: Apache-2.0 */
/* The loader, with real processes. A rank takes batches in order; worker i reads batches i, i + W,
 * i + 2W...; prefetch_factor * W batches are handed out at the start, and one more whenever one is
 * taken, as PyTorch's DataLoader does. Which batches are whose is clear, so only their number is
 * handed out, in an eventfd: a pipe would be full at some prefetch factor, and then the rank and a
 * worker whose answers nobody takes would wait for each other. No worker (W = 0): the rank reads
 * for itself. Computing is
 * sleeping until a deadline, then the ranks wait for each other, as in an allreduce. Decoding
 * burns CPU time or sleeps, per sample.
 *
 * Runs in the processes of ranks and workers, which have one thread each and share nothing with the
 * main process but the block. Whatever goes wrong becomes a line in the rank's `error` and exit
 * code 1; a child must never outlive its parent, nor hang when one of the others has died. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <xxhash.h>

#include "bench_priv.h"
#include "clairfs/base/clock.h"
#include "clairfs/base/text.h"

#define CHUNK (8u << 20) /* bytes asked for at once */
#define STREAM_BYTES (256u << 10)

struct worker {
	pid_t pid;
	int ask;  /* eventfd: how many batches more it may read */
	int tell; /* the rank's end: answers in */
};

struct answer {
	int code; /* 0, or a negative errno of reading `sample` */
	uint32_t sample;
};

struct loader {
	const struct bench_setup *s;
	struct bench_block *b;
	struct bench_rank *me;
	const char *root;
	int dirfd;
	uint32_t rank, n_asked;
	char *chunk;
	XXH3_state_t *hash;
	int *fd; /* [samples], of files whose records are read; -1: not open */
	struct worker *worker;
};

static uint64_t now_ns(void)
{
	return clock_now(clock_monotonic());
}

static void fail(struct loader *l, const char *fmt, ...) PRINTF_LIKE(2, 3)
	__attribute__((noreturn));
static void fail(struct loader *l, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(l->me->error, sizeof(l->me->error), fmt, args);
	va_end(args);
	_exit(1);
}

static void sleep_until(uint64_t ns)
{
	struct timespec t = { .tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* Decoding takes CPU time, not time: on a machine with too few cores it takes longer, as it would
 * in the job. */
static void decode(const struct loader *l)
{
	uint64_t end;

	if (!l->s->decode_ns || l->b->is_warming)
		return;
	if (l->s->args->is_decode_asleep) {
		sleep_until(now_ns() + l->s->decode_ns);
		return;
	}
	end = cpu_ns() + l->s->decode_ns;
	while (cpu_ns() < end)
		;
}

/* Whether somebody compares what the sides have read. */
static bool is_summed(const struct loader *l)
{
	return l->hash && !l->b->is_warming;
}

static void sum_begin(struct loader *l)
{
	if (is_summed(l))
		XXH3_64bits_reset(l->hash);
}

static void sum_add(struct loader *l, const char *bytes, size_t size)
{
	if (is_summed(l))
		XXH3_64bits_update(l->hash, bytes, size);
}

static uint64_t sum_end(struct loader *l, uint32_t unit)
{
	return is_summed(l) ? XXH64(&unit, sizeof(unit), XXH3_64bits_digest(l->hash)) : 0;
}

/* open + fstat + read to the end + close, as a job does it. */
static int read_file(struct loader *l, const char *path, uint64_t *ret_bytes)
{
	AUTO_FD int fd = openat(l->dirfd, path, O_RDONLY | O_CLOEXEC);
	bool is_stream = l->s->args->access == BENCH_STREAM;
	uint64_t record = l->s->args->record_bytes ? l->s->args->record_bytes : STREAM_BYTES;
	size_t at_once = is_stream ? (size_t)MIN(record, (uint64_t)CHUNK) : CHUNK;
	struct stat st;
	ssize_t got;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	do {
		got = read(fd, l->chunk, at_once);
		*ret_bytes += got > 0 ? (uint64_t)got : 0;
		sum_add(l, l->chunk, got > 0 ? (size_t)got : 0);
	} while (got > 0 && *ret_bytes < (uint64_t)st.st_size);
	if (got < 0)
		return -errno;
	return *ret_bytes < (uint64_t)st.st_size ? -ENODATA : 0; /* it is shorter than it says */
}

static void close_files(struct loader *l)
{
	for (uint32_t i = 0; i < dataset_n_samples(l->s->ds); i++)
		if (l->fd[i] >= 0)
			close(l->fd[i]);
	memset(l->fd, 0xff, dataset_n_samples(l->s->ds) * sizeof(*l->fd));
}

/* A reader of records keeps their files open, as many as it may. */
static int open_kept(struct loader *l, uint32_t file, const char *path)
{
	if (l->fd[file] < 0)
		l->fd[file] = openat(l->dirfd, path, O_RDONLY | O_CLOEXEC);
	if (l->fd[file] < 0 && errno == EMFILE) {
		close_files(l);
		l->fd[file] = openat(l->dirfd, path, O_RDONLY | O_CLOEXEC);
	}
	return l->fd[file] < 0 ? -errno : l->fd[file];
}

static int read_record(struct loader *l, const char *path, const struct dataset_extent *at,
		       uint64_t *ret_bytes)
{
	int fd = open_kept(l, at->entry.v, path);

	if (fd < 0)
		return fd;
	while (*ret_bytes < at->length) {
		ssize_t got = pread(fd, l->chunk, (size_t)MIN(at->length - *ret_bytes, CHUNK),
				    (off_t)(at->offset + *ret_bytes));

		if (got <= 0)
			return got < 0 ? -errno : -ENODATA;
		*ret_bytes += (uint64_t)got;
		sum_add(l, l->chunk, (size_t)got);
	}
	return 0;
}

static int read_sample(struct loader *l, uint32_t sample, struct bench_read *ret)
{
	struct dataset_extent at = bench_unit(l->s, sample);
	char path[PATH_MAX];
	int rc = dataset_path(l->s->ds, at.entry, path, sizeof(path));

	if (rc < 0)
		return rc;
	sum_begin(l);
	rc = l->fd ? read_record(l, path, &at, &ret->bytes) : read_file(l, path, &ret->bytes);
	ret->sum = sum_end(l, sample);
	return rc;
}

static struct answer read_batch(struct loader *l, uint32_t batch, uint32_t worker)
{
	uint64_t from = (uint64_t)batch * l->s->batch;
	uint64_t to = MIN(from + l->s->batch, l->me->n_samples);

	for (uint64_t p = from; p < to; p++) {
		struct bench_read *r = &l->me->read[p];
		int rc;

		*r = (struct bench_read){ .t_start = now_ns(),
					  .sample = l->me->sample[p],
					  .worker = worker };
		rc = read_sample(l, r->sample, r);
		r->t_end = now_ns();
		if (rc < 0)
			return (struct answer){ .code = rc, .sample = r->sample };
		decode(l);
	}
	return (struct answer){ .code = 0 };
}

/* Dies with its parent, also when that died before it could say so. */
static void die_with(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
}

static void open_root(struct loader *l)
{
	l->chunk = malloc(CHUNK);
	l->dirfd = open(l->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (l->s->args->access == BENCH_RANDOM)
		l->fd = malloc(dataset_n_samples(l->s->ds) * sizeof(*l->fd));
	if (l->s->args->access != BENCH_WHOLE)
		l->hash = XXH3_createState();
	if (!l->chunk || (l->s->args->access == BENCH_RANDOM && !l->fd) ||
	    (l->s->args->access != BENCH_WHOLE && !l->hash))
		fail(l, "out of memory");
	if (l->fd)
		memset(l->fd, 0xff, dataset_n_samples(l->s->ds) * sizeof(*l->fd));
	if (l->dirfd < 0)
		fail(l, "%.256s: %s", l->root, strerror(errno));
}

static void work(struct loader *l, uint32_t number, int ask, int out) __attribute__((noreturn));
static void work(struct loader *l, uint32_t number, int ask, int out)
{
	uint64_t asked = 0;

	open_root(l);
	for (uint64_t batch = number;; batch += l->s->workers) {
		struct answer a;

		while (!asked)
			if (read(ask, &asked, sizeof(asked)) < 0 && errno != EINTR)
				_exit(1);
		asked--;
		if (batch >= l->me->n_steps) /* one more than there are: the end */
			_exit(0);
		a = read_batch(l, (uint32_t)batch, number);
		if (write(out, &a, sizeof(a)) != (ssize_t)sizeof(a))
			_exit(1);
	}
}

static void spawn(struct loader *l, uint32_t i)
{
	int ask = eventfd(0, EFD_CLOEXEC), up[2];
	pid_t me = getpid(), pid;

	if (ask < 0 || pipe2(up, O_CLOEXEC) < 0)
		fail(l, "pipe: %s", strerror(errno));
	pid = fork();
	if (pid < 0)
		fail(l, "fork: %s", strerror(errno));
	if (pid == 0) {
		die_with(me);
		/* Ends of other workers: kept open they would hide that one of them has died. */
		for (uint32_t j = 0; j < i; j++) {
			close(l->worker[j].ask);
			close(l->worker[j].tell);
		}
		close(up[0]);
		work(l, i, ask, up[1]);
	}
	close(up[1]);
	l->worker[i] = (struct worker){ .pid = pid, .ask = ask, .tell = up[0] };
}

static void worker_died(struct loader *l, uint32_t i)
{
	int status = 0;

	if (*l->me->error) /* it has said why */
		_exit(1);
	while (waitpid(l->worker[i].pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status))
		fail(l, "loader worker %u of rank %u was ended by signal %d", i, l->rank,
		     WTERMSIG(status));
	fail(l, "loader worker %u of rank %u ended with exit code %d", i, l->rank,
	     WEXITSTATUS(status));
}

/* Never waits: an eventfd has room for more batches than there can be. */
static void ask_worker(struct loader *l, uint32_t worker, uint64_t n_batches)
{
	if (n_batches && write(l->worker[worker].ask, &n_batches, sizeof(n_batches)) < 0)
		fail(l, "eventfd: %s", strerror(errno));
}

static void ask_first(struct loader *l)
{
	uint32_t w = l->s->workers;
	uint64_t n = MIN((uint64_t)w * l->s->prefetch, l->me->n_steps);

	for (uint32_t i = 0; i < w; i++)
		ask_worker(l, i, n / w + (i < n % w));
	l->n_asked = (uint32_t)n;
}

static void ask_next(struct loader *l)
{
	if (!l->s->workers || l->n_asked == l->me->n_steps)
		return;
	ask_worker(l, l->n_asked % l->s->workers, 1);
	l->n_asked++;
}

static void take_batch(struct loader *l, uint32_t batch)
{
	uint32_t i = batch % MAX(l->s->workers, 1);
	struct answer a;
	char path[PATH_MAX] = "?", shown[256];

	if (!l->s->workers)
		a = read_batch(l, batch, 0);
	else if (read(l->worker[i].tell, &a, sizeof(a)) != (ssize_t)sizeof(a))
		worker_died(l, i);
	if (a.code == 0)
		return;
	if (dataset_path(l->s->ds, bench_unit(l->s, a.sample).entry, path, sizeof(path)) < 0)
		path[0] = 0;
	fail(l, "reading %s below %.128s: %s",
	     text_escape(path, strlen(path), shown, sizeof(shown)), l->root, strerror(-a.code));
}

static void step(struct loader *l, uint32_t k)
{
	struct bench_step *t = &l->me->step[k];

	t->t_request = now_ns();
	take_batch(l, k);
	t->t_ready = now_ns();
	ask_next(l);
	if (!l->b->is_warming)
		sleep_until(t->t_ready + l->s->compute_ns);
	t->t_computed = now_ns();
	/* Ranks of unequal length stop waiting for each other where the shortest ends. */
	if (l->b->n_ranks > 1 && k < l->b->common_steps)
		pthread_barrier_wait(&l->b->barrier);
	t->t_synced = now_ns();
	atomic_store(&l->me->n_done, k + 1);
}

void bench_rank_run(const struct bench_setup *s, struct bench_block *b, uint32_t rank,
		    const char *root)
{
	struct loader l = { .s = s, .b = b, .me = &b->rank[rank], .root = root, .rank = rank };
	int status;

	die_with(b->parent);
	l.worker = calloc(MAX(s->workers, 1), sizeof(*l.worker));
	if (!l.worker)
		fail(&l, "out of memory");
	if (!s->workers)
		open_root(&l);
	for (uint32_t i = 0; i < s->workers; i++)
		spawn(&l, i);
	pthread_barrier_wait(&b->barrier);
	l.me->t_start = now_ns();
	ask_first(&l);
	for (uint32_t k = 0; k < l.me->n_steps; k++)
		step(&l, k);
	l.me->t_end = now_ns();
	for (uint32_t i = 0; i < s->workers; i++)
		ask_worker(&l, i, 1);
	for (uint32_t i = 0; i < s->workers; i++) {
		while (waitpid(l.worker[i].pid, &status, 0) < 0 && errno == EINTR)
			;
		if (status != 0)
			fail(&l, "loader worker %u of rank %u ended with status %d", i, rank,
			     status);
	}
	_exit(0);
}

/* --- in the main process --- */

static size_t block_bytes(const struct bench_setup *s, const uint64_t *length)
{
	size_t size =
		ALIGN_UP(sizeof(struct bench_block) + s->ranks * sizeof(struct bench_rank), 64u);

	for (uint32_t r = 0; r < s->ranks; r++)
		size += length[r] * sizeof(struct bench_read) +
			DIV_ROUND_UP(length[r], s->batch) * sizeof(struct bench_step);
	return size;
}

static int block_map(const struct bench_setup *s, uint32_t *const *sample, const uint64_t *length,
		     struct bench_block **ret)
{
	size_t size = block_bytes(s, length);
	struct bench_block *b =
		mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char *at;
	pthread_barrierattr_t attr;

	if (b == MAP_FAILED)
		return -ENOMEM;
	b->size = size;
	b->parent = getpid();
	b->n_ranks = s->ranks;
	b->common_steps = UINT32_MAX;
	at = (char *)b +
	     ALIGN_UP(sizeof(struct bench_block) + s->ranks * sizeof(struct bench_rank), 64u);
	for (uint32_t r = 0; r < s->ranks; r++) {
		struct bench_rank *rank = &b->rank[r];

		rank->sample = sample[r];
		rank->n_samples = (uint32_t)length[r];
		rank->n_steps = (uint32_t)DIV_ROUND_UP(length[r], s->batch);
		rank->read = (struct bench_read *)at;
		at += length[r] * sizeof(*rank->read);
		rank->step = (struct bench_step *)at;
		at += rank->n_steps * sizeof(*rank->step);
		b->common_steps = MIN(b->common_steps, rank->n_steps);
	}
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&b->barrier, &attr, s->ranks);
	pthread_barrierattr_destroy(&attr);
	*ret = b;
	return 0;
}

/* What a resumed job has read already of the first epoch. */
static void skip_steps(const struct bench_setup *s, uint64_t epoch, uint32_t *sample,
		       uint64_t *length)
{
	uint64_t skip = epoch == s->info->start_epoch ? s->info->start_step : 0;

	skip = skip > *length / s->batch ? *length : skip * s->batch;
	memmove(sample, sample + skip, (*length - skip) * sizeof(*sample));
	*length -= skip;
}

int bench_block_new(const struct bench_setup *s, uint64_t epoch, struct bench_block **ret,
		    struct err *err)
{
	uint32_t *sample[BENCH_RANKS_MAX] = { NULL };
	uint64_t length[BENCH_RANKS_MAX];
	int rc = 0;

	for (uint32_t r = 0; r < s->ranks && rc == 0; r++) {
		rc = order_rank_epoch(s->order, epoch, s->info->ranks[r], &sample[r], &length[r],
				      err);
		if (rc < 0)
			break;
		skip_steps(s, epoch, sample[r], &length[r]);
		if (!length[r])
			rc = err_set(err, -EINVAL, "epoch %llu has nothing to read for rank %u",
				     (unsigned long long)epoch, s->info->ranks[r]);
		else if (s->workers > length[r])
			rc = err_set(err, -EINVAL,
				     "%u workers are more than the %llu samples of rank %u",
				     s->workers, (unsigned long long)length[r], s->info->ranks[r]);
	}
	if (rc == 0) {
		rc = block_map(s, sample, length, ret);
		if (rc < 0)
			err_set_errno(err, rc, "memory for one epoch");
	}
	for (uint32_t r = 0; r < s->ranks && rc < 0; r++)
		free(sample[r]);
	return rc;
}

void bench_block_free(struct bench_block *b)
{
	if (!b)
		return;
	for (uint32_t r = 0; r < b->n_ranks; r++)
		free((void *)(uintptr_t)b->rank[r].sample);
	munmap(b, b->size);
}
