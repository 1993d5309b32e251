/* SPDX-License-Identifier: Apache-2.0 */
/* Do the parsers of containers find the records where the real libraries have put them? The files
 * below format/ are theirs, and format/formats.txt, made with them by gen_formats.py, says where
 * each library finds its records. Every file is also cut off, and its bytes are changed: then a
 * parser may find other records or complain, but never go wrong. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "format_kit.h"

struct file {
	uint8_t *bytes;
	size_t size;
};

struct golden {
	char format[16], index[64], data[64], n[16];
	const char *rest; /* of the line: the places */
};

static char *golden_path(const char *name)
{
	const char *source = getenv("CLAIRFS_SOURCE");
	char *path = NULL;

	CHECK(asprintf(&path, "%s/tests/golden/format/%s", source ? source : ".", name) > 0);
	return path;
}

static struct file load(const char *name)
{
	AUTO_FREE char *path = golden_path(name);
	AUTO_FILE FILE *f = fopen(path, "re");
	struct file file = { .bytes = malloc(1 << 20) };

	CHECK(f && file.bytes);
	file.size = fread(file.bytes, 1, 1 << 20, f);
	CHECK(feof(f));
	return file;
}

static enum format format_named(const char *name)
{
	for (int i = 0; format_names[i]; i++)
		if (strcmp(format_names[i], name) == 0)
			return (enum format)i;
	return FORMAT_NONE;
}

/* Runs check for each line of formats.txt. */
static unsigned each_golden(void (*check)(const struct golden *g, struct kit_found *found))
{
	AUTO_FREE char *path = golden_path("formats.txt"), *line = NULL;
	AUTO_FREE struct kit_found *found = malloc(sizeof(*found));
	AUTO_FILE FILE *f = fopen(path, "re");
	size_t capacity = 0;
	unsigned n = 0;

	CHECK(f && found);
	while (getline(&line, &capacity, f) > 0) {
		struct golden g = { 0 };
		int at = 0;

		if (*line == '#')
			continue;
		CHECK(sscanf(line, "%15s %63s %63s %15s%n", g.format, g.index, g.data, g.n, &at) == 4);
		if (format_named(g.format) == FORMAT_NONE)
			continue;
		g.rest = line + at;
		check(&g, found);
		n++;
	}
	return n;
}

static void compare(const struct golden *g, struct kit_found *found)
{
	struct file index = load(g->index), data = load(g->data);
	int rc = kit_scan(format_named(g->format), index.bytes, index.size, data.size, found);
	uint64_t rows = 0, i = 0;
	const char *at = g->rest;

	printf("# %s\n", g->index);
	if (strcmp(g->n, "whole") == 0) {
		CHECK_INT(rc, -ENOTSUP);
	} else {
		CHECK_STR(found->err.msg, "");
		CHECK_INT(rc, 0);
		for (; *at == ' '; i++) {
			CHECK(i < found->n);
			CHECK_U64(found->range[i].offset, strtoull(at + 1, (char **)&at, 10));
			CHECK_U64(found->range[i].length, strtoull(at + 1, (char **)&at, 10));
			CHECK_U64(found->rows[i],
				  *at == ':' ? strtoull(at + 1, (char **)&at, 10) : 1);
			rows += found->rows[i];
		}
		CHECK_U64(found->n, i);
		CHECK_U64(rows, strtoull(g->n, NULL, 10));
	}
	free(index.bytes);
	free(data.bytes);
}

static void records_are_where_the_libraries_have_them(void)
{
	CHECK(each_golden(compare) >= 35);
}

/* Every byte of the ends of a file, where what describes the records is, and some in between. */
static size_t next_place(size_t at, size_t size)
{
	size_t ends = size > 16384 ? 256 : 1024;

	return at < ends || size - at <= ends ? at + 1 : MIN(at + size / 64, size - ends);
}

/* As if the file ended there: its index, and where that is another file the data. */
static void cut(const struct golden *g, struct kit_found *found)
{
	struct file index = load(g->index), data = load(g->data);
	bool is_own = strcmp(g->index, g->data) == 0;
	bool may_end = strcmp(g->format, "tar") == 0 || strcmp(g->format, "tfrecord") == 0 ||
		       strstr(g->index, "_modes.idx");
	struct file part = index;

	for (part.size = 0; part.size < index.size; part.size = next_place(part.size, index.size)) {
		int rc = kit_scan(format_named(g->format), part.bytes, part.size,
				  is_own ? part.size : data.size, found);

		/* A tar may end before any header, in the padding of a member, or without zeros at
		 * its end; a TFRecord before any record; an index of Megatron's before its modes. */
		if (rc == 0 && !may_end)
			printf("# %s cut at %zu\n", g->index, part.size);
		CHECK(rc < 0 || may_end);
	}
	for (uint64_t size = 0; !is_own && size < data.size; size++)
		CHECK_INT(kit_scan(format_named(g->format), index.bytes, index.size, size, found), -EBADMSG);
	free(index.bytes);
	free(data.bytes);
}

static void files_cut_off_are_refused(void)
{
	CHECK(each_golden(cut) >= 35);
}

static void change(const struct golden *g, struct kit_found *found)
{
	struct file index = load(g->index), data = load(g->data);
	uint8_t values[] = { 0, 0x7f, 0xff };

	for (size_t i = 0; i < index.size; i = next_place(i, index.size)) {
		uint8_t before = index.bytes[i];

		for (size_t v = 0; v < ARRAY_LEN(values); v++) {
			int rc;

			index.bytes[i] = values[v];
			rc = kit_scan(format_named(g->format), index.bytes, index.size, data.size, found);
			CHECK(rc == 0 || rc == -EBADMSG || rc == -ENOTSUP || rc == -E2BIG);
		}
		index.bytes[i] = before;
	}
	free(index.bytes);
	free(data.bytes);
}

static void changed_bytes_lead_nowhere_else(void)
{
	CHECK(each_golden(change) >= 35);
}

static int count_shard(void *ctx, const struct format_shard *shard)
{
	struct kit_found *found = ctx;
	AUTO_FREE char *name = strndup(shard->name, shard->len);

	CHECK(strncmp(name, "shard.0000", 10) == 0 || strncmp(name, "chunk-0-", 8) == 0);
	CHECK_INT(name[shard->name[0] == 's' ? 10 : 8] - '0', (int)found->n);
	found->n++;
	found->limit += shard->samples;
	return 0;
}

static void indexes_name_the_shards_in_their_order(void)
{
	const struct {
		const char *name;
		enum format format;
		uint64_t shards, samples;
	} cases[] = { { "mds/index.json", FORMAT_MDS, 3, 25 },
		      { "litdata/tensors/index.json", FORMAT_LITDATA, 3, 12 } };
	AUTO_FREE struct kit_found *found = calloc(1, sizeof(*found));

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct file file = load(cases[i].name);
		enum format format;
		struct err err = { 0 };

		found->n = found->limit = 0;
		CHECK_INT(format_json_index(file.bytes, file.size, &format, count_shard, found, &err),
			  0);
		CHECK_INT(format, cases[i].format);
		CHECK_U64(found->n, cases[i].shards);
		CHECK_U64(found->limit, cases[i].samples);
		free(file.bytes);
	}
}

static int take_line(void *ctx, const struct format_line *line)
{
	struct kit_found *found = ctx;

	CHECK(!line->path || line->len > 0);
	found->range[found->n++] = (struct format_range){ line->offset, line->length };
	return 0;
}

static void lists_say_what_the_libraries_wrote(void)
{
	struct file dali = load("tfrecord/train.idx"), references = load("list/chunks.json");
	struct kit_found *list = calloc(1, sizeof(*list)), *records = calloc(1, sizeof(*records));
	struct file data = load("tfrecord/train.tfrecord");
	struct err err = { 0 };

	CHECK_INT(format_list_of(dali.bytes, dali.size), FORMAT_LIST_OFFSETS);
	CHECK_INT(format_list_read(FORMAT_LIST_OFFSETS, dali.bytes, dali.size, take_line, list, &err),
		  0);
	CHECK_INT(kit_scan(FORMAT_TFRECORD, data.bytes, data.size, data.size, records), 0);
	CHECK_U64(list->n, records->n);
	CHECK_BYTES(list->range, records->range, list->n * sizeof(*list->range));
	/* 12 chunks of 14 bytes, in the order of their numbers (0, 1, 2, 10, not 0, 1, 10, 2). */
	list->n = 0;
	CHECK_INT(format_list_of(references.bytes, references.size), FORMAT_LIST_KERCHUNK);
	CHECK_INT(format_list_read(FORMAT_LIST_KERCHUNK, references.bytes, references.size, take_line,
				   list, &err),
		  0);
	CHECK_U64(list->n, 12);
	for (uint64_t i = 0; i < 12; i++)
		CHECK_U64(list->range[i].offset, 4016 + 14 * i);
	free(dali.bytes);
	free(references.bytes);
	free(data.bytes);
	free(list);
	free(records);
}

static const struct check_test tests[] = {
	{ "records_are_where_the_libraries_have_them", records_are_where_the_libraries_have_them },
	{ "files_cut_off_are_refused", files_cut_off_are_refused },
	{ "changed_bytes_lead_nowhere_else", changed_bytes_lead_nowhere_else },
	{ "indexes_name_the_shards_in_their_order", indexes_name_the_shards_in_their_order },
	{ "lists_say_what_the_libraries_wrote", lists_say_what_the_libraries_wrote },
};
CHECK_MAIN(tests)
