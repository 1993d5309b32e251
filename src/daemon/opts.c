/* SPDX-License-Identifier: Apache-2.0 */
/* The option table of a mount: one row per option that a person should know, and in debug= the rest,
 * which is decided by itself. It feeds -o, the INI file, --print-config (which conf/clairfs.conf is
 * compared with) and the man page check. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "clairfs/daemon.h"
#include "clairfs/dataset.h"
#include "clairfs/io.h"
#include "clairfs/infer.h"
#include "clairfs/tier/store.h"

static const char *const open_choices[] = { "auto", "answer", NULL };
static const char *const auto_choices[] = { "auto", NULL };
static const char *const pin_choices[] = { "auto", "first", "smallest", NULL };
static const char *const log_choices[] = { "error", "warn", "info", "debug", NULL };

#define ROW(field, kind, def, lo, hi, words, text)                                                 \
	{                                                                                          \
		.name = #field, .type = kind, .offset = offsetof(struct mount_opts, field),        \
		.initial = def, .min = lo, .max = hi, .choices = words, .help = text               \
	}

/* A number that is derived from the memory there is, unless somebody tells one. */
#define ROW_AUTO(field, kind, lo, hi, text)                                                        \
	{                                                                                          \
		.name = #field, .type = kind, .offset = offsetof(struct mount_opts, field),        \
		.initial = "auto", .min = lo, .max = hi, .choices = auto_choices, .help = text     \
	}

/* What nobody should have to know. */
static const struct conf_option keys[] = {
	ROW(stage, CONF_BYTES, "0", 0, 0, NULL,
	    "Most bytes pushed into the kernel's page cache ahead of the reader. 0: a "
	    "quarter of ram."),
	ROW_AUTO(inodes_ahead, CONF_U64, 0, 100000000,
		 "Inodes made known to the kernel ahead of the readers; each takes about "
		 "1 KiB of kernel memory. Beyond, 16384 at a time for samples about to be read; "
		 "what readers look up themselves is not counted. auto: 200000, or less where "
		 "memory is limited."),
	ROW(stagers, CONF_U64, "2", 1, 8, NULL, "Threads that push pages into the kernel."),
	ROW(scan_threads, CONF_U64, "8", 1, 64, NULL,
	    "Threads that scan the source when mounting."),
	ROW(recover_threads, CONF_U64, "0", 0, 1024, NULL,
	    "Threads that try all seeds. 0: an eighth of the CPUs, at least one."),
	ROW(source_engine, CONF_CHOICE, "auto", 0, 0, io_engine_names,
	    "How the source is read: pool (threads), uring (io_uring) or auto (uring for "
	    "local filesystems only)."),
	ROW(store_engine, CONF_CHOICE, "auto", 0, 0, io_engine_names, "The same for the store."),
	ROW(store_pins, CONF_CHOICE, "auto", 0, 0, pin_choices,
	    "Which samples go into the store, among those read equally often: as they "
	    "come (first), the smallest (fewest requests are left for the source), or "
	    "auto: the smallest when requests cost the source more than their bytes."),
	ROW_AUTO(ghost_bytes, CONF_BYTES, 0, 0,
		 "Page cache that the job would have had without this mount; what fits into it is not "
		 "counted as removed. auto: memory available when mounting, or the limit of the "
		 "cgroup."),
	ROW(cpu_pressure, CONF_U64, "30", 1, 100, NULL,
	    "Percent of the time of a pass in which some task of the job waited for a CPU (PSI of "
	    "its cgroup, or of the machine); with more of it GPU wait is not judged, as nobody can "
	    "tell then what was waited for the source. 100: judged all the same."),
	ROW(open, CONF_CHOICE, "auto", 0, 0, open_choices,
	    "auto: OPEN is refused (ENOSYS) once it is not needed, so that a hit costs "
	    "no upcall. answer: always answered."),
	ROW(metrics_interval, CONF_U64, "15", 1, 86400, NULL,
	    "Seconds from one writing of metrics_textfile to the next."),
	ROW(plan_tape, CONF_TEXT, "", 0, 0, NULL,
	    "New file for all that is read, planned and done, to look for a fault in it later: "
	    "some 400 bytes for each read. Empty: none."),
	{ .name = NULL },
};

static const struct conf_table key_table = { .options = keys, .section = "debug" };

static const struct conf_option options[] = {
	ROW(order, CONF_TEXT, "", 0, 0, NULL,
	    "Order the job reads its samples in, e.g. "
	    "torch-distributed:seed=42:world=8:ranks=0-3. Empty: unknown, an ordinary "
	    "cache."),
	ROW(recover, CONF_CHOICE, "full", 0, 0, infer_effort_names,
	    "How an order that nobody told is looked for. quick: likely seeds, a fraction of a "
	    "second at the beginning of an epoch. full: then all 2^32 of them, once, about five "
	    "minutes of a core at the lowest priority."),
	ROW(layout, CONF_CHOICE, "auto", 0, 0, dataset_layout_names,
	    "How files become samples: imagefolder (torchvision), files (every file, "
	    "sorted by path) or auto."),
	ROW_AUTO(ram, CONF_BYTES, 16u << 20, 4ull << 40,
		 "Memory for samples fetched ahead and kept. On top come at most a tenth for other "
		 "reads and gaps, and a quarter for pages pushed into the kernel. auto: 1G, or less "
		 "where the machine, the cgroup or a resource limit has little: with all that is "
		 "derived from it about half of that."),
	ROW(store_dir, CONF_TEXT, "", 0, 0, NULL,
	    "Directory of your own on a local NVMe drive for samples kept from one epoch to "
	    "the next, and from one job to the next. Several mounts may use it at once. "
	    "Empty: none, or a private store in $TMPDIR if store_bytes is "
	    "given."),
	ROW(store_keep, CONF_BOOL, "on", 0, 0, NULL,
	    "Leave what is in store_dir to the next mount. off: a private store, of which "
	    "nothing is visible and nothing is left."),
	ROW(store_bytes, CONF_BYTES, "0", 0, 0, NULL,
	    "Budget of the store, with what other mounts have in store_dir. 0: half of what is "
	    "free there and in it when mounting."),
	ROW(store_keep_free, CONF_BYTES, "1G", 0, 0, NULL,
	    "The store stops growing when less than this is free on its filesystem."),
	ROW(store_verify, CONF_CHOICE, "always", 0, 0, store_verify_names,
	    "When what the store has is compared with its checksums: always (at every read), at "
	    "the first read of this mount, or off (only what was there before this mount, once). "
	    "What rots on the drive after its last comparison is served as it is."),
	ROW(store_max_mbps, CONF_U64, "0", 0, 1000000, NULL,
	    "Cap of writing to the store in MB/s (10^6 bytes). 0: none."),
	ROW_AUTO(source_max_inflight, CONF_U64, 1, 1024,
		 "Most requests to the source at once: threads that read it. auto: 64, or less "
		 "where memory is limited."),
	ROW(source_max_mbps, CONF_U64, "0", 0, 1000000, NULL,
	    "Cap of prefetching from the source in MB/s (10^6 bytes). Reads that a job "
	    "waits for are not held back, but use up the same allowance. 0: none."),
	ROW(snapshot_dir, CONF_TEXT, "", 0, 0, NULL,
	    "Where the dataset index is kept for the next mount. Empty: "
	    "$XDG_CACHE_HOME/clairfs, ~/.cache/clairfs, or /var/cache/clairfs for root. "
	    "\"none\": not kept."),
	ROW(revalidate, CONF_U64, "300", 0, 86400, NULL,
	    "Seconds after which files that may still be cached are compared with the "
	    "source. 0: only when fetched. Spread evenly, at most 1000 files a second: a "
	    "million files take 1000 seconds or more."),
	ROW(control_reads, CONF_TEXT, "1/1024", 0, 0, NULL,
	    "Share of the reads that is not fetched ahead but read from the source when it is "
	    "wanted, as without this mount: what GPU wait was removed is told from how long "
	    "these take. At most 2000 of each size. off: none, and nothing can be told."),
	ROW(switchback, CONF_TEXT, "off", 0, 0, NULL,
	    "Percent of the job's steps, 0.1 to 10, in blocks chosen by chance, in which the cache "
	    "steps aside and the job reads from the source: what they take longer is what the "
	    "mount removes, measured and not modelled. It costs just that. Needs batch= and "
	    "workers= in the order. off: never."),
	ROW(allow_other, CONF_BOOL, "off", 0, 0, NULL,
	    "Let other users read the mount: what the source lets them read, give or take "
	    "revalidate seconds."),
	ROW(report, CONF_TEXT, "", 0, 0, NULL,
	    "File for a report of the mount, written when it is unmounted; in a directory it is "
	    "named after job, host and process. For clairfs report. Empty: none."),
	ROW(metrics_textfile, CONF_TEXT, "", 0, 0, NULL,
	    "File for the textfile collector of a Prometheus node exporter, whose name ends in "
	    ".prom, or the directory for it. Removed when unmounting. Empty: none."),
	ROW(log_level, CONF_CHOICE, "info", 0, 0, log_choices,
	    "Least important messages that are logged."),
	{ .name = "debug",
	  .type = CONF_KEYS,
	  .help = "What is decided by itself, for tests and to look for a fault. No promise: keys come and "
		  "go. In a value '\\+' is a plus." },
	{ .name = NULL },
};

static const struct conf_gone gone[] = {
	{ "metrics_socket",
	  "use metrics_textfile, or read .clairfs/metrics below the mountpoint" },
	{ "store_scrub_mbps", "use clairfs store verify" },
	{ "sample_max", "files of any size are prefetched, in parts of 4 MiB" },
	{ .name = NULL },
};

const struct conf_table mount_option_table = {
	.options = options, .section = "mount", .gone = gone, .keys = &key_table
};

/* Options that mount(8) and fstab know and that mean nothing here: the mount is always
 * ro,nosuid,nodev. */
static bool is_generic(const char *word, size_t len)
{
	/* clang-format off */
	static const char *const words[] = {
		"ro", "defaults", "auto", "noauto", "user", "nouser", "users", "owner", "group",
		"_netdev", "nofail", "suid", "nosuid", "dev", "nodev", "exec", "noexec", "sync",
		"async", "dirsync", "atime", "noatime", "nodiratime", "relatime", "strictatime",
		"lazytime", "nolazytime", "silent", NULL
	};
	/* clang-format on */

	for (int i = 0; words[i]; i++)
		if (strlen(words[i]) == len && memcmp(words[i], word, len) == 0)
			return true;
	return (len > 2 && memcmp(word, "x-", 2) == 0) ||
	       (len > 5 && memcmp(word, "user=", 5) == 0) ||
	       (len > 8 && memcmp(word, "comment=", 8) == 0);
}

int mount_opts_set_list(struct mount_opts *opts, const char *list, bool is_mount8, struct err *err)
{
	AUTO_FREE char *kept = malloc(strlen(list) + 1);
	char *out = kept;

	if (!kept)
		return err_set(err, -ENOMEM, "out of memory");
	for (const char *at = list; *at;) {
		size_t len = 0;

		while (at[len] && at[len] != ',')
			len += at[len] == '\\' && at[len + 1] == ',' ? 2 : 1;
		if (len == 2 && memcmp(at, "rw", 2) == 0 && !is_mount8)
			return err_set(err, -EINVAL, "option rw: clairfs mounts are read-only");
		if (len && !is_generic(at, len) && !(len == 2 && memcmp(at, "rw", 2) == 0)) {
			if (out != kept)
				*out++ = ',';
			memcpy(out, at, len);
			out += len;
		}
		at += len + (at[len] == ',');
	}
	*out = 0;
	return *kept ? conf_set_list(&mount_option_table, opts, kept, err) : 0;
}
