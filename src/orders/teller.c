/* SPDX-License-Identifier: Apache-2.0 */
/* Which process tells an order, and which one reads: to see when a job is over, and who reads by an
 * order or by none. Whose an order is, is not seen here: who tells it says so (whose.c). The kernel says
 * which thread asked, and /proc of which process that is.
 *
 * A job is told by a process that stays (the training loop), or by one that is over at once
 * (`clairfs announce`, `cat .clairfs/announce/SPEC`: then whoever started that is meant). A pid alone
 * is no name: it is given to another process later, so the time of its start goes with it.
 *
 * What /proc says may be wrong by the time it is read, and a process's name is its own choice. So
 * nothing here is a permission: a wrong answer costs prefetching. The announce thread and cl-orders
 * run it; it must never wait for a process. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "clairfs/base/buf.h"
#include "clairfs/base/proc_text.h"
#include "teller.h"

enum { STAT_MAX = 1024, DEPTH_MAX = 64 };

/* The first bytes of a file of /proc, with a zero behind. -ENOENT, -ESRCH: the process is gone; else we
 * have no file or memory left to ask with, and know nothing. */
static int read_proc(int pid, const char *file, char out[STAT_MAX])
{
	char path[64];
	AUTO_FILE FILE *f = NULL;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	errno = 0;
	f = fopen(path, "re");
	if (!f)
		return errno ? -errno : -ENOMEM;
	out[fread(out, 1, STAT_MAX - 1, f)] = '\0';
	return ferror(f) ? (errno ? -errno : -EIO) : 0;
}

/* -ESRCH: it is gone, if only nobody has asked for its exit code yet. */
static int process_ask(int pid, struct proc_stat *ret)
{
	char text[STAT_MAX];
	int rc = pid > 0 ? read_proc(pid, "stat", text) : -ESRCH;

	if (rc < 0)
		return rc == -ENOENT ? -ESRCH : rc;
	return proc_parse_stat(text, ret) && ret->state != 'Z' && ret->state != 'X' ? 0 : -ESRCH;
}

static bool process_look(int pid, struct proc_stat *ret)
{
	return process_ask(pid, ret) == 0;
}

/* The process of a thread, or 0. */
static int process_of(int tid)
{
	char text[STAT_MAX];

	return tid > 0 && read_proc(tid, "status", text) == 0 ? proc_parse_tgid(text) : 0;
}

static void set_teller(struct teller *ret, int pid, const struct proc_stat *stat)
{
	struct proc_stat p = *stat;

	ret->id = (struct process_id){ pid, p.start };
	while (ret->n_above < TELLER_ABOVE && p.parent > 1) {
		pid = (int)p.parent;
		if (!process_look(pid, &p))
			break;
		ret->above[ret->n_above++] = (struct process_id){ pid, p.start };
	}
	assert(ret->id.pid > 0 && ret->n_above <= TELLER_ABOVE);
}

void teller_find(int tid, bool is_passing, struct teller *ret)
{
	int pid = process_of(tid);
	bool is_itself = true;
	struct proc_stat p;

	*ret = (struct teller){ .is_itself = false };
	if (!process_look(pid, &p))
		return;
	/* The command asks through a child of its own. */
	for (int depth = 0; depth < DEPTH_MAX && (is_passing || strcmp(p.name, "clairfs") == 0);
	     depth++) {
		pid = (int)p.parent;
		is_passing = is_itself = false;
		if (pid <= 1 || !process_look(pid, &p))
			return;
	}
	set_teller(ret, pid, &p);
	ret->is_itself = is_itself;
}

/* The same program in the same place: nothing was executed since the fork. Where we may not see that,
 * the name is what there is. torch gives its workers one of their own, also those that it spawns: they
 * read for their parent whatever was executed. */
static bool is_forked(const struct proc_stat *child, const struct proc_stat *parent)
{
	if (strcmp(child->name, "pt_data_worker") == 0)
		return true;
	if (child->stack && parent->stack)
		return child->stack == parent->stack && child->code_end == parent->code_end;
	return strcmp(child->name, parent->name) == 0;
}

void teller_find_reader(int tid, struct teller *ret)
{
	int pid = process_of(tid);
	struct proc_stat p, parent;

	*ret = (struct teller){ .is_itself = false };
	if (!process_look(pid, &p))
		return;
	for (int depth = 0; depth < DEPTH_MAX && p.parent > 1; depth++) {
		if (!process_look((int)p.parent, &parent) || !is_forked(&p, &parent))
			break;
		pid = (int)p.parent;
		p = parent;
	}
	set_teller(ret, pid, &p);
	ret->is_itself = true;
	if (ret->n_above && process_look(ret->above[0].pid, &parent) &&
	    parent.start == ret->above[0].start)
		ret->is_spawned = parent.session == p.session && strcmp(p.name, parent.name) == 0;
}

static bool is_same_process(const struct process_id *a, const struct process_id *b)
{
	return a->pid == b->pid && a->start == b->start;
}

bool process_is_alive(const struct process_id *id)
{
	struct proc_stat p;
	int rc = process_ask(id->pid, &p);

	/* Where we could not ask it is there: its end is seen a moment later. */
	return rc == 0 ? p.start == id->start : rc != -ESRCH;
}

bool teller_is_alive(const struct teller *t)
{
	return process_is_alive(&t->id);
}

static bool is_above(const struct teller *above, const struct teller *t)
{
	for (uint32_t i = 0; i < t->n_above; i++)
		if (is_same_process(&t->above[i], &above->id))
			return true;
	return false;
}

bool teller_is_of(const struct teller *t, const struct process_id *process)
{
	bool is_of = is_same_process(&t->id, process);

	for (uint32_t i = 0; i < t->n_above; i++)
		is_of |= is_same_process(&t->above[i], process);
	return is_of && process->pid;
}

bool teller_is_itself(const struct teller *now, const struct teller *then)
{
	return now->id.pid && is_same_process(&now->id, &then->id);
}

bool teller_is_related(const struct teller *a, const struct teller *b)
{
	if (!a->id.pid || !b->id.pid)
		return false;
	return is_same_process(&a->id, &b->id) || is_above(a, b) || is_above(b, a) ||
	       (a->n_above && b->n_above && is_same_process(&a->above[0], &b->above[0]));
}

bool teller_has_common(const struct teller *a, const struct teller *b)
{
	if (teller_is_related(a, b))
		return true;
	for (uint32_t i = 0; i < a->n_above && a->id.pid && b->id.pid; i++)
		for (uint32_t k = 0; k < b->n_above; k++)
			if (is_same_process(&a->above[i], &b->above[k]))
				return true;
	return false;
}
