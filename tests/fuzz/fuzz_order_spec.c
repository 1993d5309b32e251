/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any text as a spec, and an epoch of what parses. Besides not crashing: an error has
 * one line, the canonical text is a fixed point, and every position holds a sample. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "clairfs/order.h"

#define N 37

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Some keys are sizes, and a large one is allowed: too large for a test are numbers of more digits
 * than this in a spec that has one. */
static bool is_small(const char *text)
{
	static const char *const sizes[] = { "num_samples=", "documents=",  "document_epochs=",
					     "batch=",       "world=",      "nodes=",
					     "workers=",     "start_epoch=" };

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		const char *at = strstr(text, sizes[i]);

		if (at && strspn(at + strlen(sizes[i]), "0123456789") > 3)
			return false;
	}
	return true;
}

static void compute(const struct order_spec *spec)
{
	struct err err = { 0 };
	struct order *order;
	struct order_epoch *e;

	if (order_new(spec, &(struct order_params){ .n = N }, &order, &err) < 0)
		return;
	if (is_small(order_spec_text(spec))) {
		int rc = order_epoch_new(order, order_info(order)->start_epoch, &e, &err);

		assert(rc == 0 || (rc == -ENOENT && err.msg[0]));
		for (uint64_t pos = 0; rc == 0 && pos < e->length; pos++)
			assert(e->sample[pos] < N);
		order_epoch_free(e); /* NULL if there is no such epoch */
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
	if (!strstr(text, "path=")) /* never open a file somebody made up */
		compute(spec);
	order_spec_free(again);
	order_spec_free(spec);
	return 0;
}
