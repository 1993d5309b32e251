/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as a list of records, of the kind that it seems to be and of every other
 * one, and as index.json. Paths and names must be parts of the list, or strings of its JSON. */
#include <assert.h>
#include <string.h>

#include "clairfs/format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int take_line(void *ctx, const struct format_line *line)
{
	volatile char sum = 0;

	assert(line->number > 0 && (!line->path || line->len > 0));
	for (size_t i = 0; line->path && i < line->len; i++)
		sum = (char)(sum + line->path[i]);
	return *(int *)ctx;
}

static int take_shard(void *ctx, const struct format_shard *shard)
{
	assert(shard->len > 0 && memchr(shard->name, '\0', shard->len) == NULL);
	return *(int *)ctx;
}

static void read_as(enum format_list list, const uint8_t *data, size_t size, int answer)
{
	struct err err = { 0 };
	int rc = format_list_read(list, data, size, take_line, &answer, &err);

	assert(rc <= 0 && (rc == 0 || rc == answer || (err.msg[0] && !strchr(err.msg, '\n'))));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int answer = size % 2 ? 0 : -7; /* of who takes the lines */
	enum format format;
	struct err err = { 0 };
	int rc;

	read_as(format_list_of(data, size), data, size, 0);
	for (int list = 0; list <= FORMAT_LIST_KERCHUNK; list++)
		read_as((enum format_list)list, data, size, answer);
	rc = format_json_index(data, size, &format, take_shard, &answer, &err);
	assert(rc <= 0 && (rc == 0 || rc == answer || (err.msg[0] && !strchr(err.msg, '\n'))));
	return 0;
}
