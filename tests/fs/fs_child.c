/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What children of the fs tests do with a mount: plain system calls of a fresh process, as a job's
 * are. Each operation ends with 0 or an errno; what it found otherwise is said on stderr and is
 * EPROTO.
 *
 * One thread.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <termios.h>

#include "clairfs/hint.h"
#include "fs_kit.h"

static int say(const char *what, const char *path)
{
	fprintf(stderr, "# child: %s: %s\n", what, path);
	return EPROTO;
}

/* Reads a whole file; 0 or an errno. */
static int slurp(const char *path, char **ret, size_t *ret_size, struct stat *st)
{
	AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t at = 0;
	ssize_t got;

	if (fd < 0 || fstat(fd, st) < 0)
		return errno;
	*ret = malloc((size_t)st->st_size + 1);
	if (!*ret)
		return ENOMEM;
	while ((got = read(fd, *ret + at, (size_t)st->st_size + 1 - at)) > 0) {
		at += (size_t)got;
		if (at > (size_t)st->st_size)
			return say("longer than its size", path);
	}
	*ret_size = at;
	return got < 0 ? errno : 0;
}

static int compare_file(const char *a, const char *b)
{
	AUTO_FREE char *da = NULL;
	AUTO_FREE char *db = NULL;
	size_t na = 0, nb = 0;
	struct stat sa, sb;
	int rc = slurp(a, &da, &na, &sa);

	if (rc == 0)
		rc = slurp(b, &db, &nb, &sb);
	if (rc != 0)
		return rc;
	if (na != nb || memcmp(da, db, na) != 0)
		return say("other bytes", b);
	if (sa.st_size != sb.st_size || sa.st_mode != sb.st_mode || sa.st_uid != sb.st_uid ||
	    sa.st_gid != sb.st_gid || sa.st_mtim.tv_sec != sb.st_mtim.tv_sec ||
	    sa.st_mtim.tv_nsec != sb.st_mtim.tv_nsec)
		return say("other attributes", b);
	return 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int compare_tree(const char *a, const char *b);

static int compare_entry(const char *a, const char *b, const char *name)
{
	AUTO_FREE char *pa = NULL;
	AUTO_FREE char *pb = NULL;
	struct stat st;

	if (asprintf(&pa, "%s/%s", a, name) < 0 || asprintf(&pb, "%s/%s", b, name) < 0)
		return ENOMEM;
	if (stat(pa, &st) < 0)
		return errno;
	return S_ISDIR(st.st_mode) ? compare_tree(pa, pb) : compare_file(pa, pb);
}

static int compare_tree(const char *a, const char *b)
{
	struct dirent **ea, **eb;
	int na = scandir(a, &ea, NULL, by_name), nb = scandir(b, &eb, NULL, by_name), rc = 0;

	if (na < 0 || nb < 0)
		return say(strerror(errno), b);
	if (na != nb)
		rc = say("another number of names", b);
	for (int i = 0; i < na && rc == 0; i++) {
		if (strcmp(ea[i]->d_name, eb[i]->d_name) != 0)
			rc = say("another name", eb[i]->d_name);
		else if (ea[i]->d_type != DT_LNK && ea[i]->d_type != eb[i]->d_type)
			rc = say("another type", eb[i]->d_name);
		else if (strcmp(ea[i]->d_name, ".") != 0 && strcmp(ea[i]->d_name, "..") != 0)
			rc = compare_entry(a, b, ea[i]->d_name);
	}
	for (int i = 0; i < na; i++)
		free(ea[i]);
	for (int i = 0; i < nb; i++)
		free(eb[i]);
	free(ea);
	free(eb);
	return rc;
}

/* open + fstat + read + close of every path in a file, as a data loader does. Behind a tab may
 * stand the path of a file that must be the same. */
static int read_list(const char *list)
{
	AUTO_FILE FILE *f = fopen(list, "re");
	AUTO_FREE char *line = NULL;
	size_t room = 0;
	int rc = f ? 0 : errno;

	while (rc == 0 && getline(&line, &room, f) > 0) {
		AUTO_FREE char *bytes = NULL;
		size_t size = 0;
		struct stat st;
		char *same;

		line[strcspn(line, "\n")] = '\0';
		same = strchr(line, '\t');
		if (same) {
			*same = '\0';
			rc = compare_file(same + 1, line);
			continue;
		}
		rc = slurp(line, &bytes, &size, &st);
		if (rc == 0 && size != (size_t)st.st_size)
			rc = say("shorter than its size", line);
	}
	return rc;
}

static int wanted(const char *what, int got, int errno_wanted)
{
	if (got >= 0 || errno != errno_wanted) {
		fprintf(stderr, "# child: %s gave %d (%s), wanted %s\n", what, got, strerror(errno),
			strerror(errno_wanted));
		return EPROTO;
	}
	return 0;
}

/* Everything a read-only filesystem has to refuse, and how. a: a file, b: its directory. */
static int refuses(const char *a, const char *b)
{
	AUTO_FD int fd = open(a, O_RDONLY | O_CLOEXEC);
	AUTO_FREE char *fresh = NULL;
	AUTO_FREE char *deep = NULL;
	AUTO_FREE char *lengthy = NULL;
	struct termios t;
	char value[64];
	int rc = fd < 0 ? errno : 0;

	if (asprintf(&fresh, "%s/new", b) < 0 || asprintf(&deep, "%s/below", a) < 0 ||
	    asprintf(&lengthy, "%s/%0300d", b, 1) < 0)
		return ENOMEM;
	rc |= wanted("open for writing", open(a, O_WRONLY), EROFS);
	rc |= wanted("open for both", open(a, O_RDWR), EROFS);
	rc |= wanted("creat", creat(fresh, 0644), EROFS);
	rc |= wanted("truncate", truncate(a, 0), EROFS);
	rc |= wanted("unlink", unlink(a), EROFS);
	rc |= wanted("chmod", chmod(a, 0600), EROFS);
	rc |= wanted("mkdir", mkdir(fresh, 0755), EROFS);
	rc |= wanted("rmdir", rmdir(b), EROFS);
	rc |= wanted("rename", rename(a, fresh), EROFS);
	rc |= wanted("symlink", symlink(a, fresh), EROFS);
	rc |= wanted("setxattr", setxattr(a, "user.x", "y", 1, 0), EROFS);
	rc |= wanted("getxattr", (int)getxattr(a, "user.x", value, sizeof(value)), EOPNOTSUPP);
	rc |= wanted("listxattr", (int)listxattr(a, value, sizeof(value)), EOPNOTSUPP);
	rc |= wanted("ioctl(TCGETS)", ioctl(fd, TCGETS, &t), ENOTTY);
	rc |= wanted("open of nothing", open(fresh, O_RDONLY), ENOENT);
	rc |= wanted("open below a file", open(deep, O_RDONLY), ENOTDIR);
	rc |= wanted("open of a long name", open(lengthy, O_RDONLY), ENAMETOOLONG);
	if (lseek(fd, 0, SEEK_DATA) != 0 || access(a, R_OK) < 0 || fsync(fd) < 0)
		rc |= say(strerror(errno), "SEEK_DATA, access or fsync");
	return rc;
}

/* Reads a file in small pieces and prints its text; the size must be exact. */
static int print_file(const char *path)
{
	AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	char buf[7];
	off_t n = 0;
	ssize_t got;

	if (fd < 0 || fstat(fd, &st) < 0)
		return errno;
	while ((got = read(fd, buf, sizeof(buf))) > 0) {
		n += got;
		fwrite(buf, 1, (size_t)got, stdout);
	}
	printf("\n");
	fflush(stdout);
	if (got < 0)
		return errno;
	return n == st.st_size ? 0 : say("not as long as its size", path);
}

/* Holds a file open, tells so, and waits to be killed or for the end of its parent's pipe. */
static int hold_open(const char *path)
{
	AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return errno;
	printf("open\n");
	fflush(stdout);
	for (;;)
		pause();
}

/* Opens the file over and over, keeping it open; prints how often that worked, and which of them
 * can be read then: the errno of the first one, and from which one on all can. */
static int hoard(const char *path)
{
	int fds[200], n = 0, first_errno = 0, readable_from = 0;
	char c;

	while (n < 200 && (fds[n] = open(path, O_RDONLY | O_CLOEXEC)) >= 0)
		n++;
	for (int i = 0; i < n; i++) {
		if (read(fds[i], &c, 1) == 1)
			continue;
		first_errno = i == 0 ? errno : first_errno;
		readable_from = i + 1;
	}
	printf("%d %d %d\n", n, first_errno, readable_from);
	fflush(stdout);
	return 0;
}

static void on_alarm(int number)
{
}

/* Asks with a handler for SIGALRM, and has it sent again and again if spec begins with "timed"; the
 * errno that the kernel gives. */
static int announce_interrupted(const char *path, const char *spec)
{
	struct clairfs_hint hint = { .version = CLAIRFS_HINT_VERSION };
	struct sigaction action = { .sa_handler = on_alarm };
	AUTO_FREE char *file = NULL;
	AUTO_FD int fd = -1;
	struct itimerval soon = { .it_value.tv_usec = 100000, .it_interval.tv_usec = 100000 };

	snprintf(hint.text, sizeof(hint.text), "%s", spec);
	if (sigaction(SIGALRM, &action, NULL) < 0)
		return errno;
	if (strncmp(spec, "timed", 5) == 0 && setitimer(ITIMER_REAL, &soon, NULL) < 0)
		return errno;
	if (asprintf(&file, "%s/%s", path, CLAIRFS_HINT_FILE) < 0)
		return ENOMEM;
	fd = open(file, O_RDONLY | O_CLOEXEC);
	return fd < 0 || ioctl(fd, CLAIRFS_IOC_ANNOUNCE, &hint) < 0 ? errno : 0;
}

static int print_stat(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return errno;
	printf("%lld %lld\n", (long long)st.st_size, (long long)st.st_ino);
	fflush(stdout);
	return 0;
}

static int compare_statfs(const char *a, const char *b)
{
	struct statvfs sa, sb;

	if (statvfs(a, &sa) < 0 || statvfs(b, &sb) < 0)
		return errno;
	if (sa.f_blocks != sb.f_blocks || sa.f_bsize != sb.f_bsize || sb.f_namemax != 255)
		return say("other numbers of statfs", b);
	return sb.f_flag & ST_RDONLY && sb.f_flag & ST_NOSUID && sb.f_flag & ST_NODEV
		       ? 0
		       : say("other mount flags", b);
}

static int print_names(const char *path)
{
	struct dirent **entries;
	int n = scandir(path, &entries, NULL, by_name);

	if (n < 0)
		return errno;
	for (int i = 0; i < n; i++) {
		printf("%s ", entries[i]->d_name);
		free(entries[i]);
	}
	printf("\n");
	free(entries);
	return 0;
}

/* Prints status and answer; a version other than ours is given in `spec` as "version=N". */
static int announce(const char *path, const char *spec)
{
	struct clairfs_hint hint = { .version = CLAIRFS_HINT_VERSION, .job = "train" };
	int rc;

	snprintf(hint.text, sizeof(hint.text), "%s", spec);
	if (strncmp(spec, "version=", 8) == 0)
		hint.version = (uint32_t)strtoul(spec + 8, NULL, 10);
	if (strcmp(spec, "unterminated") == 0)
		memset(hint.text, 'x', sizeof(hint.text));
	if (strcmp(spec, "unterminated-job") == 0)
		memset(hint.job, 'x', sizeof(hint.job));
	rc = clairfs_hint_send(path, &hint);
	if (rc < 0)
		return -rc;
	printf("%d %s\n", hint.status, hint.text);
	fflush(stdout);
	return 0;
}

/* As many steps as one call takes and one more, like a training loop that ends. */
static int tell_steps(const char *path, const char *change)
{
	static struct clairfs_hook hook;
	uint64_t now = clairfs_hook_now();

	clairfs_hook_open(&hook, path, 3, 4, "job");
	for (int i = 0; i < CLAIRFS_STEPS + 1; i++)
		clairfs_hook_step(&hook, 0, now, now, now);
	if (strcmp(change, "magic") == 0)
		hook.steps.magic++;
	if (strcmp(change, "version") == 0)
		hook.steps.version++;
	if (strcmp(change, "count") == 0)
		hook.steps.count = CLAIRFS_STEPS + 1;
	return -clairfs_hook_flush(&hook);
}

int kit_child_main(int argc, char **argv)
{
	const char *op = argv[0], *a = argc > 1 ? argv[1] : "", *b = argc > 2 ? argv[2] : "";

	if (strcmp(op, "compare") == 0)
		return compare_tree(a, b);
	if (strcmp(op, "read-list") == 0)
		return read_list(a);
	if (strcmp(op, "refuses") == 0)
		return refuses(a, b);
	if (strcmp(op, "print") == 0)
		return print_file(a);
	if (strcmp(op, "hold") == 0)
		return hold_open(a);
	if (strcmp(op, "hoard") == 0)
		return hoard(a);
	if (strcmp(op, "stat") == 0)
		return print_stat(a);
	if (strcmp(op, "statfs") == 0)
		return compare_statfs(a, b);
	if (strcmp(op, "umount") == 0)
		return umount2(a, *b ? MNT_DETACH : 0) < 0 ? errno : 0;
	/* Remounting drops every dentry that is not in use, and only of this mount. */
	if (strcmp(op, "forget") == 0)
		return mount(NULL, a, NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) < 0
			       ? errno
			       : 0;
	if (strcmp(op, "announce") == 0)
		return announce(a, b);
	if (strcmp(op, "announce-interrupted") == 0)
		return announce_interrupted(a, b);
	if (strcmp(op, "steps") == 0)
		return tell_steps(a, b);
	if (strcmp(op, "list") == 0)
		return print_names(a);
	return EINVAL;
}
