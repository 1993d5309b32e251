/* SPDX-License-Identifier: Apache-2.0 */
/* What the accounting hears of the machine: how busy the CPUs are and whether tasks of the job wait
 * for one, how many the job may use, and what the page cache had and keeps of the source. Once a
 * second, on the thread cl-stall; reads of /proc and cgroups only, which do not hang. */
#include <string.h>

#include "accounting_priv.h"
#include "clairfs/base/clock.h"
#include "clairfs/dataset.h"
#include "cgroup.h"
#include "crowd.h"

static void feed_job_cpus(struct stall *s, pid_t reader)
{
	uint32_t cpus = reader ? cpus_of(reader) : 0;

	if (cpus)
		stall_set_cpus(s, cpus);
}

static void feed_cpus(struct stall *s, uint64_t now_ns)
{
	AUTO_FILE FILE *f = fopen("/proc/stat", "re");
	uint64_t busy_ns;

	if (cpus_busy(f, &busy_ns))
		stall_cpu(s, now_ns, busy_ns);
}

/* Of the cgroup of who read last. Readers are gone when their epoch is, before it is judged: what was
 * told of their cgroup goes on. Where another one takes over, the sum goes on from where it was. */
static void feed_crowd(struct accounting_machine *m, struct stall *s, pid_t reader, uint64_t now_ns)
{
	uint64_t us = m->whose[0] ? crowd_sum_in(m->whose) : CGROUP_NONE;
	char whose[sizeof(m->whose)];

	if (us != CGROUP_NONE)
		m->waited_ns = us * 1000 + m->offset_ns;
	else
		m->whose[0] = 0; /* the cgroup is gone, or this is the first time */
	if (!reader || !crowd_file_of(reader, whose, sizeof(whose)))
		snprintf(whose, sizeof(whose), "%s", m->whose[0] ? m->whose : CROWD_MACHINE);
	if (strcmp(whose, m->whose) != 0) {
		us = crowd_sum_in(whose);
		memcpy(m->whose, whose, strlen(whose) + 1);
		m->offset_ns = m->waited_ns - us * 1000; /* may wrap around, and back */
	}
	if (us != CGROUP_NONE)
		stall_crowd(s, now_ns, m->waited_ns);
}

/* splitmix64 */
static double chance(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return (double)((x ^ x >> 31) >> 11) / 9007199254740992.0;
}

/* Which samples the page cache has is not known, but how many. */
static void feed_warm(struct accounting_machine *m, struct stall *s)
{
	for (uint32_t i = 0; i < dataset_n_samples(m->dataset); i++)
		if (chance(i) < m->pages.warm_share)
			stall_had_pages(s, i, dataset_size(m->dataset, (struct entry_id){ i }));
}

/* Before what was read is fed: of the page cache as it was then. */
static bool feed_pages(struct accounting_machine *m, struct stall *s)
{
	struct stall_node node;

	if (!m->asked || !source_pages_look(m->asked, &m->pages))
		return false;
	source_pages_put(TAKE(m->asked));
	stall_get_node(s, &node);
	stall_set_pages(s, m->pages.pages);
	if (m->pages.pages != STALL_PAGES_NOT_KEPT && !node.reads)
		feed_warm(m, s);
	return true;
}

bool accounting_machine_feed(struct accounting_machine *m, struct stall *s, pid_t reader,
			     uint64_t now_ns)
{
	bool has_pages = feed_pages(m, s);

	feed_cpus(s, now_ns);
	feed_crowd(m, s, reader, now_ns);
	feed_job_cpus(s, reader);
	return has_pages;
}
