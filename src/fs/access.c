/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the one who reads may read: for files that were closed to somebody after they may have
 * been opened (cache_rights.is_narrowed). Else the kernel has decided, when the file was opened, and
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

struct reader {
	fuse_req_t req;
	const struct fuse_ctx *ctx;
	gid_t *groups; /* heap, once asked */
	int n_groups;  /* -1: not known */
};

/* 1: in the group, 0: not, -1: not known. */
static int reader_is_in_group(struct reader *r, gid_t gid)
{
	if (r->ctx->gid == gid)
		return 1;
	if (!r->groups) {
		r->groups = calloc(FS_GROUPS_MAX, sizeof(*r->groups));
		r->n_groups = r->groups && r->ctx->pid > 0
				      ? fuse_req_getgroups(r->req, FS_GROUPS_MAX, r->groups)
				      : -1;
		if (r->n_groups > FS_GROUPS_MAX)
			r->n_groups = -1;
	}
	for (int i = 0; i < r->n_groups; i++)
		if (r->groups[i] == gid)
			return 1;
	return r->n_groups < 0 ? -1 : 0;
}

/* bit: 4 to read, 1 to search. */
static bool reader_may(struct reader *r, uint32_t uid, uint32_t gid, unsigned mode, unsigned bit)
{
	bool group = mode >> 3 & bit, other = mode & bit;
	int member;

	if (r->ctx->uid == uid)
		return mode >> 6 & bit;
	if (group == other)
		return group;
	member = reader_is_in_group(r, gid);
	return member > 0 ? group : member == 0 && other;
}

static bool may_come_to(const struct fs *fs, struct reader *r, struct entry_id entry)
{
	struct stat dir;

	do {
		entry = dataset_parent(fs->params.dataset, entry);
		dataset_stat(fs->params.dataset, entry, &dir);
		if (!reader_may(r, dir.st_uid, dir.st_gid, dir.st_mode, 1))
			return false;
	} while (!entry_eq(entry, ENTRY_ROOT));
	return true;
}

bool fs_access_may_read(const struct fs *fs, fuse_req_t req, struct entry_id entry,
			const struct cache_rights *rights)
{
	struct reader r = { .req = req, .ctx = fuse_req_ctx(req) };
	bool is_let = (reader_may(&r, rights->uid, rights->gid, rights->mode, 4) &&
		       may_come_to(fs, &r, entry)) ||
		      is_privileged(r.ctx);

	free(r.groups);
	return is_let;
}
