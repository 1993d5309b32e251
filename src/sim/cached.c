/* SPDX-License-Identifier: Apache-2.0 */
/* The driver of every policy but clairfs: one cache as large as memory and store together, at the
 * speed of memory, which flatters them. Samples in it are *kept* (the policy says which and who
 * leaves) or *fresh* (prefetched and not read yet; never leave). Reads of what is missing go to the
 * source; what was read is offered to the policy.
 *
 * With a window, each job's next `window` samples are prefetched in order, `inflight` at once, over
 * the end of the epoch. Workers read several batches at once, so what was read is a bitmap and the
 * window begins at its first hole: a cursor alone would fetch again what was read ahead of it. */
#include "cached.h"

#include <errno.h>

static struct cached *cached_of(const struct model *m)
{
	return m->state;
}

static uint64_t size_of(const struct model *m, uint32_t sample)
{
	return setup_size(m->run->s, sample);
}

static int cached_init(struct model *m, struct err *err)
{
	const struct sim_setup *s = m->run->s;
	struct cached *c = calloc(1, sizeof(*c));
	uint64_t mean = MAX(s->total / s->n, 1);

	m->state = c;
	if (!c)
		return -ENOMEM;
	m->capacity = s->cache_bytes + s->store_bytes;
	c->line = calloc(m->run->n_jobs, sizeof(*c->line));
	if (!c->line)
		return -ENOMEM;
	c->window = m->ops->is_ahead ? s->p.window : 0;
	if (m->ops->is_reserving)
		c->reserved = MIN(MAX(c->window * mean, c->window ? s->largest : 0), m->capacity);
	return m->ops->init ? m->ops->init(m, err) : 0;
}

static void cached_fini(struct model *m)
{
	struct cached *c = cached_of(m);

	if (m->ops->fini)
		m->ops->fini(m);
	for (uint32_t j = 0; c && c->line && j < m->run->n_jobs; j++)
		bitmap_fini(&c->line[j].consumed);
	free(c ? c->line : NULL);
	free(c);
}

static void cached_evict(struct model *m, uint32_t sample)
{
	struct cached *c = cached_of(m);

	assert((m->where[sample] & (IN_CACHE | FRESH)) == IN_CACHE);
	m->where[sample] = 0;
	c->kept -= size_of(m, sample);
	if (m->ops->drop)
		m->ops->drop(m, sample);
}

static bool cached_make_room(struct model *m, uint64_t bytes, uint64_t due)
{
	struct cached *c = cached_of(m);

	if (bytes > m->capacity)
		return false;
	while (c->kept + c->fresh + bytes > m->capacity) {
		uint32_t victim = m->ops->victim ? m->ops->victim(m, due) : NONE;

		if (victim == NONE)
			return false;
		cached_evict(m, victim);
	}
	return true;
}

/* Offers what was just read; is_fresh: it has its room already. */
static void cached_offer(struct model *m, uint32_t sample, bool is_fresh)
{
	struct cached *c = cached_of(m);
	uint64_t size = size_of(m, sample);
	uint64_t due = m->ops->next_due ? m->ops->next_due(m, sample) : 0;
	bool is_wanted = !m->ops->wants || m->ops->wants(m, sample);

	m->where[sample] = 0;
	if (is_fresh)
		c->fresh -= size;
	if (is_wanted && c->reserved)
		is_wanted = c->kept + size <= m->capacity - c->reserved;
	if (!is_wanted || !cached_make_room(m, size, due))
		return;
	m->where[sample] = IN_CACHE;
	c->kept += size;
	if (m->ops->keep)
		m->ops->keep(m, sample);
}

static void cached_prefetch(struct model *m, uint32_t job);
static void cached_pump(struct model *m)
{
	if (!cached_of(m)->window)
		return;
	for (uint32_t j = 0; j < m->run->n_jobs; j++)
		if (m->run->job[j].model == m && m->run->job[j].ep && !m->run->job[j].is_over)
			cached_prefetch(m, j);
}

/* False: no room for it now. */
static bool cached_ask(struct model *m, uint32_t job, uint64_t pos, uint32_t sample)
{
	struct cached *c = cached_of(m);
	uint64_t due = m->ops->due ? m->ops->due(m, job, pos) : 0;
	uint32_t req;

	if (!cached_make_room(m, size_of(m, sample), due))
		return false;
	req = run_request(m, job, sample, REQ_AHEAD, false);
	if (req == NONE)
		return false;
	c->fresh += size_of(m, sample);
	c->inflight++;
	m->where[sample] = FETCHING | req << WHERE_SHIFT;
	return true;
}

static void cached_prefetch(struct model *m, uint32_t j)
{
	struct cached *c = cached_of(m);
	struct job *job = &m->run->job[j];
	struct line *line = &c->line[j];
	uint64_t length = job->ep->length, low = line->low, end;

	end = MIN(low + c->window, length + (job->next ? job->next->length : 0));
	line->cursor = MAX(line->cursor, low);
	for (; line->cursor < end && c->inflight < m->run->s->p.inflight; line->cursor++) {
		uint64_t pos = line->cursor;
		uint32_t sample =
			pos < length ? job->ep->sample[pos] : job->next->sample[pos - length];

		if (pos < length && bitmap_get(&line->consumed, pos))
			continue;
		if (m->where[sample] & (IN_CACHE | FETCHING))
			continue;
		if (!cached_ask(m, j, pos, sample))
			break;
	}
}

static void cached_begin(struct model *m, uint32_t j)
{
	struct cached *c = cached_of(m);
	const struct job *job = &m->run->job[j];
	struct line *line = &c->line[j];

	line->cursor = line->cursor > line->length ? line->cursor - line->length : 0;
	line->length = job->ep->length;
	line->low = job->start;
	bitmap_fini(&line->consumed);
	if (bitmap_init(&line->consumed, line->length) < 0)
		run_fail(m->run, -ENOMEM);
	else
		cached_pump(m);
}

static void cached_consume(struct model *m, uint32_t j, uint64_t pos)
{
	struct line *line = &cached_of(m)->line[j];

	bitmap_set(&line->consumed, pos);
	if (pos == line->low)
		line->low = bitmap_next_clear(&line->consumed, pos);
}

static struct answer cached_serve(struct model *m, uint32_t job, uint32_t sample)
{
	struct sim_epoch *count = run_epoch(m->run, job);
	uint32_t where = m->where[sample];

	if (where & IN_CACHE) {
		count->read_class[SIM_CACHE]++;
		if (where & FRESH)
			cached_offer(m, sample, true);
		else if (m->ops->used)
			m->ops->used(m, sample);
		return (struct answer){ m->run->hit_ns, NONE };
	}
	if (where & FETCHING) {
		count->read_class[SIM_LATE]++;
		m->run->request[where_request(where)].is_opened = true;
		return (struct answer){ 0, where_request(where) };
	}
	count->read_class[SIM_MISS]++;
	return (struct answer){ 0, run_request(m, job, sample, REQ_DEMAND, false) };
}

static struct answer cached_read(struct model *m, uint32_t job, uint64_t pos, uint32_t sample)
{
	struct answer answer;

	if (m->ops->read)
		m->ops->read(m, job, pos, sample);
	cached_consume(m, job, pos);
	answer = cached_serve(m, job, sample);
	cached_pump(m);
	return answer;
}

static void cached_done(struct model *m, uint32_t request)
{
	const struct request *req = &m->run->request[request];
	struct cached *c = cached_of(m);
	uint32_t sample = req->sample;

	if (req->kind == REQ_AHEAD) {
		c->inflight--;
		m->where[sample] = IN_CACHE | FRESH;
		if (req->is_opened)
			cached_offer(m, sample, true);
	} else if (!(m->where[sample] & (IN_CACHE | FETCHING))) {
		cached_offer(m, sample, false);
	}
	run_wake(m->run, request, m->run->hit_ns);
	cached_pump(m);
}

const struct driver_ops cached_driver = { .init = cached_init,
					  .fini = cached_fini,
					  .begin = cached_begin,
					  .read = cached_read,
					  .done = cached_done };
