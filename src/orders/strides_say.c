/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of records that were found in a file: how it is read, in which order, and how that can be told to the
 * next mount: with a table of the records (clairfs index), and the order of these. No more is said than was found:
 * how many records there are, and where the first one begins, is known only where an order says it. How long they are
 * may be known to some bytes only: then it is "about", and there is no command. Any thread; no I/O. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "clairfs/base/text.h"
#include "clairfs/dataset/records.h"
#include "clairfs/infer/records.h"
#include "orders_priv.h"

#define WORDS_MAX (INFER_SPEC_MAX + 256)
#define COMMAND_MAX (4 * PATH_MAX)

/* Where record 0 begins, by its order: as found, to a page; no record ends behind the file. */
static uint64_t origin_of(const struct infer_record_file *f)
{
	uint64_t last = f->size - MIN(f->n * f->view.stride, f->size);

	return MIN(f->origin, last);
}

/* It is read in the order that was found, as far as is known. */
static bool is_order_known(const struct infer_record_file *f)
{
	return f->spec[0] && f->plan != INFER_PLAN_LOST;
}

/* Several lengths fit what was read. */
static bool is_about(const struct infer_record_file *f)
{
	return f->view.stride_most > f->view.stride_least;
}

static void say_read(const struct infer_record_file *f, char out[WORDS_MAX])
{
	const struct stride_view *v = &f->view;
	const char *about = is_about(f) ? "about " : "", *was = f->is_over ? "was " : "";

	if (v->kind == STRIDE_TABLE)
		snprintf(out, WORDS_MAX,
			 "%sread at %" PRIu64 " places again and again, which are no records of one length", was, v->n);
	else if (f->spec[0])
		snprintf(out, WORDS_MAX,
			 "%sread in %" PRIu64 " records of %s%" PRIu64 " bytes, from about byte %" PRIu64 " on", was,
			 f->n, about, v->stride, origin_of(f));
	else
		snprintf(out, WORDS_MAX,
			 "%sread in records of %s%" PRIu64 " bytes, of which about %" PRIu64 " fit in it", was,
			 about, v->stride, v->n);
}

/* Nothing where no order can be. */
static void say_order(const struct infer_record_file *f, const struct strides_state *state,
		      char out[WORDS_MAX])
{
	bool is_in_force = state && state->is_followed && f->spec[0];
	char spec[INFER_SPEC_MAX];

	out[0] = 0;
	order_spec_show(is_in_force ? state->spec : f->spec, spec, sizeof(spec));
	if (is_in_force)
		snprintf(out, WORDS_MAX, "in the order %s, which is in force%s", spec,
			 state->is_lost ? ", but the last ones are not read so"
					: ": they are fetched ahead");
	else if (f->spec[0] && f->plan == INFER_PLAN_LOST)
		snprintf(out, WORDS_MAX,
			 "they were read in the order %s, but the last ones are not (%.0f %% as it says)", spec,
			 100 * f->match);
	else if (f->spec[0] && f->is_over)
		snprintf(out, WORDS_MAX, "they were read in the order %s", spec);
	else if (f->spec[0] && f->match >= 0)
		snprintf(out, WORDS_MAX, "in the order %s: %.0f %% of the last ones as it says", spec, 100 * f->match);
	else if (f->spec[0])
		snprintf(out, WORDS_MAX, "in the order %s, found after %" PRIu64 " reads", spec, f->found_after);
	else if (f->is_sought && f->is_over)
		snprintf(out, WORDS_MAX, "their order was not found");
	else if (f->is_sought && (f->is_searching || f->searches == 0))
		snprintf(out, WORDS_MAX, "their order is looked for");
	else if (f->is_sought)
		snprintf(out, WORDS_MAX, "in no likely order, by %" PRIu64 " searches", f->searches);
	else if (f->view.kind == STRIDE_RECORDS)
		snprintf(out, WORDS_MAX, "their order is not looked for");
	if (f->spec[0] && state && state->why_not)
		snprintf(out + strlen(out), WORDS_MAX - strlen(out), "; it is not followed: %s",
			 state->why_not);
}

/* --- how to tell it --- */

/* Everybody may read stats.json. Where others see the mount, no name is said that the directories above it keep from
 * some of them, nor of a file that they may not read. */
bool strides_may_name(const struct dataset *ds, struct entry_id e)
{
	mode_t needed = S_IROTH;
	struct stat st;

	if (!dataset_is_shared(ds))
		return true;
	for (;; e = dataset_parent(ds, e), needed = S_IROTH | S_IXOTH) {
		dataset_stat(ds, e, &st);
		if ((st.st_mode & needed) != needed)
			return false;
		if (entry_eq(e, ENTRY_ROOT))
			return true;
	}
}

/* Can stand in a command as it is. */
static bool is_plain(const char *text)
{
	for (; *text; text++)
		if (!isalnum((unsigned char)*text) && !strchr("._-/+=@,%", *text))
			return false;
	return true;
}

/* As a value of a spec is written; of a plain path, so no other character needs it. */
static void escape_value(const char *path, char out[3 * PATH_MAX])
{
	for (; *path; path++)
		if (*path == ':' || *path == ',' || *path == '%')
			out += sprintf(out, "%%%02X", (unsigned char)*path);
		else
			*out++ = *path;
	*out = 0;
}

/* Whether the dataset has a table of these very records. */
bool strides_has_table(const struct dataset *ds, const struct infer_record_file *f)
{
	const struct entry_id e = { f->file };
	uint64_t middle = origin_of(f) + f->view.stride / 2;
	struct record_no first, last;

	if (!dataset_has_records(ds))
		return false;
	first = dataset_record_at(ds, e, middle);
	last = dataset_record_at(ds, e, middle + (f->n - 1) * f->view.stride);
	return first.v != RECORD_NONE.v && last.v != RECORD_NONE.v && last.v - first.v == f->n - 1;
}

/* These records, whatever the file's name says: those of an NPY file are its rows, and a job may read blocks of
 * them. */
static void say_index(const struct orders *o, const struct infer_record_file *f, const char *path,
		      char out[COMMAND_MAX])
{
	const char *dir = o->search.snapshot_dir;
	char where[2 * PATH_MAX];
	int n;

	out[0] = 0;
	if (!is_plain(o->source) || (dir && !is_plain(dir)))
		return;
	n = snprintf(where, sizeof(where), "%s%s%s%s", o->source, dir && *dir ? " --snapshot-dir " : "", dir ? dir : "",
		 dataset_is_shared(o->dataset) ? " --allow-other" : "");
	if (n >= (int)sizeof(where)) /* no command is better than half of one */
		return;
	n = snprintf(out, COMMAND_MAX,
		 "seq 0 %" PRIu64 " | awk '{ printf \"%%s %%.0f %%d\\n\", \"%s\", %" PRIu64 " + $1 * %" PRIu64
		 ", %" PRIu64 " }' | clairfs index %s --import /dev/stdin",
		 f->n - 1, path, origin_of(f), f->view.stride, f->view.stride, where);
	if (n >= COMMAND_MAX)
		out[0] = 0;
}

/* {"index": a command, or "" where there is a table, "order": what goes with it}, or NULL. */
static json_t *tell_json(const struct orders *o, const struct infer_record_file *f)
{
	char path[PATH_MAX], under[3 * PATH_MAX], index[COMMAND_MAX] = "", order[WORDS_MAX + 3 * PATH_MAX];
	bool has_one = f->spec[0] && !is_about(f) && strides_has_table(o->dataset, f);

	/* Both are for a shell, and are printed as they are. */
	if (!f->spec[0] || is_about(f) ||
	    dataset_path(o->dataset, (struct entry_id){ f->file }, path, sizeof(path)) < 0 || !is_plain(path))
		return NULL;
	/* The command would put its table in the place of another one. */
	if (!has_one && dataset_has_records(o->dataset))
		return NULL;
	if (!has_one)
		say_index(o, f, path, index);
	if (!has_one && !index[0])
		return NULL;
	escape_value(path, under);
	snprintf(order, sizeof(order), "%s:records=1:under=%s", f->spec, under);
	return json_pack("{s:s, s:s}", "index", index, "order", order);
}

json_t *strides_say(const struct orders *o, const struct infer_record_file *f,
		    const struct strides_state *state)
{
	char path[PATH_MAX], shown[4 * PATH_MAX], read[WORDS_MAX], order[WORDS_MAX];
	bool is_records = f->view.kind == STRIDE_RECORDS;
	bool is_named = strides_may_name(o->dataset, (struct entry_id){ f->file });

	if (dataset_path(o->dataset, (struct entry_id){ f->file }, path, sizeof(path)) < 0)
		return NULL;
	(void)text_escape(path, strlen(path), shown, sizeof(shown));
	if (!is_named)
		snprintf(shown, sizeof(shown), "a file that is not for everybody");
	say_read(f, read);
	say_order(f, state, order);
	return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:b, s:s, s:f, s:I, s:b, s:s, s:s, s:b, s:o*}",
			 "path", shown, "kind",
			 is_records ? "records" : "places", "record_bytes",
			 (json_int_t)(is_records ? f->view.stride : 0), "record_bytes_least",
			 (json_int_t)(is_records ? f->view.stride_least : 0), "record_bytes_most",
			 (json_int_t)(is_records ? f->view.stride_most : 0), "first_offset",
			 (json_int_t)(f->spec[0] ? origin_of(f) : 0), "count",
			 (json_int_t)(f->spec[0] ? f->n : f->view.n), "is_order_known", is_order_known(f), "order",
			 f->spec, "match_percent", f->match < 0 ? 0 : 100 * f->match, "searches",
			 (json_int_t)f->searches, "is_searching", f->is_searching, "read", read,
			 "order_words", order, "is_followed", state && state->is_followed, "tell",
			 is_named ? tell_json(o, f) : NULL);
}
