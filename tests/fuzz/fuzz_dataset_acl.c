/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as an access list of either kind. Whatever they say, nobody gets a right
 * that the mode does not give, and the owner and the type keep theirs. */
#include <stdlib.h>

#include "src/dataset/rights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(uint16_t before, uint16_t after)
{
	if ((after & ~before) || ((before ^ after) & ~077))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint16_t modes[] = { S_IFREG | 0777, S_IFREG | 0640, S_IFDIR | 02755 };

	for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
		check(modes[i], acl_narrow_posix(data, size, modes[i]));
		check(modes[i], acl_narrow_nfs4(data, size, modes[i]));
	}
	return 0;
}
