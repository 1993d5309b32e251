/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says of cgroups and limits, the budgets that are made of it, and how much of a
 * budget is left while memory is short. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "clairfs/base/conf.h"
#include "clairfs/base/cgroup.h"
#include "src/daemon/memlimit.h"
#include "src/daemon/pressure.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)

static const char *path_in(const char *text, const char *controller)
{
	static char path[PATH_MAX];

	return cgroup_path(text, strlen(text), controller, path) ? path : "none";
}

static void path_of_a_cgroup_is_found(void)
{
	static const char hybrid[] = "9:name=systemd:/s\n4:cpu,memory:/a/b\n0::/u/v\n";

	CHECK_STR(path_in(hybrid, "memory"), "/a/b");
	CHECK_STR(path_in(hybrid, "cpu"), "/a/b");
	CHECK_STR(path_in(hybrid, NULL), "/u/v");
	CHECK_STR(path_in(hybrid, "mem"), "none");
	CHECK_STR(path_in("0::/a:b", NULL), "/a:b"); /* colons and no end of line */
	CHECK_STR(path_in("0::/\n", NULL), "/");
	CHECK_STR(path_in("0::\n0:", NULL), "none");
	CHECK_STR(path_in("1::/x\n", NULL), "none");
	CHECK_STR(path_in("", NULL), "none");
}

/* The directory of `path` by what is mounted. */
static const char *dir_in(const char *mounts, const char *controller, const char *path)
{
	static struct cgroup_mount m;
	static char dir[PATH_MAX];

	if (!cgroup_find_mount(mounts, strlen(mounts), controller, path, &m))
		return "none";
	return cgroup_dir(&m, path, dir) ? dir : "too long";
}

static void directory_of_a_cgroup_is_found(void)
{
	static const char v1[] = "31 23 0:28 / /sys rw - tmpfs tmpfs rw\n"
				 "35 31 0:32 / /sys/m rw shared:3 master:1 - cgroup c rw,memory\n"
				 "36 31 0:33 / /sys/c rw - cgroup c rw,cpu,cpuacct\n";
	static const char v2[] = "41 31 0:38 / /sys\\040fs rw - cgroup2 c rw,memory_recursiveprot";

	CHECK_STR(dir_in(v1, "memory", "/a/b"), "/sys/m/a/b");
	CHECK_STR(dir_in(v1, "memory", "/"), "/sys/m");
	CHECK_STR(dir_in(v1, "cpu", "/x"), "/sys/c/x");
	CHECK_STR(dir_in(v1, NULL, "/x"), "none");
	CHECK_STR(dir_in(v2, NULL, "/a"), "/sys fs/a");
	CHECK_STR(dir_in(v2, "memory", "/a"), "none"); /* an option of the second version */
	CHECK_STR(dir_in("1 2 3:4 / /x", NULL, "/a"), "none");
	CHECK_STR(dir_in("1 2 3:4 / /x rw - cgroup2", NULL, "/a"), "none");
}

static void containers_see_a_part(void)
{
	static const char part[] = "35 31 0:32 /docker/7 /cg rw - cgroup c rw,memory\n";
	static const char both[] = "35 31 0:32 /docker/7 /part rw - cgroup c rw,memory\n"
				   "36 31 0:32 / /all rw - cgroup c rw,memory\n";

	CHECK_STR(dir_in(part, "memory", "/docker/7"), "/cg");
	CHECK_STR(dir_in(part, "memory", "/docker/7/job"), "/cg/job");
	CHECK_STR(dir_in(part, "memory", "/docker/70"), "/cg"); /* another one's */
	CHECK_STR(dir_in(part, "memory", "/../../x"), "/cg");   /* above the namespace */
	CHECK_STR(dir_in(both, "memory", "/docker/7/job"), "/all/docker/7/job");
}

static uint64_t value_in(const char *text, const char *key)
{
	return cgroup_value(text, strlen(text), key);
}

static void values_are_whole_numbers(void)
{
	CHECK_U64(value_in("low 0\nhigh 17\nmax 3\n", "high"), 17);
	CHECK_U64(value_in("highest 1\nhigh 2", "high"), 2);
	CHECK(value_in("high\nhigh -1\n", "high") == CGROUP_NONE);
	CHECK(value_in("high 18446744073709551616\n", "high") == CGROUP_NONE);
	CHECK(value_in("high 12 34\n", "high") == CGROUP_NONE);
	CHECK(value_in("", "high") == CGROUP_NONE);
}

static uint32_t stalled_in(const char *text)
{
	return cgroup_stalled(text, strlen(text));
}

static void average_of_stalls_is_read(void)
{
	CHECK_U64(stalled_in("some avg10=12.34 avg60=0.00 avg300=0.00 total=7\nfull avg10=9.00 x"),
		  1234);
	CHECK_U64(stalled_in("full avg10=9.00\n"), 0);
	CHECK_U64(stalled_in("some avg10=100.00 \n"), 10000);
	CHECK_U64(stalled_in("some avg10=101.00 \nsome avg10="), 0);
	CHECK_U64(stalled_in("some avg10=100.01 \n"), 0);
	CHECK_U64(stalled_in("some avg10=5"), 0);
}

static void write_text(const char *dir, const char *name, const char *text)
{
	char path[PATH_MAX];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "we");
	CHECK(f != NULL);
	fputs(text, f);
	CHECK_INT(fclose(f), 0);
}

/* Files as both versions have them, in a directory of our own. */
static void limits_of_both_versions_are_read(void)
{
	char one[] = "/tmp/clairfs-memlimit-XXXXXX", two[] = "/tmp/clairfs-memlimit-XXXXXX";
	char command[200];
	const char *name = "";

	CHECK(mkdtemp(one) && mkdtemp(two));
	CHECK(memlimit_of_cgroup(one, &name) == MEMLIMIT_NONE);
	CHECK(memlimit_used_in(one) == MEMLIMIT_NONE);
	write_text(one, "memory.limit_in_bytes", "9223372036854771712\n");
	write_text(one, "memory.usage_in_bytes", "1000\n");
	write_text(one, "memory.stat",
		   "active_file 1\ntotal_active_file 100\n"
		   "total_inactive_file 50\nhierarchical_memory_limit 4096\n");
	CHECK_U64(memlimit_of_cgroup(one, &name), 4096);
	CHECK_CONTAINS(name, "memory.stat");
	CHECK_U64(memlimit_used_in(one), 850);
	write_text(two, "memory.max", "max\n");
	write_text(two, "memory.high", "8192\n");
	write_text(two, "memory.current", "2000\n");
	write_text(two, "memory.stat",
		   "anon 5\nactive_file 1\ninactive_file 2\n"
		   "slab_reclaimable 3000\n");
	CHECK_U64(memlimit_of_cgroup(two, &name), 8192);
	CHECK_STR(name, "memory.high");
	CHECK_U64(memlimit_used_in(two), 0); /* counted at different moments: never below nothing */
	snprintf(command, sizeof(command), "rm -r %s %s", one, two);
	CHECK_INT(system(command), 0);
}

static void this_process_is_under_some_limit(void)
{
	struct memlimits l;

	memlimit_read(&l);
	CHECK(l.machine > 64 * MIB && l.machine != MEMLIMIT_NONE);
	CHECK(l.resident > 0 && l.as_used >= l.resident && l.data_used > 0);
	CHECK(memlimit_meminfo("MemAvailable") <= l.machine);
	CHECK(memlimit_meminfo("Mem") == MEMLIMIT_NONE);
}

/* --- budgets --- */

static const struct memlimits large = { .machine = 64 * GIB,
					.cgroup = MEMLIMIT_NONE,
					.as = MEMLIMIT_NONE,
					.data = MEMLIMIT_NONE,
					.resident = 10 * MIB,
					.as_used = 40 * MIB,
					.data_used = 20 * MIB };
static const struct memlimit_wish nothing_told = { .ram = CONF_AUTO,
						   .inflight = CONF_AUTO,
						   .inodes_ahead = CONF_AUTO,
						   .n_units = 1000,
						   .n_entries = 1100 };

static struct memlimit_budget derive(struct memlimits l, struct memlimit_wish wish)
{
	struct memlimit_budget b;

	snprintf(l.cgroup_words, sizeof(l.cgroup_words), "cgroup");
	memlimit_derive(&l, &wish, &b);
	return b;
}

static void a_large_machine_gets_a_gibibyte(void)
{
	struct memlimit_budget b = derive(large, nothing_told);

	CHECK_U64(b.ram, GIB);
	CHECK_U64(b.stage, GIB / 4);
	CHECK_U64(b.inflight, 64);
	CHECK_U64(b.inodes_ahead, 200000);
	CHECK_U64(b.limit, 64 * GIB);
	CHECK_CONTAINS(b.from, "machine");
	CHECK(!b.is_over);
}

/* What comes with the samples is part of what was told, where it is no trifle. */
static void small_samples_leave_room_for_their_tables(void)
{
	struct memlimit_wish wish = { .ram = GIB,
				      .inflight = 64,
				      .inodes_ahead = 200000,
				      .n_units = 4000,
				      .n_entries = 4000,
				      .sample_bytes = 4000ull * 112640,
				      .index_bytes = 4000 * 70 };
	struct memlimit_budget b = derive(large, wish);

	CHECK_U64(b.arena, GIB); /* 110 KiB each: nothing is taken off */
	wish.n_units = wish.n_entries = 1281167;
	wish.sample_bytes = wish.n_units * 112640;
	wish.index_bytes = wish.n_units * 70;
	b = derive(large, wish);
	CHECK(b.arena < GIB && b.arena + b.tables <= GIB + GIB / 16);
	wish.sample_bytes = wish.n_units * 1024;
	b = derive(large, wish);
	CHECK(b.tables > 128 * MIB && b.arena > GIB / 2);
	CHECK(b.arena + b.tables + b.arena / 4608 * 512 <= GIB + GIB / 16);
	wish.ram = 64 * MIB; /* too little for the tables alone: half of it are samples all the same */
	b = derive(large, wish);
	CHECK_U64(b.arena, 32 * MIB);
	wish.ram = 16 * MIB;
	b = derive(large, wish);
	CHECK_U64(b.arena, 16 * MIB);
}

/* All that is derived from a limit, with what the daemon needs itself, is at most half of it. */
static void all_together_is_half_of_the_limit(void)
{
	static const uint64_t limits[] = { 192 * MIB, 256 * MIB, 400 * MIB, GIB, 2 * GIB, 3 * GIB };

	for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
		struct memlimits l = large;
		struct memlimit_budget b;

		l.cgroup = limits[i];
		b = derive(l, nothing_told);
		CHECK_U64(b.limit, limits[i]);
		CHECK_STR(b.from, "cgroup");
		CHECK(b.ram >= 16 * MIB && b.ram <= GIB && !b.is_over);
		CHECK(b.ram + b.stage + l.resident + b.inflight * MIB <= limits[i] / 2);
		CHECK(b.inodes_ahead * 1024 <= limits[i] / 16);
		if (i > 0)
			CHECK(b.ram > limits[i] / 8); /* and not much less */
	}
}

/* What a cgroup made for a mount gets: all that its budget may take, and half as much again is not in it. */
static void need_of_a_mount_covers_its_budget(void)
{
	struct memlimit_wish wish = { .ram = GIB,
				      .inflight = 64,
				      .inodes_ahead = 200000,
				      .n_units = 1281167,
				      .n_entries = 1300000,
				      .sample_bytes = 1281167ull * 112640,
				      .index_bytes = 1281167 * 70 };
	struct memlimit_budget b = derive(large, wish);
	uint64_t need = memlimit_need(&b, wish.n_entries), parts;

	parts = b.ram + b.ram / 10 + b.stage + b.tables + 64 * MIB + 200000 * 1024;
	CHECK(need >= parts && need <= parts + parts / 8);
	wish.n_units = wish.n_entries = 4000;
	wish.index_bytes = 4000 * 70;
	b = derive(large, wish);
	CHECK(memlimit_need(&b, wish.n_entries) < need - 300 * MIB);
}

static void least_limit_counts(void)
{
	struct memlimits l = large;
	struct memlimit_budget b;

	l.cgroup = 9223372036854771712ull; /* how the first version says none */
	b = derive(l, nothing_told);
	CHECK_U64(b.ram, GIB);
	CHECK_CONTAINS(b.from, "machine");
	l.cgroup = GIB;
	l.as = 400 * MIB;
	b = derive(l, nothing_told);
	CHECK_STR(b.from, "RLIMIT_AS");
	CHECK_U64(b.limit, 400 * MIB);
	CHECK(b.ram > 64 * MIB && b.ram < 200 * MIB && b.inflight == 25);
	CHECK_U64(b.inodes_ahead, GIB / 16 / 1024); /* no address space of ours */
	l.data = 300 * MIB;
	CHECK_STR(derive(l, nothing_told).from, "RLIMIT_DATA");
	l.machine = 256 * MIB;
	l.as = l.data = l.cgroup = MEMLIMIT_NONE;
	CHECK_CONTAINS(derive(l, nothing_told).from, "machine");
	l.machine = MEMLIMIT_NONE;
	b = derive(l, nothing_told);
	CHECK(b.ram == GIB && b.inflight == 64 && !b.is_over);
	CHECK_CONTAINS(b.from, "no limit");
}

static void tables_of_large_datasets_come_first(void)
{
	struct memlimit_wish wish = nothing_told;
	struct memlimits l = large;
	uint64_t before;

	l.cgroup = GIB;
	before = derive(l, wish).ram;
	wish.n_units = wish.n_entries = 1000000;
	CHECK(derive(l, wish).ram + 128 * 1000000ull / 2 < before);
}

static void least_budget_is_what_the_option_allows(void)
{
	struct memlimits l = large;
	struct memlimit_budget b;

	l.cgroup = 32 * MIB;
	b = derive(l, nothing_told);
	CHECK_U64(b.ram, 16 * MIB);
	CHECK_U64(b.inflight, 4);
	CHECK(b.is_over);
	l.cgroup = 0;
	CHECK_U64(derive(l, nothing_told).ram, 16 * MIB);
}

static void what_is_told_is_taken(void)
{
	struct memlimit_wish wish = {
		.ram = 300 * MIB, .stage = 7 * MIB, .inflight = 200, .inodes_ahead = 0
	};
	struct memlimits l = large;
	struct memlimit_budget b;

	l.cgroup = 256 * MIB;
	b = derive(l, wish);
	CHECK(b.ram == 300 * MIB && b.stage == 7 * MIB && b.inflight == 200 && !b.inodes_ahead);
	CHECK(b.is_over);
	wish.ram = 200 * MIB;
	CHECK(!derive(l, wish).is_over);
	wish.stage = 100 * MIB; /* pushed pages are charged to the cgroup as well */
	CHECK(derive(l, wish).is_over);
	l.cgroup = MEMLIMIT_NONE;
	l.as = 256 * MIB; /* but are no address space */
	CHECK(!derive(l, wish).is_over);
	wish.stage = 0;
	CHECK_U64(derive(l, wish).stage, 50 * MIB);
}

/* --- pressure --- */

static const struct pressure_sight calm = {
	.limit = 256 * MIB, .used = 100 * MIB, .machine = 64 * GIB, .available = 60 * GIB
};

static void full_cgroups_are_short(void)
{
	struct pressure_sight s = calm;

	CHECK_INT(pressure_judge(&s), PRESSURE_NONE);
	s.used = 200 * MIB;
	CHECK_INT(pressure_judge(&s), PRESSURE_SOME);
	s.used = 230 * MIB;
	CHECK_INT(pressure_judge(&s), PRESSURE_SHORT);
	s.used = 300 * MIB;
	CHECK_INT(pressure_judge(&s), PRESSURE_SHORT);
	s.limit = MEMLIMIT_NONE;
	CHECK_INT(pressure_judge(&s), PRESSURE_NONE);
	s.available = GIB;
	CHECK_INT(pressure_judge(&s), PRESSURE_NONE); /* a gibibyte is enough on any machine */
	s.available = 600 * MIB;
	CHECK_INT(pressure_judge(&s), PRESSURE_SOME);
	s.available = 500 * MIB;
	CHECK_INT(pressure_judge(&s), PRESSURE_SHORT);
}

static void stalls_of_others_are_not_ours(void)
{
	struct pressure_sight s = calm;

	s.is_stalled = true;
	CHECK_INT(pressure_judge(&s), PRESSURE_SOME);
	s.is_ours = true;
	CHECK_INT(pressure_judge(&s), PRESSURE_SHORT);
	s.is_ours = false;
	s.used = 140 * MIB;
	CHECK_INT(pressure_judge(&s), PRESSURE_SHORT);
	s = calm;
	s.is_stalled = true;
	s.available = 10 * GIB;
	CHECK_INT(pressure_judge(&s), PRESSURE_SHORT);
}

/* Page cache goes past it all the time. */
static void memory_high_counts_when_little_is_left(void)
{
	struct pressure_sight s = calm;

	s.has_throttled = true;
	CHECK_INT(pressure_judge(&s), PRESSURE_NONE);
	s.used = 200 * MIB;
	CHECK_INT(pressure_judge(&s), PRESSURE_SHORT);
}

#define S 1000000000ull

static void shrinks_at_once_and_grows_slowly(void)
{
	struct pressure_state p;
	uint64_t now = S;

	pressure_begin(&p, 1024 * MIB);
	CHECK(!pressure_step(&p, PRESSURE_NONE, now));
	CHECK(!pressure_step(&p, PRESSURE_SOME, now));
	CHECK(pressure_step(&p, PRESSURE_SHORT, now));
	CHECK_U64(p.now, 768 * MIB);
	CHECK(!pressure_step(&p, PRESSURE_SHORT, now + 1000)); /* let it have effect */
	now += S;
	CHECK(pressure_step(&p, PRESSURE_SHORT, now));
	CHECK_U64(p.now, 576 * MIB);
	for (int i = 0; i < 60; i++)
		CHECK(!pressure_step(&p, PRESSURE_SOME, now += S));
	for (int i = 0; i < 9; i++)
		CHECK(!pressure_step(&p, PRESSURE_NONE, now += S));
	CHECK(pressure_step(&p, PRESSURE_NONE, now += S));
	CHECK_U64(p.now, 640 * MIB);
	for (int i = 0; i < 59; i++)
		pressure_step(&p, PRESSURE_NONE, now += S);
	CHECK_U64(p.now, 960 * MIB);
	CHECK(pressure_step(&p, PRESSURE_NONE, now += S));
	CHECK_U64(p.now, 1024 * MIB);
	for (int i = 0; i < 100; i++)
		CHECK(!pressure_step(&p, PRESSURE_NONE, now += S));
}

static void something_stays(void)
{
	struct pressure_state p;
	uint64_t now = S;

	pressure_begin(&p, 64 * MIB);
	for (int i = 0; i < 100; i++)
		pressure_step(&p, PRESSURE_SHORT, now += S);
	CHECK_U64(p.now, 16 * MIB);
	CHECK(!pressure_step(&p, PRESSURE_SHORT, now += S));
	pressure_begin(&p, 16 * MIB);
	CHECK(!pressure_step(&p, PRESSURE_SHORT, now));
}

static const struct check_test tests[] = {
	{ "path_of_a_cgroup_is_found", path_of_a_cgroup_is_found },
	{ "directory_of_a_cgroup_is_found", directory_of_a_cgroup_is_found },
	{ "containers_see_a_part", containers_see_a_part },
	{ "values_are_whole_numbers", values_are_whole_numbers },
	{ "average_of_stalls_is_read", average_of_stalls_is_read },
	{ "limits_of_both_versions_are_read", limits_of_both_versions_are_read },
	{ "this_process_is_under_some_limit", this_process_is_under_some_limit },
	{ "small_samples_leave_room_for_their_tables", small_samples_leave_room_for_their_tables },
	{ "a_large_machine_gets_a_gibibyte", a_large_machine_gets_a_gibibyte },
	{ "all_together_is_half_of_the_limit", all_together_is_half_of_the_limit },
	{ "need_of_a_mount_covers_its_budget", need_of_a_mount_covers_its_budget },
	{ "least_limit_counts", least_limit_counts },
	{ "tables_of_large_datasets_come_first", tables_of_large_datasets_come_first },
	{ "least_budget_is_what_the_option_allows", least_budget_is_what_the_option_allows },
	{ "what_is_told_is_taken", what_is_told_is_taken },
	{ "full_cgroups_are_short", full_cgroups_are_short },
	{ "stalls_of_others_are_not_ours", stalls_of_others_are_not_ours },
	{ "memory_high_counts_when_little_is_left", memory_high_counts_when_little_is_left },
	{ "shrinks_at_once_and_grows_slowly", shrinks_at_once_and_grows_slowly },
	{ "something_stays", something_stays },
};

CHECK_MAIN(tests)
