/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clairfs store: what a persistent store holds, whether it is as it was written, and away with it.
 * Works on the directory alone, with or without mounts that use it: nothing is ever written into
 * it, and segments that a mount uses are not removed. All that is printed of the directory are
 * numbers and names that were made from numbers.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clairfs/base/clock.h"
#include "clairfs/base/text.h"
#include "clairfs/tier/store.h"
#include "cli.h"

#define PROGRESS_NS (NS_PER_S / 5)

struct store_cmd {
	const char *dir;
	struct store_look *look;
	json_t *root, *rows; /* with --json, else NULL */
	uint64_t bytes_per_s;
};

static const struct store_segment_info *store_segment_at(const struct store_cmd *cmd, size_t i)
{
	return store_look_segment(cmd->look, i);
}

static const char *state_name(const struct store_segment_info *info)
{
	return store_segment_state_names[info->state];
}

static json_t *json_u64(uint64_t v)
{
	return json_integer((json_int_t)MIN(v, (uint64_t)INT64_MAX));
}

/* A new row of the answer; NULL without --json. */
static json_t *add_row(struct store_cmd *cmd, const struct store_segment_info *info)
{
	json_t *row = cmd->rows ? json_object() : NULL;

	if (!row)
		return NULL;
	json_object_set_new(row, "name", json_string(info->name));
	json_object_set_new(row, "state", json_string(state_name(info)));
	json_object_set_new(row, "is_in_use", json_boolean(info->is_in_use));
	json_object_set_new(row, "bytes", json_u64(info->bytes));
	json_array_append_new(cmd->rows, row);
	return row;
}

static void set_total(struct store_cmd *cmd, const char *name, uint64_t v)
{
	if (cmd->root)
		json_object_set_new(cmd->root, name, json_u64(v));
}

/* --- ls --- */

static const char *time_text(uint64_t ns, char out[32])
{
	time_t seconds = (time_t)(ns / NS_PER_S);
	struct tm tm;

	if (ns == 0 || !localtime_r(&seconds, &tm) ||
	    strftime(out, 32, "%Y-%m-%d %H:%M:%S", &tm) == 0)
		strcpy(out, "-");
	return out;
}

static int store_ls(struct store_cmd *cmd)
{
	uint64_t bytes = 0, records = 0;
	size_t n = store_look_count(cmd->look);
	char a[32], b[32];

	if (!cmd->root)
		printf("%-20s  %-8s  %-6s  %10s  %10s  %-19s  %s\n", "segment", "state", "in use",
		       "records", "size", "made", "source");
	for (size_t i = 0; i < n; i++) {
		const struct store_segment_info *info = store_segment_at(cmd, i);
		json_t *row = add_row(cmd, info);

		bytes += info->bytes;
		records += info->records;
		snprintf(a, sizeof(a), "%016" PRIx64, info->fsid);
		if (row) {
			json_object_set_new(row, "records", json_u64(info->records));
			json_object_set_new(row, "record_bytes", json_u64(info->record_bytes));
			json_object_set_new(row, "source", json_string(a));
			json_object_set_new(row, "made_seconds",
					    json_u64(info->made_ns / NS_PER_S));
			continue;
		}
		printf("%-20s  %-8s  %-6s  ", info->name, state_name(info),
		       info->is_in_use ? "yes" : "no");
		if (info->state == STORE_SEGMENT_SEALED)
			printf("%10" PRIu64, info->records);
		else
			printf("%10s", "-");
		printf("  %10s  %-19s  %s\n", text_from_bytes(info->bytes, b, sizeof(b)),
		       time_text(info->made_ns, (char[32]){ 0 }), info->made_ns ? a : "-");
	}
	set_total(cmd, "bytes", bytes);
	set_total(cmd, "records", records);
	if (!cmd->root)
		printf("%zu segments, %s, %" PRIu64 " records in sealed ones\n", n,
		       text_from_bytes(bytes, b, sizeof(b)), records);
	return EXIT_DONE;
}

/* --- verify --- */

struct show {
	uint64_t total, shown_ns;
};

static void show_check(void *ctx, const struct store_look_check *check)
{
	struct show *show = ctx;
	uint64_t now = clock_now(clock_monotonic());
	char a[32], b[32];

	if (now - show->shown_ns < PROGRESS_NS)
		return;
	show->shown_ns = now;
	fprintf(stderr, "\r%" PRIu64 " records, %s of %s, %" PRIu64 " wrong\033[K", check->records,
		text_from_bytes(check->bytes, a, sizeof(a)),
		text_from_bytes(show->total, b, sizeof(b)), check->bad);
}

/* What became of one segment; whether that is a failure. */
static bool tell_verified(struct store_cmd *cmd, size_t i, int rc,
			  const struct store_look_check *check)
{
	const struct store_segment_info *info = store_segment_at(cmd, i);
	json_t *row = add_row(cmd, info);
	const char *what = rc == -EAGAIN    ? "is being written, left out"
			   : rc == -ENOENT  ? "gone meanwhile"
			   : rc == -EBADMSG ? "damaged, or of another version: not used"
			   : rc < 0         ? strerror(-rc)
					    : "";

	if (row) {
		json_object_set_new(row, "records", json_u64(check->records));
		json_object_set_new(row, "wrong", json_u64(check->bad));
		json_object_set_new(row, "why_not", json_string(what));
	} else if (rc < 0) {
		printf("%s  %s\n", info->name, what);
	} else {
		printf("%s  %" PRIu64 " records, %" PRIu64 " wrong\n", info->name, check->records,
		       check->bad);
	}
	return check->bad > 0 || (rc < 0 && rc != -EAGAIN && rc != -ENOENT);
}

static int store_verify_all(struct store_cmd *cmd)
{
	bool is_shown = isatty(STDERR_FILENO);
	struct store_look_check all = { .bytes = 0 };
	struct show show = { .total = 0 };
	size_t n_failed = 0;

	for (size_t i = 0; i < store_look_count(cmd->look); i++)
		show.total += store_segment_at(cmd, i)->bytes;
	for (size_t i = 0; i < store_look_count(cmd->look); i++) {
		struct store_look_check check = { .bytes_per_s = cmd->bytes_per_s,
						  .progress = is_shown ? show_check : NULL,
						  .ctx = &show };
		int rc = store_look_verify(cmd->look, i, &check);

		if (is_shown)
			fprintf(stderr, "\r\033[K");
		n_failed += tell_verified(cmd, i, rc, &check);
		all.records += check.records;
		all.bad += check.bad;
		all.bytes += check.bytes;
		show.total -= MIN(show.total, store_segment_at(cmd, i)->bytes);
	}
	set_total(cmd, "records", all.records);
	set_total(cmd, "wrong", all.bad);
	set_total(cmd, "bytes", all.bytes);
	if (n_failed == 0)
		return EXIT_DONE;
	fprintf(stderr,
		"clairfs: store %s: %" PRIu64 " of %" PRIu64 " records are wrong, in %zu segments; "
		"mounts do not serve them, `clairfs store purge` removes all\n",
		cmd->dir, all.bad, all.records, n_failed);
	return EXIT_FAILED;
}

/* --- purge --- */

static int store_purge(struct store_cmd *cmd)
{
	uint64_t n_removed = 0, n_in_use = 0, n_failed = 0, bytes = 0;
	const char *why = "";
	char text[32];

	for (size_t i = 0; i < store_look_count(cmd->look); i++) {
		const struct store_segment_info *info = store_segment_at(cmd, i);
		int rc = store_look_remove(cmd->look, i);
		json_t *row = add_row(cmd, info);

		if (row)
			json_object_set_new(row, "is_removed", json_boolean(rc == 0));
		n_removed += rc == 0;
		bytes += rc == 0 ? info->bytes : 0;
		n_in_use += rc == -EBUSY;
		n_failed += rc < 0 && rc != -EBUSY;
		if (rc < 0 && rc != -EBUSY)
			why = strerror(-rc);
	}
	set_total(cmd, "removed", n_removed);
	set_total(cmd, "in_use", n_in_use);
	set_total(cmd, "bytes", bytes);
	if (!cmd->root)
		printf("%" PRIu64 " segments removed, %s\n", n_removed,
		       text_from_bytes(bytes, text, sizeof(text)));
	if (n_in_use + n_failed == 0)
		return EXIT_DONE;
	if (n_failed > 0)
		fprintf(stderr,
			"clairfs: store %s: %" PRIu64 " segments could not be removed: %s\n",
			cmd->dir, n_failed, why);
	else
		fprintf(stderr,
			"clairfs: store %s: %" PRIu64
			" segments are in use by a mount and stay; unmount it first\n",
			cmd->dir, n_in_use);
	return EXIT_FAILED;
}

/* --- the command --- */

static int run_store(struct store_cmd *cmd, int (*fn)(struct store_cmd *cmd), bool is_json)
{
	struct err err = { 0 };
	int code, rc;

	if (store_look_open(cmd->dir, &cmd->look, &err) < 0) {
		fprintf(stderr, "clairfs: store %s\n", err.msg);
		return EXIT_FAILED;
	}
	if (is_json) {
		cmd->root = json_object();
		cmd->rows = json_array();
		json_object_set(cmd->root, "segments", cmd->rows);
	}
	code = fn(cmd);
	if (is_json) {
		json_dumpf(cmd->root, stdout, JSON_INDENT(1));
		putchar('\n');
		json_decref(cmd->rows);
		json_decref(cmd->root);
	}
	store_look_close(cmd->look);
	rc = cli_finish();
	return rc == EXIT_DONE ? code : rc;
}

static int parse_rate(const char *text, uint64_t *ret)
{
	uint64_t mbps;

	if (text_to_u64(text, &mbps) < 0 || mbps == 0 || mbps > UINT64_MAX / 1000000)
		return -EINVAL;
	*ret = mbps * 1000000;
	return 0;
}

int cmd_store(int argc, char **argv)
{
	static const struct option longs[] = { { "json", no_argument, NULL, 'j' },
					       { "mbps", required_argument, NULL, 'r' },
					       { "help", no_argument, NULL, 'h' },
					       { NULL, 0, NULL, 0 } };
	static const struct {
		const char *name;
		int (*fn)(struct store_cmd *cmd);
	} verbs[] = { { "ls", store_ls },
		      { "verify", store_verify_all },
		      { "purge", store_purge } };
	struct store_cmd cmd = { .dir = NULL };
	bool is_json = false;
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'h')
			return cli_help("store");
		if (c == '?')
			return cli_bad_option("store", argv);
		if (c == 'r' && parse_rate(optarg, &cmd.bytes_per_s) < 0)
			return cli_usage("store", "--mbps: '%s' is no number above 0", optarg);
		is_json |= c == 'j';
	}
	if (argc - optind != 2)
		return cli_usage("store", "ls, verify or purge and one DIRECTORY are needed");
	cmd.dir = argv[optind + 1];
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
		if (strcmp(argv[optind], verbs[i].name) != 0)
			continue;
		if (cmd.bytes_per_s && verbs[i].fn != store_verify_all)
			return cli_usage("store", "--mbps is for verify");
		return run_store(&cmd, verbs[i].fn, is_json);
	}
	return cli_usage("store", "no '%s': ls, verify or purge", argv[optind]);
}
