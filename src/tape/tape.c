/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes down what plans are told and decide. Its lines are handed to the kernel after each round of
 * a plan, when there was anything in it, so that a test can follow a mount; what a killed daemon
 * was about to decide is lost, what it was told is mostly not.
 *
 * Plans are made, used and freed on different threads: one lock for all, a leaf. Whoever calls the
 * plan waits for the file here: no tape belongs on a filesystem that may hang. A write that fails is
 * remembered by stdio until the end.
 */
#include "clairfs/tape.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "clairfs/base/log.h"
#include "clairfs/base/mem.h"
#include "clairfs/base/thr.h"

#define BUFFER (1u << 20)

const char *const tape_event_names[] = { "opened",   "reached",  "fetched",  "staged", "unstaged",
					 "pinned",   "pin_room", "unpinned", "kept",   "lost_copy",
					 "resized",  "demand",   "blind",    "epoch",  NULL };
const char *const tape_action_names[] = { "fetch", "stage", "drop", "pin", "epoch", "come", NULL };

/* What a plan may be told has grown: it belongs on the tape, and into the replay. */
static_assert(sizeof(struct plan_params) == 88 && sizeof(struct plan_event) == 56 &&
		      sizeof(struct plan_action) == 48 && sizeof(struct order_info) == 120,
	      "write it down");

struct tape {
	struct mutex mu;
	FILE *file;     /* mu, like all below */
	uint32_t plans; /* recorded so far */
	bool is_dirty;
	bool is_hurried; /* the last round is not the last for now: the next one is of interest */
};

struct taped {
	struct tape *tape;
	uint32_t id;
};

int tape_open(const char *path, struct tape **ret, struct err *err)
{
	AUTO_FREE struct tape *tape = calloc(1, sizeof(*tape));
	int fd;

	if (!tape)
		return err_set_errno(err, -ENOMEM, "%s", path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_set_errno(err, -errno, "%s", path);
	tape->file = fdopen(fd, "w");
	if (!tape->file) {
		close(fd);
		return err_set_errno(err, -ENOMEM, "%s", path);
	}
	(void)setvbuf(tape->file, NULL, _IOFBF, BUFFER);
	mutex_init(&tape->mu);
	fputs(TAPE_MAGIC "\n", tape->file);
	*ret = TAKE(tape);
	return 0;
}

void tape_close(struct tape *tape)
{
	bool is_bad;

	if (!tape)
		return;
	is_bad = ferror(tape->file);
	if (fclose(tape->file) != 0 || is_bad)
		log_warn("plan_tape: not all of it could be written");
	mutex_fini(&tape->mu);
	free(tape);
}

/* The last word may be beyond the bitmap. */
static void write_bits(FILE *f, const uint64_t *bits, uint64_t n)
{
	uint64_t words = bits ? n / 64 + 1 : 0;

	fprintf(f, " %" PRIu64, words);
	for (uint64_t i = 0; i < words; i++)
		fprintf(f, " %" PRIu64, i * 64 < n ? bits[i] : 0);
}

static void write_order(FILE *f, uint32_t id, const struct order_info *o)
{
	fprintf(f,
		"order %" PRIu32 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
		" %" PRIu64 " %" PRIu64 " %" PRIu64 " %d %d %" PRIu32,
		id, o->n, o->start_epoch, o->epochs, o->start_step, o->world, o->batch, o->workers,
		o->prefetch_factor, o->is_same_every_epoch, o->may_be_left, o->n_ranks);
	for (uint32_t i = 0; i < o->n_ranks; i++)
		fprintf(f, " %" PRIu32, o->ranks ? o->ranks[i] : i);
	write_bits(f, o->outside, o->n);
	fprintf(f, " %" PRIu64 " %" PRIu64, o->samples, o->units);
	write_bits(f, o->inner, o->n);
	fputc('\n', f);
}

static void write_params(FILE *f, uint32_t id, const struct plan_params *p)
{
	for (uint32_t from = 0, to; from < p->n; from = to) {
		for (to = from + 1; to < p->n && p->size[to] == p->size[from];)
			to++;
		fprintf(f, "sizes %" PRIu32 " %" PRIu32 " %" PRIu64 "\n", id, to - from,
			p->size[from]);
	}
	if (p->order)
		write_order(f, id, p->order);
	fprintf(f, "plan %" PRIu32 " %" PRIu32, id, p->n);
#define TAPE_WRITE(name) fprintf(f, " " #name "=%" PRIu64, (uint64_t)p->name);
	TAPE_PARAMS(TAPE_WRITE)
#undef TAPE_WRITE
	fputc('\n', f);
}

static void write_epoch(FILE *f, uint32_t id, uint64_t now_ns, const struct plan_event *ev)
{
	const struct order_epoch *ep = ev->order_epoch;

	fprintf(f, "epoch %" PRIu32 " %" PRIu64 " %d %" PRIu64 " %" PRIu32 " %" PRIu32, id, now_ns,
		ev->status, ev->epoch, ev->job, ev->version);
	if (!ep) {
		fputs(" -\n", f);
		return;
	}
	fprintf(f, " %" PRIu64 " %" PRIu64, ep->length, ep->start);
	for (uint64_t i = 0; i < ep->length; i++)
		fprintf(f, " %" PRIu32, ep->sample[i]);
	fputc('\n', f);
}

static void write_event(FILE *f, uint32_t id, uint64_t now_ns, const struct plan_event *ev)
{
	if (ev->kind == PLAN_EV_EPOCH) {
		write_epoch(f, id, now_ns, ev);
		return;
	}
	fprintf(f,
		"event %" PRIu32 " %" PRIu64 " %s %" PRIu32 " %d %" PRIu64 " %" PRIu64 " %" PRIu64
		" %" PRIu32 "\n",
		id, now_ns, tape_event_names[ev->kind], ev->unit.v, ev->status, ev->bytes,
		ev->latency_ns, ev->epoch, ev->job);
}

/* Of COME what it says of samples is not there: a tape has no places. */
static void write_action(FILE *f, uint32_t id, const struct plan_action *a)
{
	bool is_come = a->kind == PLAN_ACT_COME;

	fprintf(f,
		"action %" PRIu32 " %s %" PRIu32 " %d %d %" PRIu64 " %" PRIu64 " %" PRIu64
		" %" PRIu32 " %" PRIu32 " %d %d\n",
		id, tape_action_names[a->kind], a->unit.v, a->is_pinned, a->is_adopted,
		is_come ? 0 : a->position, a->pass, is_come ? 0 : a->epoch, a->job, a->version, a->is_left,
		a->may_be_whole);
}

static void write_other(FILE *f, uint32_t id, const struct plan_call *call)
{
	switch (call->kind) {
	case PLAN_CALL_MEMORY:
		fprintf(f, "memory %" PRIu32 " %" PRIu64 " %" PRIu64 "\n", id, call->arena_bytes,
			call->stage_bytes);
		break;
	case PLAN_CALL_ADD_JOB:
		write_order(f, id, call->order);
		fprintf(f, "join %" PRIu32 " %d\n", id, call->result);
		break;
	case PLAN_CALL_CHANGE_JOB:
		write_order(f, id, call->order);
		fprintf(f, "change %" PRIu32 " %" PRIu32 " %d\n", id, call->job, call->result);
		break;
	case PLAN_CALL_END_JOB:
		fprintf(f, "leave %" PRIu32 " %" PRIu32 "\n", id, call->job);
		break;
	default:
		fprintf(f, "free %" PRIu32 "\n", id);
	}
}

static void tape_called(void *ctx, const struct plan_call *call)
{
	struct taped *taped = ctx;
	struct tape *tape = taped->tape;
	FILE *f = tape->file;

	mutex_lock(&tape->mu);
	if (call->kind == PLAN_CALL_STEP) {
		tape->is_dirty |= tape->is_hurried;
		tape->is_hurried = call->wake_ns <= call->now_ns;
	} else if (call->kind != PLAN_CALL_NO_ACTION) {
		tape->is_dirty = true;
	}
	switch (call->kind) {
	case PLAN_CALL_EVENT:
		write_event(f, taped->id, call->now_ns, call->event);
		break;
	case PLAN_CALL_STEP:
		fprintf(f, "step %" PRIu32 " %" PRIu64 " %" PRIu64 "\n", taped->id, call->now_ns,
			call->wake_ns);
		break;
	case PLAN_CALL_ACTION:
		write_action(f, taped->id, call->action);
		break;
	case PLAN_CALL_NO_ACTION:
		fprintf(f, "enough %" PRIu32 "\n", taped->id);
		if (tape->is_dirty)
			(void)fflush(f); /* an error stays with the file */
		tape->is_dirty = false;
		break;
	default:
		write_other(f, taped->id, call);
	}
	mutex_unlock(&tape->mu);
	if (call->kind == PLAN_CALL_FREE)
		free(taped);
}

int tape_record(struct tape *tape, struct plan *plan, const struct plan_params *params)
{
	struct taped *taped = calloc(1, sizeof(*taped));

	if (!taped)
		return -ENOMEM;
	taped->tape = tape;
	mutex_lock(&tape->mu);
	taped->id = tape->plans++;
	write_params(tape->file, taped->id, params);
	tape->is_dirty = true;
	mutex_unlock(&tape->mu);
	plan_set_watch(plan, &(struct plan_watch){ .called = tape_called, .ctx = taped });
	return 0;
}
