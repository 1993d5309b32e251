/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading what a node has left behind: the report that a mount wrote (JSON), or the records that a
 * training loop wrote itself (binary, told by its magic number). Both are files that anybody may
 * have made, so nothing in them is trusted: numbers have ranges, lists have lengths, names are
 * cleaned, and what is not there is 0 or not known.
 *
 * One thread; no I/O.
 */
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "clairfs/base/text.h"
#include "clairfs/hint.h"
#include "clairfs/report.h"

#define SECONDS_MAX 1e9 /* thirty years */

void report_node_fini(struct report_node *node)
{
	for (uint32_t i = 0; i < node->n_ranks; i++) {
		step_log_fini(&node->ranks[i].log);
		step_log_fini(&node->ranks[i].replay);
	}
	free(node->ranks);
	free(node->source);
	*node = (struct report_node){ .at_least_s = -1, .at_most_s = -1 };
}

/* The rank's place in the node, in order, a new one if there is none; NULL: too many, no memory. */
static struct report_rank *rank_of(struct report_node *node, uint32_t rank)
{
	struct report_rank *more;
	uint32_t at = node->n_ranks;

	while (at > 0 && node->ranks[at - 1].rank >= rank)
		at--;
	if (at < node->n_ranks && node->ranks[at].rank == rank)
		return &node->ranks[at];
	if (node->n_ranks == REPORT_RANKS_MAX)
		return NULL;
	more = realloc(node->ranks, (node->n_ranks + 1) * sizeof(*more));
	if (!more)
		return NULL;
	node->ranks = more;
	memmove(more + at + 1, more + at, (node->n_ranks - at) * sizeof(*more));
	more[at] = (struct report_rank){
		.rank = rank, .at_least_s = -1, .at_most_s = -1, .replay_s = -1, .hook_s = -1
	};
	node->n_ranks++;
	return &more[at];
}

/* --- JSON --- */

static uint64_t count_of(const json_t *object, const char *key)
{
	json_int_t v = json_integer_value(json_object_get(object, key));

	return v > 0 ? (uint64_t)v : 0;
}

/* Seconds, or `none` when there is no such number. */
static double seconds_of(const json_t *object, const char *key, double none)
{
	const json_t *v = json_object_get(object, key);

	return json_is_number(v) && json_number_value(v) >= 0
		       ? MIN(json_number_value(v), SECONDS_MAX)
		       : none;
}

static uint64_t ns_of(const json_t *object, const char *key)
{
	return (uint64_t)(seconds_of(object, key, 0) * 1e9);
}

static int parse_list(const json_t *list, uint64_t first, uint32_t *out, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		const json_t *v = i < first ? NULL : json_array_get(list, i - first);
		json_int_t value = json_integer_value(v);

		out[i] = STEP_UNKNOWN;
		if (!v || json_is_null(v))
			continue;
		if (!json_is_integer(v) || value < 0 || value >= STEP_UNKNOWN)
			return -EINVAL;
		out[i] = (uint32_t)value;
	}
	return 0;
}

/* {"every": power of two, "first": group, and two lists of these names} */
static int parse_log(const json_t *json, const char *const names[2], struct step_log *log)
{
	const json_t *wait = json_object_get(json, names[0]);
	const json_t *span = json_object_get(json, names[1]);
	uint64_t every = count_of(json, "every"), first = count_of(json, "first");
	uint64_t n = json_array_size(wait);

	if (!json)
		return 0;
	if (!json_is_array(wait) || !json_is_array(span) || json_array_size(span) != n ||
	    every == 0 || (every & (every - 1)) || every > STEP_MAX || first > STEP_LOG_ENTRIES ||
	    n > STEP_LOG_ENTRIES - first)
		return -EINVAL;
	if (n == 0)
		return 0;
	n += first;
	log->wait_us = malloc(n * sizeof(*log->wait_us));
	log->span_us = malloc(n * sizeof(*log->span_us));
	if (!log->wait_us || !log->span_us)
		return -ENOMEM;
	log->n = log->capacity = n;
	log->every = every;
	if (parse_list(wait, first, log->wait_us, n) < 0 ||
	    parse_list(span, first, log->span_us, n) < 0)
		return -EINVAL;
	return 0;
}

static int parse_rank(const json_t *json, struct report_node *node, struct err *err)
{
	const json_t *number = json_object_get(json, "rank");
	const json_t *removed = json_object_get(json, "removed");
	uint64_t world = count_of(json, "world"), before = node->n_ranks;
	json_int_t rank = json_integer_value(number);
	struct report_rank *r;
	int rc;

	if (!json_is_integer(number) || rank < 0 || rank >= UINT32_MAX || world > UINT32_MAX ||
	    (world && (uint64_t)rank >= world))
		return err_set(err, -EINVAL, "a rank has no number that can be right");
	r = rank_of(node, (uint32_t)rank);
	if (!r)
		return err_set(err, -EINVAL, "too many ranks");
	if (node->n_ranks == before)
		return err_set(err, -EINVAL, "rank %lld is there twice", (long long)rank);
	r->world = (uint32_t)world;
	r->restarts = count_of(json, "restarts");
	r->totals.steps = count_of(json, "steps");
	r->has_steps = r->totals.steps > 0;
	r->totals.wait_ns = ns_of(json, "wait_seconds");
	r->totals.first_wait_ns = ns_of(json, "first_wait_seconds");
	r->totals.max_wait_ns = ns_of(json, "max_wait_seconds");
	r->totals.span_ns = ns_of(json, "span_seconds");
	r->at_least_s = seconds_of(removed, "at_least_seconds", -1);
	r->at_most_s = seconds_of(removed, "at_most_seconds", -1);
	r->page_cache_s = seconds_of(removed, "page_cache_seconds", 0);
	r->replay_s = seconds_of(removed, "replay_seconds", -1);
	r->hook_s = seconds_of(removed, "hook_seconds", -1);
	r->judged_s = seconds_of(removed, "judged_seconds", 0);
	r->passes = count_of(removed, "passes_judged");
	r->unjudged = count_of(removed, "passes_unjudged");
	rc = parse_log(json_object_get(json, "log"), step_log_names, &r->log);
	if (rc == 0)
		rc = parse_log(json_object_get(json, "replay"), replay_log_names, &r->replay);
	return rc < 0 ? err_set(err, rc, "the steps of rank %lld are no lists of times",
				(long long)rank)
		      : 0;
}

static void copy_name(const json_t *json, char *out, size_t size)
{
	const char *text = json_string_value(json);

	if (text)
		job_name_clean(text, strlen(text), out, size);
}

static int parse_ranks(const json_t *ranks, struct report_node *node, struct err *err)
{
	const json_t *rank;
	size_t i;
	int rc = 0;

	json_array_foreach(ranks, i, rank)
	{
		rc = parse_rank(rank, node, err);
		if (rc < 0)
			return rc;
	}
	return rc;
}

static void parse_words(const json_t *json, char *out, size_t size)
{
	const char *text = json_string_value(json);

	if (text)
		text_escape(text, strlen(text), out, size);
}

static void parse_removed(const json_t *root, struct report_node *node)
{
	const json_t *removed = json_object_get(root, "removed");
	const json_t *said = json_object_get(json_object_get(root, "stats"), "gpu_wait");

	node->at_least_s = seconds_of(removed, "at_least_seconds", -1);
	node->at_most_s = seconds_of(removed, "at_most_seconds", -1);
	node->page_cache_s = seconds_of(removed, "page_cache_seconds", 0);
	node->judged_s = seconds_of(removed, "judged_seconds", 0);
	node->passes = count_of(removed, "passes_judged");
	node->unjudged = count_of(removed, "passes_unjudged");
	parse_words(json_object_get(said, "why"), node->why, sizeof(node->why));
	parse_words(json_object_get(said, "unjudged_why"), node->unjudged_why,
		    sizeof(node->unjudged_why));
	node->accounted = count_of(said, "reads");
	node->unplaced = count_of(json_object_get(said, "control"), "unplaced_reads");
	node->unplaced = MIN(node->unplaced, node->accounted);
}

static int parse_report(const json_t *root, struct report_node *node, struct err *err)
{
	const char *format = json_string_value(json_object_get(root, "format"));
	const json_t *data = json_object_get(root, "data");
	const char *source = json_string_value(json_object_get(root, "source"));

	if (!format || strcmp(format, "clairfs-report") != 0)
		return err_set(err, -EINVAL, "not a report of a clairfs mount");
	if (count_of(root, "version") != 1)
		return err_set(err, -EINVAL, "a report of another version of clairfs");
	node->is_mount = true;
	copy_name(json_object_get(root, "job"), node->job, sizeof(node->job));
	copy_name(json_object_get(root, "host"), node->host, sizeof(node->host));
	node->source = strdup(source ? source : "");
	if (!node->source)
		return err_set(err, -ENOMEM, "out of memory");
	node->pid = count_of(root, "pid");
	node->begun = count_of(root, "begun");
	node->mounted_s = seconds_of(root, "mounted_seconds", 0);
	node->cpu_s = seconds_of(json_object_get(root, "daemon"), "cpu_seconds", 0);
	node->reads = count_of(data, "reads");
	node->read_bytes = count_of(data, "read_bytes");
	node->source_reads = count_of(data, "source_reads");
	node->source_bytes = count_of(data, "source_bytes");
	node->has_least = json_is_integer(json_object_get(data, "least_source_bytes"));
	node->least_source_bytes = count_of(data, "least_source_bytes");
	node->control_reads = count_of(data, "control_reads");
	node->control_s = seconds_of(data, "control_seconds", 0);
	parse_removed(root, node);
	return parse_ranks(json_object_get(root, "ranks"), node, err);
}

static int parse_json(const char *text, size_t size, struct report_node *ret, struct err *err)
{
	json_error_t why;
	json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &why);
	int rc;

	if (!root)
		return err_set(err, -EINVAL, "neither a report nor steps: line %d is no JSON",
			       why.line);
	rc = parse_report(root, ret, err);
	json_decref(root);
	return rc;
}

/* --- records --- */

struct batch_head {
	uint32_t world, count;
	uint64_t run;
	char job[CLAIRFS_JOB_NAME];
};

static void get_head(struct buf_reader *r, struct batch_head *ret)
{
	const char *job;
	uint32_t magic = buf_get_u32(r), version = buf_get_u32(r);

	ret->world = buf_get_u32(r);
	ret->count = buf_get_u32(r);
	ret->run = buf_get_u64(r);
	(void)buf_get_u64(r); /* lost */
	job = buf_get_bytes(r, CLAIRFS_JOB_NAME);
	ret->job[0] = '\0';
	if (job)
		job_name_clean(job, CLAIRFS_JOB_NAME, ret->job, sizeof(ret->job));
	if (magic != CLAIRFS_STEPS_MAGIC || version != CLAIRFS_STEPS_VERSION ||
	    ret->count > CLAIRFS_STEPS)
		r->is_bad = true;
}

static void get_step(struct buf_reader *r, struct clairfs_step_record *ret)
{
	ret->rank = buf_get_u32(r);
	ret->flags = buf_get_u32(r);
	ret->step = buf_get_u64(r);
	ret->t_request = buf_get_u64(r);
	ret->t_ready = buf_get_u64(r);
	ret->t_next = buf_get_u64(r);
}

/* A process that began later has the rank from then on. */
static int take_step(struct report_node *node, const struct batch_head *head,
		     const struct clairfs_step_record *step)
{
	bool is_inner = step->flags & CLAIRFS_STEP_INNER;
	struct report_rank *r = rank_of(node, step->rank);

	if (!r)
		return -ENOMEM;
	if (r->has_steps && (r->world != head->world || r->run > head->run))
		return -EINVAL;
	if (r->has_steps && r->run < head->run) {
		step_log_fini(&r->log);
		r->restarts++;
	}
	if (!is_inner && step->t_request < r->last_ns)
		return -EINVAL;
	if (!is_inner)
		r->last_ns = step->t_next;
	r->run = head->run;
	r->world = head->world;
	r->has_steps = true;
	step_totals_add(&r->totals, step);
	return step_log_add(&r->log, step->step, step->t_ready - step->t_request,
			    is_inner ? 0 : step->t_next - step->t_request);
}

static int parse_steps(const void *bytes, size_t size, struct report_node *node, struct err *err)
{
	struct buf_reader r;
	uint64_t n = 0;

	buf_reader_init(&r, bytes, size);
	while (r.at < r.size) {
		struct clairfs_step_record step;
		struct batch_head head;

		get_head(&r, &head);
		if (r.is_bad)
			return err_set(err, -EINVAL, "no steps after %llu", (unsigned long long)n);
		if (n == 0)
			snprintf(node->job, sizeof(node->job), "%s", head.job);
		else if (strcmp(node->job, head.job) != 0)
			return err_set(err, -EINVAL, "steps of jobs %s and %s", node->job,
				       head.job);
		for (uint32_t i = 0; i < head.count; i++, n++) {
			get_step(&r, &step);
			if (r.is_bad)
				return err_set(err, -EINVAL, "it ends within step %llu",
					       (unsigned long long)n + 1);
			if (!step_is_plausible(&step, head.world) ||
			    take_step(node, &head, &step) < 0)
				return err_set(err, -EINVAL, "step %llu cannot be right",
					       (unsigned long long)n + 1);
		}
	}
	return 0;
}

int report_node_parse(const void *bytes, size_t size, struct report_node *ret, struct err *err)
{
	struct buf_reader r;
	int rc;

	*ret = (struct report_node){ .at_least_s = -1, .at_most_s = -1 };
	buf_reader_init(&r, bytes, size);
	if (size == 0)
		rc = err_set(err, -EINVAL, "the file is empty");
	else if (size > REPORT_TEXT_MAX)
		rc = err_set(err, -EINVAL, "the file is larger than a report can be");
	else if (buf_get_u32(&r) == CLAIRFS_STEPS_MAGIC && !r.is_bad)
		rc = parse_steps(bytes, size, ret, err);
	else
		rc = parse_json(bytes, size, ret, err);
	if (rc < 0)
		report_node_fini(ret);
	return rc;
}
