/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as the record that a killed daemon left. Nothing is named by it but one
 * absolute path that ends in .prom, and the file beside it that it was written in. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "clairfs/metrics/leftover.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[PATH_MAX], id[MOUNT_WORD], *text = strndup((const char *)data, size);
	const char *name;
	char *temp;

	assert(text);
	mount_word(text, id);
	assert(strlen(id) < MOUNT_WORD && !strpbrk(id, "/ \n\""));
	free(text);
	if (!leftover_parse((const char *)data, size, path))
		return 0;
	assert(strlen(path) == size - 1 && path[0] == '/' && !strchr(path, '\n'));
	name = strrchr(path, '/') + 1;
	assert(strlen(path) > 5 && strcmp(path + strlen(path) - 5, ".prom") == 0);
	temp = leftover_temp(path);
	assert(temp && strncmp(temp, path, (size_t)(name - path)) == 0 &&
	       temp[name - path] == '.' && !strchr(temp + (name - path), '/'));
	free(temp);
	return 0;
}
