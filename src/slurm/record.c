/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts that one hook leaves for the next. They lie in a directory of root, but a node may have
 * lost power while one was written: what is not exactly as printed here is no record. Of a record
 * of another version what is known here is read, so that its daemon can be ended.
 *
 *   clairfs-job 1        clairfs-status 1
 *   job 17               failed source /lustre/x: Permission denied
 *   uid 1000             source /lustre/x
 *   ...
 * Pure.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "clairfs/base/text.h"
#include "slurm_priv.h"

#define RECORD_HEAD "clairfs-job 1\n"
#define STATUS_HEAD "clairfs-status 1\n"

/* A line as "key value"; *at is put behind it. False: no more, or no line. */
static bool take_record_line(const char **at, const char *end, char *line, size_t size, char **ret_value)
{
	const char *stop = *at < end ? memchr(*at, '\n', (size_t)(end - *at)) : NULL;
	size_t len = stop ? (size_t)(stop - *at) : 0;

	if (!stop || len >= size || memchr(*at, 0, len))
		return false;
	memcpy(line, *at, len);
	line[len] = 0;
	*at = stop + 1;
	*ret_value = strchr(line, ' ');
	if (*ret_value)
		*(*ret_value)++ = 0;
	return true;
}

static bool take_record_number(const char *value, uint64_t most, uint64_t *ret)
{
	return text_to_u64(value, ret) == 0 && *ret <= most;
}

static bool take_text(const char *value, char *out, size_t size)
{
	size_t len = strlen(value);

	if (len == 0 || len >= size || *out)
		return false;
	memcpy(out, value, len + 1);
	return true;
}

enum { KEY_JOB, KEY_UID, KEY_GID, KEY_PID, KEY_START, KEY_SPEC, KEY_CGROUP, KEYS };

static bool take_record_field(int key, const char *value, struct slurm_record *r)
{
	uint64_t v = 0;

	switch (key) {
	case KEY_SPEC:
		return take_text(value, r->spec, sizeof(r->spec));
	case KEY_CGROUP:
		return *value == '/' && take_text(value, r->cgroup, sizeof(r->cgroup));
	case KEY_START:
		return take_record_number(value, UINT64_MAX, &r->start);
	case KEY_PID:
		if (!take_record_number(value, INT32_MAX, &v))
			return false;
		r->pid = (pid_t)v;
		return true;
	default:
		if (!take_record_number(value, UINT32_MAX - 1, &v))
			return false;
		*(key == KEY_JOB ? &r->job : key == KEY_UID ? &r->uid : &r->gid) = (uint32_t)v;
		return true;
	}
}

/* "clairfs-job N"; *at is put behind it. */
static bool take_record_head(const char **at, const char *end, bool *ret_is_ours)
{
	char line[32], *version;
	uint64_t number;

	if (!take_record_line(at, end, line, sizeof(line), &version) || !version ||
	    strcmp(line, "clairfs-job") != 0 || !take_record_number(version, UINT32_MAX, &number))
		return false;
	*ret_is_ours = number == 1;
	return true;
}

int slurm_record_parse(const char *text, size_t len, struct slurm_record *ret)
{
	static const char *const keys[KEYS] = { "job", "uid", "gid", "pid", "start", "spec",
						"cgroup" };
	const unsigned needed = 1 << KEY_JOB | 1 << KEY_UID | 1 << KEY_GID;
	const char *at = text, *end = text + len;
	char line[MAX(PATH_MAX, SLURM_SPEC_MAX) + 16], *value;
	unsigned seen = 0;
	bool is_ours;

	memset(ret, 0, sizeof(*ret));
	if (!take_record_head(&at, end, &is_ours))
		return -EINVAL;
	while (take_record_line(&at, end, line, sizeof(line), &value)) {
		int key = 0;

		while (key < KEYS && strcmp(keys[key], line) != 0)
			key++;
		if (key == KEYS && !is_ours)
			continue;
		if (key == KEYS || !value || (seen & 1u << key) || !take_record_field(key, value, ret))
			return -EINVAL;
		seen |= 1u << key;
	}
	return at == end && (seen & needed) == needed && ret->job ? 0 : -EINVAL;
}

void slurm_record_print(const struct slurm_record *r, char *out)
{
	snprintf(out, SLURM_RECORD_MAX,
		 RECORD_HEAD "job %u\nuid %u\ngid %u\npid %d\nstart %" PRIu64 "\n%s%s%s%s%s%s",
		 r->job, (unsigned)r->uid, (unsigned)r->gid, (int)r->pid, r->start,
		 *r->spec ? "spec " : "", r->spec, *r->spec ? "\n" : "",
		 *r->cgroup ? "cgroup " : "", r->cgroup, *r->cgroup ? "\n" : "");
}

static const char *const states[] = { "starting", "ready", "failed", NULL };

int slurm_status_parse(const char *text, size_t len, struct slurm_status *ret)
{
	const char *at = text + strlen(STATUS_HEAD), *end = text + len;
	char line[SLURM_SPEC_MAX + 16], *value;
	int state = 0;

	memset(ret, 0, sizeof(*ret));
	if (len < strlen(STATUS_HEAD) || memcmp(text, STATUS_HEAD, strlen(STATUS_HEAD)) != 0 ||
	    !take_record_line(&at, end, line, sizeof(line), &value))
		return -EINVAL;
	while (states[state] && strcmp(states[state], line) != 0)
		state++;
	if (!states[state] || (value != NULL) != (state == SLURM_FAILED))
		return -EINVAL;
	ret->state = (enum slurm_state)state;
	if (value && !take_text(value, ret->why, sizeof(ret->why)))
		return -EINVAL;
	if (at == end)
		return 0;
	if (!take_record_line(&at, end, line, sizeof(line), &value) || strcmp(line, "source") != 0 ||
	    !value || *value != '/' || !take_text(value, ret->source, sizeof(ret->source)))
		return -EINVAL;
	return at == end ? 0 : -EINVAL;
}

void slurm_status_print(const struct slurm_status *s, char *out)
{
	char why[sizeof(s->why)] = "";

	/* Messages quote what a job wrote. */
	if (s->state == SLURM_FAILED)
		text_escape(*s->why ? s->why : "?", *s->why ? strlen(s->why) : 1, why, sizeof(why));
	snprintf(out, SLURM_STATUS_MAX, STATUS_HEAD "%s%s%s\n%s%s%s", states[s->state],
		 *why ? " " : "", why, *s->source ? "source " : "", s->source,
		 *s->source ? "\n" : "");
}
