/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that the source keeps open, opened anew beside the reads that go on through them: nobody waits
 * for that, what the path says then is heard, and the end of the source waits for it.
 */
#include "io_jobs.h"
#include "source_rig.h"

/* The descriptor of the file, or -1: there are none or two. */
static int fd_of(const struct file_identity *id)
{
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *entry;
	int fd = -1, n = 0;
	struct stat st;

	CHECK(dir != NULL);
	while ((entry = readdir(dir))) {
		int at = atoi(entry->d_name); /* of "." and "..": 0 */

		if (fstat(at, &st) < 0 || st.st_ino != id->ino || !S_ISREG(st.st_mode))
			continue;
		fd = at;
		n++;
	}
	closedir(dir);
	return n == 1 ? fd : -1;
}

/* Waits until the file is open through another descriptor, and through no other one. */
static void wait_anew(const struct file_identity *id, int old)
{
	uint64_t end = clock_now(clock_monotonic()) + 60 * NS_PER_S;
	int fd;

	while (((fd = fd_of(id)) < 0 || fd == old) && clock_now(clock_monotonic()) < end)
		sched_yield();
	CHECK(fd >= 0 && fd != old);
}

/* Nobody waits while a descriptor that is in use is made anew. */
static void reads_go_on_while_a_file_is_opened_anew(void)
{
	struct hand_clock hand = { .clock.now_ns = hand_now, .ns = NS_PER_S };
	struct waited_read *w[3];
	struct file_identity id;
	int fds, old;
	struct rig r;

	rig_init(&r, 4, LONG_NS);
	tier_free(r.tier);
	CHECK_INT(source_new(&(struct source_params){ .dirfd = r.dirfd,
						      .io = r.io,
						      .metrics = r.metrics,
						      .open_files = 4,
						      .reopen_ns = 1000,
						      .clock = &hand.clock },
			     &r.tier, NULL),
		  0);
	id = make_file(&r, "a", 1, 3 * PIECE_BYTES);
	CHECK_INT(read_piece(&r, 1, 0, "a", &id), 0);
	fds = count_fds();
	old = fd_of(&id);
	hand.ns += 999;
	CHECK_INT(read_piece(&r, 1, 0, "no-such-path", &id), 0);
	hand.ns += 1; /* due: one opens it, none waits for that */
	CHECK_U64(fault_io_seen(r.io), 3);
	fault_io_pause(r.io);
	for (uint32_t i = 0; i < ARRAY_LEN(w); i++) {
		w[i] = new_read(&r, 1, i, "a", &id);
		tier_read(r.tier, &w[i]->read);
	}
	fault_io_wait_held(r.io, 1 + ARRAY_LEN(w)); /* else it hangs here */
	fault_io_resume(r.io);
	for (uint32_t i = 0; i < ARRAY_LEN(w); i++) {
		CHECK_INT(waited_read_wait(w[i]), 0);
		check_bytes_of(w[i], 1);
		free_read(w[i]);
	}
	wait_anew(&id, old);
	check_fds(fds); /* the old one is closed */
	hand.ns += 999; /* what was opened then is as good as new */
	CHECK_INT(read_piece(&r, 1, 1, "no-such-path", &id), 0);
	hand.ns += 1001; /* too old for anybody */
	CHECK_INT(read_piece(&r, 1, 1, "no-such-path", &id), -ENOENT);
	CHECK_INT(read_piece(&r, 1, 1, "a", &id), 0);
	rig_fini(&r);
}

/* A source with a clock that is set by hand, which opens files anew after 1000 ns, and a file of two
 * pieces in a directory, which it keeps open and is about to open anew. */
static struct file_identity due_init(struct rig *r, struct hand_clock *hand)
{
	AUTO_FREE char *dir = NULL;
	struct file_identity id;

	*hand = (struct hand_clock){ .clock.now_ns = hand_now, .ns = NS_PER_S };
	rig_init(r, 4, LONG_NS);
	tier_free(r->tier);
	CHECK_INT(source_new(&(struct source_params){ .dirfd = r->dirfd,
						      .io = r->io,
						      .metrics = r->metrics,
						      .open_files = 4,
						      .reopen_ns = 1000,
						      .clock = &hand->clock },
			     &r->tier, NULL),
		  0);
	dir = rig_path(r, "d");
	CHECK_INT(mkdir(dir, 0755), 0);
	id = make_file(r, "d/a", 1, 2 * PIECE_BYTES);
	CHECK_INT(read_piece(r, 1, 0, "d/a", &id), 0);
	hand->ns += 1000;
	return id;
}

/* A read that has its descriptor before anything comes of the opening that it starts. */
static int read_first(struct rig *r, const char *name, const struct file_identity *id)
{
	struct waited_read *w = new_read(r, 1, 1, name, id);
	int status;

	fault_io_pause(r->io);
	tier_read(r->tier, &w->read);
	fault_io_wait_held(r->io, 2);
	fault_io_resume(r->io);
	status = waited_read_wait(w);
	free_read(w);
	return status;
}

struct freeing {
	struct rig *rig;
	_Atomic bool may_end;
};

static void *free_main(void *arg)
{
	struct freeing *freeing = arg;

	tier_free(freeing->rig->tier);
	CHECK(atomic_load(&freeing->may_end));
	return NULL;
}

static void end_waits_for_a_file_that_is_opened_for_nobody(void)
{
	struct fault_io_rule hold = { .kind = FAULT_IO_HOLD, .repeat = 1 };
	struct freeing freeing = { 0 };
	struct file_identity id;
	struct hand_clock hand;
	struct thr thr = { 0 };
	struct rig r;
	int fds;

	fds = count_fds();
	id = due_init(&r, &hand);
	fault_io_set(r.io, &hold);
	CHECK_INT(read_piece(&r, 1, 1, "d/a", &id), 0);
	fault_io_wait_held(r.io, 1); /* it is being opened anew, and nobody asks any more */
	freeing.rig = &r;
	CHECK_INT(thr_start(&thr, "free", free_main, &freeing, NULL), 0);
	for (int i = 0; i < 1000; i++) /* if it does not wait it is through by now */
		sched_yield();
	atomic_store(&freeing.may_end, true);
	fault_io_resume(r.io);
	thr_join(&thr);
	r.tier = NULL;
	rig_fini(&r);
	check_fds(fds);
}

/* Nobody waits for a file to be opened anew, but what the path says then is heard by the next read:
 * it does not go on for another second through a descriptor that it would not get any more. */
static void what_the_path_says_when_it_is_opened_anew_is_heard(void)
{
	static const int said[] = { -EACCES, -EPERM, -ENOENT, -ENOTDIR, -ELOOP };

	for (size_t i = 0; i < ARRAY_LEN(said) + 2; i++) {
		struct fault_io_rule fail = { .kind = FAULT_IO_FAIL, .repeat = 1 };
		AUTO_FREE char *dir = NULL, *away = NULL, *file = NULL;
		struct file_identity id;
		struct hand_clock hand;
		struct rig r;
		int fds;

		id = due_init(&r, &hand);
		fds = count_fds();
		dir = rig_path(&r, "d");
		away = rig_path(&r, "away");
		file = rig_path(&r, "d/a");
		if (i < ARRAY_LEN(said)) {
			fail.status = said[i];
			fault_io_set(r.io, &fail);
		} else { /* as it is: it is gone, or no file any more */
			CHECK_INT(rename(dir, away), 0);
			CHECK_INT(mkdir(dir, 0755), 0);
			CHECK_INT(i == ARRAY_LEN(said) ? 0 : mkdir(file, 0755), 0);
		}
		CHECK_INT(read_first(&r, "d/a", &id), 0);
		check_fds(fds - 1);
		CHECK_INT(read_piece(&r, 1, 1, "no-such-path", &id), -ENOENT);
		rig_fini(&r);
	}
}

/* What went wrong with us or the network says nothing of the file. */
static void descriptor_outlives_a_failure_to_open_it_anew(void)
{
	static const int failures[] = { -EIO, -EMFILE, -ETIMEDOUT, -ENOMEM };

	for (size_t i = 0; i < ARRAY_LEN(failures); i++) {
		struct fault_io_rule fail = { .kind = FAULT_IO_FAIL,
					      .repeat = 1,
					      .status = failures[i] };
		struct file_identity id;
		struct waited_job last;
		struct hand_clock hand;
		struct rig r;

		id = due_init(&r, &hand);
		fault_io_set(r.io, &fail);
		CHECK_INT(read_first(&r, "d/a", &id), 0);
		CHECK_U64(fault_io_fired(r.io), 1);
		/* Failures come one after the other: after this one that was heard of. */
		waited_init(&last);
		fault_io_set(r.io, &fail);
		CHECK_INT(waited_run(r.io, &last), failures[i]);
		CHECK_INT(read_first(&r, "no-such-path", &id), 0);
		rig_fini(&r);
	}
}

static const struct check_test tests[] = {
	{ "reads_go_on_while_a_file_is_opened_anew", reads_go_on_while_a_file_is_opened_anew },
	{ "end_waits_for_a_file_that_is_opened_for_nobody",
	  end_waits_for_a_file_that_is_opened_for_nobody },
	{ "what_the_path_says_when_it_is_opened_anew_is_heard",
	  what_the_path_says_when_it_is_opened_anew_is_heard },
	{ "descriptor_outlives_a_failure_to_open_it_anew",
	  descriptor_outlives_a_failure_to_open_it_anew },
};

CHECK_MAIN(tests)
