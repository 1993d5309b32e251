/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rights as mode bits. Folding is tried on everybody: in a small world of users and groups nobody
 * may get at a file whom the directory, or the file itself, keeps out. Access lists are those that
 * setfacl has made. Then what a shared dataset shows of a source, and that one which is not shared
 * shows what it always did.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "dataset_kit.h"
#include "src/dataset/rights.h"

#define PATHS(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* User u is in the groups whose bits are set in `groups`. */
struct user {
	uint32_t uid, groups;
};

static bool may(const struct rights *r, struct user u, unsigned bit)
{
	if (u.uid == r->uid)
		return r->mode >> 6 & bit;
	return (u.groups >> r->gid & 1 ? r->mode >> 3 : r->mode) & bit;
}

static void check_fold(struct rights file, struct rights dir)
{
	for (int is_member = 0; is_member < 2; is_member++) {
		struct rights shown = file;

		rights_fold(&shown, &dir, is_member);
		CHECK_INT(shown.mode & ~0777, file.mode & ~0777);
		for (uint32_t i = 0; i < 32; i++) {
			struct user u = { .uid = i / 8, .groups = i % 8 };

			/* What the caller has said of the owner has to be true. */
			if (is_member && u.uid == file.uid && !(u.groups >> dir.gid & 1))
				continue;
			for (unsigned bit = 1; bit <= 4; bit *= 2)
				if (may(&shown, u, bit))
					CHECK(may(&file, u, bit) && may(&dir, u, 1));
		}
	}
}

static void folding_lets_nobody_in(void)
{
	/* Whether owner, group and others may search is all that counts of a directory. */
	for (unsigned mode = 0; mode < 512; mode++)
		for (unsigned x = 0; x < 8; x++)
			for (uint32_t who = 0; who < 4; who++) {
				struct rights file = { 0, 0, (uint16_t)(S_IFREG | mode) };
				struct rights dir = { who / 2, who % 2,
						      (uint16_t)(S_IFDIR | (x & 4) << 4 |
								 (x & 2) << 2 | (x & 1) | 0666) };

				check_fold(file, dir);
			}
}

static void folding_keeps_what_it_can(void)
{
	static const struct {
		struct rights file, dir;
		bool is_member;
		struct rights shown;
	} rows[] = {
		{ { 1, 1, 0644 }, { 9, 9, 0755 }, false, { 1, 1, 0644 } },
		{ { 1, 1, 0644 }, { 9, 9, 0711 }, false, { 1, 1, 0644 } },
		{ { 1, 1, 0644 }, { 1, 1, 0700 }, false, { 1, 1, 0600 } },
		{ { 1, 1, 0644 }, { 9, 9, 0700 }, false, { 1, 1, 0000 } },
		{ { 1, 1, 0644 }, { 9, 9, 0700 }, true, { 1, 1, 0000 } },
		{ { 1, 1, 0644 }, { 1, 1, 0750 }, false, { 1, 1, 0640 } },
		/* /lustre/proj of a group, with data of one of its members */
		{ { 1, 1, 0755 }, { 0, 9, 0750 }, false, { 1, 9, 0050 } },
		{ { 1, 1, 0755 }, { 0, 9, 0750 }, true, { 1, 9, 0750 } },
		{ { 1, 9, 0750 }, { 0, 9, 02770 }, true, { 1, 9, 0750 } },
		{ { 1, 1, 0750 }, { 0, 9, 0750 }, true, { 1, 9, 0700 } },
		{ { 1, 1, 0755 }, { 0, 9, 0705 }, false, { 1, 1, 0000 } },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct rights shown = rows[i].file;

		printf("# row %zu\n", i);
		rights_fold(&shown, &rows[i].dir, rows[i].is_member);
		CHECK_INT(shown.mode, rows[i].shown.mode);
		CHECK_INT(shown.uid, rows[i].shown.uid);
		CHECK_INT(shown.gid, rows[i].shown.gid);
	}
}

struct acl_row {
	const char *hex;
	uint16_t mode, shown;
};

static size_t bytes_of(const char *hex, uint8_t *out)
{
	size_t n = 0;

	for (; hex[2 * n]; n++) {
		char two[3] = { hex[2 * n], hex[2 * n + 1], 0 };

		out[n] = (uint8_t)strtoul(two, NULL, 16);
	}
	return n;
}

#define POSIX_U "01000600ffffffff"
#define POSIX_G "04000400ffffffff"
#define POSIX_M "10000400ffffffff"
#define POSIX_O "20000400ffffffff"

static void posix_lists_take_from_group_and_others(void)
{
	static const struct acl_row rows[] = {
		/* setfacl -m u:12345:---,g:77:r-x */
		{ "02000000" POSIX_U "020000003930000004000400ffffffff080005004d0000001000"
		  "0500ffffffff" POSIX_O,
		  0654, 0600 },
		/* g:77:--- */
		{ "02000000" POSIX_U POSIX_G "080000004d000000" POSIX_M POSIX_O, 0644, 0640 },
		/* u:5:rwx,u:6:r with an empty mask */
		{ "02000000" POSIX_U "0200070005000000020004000600000004000400ffffffff1000"
		  "0000ffffffff" POSIX_O,
		  0604, 0600 },
		/* u:5:r */
		{ "02000000" POSIX_U "0200040005000000" POSIX_G POSIX_M POSIX_O, 0644, 0644 },
		/* no more than three entries */
		{ "02000000" POSIX_U POSIX_G POSIX_O, 0644, 0644 },
		/* malformed: nothing, other version, cut off, no mask, a tag twice, unknown ones */
		{ "", 0644, 0600 },
		{ "02000000", 0644, 0600 },
		{ "01000000" POSIX_U POSIX_G POSIX_O, 0644, 0600 },
		{ "02000000" POSIX_U POSIX_G "20000400ffffff", 0644, 0600 },
		{ "02000000" POSIX_U "0200040005000000" POSIX_G POSIX_O, 0644, 0600 },
		{ "02000000" POSIX_U POSIX_G POSIX_O POSIX_O, 0644, 0600 },
		{ "02000000" POSIX_U POSIX_G POSIX_O "40000400ffffffff", 0644, 0600 },
		{ "02000000" POSIX_U POSIX_G "20000c00ffffffff", 0644, 0600 },
	};
	uint8_t bytes[256];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		size_t n = bytes_of(rows[i].hex, bytes);

		printf("# row %zu\n", i);
		CHECK_INT(acl_narrow_posix(bytes, n, rows[i].mode), rows[i].shown);
	}
}

#define NFS4_ACE "000000000000000000000001"

static void nfs4_lists_that_name_anybody_close_it_to_group_and_others(void)
{
	static const struct acl_row rows[] = {
		{ "00000000", 0644, 0644 },
		/* OWNER@, GROUP@, EVERYONE@ */
		{ "00000003" NFS4_ACE "000000064f574e455240" "0000" NFS4_ACE "0000000647524f555040"
		  "0000" NFS4_ACE "0000000945564552594f4e4540" "000000",
		  0644, 0644 },
		/* and bob@x */
		{ "00000002" NFS4_ACE "000000064f574e455240" "0000" NFS4_ACE "00000005626f624078"
		  "000000",
		  0644, 0600 },
		{ "00000001" NFS4_ACE "00000000", 0644, 0600 },
		{ "00000002" NFS4_ACE "000000064f574e455240" "0000", 0644, 0600 },
		{ "00000001" NFS4_ACE "ffffffff4f574e455240" "0000", 0644, 0600 },
		{ "ffffffff", 0644, 0600 },
		{ "", 0644, 0600 },
	};
	uint8_t bytes[256];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		size_t n = bytes_of(rows[i].hex, bytes);

		printf("# row %zu\n", i);
		CHECK_INT(acl_narrow_nfs4(bytes, n, rows[i].mode), rows[i].shown);
	}
}

/* --- a shared dataset --- */

static unsigned shown_mode(const struct dataset *ds, const char *path)
{
	struct stat st;

	CHECK(kit_has(ds, path));
	dataset_stat(ds, kit_find(ds, path), &st);
	return st.st_mode & 07777;
}

static void set_mode(const char *root, const char *name, mode_t mode)
{
	AUTO_FREE char *path = kit_path(root, name);

	CHECK_INT(chmod(path, mode), 0);
}

static void set_acl(const char *root, const char *name, const char *hex)
{
	AUTO_FREE char *path = kit_path(root, name);
	uint8_t bytes[256];
	size_t n = bytes_of(hex, bytes);

	CHECK_INT(setxattr(path, "system.posix_acl_access", bytes, n, 0), 0);
}

static struct dataset *open_shared(const char *root, const char *snapshots)
{
	return kit_open(root, (struct kit_open){ .layout = LAYOUT_FILES,
						 .snapshot_dir = snapshots,
						 .is_shared = true });
}

static char *make_source(const char *name)
{
	char *root = kit_tree(name, PATHS("closed/in", "links/", "plain", "named", "dir/f"));
	AUTO_FREE char *outside = check_tmpfile("outside");

	(void)mkdir(outside, 0755); /* by the first test that needs it */
	CHECK_INT(chmod(check_tmpdir(), 0755), 0);
	CHECK_INT(chmod(root, 0755), 0);
	kit_link(root, "links/in", "../closed/in");
	kit_link(root, "links/dir", "../closed");
	kit_link(root, "links/out", "../../nowhere");
	kit_link(root, "links/absolute", "/etc/passwd");
	kit_link(root, "links/outside", outside);
	kit_link(root, "links/plain", "../plain");
	set_mode(root, "closed", 0700);
	set_acl(root, "named", "02000000" POSIX_U "0200000005000000" POSIX_G POSIX_M POSIX_O);
	set_acl(root, "dir", "0200000001000700ffffffff020000000500000004000500ffffffff10000500"
			     "ffffffff20000500ffffffff");
	return root;
}

static void check_shared(const struct dataset *ds)
{
	CHECK_INT(shown_mode(ds, "plain"), 0644);
	CHECK_INT(shown_mode(ds, "named"), 0600);
	CHECK_INT(shown_mode(ds, "dir"), 0700);
	CHECK_INT(shown_mode(ds, "dir/f"), 0644);
	CHECK_INT(shown_mode(ds, "closed"), 0700);
	CHECK_INT(shown_mode(ds, "closed/in"), 0644);
	CHECK_INT(shown_mode(ds, "links/in"), 0600);
	CHECK_INT(shown_mode(ds, "links/dir"), 0700);
	CHECK_INT(shown_mode(ds, "links/plain"), 0644);
	CHECK(!kit_has(ds, "links/out") && !kit_has(ds, "links/absolute") &&
	      !kit_has(ds, "links/outside"));
	CHECK_U64(kit_stats(ds).skipped, 3);
}

static void a_shared_dataset_shows_no_more_than_the_source_gives(void)
{
	AUTO_FREE char *root = make_source("shared"), *snapshots = check_tmpfile("snapshots"), *log;
	int saved = kit_log_begin();
	struct dataset *ds = open_shared(root, snapshots);

	log = kit_log_end(saved);
	CHECK_CONTAINS(log, "links/absolute: leaves the source: not followed with allow_other");
	check_shared(ds);
	dataset_free(ds);
	ds = open_shared(root, snapshots);
	CHECK(kit_stats(ds).from_snapshot);
	check_shared(ds);
	dataset_free(ds);
}

static void one_that_is_not_shared_is_as_it_was(void)
{
	AUTO_FREE char *root = make_source("own"), *snapshots = check_tmpfile("snapshots2");
	struct dataset *ds = open_shared(root, snapshots);

	dataset_free(ds);
	for (int i = 0; i < 2; i++) {
		ds = kit_open(root, (struct kit_open){ .layout = LAYOUT_FILES,
						       .snapshot_dir = snapshots });
		CHECK_INT(kit_stats(ds).from_snapshot, i);
		CHECK_INT(shown_mode(ds, "links/in"), 0644);
		CHECK_INT(shown_mode(ds, "named"), 0644);
		CHECK_INT(shown_mode(ds, "links/absolute"), 0644);
		CHECK(kit_has(ds, "links/outside"));
		CHECK(!dataset_is_shared(ds));
		dataset_free(ds);
	}
}

/* Looks as the revalidation does. */
static unsigned look_mode(const struct dataset *ds, const char *path)
{
	struct stat st;

	CHECK_INT(dataset_look(ds, path ? kit_find(ds, path) : ENTRY_ROOT, &st), 0);
	return st.st_mode & 07777;
}

static void a_look_sees_what_has_changed_since(void)
{
	AUTO_FREE char *root = make_source("looks");
	struct dataset *ds = open_shared(root, NULL);
	struct stat st;

	set_mode(root, "closed", 0755);
	CHECK_INT(look_mode(ds, "links/in"), 0644);
	CHECK_INT(look_mode(ds, "links/dir"), 0755);
	set_mode(root, "closed", 0700);
	CHECK_INT(look_mode(ds, "links/in"), 0600);
	set_acl(root, "plain", "02000000" POSIX_U "0200000005000000" POSIX_G POSIX_M POSIX_O);
	CHECK_INT(look_mode(ds, "plain"), 0600);
	kit_remove(root, "plain");
	kit_link(root, "plain", "/etc/passwd");
	CHECK_INT(dataset_look(ds, kit_find(ds, "plain"), &st), -EXDEV);
	kit_remove(root, "plain");
	CHECK_INT(dataset_look(ds, kit_find(ds, "plain"), &st), -ENOENT);
	CHECK_INT(look_mode(ds, NULL), 0755);
	CHECK_INT(chmod(check_tmpdir(), 0700), 0);
	CHECK_INT(look_mode(ds, NULL), 0700);
	CHECK_INT(chmod(check_tmpdir(), 0755), 0);
	dataset_free(ds);
}

static void a_directory_closed_between_two_mounts_is_seen_through_a_symlink(void)
{
	AUTO_FREE char *root = make_source("between"), *snapshots = check_tmpfile("snapshots3");
	struct dataset *ds;

	set_mode(root, "closed", 0755);
	ds = open_shared(root, snapshots);
	CHECK_INT(shown_mode(ds, "links/in"), 0644);
	CHECK_INT(shown_mode(ds, "links/dir"), 0755);
	dataset_free(ds);
	set_mode(root, "closed", 0700);
	ds = open_shared(root, snapshots);
	CHECK(kit_stats(ds).from_snapshot);
	check_shared(ds);
	dataset_free(ds);
}

static const struct check_test tests[] = {
	{ "folding_lets_nobody_in", folding_lets_nobody_in },
	{ "folding_keeps_what_it_can", folding_keeps_what_it_can },
	{ "posix_lists_take_from_group_and_others", posix_lists_take_from_group_and_others },
	{ "nfs4_lists_that_name_anybody_close_it_to_group_and_others",
	  nfs4_lists_that_name_anybody_close_it_to_group_and_others },
	{ "a_shared_dataset_shows_no_more_than_the_source_gives",
	  a_shared_dataset_shows_no_more_than_the_source_gives },
	{ "one_that_is_not_shared_is_as_it_was", one_that_is_not_shared_is_as_it_was },
	{ "a_look_sees_what_has_changed_since", a_look_sees_what_has_changed_since },
	{ "a_directory_closed_between_two_mounts_is_seen_through_a_symlink",
	  a_directory_closed_between_two_mounts_is_seen_through_a_symlink },
};

CHECK_MAIN(tests)
