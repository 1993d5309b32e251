/* SPDX-License-Identifier: Apache-2.0 */
/* The files whose READs are looked at, a few at a time. Where readers have jumped often enough it is asked what is
 * there (stride.h): at 32 jumps, at twice as many, and so on. Records, once found, are asked about again as well: with
 * more of them read the answer may be another one, and then the search for their order begins anew.
 *
 *	READ -> stride -> a jump: the record that begins there -> its search
 *	                  often enough: what are the records? -> a search, of two files at most
 *
 * All looks, also those that find something, are weighed together against the time since the first READ (spend.c),
 * however many files there are, and a step makes one. A file that was quiet gives its place to another one; one that
 * was looked at in vain is looked at again when more of it was read than then. One that is read again after a long
 * pause is looked at anew, as another job may read it.
 *
 * The owner's thread changes everything. Whoever asks what is known takes the lock, which is never held over a
 * judgement or while a search is waited for. */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "clairfs/base/log.h"
#include "clairfs/base/thr.h"
#include "records_priv.h"

#define LOOK_FIRST 32u       /* jumps */
#define LOOK_LAST 65536u     /* later nothing is new */
#define QUIET_NS (2 * NS_PER_S) /* then another file may have the place, */
#define CLAIM_NS (60 * NS_PER_S) /* of one with records */
#define VAIN_MAX 64u

struct slot {
	bool is_used;
	uint32_t file;
	uint64_t size, looked;     /* looked: jumps at the last look */
	_Atomic uint64_t last_ns;  /* of the last READ; the owner writes it */
	struct stride *stride;
	struct stride_view view;       /* mu, as the next */
	struct records_search *search; /* or NULL */
	bool is_refused;               /* there was no memory for a search */
};

/* A file that gave its place away, and was looked at in vain before that. */
struct vain {
	uint32_t file;
	uint64_t looked, last_ns; /* looked: jumps, 0: there is none here */
};

struct infer_records {
	struct infer_records_params p;
	struct mutex mu; /* outside of a search's and a finder's */
	atomic_bool is_quitting;
	struct slot slot[INFER_RECORD_FILES];
	/* The owner's: */
	struct records_search *leaving[RECORD_SEARCHES_MOST]; /* they have not ended yet */
	struct vain vain[VAIN_MAX];
	struct budget budget; /* of all files */
	uint64_t last_ns;     /* the last READ of any */
	uint32_t turn;        /* the slot that is asked first whether a look is due */
};

int infer_records_new(const struct infer_records_params *params, struct infer_records **ret)
{
	struct infer_records *r = calloc(1, sizeof(*r));

	*ret = r;
	if (!r)
		return -ENOMEM;
	r->p = *params;
	r->budget.cpus = 1;
	mutex_init(&r->mu);
	atomic_init(&r->is_quitting, false);
	return 0;
}

void infer_records_free(struct infer_records *r)
{
	if (!r)
		return;
	for (uint32_t i = 0; i < INFER_RECORD_FILES; i++) {
		if (r->slot[i].search)
			records_search_free(r->slot[i].search);
		stride_free(r->slot[i].stride);
	}
	for (uint32_t i = 0; i < RECORD_SEARCHES_MOST; i++)
		if (r->leaving[i])
			records_search_free(r->leaving[i]);
	mutex_fini(&r->mu);
	free(r);
}

void infer_records_quit(struct infer_records *r)
{
	atomic_store(&r->is_quitting, true);
	mutex_lock(&r->mu);
	for (uint32_t i = 0; i < INFER_RECORD_FILES; i++)
		if (r->slot[i].search)
			records_search_quit(r->slot[i].search);
	mutex_unlock(&r->mu);
}

/* --- searches --- */

static uint32_t count_searches(const struct infer_records *r)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < INFER_RECORD_FILES; i++)
		n += r->slot[i].search != NULL;
	for (uint32_t i = 0; i < RECORD_SEARCHES_MOST; i++)
		n += r->leaving[i] != NULL;
	return n;
}

/* There is a place for it: no more than RECORD_SEARCHES_MOST are there at all. */
static void leave_search(struct infer_records *r, struct slot *slot)
{
	struct records_search *s;
	uint32_t at = 0;

	mutex_lock(&r->mu);
	s = slot->search;
	slot->search = NULL;
	mutex_unlock(&r->mu);
	if (!s)
		return;
	records_search_quit(s);
	while (r->leaving[at])
		at++;
	r->leaving[at] = s;
}

static void free_left(struct infer_records *r)
{
	for (uint32_t i = 0; i < RECORD_SEARCHES_MOST; i++)
		if (r->leaving[i] && records_search_has_ended(r->leaving[i])) {
			records_search_free(r->leaving[i]);
			r->leaving[i] = NULL;
		}
}

/* For records that are known and have none. What was read of them so far is told first. */
static void seek_order(struct infer_records *r, struct slot *slot)
{
	AUTO_FREE uint32_t *seen = NULL;
	struct records_search *s = NULL;
	char name[INFER_NAME_MAX];
	int rc;

	if (slot->view.kind != STRIDE_RECORDS || slot->search || slot->is_refused || r->p.effort == INFER_OFF ||
	    count_searches(r) >= RECORD_SEARCHES_MOST)
		return;
	seen = malloc(STRIDE_STARTS_MAX * sizeof(*seen));
	if (!seen)
		return;
	r->p.name(r->p.ctx, slot->file, name);
	rc = records_search_new(&r->p, &slot->view, slot->size, name, seen,
				stride_numbers(slot->stride, &slot->view, seen, STRIDE_STARTS_MAX), &s);
	slot->is_refused = rc < 0;
	mutex_lock(&r->mu);
	slot->search = s;
	if (s && atomic_load(&r->is_quitting))
		records_search_quit(s);
	mutex_unlock(&r->mu);
}

/* --- files --- */

static void set_view(struct infer_records *r, struct slot *slot, const struct stride_view *view)
{
	mutex_lock(&r->mu);
	slot->view = *view;
	mutex_unlock(&r->mu);
}

/* Not so what is another job's: `last_ns` is when it was read last. */
static uint64_t looked_in_vain(const struct infer_records *r, uint32_t file, uint64_t now_ns)
{
	for (uint32_t i = 0; i < VAIN_MAX; i++)
		if (r->vain[i].looked && r->vain[i].file == file)
			return now_ns - MIN(r->vain[i].last_ns, now_ns) < JOB_PAUSE_NS ? r->vain[i].looked : 0;
	return 0;
}

/* In the place of what is known of it, or of the oldest one. */
static void note_vain(struct infer_records *r, const struct slot *slot)
{
	struct vain *at = &r->vain[0];

	if (!slot->looked || slot->view.kind == STRIDE_RECORDS || slot->view.kind == STRIDE_TABLE)
		return;
	for (uint32_t i = 0; i < VAIN_MAX; i++) {
		struct vain *one = &r->vain[i];

		if (one->looked && one->file == slot->file) {
			at = one;
			break;
		}
		if (at->looked && (!one->looked || one->last_ns < at->last_ns))
			at = one;
	}
	*at = (struct vain){ slot->file, slot->looked, slot->last_ns };
}

static void slot_clear(struct infer_records *r, struct slot *slot)
{
	const struct slot nothing = { .is_used = false };

	if (slot->is_used)
		note_vain(r, slot);
	leave_search(r, slot);
	stride_free(slot->stride);
	mutex_lock(&r->mu);
	*slot = nothing;
	mutex_unlock(&r->mu);
}

static bool slot_take(struct infer_records *r, struct slot *slot, const struct infer_record_read *read)
{
	struct stride *stride;

	slot_clear(r, slot);
	if (stride_new(read->size, &stride) < 0)
		return false;
	mutex_lock(&r->mu);
	*slot = (struct slot){ .is_used = true,
			       .file = read->file,
			       .size = read->size,
			       .last_ns = read->at_ns,
			       .looked = looked_in_vain(r, read->file, read->at_ns),
			       .stride = stride };
	mutex_unlock(&r->mu);
	return true;
}

/* It was quiet so long that another file may have its place; those of which something is known stay longer. */
static bool may_leave(const struct slot *slot, uint64_t now_ns)
{
	uint64_t quiet = now_ns - MIN(slot->last_ns, now_ns);

	return quiet >= (slot->view.kind == STRIDE_NOTHING ? QUIET_NS : CLAIM_NS);
}

/* What is read now has nothing to do with what was read before. */
static bool is_another(const struct slot *slot, const struct infer_record_read *read)
{
	uint64_t quiet = read->at_ns - MIN(slot->last_ns, read->at_ns);

	return slot->size != read->size || quiet >= JOB_PAUSE_NS ||
	       (quiet >= TRAIL_PAUSE_NS && slot->view.kind == STRIDE_NOTHING);
}

/* NULL: it is not looked at now. */
static struct slot *slot_of(struct infer_records *r, const struct infer_record_read *read)
{
	struct slot *free_one = NULL, *oldest = NULL;

	for (uint32_t i = 0; i < INFER_RECORD_FILES; i++) {
		struct slot *slot = &r->slot[i];

		if (slot->is_used && slot->file == read->file)
			return !is_another(slot, read) || slot_take(r, slot, read) ? slot : NULL;
		if (!slot->is_used)
			free_one = slot;
		else if (may_leave(slot, read->at_ns) && (!oldest || slot->last_ns < oldest->last_ns))
			oldest = slot;
	}
	free_one = free_one ? free_one : oldest;
	return free_one && slot_take(r, free_one, read) ? free_one : NULL;
}

void infer_records_read(struct infer_records *r, const struct infer_record_read *read)
{
	struct slot *slot;
	uint64_t cpu_ns;
	uint32_t record;

	if (!read->length || atomic_load(&r->is_quitting))
		return;
	if (r->last_ns && read->at_ns - MIN(r->last_ns, read->at_ns) >= JOB_PAUSE_NS)
		r->budget = (struct budget){ .cpus = 1 }; /* another job's */
	r->last_ns = MAX(r->last_ns, read->at_ns);
	spend_open(&r->budget, read->at_ns);
	slot = slot_of(r, read);
	if (!slot)
		return;
	slot->last_ns = MAX(slot->last_ns, read->at_ns); /* the owner alone writes it */
	if (!stride_read(slot->stride, read->offset, read->length, read->reader) || !slot->search)
		return;
	record = stride_number(slot->stride, &slot->view, read->offset);
	cpu_ns = record != STRIDE_NONE ? records_search_open(slot->search, record, read->length) : 0;
	if (!cpu_ns)
		return;
	metrics_add(r->p.metrics, METRIC_RECOVER_CPU, cpu_ns);
	spend_waste(&r->budget, cpu_ns); /* looks wait for it */
}

/* --- looks --- */

/* The number of jumps that this look is at: a power of two, or 0. */
static uint64_t look_due(const struct slot *slot)
{
	uint64_t jumps = stride_jumps(slot->stride), due = LOOK_FIRST;

	while (2 * due <= MIN(jumps, LOOK_LAST))
		due *= 2;
	return jumps >= due && slot->looked < due ? due : 0;
}

/* What was read has the same numbers. */
static bool is_numbered_so(const struct slot *slot, const struct stride_view *now)
{
	AUTO_FREE uint32_t *a = malloc(STRIDE_STARTS_MAX * sizeof(*a)), *b = malloc(STRIDE_STARTS_MAX * sizeof(*b));
	size_t n_seen;

	if (!a || !b || slot->view.kind != now->kind)
		return false;
	n_seen = stride_numbers(slot->stride, now, a, STRIDE_STARTS_MAX);
	return stride_numbers(slot->stride, &slot->view, b, STRIDE_STARTS_MAX) == n_seen &&
	       memcmp(a, b, n_seen * sizeof(*a)) == 0;
}

/* Whether a search need not begin anew: the same numbers, of the same counts. */
static bool is_numbered_alike(const struct slot *slot, const struct stride_view *now)
{
	uint64_t of_a[STRIDE_COUNTS], of_b[STRIDE_COUNTS];
	size_t n = stride_counts(now, slot->size, of_a);

	return slot->view.stride == now->stride && stride_counts(&slot->view, slot->size, of_b) == n &&
	       memcmp(of_a, of_b, n * sizeof(*of_a)) == 0 && is_numbered_so(slot, now);
}

static void note_found(struct infer_records *r, const struct slot *slot, uint64_t jumps)
{
	char name[INFER_NAME_MAX], words[80];

	r->p.name(r->p.ctx, slot->file, name);
	stride_say(&slot->view, words, sizeof(words));
	log_info("%s: a job %s, found after %" PRIu64 " places", name, words, jumps);
}

/* Once more than STRIDE_STARTS_MAX jumps are there, the same is seen of records: only a table may still show. */
static void look(struct infer_records *r, struct slot *slot, uint64_t due)
{
	struct stride_view view;
	uint64_t cpu_ns;
	bool is_known = slot->view.kind == STRIDE_RECORDS, is_news;
	bool is_followed = slot->search && records_search_is_followed(slot->search);

	slot->looked = due;
	if (is_followed && slot->view.stride_least == slot->view.stride_most)
		return; /* it explains what is read, so these are the records */
	cpu_ns = guess_cpu_ns();
	stride_judge(slot->stride, &r->is_quitting, &view);
	cpu_ns = guess_cpu_ns() - cpu_ns;
	metrics_add(r->p.metrics, METRIC_RECOVER_CPU, cpu_ns);
	spend_charge(&r->budget, BUDGET_BRIEF, 0, cpu_ns);
	if (is_followed) { /* how long they are may show by now */
		if (is_numbered_so(slot, &view) && records_search_fits(slot->search, &view))
			set_view(r, slot, &view);
		return;
	}
	if (view.kind != STRIDE_RECORDS && view.kind != STRIDE_TABLE) {
		if (!is_known) /* a table, or streams, may be over */
			set_view(r, slot, &view);
		return;
	}
	if (is_known && view.kind == STRIDE_TABLE) /* of records, read again */
		return;
	if (!is_numbered_alike(slot, &view)) {
		leave_search(r, slot);
		slot->is_refused = false;
	}
	is_news = view.kind != slot->view.kind || view.stride != slot->view.stride;
	set_view(r, slot, &view);
	if (is_news)
		note_found(r, slot, due);
}

/* The first file of which enough was read since its last look, in turn. */
static void look_at_one(struct infer_records *r, uint64_t now_ns)
{
	if (!spend_allows(&r->budget, BUDGET_BRIEF, 0, now_ns))
		return;
	for (uint32_t i = 0; i < INFER_RECORD_FILES; i++) {
		uint32_t at = (r->turn + i) % INFER_RECORD_FILES;
		struct slot *slot = &r->slot[at];
		uint64_t due = slot->is_used ? look_due(slot) : 0;

		if (!due)
			continue;
		look(r, slot, due);
		r->turn = at + 1;
		return;
	}
}

void infer_records_step(struct infer_records *r, uint64_t now_ns)
{
	free_left(r);
	if (!atomic_load(&r->is_quitting))
		look_at_one(r, now_ns);
	for (uint32_t i = 0; i < INFER_RECORD_FILES && !atomic_load(&r->is_quitting); i++)
		if (r->slot[i].is_used)
			seek_order(r, &r->slot[i]);
}

size_t infer_records_get(struct infer_records *r, struct infer_record_file ret[INFER_RECORD_FILES])
{
	uint64_t now_ns = clock_now(r->p.clock);
	size_t n = 0;

	mutex_lock(&r->mu);
	for (uint32_t i = 0; i < INFER_RECORD_FILES; i++) {
		const struct slot *slot = &r->slot[i];

		if (!slot->is_used || slot->view.kind == STRIDE_NOTHING || slot->view.kind == STRIDE_STREAMS)
			continue;
		memset(&ret[n], 0, sizeof(ret[n]));
		ret[n].file = slot->file;
		ret[n].size = slot->size;
		ret[n].view = slot->view;
		ret[n].match = -1;
		ret[n].is_over = now_ns - MIN(slot->last_ns, now_ns) >= JOB_PAUSE_NS;
		if (slot->search)
			records_search_say(slot->search, &ret[n]);
		n++;
	}
	mutex_unlock(&r->mu);
	return n;
}
