/* SPDX-License-Identifier: Apache-2.0 */
/* The command line: picks the command by name, or by the name the program was called with
 * (mount.clairfs). */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>

#include "clairfs/base/text.h"
#include "cli.h"

const struct command commands[] = {
	{ "mount", cmd_mount, "mount a directory with a cache that knows the order",
	  "usage: clairfs mount [-f] [-c FILE] [-o KEY=VALUE[,KEY=VALUE]...] SOURCE MOUNTPOINT\n"
	  "       clairfs mount --print-config\n"
	  "  -f               stay in the foreground, log to stderr\n"
	  "  -c FILE          read options from an INI file first\n"
	  "  -o KEY=VALUE,... options; --print-config lists them with their defaults\n" },
	{ "umount", cmd_umount, "unmount, also what a killed daemon left behind",
	  "usage: clairfs umount [-l] [--timeout S] MOUNTPOINT\n"
	  "  -l               detach now, even when in use\n"
	  "  --timeout S      give up after S seconds and leave things as they are (default: 10\n"
	  "                   while it is in use, then 60 for its daemon to end)\n" },
	{ "status", cmd_status, "what a mount is doing and how reads were served",
	  "usage: clairfs status MOUNTPOINT [--json]\n" },
	{ "top", cmd_top, "watch mounts at work, as top does processes",
	  "usage: clairfs top [--once] [--interval S] [MOUNTPOINT]...\n"
	  "  without MOUNTPOINT: all mounts of yours; q quits\n"
	  "  --once           print text and end; rates are those since the mount began\n"
	  "  --interval S     seconds between two looks (1)\n" },
	{ "trace", cmd_trace, "record single reads and fetches for Perfetto",
	  "usage: clairfs trace MOUNTPOINT [--seconds S] [-o FILE.pfw]\n"
	  "  --seconds S      how long (default: 10), or until it is interrupted\n"
	  "  -o FILE          where to (default: standard output)\n"
	  "  files are numbers: clairfs index has their names\n" },
	{ "announce", cmd_announce, "tell a mount the order that a job reads in",
	  "usage: clairfs announce MOUNTPOINT SPEC\n"
	  "  SPEC             an order as for option order; none: no order any more\n"
	  "  prints the order in force now; rank and world default to RANK and WORLD_SIZE,\n"
	  "  else SLURM_PROCID and SLURM_NTASKS\n" },
	{ "order", cmd_order, "print the order a spec stands for",
	  "usage: clairfs order SPEC --n N|--source DIR [--epoch E] [--rank R] [--head K]\n"
	  "                     [--binary u32|u64] [--places]\n"
	  "       clairfs order --list\n"
	  "  --n N            samples of the dataset\n"
	  "  --source DIR     the dataset itself (for keys sort= and under=, and lists of paths)\n"
	  "  --epoch E        epoch (default: the spec's start_epoch)\n"
	  "  --rank R         one rank only (default: all of the spec's ranks, merged)\n"
	  "  --head K         only the first K\n"
	  "  --binary T       raw little-endian numbers instead of lines\n"
	  "  --places         with each number its file, offset and length (needs --source)\n"
	  "  --snapshot-dir DIR  where mounts keep the index of DIR, with its table of records\n"
	  "  --allow-other    the index of mounts with allow_other\n"
	  "  --list           list the kinds of orders and their keys\n" },
	{ "recover", cmd_recover, "find the seed of an order from the first samples read",
	  "usage: clairfs recover --n N [--world W[,W]...] [--rank R] [--batch B] [--workers W]\n"
	  "                       [--quick] [--threads T] INDEX...\n"
	  "  --n N            samples of the dataset\n"
	  "  --world W        world size of a DistributedSampler, or several to try (default: 1)\n"
	  "  --rank R         rank that read them (default: any)\n"
	  "  --batch B        batch size, if known\n"
	  "  --workers W      loader workers, if known; 0: the samples are in order\n"
	  "  --quick          only seeds that people choose, and what manual_seed makes of them\n"
	  "  --threads T      threads (default: all CPUs)\n" },
	{ "simulate", cmd_simulate, "what memory and a drive would buy a job, in virtual time",
	  "usage: clairfs simulate --samples N --sample-bytes S [OPTION]...\n"
	  "       clairfs simulate --workload NAME|FILE [OPTION]...\n"
	  "       clairfs simulate --dataset DIR [--advise [--target-stall PCT]] [OPTION]...\n"
	  "  --policy P[,P]...   clairfs,lru,bound, or all\n"
	  "  --json              for programs\n"
	  "  --plot FILE         a chart over the size of the cache, .svg or .png\n"
	  "  --dataset DIR       sizes of its files; and latency and bandwidth, unless stated\n"
	  "  --advise            the smallest sizes that keep stall below --target-stall PCT (5)\n"
	  "  --memory SIZE       of the node, for the page cache it has anyway (this machine's)\n"
	  "  --print-config      list the other options with their meaning and values; option\n"
	  "                      sample_bytes of that list is --sample-bytes here\n" },
	{ "bench", cmd_bench, "measure a job's data loading: directory, page cache and clairfs",
	  "usage: clairfs bench [OPTION]... SOURCE|MOUNTPOINT\n"
	  "  --compare S[,S]...  some of source,pagecache,clairfs: SOURCE in these ways, in turns\n"
	  "  --order SPEC        order of the reads (the mount's, else torch-distributed:seed=1)\n"
	  "  --workload NAME|FILE  batch, workers, prefetch, compute, decode and epochs from there\n"
	  "  --epochs E --ranks R --workers W --prefetch P --batch B\n"
	  "  --compute MS        time to compute with a batch\n"
	  "  --decode MS[:spin|sleep]  time to decode a sample, of a CPU or asleep\n"
	  "  --access whole|stream|random  files in large reads, record by record, or records at\n"
	  "                      random places, and all sides must have read the same bytes\n"
	  "  --record-bytes N    what is read at once; random: instead of the table of records\n"
	  "  --untold            the mount of side clairfs is not told the order\n"
	  "  --json              for programs\n"
	  "  --html FILE         a report with charts, one file\n"
	  "  --trace FILE        every read: side, epoch, rank, position, sample, worker, times, "
	  "bytes\n"
	  "  --switchback[=PCT]  the mount steps aside in PCT (10) percent of the steps: what they\n"
	  "                      take longer is what it removes, with an interval\n"
	  "  -o KEY=VALUE,...    options of the mount of side clairfs\n" },
	{ "index", cmd_index, "print the samples of a directory: number, path, offset, length",
	  "usage: clairfs index SOURCE [--layout auto|imagefolder|files] [--sort NAME] [--under DIR]\n"
	  "       clairfs index SOURCE --records FORMAT [--under DIR] [OPTION]...\n"
	  "       clairfs index SOURCE --import FILE [--import FILE]... [OPTION]...\n"
	  "  --sort NAME      numbers as a job gives them that sorts in another way: index,\n"
	  "                   torchvision, timm, path, natural, nocase, walk\n"
	  "  --under DIR      only what is below this directory of the source\n"
	  "  --records auto|npy|mds|litdata|megatron|tfrecord|tar|zip|parquet|arrow|kept|none\n"
	  "                   find the samples within larger files and keep where they are; auto: by\n"
	  "                   the names of files; kept: print what is kept; none: forget it\n"
	  "  --import FILE    the same from a list: lines of path, offset and length, an .idx of\n"
	  "                   DALI's tools, or references of kerchunk\n"
	  "  --snapshot-dir DIR  where mounts keep their index (their option snapshot_dir)\n"
	  "  --allow-other    for mounts with allow_other, which have an index of their own\n"
	  "  control characters, backslashes and bytes that are no UTF-8 are escaped in paths\n" },
	{ "store", cmd_store, "look into a store that outlives its mounts, verify or empty it",
	  "usage: clairfs store ls DIRECTORY [--json]\n"
	  "       clairfs store verify DIRECTORY [--mbps N] [--json]\n"
	  "       clairfs store purge DIRECTORY [--json]\n"
	  "  ls               its segments: state, whether a mount uses them, records, size\n"
	  "  verify           read and compare every record; exit code 1 when one is wrong\n"
	  "  purge            remove all segments that no mount uses\n"
	  "  --mbps N         read at most N MB/s\n" },
	{ "report", cmd_report, "put the reports of a job's nodes together",
	  "usage: clairfs report [--json] FILE...\n"
	  "  FILE             a report that a mount with option report= wrote, or steps that a\n"
	  "                   training loop wrote (clairfs.watch(loader, file=...))\n" },
	{ "caps", cmd_caps, "what this machine offers and what a mount would use",
	  "usage: clairfs caps [--json] [SOURCE]\n" },
	{ "hook", cmd_hook, "mount for a job of Slurm and clean up after it",
	  "usage: clairfs hook prolog|epilog|task-prolog [-c FILE]\n"
	  "       clairfs hook reap [-c FILE]\n"
	  "       clairfs hook --print-config\n"
	  "  prolog           mount what the job asks for; its environment is Slurm's\n"
	  "  epilog           take away what the job and its mount left\n"
	  "  task-prolog      print where the job finds its data\n"
	  "  reap             take away what jobs left that are gone\n"
	  "  -c FILE          the site's file (/etc/clairfs/clairfs.conf)\n" },
	{ "check", cmd_check, "whether this node is fit for mounts of jobs",
	  "usage: clairfs check [-c FILE]\n"
	  "  -c FILE          the site's file (/etc/clairfs/clairfs.conf)\n" },
	{ NULL, NULL, NULL, NULL },
};

int cli_fail(const struct err *err)
{
	fprintf(stderr, "clairfs: %s\n", err->msg);
	return err->code == -EINVAL ? EXIT_USAGE : EXIT_FAILED;
}

int cli_usage(const char *command, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fprintf(stderr, "clairfs%s%s: ", command ? " " : "", command ? command : "");
	vfprintf(stderr, fmt, args);
	fprintf(stderr, " (try clairfs %s%s--help)\n", command ? command : "", command ? " " : "");
	va_end(args);
	return EXIT_USAGE;
}

int cli_bad_option(const char *command, char **argv)
{
	/* optopt: 0 for an unknown long option, the character of a short one, else a long one
	 * whose value is wrong. */
	if (optopt == 0)
		return cli_usage(command, "no option %s, or not that short", argv[optind - 1]);
	if (optopt > UCHAR_MAX)
		return cli_usage(command, "%s needs a value, or takes none", argv[optind - 1]);
	return cli_usage(command, "no option -%c, or its value is missing", optopt);
}

int cli_help(const char *command)
{
	for (const struct command *c = commands; c->name; c++)
		if (strcmp(c->name, command) == 0)
			fputs(c->usage, stdout);
	return cli_finish();
}

int cli_finish(void)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return EXIT_DONE;
	if (errno == EPIPE)
		return EXIT_DONE;
	fprintf(stderr, "clairfs: standard output: %s\n", strerror(errno));
	return EXIT_FAILED;
}

static int print_help(void)
{
	puts("usage: clairfs COMMAND [ARGUMENTS]\n");
	for (const struct command *c = commands; c->name; c++)
		printf("  %-8s %s\n", c->name, c->summary);
	puts("\nclairfs COMMAND --help shows a command's arguments; clairfs(1) explains them.");
	return cli_finish();
}

static int refuse_command(const char *name)
{
	const char *names[32] = { NULL };
	const char *near;

	for (size_t i = 0; commands[i].name && i < ARRAY_LEN(names) - 1; i++)
		names[i] = commands[i].name;
	near = text_nearest(name, names);
	return cli_usage(NULL, "no command '%s'%s%s%s", name, near ? ", did you mean '" : "",
			 near ? near : "", near ? "'?" : "");
}

/* A launcher may have closed the standard streams: whatever is opened next would take their
 * numbers, and be written to or replaced as if it were them. */
static void ensure_streams(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= 2);
	if (fd > 2)
		close(fd);
}

int cli_main(int argc, char **argv)
{
	const char *self = argc > 0 && strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];

	ensure_streams();
	signal(SIGPIPE, SIG_IGN);
	opterr = 0; /* one line for an error, and it is ours */
	if (argc > 0 && strcmp(self, "mount.clairfs") == 0)
		return cmd_mount(argc, argv);
	if (argc < 2)
		return cli_usage(NULL, "no command given");
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
	    strcmp(argv[1], "help") == 0)
		return print_help();
	if (strcmp(argv[1], "--version") == 0) {
		puts("clairfs " CLAIRFS_VERSION);
		return cli_finish();
	}
	for (const struct command *c = commands; c->name; c++)
		if (strcmp(c->name, argv[1]) == 0)
			return c->run(argc - 1, argv + 1);
	return refuse_command(argv[1]);
}
