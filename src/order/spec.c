/* SPDX-License-Identifier: Apache-2.0 */
/* Specs: "KIND[:key=value]..." to numbers and back. A spec is typed by hand into job scripts and
 * fstab-like options and is wrong often, so every error is one line that names the key and, for a
 * misspelt name, the nearest right one. What a key may hold is a row in a table (the kind's own,
 * then the common ones), so parsing, the canonical text and the messages come from one place; what
 * several keys mean together (a rank and its world) is checked once all are read.
 *
 * It must never guess: no key twice, no empty value, no unknown escape. It does not know n;
 * order_new checks against that. Set-up code, any thread. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "clairfs/base/buf.h"
#include "clairfs/base/text.h"
#include "order_priv.h"

#define ORDER_SHAPE_KEYS 3 /* of the common ones, behind epochs, start_epoch, start_step */
#define NAME_SHOWN 80 /* bytes of a foreign name in a message */

const struct order_key order_common_keys[] = {
	{ .name = "epochs", .type = ORDER_KEY_U64, .min = 0, .max = UINT32_MAX },
	{ .name = "start_epoch", .type = ORDER_KEY_U64, .min = 0, .max = UINT32_MAX },
	{ .name = "start_step", .type = ORDER_KEY_U64, .min = 0, .max = UINT32_MAX },
	{ .name = "batch", .type = ORDER_KEY_U64, .min = 1, .max = UINT32_MAX },
	{ .name = "workers", .type = ORDER_KEY_U64, .min = 0, .max = 1 << 20 },
	{ .name = "prefetch_factor", .type = ORDER_KEY_U64, .min = 1, .max = 1 << 20 },
	{ .name = "split",
	  .type = ORDER_KEY_U64,
	  .def = ORDER_NO_SPLIT,
	  .min = 0,
	  .max = UINT32_MAX },
	{ .name = "first", .type = ORDER_KEY_U64, .min = 1, .max = ORDER_SAMPLES_MAX },
	{ .name = "records", .type = ORDER_KEY_BOOL, .def = ORDER_RECORDS_AUTO },
	{ .name = "sort", .type = ORDER_KEY_TEXT },
	{ .name = "under", .type = ORDER_KEY_TEXT },
	{ .name = "job", .type = ORDER_KEY_TEXT },
	{ .name = NULL },
};

/* A key's row and value, in the kind's table or the common one. */
struct slot {
	const struct order_key *key;
	struct order_value *value;
};

static struct slot spec_slot(const struct order_spec *spec, const char *name)
{
	struct order_spec *s = (struct order_spec *)spec;

	for (unsigned i = 0; spec->kind->keys[i].name; i++)
		if (strcmp(spec->kind->keys[i].name, name) == 0)
			return (struct slot){ &spec->kind->keys[i], &s->own[i] };
	for (unsigned i = 0; order_common_keys[i].name; i++)
		if (strcmp(order_common_keys[i].name, name) == 0)
			return (struct slot){ &order_common_keys[i], &s->common[i] };
	return (struct slot){ NULL, NULL };
}

uint64_t order_spec_u64(const struct order_spec *spec, const char *key)
{
	struct slot slot = spec_slot(spec, key);

	assert(slot.key);
	return slot.value->is_set ? slot.value->num : slot.key->def;
}

const char *order_spec_path(const struct order_spec *spec, const char *key)
{
	struct slot slot = spec_slot(spec, key);

	assert(slot.key && slot.key->type == ORDER_KEY_TEXT);
	return slot.value->text;
}

/* "a, b, c" of all names, for messages. */
static void names_join(struct buf_writer *w, const char *const *names)
{
	for (unsigned i = 0; names[i]; i++)
		buf_printf(w, "%s%s", i ? ", " : "", names[i]);
}

/* `what` is e.g. "key"; the message ends with the nearest name or with all of them. */
static int unknown_name(struct err *err, const char *what, const char *name,
			const char *const *known)
{
	char shown[NAME_SHOWN];
	const char *near = text_nearest(name, known);
	struct buf_writer all;
	int rc;

	text_escape(name, strlen(name), shown, sizeof(shown));
	if (near)
		return err_set(err, -EINVAL, "unknown %s \"%s\", did you mean \"%s\"?", what, shown,
			       near);
	buf_writer_init(&all);
	names_join(&all, known);
	rc = err_set(err, -EINVAL, "unknown %s \"%s\", known: %.*s", what, shown, (int)all.size,
		     (char *)all.data);
	buf_writer_fini(&all);
	return rc;
}

static int unknown_key(const struct order_kind *kind, const char *name, struct err *err)
{
	const char *known[ORDER_OWN_KEYS_MAX + ORDER_COMMON_KEYS + 1];
	unsigned n = 0;

	for (const struct order_key *key = kind->keys; key->name; key++)
		known[n++] = key->name;
	for (const struct order_key *key = order_common_keys; key->name; key++)
		known[n++] = key->name;
	known[n] = NULL;
	return unknown_name(err, "key", name, known);
}

/* Replaces %3A, %2C, %2F and %25 in place. ('/' needs it only where a spec is a file's name.) */
static int unescape(char *value, const char *key, struct err *err)
{
	char *to = value;

	for (const char *from = value; *from;) {
		if (*from != '%') {
			*to++ = *from++;
			continue;
		}
		if (strncasecmp(from, "%3A", 3) == 0)
			*to++ = ':';
		else if (strncasecmp(from, "%2C", 3) == 0)
			*to++ = ',';
		else if (strncasecmp(from, "%2F", 3) == 0)
			*to++ = '/';
		else if (strncmp(from, "%25", 3) == 0)
			*to++ = '%';
		else
			return err_set(
				err, -EINVAL,
				"key \"%s\": '%%' must be written %%25 (%%3A is ':', %%2C is ',', "
				"%%2F is '/')",
				key);
		from += 3;
	}
	*to = '\0';
	return 0;
}

static void put_escaped(struct buf_writer *w, const char *value)
{
	for (; *value; value++) {
		if (*value == ':' || *value == ',' || *value == '%')
			buf_printf(w, "%%%02X", (unsigned char)*value);
		else
			buf_put_u8(w, (uint8_t)*value);
	}
}

static int value_u64(const struct order_key *key, const char *text, uint64_t min, uint64_t max,
		     uint64_t *ret, struct err *err)
{
	char shown[NAME_SHOWN];
	int rc = text_to_u64(text, ret);

	text_escape(text, strlen(text), shown, sizeof(shown));
	if (rc == -EINVAL)
		return err_set(err, -EINVAL, "key \"%s\": \"%s\" is not a whole number", key->name,
			       shown);
	if (rc < 0 || *ret < min || *ret > max)
		return err_set(err, -EINVAL,
			       "key \"%s\": %s is out of range, allowed: %" PRIu64 "-%" PRIu64,
			       key->name, shown, min, max);
	return 0;
}

static int value_rank(struct order_spec *spec, const struct order_key *key, char *text,
		      struct err *err)
{
	uint64_t rank;
	int rc;

	if (spec->ranks)
		return err_set(err, -EINVAL, "keys \"rank\" and \"ranks\" exclude each other");
	if (key->type == ORDER_KEY_RANKS) {
		rc = order_ranks_parse(text, &spec->ranks, &spec->n_ranks, err);
		if (rc < 0)
			err_prefix(err, "key \"%s\"", key->name);
		return rc;
	}
	rc = value_u64(key, text, 0, ORDER_WORLD_MAX - 1, &rank, err);
	if (rc < 0)
		return rc;
	spec->ranks = order_alloc_u32(1);
	if (!spec->ranks)
		return err_set(err, -ENOMEM, "out of memory");
	spec->ranks[0] = (uint32_t)rank;
	spec->n_ranks = 1;
	return 0;
}

static int value_parse(struct order_spec *spec, const struct slot *slot, char *text,
		       struct err *err)
{
	char shown[NAME_SHOWN];
	bool is_on;

	text_escape(text, strlen(text), shown, sizeof(shown));
	switch (slot->key->type) {
	case ORDER_KEY_U64:
		return value_u64(slot->key, text, slot->key->min, slot->key->max, &slot->value->num,
				 err);
	case ORDER_KEY_SEED:
		if (text_to_seed(text, &slot->value->num) < 0)
			return err_set(
				err, -EINVAL,
				"key \"%s\": \"%s\" is not a seed, a whole number from -2^63 to 2^64-1",
				slot->key->name, shown);
		return 0;
	case ORDER_KEY_BOOL:
		if (text_to_bool(text, &is_on) < 0)
			return err_set(err, -EINVAL, "key \"%s\": \"%s\" is neither 0 nor 1",
				       slot->key->name, shown);
		slot->value->num = is_on;
		return 0;
	case ORDER_KEY_TEXT:
		slot->value->text = strdup(text);
		return slot->value->text ? 0 : err_set(err, -ENOMEM, "out of memory");
	case ORDER_KEY_WORLD:
		return value_u64(slot->key, text, 1, ORDER_WORLD_MAX, &spec->world, err);
	case ORDER_KEY_RANK:
	case ORDER_KEY_RANKS:
		return value_rank(spec, slot->key, text, err);
	}
	return err_set(err, -EINVAL, "key \"%s\" has no type", slot->key->name);
}

/* One "key=value". */
static int pair_parse(struct order_spec *spec, char *pair, struct err *err)
{
	char *value = pair;
	const char *name = strsep(&value, "=");
	struct slot slot = spec_slot(spec, name);
	int rc;

	if (*name == '\0')
		return err_set(err, -EINVAL, "a key is missing between or after ':'");
	if (!slot.key)
		return unknown_key(spec->kind, name, err);
	if (slot.value->is_set)
		return err_set(err, -EINVAL, "key \"%s\" is given twice", name);
	if (!value || *value == '\0')
		return err_set(err, -EINVAL, "key \"%s\" has no value, write %s=VALUE", name, name);
	rc = unescape(value, name, err);
	if (rc < 0)
		return rc;
	slot.value->is_set = true;
	return value_parse(spec, &slot, value, err);
}

/* Without a rank this node reads for all ranks of the world. */
static int ranks_default(struct order_spec *spec, struct err *err)
{
	if (spec->ranks)
		return 0;
	spec->ranks = order_alloc_u32(spec->world);
	if (!spec->ranks)
		return err_set(err, -ENOMEM, "out of memory");
	spec->n_ranks = (uint32_t)spec->world;
	for (uint32_t i = 0; i < spec->n_ranks; i++)
		spec->ranks[i] = i;
	return 0;
}

/* What no key can check alone. */
static int spec_check(struct order_spec *spec, struct err *err)
{
	const char *job = order_spec_path(spec, "job");
	uint32_t highest;
	int rc;

	for (unsigned i = 0; spec->kind->keys[i].name; i++)
		if (spec->kind->keys[i].is_required && !spec->own[i].is_set)
			return err_set(err, -EINVAL, "key \"%s\" is missing",
				       spec->kind->keys[i].name);
	rc = ranks_default(spec, err);
	if (rc < 0)
		return rc;
	highest = spec->ranks[spec->n_ranks - 1];
	if (highest >= spec->world)
		return err_set(err, -EINVAL,
			       "rank %u is outside the world of %" PRIu64
			       " (key \"world\"), ranks count from 0",
			       highest, spec->world);
	if (order_spec_u64(spec, "start_step") > 0 && order_spec_u64(spec, "batch") == 0)
		return err_set(err, -EINVAL, "key \"start_step\" needs key \"batch\"");
	return job ? order_job_check(job, err) : 0;
}

/* The local ranks in canonical form: nothing for all of the world, rank= for one. */
static void spec_put_ranks(struct buf_writer *w, const struct order_spec *spec)
{
	char *text AUTO_FREE = NULL;

	if (spec->n_ranks == spec->world)
		return;
	text = order_ranks_text(spec->ranks, spec->n_ranks);
	if (!text)
		w->is_bad = true;
	else
		buf_printf(w, ":%s=%s", spec->n_ranks == 1 ? "rank" : "ranks", text);
}

static void put_value(struct buf_writer *w, const struct order_spec *spec,
		      const struct order_key *key, const struct order_value *value)
{
	switch (key->type) {
	case ORDER_KEY_WORLD:
		if (spec->world != key->def)
			buf_printf(w, ":%s=%" PRIu64, key->name, spec->world);
		return;
	case ORDER_KEY_RANK:
		spec_put_ranks(w, spec);
		return;
	case ORDER_KEY_RANKS:
		return; /* with "rank" */
	case ORDER_KEY_TEXT:
		if (value->is_set) {
			buf_printf(w, ":%s=", key->name);
			put_escaped(w, value->text);
		}
		return;
	default:
		if (value->is_set && (key->is_required || value->num != key->def))
			buf_printf(w, ":%s=%" PRIu64, key->name, value->num);
	}
}

static void put_text(struct buf_writer *w, const char *key, const char *value)
{
	if (!value)
		return;
	buf_printf(w, ":%s=", key);
	put_escaped(w, value);
}

char *order_spec_renumbered(const struct order_spec *spec, const char *sort, const char *under,
			    uint64_t epoch)
{
	uint64_t start = order_spec_u64(spec, "start_epoch"),
		 epochs = order_spec_u64(spec, "epochs");
	struct buf_writer w;

	buf_writer_init(&w);
	buf_printf(&w, "%s", spec->name);
	for (unsigned i = 0; spec->kind->keys[i].name; i++)
		put_value(&w, spec, &spec->kind->keys[i], &spec->own[i]);
	/* More epochs than it said: their number is not known any more. */
	if (epochs && epoch >= start && epoch - start < epochs)
		buf_printf(&w, ":epochs=%" PRIu64, epochs - (epoch - start));
	if (epoch)
		buf_printf(&w, ":start_epoch=%" PRIu64, epoch);
	for (unsigned i = 0; order_common_keys[i].name; i++)
		if (i >= ORDER_SHAPE_KEYS && order_common_keys[i].type != ORDER_KEY_TEXT)
			put_value(&w, spec, &order_common_keys[i], &spec->common[i]);
	put_text(&w, "sort", sort);
	put_text(&w, "under", under);
	put_text(&w, "job", order_spec_path(spec, "job"));
	buf_put_u8(&w, '\0');
	if (w.is_bad) {
		buf_writer_fini(&w);
		return NULL;
	}
	return (char *)w.data; /* from malloc, and w is not used again */
}

static int spec_make_text(struct order_spec *spec, struct err *err)
{
	struct buf_writer w;

	buf_writer_init(&w);
	buf_printf(&w, "%s", spec->name);
	for (unsigned i = 0; spec->kind->keys[i].name; i++)
		put_value(&w, spec, &spec->kind->keys[i], &spec->own[i]);
	for (unsigned i = 0; order_common_keys[i].name; i++)
		put_value(&w, spec, &order_common_keys[i], &spec->common[i]);
	buf_put_u8(&w, '\0');
	if (w.is_bad) {
		buf_writer_fini(&w);
		return err_set(err, -ENOMEM, "out of memory");
	}
	spec->canonical = (char *)w.data; /* from malloc, and w is not used again */
	return 0;
}

static const struct order_key *key_of_type(const struct order_kind *kind, enum order_key_type type)
{
	for (const struct order_key *key = kind->keys; key->name; key++)
		if (key->type == type)
			return key;
	return NULL;
}

/* A variable of the environment, as if its key had been given. */
static int place_set(struct order_spec *spec, const struct order_key *key, const char *value,
		     const char *name, struct err *err)
{
	AUTO_FREE char *copy = strdup(value);
	struct slot slot = spec_slot(spec, key->name);
	int rc;

	if (!copy)
		return err_set(err, -ENOMEM, "out of memory");
	slot.value->is_set = true;
	rc = value_parse(spec, &slot, copy, err);
	if (rc < 0)
		err_prefix(err, "environment variable %s", name);
	return rc;
}

static int place_fill(struct order_spec *spec, const struct order_place *place, struct err *err)
{
	const struct order_key *world = key_of_type(spec->kind, ORDER_KEY_WORLD);
	const struct order_key *rank = key_of_type(spec->kind, ORDER_KEY_RANK);
	int rc;

	if (!place || !place->rank || !place->world || !world || !rank || spec->ranks ||
	    spec_slot(spec, world->name).value->is_set)
		return 0;
	if (place->why)
		return err_set(err, -EINVAL,
			       "environment variables %s and %s: %s; give world and ranks",
			       place->rank_name, place->world_name, place->why);
	if (strchr(place->rank, '-') > place->rank)
		rank = key_of_type(spec->kind, ORDER_KEY_RANKS);
	rc = place_set(spec, world, place->world, place->world_name, err);
	if (rc == 0)
		rc = place_set(spec, rank, place->rank, place->rank_name, err);
	if (rc == 0 && spec->ranks[spec->n_ranks - 1] >= spec->world)
		rc = err_set(err, -EINVAL,
			     "environment variables %s and %s: rank %u is outside the world of "
			     "%" PRIu64,
			     place->rank_name, place->world_name, spec->ranks[spec->n_ranks - 1],
			     spec->world);
	return rc;
}

static int spec_fill(struct order_spec *spec, char *pairs, const struct order_place *place,
		     struct err *err)
{
	int rc = 0;

	while (rc == 0 && pairs)
		rc = pair_parse(spec, strsep(&pairs, ":"), err);
	if (rc == 0)
		rc = place_fill(spec, place, err);
	if (rc == 0)
		rc = spec_check(spec, err);
	if (rc == 0)
		rc = spec_make_text(spec, err);
	return rc;
}

int order_spec_parse(const char *text, struct order_spec **ret, struct err *err)
{
	return order_spec_parse_placed(text, NULL, ret, err);
}

int order_spec_parse_placed(const char *text, const struct order_place *place,
			    struct order_spec **ret, struct err *err)
{
	char *copy AUTO_FREE = strdup(text);
	char *pairs = copy;
	const char *name;
	const struct order_kind_row *row;
	struct order_spec *spec;
	int rc;

	*ret = NULL;
	if (!copy)
		return err_set(err, -ENOMEM, "out of memory");
	name = strsep(&pairs, ":");
	if (*name == '\0')
		return err_set(err, -EINVAL, "an order starts with its kind: KIND[:key=value]...");
	row = order_kind_find(name);
	if (!row)
		return unknown_name(err, "order kind", name, order_kinds());

	spec = calloc(1, sizeof(*spec));
	if (!spec)
		return err_set(err, -ENOMEM, "out of memory");
	spec->name = row->name;
	spec->kind = row->kind;
	spec->world = 1;
	rc = spec_fill(spec, pairs, place, err);
	if (rc < 0) {
		err_prefix(err, "order %s", row->name);
		order_spec_free(spec);
		return rc;
	}
	*ret = spec;
	return 0;
}

/* The first `length` bytes, or as many as fit. */
static void copy_text(char *out, size_t size, const char *text, size_t length)
{
	length = MIN(length, size - 1);
	memcpy(out, text, length);
	out[length] = '\0';
}

void order_spec_show(const char *text, char *out, size_t size)
{
	char name[NAME_SHOWN] = "";
	size_t len = strcspn(text, ":");
	const struct order_kind_row *row;

	copy_text(out, size, text, strlen(text));
	copy_text(name, sizeof(name), text, len);
	row = order_kind_find(name);
	if (!row || strstr(text, ":seed="))
		return;
	for (const struct order_key *key = row->kind->keys; key->name; key++)
		if (strcmp(key->name, "seed") == 0 && key->type != ORDER_KEY_TEXT)
			snprintf(out, size, "%s:seed=%" PRIu64 "%s", name, key->def, text + len);
}

void order_spec_free(struct order_spec *spec)
{
	if (!spec)
		return;
	for (unsigned i = 0; i < ORDER_OWN_KEYS_MAX; i++)
		free(spec->own[i].text);
	for (unsigned i = 0; i < ORDER_COMMON_KEYS; i++)
		free(spec->common[i].text);
	free(spec->ranks);
	free(spec->canonical);
	free(spec);
}

int order_job_check(const char *name, struct err *err)
{
	size_t n = strlen(name);

	if (n == 0 || n > ORDER_JOB_MAX)
		return err_set(err, -EINVAL, "the name of a job has 1 to %d bytes, this one %zu",
			       ORDER_JOB_MAX, n);
	for (size_t i = 0; i < n; i++)
		if (name[i] < ' ' || name[i] > '~')
			return err_set(err, -EINVAL,
				       "the name of a job has printable ASCII only, byte %zu of this "
				       "one is none",
				       i + 1);
	return 0;
}

const char *order_spec_job(const struct order_spec *spec)
{
	return order_spec_path(spec, "job");
}

const char *order_spec_list_path(const struct order_spec *spec)
{
	return spec->kind == &order_kind_list ? order_spec_path(spec, "path") : NULL;
}

const char *order_spec_list_keys(const struct order_spec *spec)
{
	const char *path = strchr(spec->canonical, ':'); /* the first key; it has no ':' within */
	const char *rest = path ? strchr(path + 1, ':') : NULL;

	return rest ? rest : "";
}

const char *order_spec_text(const struct order_spec *spec)
{
	return spec->canonical;
}
