/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any text as a spec, and an epoch of what parses. Besides not crashing: an error has
 * one line, the canonical text is a fixed point, and every position holds a sample. */
#include <assert.h>
#include <string.h>

#include "clairfs/order.h"

#define N 37

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void compute(const struct order_spec *spec)
{
	struct err err = { 0 };
	struct order *order;
	struct order_epoch *e;

	if (order_new(spec, &(struct order_params){ .n = N }, &order, &err) < 0)
		return;
	if (order_info(order)->world <= 4096) {
		int rc = order_epoch_new(order, order_info(order)->start_epoch, &e, &err);

		assert(rc == 0);
		for (uint64_t pos = 0; pos < e->length; pos++)
			assert(e->sample[pos] < N);
		order_epoch_free(e);
	}
	order_free(order);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text AUTO_FREE = strndup((const char *)data, size);
	struct err err = { 0 };
	struct order_spec *spec, *again;
	int rc = order_spec_parse(text, &spec, &err);

	if (rc < 0) {
		assert(err.code == rc && err.msg[0] && !strchr(err.msg, '\n'));
		return 0;
	}
	rc = order_spec_parse(order_spec_text(spec), &again, &err);
	assert(rc == 0);
	assert(strcmp(order_spec_text(spec), order_spec_text(again)) == 0);
	if (strncmp(text, "list:", 5) != 0) /* never open a file somebody made up */
		compute(spec);
	order_spec_free(again);
	order_spec_free(spec);
	return 0;
}
