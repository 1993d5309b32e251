/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the one who reads may read: for files that were closed to somebody after they may have
 * been opened (cache_is_narrowed). Else the kernel has decided, when the file was opened, and
 * nothing here runs.
 *
 * Group memberships and capabilities come from /proc, by the thread that waits for the answer; the
 * texts are the kernel's, but nothing is believed of them beyond their form. What cannot be found
 * out is refused. Capabilities count for uid 0 of our own user namespace only: everybody has all of
 * them in a namespace of one's own.
 *
 * Whatever thread answers the READ; /proc of a thread that waits for us does not block.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "access_priv.h"

#define CAP_DAC_OVERRIDE_BIT 1u
#define CAP_DAC_READ_SEARCH_BIT 2u

bool fs_access_text_may_read(FILE *status)
{
	static const uint64_t wanted = 1u << CAP_DAC_OVERRIDE_BIT | 1u << CAP_DAC_READ_SEARCH_BIT;
	char line[256];
	bool is_start = true;

	/* Parts of long lines are no lines: a name may look like anything. */
	while (fgets(line, sizeof(line), status)) {
		if (is_start && strncmp(line, "CapEff:\t", 8) == 0)
			return (strtoull(line + 8, NULL, 16) & wanted) != 0;
		is_start = strchr(line, '\n') != NULL;
	}
	return false;
}

static bool is_our_namespace(pid_t tid)
{
	char path[64];
	struct stat own, other;

	snprintf(path, sizeof(path), "/proc/%ld/ns/user", (long)tid);
	return stat("/proc/self/ns/user", &own) == 0 && stat(path, &other) == 0 &&
	       own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

static bool is_privileged(const struct fuse_ctx *ctx)
{
	AUTO_FILE FILE *status = NULL;
	char path[64];

	if (ctx->uid != 0 || ctx->pid <= 0 || !is_our_namespace(ctx->pid))
		return false;
	snprintf(path, sizeof(path), "/proc/%ld/status", (long)ctx->pid);
	status = fopen(path, "re");
	return status && fs_access_text_may_read(status);
}

/* 1: in the group, 0: not, -1: not known. */
static int is_in_group(fuse_req_t req, gid_t gid)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	AUTO_FREE gid_t *list = NULL;
	int n;

	if (ctx->gid == gid)
		return 1;
	if (ctx->pid <= 0)
		return -1;
	list = calloc(FS_GROUPS_MAX, sizeof(*list));
	n = list ? fuse_req_getgroups(req, FS_GROUPS_MAX, list) : -1;
	if (n < 0 || n > FS_GROUPS_MAX)
		return -1;
	for (int i = 0; i < n; i++)
		if (list[i] == gid)
			return 1;
	return 0;
}

bool fs_access_may_read(const struct fs *fs, fuse_req_t req, struct entry_id entry)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	bool group, other, may;
	struct stat st;
	int member;

	dataset_stat(fs->params.dataset, entry, &st);
	group = st.st_mode & S_IRGRP;
	other = st.st_mode & S_IROTH;
	if (ctx->uid == st.st_uid) {
		may = st.st_mode & S_IRUSR;
	} else if (group == other) {
		may = group;
	} else {
		member = is_in_group(req, st.st_gid);
		may = member > 0 ? group : member == 0 && other;
	}
	return may || is_privileged(ctx);
}
