/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Access lists as mode bits. POSIX lists come as the extended attribute system.posix_acl_access
 * (local filesystems, Lustre, NFSv3, CephFS), those of NFSv4 servers as system.nfs4_acl. A list may
 * keep one user or group out whom the mode lets in, and mode bits cannot say so: then the class in
 * which that user may be loses the right. What a list gives beyond the mode is not given.
 *
 * The bytes are the source's, so anything may stand in them: what is not understood keeps group and
 * others out. Must never read beyond the size. Any thread; acl_narrow _at and acl_narrow_fd ask the
 * source.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>

#include "clairfs/base/buf.h"
#include "rights.h"

#define ACL_BYTES_MAX 16384 /* longer lists name somebody */
#define POSIX_VERSION 2u
#define OWNER_ONLY ((uint16_t)~077u)

enum {
	TAG_USER_OBJ = 0x01,
	TAG_USER = 0x02,
	TAG_GROUP_OBJ = 0x04,
	TAG_GROUP = 0x08,
	TAG_MASK = 0x10,
	TAG_OTHER = 0x20,
};

struct posix_acl {
	unsigned seen, twice; /* tags; those that may be there once and were there again */
	unsigned group, mask, other;
	unsigned users, groups; /* what all named ones have */
};

static bool posix_add(struct posix_acl *acl, unsigned tag, unsigned perm)
{
	static const unsigned single = TAG_USER_OBJ | TAG_GROUP_OBJ | TAG_MASK | TAG_OTHER;

	if (perm > 7)
		return false;
	acl->twice |= acl->seen & tag & single;
	acl->seen |= tag;
	switch (tag) {
	case TAG_USER_OBJ:
		return true;
	case TAG_USER:
		acl->users &= perm;
		return true;
	case TAG_GROUP_OBJ:
		acl->group = perm;
		return true;
	case TAG_GROUP:
		acl->groups &= perm;
		return true;
	case TAG_MASK:
		acl->mask = perm;
		return true;
	case TAG_OTHER:
		acl->other = perm;
		return true;
	default:
		return false;
	}
}

static bool posix_parse(const void *bytes, size_t size, struct posix_acl *acl)
{
	static const unsigned needed = TAG_USER_OBJ | TAG_GROUP_OBJ | TAG_OTHER;
	struct buf_reader r;

	*acl = (struct posix_acl){ .mask = 7, .users = 7, .groups = 7 };
	buf_reader_init(&r, bytes, size);
	if (size < 4 || size % 8 != 4 || buf_get_u32(&r) != POSIX_VERSION)
		return false;
	for (size_t i = 0; i < size / 8; i++) {
		unsigned tag = buf_get_u16(&r), perm = buf_get_u16(&r);

		buf_get_u32(&r); /* who it is does not matter */
		if (!posix_add(acl, tag, perm))
			return false;
	}
	return !r.is_bad && acl->twice == 0 && (acl->seen & needed) == needed &&
	       ((acl->seen & (TAG_USER | TAG_GROUP)) == 0 || (acl->seen & TAG_MASK));
}

uint16_t acl_narrow_posix(const void *bytes, size_t size, uint16_t mode)
{
	struct posix_acl acl;
	unsigned users, group, other;

	if (!posix_parse(bytes, size, &acl))
		return mode & OWNER_ONLY;
	/* A named user may be in any group, a named group's member in none that the mode knows. */
	users = acl.seen & TAG_USER ? acl.users & acl.mask : 7;
	group = acl.group & acl.mask & users;
	other = acl.other & users & (acl.seen & TAG_GROUP ? acl.groups & acl.mask : 7);
	return mode & (OWNER_ONLY | (uint16_t)(group << 3) | (uint16_t)other);
}

/* Big-endian, as all of XDR. */
static uint32_t get_be32(struct buf_reader *r)
{
	uint32_t b = buf_get_u32(r);

	return __builtin_bswap32(b);
}

static bool is_class(const char *who, uint32_t len)
{
	static const char *const classes[] = { "OWNER@", "GROUP@", "EVERYONE@" };

	for (size_t i = 0; i < ARRAY_LEN(classes); i++)
		if (strlen(classes[i]) == len && memcmp(who, classes[i], len) == 0)
			return true;
	return false;
}

uint16_t acl_narrow_nfs4(const void *bytes, size_t size, uint16_t mode)
{
	struct buf_reader r;
	uint32_t n;

	buf_reader_init(&r, bytes, size);
	n = get_be32(&r);
	for (uint32_t i = 0; i < n && !r.is_bad; i++) {
		const char *who;
		uint32_t len;

		buf_get_bytes(&r, 12); /* type, flags, mask: the mode has what they mean */
		len = get_be32(&r);
		who = len <= size ? buf_get_bytes(&r, ALIGN_UP(len, 4u)) : NULL;
		if (!who || !is_class(who, len))
			return mode & OWNER_ONLY;
	}
	return r.is_bad ? mode & OWNER_ONLY : mode;
}

/* What stands for "no such list". */
static bool is_none(int error)
{
	return error == ENODATA || error == EOPNOTSUPP;
}

typedef ssize_t (*get_attr_fn)(const char *path, const char *name, void *value, size_t size);

static uint16_t narrow(const char *path, get_attr_fn get, uint16_t mode)
{
	char bytes[ACL_BYTES_MAX];
	ssize_t n = get(path, "system.posix_acl_access", bytes, sizeof(bytes));

	if (n >= 0)
		return acl_narrow_posix(bytes, (size_t)n, mode);
	if (errno == ENODATA) /* the filesystem has lists of this kind, so none of the other */
		return mode;
	if (!is_none(errno))
		return mode & OWNER_ONLY;
	n = get(path, "system.nfs4_acl", bytes, sizeof(bytes));
	if (n >= 0)
		return acl_narrow_nfs4(bytes, (size_t)n, mode);
	return is_none(errno) ? mode : mode & OWNER_ONLY;
}

uint16_t acl_narrow_at(int fd, const char *name, uint16_t mode)
{
	char path[32 + 256];
	int n = snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", fd, name);

	return n < (int)sizeof(path) ? narrow(path, lgetxattr, mode) : mode & OWNER_ONLY;
}

uint16_t acl_narrow_fd(int fd, uint16_t mode)
{
	char path[32];

	/* There is no call for descriptors that are O_PATH. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return narrow(path, getxattr, mode);
}
