/* SPDX-License-Identifier: Apache-2.0 */
/* index.json, which MosaicML Streaming and litdata put beside their shards: which files there are,
 * in the order of their samples, and how many samples each has.
 *
 *   MosaicML {"version": 2, "shards": [{"format": "mds", "samples": 21,
 *             "raw_data": {"basename": "shard.00000.mds", ...}, ...}, ...]}
 *   litdata  {"chunks": [{"filename": "chunk-0-0.bin", "chunk_size": 21, ...}, ...],
 *             "config": {"compression": null, ...}}
 *
 * jansson parses it. Names are names only: whoever is told one looks it up below its own
 * directory. Pure, any thread. */
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "format_priv.h"

typedef int shard_fn(void *ctx, const struct format_shard *shard);

static int bad_index(size_t i, const char *what, struct err *err)
{
	return err_set(err, -EBADMSG, "index.json: shard %zu has no %s", i, what);
}

static int tell_shard(const json_t *name, const json_t *samples, size_t i, shard_fn *shard,
		      void *ctx, struct err *err)
{
	struct format_shard told;

	if (!json_is_string(name) || json_string_length(name) == 0)
		return bad_index(i, "name of a file", err);
	if (!json_is_integer(samples) || json_integer_value(samples) < 0)
		return bad_index(i, "number of samples", err);
	told.name = json_string_value(name);
	told.len = json_string_length(name);
	told.samples = (uint64_t)json_integer_value(samples);
	return shard(ctx, &told);
}

static int tell_mosaic(const json_t *shards, shard_fn *shard, void *ctx, struct err *err)
{
	const json_t *item;
	size_t i;

	json_array_foreach(shards, i, item) {
		const char *kind = json_string_value(json_object_get(item, "format"));
		int rc;

		if (kind && strcmp(kind, "mds") != 0)
			return err_set(err, -ENOTSUP,
				       "index.json: shards of another format than mds have no table");
		rc = tell_shard(json_object_get(json_object_get(item, "raw_data"), "basename"),
				json_object_get(item, "samples"), i, shard, ctx, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int tell_litdata(const json_t *root, const json_t *chunks, shard_fn *shard, void *ctx,
			struct err *err)
{
	const json_t *compression =
		json_object_get(json_object_get(root, "config"), "compression");
	const json_t *item;
	size_t i;

	if (compression && !json_is_null(compression))
		return err_set(err, -ENOTSUP, "index.json: compressed chunks have no table");
	json_array_foreach(chunks, i, item) {
		int rc = tell_shard(json_object_get(item, "filename"),
				    json_object_get(item, "chunk_size"), i, shard, ctx, err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

int format_json_load(const void *bytes, size_t size, json_t **ret, struct err *err)
{
	json_error_t why;

	if (size > FORMAT_JSON_MAX)
		return err_set(err, -E2BIG, "more than %u MiB of JSON", FORMAT_JSON_MAX >> 20);
	*ret = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, &why);
	if (!*ret)
		return err_set(err, -EBADMSG, "no JSON: line %d: %s", why.line, why.text);
	return 0;
}

int format_json_index(const void *bytes, size_t size, enum format *ret, shard_fn *shard, void *ctx,
		      struct err *err)
{
	const json_t *shards, *chunks;
	json_t *root = NULL;
	int rc = format_json_load(bytes, size, &root, err);

	*ret = FORMAT_NONE;
	if (rc < 0)
		return rc;
	shards = json_object_get(root, "shards");
	chunks = json_object_get(root, "chunks");
	if (json_is_array(shards)) {
		*ret = FORMAT_MDS;
		rc = tell_mosaic(shards, shard, ctx, err);
	} else if (json_is_array(chunks)) {
		*ret = FORMAT_LITDATA;
		rc = tell_litdata(root, chunks, shard, ctx, err);
	}
	json_decref(root);
	return rc;
}
