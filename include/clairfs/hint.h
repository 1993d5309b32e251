/* SPDX-License-Identifier: Apache-2.0 */
/* What a training job may tell its clairfs mount: the only header that is installed. It needs no
 * library and nothing else of clairfs.
 *
 *	char answer[CLAIRFS_HINT_TEXT];
 *	int rc = clairfs_announce("/mnt/data", "torch-distributed:seed=42", answer, sizeof(answer));
 *
 * An ioctl on <mountpoint>/.clairfs/control reaches the daemon, also from a container in which
 * nothing but the mount can be seen. (Shells look up .clairfs/announce/SPEC instead, by cat, which
 * shows the answer.)
 *
 * Where samples are files they have the numbers of `clairfs index`, and the inode number that stat
 * gives for such a file in the mount is its number plus CLAIRFS_INO_OF_SAMPLE. */
#ifndef CLAIRFS_HINT_H
#define CLAIRFS_HINT_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define CLAIRFS_HINT_VERSION 2
#define CLAIRFS_HINT_VERSION_NAMELESS 1 /* has no name: `job` is more of the text */
#define CLAIRFS_HINT_TEXT 4024
#define CLAIRFS_HINT_JOB 64
#define CLAIRFS_HINT_FILE ".clairfs/control"
#define CLAIRFS_HINT_DIR ".clairfs"
#define CLAIRFS_HINT_TRIES 100 /* when signals come meanwhile */
#define CLAIRFS_INO_OF_SAMPLE 2

/* In: version, the order's spec ("none": no order any more), and who says so. Out: status, 0 or a
 * negative errno, and one line: the spec in canonical form, or what is wrong. The text always ends
 * with a zero byte. "?" changes nothing and is answered with the order in force; neither does
 * "?SPEC", whose answer is how many samples that order numbers, a space, and the spec.
 *
 * `job` is the name of the job, which ends with a zero byte: what one job tells under one name is
 * one order after the other, and other names are other jobs. Printable ASCII; clairfs_job_name()
 * makes one. The key job= of a spec is a name, too, and goes before it. Empty: the job of this user
 * that has no name, of which a mount has one.
 *
 * Only root and the user who mounted it may announce (-EPERM). Files that a spec names are read only
 * beneath the mount's source, by their path there or relative to it (-EXDEV: it is elsewhere; hand a
 * list over with CLAIRFS_IOC_LIST, as `clairfs announce` does). -EAGAIN: too many orders wait already.
 * -ENOSPC: other users' jobs are all there is room for. The ioctl itself fails with EINTR when a signal
 * comes while the order is set up; it is then given up, and may be sent again. */
struct clairfs_hint {
	uint32_t version;
	int32_t status;
	char text[CLAIRFS_HINT_TEXT];
	char job[CLAIRFS_HINT_JOB];
};
#define CLAIRFS_IOC_ANNOUNCE _IOWR(0xCF, 1, struct clairfs_hint)

#define CLAIRFS_LIST_SAMPLES 1700
#define CLAIRFS_LIST_TEXT 936
#define CLAIRFS_LIST_LAST 1u
/* The part has bytes of a list file (in the place of `sample`) and count is how many; such parts
 * have the version CLAIRFS_LIST_VERSION_BYTES. The file is text as the order list:path= takes it,
 * or, with one of the other two flags in the last part, raw little-endian numbers. */
#define CLAIRFS_LIST_BYTES 2u
#define CLAIRFS_LIST_U32 4u
#define CLAIRFS_LIST_U64 8u
/* `job` is looked at. */
#define CLAIRFS_LIST_NAMED 16u
#define CLAIRFS_LIST_VERSION 1
#define CLAIRFS_LIST_VERSION_BYTES 2

/* A list of sample numbers, in parts. In: version, count numbers and the token of the list, 0 in
 * its first part; in the last part flags has CLAIRFS_LIST_LAST and text has further keys of the
 * spec ("epochs=1:batch=32"), or nothing. Out: status, the token, and one line as above: after the
 * last part the order in force. job: as above, of the last part, with CLAIRFS_LIST_NAMED. Of each
 * user that may announce, a mount keeps one list in the making: who begins another gets it, and the
 * next part of the first is -ESTALE. */
struct clairfs_list {
	uint32_t version;
	int32_t status;
	uint64_t token;
	uint32_t flags, count;
	char text[CLAIRFS_LIST_TEXT];
	char job[CLAIRFS_HINT_JOB];
	uint32_t sample[CLAIRFS_LIST_SAMPLES];
};
#define CLAIRFS_IOC_LIST _IOWR(0xCF, 2, struct clairfs_list)

/* One step of a training loop as the process of one rank saw it, in nanoseconds of CLOCK_MONOTONIC:
 * the loop asked for a batch (t_request), had it (t_ready), and was back for the next or had left
 * the loop (t_next). t_request <= t_ready <= t_next; the wait is t_ready - t_request, the compute
 * t_next - t_ready. In the byte order of the machine. */
struct clairfs_step_record {
	uint32_t rank;  /* as in torch.distributed, below the world of the batch */
	uint32_t flags; /* CLAIRFS_STEP_*, and from CLAIRFS_STEP_LOADER_SHIFT on the loader's number */
	uint64_t step;  /* batches that this process had before, of all its loaders: 0, 1, 2... */
	uint64_t t_request, t_ready, t_next;
};

/* The first batch of an iterator: its wait has the start of the loader's workers in it. */
#define CLAIRFS_STEP_FIRST 1u
/* The loop was left after this batch: t_next is when, and nobody asked for another. */
#define CLAIRFS_STEP_LEFT 2u
/* It lies within the compute of another loader's step (a validation in the middle of an epoch): its
 * wait counts, its time is in the other step's already. Steps without this flag do not overlap. */
#define CLAIRFS_STEP_INNER 4u
#define CLAIRFS_STEP_FLAGS (CLAIRFS_STEP_FIRST | CLAIRFS_STEP_LEFT | CLAIRFS_STEP_INNER)
/* Loaders of one process (training, validation...) in the order of their first use. */
#define CLAIRFS_STEP_LOADER_SHIFT 16

#define CLAIRFS_STEPS_MAGIC 0x53464c43u /* "CLFS" */
#define CLAIRFS_STEPS_VERSION 1
#define CLAIRFS_STEPS 198
#define CLAIRFS_JOB_NAME 32

/* Steps of one process, in the order in which they ended. An ioctl on the directory .clairfs takes
 * them; a file of them, each with `count` records only, is for clairfs report. Records that are not
 * taken (a rank that is not below the world, times in the future...) are counted, not answered. */
struct clairfs_steps {
	uint32_t magic, version;
	uint32_t world;             /* processes of the job */
	uint32_t count;             /* records that follow */
	uint64_t run;               /* when the process began: a later one takes a rank over */
	uint64_t lost;              /* records that could not be sent, since the last call */
	char job[CLAIRFS_JOB_NAME]; /* name of the job, ends with a zero byte; may be empty */
	struct clairfs_step_record step[CLAIRFS_STEPS];
};
#define CLAIRFS_IOC_STEPS _IOW(0xCF, 3, struct clairfs_steps)

/* The name of the job that this process is of, as its launcher or its terminal says it: Slurm's job
 * and step, else the run of torchrun, else the session (and the container's, as other containers
 * have the same numbers). Processes of one job must say the same. Two jobs of one step or session must
 * not, nor processes that tell for their rank alone: give those names of their own. */
static inline void clairfs_job_name(char ret[CLAIRFS_HINT_JOB])
{
	const char *job = getenv("SLURM_JOB_ID"), *more = getenv("SLURM_STEP_ID");
	const char *run = getenv("TORCHELASTIC_RUN_ID"), *separator = ".";
	char ns[24] = "", session[24];

	if ((!job || !*job) && run && *run) {
		job = run; /* torchrun's own, where none was given, is the same for all: "none" */
		more = strcmp(run, "none") == 0 ? getenv("MASTER_PORT") : NULL;
		separator = "-";
	} else if (!job || !*job) {
		snprintf(session, sizeof(session), "session-%d", (int)getsid(0));
		job = session;
		/* "pid:[4026531836]" is the machine's own; others are containers'. */
		more = readlink("/proc/self/ns/pid", ns, sizeof(ns) - 1) > 5 ? ns + 5 : NULL;
		ns[strcspn(ns, "]")] = '\0';
		if (more && strcmp(more, "4026531836") == 0)
			more = NULL;
	}
	snprintf(ret, CLAIRFS_HINT_JOB, "%s%s%s", job, more && *more ? separator : "",
		 more ? more : "");
	for (; *ret; ret++)
		if (!strchr("0123456789.-_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
			    *ret))
			*ret = '_';
}

/* Sends a filled-in hint and takes the answer; an older mount gets it without the name. 0: look at
 * hint->status; or a negative errno: -ENOENT, -ENOTTY: nothing that takes orders is mounted there. */
static inline int clairfs_hint_send(const char *mountpoint, struct clairfs_hint *hint)
{
	char path[PATH_MAX];
	int fd, rc, tries = 0;

	if (snprintf(path, sizeof(path), "%s/%s", mountpoint, CLAIRFS_HINT_FILE) >=
	    (int)sizeof(path))
		return -ENAMETOOLONG;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	do {
		rc = ioctl(fd, CLAIRFS_IOC_ANNOUNCE, hint) < 0 ? -errno : 0;
		if (rc == -EPROTO && hint->version == CLAIRFS_HINT_VERSION &&
		    memchr(hint->text, 0, sizeof(hint->text)) && memchr(hint->job, 0, sizeof(hint->job))) {
			hint->version = CLAIRFS_HINT_VERSION_NAMELESS;
			rc = -EINTR;
		}
	} while (rc == -EINTR && ++tries < CLAIRFS_HINT_TRIES);
	close(fd);
	hint->text[sizeof(hint->text) - 1] = '\0';
	return rc;
}

/* Announces the order that a job is going to read the mount in. 0, or a negative errno (-EINTR:
 * signals kept coming); answer, if not NULL, gets one line in both cases. It takes as
 * long as the order needs to be set up, seconds for a list of many millions. */
static inline int clairfs_announce(const char *mountpoint, const char *spec, char *answer,
				   size_t size)
{
	struct clairfs_hint hint = { CLAIRFS_HINT_VERSION, 0, "", "" };
	int rc = -ENAMETOOLONG;

	clairfs_job_name(hint.job);
	if (strlen(spec) < sizeof(hint.text)) {
		memcpy(hint.text, spec, strlen(spec) + 1);
		rc = clairfs_hint_send(mountpoint, &hint);
	}
	if (answer && size && rc == 0)
		snprintf(answer, size, "%s", hint.text);
	else if (answer && size)
		snprintf(answer, size, "%s: %s", mountpoint, strerror(-rc));
	return rc < 0 ? rc : hint.status;
}

/* The hook of a training loop, for programs that are not Python (those have clairfs.watch):
 *
 *	struct clairfs_hook hook;
 *	clairfs_hook_open(&hook, "/mnt/data", rank, world, getenv("SLURM_JOB_ID"));
 *	for (;;) {
 *		uint64_t ask = clairfs_hook_now(), got;
 *		batch = next_batch();
 *		got = clairfs_hook_now();
 *		train(batch);
 *		clairfs_hook_step(&hook, 0, ask, got, clairfs_hook_now());
 *	}
 *	clairfs_hook_close(&hook);
 *
 * A step costs nanoseconds; every CLAIRFS_STEPS of them, or once a second, one system call hands
 * them over. Nothing fails because of it: what cannot be sent is dropped and counted. It keeps no
 * file open, uses no memory but its own, and belongs to one thread. */
struct clairfs_hook {
	const char *mountpoint; /* borrowed; NULL: nothing is sent */
	uint32_t rank;
	uint64_t n_steps, sent_ns;
	struct clairfs_steps steps;
};

static inline uint64_t clairfs_hook_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* job: a name that is the same on all nodes, or NULL. */
static inline void clairfs_hook_open(struct clairfs_hook *hook, const char *mountpoint,
				     uint32_t rank, uint32_t world, const char *job)
{
	memset(hook, 0, sizeof(*hook));
	hook->mountpoint = mountpoint;
	hook->rank = rank;
	hook->sent_ns = clairfs_hook_now();
	hook->steps.magic = CLAIRFS_STEPS_MAGIC;
	hook->steps.version = CLAIRFS_STEPS_VERSION;
	hook->steps.world = world;
	hook->steps.run = hook->sent_ns;
	snprintf(hook->steps.job, sizeof(hook->steps.job), "%s", job ? job : "");
}

/* Sends what has been gathered. 0, or a negative errno: it is lost. */
static inline int clairfs_hook_flush(struct clairfs_hook *hook)
{
	char path[PATH_MAX];
	int fd = -1, rc = 0;

	hook->sent_ns = clairfs_hook_now();
	if (hook->steps.count == 0)
		return 0;
	if (!hook->mountpoint || snprintf(path, sizeof(path), "%s/%s", hook->mountpoint,
					  CLAIRFS_HINT_DIR) >= (int)sizeof(path))
		rc = -ENAMETOOLONG;
	if (rc == 0)
		fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (rc == 0 && (fd < 0 || ioctl(fd, CLAIRFS_IOC_STEPS, &hook->steps) < 0))
		rc = -errno;
	if (fd >= 0)
		close(fd);
	hook->steps.lost = rc < 0 ? hook->steps.lost + hook->steps.count : 0;
	hook->steps.count = 0;
	return rc;
}

/* A step is over; flags are CLAIRFS_STEP_*, and a loader's number if there are several. */
static inline void clairfs_hook_step(struct clairfs_hook *hook, uint32_t flags, uint64_t t_request,
				     uint64_t t_ready, uint64_t t_next)
{
	struct clairfs_step_record *step = &hook->steps.step[hook->steps.count++];

	step->rank = hook->rank;
	step->flags = flags;
	step->step = hook->n_steps++;
	step->t_request = t_request;
	step->t_ready = t_ready;
	step->t_next = t_next;
	if (hook->steps.count == CLAIRFS_STEPS || t_next >= hook->sent_ns + 1000000000u)
		(void)clairfs_hook_flush(hook);
}

static inline void clairfs_hook_close(struct clairfs_hook *hook)
{
	(void)clairfs_hook_flush(hook);
}

#endif
