/* SPDX-License-Identifier: Apache-2.0 */
/* clairfs trace: what single reads, fetches, pushes and writes of a mount do for some seconds, as
 * Chrome's trace events in JSON lines, the way dftracer writes them (.pfw): Perfetto and dfanalyzer
 * open them. A viewer that wants an array (chrome://tracing) gets one in a file that is called
 * .json; dfanalyzer reads lines, so there are no commas in the other one. Either may end anywhere,
 * when the disk is full or somebody was killed: each line is an event of its own.
 *
 * The mount keeps events in a ring while somebody takes them; they are taken here ten times a
 * second, kept in memory, and written at the end, because a viewer needs them in lanes: what
 * overlaps in time must not have the same thread number, and what is part of a fetch must have the
 * fetch's. The threads of the daemon would not do: one of them has many reads in flight.
 *
 * Files are numbers (`clairfs index` has their names): a trace is passed around, and names are
 * often nobody's business. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/text.h"
#include "clairfs/client.h"
#include "clairfs/hint.h"
#include "clairfs/metrics/trace.h"
#include "cli.h"

#define PAUSE_NS (100 * NS_PER_MS)
#define EVENTS_MAX (4u << 20) /* half a gigabyte of text */

/* Rows of lanes in the viewer. */
enum track { TRACK_READ, TRACK_FETCH, TRACK_STORE, TRACK_STAGE, TRACK_REST, TRACKS };
static const char *const track_names[TRACKS] = { "reads", "fetches", "store writes", "stage",
						 "fetches that began before" };
enum { LANES_MAX = 4096 };

struct span {
	struct trace_event e;
	uint32_t lane; /* thread number */
};

struct trace_run {
	const char *mountpoint, *path; /* path NULL: stdout */
	bool is_array;                 /* JSON as a whole, and not line by line */
	double seconds;
	int pid;
	struct span *spans;
	size_t n, capacity;
	uint64_t lost;
	bool is_full;
};

/* --- taking --- */

static int keep_chunk(struct trace_run *t, const struct trace_chunk *chunk, struct err *err)
{
	if (t->n + chunk->n > t->capacity) {
		size_t capacity = MAX(t->capacity * 2, 65536u);
		struct span *more = realloc(t->spans, capacity * sizeof(*more));

		if (!more)
			return err_set(err, -ENOMEM, "out of memory");
		t->spans = more;
		t->capacity = capacity;
	}
	for (uint32_t i = 0; i < chunk->n; i++)
		if (chunk->event[i].kind < TRACE_KINDS &&
		    chunk->event[i].end_ns >= chunk->event[i].begin_ns)
			t->spans[t->n++].e = chunk->event[i];
	t->lost += chunk->lost;
	t->is_full = t->n > EVENTS_MAX - TRACE_CHUNK;
	return 0;
}

/* All that there is now. */
static int take_events(struct trace_run *t, int fd, struct trace_chunk *chunk, struct err *err)
{
	int rc = 0;

	do {
		chunk->version = TRACE_VERSION;
		if (ioctl(fd, TRACE_IOC_TAKE, chunk) < 0)
			return err_set(err, -errno, "%s: %s", t->mountpoint,
				       errno == EACCES   ? "only who mounted it may trace"
				       : errno == ENOTTY ? "the mount is of another version"
				       : errno == ENOTCONN || errno == ECONNABORTED
					       ? "its daemon is gone"
					       : strerror(errno));
		if (chunk->n > TRACE_CHUNK)
			return err_set(err, -EPROTO, "%s: nonsense from its daemon", t->mountpoint);
		rc = keep_chunk(t, chunk, err);
	} while (rc == 0 && chunk->n == TRACE_CHUNK && !t->is_full);
	return rc;
}

/* Takes until the time is over or a signal comes. */
static int record_trace(struct trace_run *t, int fd, struct err *err)
{
	const struct timespec pause = { .tv_nsec = (long)PAUSE_NS };
	uint64_t end = clock_now(clock_monotonic()) + (uint64_t)(t->seconds * 1e9);
	AUTO_FREE struct trace_chunk *chunk = calloc(1, sizeof(*chunk));
	bool is_over = false;
	sigset_t set;
	int rc;

	if (!chunk)
		return err_set(err, -ENOMEM, "out of memory");
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL); /* ends the recording, not the program */
	rc = take_events(t, fd, chunk, err);
	while (rc == 0 && !is_over && !t->is_full) {
		is_over =
			sigtimedwait(&set, NULL, &pause) > 0 || clock_now(clock_monotonic()) >= end;
		rc = take_events(t, fd, chunk, err);
	}
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	if ((rc == -ENOTCONN || rc == -ECONNABORTED) && t->n) {
		fprintf(stderr, "clairfs: %s; what there is until then is written\n", err->msg);
		return 0;
	}
	return rc;
}

/* --- lanes --- */

static bool is_fetch(const struct span *s)
{
	return s->e.kind == TRACE_FETCH || s->e.kind == TRACE_PREFETCH;
}

static enum track track_of(const struct span *s)
{
	static const enum track tracks[TRACE_KINDS] = {
		[TRACE_READ] = TRACK_READ,         [TRACE_PREFETCH] = TRACK_FETCH,
		[TRACE_FETCH] = TRACK_FETCH,       [TRACE_SOURCE_READ] = TRACK_REST,
		[TRACE_SOURCE_CHECK] = TRACK_REST, [TRACE_STORE_READ] = TRACK_REST,
		[TRACE_STORE_WRITE] = TRACK_STORE, [TRACE_STAGE] = TRACK_STAGE
	};

	return tracks[s->e.kind];
}

static int compare_span(const void *a, const void *b)
{
	const struct span *x = a, *y = b;

	if (x->e.begin_ns != y->e.begin_ns)
		return x->e.begin_ns < y->e.begin_ns ? -1 : 1;
	if (x->e.end_ns != y->e.end_ns) /* who contains comes before what is contained */
		return x->e.end_ns > y->e.end_ns ? -1 : 1;
	return (int)is_fetch(y) - (int)is_fetch(x);
}

/* Of one track: when the last span of each ends. */
struct lanes {
	uint64_t end_ns[LANES_MAX];
};

struct parent {
	uint32_t group, lane;
};

static int compare_parent(const void *a, const void *b)
{
	const struct parent *x = a, *y = b;

	return (x->group > y->group) - (x->group < y->group);
}

/* The first lane that is free at that time; when there are too many, the last one. */
static uint32_t lane_for(struct lanes *lanes, const struct span *s)
{
	uint32_t lane = 0;

	while (lane < LANES_MAX - 1 && lanes->end_ns[lane] > s->e.begin_ns)
		lane++;
	lanes->end_ns[lane] = s->e.end_ns;
	return track_of(s) * 10000 + lane + 1;
}

/* Sorted spans get their lanes: fetches first, then what belongs to them, then the rest. */
static int assign_lanes(struct trace_run *t, struct err *err)
{
	AUTO_FREE struct lanes *lanes = calloc(TRACKS, sizeof(*lanes));
	AUTO_FREE struct parent *parents = calloc(t->n + 1, sizeof(*parents));
	size_t n = 0;

	if (!lanes || !parents)
		return err_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < t->n; i++) {
		struct span *s = &t->spans[i];

		if (!is_fetch(s))
			continue;
		s->lane = lane_for(&lanes[TRACK_FETCH], s);
		parents[n++] = (struct parent){ s->e.group, s->lane };
	}
	qsort(parents, n, sizeof(*parents), compare_parent);
	for (size_t i = 0; i < t->n; i++) {
		struct span *s = &t->spans[i];
		struct parent key = { .group = s->e.group }, *parent = NULL;

		if (is_fetch(s))
			continue;
		if (key.group)
			parent = bsearch(&key, parents, n, sizeof(*parents), compare_parent);
		s->lane = parent ? parent->lane : lane_for(&lanes[track_of(s)], s);
	}
	return 0;
}

/* --- writing --- */

/* Ends the line before. */
static void print_next_event(const struct trace_run *t, FILE *out)
{
	fputs(t->is_array ? ",\n" : "\n", out);
}

static void print_names(const struct trace_run *t, FILE *out)
{
	uint32_t most[TRACKS] = { 0 };
	unsigned id = 0;

	fprintf(out,
		"{\"id\":%u,\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,"
		"\"args\":{\"name\":\"clairfs\"}}",
		id++, t->pid);
	for (size_t i = 0; i < t->n; i++) {
		uint32_t track = t->spans[i].lane / 10000, lane = t->spans[i].lane % 10000;

		most[track] = MAX(most[track], lane);
	}
	for (uint32_t track = 0; track < TRACKS; track++)
		for (uint32_t lane = 1; lane <= most[track]; lane++) {
			print_next_event(t, out);
			fprintf(out,
				"{\"id\":%u,\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,"
				"\"tid\":%u,\"args\":{\"name\":\"%s %u\"}}",
				id++, t->pid, track * 10000 + lane, track_names[track], lane);
		}
}

static void print_span(const struct trace_run *t, const struct span *s, size_t id, FILE *out)
{
	static const char *const names[TRACE_KINDS][2] = {
#define TRACE_NAME(id, name, category) { name, category },
		TRACE_LIST(TRACE_NAME)
#undef TRACE_NAME
	};
	uint64_t dur = s->e.end_ns - s->e.begin_ns;

	print_next_event(t, out);
	fprintf(out,
		"{\"id\":%zu,\"name\":\"%s\",\"cat\":\"%s\",\"pid\":%d,\"tid\":%" PRIu32
		",\"ts\":%" PRIu64 ".%03" PRIu64 ",\"dur\":%" PRIu64 ".%03" PRIu64
		",\"ph\":\"X\",\"args\":{\"file\":%" PRIu32 ",\"piece\":%" PRIu32
		",\"bytes\":%" PRIu32,
		id, names[s->e.kind][0], names[s->e.kind][1], t->pid, s->lane, s->e.begin_ns / 1000,
		s->e.begin_ns % 1000, dur / 1000, dur % 1000, s->e.file, s->e.piece, s->e.bytes);
	if (s->e.kind == TRACE_READ && s->e.how < READ_CLASSES)
		fprintf(out, ",\"class\":\"%s\"", read_class_names[s->e.how]);
	if (s->e.status != 0)
		fprintf(out, ",\"error\":%d", -s->e.status);
	fputs("}}", out);
}

static bool path_ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n >= m && strcmp(text + n - m, end) == 0;
}

static int write_out(const struct trace_run *t)
{
	FILE *out = t->path ? fopen(t->path, "we") : stdout;
	int rc = 0;

	if (out) {
		fputs("[\n", out);
		print_names(t, out);
		for (size_t i = 0; i < t->n; i++)
			print_span(t, &t->spans[i], 1000000 + i, out);
		fputs(t->is_array ? "\n]\n" : "\n", out);
		rc = ferror(out);
	}
	if (!t->path)
		return cli_finish();
	if (!out || fclose(out) != 0 || rc) {
		fprintf(stderr, "clairfs: %s: %s\n", t->path, strerror(errno));
		return EXIT_FAILED;
	}
	return EXIT_DONE;
}

static int trace_mount(struct trace_run *t)
{
	char hint_path[PATH_MAX];
	AUTO_FD int fd = -1;
	struct err err = { 0 };

	snprintf(hint_path, sizeof(hint_path), "%s/%s", t->mountpoint, CLAIRFS_HINT_FILE);
	fd = open(hint_path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		err_set_errno(&err, -errno, "%s", hint_path);
		return cli_fail(&err);
	}
	if (record_trace(t, fd, &err) < 0)
		return cli_fail(&err);
	if (t->n)
		qsort(t->spans, t->n, sizeof(*t->spans), compare_span);
	if (assign_lanes(t, &err) < 0)
		return cli_fail(&err);
	if (t->lost)
		fprintf(stderr, "clairfs: %" PRIu64 " events came too fast and are missing\n",
			t->lost);
	if (t->is_full)
		fprintf(stderr, "clairfs: stopped early: %zu events are enough for one file\n",
			t->n);
	return write_out(t);
}

/* Also whether the mount answers at all. */
static int find_traced(struct trace_run *t, struct mount_info *info, struct err *err)
{
	AUTO_FREE char *text = NULL;
	json_t *root;
	int rc = mounts_find(t->mountpoint, info, err);

	if (rc == 0 && !info->is_ours)
		rc = err_set(err, -ENOENT, "%s is not a clairfs mount", info->path);
	if (rc == 0)
		rc = mounts_read_vfile(info->path, "stats.json", &text, err);
	if (rc < 0)
		return rc;
	t->mountpoint = info->path;
	root = json_loads(text, 0, NULL);
	t->pid = (int)json_integer_value(json_object_get(root, "pid"));
	json_decref(root);
	return 0;
}

int cmd_trace(int argc, char **argv)
{
	static const struct option longs[] = { { "seconds", required_argument, NULL, 's' },
					       { "help", no_argument, NULL, 'h' },
					       { NULL, 0, NULL, 0 } };
	struct trace_run t = { .seconds = 10 };
	struct mount_info info;
	struct err err = { 0 };
	int c, rc;

	while ((c = getopt_long(argc, argv, "o:", longs, NULL)) != -1) {
		if (c == 'h')
			return cli_help("trace");
		if (c == '?')
			return cli_bad_option("trace", argv);
		if (c == 'o')
			t.path = optarg;
		else if (text_to_real(optarg, &t.seconds) < 0 || t.seconds <= 0 || t.seconds > 3600)
			return cli_usage("trace", "--seconds '%s': more than 0, at most 3600",
					 optarg);
	}
	if (argc - optind != 1)
		return cli_usage("trace", "one MOUNTPOINT is needed");
	t.mountpoint = argv[optind];
	t.is_array = t.path && path_ends_with(t.path, ".json");
	if (find_traced(&t, &info, &err) < 0)
		return cli_fail(&err);
	rc = trace_mount(&t);
	free(t.spans);
	return rc;
}
