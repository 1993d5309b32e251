/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's own path in C, without a mount: what filling, opening and random reads of a
 * persistent store cost. bench/run store runs it alternately with fio on the same files.
 *
 *	bench_store fill DIRECTORY [--payload N] [--bytes N] [--writers W] [--batch B]
 *	bench_store read DIRECTORY [--payload N] [--bytes N] [--depth D] [--seconds S] [--verify V]
 *	bench_store open DIRECTORY [--payload N] [--bytes N]
 *	bench_store                                all of it on a small scale
 *
 * A result is a JSON line: name, unit, value, and what it was measured with. `read` reads every
 * record once before (that verifies it; a result of its own), then for some seconds at random with
 *D reads in flight; read_writes is what the process had written meanwhile, which must be nothing.
 * CPU is that of the whole process, per record. Payloads differ from each other, so nothing below
 * can find them equal, and the first bytes of every one that was read are compared.
 */
#include <dirent.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/thr.h"
#include "clairfs/tier/store.h"

#define MAX_DEPTH 256
#define MAX_WRITERS 16
#define MAX_BATCH 256

struct bench {
	const char *dir;
	struct store *store;
	uint64_t payload, bytes, n_records, seed;
	unsigned depth, writers, batch;
	double seconds;
	enum store_verify verify;
	uint64_t end_ns;
	_Atomic uint64_t next, n_done, n_bad;
	bool is_random;
	sem_t is_over;
};

struct bench_read {
	struct tier_read read;
	struct bench *bench;
	uint64_t random;
};

static void die(const char *what)
{
	fprintf(stderr, "bench_store: %s\n", what);
	exit(1);
}

static struct file_identity identity_of(const struct bench *b, uint64_t i)
{
	return (struct file_identity){
		.ino = i + 1, .size = b->payload, .mtime_ns = 1, .ctime_ns = 1
	};
}

static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static uint64_t cpu_ns(void)
{
	struct rusage use;

	getrusage(RUSAGE_SELF, &use);
	return (uint64_t)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * NS_PER_S +
	       (uint64_t)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1000;
}

/* What the kernel says that we made the drive write. */
static uint64_t written_bytes(void)
{
	FILE *file AUTO_FILE = fopen("/proc/self/io", "re");
	unsigned long long n = 0;
	char line[128];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "write_bytes: %llu", &n) == 1)
			return n;
	return 0;
}

static void print_result(const struct bench *b, const char *name, const char *unit, double value)
{
	printf("{\"name\": \"%s\", \"unit\": \"%s\", \"value\": %.3f, \"payload\": %llu, "
	       "\"depth\": %u, \"writers\": %u, \"batch\": %u, \"records\": %llu, \"engine\": \"%s\", "
	       "\"verify\": \"%s\"}\n",
	       name, unit, value, (unsigned long long)b->payload, b->depth, b->writers, b->batch,
	       (unsigned long long)b->n_records, store_engine_name(b->store),
	       store_verify_names[b->verify]);
	fflush(stdout);
}

static void open_store(struct bench *b)
{
	struct store_params params = { .dir = b->dir,
				       .is_persistent = true,
				       .fsid = 1,
				       /* Of the usual size: of segments, too. */
				       .limit_bytes = 2 * b->bytes + (64ull << 30),
				       .verify = b->verify,
				       .engine = IO_ENGINE_AUTO,
				       .max_inflight = MAX_DEPTH };
	struct err err = { 0 };

	if (store_open(&params, &b->store, &err) < 0)
		die(err.msg);
}

/* --- fill --- */

static void *fill_some(void *arg)
{
	struct bench *b = arg;
	struct file_identity ids[MAX_BATCH];
	struct tier_piece pieces[MAX_BATCH];
	/* As in a mount: what is written lies in the arena, whose pages are large. */
	struct arena *arena = NULL;
	struct err err = { 0 };
	unsigned n;

	if (arena_new(2ull * b->batch * PIECE_BYTES + (64ull << 20), &arena, &err) < 0)
		die(err.msg);
	for (unsigned k = 0; k < b->batch; k++) {
		pieces[k].data = arena_alloc(arena, (uint32_t)b->payload);
		if (!pieces[k].data)
			die("out of memory");
		memset((void *)pieces[k].data, 0x5a, b->payload);
	}
	do {
		uint64_t first = atomic_fetch_add(&b->next, b->batch);

		n = first < b->n_records ? (unsigned)MIN(b->batch, b->n_records - first) : 0;
		for (unsigned k = 0; k < n; k++) {
			uint64_t i = first + k;

			ids[k] = identity_of(b, i);
			memcpy((void *)pieces[k].data, &i, MIN(sizeof(i), b->payload));
			pieces[k].key = (struct piece_key){ { (uint32_t)i }, 0 };
			pieces[k].identity = &ids[k];
			pieces[k].length = (uint32_t)b->payload;
		}
		store_put_many(b->store, pieces, n);
		for (unsigned k = 0; k < n; k++)
			atomic_fetch_add(&b->n_bad, pieces[k].status < 0);
	} while (n > 0);
	arena_free(arena);
	return NULL;
}

static void fill(struct bench *b)
{
	uint64_t start, cpu, wall;
	struct thr thr[MAX_WRITERS];

	open_store(b);
	atomic_store(&b->next, 0);
	start = clock_now(clock_monotonic());
	cpu = cpu_ns();
	for (unsigned i = 0; i < b->writers; i++)
		if (thr_start(&thr[i], "writer", fill_some, b, NULL) < 0)
			die("no thread");
	for (unsigned i = 0; i < b->writers; i++)
		thr_join(&thr[i]);
	wall = clock_now(clock_monotonic()) - start;
	print_result(b, "fill_mbps", "MB/s",
		     (double)(b->n_records * b->payload) * 1e3 / (double)wall);
	print_result(b, "fill_cpu", "us/record",
		     (double)(cpu_ns() - cpu) / 1e3 / (double)b->n_records);
	store_close(b->store);
}

/* --- open --- */

static void open_only(struct bench *b)
{
	uint64_t start = clock_now(clock_monotonic()), n_missing = 0;
	struct store_status status;

	open_store(b);
	print_result(b, "open_seconds", "s", (double)(clock_now(clock_monotonic()) - start) / 1e9);
	store_get_status(b->store, &status);
	print_result(b, "index_bytes", "bytes/record",
		     (double)status.index_bytes / (double)MAX(status.records, 1));
	start = clock_now(clock_monotonic());
	for (uint64_t i = 0; i < b->n_records; i++) {
		struct file_identity id = identity_of(b, i);

		n_missing += !store_has(b->store, (struct piece_key){ { (uint32_t)i }, 0 }, &id);
	}
	print_result(b, "has_ns", "ns/record",
		     (double)(clock_now(clock_monotonic()) - start) / (double)b->n_records);
	if (n_missing > 0)
		die("records are missing");
	store_close(b->store);
}

/* --- read --- */

static void submit_next(struct bench_read *r)
{
	struct bench *b = r->bench;
	uint64_t i = b->is_random ? next_random(&r->random) % b->n_records
				  : atomic_fetch_add(&b->next, 1);

	if (i >= b->n_records) {
		sem_post(&b->is_over);
		return;
	}
	r->read.ask.key = (struct piece_key){ { (uint32_t)i }, 0 };
	r->read.ask.expect = identity_of(b, i);
	r->read.ask.length = (uint32_t)b->payload;
	tier_read(store_tier(b->store), &r->read);
}

static void read_done(struct tier_read *read)
{
	struct bench_read *r = container_of(read, struct bench_read, read);
	struct bench *b = r->bench;
	uint64_t i = read->ask.key.entry.v;

	if (read->answer.status != 0 || memcmp(read->ask.buf, &i, MIN(sizeof(i), b->payload)) != 0)
		atomic_fetch_add(&b->n_bad, 1);
	atomic_fetch_add(&b->n_done, 1);
	if (b->is_random && clock_now(clock_monotonic()) >= b->end_ns)
		sem_post(&b->is_over);
	else
		submit_next(r);
}

static void run_reads(struct bench *b, struct bench_read *reads, bool is_random)
{
	uint64_t start = clock_now(clock_monotonic()), cpu = cpu_ns(), wall, n;
	uint64_t written = written_bytes();

	b->is_random = is_random;
	b->end_ns = start + (uint64_t)(b->seconds * 1e9);
	atomic_store(&b->next, 0);
	atomic_store(&b->n_done, 0);
	for (unsigned i = 0; i < b->depth; i++)
		submit_next(&reads[i]);
	for (unsigned i = 0; i < b->depth; i++)
		while (sem_wait(&b->is_over) < 0)
			;
	wall = clock_now(clock_monotonic()) - start;
	cpu = cpu_ns() - cpu;
	n = atomic_load(&b->n_done);
	print_result(b, is_random ? "read_mbps" : "first_read_mbps", "MB/s",
		     (double)(n * b->payload) * 1e3 / (double)wall);
	print_result(b, is_random ? "read_cpu" : "first_read_cpu", "us/record",
		     (double)cpu / 1e3 / (double)n);
	if (is_random)
		print_result(b, "read_writes", "bytes written",
			     (double)(written_bytes() - written));
}

static void read_all(struct bench *b)
{
	struct bench_read *reads = calloc(b->depth, sizeof(reads[0]));
	/* As in a mount: what is read goes into the arena, whose pages are large. */
	struct arena *arena = NULL;
	struct err err = { 0 };

	if (!reads || arena_new(256ull << 20, &arena, &err) < 0)
		die("out of memory");
	open_store(b);
	for (unsigned i = 0; i < b->depth; i++) {
		reads[i].bench = b;
		reads[i].random = b->seed + i;
		reads[i].read.done = read_done;
		reads[i].read.ask.buf = arena_alloc(arena, (uint32_t)b->payload);
		if (!reads[i].read.ask.buf)
			die("out of memory");
	}
	run_reads(b, reads, false);
	run_reads(b, reads, true);
	tier_free(store_tier(b->store)); /* done() of the last reads has returned */
	free(reads);
	store_close(b->store);
	arena_free(arena);
}

/* --- the program --- */

static uint64_t number(const char *text, uint64_t min, uint64_t max)
{
	char *end;
	uint64_t n = strtoull(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || n < min || n > max)
		die("a number is missing or out of range");
	return n;
}

static enum store_verify verify_of(const char *text)
{
	for (int i = 0; store_verify_names[i]; i++)
		if (strcmp(store_verify_names[i], text) == 0)
			return (enum store_verify)i;
	die("--verify: first, always or off");
	return STORE_VERIFY_FIRST;
}

static void parse(struct bench *b, int argc, char **argv)
{
	for (int i = 3; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--payload") == 0)
			b->payload = number(argv[i + 1], 1, PIECE_BYTES);
		else if (strcmp(argv[i], "--bytes") == 0)
			b->bytes = number(argv[i + 1], 1, 1ull << 40);
		else if (strcmp(argv[i], "--depth") == 0)
			b->depth = (unsigned)number(argv[i + 1], 1, MAX_DEPTH);
		else if (strcmp(argv[i], "--writers") == 0)
			b->writers = (unsigned)number(argv[i + 1], 1, MAX_WRITERS);
		else if (strcmp(argv[i], "--batch") == 0)
			b->batch = (unsigned)number(argv[i + 1], 1, MAX_BATCH);
		else if (strcmp(argv[i], "--seconds") == 0)
			b->seconds = strtod(argv[i + 1], NULL);
		else if (strcmp(argv[i], "--verify") == 0)
			b->verify = verify_of(argv[i + 1]);
		else
			die("no such option");
	}
}

static int run(struct bench *b, const char *mode)
{
	b->n_records = MAX(b->bytes / b->payload, 1);
	sem_init(&b->is_over, 0, 0);
	if (strcmp(mode, "fill") == 0)
		fill(b);
	else if (strcmp(mode, "open") == 0)
		open_only(b);
	else if (strcmp(mode, "read") == 0)
		read_all(b);
	else
		die("fill, open or read");
	if (atomic_load(&b->n_bad) > 0)
		die("some failed, or were wrong");
	return 0;
}

static void remove_dir(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			(void)unlinkat(dirfd(dir), entry->d_name, 0);
	if (dir)
		closedir(dir);
	rmdir(path);
}

int main(int argc, char **argv)
{
	struct bench b = { .payload = 128 << 10,
			   .bytes = 64 << 20,
			   .depth = 16,
			   .writers = 1,
			   .batch = 1,
			   .seconds = 0.5,
			   .seed = clock_now(clock_monotonic()) };
	const char *tmp = getenv("TMPDIR");
	char path[4096];

	if (argc >= 3) {
		b.dir = argv[2];
		parse(&b, argc, argv);
		return run(&b, argv[1]);
	}
	snprintf(path, sizeof(path), "%s/bench_store.XXXXXX", tmp && *tmp ? tmp : "/tmp");
	b.dir = mkdtemp(path);
	if (!b.dir)
		die("no directory for temporary files");
	run(&b, "fill");
	run(&b, "open");
	run(&b, "read");
	remove_dir(path);
	return 0;
}
