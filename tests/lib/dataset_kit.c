/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small trees, a clock and the log as text, for the tests of the dataset module: dataset_kit.h.
 */
#include "dataset_kit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "check.h"

char *kit_path(const char *dir, const char *name)
{
	char *path = NULL;

	CHECK(asprintf(&path, "%s/%s", dir, name) > 0);
	return path;
}

void kit_file(const char *root, const char *name, size_t size)
{
	AUTO_FREE char *path = kit_path(root, name);
	AUTO_FD int fd = -1;

	for (size_t i = strlen(root) + 1; path[i]; i++) {
		if (path[i] != '/')
			continue;
		path[i] = '\0';
		CHECK(mkdir(path, 0755) == 0 || errno == EEXIST);
		path[i] = '/';
	}
	if (name[strlen(name) - 1] == '/')
		return;
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	CHECK(fd >= 0);
	CHECK_INT(ftruncate(fd, (off_t)size), 0);
}

char *kit_tree(const char *name, const char *const *paths)
{
	char *root = check_tmpfile(name);

	CHECK_INT(mkdir(root, 0755), 0);
	for (; *paths; paths++)
		kit_file(root, *paths, 1);
	return root;
}

void kit_link(const char *root, const char *name, const char *target)
{
	AUTO_FREE char *path = kit_path(root, name);

	CHECK_INT(symlink(target, path), 0);
}

void kit_remove(const char *root, const char *name)
{
	AUTO_FREE char *path = kit_path(root, name);

	CHECK_INT(remove(path), 0);
}

uint64_t kit_an_hour_ahead(struct clock *clock)
{
	return ((uint64_t)time(NULL) + 3600) * NS_PER_S;
}

struct dataset *kit_open(const char *source, struct kit_open how)
{
	struct clock ahead = { .now_ns = kit_an_hour_ahead };
	struct dataset_params params = { .source = source,
					 .snapshot_dir = how.snapshot_dir,
					 .layout = how.layout,
					 .is_shared = how.is_shared,
					 .scan_threads = how.threads ? how.threads : 2,
					 .wall_clock = how.is_fresh ? NULL : &ahead };
	struct dataset *ds = NULL;
	struct err err = { 0 };

	CHECK_INT(dataset_open(&params, &ds, &err), 0);
	return ds;
}

struct dataset_stats kit_stats(const struct dataset *ds)
{
	struct dataset_stats stats;

	dataset_get_stats(ds, &stats);
	return stats;
}

char *kit_samples(const struct dataset *ds)
{
	char *text = NULL, path[PATH_MAX];
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);

	CHECK(f);
	for (uint32_t i = 0; i < dataset_n_samples(ds); i++) {
		CHECK_INT(dataset_path(ds, (struct entry_id){ i }, path, sizeof(path)), 0);
		fprintf(f, "%s\n", path);
	}
	fclose(f);
	return text;
}

struct entry_id kit_find(const struct dataset *ds, const char *path)
{
	return dataset_resolve(ds, path, strlen(path));
}

bool kit_has(const struct dataset *ds, const char *path)
{
	return !entry_eq(kit_find(ds, path), ENTRY_NONE);
}

int kit_log_begin(void)
{
	AUTO_FREE char *path = check_tmpfile("log");
	AUTO_FD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	int saved = dup(STDERR_FILENO);

	CHECK(fd >= 0 && saved >= 0);
	CHECK(dup2(fd, STDERR_FILENO) >= 0);
	return saved;
}

char *kit_log_end(int saved)
{
	AUTO_FREE char *path = check_tmpfile("log");
	char *text = calloc(1, 65536);
	AUTO_FILE FILE *f = fopen(path, "r");

	CHECK(dup2(saved, STDERR_FILENO) >= 0);
	close(saved);
	CHECK(f && text);
	CHECK(fread(text, 1, 65535, f) < 65535);
	return text;
}
