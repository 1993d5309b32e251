/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any text as the INI file. An error is one line that names the file; what is accepted
 * is within the limits of its rows, and comes out as it went in when it is printed and read again.
 */
#include <assert.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clairfs/base/conf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct values {
	bool on;
	uint64_t number, bytes;
	double real;
	int choice;
	char *text, *key_text;
	uint64_t key;
};

static const char *const choices[] = { "one", "two", NULL };
/* clang-format off */
static const struct conf_option rows[] = {
	{ .name = "on", .type = CONF_BOOL, .offset = offsetof(struct values, on), .initial = "off" },
	{ .name = "number", .type = CONF_U64, .offset = offsetof(struct values, number),
	  .initial = "3", .min = 1, .max = 100 },
	{ .name = "bytes", .type = CONF_BYTES, .offset = offsetof(struct values, bytes),
	  .initial = "1M" },
	{ .name = "real", .type = CONF_REAL, .offset = offsetof(struct values, real),
	  .initial = "0.5", .max = 10 },
	{ .name = "choice", .type = CONF_CHOICE, .offset = offsetof(struct values, choice),
	  .initial = "one", .choices = choices },
	{ .name = "text", .type = CONF_TEXT, .offset = offsetof(struct values, text) },
	{ .name = "keys", .type = CONF_KEYS },
	{ .name = NULL },
};
static const struct conf_option keys[] = {
	{ .name = "key", .type = CONF_U64, .offset = offsetof(struct values, key), .initial = "7" },
	{ .name = "path", .type = CONF_TEXT, .offset = offsetof(struct values, key_text) },
	{ .name = NULL },
};
/* clang-format on */
static const struct conf_table key_table = { .options = keys, .section = "keys" };
static const struct conf_table table = { .options = rows, .section = "clairfs", .keys = &key_table };

/* A file of those bytes; its path stays as long as the descriptor. */
static int file_of(const void *data, size_t size, char path[64])
{
	int fd = memfd_create("conf", MFD_CLOEXEC);

	assert(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	snprintf(path, 64, "/proc/self/fd/%d", fd);
	return fd;
}

static bool is_same_text(const char *a, const char *b)
{
	return !a == !b && (!a || strcmp(a, b) == 0);
}

static void same_again(const struct values *values)
{
	char path[64], *printed = NULL;
	struct err err = { 0 };
	struct values again;
	size_t length;
	FILE *out = open_memstream(&printed, &length);
	int fd, rc;

	assert(out);
	conf_print(&table, values, out);
	fclose(out);
	fd = file_of(printed, length, path);
	rc = conf_init(&table, &again, &err);
	assert(rc == 0);
	rc = conf_load(&table, &again, path, &err);
	assert(rc == 0);
	assert(again.on == values->on && again.number == values->number &&
	       again.bytes == values->bytes && again.choice == values->choice);
	assert(again.key == values->key);
	assert(is_same_text(again.text, values->text));
	assert(is_same_text(again.key_text, values->key_text));
	conf_fini(&table, &again);
	close(fd);
	free(printed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err err = { 0 };
	struct values values;
	char path[64];
	int fd = file_of(data, size, path), rc = conf_init(&table, &values, &err);

	assert(rc == 0);
	rc = conf_load(&table, &values, path, &err);
	if (rc < 0)
		assert(strncmp(err.msg, path, strlen(path)) == 0 && !strchr(err.msg, '\n'));
	assert(values.number >= 1 && values.number <= 100);
	assert(values.real >= 0 && values.real <= 10);
	assert(values.choice == 0 || values.choice == 1);
	if (rc == 0)
		same_again(&values);
	conf_fini(&table, &values);
	close(fd);
	return 0;
}
