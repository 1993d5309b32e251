/* SPDX-License-Identifier: Apache-2.0 */
/* clairfs caps: what kernel, libfuse and liburing offer, what was built in, and what a mount would
 * use. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <string.h>
#include <sys/utsname.h>

#include "clairfs/fs.h"
#include "clairfs/io.h"
#include "cli.h"

struct caps {
	struct io_caps io;
	struct fs_caps fs;
	struct utsname uts;
	const char *source; /* NULL: not asked */
	const char *engine, *engine_why;
};

static int choose_engine(struct caps *caps, struct err *err)
{
	struct io_params params = { .name = "probe", .max_inflight = 1 };
	AUTO_FD int fd = -1;
	struct io *io = NULL;
	int rc;

	if (!caps->source)
		return 0;
	fd = open(caps->source, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_set_errno(err, -errno, "source %s", caps->source);
	rc = io_new(IO_ENGINE_AUTO, fd, &params, &io, &caps->engine_why, err);
	if (rc < 0)
		return rc;
	caps->engine = io_name(io);
	io_free(io);
	return 0;
}

static int print_caps_json(const struct caps *c)
{
	json_t *root = json_pack(
		"{s:s, s:{s:s, s:b, s:s, s:b, s:b, s:b}, s:{s:b, s:b, s:b, s:b, s:b, s:s}, s:{s:I, s:I}}",
		"kernel", c->uts.release, "fuse", "libfuse", c->fs.libfuse_version, "dev_fuse",
		c->fs.has_dev_fuse, "dev_fuse_why", c->fs.dev_fuse_why ? c->fs.dev_fuse_why : "",
		"fusermount3", c->fs.has_fusermount, "built_with_passthrough",
		c->fs.built_with_passthrough, "built_with_feature_flag",
		c->fs.built_with_feature_flag, "io_uring", "built_in", c->io.built_with_uring,
		"works", c->io.has_uring, "single_issuer", c->io.has_single_issuer, "defer_taskrun",
		c->io.has_defer_taskrun, "direct_descriptors", c->io.has_direct_descriptors,
		"why_not", c->io.uring_why_not ? c->io.uring_why_not : "", "inotify",
		"max_user_watches", (json_int_t)c->fs.inotify_max_watches, "max_queued_events",
		(json_int_t)c->fs.inotify_max_queued);

	if (root && c->source)
		json_object_set_new(root, "mount",
				    json_pack("{s:s, s:s, s:s}", "source_engine", c->engine, "why",
					      c->engine_why, "personality", "samples"));
	if (!root || json_dumpf(root, stdout, JSON_INDENT(2)) < 0)
		fprintf(stderr, "clairfs: out of memory\n");
	json_decref(root);
	putchar('\n');
	return cli_finish();
}

static const char *yes_no(bool b)
{
	return b ? "yes" : "no";
}

static int print_caps_text(const struct caps *c)
{
	printf("kernel               %s\n", c->uts.release);
	printf("/dev/fuse            %s%s%s\n", yes_no(c->fs.has_dev_fuse),
	       c->fs.has_dev_fuse ? "" : ": ", c->fs.has_dev_fuse ? "" : c->fs.dev_fuse_why);
	printf("libfuse              %s (passthrough built in: %s)\n", c->fs.libfuse_version,
	       yes_no(c->fs.built_with_passthrough));
	printf("fusermount3          %s\n",
	       c->fs.has_fusermount ? "yes" : "no: only root can mount");
	printf("io_uring             built in: %s, works: %s%s%s\n", yes_no(c->io.built_with_uring),
	       yes_no(c->io.has_uring), c->io.has_uring ? "" : ": ",
	       c->io.has_uring ? "" : c->io.uring_why_not);
	printf("  single issuer      %s\n  deferred task run  %s\n  direct descriptors %s\n",
	       yes_no(c->io.has_single_issuer), yes_no(c->io.has_defer_taskrun),
	       yes_no(c->io.has_direct_descriptors));
	printf("inotify              %llu watches, %llu queued events\n",
	       (unsigned long long)c->fs.inotify_max_watches,
	       (unsigned long long)c->fs.inotify_max_queued);
	if (c->source)
		printf("a mount of %s\n  personality        samples: a staged read costs no upcall\n"
		       "  source engine      %s (%s)\n",
		       c->source, c->engine, c->engine_why);
	return cli_finish();
}

int cmd_caps(int argc, char **argv)
{
	static const struct option longs[] = { { "json", no_argument, NULL, 'j' },
					       { "help", no_argument, NULL, 'h' },
					       { NULL, 0, NULL, 0 } };
	struct caps caps = { 0 };
	struct err err = { 0 };
	bool is_json = false;
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'h')
			return cli_help("caps");
		if (c == '?')
			return cli_bad_option("caps", argv);
		is_json = true;
	}
	if (argc - optind > 1)
		return cli_usage("caps", "at most one SOURCE");
	caps.source = argv[optind];
	uname(&caps.uts);
	io_probe_caps(&caps.io);
	fs_probe_caps(&caps.fs);
	if (choose_engine(&caps, &err) < 0)
		return cli_fail(&err);
	return is_json ? print_caps_json(&caps) : print_caps_text(&caps);
}
