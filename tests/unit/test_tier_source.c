/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The source through a real engine: bytes of all sizes, files that are not what the reader
 * believes, and the descriptors that are kept - counted in /proc/self/fd, because a leak is the
 * likeliest bug of such a table.
 */
#include "source_rig.h"

static void files_of_all_sizes_are_read(void)
{
	static const size_t sizes[] = { 0,
					1,
					4095,
					4096,
					4097,
					110000,
					PIECE_BYTES - 1,
					PIECE_BYTES,
					PIECE_BYTES + 1,
					PIECE_BYTES * 5 / 2 };
	struct metrics_hist_view hist;
	uint64_t n_reads = 0, n_bytes = 0;
	struct rig r;

	for (uint32_t open_files = 0; open_files <= 4; open_files += 4) {
		rig_init(&r, open_files, LONG_NS);
		n_reads = n_bytes = 0;
		for (uint32_t i = 0; i < ARRAY_LEN(sizes); i++) {
			struct file_identity id = make_file(&r, "a", i, sizes[i]);

			for (uint32_t piece = 0; piece < piece_count(sizes[i]); piece++) {
				CHECK_INT(read_piece(&r, i, piece, "a", &id), 0);
				n_reads += sizes[i] > 0; /* of nothing it is a look */
			}
			n_bytes += sizes[i];
		}
		CHECK_U64(metrics_get(r.metrics, METRIC_SOURCE_READS), n_reads);
		CHECK_U64(metrics_get(r.metrics, METRIC_SOURCE_BYTES), n_bytes);
		CHECK_U64(metrics_get(r.metrics, METRIC_SOURCE_ERRORS), 0);
		metrics_hist_get(r.metrics, METRIC_HIST_SOURCE_LATENCY, &hist);
		CHECK_U64(hist.count, n_reads);
		rig_fini(&r);
	}
}

static void another_file_is_stale_and_shown(void)
{
	struct file_identity id, other;
	struct stat st;
	struct rig r;

	rig_init(&r, 0, 0);
	id = make_file(&r, "a", 1, 5000);
	for (unsigned field = 0; field < 4; field++) {
		other = id;
		if (field == 0)
			other.ino++;
		else if (field == 1)
			other.size--;
		else if (field == 2)
			other.mtime_ns--;
		else
			other.ctime_ns++;
		CHECK_INT(read_stale(&r, "a", &other, &st), -ESTALE);
		CHECK_U64(st.st_ino, id.ino);
		CHECK_U64((uint64_t)st.st_size, 5000);
	}
	make_file(&r, "a", 1, 4000); /* shrunk */
	CHECK_INT(read_stale(&r, "a", &id, &st), -ESTALE);
	CHECK_U64((uint64_t)st.st_size, 4000);
	make_file(&r, "a", 1, 6000); /* grown */
	CHECK_INT(read_stale(&r, "a", &id, &st), -ESTALE);
	CHECK_U64((uint64_t)st.st_size, 6000);
	CHECK_U64(metrics_get(r.metrics, METRIC_SOURCE_READS), 0);
	CHECK_U64(metrics_get(r.metrics, METRIC_SOURCE_ERRORS), 0); /* it answered as it should */
	rig_fini(&r);
}

static void what_is_no_file_any_more_is_no_bytes(void)
{
	struct rig r;
	AUTO_FREE char *path = NULL;
	struct file_identity id;
	struct stat st;
	int fds;

	rig_init(&r, 4, LONG_NS);
	path = rig_path(&r, "a");
	fds = count_fds();
	id = make_file(&r, "a", 1, 5000);
	CHECK_INT(unlink(path), 0);
	CHECK_INT(read_stale(&r, "a", &id, &st), -ENOENT);
	CHECK_U64(metrics_get(r.metrics, METRIC_SOURCE_ERRORS), 1);
	CHECK_INT(mkdir(path, 0700), 0);
	CHECK_INT(read_stale(&r, "a", &id, &st), -ESTALE);
	CHECK(S_ISDIR(st.st_mode));
	CHECK_INT(rmdir(path), 0);
	CHECK_INT(mkfifo(path, 0600), 0);
	CHECK_INT(read_stale(&r, "a", &id, &st), -ESTALE);
	CHECK(S_ISFIFO(st.st_mode));
	CHECK_INT(unlink(path), 0);
	CHECK_INT(symlink("nowhere", path), 0);
	CHECK_INT(read_stale(&r, "a", &id, &st), -ENOENT);
	CHECK_INT(unlink(path), 0);
	check_fds(fds);
	rig_fini(&r);
}

static void errors_of_the_engine_are_handed_on(void)
{
	struct fault_io_rule fail = { .kind = FAULT_IO_FAIL, .status = -EACCES };
	struct fault_io_rule shorten = { .kind = FAULT_IO_SHORTEN, .length = 4999 };
	struct file_identity id;
	struct stat st;
	struct rig r;

	rig_init(&r, 0, 0);
	id = make_file(&r, "a", 1, 5000);
	fault_io_set(r.io, &fail);
	CHECK_INT(read_stale(&r, "a", &id, &st), -EACCES);
	/* The file is what it was and has fewer bytes than it says. */
	fault_io_set(r.io, &shorten);
	CHECK_INT(read_stale(&r, "a", &id, &st), -EIO);
	CHECK_U64(metrics_get(r.metrics, METRIC_SOURCE_ERRORS), 2);
	CHECK_U64(metrics_get(r.metrics, METRIC_SOURCE_READS), 0);
	fault_io_set(r.io, NULL);
	CHECK_INT(read_piece(&r, 1, 0, "a", &id), 0);
	rig_fini(&r);
}

/* NFS and Gluster answer so when a handle has gone: no proof that the file is another one. */
static void estale_of_the_filesystem_is_tried_again_once(void)
{
	struct fault_io_rule fail = { .kind = FAULT_IO_FAIL, .repeat = 1, .status = -ESTALE };
	struct file_identity id, other;
	struct waited_read *w;
	struct rig r;

	rig_init(&r, 0, 0);
	id = make_file(&r, "a", 1, 5000);
	fault_io_set(r.io, &fail);
	CHECK_INT(read_piece(&r, 1, 0, "a", &id), 0);
	CHECK_U64(fault_io_seen(r.io), 2);
	CHECK_U64(metrics_get(r.metrics, METRIC_SOURCE_ERRORS), 0);
	fail.repeat = 0;
	fault_io_set(r.io, &fail);
	w = new_read(&r, 1, 0, "a", &id);
	CHECK_INT(waited_read_run(r.tier, w), -ESTALE);
	CHECK(!w->read.answer.is_changed);
	CHECK_U64(fault_io_seen(r.io), 4);
	CHECK_U64(metrics_get(r.metrics, METRIC_SOURCE_ERRORS), 1);
	free_read(w);
	fault_io_set(r.io, NULL);
	other = id;
	other.ino++;
	w = new_read(&r, 1, 0, "a", &other);
	CHECK_INT(waited_read_run(r.tier, w), -ESTALE);
	CHECK(w->read.answer.is_changed);
	CHECK_U64(fault_io_seen(r.io), 5); /* an answer: nothing to try again */
	free_read(w);
	rig_fini(&r);
}

static void descriptors_are_kept_and_reused(void)
{
	struct file_identity big, small;
	struct rig r;
	int fds;

	rig_init(&r, 4, LONG_NS);
	big = make_file(&r, "big", 1, 3 * PIECE_BYTES);
	small = make_file(&r, "small", 2, PIECE_BYTES);
	CHECK_INT(read_piece(&r, 1, 0, "big", &big), 0); /* threads of the pool are there now */
	tier_free(r.tier);
	fds = count_fds();
	CHECK_INT(source_new(&(struct source_params){ .dirfd = r.dirfd,
						      .io = r.io,
						      .open_files = 4,
						      .reopen_ns = LONG_NS },
			     &r.tier, NULL),
		  0);
	CHECK_INT(read_piece(&r, 2, 0, "small", &small), 0);
	check_fds(fds); /* one piece: nothing to keep */
	CHECK_INT(read_piece(&r, 1, 0, "big", &big), 0);
	check_fds(fds + 1);
	/* Through the path this would fail: it is read through the descriptor. */
	for (uint32_t piece = 0; piece < 3; piece++)
		CHECK_INT(read_piece(&r, 1, piece, "no-such-path", &big), 0);
	check_fds(fds + 1);
	tier_free(r.tier);
	check_fds(fds);
	r.tier = NULL;
	rig_fini(&r);
}

static void reads_at_the_same_time_open_a_file_once(void)
{
	struct waited_read *w[8];
	struct file_identity id;
	struct rig r;

	rig_init(&r, 4, LONG_NS);
	id = make_file(&r, "a", 1, ARRAY_LEN(w) * PIECE_BYTES);
	fault_io_pause(r.io);
	for (uint32_t i = 0; i < ARRAY_LEN(w); i++) {
		w[i] = new_read(&r, 1, i, "a", &id);
		tier_read(r.tier, &w[i]->read);
	}
	fault_io_wait_held(r.io, 1);
	CHECK_U64(fault_io_seen(r.io), 1);
	fault_io_resume(r.io);
	for (uint32_t i = 0; i < ARRAY_LEN(w); i++) {
		CHECK_INT(waited_read_wait(w[i]), 0);
		check_bytes_of(w[i], 1);
		free_read(w[i]);
	}
	CHECK_U64(fault_io_seen(r.io), 1 + ARRAY_LEN(w));
	rig_fini(&r);
}

/* Each is tried by itself when the file cannot be opened to be kept: they may have a word to say. */
static void reads_that_wait_for_a_file_that_is_gone_all_hear_of_it(void)
{
	struct file_identity id = { .size = 3 * PIECE_BYTES };
	struct waited_read *w[3];
	struct rig r;

	rig_init(&r, 4, LONG_NS);
	fault_io_pause(r.io);
	for (uint32_t i = 0; i < ARRAY_LEN(w); i++) {
		w[i] = new_read(&r, 1, i, "no-such-file", &id);
		tier_read(r.tier, &w[i]->read);
	}
	fault_io_resume(r.io);
	for (uint32_t i = 0; i < ARRAY_LEN(w); i++) {
		CHECK_INT(waited_read_wait(w[i]), -ENOENT);
		free_read(w[i]);
	}
	rig_fini(&r);
}

/* A range of a file, which may lie across two pieces. */
static void part_of_a_piece_is_read(void)
{
	struct file_identity id;
	struct waited_read *w;
	struct rig r;

	rig_init(&r, 4, LONG_NS);
	id = make_file(&r, "a", 1, 3 * PIECE_BYTES);
	w = new_read(&r, 1, 1, "a", &id);
	w->read.ask.skip = PIECE_BYTES - 4096;
	w->read.ask.length = 8192;
	CHECK_INT(waited_read_run(r.tier, w), 0);
	AUTO_FREE uint8_t *want = version_bytes(1, 2 * PIECE_BYTES - 4096, 8192);

	CHECK_BYTES(w->read.ask.buf, want, 8192);
	free_read(w);
	rig_fini(&r);
}

static void no_more_descriptors_than_asked_for(void)
{
	enum { N = 12, LIMIT = 3 };
	struct file_identity id[N];
	char name[N][8];
	struct rig r;
	int fds;

	rig_init(&r, LIMIT, LONG_NS);
	for (uint32_t i = 0; i < N; i++) {
		snprintf(name[i], sizeof(name[i]), "f%u", i);
		id[i] = make_file(&r, name[i], i, PIECE_BYTES + 10 + i);
	}
	fds = count_fds();
	for (uint32_t round = 0; round < 3; round++)
		for (uint32_t i = 0; i < N; i++) {
			CHECK_INT(read_piece(&r, i, round % 2, name[i], &id[i]), 0);
			check_fds(fds + (int)MIN(round * N + i + 1, LIMIT));
		}
	/* The last ones are kept, those used longer ago are not. */
	for (uint32_t i = N - LIMIT; i < N; i++)
		CHECK_INT(read_piece(&r, i, 0, "no-such-path", &id[i]), 0);
	CHECK_INT(read_piece(&r, N - LIMIT - 1, 0, "no-such-path", &id[N - LIMIT - 1]), -ENOENT);
	/* Use counts, not age: the oldest of the table is used, so the second oldest goes. */
	CHECK_INT(read_piece(&r, N - LIMIT, 0, "no-such-path", &id[N - LIMIT]), 0);
	CHECK_INT(read_piece(&r, 0, 0, name[0], &id[0]), 0);
	CHECK_INT(read_piece(&r, N - LIMIT, 0, "no-such-path", &id[N - LIMIT]), 0);
	CHECK_INT(read_piece(&r, N - LIMIT + 1, 0, "no-such-path", &id[N - LIMIT + 1]), -ENOENT);
	tier_free(r.tier);
	check_fds(fds);
	r.tier = NULL;
	rig_fini(&r);
}

static void old_descriptors_are_opened_again(void)
{
	struct file_identity id;
	struct rig r;

	rig_init(&r, 4, 0); /* everything is too old */
	id = make_file(&r, "a", 1, 2 * PIECE_BYTES);
	CHECK_INT(read_piece(&r, 1, 0, "a", &id), 0);
	CHECK_INT(read_piece(&r, 1, 1, "a", &id), 0);
	CHECK_INT(read_piece(&r, 1, 0, "no-such-path", &id), -ENOENT);
	rig_fini(&r);
}

/* A kept descriptor of a file that has been replaced, with the reader believing in the new one, in
 * the old one, and after a change in place. */
static void kept_descriptor_is_never_the_last_word(void)
{
	AUTO_FREE char *a = NULL, *b = NULL;
	struct file_identity old, new;
	struct stat st;
	struct rig r;
	int fds;

	rig_init(&r, 4, LONG_NS);
	fds = count_fds();
	a = rig_path(&r, "a");
	b = rig_path(&r, "b");
	old = make_file(&r, "a", 1, 2 * PIECE_BYTES);
	CHECK_INT(read_piece(&r, 1, 0, "a", &old), 0);
	new = make_file(&r, "b", 1, 2 * PIECE_BYTES + 1);
	CHECK_INT(rename(b, a), 0);
	CHECK_INT(stat(a, &st), 0);
	new = file_identity_of(&st);
	CHECK_INT(read_stale(&r, "a", &old, &st), -ESTALE);
	CHECK_U64(st.st_ino, new.ino); /* what is behind the path, not behind the descriptor */
	CHECK_INT(read_piece(&r, 1, 0, "a", &new), 0);
	CHECK_INT(read_piece(&r, 1, 1, "no-such-path", &new), 0);
	/* In place: the same inode. */
	make_file(&r, "a", 1, 2 * PIECE_BYTES - 1);
	CHECK_INT(read_stale(&r, "a", &new, &st), -ESTALE);
	CHECK_U64((uint64_t)st.st_size, 2 * PIECE_BYTES - 1);
	new = file_identity_of(&st);
	CHECK_INT(read_piece(&r, 1, 1, "a", &new), 0);
	/* A descriptor that is known to be of another version is not even tried. */
	unsigned n_jobs = fault_io_seen(r.io);

	CHECK_INT(read_stale(&r, "a", &old, &st), -ESTALE);
	CHECK_U64(fault_io_seen(r.io), n_jobs + 1);
	CHECK_INT(read_piece(&r, 1, 1, "a", &new), 0);
	/* An error on the descriptor alone is not seen by the reader. */
	fault_io_set(r.io,
		     &(struct fault_io_rule){ .kind = FAULT_IO_FAIL, .repeat = 1, .status = -EIO });
	CHECK_INT(read_piece(&r, 1, 0, "a", &new), 0);
	CHECK_U64(fault_io_fired(r.io), 1);
	CHECK_U64(metrics_get(r.metrics, METRIC_SOURCE_ERRORS), 0);
	/* One of a file that is gone does not keep its blocks from being freed. */
	CHECK_INT(unlink(a), 0);
	CHECK_INT(read_stale(&r, "a", &new, &st), -ENOENT);
	check_fds(fds);
	rig_fini(&r);
}

/* Many reads at once, by one thread. */
struct flood {
	struct waited_read *reads[48];
	struct rig *rig;
	struct thr thr;
};

/* Another change could follow in the same tick of the filesystem's clock. */
static void file_that_has_just_changed_is_said_to_be_young(void)
{
	static const uint64_t grains[] = { 0, 1, 3600 * NS_PER_S };

	for (size_t i = 0; i < ARRAY_LEN(grains); i++) {
		struct rig r;
		struct file_identity id;
		struct waited_read *w;
		struct source_params params;

		rig_init(&r, 0, 0);
		tier_free(r.tier);
		params = (struct source_params){
			.dirfd = r.dirfd, .io = r.io, .metrics = r.metrics, .grain_ns = grains[i]
		};
		CHECK_INT(source_new(&params, &r.tier, NULL), 0);
		do /* a whole second means another clock */
			id = make_file(&r, "young", 1, 100);
		while (id.ctime_ns % (int64_t)NS_PER_S == 0);
		w = new_read(&r, 0, 0, "young", &id);
		CHECK_INT(waited_read_run(r.tier, w), 0);
		CHECK_INT(w->read.answer.young_until_ns,
			  grains[i] > 1 ? id.ctime_ns + (int64_t)grains[i] : 0);
		free_read(w);
		rig_fini(&r);
	}
}

static void *flood_main(void *arg)
{
	struct flood *flood = arg;

	for (unsigned round = 0; round < 5; round++) {
		for (size_t i = 0; i < ARRAY_LEN(flood->reads); i++)
			tier_read(flood->rig->tier, &flood->reads[i]->read);
		for (size_t i = 0; i < ARRAY_LEN(flood->reads); i++) {
			CHECK_INT(waited_read_wait(flood->reads[i]), 0);
			flood->reads[i]->n_done = 0;
		}
	}
	return NULL;
}

/* Several threads, few places: descriptors are evicted while others use them, all the time. */
static void threads_share_few_descriptors(void)
{
	enum { N_FILES = 6, N_THREADS = 3 };
	struct file_identity id[N_FILES];
	char name[N_FILES][8];
	struct flood floods[N_THREADS];
	uint64_t seed = check_seed();
	struct rig r;
	int fds;

	rig_init(&r, 2, LONG_NS);
	for (uint32_t i = 0; i < N_FILES; i++) {
		snprintf(name[i], sizeof(name[i]), "f%u", i);
		id[i] = make_file(&r, name[i], i, PIECE_BYTES + 4000 + i);
	}
	fds = count_fds();
	for (size_t t = 0; t < N_THREADS; t++) {
		floods[t].rig = &r;
		for (size_t i = 0; i < ARRAY_LEN(floods[t].reads); i++) {
			uint32_t file = (uint32_t)check_rand_below(&seed, N_FILES);

			floods[t].reads[i] = new_read(&r, file, i % 8 != 0, name[file], &id[file]);
		}
	}
	for (size_t t = 0; t < N_THREADS; t++)
		CHECK_INT(thr_start(&floods[t].thr, "flood", flood_main, &floods[t], NULL), 0);
	for (size_t t = 0; t < N_THREADS; t++)
		thr_join(&floods[t].thr);
	for (size_t t = 0; t < N_THREADS; t++)
		for (size_t i = 0; i < ARRAY_LEN(floods[t].reads); i++) {
			check_bytes_of(floods[t].reads[i],
				       floods[t].reads[i]->read.ask.key.entry.v);
			free_read(floods[t].reads[i]);
		}
	CHECK_U64(metrics_get(r.metrics, METRIC_SOURCE_READS),
		  N_THREADS * 5 * ARRAY_LEN(floods[0].reads));
	tier_free(r.tier);
	check_fds(fds);
	r.tier = NULL;
	rig_fini(&r);
}

static void free_waits_for_reads_in_flight(void)
{
	struct waited_read *w[8];
	struct file_identity id;
	struct rig r;

	rig_init(&r, 2, LONG_NS);
	id = make_file(&r, "a", 1, 8 * PIECE_BYTES);
	fault_io_set(r.io, &(struct fault_io_rule){ .kind = FAULT_IO_DELAY, .delay_ns = 2000000 });
	for (uint32_t i = 0; i < 8; i++) {
		w[i] = new_read(&r, 1, i, "a", &id);
		tier_read(r.tier, &w[i]->read);
	}
	tier_free(r.tier);
	for (uint32_t i = 0; i < 8; i++) {
		CHECK_INT(w[i]->n_done, 1);
		CHECK_INT(waited_read_wait(w[i]), 0);
		check_bytes_of(w[i], 1);
		free_read(w[i]);
	}
	r.tier = NULL;
	rig_fini(&r);
}

static const struct check_test tests[] = {
	{ "file_that_has_just_changed_is_said_to_be_young",
	  file_that_has_just_changed_is_said_to_be_young },
	{ "files_of_all_sizes_are_read", files_of_all_sizes_are_read },
	{ "another_file_is_stale_and_shown", another_file_is_stale_and_shown },
	{ "what_is_no_file_any_more_is_no_bytes", what_is_no_file_any_more_is_no_bytes },
	{ "errors_of_the_engine_are_handed_on", errors_of_the_engine_are_handed_on },
	{ "estale_of_the_filesystem_is_tried_again_once",
	  estale_of_the_filesystem_is_tried_again_once },
	{ "reads_at_the_same_time_open_a_file_once", reads_at_the_same_time_open_a_file_once },
	{ "reads_that_wait_for_a_file_that_is_gone_all_hear_of_it",
	  reads_that_wait_for_a_file_that_is_gone_all_hear_of_it },
	{ "part_of_a_piece_is_read", part_of_a_piece_is_read },
	{ "descriptors_are_kept_and_reused", descriptors_are_kept_and_reused },
	{ "no_more_descriptors_than_asked_for", no_more_descriptors_than_asked_for },
	{ "old_descriptors_are_opened_again", old_descriptors_are_opened_again },
	{ "kept_descriptor_is_never_the_last_word", kept_descriptor_is_never_the_last_word },
	{ "threads_share_few_descriptors", threads_share_few_descriptors },
	{ "free_waits_for_reads_in_flight", free_waits_for_reads_in_flight },
};

CHECK_MAIN(tests)
