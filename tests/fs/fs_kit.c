/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fixture of the fs tests: a source directory, its dataset, the fake cache and a real mount,
 * and children that use the mount. Every wait has an end: a child that does not come back has its
 * connection aborted through /sys/fs/fuse, so that neither it nor this process stays behind as
 * something that cannot be killed.
 *
 * One thread, the test's.
 */
#include "fs_kit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define CHILD_MS 60000

int kit_main(int argc, char **argv, const struct check_test *tests, size_t n_tests)
{
	if (argc > 2 && strcmp(argv[1], "--child") == 0)
		return kit_child_main(argc - 2, argv + 2);
	return check_main(argc, argv, tests, n_tests);
}

void kit_init(struct kit *k)
{
	char name[64];
	struct timespec now;

	memset(k, 0, sizeof(*k));
	clock_gettime(CLOCK_MONOTONIC, &now);
	snprintf(name, sizeof(name), "src.%lld.%09ld", (long long)now.tv_sec, now.tv_nsec);
	k->source = check_tmpfile(name);
	memcpy(name, "mnt", 3);
	k->mountpoint = check_tmpfile(name);
	CHECK_INT(mkdir(k->source, 0755), 0);
	CHECK_INT(mkdir(k->mountpoint, 0755), 0);
}

void kit_add_file(struct kit *k, const char *path, size_t size)
{
	AUTO_FREE char *full = NULL;
	AUTO_FREE uint8_t *bytes = malloc(size + 8);
	AUTO_FD int fd = -1;
	uint64_t state = size;

	CHECK(asprintf(&full, "%s/%s", k->source, path) > 0 && bytes);
	for (const char *c = path; *c; c++)
		state = state * 31 + (uint8_t)*c;
	for (size_t i = 0; i < size; i += 8) {
		uint64_t v = check_rand_u64(&state);

		memcpy(bytes + i, &v, 8);
	}
	for (char *slash = full + strlen(k->source) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		CHECK(mkdir(full, 0755) == 0 || errno == EEXIST);
		*slash = '/';
	}
	fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	CHECK(fd >= 0);
	CHECK_INT(write(fd, bytes, size), (int64_t)size);
}

void kit_add_samples(struct kit *k, unsigned dirs, unsigned n, size_t size)
{
	char path[64];

	for (unsigned d = 0; d < dirs; d++)
		for (unsigned i = 0; i < n; i++) {
			snprintf(path, sizeof(path), "d%u/s%u", d, i);
			kit_add_file(k, path, size);
		}
}

void kit_mount(struct kit *k, const struct kit_options *options)
{
	struct dataset_params dp = { .source = k->source,
				     .layout = LAYOUT_FILES,
				     .scan_threads = 2 };
	struct fs_params fp = { .clock = clock_monotonic(),
				.mountpoint = k->mountpoint,
				.source = k->source,
				.inodes_ahead = 1u << 20 };
	struct err err = { .code = 0 };

	CHECK_INT(dataset_open(&dp, &k->dataset, &err), 0);
	k->metrics = metrics_new();
	CHECK(k->metrics != NULL);
	kit_cache_new(k);
	fp.dataset = k->dataset;
	fp.cache = k->cache;
	fp.metrics = k->metrics;
	if (options) {
		fp.vfiles = options->vfiles;
		fp.announce = options->announce;
		fp.announce_ctx = options->announce_ctx;
		fp.steps = options->steps;
		fp.steps_ctx = options->steps_ctx;
		fp.force_open_answered = options->force_open_answered;
		fp.inodes_ahead = options->inodes_ahead ? options->inodes_ahead : fp.inodes_ahead;
		fp.lookups_ahead = options->lookups_ahead;
		fp.source = options->shown_source ? options->shown_source : fp.source;
	}
	err.msg[0] = '\0';
	if (fs_new(&fp, &k->fs, &err) < 0)
		CHECK_STR(err.msg, "");
	if (fs_start(k->fs, &err) < 0)
		CHECK_STR(err.msg, "");
	kit_cache_start(k);
}

void kit_fini(struct kit *k)
{
	if (k->fs) {
		fs_unmount(k->fs);
		kit_cache_stop(k);
		fs_free(k->fs);
		kit_cache_free(k);
	}
	metrics_free(k->metrics);
	dataset_free(k->dataset);
	free(k->source);
	free(k->mountpoint);
}

uint64_t kit_counter(struct kit *k, enum metric id)
{
	return metrics_get(k->metrics, id);
}

struct entry_id kit_entry(struct kit *k, const char *path)
{
	struct entry_id e = dataset_resolve(k->dataset, path, strlen(path));

	CHECK(!entry_eq(e, ENTRY_NONE));
	return e;
}

char *kit_path(struct kit *k, const char *path)
{
	char *full = NULL;

	CHECK(asprintf(&full, "%s/%s", k->mountpoint, path) > 0);
	return full;
}

void kit_child_start(struct kit_child *child, const char *operation, const char *a, const char *b)
{
	char self[] = "/proc/self/exe", dash[] = "--child";
	char *argv[] = { self,
			 dash,
			 (char *)(uintptr_t)operation,
			 (char *)(uintptr_t)a,
			 (char *)(uintptr_t)(a ? b : NULL),
			 NULL };
	posix_spawn_file_actions_t actions;
	int fds[2];

	/* What a child leaves behind when it is killed goes with our own directory. */
	CHECK_INT(setenv("TMPDIR", check_tmpdir(), 1), 0);
	CHECK_INT(pipe2(fds, O_CLOEXEC), 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fds[1], 1);
	CHECK_INT(posix_spawn(&child->pid, self, &actions, NULL, argv, environ), 0);
	posix_spawn_file_actions_destroy(&actions);
	close(fds[1]);
	child->out = fds[0];
}

/* A forced unmount ends every request of the mount with an error. */
static void give_up(struct kit *k, struct kit_child *child)
{
	if (k->mountpoint)
		umount2(k->mountpoint, MNT_FORCE | MNT_DETACH);
	kill(child->pid, SIGKILL);
	waitpid(child->pid, NULL, 0);
	CHECK_STR("the child hangs", "");
}

void kit_child_line(struct kit *k, struct kit_child *child, char *line, size_t size)
{
	struct pollfd pfd = { .fd = child->out, .events = POLLIN };
	size_t len = 0;

	while (len + 1 < size) {
		if (poll(&pfd, 1, CHILD_MS) == 0)
			give_up(k, child);
		if (read(child->out, line + len, 1) != 1 || line[len] == '\n')
			break;
		len++;
	}
	line[len] = '\0';
}

int kit_child_wait(struct kit *k, struct kit_child *child)
{
	struct pollfd pfd = { .fd = child->out, .events = POLLIN };
	char rest[4096];
	int status = 0;

	/* It has ended when nobody can write to the pipe any more. */
	do {
		if (poll(&pfd, 1, CHILD_MS) == 0)
			give_up(k, child);
	} while (read(child->out, rest, sizeof(rest)) > 0);
	CHECK_INT(waitpid(child->pid, &status, 0), child->pid);
	close(child->out);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

int kit_child(struct kit *k, const char *operation, const char *a, const char *b)
{
	struct kit_child child;

	kit_child_start(&child, operation, a, b);
	return kit_child_wait(k, &child);
}
