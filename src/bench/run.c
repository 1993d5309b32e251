/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the blocks: epoch by epoch every side once, in turning order, so that what changes slowly on
 * the machine or the source meets all sides alike. Before a block its side is brought into its
 * state: "source" and "clairfs" begin with nothing of the source in the page cache, "pagecache"
 * with what reading the epoch before has left there (read again, as the other sides disturb it; in
 * the first epoch there is none, as in a job).
 *
 * Main process. Whatever happens, children are ended and waited for, and the mount is taken down,
 * before bench_run returns. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>

#include "bench_priv.h"
#include "clairfs/base/clock.h"
#include "clairfs/base/text.h"

#define LOOK_NS (250 * NS_PER_MS)
#define SETTLE_NS (7 * NS_PER_S)
#define SETTLE_AGAIN_NS (NS_PER_S / 2)
#define QUIET_NS (NS_PER_S + NS_PER_S / 10) /* then a whole read is in its class */

struct run {
	const struct bench_setup *s;
	struct bench_report *r;
	struct bench_mount mount; /* of side clairfs or mount */
	bool is_started;
	struct bench_counts last;  /* after the last epoch, settled */
	struct bench_counts start; /* before the first epoch */
	size_t n_planned;          /* length of r->result */
	struct bench_counts mark;  /* at the end of the last epoch; of a new mount all zero */
	struct bench_result *open; /* its classes are not settled yet */
	enum bench_side previous;
	bool has_previous;
	FILE *trace;
	pid_t pid[BENCH_RANKS_MAX];
};

/* --- processes of one block --- */

static void kill_ranks(struct run *run, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (run->pid[i] > 0)
			kill(run->pid[i], SIGKILL);
	for (uint32_t i = 0; i < n; i++) {
		while (run->pid[i] > 0 && waitpid(run->pid[i], NULL, 0) < 0 && errno == EINTR)
			;
		run->pid[i] = 0;
	}
}

static int start_ranks(struct run *run, struct bench_block *b, const char *root, struct err *err)
{
	fflush(NULL);
	for (uint32_t i = 0; i < b->n_ranks; i++) {
		run->pid[i] = fork();
		if (run->pid[i] == 0) {
			sigprocmask(SIG_SETMASK, &run->s->signals, NULL);
			bench_rank_run(run->s, b, i, root);
		}
		if (run->pid[i] < 0) {
			int rc = err_set_errno(err, -errno, "fork");

			kill_ranks(run, i);
			return rc;
		}
	}
	return 0;
}

static int rank_failed(const struct bench_block *b, uint32_t i, int status, struct err *err)
{
	char text[BENCH_ERROR];

	memcpy(text, b->rank[i].error, sizeof(text));
	text[sizeof(text) - 1] = 0;
	if (*text)
		return err_set(err, -EIO, "%s", text);
	if (WIFSIGNALED(status))
		return err_set(err, -EIO, "the process of rank %u was ended by signal %d", i,
			       WTERMSIG(status));
	return err_set(err, -EIO, "the process of rank %u ended with exit code %d", i,
		       WEXITSTATUS(status));
}

/* Takes note of ranks that have ended; *ret_left are running. */
static int reap_ranks(struct run *run, const struct bench_block *b, uint32_t *ret_left,
		      struct err *err)
{
	*ret_left = 0;
	for (uint32_t i = 0; i < b->n_ranks; i++) {
		int status;

		if (!run->pid[i])
			continue;
		if (waitpid(run->pid[i], &status, WNOHANG) != run->pid[i]) {
			++*ret_left;
			continue;
		}
		run->pid[i] = 0;
		if (status != 0)
			return rank_failed(b, i, status, err);
	}
	return 0;
}

static void show_progress(const struct run *run, const struct bench_block *b,
			  const struct bench_result *res)
{
	uint64_t done = atomic_load(&b->rank[0].n_done);

	if (!isatty(STDERR_FILENO))
		return;
	fprintf(stderr, "\r\033[K%s, epoch %llu of %llu: %llu %%%s", bench_side_names[res->side],
		(unsigned long long)(res->epoch - run->s->first_epoch + 1),
		(unsigned long long)run->s->epochs,
		(unsigned long long)(100 * done / b->rank[0].n_steps),
		b->is_warming ? " (reading the epoch before it)" : "");
}

static void look_at_lead(struct run *run, struct bench_result *res, uint64_t start,
			 uint64_t *look_ns)
{
	struct bench_counts counts;
	struct err ignored = { 0 };

	if (!run->mount.mountpoint || (res->side != SIDE_CLAIRFS && res->side != SIDE_MOUNT))
		return;
	if (res->n_leads == BENCH_BINS) { /* half as many, half as often */
		for (uint32_t i = 0; i < BENCH_BINS / 2; i++) {
			res->lead[i] = res->lead[2 * i];
			res->lead_at[i] = res->lead_at[2 * i];
		}
		res->n_leads /= 2;
		*look_ns *= 2;
	}
	if (bench_mount_counts(&run->mount, &counts, &ignored) < 0 || !isfinite(counts.lead))
		return;
	res->lead[res->n_leads] = counts.lead;
	res->lead_at[res->n_leads++] = (double)(clock_now(clock_monotonic()) - start) / 1e9;
}

/* From the start of the ranks to the end of the last one. */
static int run_ranks(struct run *run, struct bench_block *b, const char *root,
		     struct bench_result *res, struct err *err)
{
	uint64_t start = clock_now(clock_monotonic()), look_ns = LOOK_NS, next = start + look_ns;
	uint32_t left = b->n_ranks;
	int rc = start_ranks(run, b, root, err);

	if (rc < 0)
		return rc;
	if (!b->is_warming)
		look_at_lead(run, res, start, &look_ns);
	while (rc == 0 && left) {
		uint64_t now = clock_now(clock_monotonic());

		if (now >= next) {
			if (!b->is_warming)
				look_at_lead(run, res, start, &look_ns);
			show_progress(run, b, res);
			next = clock_now(clock_monotonic()) + look_ns;
		}
		if (bench_wait(next > now ? next - now : 1) < 0)
			rc = err_set(err, -EINTR, "interrupted");
		else
			rc = reap_ranks(run, b, &left, err);
	}
	kill_ranks(run, b->n_ranks);
	return rc;
}

/* --- the state before a block --- */

static int warm(struct run *run, struct bench_result *res, struct err *err)
{
	struct bench_block *b = NULL;
	int rc = bench_block_new(run->s, res->epoch - 1, &b, err);

	if (rc < 0)
		return rc;
	b->is_warming = true;
	rc = run_ranks(run, b, run->s->path, res, err);
	bench_block_free(b);
	return rc;
}

static int start_mount(struct run *run, struct err *err)
{
	int rc;

	if (run->is_started)
		return 0;
	run->is_started = true;
	rc = bench_mount_start(run->s, &run->mount, err);
	if (rc == 0)
		rc = bench_mount_counts(&run->mount, &run->last, err);
	run->start = run->last;
	bench_mount_pause(&run->mount);
	return rc;
}

static void difference(const struct bench_counts *now, const struct bench_counts *then,
		       struct bench_counts *ret)
{
	*ret = *now;
	for (int c = 0; c < READ_CLASSES; c++) {
		ret->reads[c] -= then->reads[c];
		ret->read_bytes[c] -= then->read_bytes[c];
	}
	ret->opens -= then->opens;
	ret->source_reads -= then->source_reads;
	ret->source_bytes -= then->source_bytes;
	ret->cpu_seconds -= then->cpu_seconds;
}

static void take_verdicts(struct run *run)
{
	const char *words = json_string_value(json_object_get(run->mount.gpu_wait, "words"));

	bench_verdicts_give(run->mount.gpu_wait, run->r->result, run->n_planned,
			    run->s->info->ranks, run->s->ranks);
	if (words)
		snprintf(run->r->words, sizeof(run->r->words), "%s", words);
}

/* The classes of the last reads of an epoch are decided a second after it. Everything else was
 * taken at its end. `passes`: wait for so many verdicts, too; NAN: for none. */
static int settle(struct run *run, double passes, uint64_t most_ns, struct err *err)
{
	struct bench_counts now, classes;
	int rc;

	if (!run->open)
		return 0;
	rc = bench_mount_settle(&run->mount, passes, most_ns, &now, err);
	if (rc < 0)
		return rc;
	difference(&now, &run->last, &classes);
	memcpy(run->open->counts.reads, classes.reads, sizeof(classes.reads));
	memcpy(run->open->counts.read_bytes, classes.read_bytes, sizeof(classes.read_bytes));
	take_verdicts(run);
	run->last = now;
	run->open = NULL;
	return 0;
}

/* How many passes are judged once all epochs so far are. */
static double all_passes(const struct run *run)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < run->r->n_results; i++)
		n += run->r->result[i].counts.is_known;
	return run->start.passes + (double)(n * run->s->ranks);
}

static int resume_mount(struct run *run, struct err *err)
{
	uint64_t paused = run->mount.t_paused, until = paused + QUIET_NS;

	while (paused && run->open && clock_now(clock_monotonic()) < until)
		if (bench_wait(LOOK_NS) < 0)
			return err_set(err, -EINTR, "interrupted");
	bench_mount_resume(&run->mount);
	/* What was stopped must not get time now that a job would not give it. */
	return settle(run, NAN, paused ? SETTLE_AGAIN_NS : SETTLE_NS, err);
}

static int prepare(struct run *run, struct bench_result *res, struct err *err)
{
	const struct bench_setup *s = run->s;
	bool is_first = res->epoch == s->first_epoch, is_kept;
	int rc = 0;

	if (res->side == SIDE_CLAIRFS)
		rc = start_mount(run, err);
	/* Alone on the machine, so to say: the cache is as the last epoch has left it. */
	is_kept =
		res->side == SIDE_PAGECACHE && run->has_previous && run->previous == SIDE_PAGECACHE;
	if (rc == 0 && s->args->is_comparing && !is_kept)
		rc = bench_caches_drop(s, &res->is_warm, res->note, sizeof(res->note), err);
	if (rc == 0 && res->side == SIDE_PAGECACHE && !is_first) {
		if (!is_kept)
			rc = warm(run, res, err);
		res->is_warm = false;
		snprintf(res->note, sizeof(res->note), "page cache as the epoch before left it");
	}
	if (rc == 0 && (res->side == SIDE_CLAIRFS || res->side == SIDE_MOUNT))
		rc = resume_mount(run, err);
	return rc;
}

/* --- one block --- */

static void write_trace(struct run *run, const struct bench_block *b,
			const struct bench_result *res)
{
	for (uint32_t i = 0; run->trace && i < b->n_ranks; i++)
		for (uint32_t p = 0; p < b->rank[i].n_samples; p++) {
			const struct bench_read *t = &b->rank[i].read[p];

			fprintf(run->trace, "%s\t%llu\t%u\t%u\t%u\t%u\t%llu\t%llu\t%llu\n",
				bench_side_names[res->side], (unsigned long long)res->epoch,
				run->s->info->ranks[i], p, t->sample, t->worker,
				(unsigned long long)t->t_start, (unsigned long long)t->t_end,
				(unsigned long long)t->bytes);
		}
}

static void set_bound(const struct run *run, struct bench_result *res)
{
	bool is_first = res->epoch == run->s->first_epoch;

	res->bound_bytes = NAN;
	if (res->counts.is_known)
		res->bound_bytes = is_first ? res->unique_bytes
					    : MAX(res->unique_bytes - res->counts.cache_bytes, 0);
}

static int run_block(struct run *run, struct bench_result *res, struct err *err)
{
	bool has_mount = res->side == SIDE_CLAIRFS || res->side == SIDE_MOUNT;
	struct bench_block *b = NULL;
	struct bench_counts after;
	int rc = prepare(run, res, err);

	if (rc == 0)
		rc = bench_block_new(run->s, res->epoch, &b, err);
	if (rc == 0)
		rc = run_ranks(run, b, has_mount ? run->mount.mountpoint : run->s->path, res, err);
	if (rc == 0 && has_mount) {
		rc = bench_mount_counts(&run->mount, &after, err);
		bench_mount_pause(&run->mount);
	}
	if (rc == 0 && has_mount) {
		difference(&after, &run->mark, &res->counts);
		res->counts.removed_lower = res->counts.removed_estimate =
			res->counts.removed_upper = NAN;
		run->mark = after;
		run->open = res;
	}
	if (rc == 0 && bench_numbers(run->s, b, res) < 0)
		rc = err_set_errno(err, -ENOMEM, "figures of an epoch");
	if (rc == 0) {
		set_bound(run, res);
		write_trace(run, b, res);
		run->previous = res->side;
		run->has_previous = true;
	}
	bench_block_free(b);
	return rc;
}

/* Whether this epoch has brought the bytes that it brought the other sides. */
static int compare_sums(const struct bench_report *r, const struct bench_result *res,
			struct err *err)
{
	for (uint32_t i = 0; i < r->n_results; i++)
		if (r->result[i].epoch == res->epoch && r->result[i].sum != res->sum)
			return err_set(err, -EBADMSG,
				       "epoch %llu: sides %s and %s have not read the same bytes",
				       (unsigned long long)res->epoch,
				       bench_side_names[r->result[i].side],
				       bench_side_names[res->side]);
	return 0;
}

static int run_all(struct run *run, struct err *err)
{
	const struct bench_args *a = run->s->args;
	struct bench_report *r = run->r;
	int rc = 0;

	for (uint64_t e = 0; e < run->s->epochs && rc == 0; e++)
		for (uint32_t i = 0; i < a->n_sides && rc == 0; i++) {
			struct bench_result *res = &r->result[r->n_results];

			res->side = a->side[(i + e) % a->n_sides];
			res->epoch = run->s->first_epoch + e;
			rc = run_block(run, res, err);
			if (rc == 0)
				r->n_results++;
			if (rc == 0)
				rc = compare_sums(r, res, err);
		}
	bench_mount_resume(&run->mount);
	/* Our own mount judges what is left when it is unmounted. */
	return rc < 0 ? rc : settle(run, run->mount.pid ? NAN : all_passes(run), SETTLE_NS, err);
}

static int open_trace(struct run *run, struct err *err)
{
	const char *path = run->s->args->trace;

	if (!path)
		return 0;
	run->trace = fopen(path, "we");
	if (!run->trace)
		return err_set_errno(err, -errno, "--trace: %.512s", path);
	fputs("# side\tepoch\trank\tposition\tsample\tworker\tstart_ns\tend_ns\tbytes\n",
	      run->trace);
	return 0;
}

static int close_trace(struct run *run, int rc, struct err *err)
{
	bool is_bad = run->trace && ferror(run->trace);

	if (run->trace && (fclose(run->trace) != 0 || is_bad) && rc == 0)
		return err_set_errno(err, -errno, "--trace: %.512s", run->s->args->trace);
	return rc;
}

static void describe(struct bench_report *r, const struct bench_setup *s)
{
	const char *note = order_note(s->order);
	time_t now = time(NULL);
	struct utsname name;
	struct tm tm;

	r->setup = s;
	r->n_sides = s->args->n_sides;
	memcpy(r->side, s->args->side, sizeof(r->side));
	snprintf(r->order_note, sizeof(r->order_note), "%s", note ? note : "");
	if (uname(&name) == 0) {
		snprintf(r->host, sizeof(r->host), "%s", name.nodename);
		snprintf(r->kernel, sizeof(r->kernel), "%s %s", name.sysname, name.release);
	}
	if (gmtime_r(&now, &tm))
		strftime(r->time, sizeof(r->time), "%Y-%m-%dT%H:%M:%SZ", &tm);
}

static int run_report(const struct bench_setup *s, struct bench_report *r, struct err *err)
{
	struct run run = { .s = s, .r = r, .n_planned = s->epochs * s->args->n_sides };
	struct err end = { 0 };
	int rc, rc_end;

	describe(r, s);
	r->result = calloc(run.n_planned, sizeof(*r->result));
	if (!r->result)
		return err_set_errno(err, -ENOMEM, "results");
	rc = open_trace(&run, err);
	if (rc == 0 && s->args->side[0] == SIDE_MOUNT) {
		run.mount.mountpoint = strdup(s->path);
		rc = run.mount.mountpoint ? bench_mount_counts(&run.mount, &run.last, err)
					  : err_set_errno(err, -ENOMEM, "bench");
		run.mark = run.start = run.last;
	}
	getloadavg(&r->load[0], 1);
	if (rc == 0)
		rc = run_all(&run, err);
	getloadavg(&r->load[1], 1);
	rc_end = bench_mount_end(&run.mount, &end);
	take_verdicts(&run);
	bench_verdicts_end(run.mount.gpu_wait, r->result, r->n_results, &r->total);
	r->switchback = bench_switchback_of(run.mount.gpu_wait);
	bench_mount_fini(&run.mount);
	if (isatty(STDERR_FILENO))
		fputs("\r\033[K", stderr);
	if (rc == 0 && rc_end < 0)
		rc = err_set(err, rc_end, "%s", end.msg);
	return close_trace(&run, rc, err);
}

int bench_run(struct bench_setup *s, struct bench_report **ret, struct err *err)
{
	struct bench_report *r = calloc(1, sizeof(*r));
	int rc;

	*ret = NULL;
	if (!r)
		return err_set_errno(err, -ENOMEM, "bench");
	bench_signals_block(&s->signals);
	rc = run_report(s, r, err);
	if (rc < 0)
		bench_report_free(r);
	else
		*ret = r;
	return rc;
}

void bench_report_free(struct bench_report *r)
{
	if (!r)
		return;
	for (uint32_t i = 0; r->result && i < r->n_results; i++)
		free(r->result[i].rank_stall);
	free(r->result);
	json_decref(r->switchback);
	free(r);
}
