/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From root to the job's user. All of it is given up before the source is opened: the user's own
 * rights decide, with all their groups (what mount.fuse3's option setuid= forgets), and nothing
 * brings others back. The process stays closed to debuggers, its user's too: it holds descriptors
 * of files of root.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "slurm_priv.h"

#define PASSWD_MAX (1 << 20)

int slurm_identity_find(uid_t uid, gid_t gid, struct slurm_identity *ret, struct err *err)
{
	struct passwd pw, *found = NULL;
	size_t size = 4096;
	int rc = ERANGE;

	*ret = (struct slurm_identity){ .uid = uid, .gid = gid };
	while (rc == ERANGE && size <= PASSWD_MAX) {
		AUTO_FREE char *buffer = malloc(size);

		if (!buffer)
			return err_set_errno(err, -ENOMEM, "user %u", (unsigned)uid);
		rc = getpwuid_r(uid, &pw, buffer, size, &found);
		if (rc == 0 && found) {
			ret->name = strdup(pw.pw_name);
			ret->home = strdup(pw.pw_dir);
		}
		size *= 4;
	}
	if (rc != 0)
		return err_set_errno(err, -rc, "user %u", (unsigned)uid);
	if (!found)
		return err_set(err, -ENOENT, "this node does not know user %u", (unsigned)uid);
	return ret->name && ret->home ? 0 : err_set_errno(err, -ENOMEM, "user %u", (unsigned)uid);
}

void slurm_identity_fini(struct slurm_identity *id)
{
	free(id->name);
	free(id->home);
}

static int set_environment(const struct slurm_identity *id, uint32_t job)
{
	char number[16];

	snprintf(number, sizeof(number), "%u", job);
	return clearenv() == 0 && setenv("PATH", "/usr/bin:/bin", 1) == 0 &&
			       setenv("HOME", id->home, 1) == 0 &&
			       setenv("USER", id->name, 1) == 0 &&
			       setenv("SLURM_JOB_USER", id->name, 1) == 0 &&
			       setenv("SLURM_JOB_ID", number, 1) == 0
		       ? 0
		       : -ENOMEM;
}

int slurm_become(const struct slurm_identity *id, uint32_t job, struct err *err)
{
	uid_t r, e, s;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_set_errno(err, -errno, "no new privileges");
	if (initgroups(id->name, id->gid) < 0 || setresgid(id->gid, id->gid, id->gid) < 0 ||
	    setresuid(id->uid, id->uid, id->uid) < 0)
		return err_set_errno(err, -errno, "becoming user %s", id->name);
	if (getresuid(&r, &e, &s) < 0 || r != id->uid || e != id->uid || s != id->uid)
		return err_set(err, -EPERM, "becoming user %s", id->name);
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || set_environment(id, job) < 0)
		return err_set_errno(err, -errno, "becoming user %s", id->name);
	umask(077);
	return 0;
}

int slurm_local_dir(const char *local_dir, const struct slurm_identity *id, char **ret,
		    struct err *err)
{
	AUTO_FD int top = open(local_dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	AUTO_FD int fd = -1;
	char name[16];
	struct stat st;

	if (top < 0 || fstat(top, &st) < 0)
		return err_set_errno(err, -errno, "local_dir %s", local_dir);
	if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return err_set(err, -EPERM, "local_dir %s: others than root can write it",
			       local_dir);
	snprintf(name, sizeof(name), "%u", (unsigned)id->uid);
	if (mkdirat(top, name, 0700) < 0 && errno != EEXIST)
		return err_set_errno(err, -errno, "%s/%s", local_dir, name);
	fd = openat(top, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	/* Nobody but root makes anything here: what is root's still is new, from us or from another
	 * job of the same user, and is given away. */
	if (fd < 0 || fstat(fd, &st) < 0 ||
	    (st.st_uid == geteuid() && fchown(fd, id->uid, id->gid) < 0) || fstat(fd, &st) < 0)
		return err_set_errno(err, -errno, "%s/%s", local_dir, name);
	if (st.st_uid != id->uid || (st.st_mode & 0077))
		return err_set(err, -EPERM, "%s/%s is not the user's alone", local_dir, name);
	return asprintf(ret, "%s/%s", local_dir, name) < 0
		       ? err_set_errno(err, -ENOMEM, "local_dir")
		       : 0;
}
