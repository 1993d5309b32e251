/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How often a READ takes a lock, and that it holds none while it answers. Each lock is a cache line
 * that all threads which read pull from each other, so a READ of what is in the arena may take four:
 * two of its file, two of what is counted. The program is linked with mutex_lock and mutex_unlock
 * wrapped (meson.build): all that the thread of a test calls is counted, whoever calls it.
 */
#include "cache_rig.h"

void mutex_lock_counted(struct mutex *mu) __asm__("__wrap_mutex_lock");
void mutex_unlock_counted(struct mutex *mu) __asm__("__wrap_mutex_unlock");
void mutex_lock_real(struct mutex *mu) __asm__("__real_mutex_lock");
void mutex_unlock_real(struct mutex *mu) __asm__("__real_mutex_unlock");

static _Thread_local int n_locks, n_held;

NO_THREAD_SAFETY void mutex_lock_counted(struct mutex *mu)
{
	n_locks++;
	n_held++;
	mutex_lock_real(mu);
}

NO_THREAD_SAFETY void mutex_unlock_counted(struct mutex *mu)
{
	n_held--;
	mutex_unlock_real(mu);
}

struct counted {
	struct cache_read read;
	int held; /* locks that were held while it was answered */
	bool is_done;
	uint64_t bytes;
};

/* The answer of a mount takes none of the cache's locks, so this takes none at all. */
static void counted_done(struct cache_read *read, int status, const struct iovec *iov, int n_iov)
{
	struct counted *r = container_of(read, struct counted, read);

	CHECK_INT(status, 0);
	r->held = n_held;
	for (int i = 0; i < n_iov; i++)
		r->bytes += iov[i].iov_len;
	r->is_done = true;
}

/* Locks that a READ takes from its arrival until everything of it is over. */
static int locks_of(struct rig *rig, uint32_t file, uint64_t offset, uint32_t length)
{
	struct counted r = { .read = { .entry = rig_entry(rig, file),
				       .offset = offset,
				       .length = length,
				       .reader = 1,
				       .arrived_ns = clock_now(clock_monotonic()),
				       .done = counted_done } };
	int before = n_locks;

	cache_read(rig->cache, &r.read);
	CHECK(r.is_done); /* on this thread: nothing had to be waited for */
	CHECK_INT(r.held, 0);
	CHECK_U64(r.bytes, length);
	CHECK_INT(r.read.read_class, READ_ARENA);
	CHECK_INT(n_held, 0);
	return n_locks - before;
}

static void read_of_the_arena_takes_four_locks(void)
{
	struct rig *rig = rig_new(&(struct rig_options){ .n = 2, .size = 110 << 10 });

	for (uint32_t i = 0; i < 2; i++)
		rig_read_check(rig, i, 0, 4096);
	CHECK_INT(locks_of(rig, 0, 0, 65536), 4);
	CHECK_INT(locks_of(rig, 0, 65536, 45056), 4); /* the rest, in the middle of the file */
	cache_note_open(rig->cache, rig_entry(rig, 1));
	CHECK_INT(locks_of(rig, 1, 0, 110 << 10), 4);
	rig_free(rig);
}

/* Nothing is accounted for it. */
static void read_of_what_is_no_sample_takes_two(void)
{
	struct rig *rig =
		rig_new(&(struct rig_options){ .n = 1, .size = 100, .other_size = 110 << 10 });

	rig_read_check(rig, 1, 0, 4096);
	CHECK_INT(locks_of(rig, 1, 4096, 65536), 2);
	rig_free(rig);
}

/* What readers of large files do is looked at: one more. (And nothing was pushed into the kernel: the
 * plan would have to hear that it has dropped that.) */
static void read_of_a_piece_of_a_large_file_takes_five(void)
{
	struct rig *rig = rig_new(&(struct rig_options){
		.n = 1, .size = 3 << 20, .order = "sequential", .is_stage_off = true });

	RIG_UNTIL(rig_metric(rig, METRIC_SOURCE_BYTES) >= 3 << 20);
	RIG_UNTIL(rig_metric(rig, METRIC_SOURCE_READS) >= 3);
	rig_read_check(rig, 0, 1 << 20, 4096);
	CHECK_INT(locks_of(rig, 0, (1 << 20) + 4096, 65536), 5);
	CHECK_INT(locks_of(rig, 0, (2 << 20) - 4096, 8192), 5); /* of two pieces */
	rig_free(rig);
}

static const struct check_test tests[] = {
	{ "read_of_the_arena_takes_four_locks", read_of_the_arena_takes_four_locks },
	{ "read_of_what_is_no_sample_takes_two", read_of_what_is_no_sample_takes_two },
	{ "read_of_a_piece_of_a_large_file_takes_five",
	  read_of_a_piece_of_a_large_file_takes_five },
};

CHECK_MAIN(tests)
