/* SPDX-License-Identifier: Apache-2.0 */
/* The plan's entry points: takes events apart, lets the parts decide in a fixed order, hands out
 * their actions.
 *
 * The order within a step is the order of urgency: room is made first (what was read and is not
 * worth keeping), then what is in the arena and due is staged, then the source is asked for more,
 * pins come last. The plan believes its own actions at once (a DROP frees its bytes, a FETCH takes
 * them), so a queue of actions that are not carried out yet is never counted twice. Single-threaded
 * by contract; no I/O, no clock; an impossible event is a bug of the caller and asserts. */
#include "plan_priv.h"

#define BURIED_MOST 16u /* steps of taking jobs apart */

#include <errno.h>
#include <string.h>

#include "tell.h"

static bool plan_params_are_sane(const struct plan_params *p)
{
	return p->n < UNIT_NONE.v - 1 && (!p->n || p->size) && p->inflight_min >= 1 &&
	       p->inflight_min <= p->inflight_max &&
	       (!p->order || (p->order->n == p->n && p->order->n_ranks >= 1));
}

static uint32_t plan_pages_of(uint64_t bytes)
{
	uint64_t pages = bytes / PAGE_BYTES + (bytes % PAGE_BYTES != 0);

	return (uint32_t)MIN(MAX(pages, 1), UINT32_MAX);
}

void plan_sized(struct plan *plan, uint32_t pages)
{
	plan->sum_pages += pages;
	plan->n_sized++;
	plan->mean_pages = MAX(plan->sum_pages / plan->n_sized, 1);
}

static int plan_init_items(struct plan *plan)
{
	double squares = 0;

	plan->item = mem_alloc(plan->n, sizeof(*plan->item));
	if (!plan->item)
		return -ENOMEM;
	for (uint32_t i = 0; i < plan->n; i++) {
		plan->item[i] = (struct item){ 0, NO_KEY, ABSENT };
		if (plan->params.size[i] == PLAN_NO_SIZE)
			continue;
		plan->item[i].pages = plan_pages_of(plan->params.size[i]);
		plan_sized(plan, plan->item[i].pages);
		if (plan->item[i].pages <= plan->max_pages)
			plan->largest = MAX(plan->largest, plan->item[i].pages);
		squares += (double)plan->item[i].pages * plan->item[i].pages;
	}
	choose_init(plan, (double)plan->sum_pages, squares);
	return tree_init(&plan->unkeyed, plan->n);
}

/* What is said where there is no job. */
static struct plan_job *plan_nobody(void)
{
	struct plan_job *nobody = calloc(1, sizeof(*nobody));

	if (nobody) {
		nobody->is_over = true;
		nobody->state = PLAN_NO_ORDER;
		nobody->why = WHY_NO_ORDER;
	}
	return nobody;
}

int plan_new(const struct plan_params *params, struct plan **ret)
{
	struct plan *plan;
	int r;

	if (!plan_params_are_sane(params))
		return -EINVAL;
	plan = calloc(1, sizeof(*plan));
	if (!plan)
		return -ENOMEM;
	plan->params = *params;
	plan->n = params->n;
	plan->mean_pages = 1;
	plan->full_pages = plan->arena_pages = params->arena_bytes / PAGE_BYTES;
	plan->spare_pages = params->spare_bytes / PAGE_BYTES;
	plan->stage_most = plan->stage_pages = params->stage_bytes / PAGE_BYTES;
	plan->max_pages = plan->full_pages / 4;
	plan->store_pages = params->store_bytes / PAGE_BYTES;
	plan->stage_limit = (double)plan->stage_pages;
	plan->forget_at = plan->n;
	plan->work_most = plan->n < WORK_MANY ? WORK_MOST : WORK_MOST / 4;
	plan->nobody = plan_nobody();
	r = plan->nobody ? plan_init_items(plan) : -ENOMEM;
	if (r == 0 && params->order)
		r = jobs_add(plan, params->order);
	if (r < 0) {
		plan_free(plan);
		return r;
	}
	plan->params.size = NULL;
	plan->params.order = NULL;
	usable_init(plan);
	budget_init(plan);
	*ret = plan;
	return 0;
}

void plan_set_watch(struct plan *plan, const struct plan_watch *watch)
{
	plan->watch = *watch;
}

void plan_free(struct plan *plan)
{
	if (!plan)
		return;
	PLAN_TELL(plan, .kind = PLAN_CALL_FREE);
	jobs_free(plan);
	tree_fini(&plan->unkeyed);
	later_fini(plan);
	choose_fini(plan);
	free(plan->hold);
	free(plan->item);
	free(plan);
}

/* What fits into a full arena must fit into a smaller one: a unit that never finds room would
 * keep those behind it out. */
void plan_set_memory(struct plan *plan, uint64_t arena_bytes, uint64_t stage_bytes)
{
	uint64_t largest = MAX(plan->largest, 1), arena = arena_bytes / PAGE_BYTES;

	PLAN_TELL(plan, .kind = PLAN_CALL_MEMORY, .arena_bytes = arena_bytes,
		  .stage_bytes = stage_bytes);
	if (!plan->full_pages)
		return;
	usable_resize(plan, MIN(MAX(arena, 4 * largest), plan->full_pages));
	plan->stage_most = MIN(MAX(stage_bytes / PAGE_BYTES, largest), plan->stage_pages);
	plan->stage_limit = MIN(plan->stage_limit, (double)plan->stage_most);
	jobs_stage_dirty(plan);
}

static void plan_read_by(struct plan *plan, uint64_t now_ns, uint32_t unit,
			 const struct plan_job *reader)
{
	struct plan_job *job;

	for (uint32_t at = 0; (job = jobs_next(plan, &at));)
		/* What is within a sample of one job may be an open of another's. */
		if (job->state != PLAN_NO_ORDER &&
		    (job == reader || (!reader && !job_is_inner(job, unit))))
			window_read(plan, job, now_ns, unit);
}

static void plan_opened(struct plan *plan, uint64_t now_ns, uint32_t unit)
{
	struct plan_job *reader = window_reader(plan, unit);
	struct plan_job *job = reader ? reader : jobs_first(plan);
	const struct order_epoch *ep = job_next(job)->ep;
	bool is_alone;

	/* Its next use is in the next pass, most often: the look-up is a cache miss that may begin
	 * now. */
	if (ep)
		__builtin_prefetch(&ep->first[unit]);
	plan->opened++;
	plan->has_last_use = false;
	is_alone = (plan->item[unit].flags & ALONE) != 0;
	recent_opened(plan, unit);
	retain_opened(plan, job, now_ns, unit);
	plan_read_by(plan, now_ns, unit, reader);
	if (plan->has_last_use)
		recent_placed(plan);
	if (plan->has_last_use) {
		reach_allow(plan, job, unit);
		reach_opened(plan, job, now_ns, unit);
	}
	if (!is_alone) /* else nobody has it but the kernel */
		fetch_adopt(plan, job, unit);
}

static void plan_unit_event(struct plan *plan, uint64_t now_ns, const struct plan_event *ev)
{
	assert(ev->unit.v < plan->n);
	switch (ev->kind) {
	case PLAN_EV_OPENED:
		plan_opened(plan, now_ns, ev->unit.v);
		break;
	case PLAN_EV_REACHED:
		reach_read(plan, now_ns, ev->unit.v);
		break;
	case PLAN_EV_FETCHED:
		retain_fetched(plan, now_ns, ev);
		break;
	case PLAN_EV_STAGED:
		stage_answered(plan, now_ns, ev->unit.v, ev->status);
		break;
	case PLAN_EV_UNSTAGED:
		stage_unstaged(plan, now_ns, ev->unit.v);
		break;
	case PLAN_EV_PINNED:
		pin_answered(plan, ev->unit.v, ev->status);
		break;
	case PLAN_EV_UNPINNED:
		pin_lost(plan, ev->unit.v);
		break;
	case PLAN_EV_KEPT:
		pin_kept(plan, ev->unit.v);
		break;
	case PLAN_EV_LOST_COPY:
		retain_lost_copy(plan, ev->unit.v);
		break;
	case PLAN_EV_RESIZED:
		retain_resized(plan, ev->unit.v, ev->bytes);
		break;
	default:
		assert(!"an event that names a unit");
	}
}

/* One that was computed for a job that has left, or for its last order, is nobody's. */
static void plan_epoch(struct plan *plan, uint64_t now_ns, const struct plan_event *ev)
{
	struct plan_job *job;

	assert(ev->job < PLAN_JOBS);
	job = plan->jobs[ev->job];
	if (job && !job->is_over && job->version == ev->version)
		epochs_arrived(plan, job, now_ns, ev);
	else if (ev->status == 0)
		order_epoch_free(ev->order_epoch);
}

void plan_event(struct plan *plan, uint64_t now_ns, const struct plan_event *ev)
{
	struct plan_job *job;

	assert(now_ns >= plan->now_ns);
	PLAN_TELL(plan, .kind = PLAN_CALL_EVENT, .now_ns = now_ns, .event = ev);
	plan->now_ns = now_ns;
	switch (ev->kind) {
	case PLAN_EV_DEMAND:
		budget_demand(plan, now_ns, ev->bytes);
		break;
	case PLAN_EV_BLIND:
		for (uint32_t at = 0; (job = jobs_next(plan, &at));)
			job->blind_reads = 2 * SYNC_READS;
		break;
	case PLAN_EV_PIN_ROOM:
		pin_again(plan);
		break;
	case PLAN_EV_EPOCH:
		plan_epoch(plan, now_ns, ev);
		break;
	default:
		plan_unit_event(plan, now_ns, ev);
	}
}

/* Pass and position of the next use; of several jobs the time of it. */
static void plan_set_use(const struct plan *plan, struct plan_action *a)
{
	uint64_t when, pos;
	const struct plan_job *job = jobs_home(plan, a->unit.v, &when);
	uint32_t key;

	if (!job)
		return;
	key = *job_key(plan, job, a->unit.v);
	pos = key_pos(key) + (key_is_valid(key) ? job_cur(job)->length : 0);
	a->pass = key_slot(job, key)->pass;
	a->position = plan->n_jobs > 1 ? plan->now_ns + when : (a->pass << 32) + pos;
}

struct plan_action *plan_act(struct plan *plan, const struct plan_job *job,
			     enum plan_action_kind kind, uint32_t unit)
{
	struct plan_action *a;

	assert(actions_left(plan) > 0);
	a = &plan->actions[(plan->action_head + plan->action_count++) % ACTIONS_MAX];
	*a = (struct plan_action){
		.kind = kind,
		.unit = { unit },
		.position = UINT64_MAX,
		.pass = UINT64_MAX,
		.job = job->index,
		.version = job->version,
	};
	if (kind == PLAN_ACT_EPOCH) {
		a->epoch = job->asked_epoch;
		return a;
	}
	assert(unit < plan->n);
	a->is_pinned = (plan->item[unit].flags & PINNED) != 0;
	plan_set_use(plan, a);
	return a;
}

static void plan_check(const struct plan *plan)
{
	uint64_t slack = plan->grown_pages;

	assert(plan->used_pages <= plan->full_pages + plan->spare_pages + slack);
	assert(plan->staged_pages <= plan->stage_pages + slack);
	assert(plan->pinned_pages <= plan->store_pages + slack);
	assert(plan->held_pages <= plan->used_pages);
	assert(plan->fresh_pages + plan->fetching_pages <= plan->used_pages);
	assert(plan->n_jobs <= PLAN_JOBS && plan->n_leaving <= KEYED_MAX && plan->top_home <= KEYED_MAX);
	assert(plan->arena_pages <= plan->full_pages && plan->stage_most <= plan->stage_pages);
	assert(plan->inflight_source + plan->inflight_store <= plan->params.inflight_max);
	assert(plan->inflight_adopted <= plan->params.inflight_max);
	assert(plan->n_pinning <= PINS_MAX);
}

bool plan_last_use(const struct plan *plan, struct plan_use *ret)
{
	*ret = plan->last_use;
	return plan->has_last_use;
}

struct unit_id plan_unit_at(const struct plan *plan, uint64_t pass, uint64_t position)
{
	const struct plan_job *first = jobs_first(plan);
	const struct slot *slots[] = { job_cur(first), job_next(first) };

	for (size_t i = 0; i < ARRAY_LEN(slots); i++)
		if (slots[i]->ep && slots[i]->pass == pass && position < slots[i]->length)
			return (struct unit_id){ slots[i]->ep->sample[position] };
	return UNIT_NONE;
}

static uint64_t plan_decide(struct plan *plan, uint64_t now_ns)
{
	uint64_t wake = UINT64_MAX, at;
	struct plan_job *job;

	if (!plan->n)
		return UINT64_MAX;
	plan->work = plan->work_most;
	plan->is_cut = false;
	for (uint32_t i = 0; (job = jobs_next(plan, &i));) {
		at = window_leave(plan, job, now_ns);
		wake = MIN(wake, at);
		if (job->state == PLAN_FINISHED && plan->n_jobs > 1) {
			jobs_leave(plan, job);
			continue;
		}
		at = epochs_step(plan, job, now_ns);
		wake = MIN(wake, at);
	}
	if (plan->n_jobs == 1 && later_step(plan, jobs_first(plan)))
		wake = now_ns;
	usable_step(plan, now_ns);
	at = retain_step(plan, now_ns);
	wake = MIN(wake, at);
	at = stage_step(plan, now_ns);
	wake = MIN(wake, at);
	at = fetch_step(plan, now_ns);
	wake = MIN(wake, at);
	if (pin_step(plan))
		wake = now_ns;
	if (rekey_step(plan))
		wake = now_ns;
	if (retain_lost_step(plan))
		wake = now_ns;
	if (retain_let_go(plan))
		wake = now_ns;
	/* Small ones whole, as a job may change its order in each step. */
	for (uint32_t i = 0; i < (plan->n <= KEY_CHUNK ? BURIED_MOST : 1); i++)
		if (jobs_bury_step(plan))
			wake = now_ns;
	plan_check(plan);
	return plan->is_cut || actions_left(plan) < ACTIONS_MAX / 8 ? now_ns : wake;
}

uint64_t plan_step(struct plan *plan, uint64_t now_ns)
{
	uint64_t wake;

	assert(now_ns >= plan->now_ns);
	plan->now_ns = now_ns;
	wake = plan_decide(plan, now_ns);
	PLAN_TELL(plan, .kind = PLAN_CALL_STEP, .now_ns = now_ns, .wake_ns = wake);
	return wake;
}

bool plan_next_action(struct plan *plan, struct plan_action *ret)
{
	if (!plan->action_count) {
		PLAN_TELL(plan, .kind = PLAN_CALL_NO_ACTION);
		return false;
	}
	*ret = plan->actions[plan->action_head];
	plan->action_head = (plan->action_head + 1) % ACTIONS_MAX;
	plan->action_count--;
	PLAN_TELL(plan, .kind = PLAN_CALL_ACTION, .action = ret);
	return true;
}
