/* SPDX-License-Identifier: Apache-2.0 */
/* What the accounting hears of the machine: how busy the CPUs are and whether tasks of the job wait
 * for one, how many the job may use, and what the page cache had and keeps of the source. Once a
 * second, on the thread cl-stall; reads of /proc and cgroups only, which do not hang. */
#include <assert.h>
#include <string.h>

#include "clairfs/base/cgroup.h"
#include "clairfs/base/clock.h"
#include "clairfs/base/cpus.h"
#include "clairfs/base/crowd.h"
#include "clairfs/dataset.h"
#include "clairfs/dataset/units.h"
#include "machine.h"
#include "mix.h"

#define UNSEEN_NS (60 * NS_PER_S)

static void feed_cpus(struct stall *s, uint64_t now_ns)
{
	AUTO_FILE FILE *f = fopen("/proc/stat", "re");
	uint64_t busy_ns;

	if (cpus_busy(f, &busy_ns))
		stall_cpu(s, now_ns, busy_ns);
}

static void crowds_remove(struct crowds *c, uint32_t i)
{
	assert(i < c->n);
	c->source[i] = c->source[--c->n];
}

static void crowds_age(struct crowds *c, uint64_t now_ns)
{
	for (uint32_t i = c->n; i-- > 0;)
		if (now_ns - c->source[i].seen_ns >= UNSEEN_NS ||
		    strcmp(c->source[i].file, CROWD_MACHINE) == 0)
			crowds_remove(c, i);
}

void crowds_add(struct crowds *c, const char *file, uint64_t now_ns)
{
	struct crowd_source *s;
	uint64_t us;

	for (uint32_t i = 0; i < c->n; i++)
		if (strcmp(c->source[i].file, file) == 0) {
			c->source[i].seen_ns = now_ns;
			return;
		}
	us = crowd_sum_in(file);
	if (us == CGROUP_NONE)
		return;
	crowds_age(c, now_ns);
	if (c->n == CROWDS_MAX)
		return;
	assert(c->n < CROWDS_MAX);
	s = &c->source[c->n++];
	s->us = us;
	s->seen_ns = now_ns;
	snprintf(s->file, sizeof(s->file), "%s", file);
}

void crowds_look(struct crowds *c)
{
	uint64_t most = 0;

	for (uint32_t i = c->n; i-- > 0;) {
		uint64_t us = crowd_sum_in(c->source[i].file);

		if (us == CGROUP_NONE) {
			crowds_remove(c, i);
			continue;
		}
		if (us > c->source[i].us)
			most = MAX(most, us - c->source[i].us);
		c->source[i].us = us;
	}
	c->waited_ns += most * 1000;
}

/* Readers are gone when their epoch is, before it is judged: what was told of their cgroups goes on.
 * Whoever else reads through this mount says nothing of the job. */
static void feed_crowd(struct machine *m, struct stall *s, uint64_t now_ns)
{
	char file[sizeof(m->crowds.source[0].file)];

	crowds_look(&m->crowds);
	for (uint32_t i = 0; i < CROWD_READERS; i++)
		if (m->reader[i] && crowd_file_of(m->reader[i], file, sizeof(file)))
			crowds_add(&m->crowds, file, now_ns);
	if (!m->crowds.n)
		crowds_add(&m->crowds, CROWD_MACHINE, now_ns);
	if (m->crowds.n)
		stall_crowd(s, now_ns, m->crowds.waited_ns);
}

static void feed_job_cpus(const struct machine *m, struct stall *s)
{
	uint32_t cpus = 0;

	for (uint32_t i = 0; i < CROWD_READERS && !cpus; i++)
		cpus = m->reader[i] ? cpus_of(m->reader[i]) : 0;
	if (cpus)
		stall_set_cpus(s, cpus);
}

/* Which units the page cache has is not known, but how many. Of those that records may become nothing is
 * there yet. */
static void feed_warm(struct machine *m, struct stall *s)
{
	for (uint32_t i = 0; i < dataset_n_file_units(m->dataset); i++)
		if (mix_share(mix_bits(i)) < m->pages.warm_share)
			stall_had_pages(s, (struct unit_id){ i },
					dataset_unit_bytes(m->dataset, (struct unit_id){ i }));
}

/* Of the page cache as it was before. */
bool machine_pages(struct machine *m, struct stall *s)
{
	struct stall_node node;

	memset(m->reader, 0, sizeof(m->reader));
	if (!m->asked || !source_pages_look(m->asked, &m->pages))
		return false;
	source_pages_put(TAKE(m->asked));
	stall_get_node(s, &node);
	stall_set_pages(s, m->pages.pages);
	if (m->pages.pages != STALL_PAGES_NOT_KEPT && !node.reads)
		feed_warm(m, s);
	return true;
}

void machine_saw(struct machine *m, uint32_t rank_index, uint32_t reader)
{
	if (reader)
		m->reader[rank_index % CROWD_READERS] = (pid_t)reader;
}

void machine_feed(struct machine *m, struct stall *s, uint64_t now_ns)
{
	feed_cpus(s, now_ns);
	feed_crowd(m, s, now_ns);
	feed_job_cpus(m, s);
}
