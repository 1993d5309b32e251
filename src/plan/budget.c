/* SPDX-License-Identifier: Apache-2.0 */
/* How hard the source is asked. What removes waiting is requests in flight, about twice rate x
 * latency (Little), and more than the source can serve at once only makes everybody's latency
 * longer. So the limit is raised by half as long as that brings more throughput and goes back when
 * it does not; it is lowered while latency says that requests queue and lowering costs no
 * throughput, at once when the source gets much slower, and towards what the job needs. A token
 * bucket caps bytes per second; demand reads are never delayed but use up tokens.
 *
 * Intervals end after enough completions, not after a fixed time, so the controller is as slow as
 * the source is. A try can fail by chance, so while readers wait for fetches and requests do not queue
 * the next one comes sooner, and what they need is more than they take. */
#include "plan_priv.h"

#define LEAST_DONE 16.0
#define LIMIT_FIRST 16u /* any source serves that; and readers that are ahead already are caught up with */
#define CALM_INTERVALS 16u
#define CALM_AWAITED 12u /* what is left of them when the next try comes, while readers wait */
#define FAILURES_BEFORE_PAUSE 8u
#define RATE_NS (50 * NS_PER_MS)

void budget_init(struct plan *plan)
{
	struct budget *b = &plan->budget;

	b->limit = MIN(MAX(plan->params.inflight_min, LIMIT_FIRST), plan->params.inflight_max);
	b->tokens = (double)plan->params.source_bytes_per_s / 4;
}

uint32_t budget_limit(const struct plan *plan)
{
	return (uint32_t)plan->budget.limit;
}

static void budget_pace_read(struct pace *p, uint64_t now_ns)
{
	uint64_t passed = now_ns - p->since_ns;
	double rate;

	p->reads++;
	if (passed < RATE_NS)
		return;
	if (passed < NS_PER_S || p->reads > 16) {
		rate = (double)p->reads * (double)NS_PER_S / (double)passed;
		p->rate = p->rate ? p->rate + (rate - p->rate) * 0.3 : rate;
	}
	p->reads = 0;
	p->since_ns = now_ns;
}

/* The job has read what it had not read before. */
void budget_read(struct plan *plan, struct plan_job *job, uint64_t now_ns)
{
	budget_pace_read(&job->pace, now_ns);
	budget_pace_read(&plan->budget.pace, now_ns);
}

static void budget_clamp(struct plan *plan)
{
	struct budget *b = &plan->budget;

	b->limit = MAX(b->limit, (double)plan->params.inflight_min);
	b->limit = MIN(b->limit, (double)plan->params.inflight_max);
}

/* At rest: watches, and once in a while tries a quarter more, or a little less when latency says
 * that requests queue. */
static void budget_rest(struct budget *b, double done_rate, double latency_ns)
{
	if (b->best_rate && latency_ns > 3 * b->base_ns && done_rate < 0.6 * b->best_rate) {
		b->limit = b->limit * 3 / 4; /* somebody else needs the source */
		b->best_rate = done_rate;
		b->calm = CALM_INTERVALS / 4;
		return;
	}
	b->best_limit = b->limit;
	b->best_rate = b->best_rate ? b->best_rate + (done_rate - b->best_rate) * 0.3 : done_rate;
	if (b->calm > (b->is_awaited && latency_ns <= 2 * b->base_ns ? CALM_AWAITED : 0)) {
		b->calm--;
	} else if (latency_ns > 2 * b->base_ns) {
		b->probe = -1;
		b->limit -= b->limit / 8;
	} else {
		b->probe = 1;
		b->limit += MAX(b->limit / 2, 1);
	}
}

static void budget_adapt(struct plan *plan, double done_rate, double latency_ns)
{
	struct budget *b = &plan->budget;
	double need = 2 * b->pace.rate * latency_ns / (double)NS_PER_S;

	b->base_ns = b->base_ns ? MIN(b->base_ns * 1.002, latency_ns) : latency_ns;
	if (!b->is_full) {
		if (b->pace.rate && b->limit > need &&
		    (!b->is_awaited || latency_ns > 2 * b->base_ns))
			b->limit -= b->limit / 8;
		b->probe = 0;
	} else if (b->probe > 0) {
		if (done_rate >= b->best_rate * (1 + 0.3 * (b->limit / b->best_limit - 1))) {
			b->best_limit = b->limit;
			b->best_rate = done_rate;
			b->limit += MAX(b->limit / 2, 1);
		} else {
			b->limit = b->best_limit;
			b->probe = 0;
			b->calm = CALM_INTERVALS;
		}
	} else if (b->probe < 0) {
		b->probe = 0;
		if (done_rate < b->best_rate * 0.97) {
			b->limit = b->best_limit; /* it is the source that is slow, not a queue */
			b->base_ns = latency_ns;
			b->calm = CALM_INTERVALS;
		}
	} else {
		budget_rest(b, done_rate, latency_ns);
	}
	budget_clamp(plan);
}

void budget_fetched(struct plan *plan, uint64_t now_ns, uint64_t latency_ns, int status)
{
	struct budget *b = &plan->budget;
	double l = (double)latency_ns, away;

	if (fetch_is_transient(status) || status == PLAN_HELD_OUT)
		return; /* says nothing about the source */
	if (status < 0) {
		if (++b->failures >= FAILURES_BEFORE_PAUSE)
			b->not_before_ns =
				now_ns +
				(10 * NS_PER_MS << MIN(b->failures - FAILURES_BEFORE_PAUSE, 6));
		return;
	}
	b->failures = 0;
	away = l > b->latency_ns ? l - b->latency_ns : b->latency_ns - l;
	if (!b->latency_ns) {
		b->latency_ns = l;
		b->deviation_ns = l / 2;
	} else {
		b->latency_ns += (l - b->latency_ns) / 16;
		b->deviation_ns += (away - b->deviation_ns) / 16;
	}
	if (!b->done++)
		b->since_ns = now_ns;
	else
		b->done_ns += latency_ns;
	if ((double)b->done <= MAX(LEAST_DONE, 2 * b->limit) || now_ns == b->since_ns)
		return;
	budget_adapt(plan,
		     (double)(b->done - 1) * (double)NS_PER_S / (double)(now_ns - b->since_ns),
		     (double)b->done_ns / (double)(b->done - 1));
	b->done = b->done_ns = 0;
	b->is_full = b->is_awaited = false;
}

static void budget_refill(struct plan *plan, uint64_t now_ns)
{
	struct budget *b = &plan->budget;
	double per_s = (double)plan->params.source_bytes_per_s;
	double most = MAX(per_s / 4, (double)(plan->largest * PAGE_BYTES));

	b->tokens =
		MIN(b->tokens + (double)(now_ns - b->tokens_ns) * per_s / (double)NS_PER_S, most);
	b->tokens_ns = now_ns;
}

void budget_demand(struct plan *plan, uint64_t now_ns, uint64_t bytes)
{
	double per_s = (double)plan->params.source_bytes_per_s;

	budget_refill(plan, now_ns);
	/* At most two seconds in debt: prefetching must come back. */
	plan->budget.tokens = MAX(plan->budget.tokens - (double)bytes, -2 * per_s);
}

bool budget_allows(struct plan *plan, uint64_t now_ns, uint64_t bytes, uint64_t *wake_ns)
{
	struct budget *b = &plan->budget;
	uint64_t at;

	if (plan->inflight_source + plan->inflight_store >= plan->params.inflight_max)
		return false;
	if (plan->inflight_source >= budget_limit(plan)) {
		b->is_full = true;
		return false;
	}
	if (now_ns < b->not_before_ns) {
		*wake_ns = MIN(*wake_ns, b->not_before_ns);
		return false;
	}
	if (!plan->params.source_bytes_per_s)
		return true;
	budget_refill(plan, now_ns);
	if (b->tokens >= (double)bytes)
		return true;
	at = now_ns + 1 +
	     (uint64_t)(((double)bytes - b->tokens) * (double)NS_PER_S /
			(double)plan->params.source_bytes_per_s);
	*wake_ns = MIN(*wake_ns, at);
	return false;
}

void budget_spend(struct plan *plan, uint64_t bytes)
{
	if (plan->params.source_bytes_per_s)
		plan->budget.tokens -= (double)bytes;
}
