/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Budgets for memory where nobody told any. A mount may take half of the memory that this process
 * may use at all - the machine's, or what the least limit of its cgroups leaves. The other half is
 * for what cannot be known: the job, which may be in the same cgroup, and page cache, through which
 * source and store are read and which is charged to the daemon, too. Of its half come first
 *
 *	tables      of dataset, plan, orders: what is resident when they are made, and a share per
 *sample requests    1 MiB each: a piece for which the arena has no room, and the stack of its
 *thread inodes      1 KiB of kernel memory each: they are charged to the daemon, which looks them
 *up
 *
 * and of the rest twenty parts of 27 are the arena, two its spare (cache_spare_bytes), five the pages
 * pushed ahead (charged to the daemon as well: it is who stores them). 1 GiB at most: more is for who
 * knows what else runs there.
 *
 * Limits of address space and of data count what is reserved, used or not: there the stacks of all
 * threads and malloc's reserve come off, pages pushed and inodes do not count, and of what is left
 * three quarters are the arena's. Nothing is asked again later: that is pressure.c.
 *
 * Of ram, told or not, samples get all as long as what comes with them is a trifle: a sixteenth of
 * it. What grows beyond that - with the dataset the index and tables, with samples held a list of
 * each - comes off, so that a million small samples take no more than what was told. Half of it is
 * theirs in any case.
 */
#include "memlimit.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "clairfs/base/cgroup.h"
#include "clairfs/base/conf.h"
#include "clairfs/base/text.h"
#include "clairfs/cache.h"

#define MIB (1ull << 20)
#define RAM_LEAST (16 * MIB) /* of the option */
#define RAM_MOST (1024 * MIB)
#define INFLIGHT_LEAST 4u
#define INFLIGHT_MOST 64u
#define INODES_LEAST 1024u
#define INODES_MOST 200000u
#define INODE_BYTES 1024u /* of the kernel */
#define SAMPLE_BYTES 128u /* of ours, beyond what is resident before the plan is made */
#define TABLE_BYTES                                                                                \
	72u /* of ours in all, beside the index: the plan, its epochs, the estimate of GPU wait */
#define REQUEST_BYTES MIB
#define OWN_BYTES (16 * MIB) /* buffers and stacks of threads in use, code that is loaded later */
#define OTHER_THREADS 40u    /* all but those of the source */
#define MALLOC_RESERVE (64 * MIB) /* what glibc reserves for an arena of its own */
#define MALLOC_ARENAS 1

static uint64_t sub_or_0(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* --- reading --- */

/* "KEY:  24683924 kB" in a file of /proc. */
static uint64_t read_kib(const char *path, const char *key)
{
	AUTO_FILE FILE *f = fopen(path, "re");
	size_t len = strlen(key);
	char line[256];
	uint64_t kib;

	while (f && fgets(line, sizeof(line), f)) {
		char *value = line + len + 1, *end;

		if (strncmp(line, key, len) != 0 || line[len] != ':')
			continue;
		value += strspn(value, " \t");
		end = value + strcspn(value, " \n");
		*end = 0;
		if (text_to_u64(value, &kib) == 0 && kib < UINT64_MAX / 1024)
			return kib * 1024;
	}
	return MEMLIMIT_NONE;
}

uint64_t memlimit_meminfo(const char *key)
{
	return read_kib("/proc/meminfo", key);
}

uint64_t memlimit_peak(void)
{
	return read_kib("/proc/self/status", "VmHWM");
}

uint64_t memlimit_of_cgroup(const char *dir, const char **ret_name)
{
	static const char *const names[] = { "memory.max", "memory.high", "memory.limit_in_bytes" };
	uint64_t least = MEMLIMIT_NONE, above;

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		uint64_t limit = cgroup_number(dir, names[i]);

		if (limit >= least)
			continue;
		least = limit;
		*ret_name = names[i];
	}
	/* In a container those above cannot be seen, but the first version sums them up. */
	above = cgroup_stat(dir, "memory.stat", "hierarchical_memory_limit");
	if (above < least) {
		least = above;
		*ret_name = "hierarchical_memory_limit in memory.stat";
	}
	return least;
}

uint64_t memlimit_used_in(const char *dir)
{
	static const char *const back[] = { "active_file", "inactive_file", "slab_reclaimable",
					    "total_active_file", "total_inactive_file" };
	uint64_t used = cgroup_number(dir, "memory.current");
	bool is_v2 = used != CGROUP_NONE;

	if (!is_v2)
		used = cgroup_number(dir, "memory.usage_in_bytes");
	if (used == CGROUP_NONE)
		return MEMLIMIT_NONE;
	for (size_t i = is_v2 ? 0 : 3; i < (is_v2 ? 3 : ARRAY_LEN(back)); i++) {
		uint64_t bytes = cgroup_stat(dir, "memory.stat", back[i]);

		if (bytes != CGROUP_NONE)
			used = sub_or_0(used, bytes);
	}
	return used;
}

static void look_at_limit(void *ctx, const char *dir)
{
	struct memlimits *ret = ctx;
	const char *name;
	uint64_t limit = memlimit_of_cgroup(dir, &name);

	if (limit >= ret->cgroup)
		return;
	ret->cgroup = limit;
	snprintf(ret->cgroup_words, sizeof(ret->cgroup_words), "cgroup %s %s of %s",
		 strcmp(name, "memory.max") == 0 || strcmp(name, "memory.high") == 0 ? "v2" : "v1",
		 name, dir);
}

static uint64_t soft_limit(int resource)
{
	struct rlimit lim;

	return getrlimit(resource, &lim) == 0 && lim.rlim_cur != RLIM_INFINITY ? lim.rlim_cur
									       : MEMLIMIT_NONE;
}

/* "size resident shared text lib data dt", in pages. */
static void read_statm(struct memlimits *ret)
{
	AUTO_FILE FILE *f = fopen("/proc/self/statm", "re");
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), field[6] = { 0 };
	char line[256], *save = NULL, *word;

	if (!f || !fgets(line, sizeof(line), f))
		return;
	word = strtok_r(line, " \n", &save);
	for (int i = 0; i < 6 && word; i++, word = strtok_r(NULL, " \n", &save))
		if (text_to_u64(word, &field[i]) < 0 || field[i] > UINT64_MAX / page)
			return;
	ret->as_used = field[0] * page;
	ret->resident = field[1] * page;
	ret->data_used = field[5] * page;
}

void memlimit_read(struct memlimits *ret)
{
	*ret = (struct memlimits){ .machine = memlimit_meminfo("MemTotal"),
				   .cgroup = MEMLIMIT_NONE,
				   .as = soft_limit(RLIMIT_AS),
				   .data = soft_limit(RLIMIT_DATA) };
	cgroup_each(0, "memory", look_at_limit, ret);
	read_statm(ret);
}

void memlimit_prepare(void)
{
	if (soft_limit(RLIMIT_AS) != MEMLIMIT_NONE || soft_limit(RLIMIT_DATA) != MEMLIMIT_NONE)
		(void)mallopt(M_ARENA_MAX, MALLOC_ARENAS);
}

/* --- deriving --- */

/* What is real memory. */
static uint64_t of_memory(uint64_t limit, uint64_t own, const struct memlimit_wish *wish,
			  const struct memlimit_budget *b)
{
	uint64_t inodes = MIN(b->inodes_ahead, wish->n_entries) * INODE_BYTES;
	/* Not all of them at once, however many somebody allows. */
	uint64_t requests = MIN(b->inflight * REQUEST_BYTES, limit / 8);

	/* The arena's spare is a tenth, what is pushed into the kernel a quarter. */
	return sub_or_0(limit / 2, own + requests + inodes) / 27 * 20;
}

/* What is reserved. */
static uint64_t of_reserved(uint64_t limit, uint64_t used, const struct memlimit_wish *wish,
			    const struct memlimit_budget *b)
{
	uint64_t own = used + MALLOC_RESERVE + OWN_BYTES + wish->n_units * SAMPLE_BYTES;
	uint64_t threads = (b->inflight + OTHER_THREADS) * MIB;

	return sub_or_0(limit, own + threads + b->inflight * REQUEST_BYTES) / 4 * 3;
}

struct source {
	uint64_t limit, ram; /* what it leaves */
	const char *words;
};

static const struct source *least_of(const struct source *s, size_t n)
{
	const struct source *least = s;

	for (size_t i = 1; i < n; i++)
		if (s[i].limit != MEMLIMIT_NONE &&
		    (least->limit == MEMLIMIT_NONE || s[i].ram < least->ram))
			least = &s[i];
	return least;
}

/* Numbers of requests and inodes: what costs memory for each, told or not. */
static void derive_counts(const struct memlimits *l, const struct memlimit_wish *wish,
			  struct memlimit_budget *ret)
{
	uint64_t memory = MIN(l->machine, l->cgroup), reserved = MIN(l->as, l->data);
	uint64_t inflight = MIN(memory, reserved) / (16 * MIB);

	ret->inflight = wish->inflight;
	ret->inodes_ahead = wish->inodes_ahead;
	if (wish->inflight == CONF_AUTO)
		ret->inflight = MAX(INFLIGHT_LEAST, MIN(INFLIGHT_MOST, inflight));
	if (wish->inodes_ahead == CONF_AUTO)
		ret->inodes_ahead = MAX(INODES_LEAST, MIN(INODES_MOST, memory / 16 / INODE_BYTES));
}

/* What samples may have of ram. */
static void derive_arena(const struct memlimit_wish *wish, struct memlimit_budget *ret)
{
	uint64_t page = 4096, least = MIN(ret->ram, MAX(ret->ram / 2, RAM_LEAST));
	uint64_t mean = wish->n_units ? wish->sample_bytes / wish->n_units + page / 2 : page;
	uint64_t each = MAX(mean, page) + CACHE_HELD_BYTES, rest;

	ret->tables = wish->index_bytes + wish->n_units * TABLE_BYTES;
	rest = sub_or_0(ret->ram + ret->ram / 16, ret->tables);
	rest -= MIN(wish->n_units, rest / each) * CACHE_HELD_BYTES;
	ret->arena = MAX(MIN(rest, ret->ram), least) / page * page;
}

void memlimit_derive(const struct memlimits *l, const struct memlimit_wish *wish,
		     struct memlimit_budget *ret)
{
	uint64_t own = l->resident + OWN_BYTES + wish->n_units * SAMPLE_BYTES, all;
	const struct source *least;
	bool is_real;

	memset(ret, 0, sizeof(*ret));
	derive_counts(l, wish, ret);
	least = least_of(
		(struct source[]){
			{ l->machine, of_memory(l->machine, own, wish, ret),
			  "memory of the machine" },
			{ l->cgroup, of_memory(l->cgroup, own, wish, ret), l->cgroup_words },
			{ l->as, of_reserved(l->as, l->as_used, wish, ret), "RLIMIT_AS" },
			{ l->data, of_reserved(l->data, l->data_used, wish, ret), "RLIMIT_DATA" },
		},
		4);
	ret->ram = wish->ram;
	if (wish->ram == CONF_AUTO)
		ret->ram = MAX(RAM_LEAST, MIN(RAM_MOST, least->ram)) / MIB * MIB;
	derive_arena(wish, ret);
	ret->stage = wish->stage ? wish->stage : ret->ram / 4;
	ret->limit = least->limit;
	snprintf(ret->from, sizeof(ret->from), "%s",
		 least->limit == MEMLIMIT_NONE ? "no limit is known" : least->words);
	is_real = least->limit == MIN(l->machine, l->cgroup);
	all = ret->ram + cache_spare_bytes(ret->ram);
	ret->is_over = all > sub_or_0(least->limit, own) ||
		       (is_real && ret->stage > sub_or_0(least->limit, own) - all);
}

uint64_t memlimit_need(const struct memlimit_budget *b, uint64_t n_entries)
{
	uint64_t inodes = MIN(b->inodes_ahead, n_entries) * INODE_BYTES;

	return b->ram + cache_spare_bytes(b->ram) + b->stage + b->tables +
	       b->inflight * REQUEST_BYTES + inodes + OWN_BYTES;
}
