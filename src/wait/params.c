/* SPDX-License-Identifier: Apache-2.0 */
/* The options control_reads, ghost_bytes, switchback and cpu_pressure. */
#include <errno.h>
#include <string.h>

#include "clairfs/base/conf.h"
#include "clairfs/base/text.h"
#include "clairfs/wait.h"

#define SWITCHBACK_PERCENT_MIN 0.1

static int parse_share(const char *text, double *ret)
{
	uint64_t n;

	*ret = 0;
	if (strcmp(text, "off") == 0)
		return 0;
	if (strncmp(text, "1/", 2) != 0)
		return -EINVAL;
	if (text_to_u64(text + 2, &n) < 0 || n < 1 || n > 1000000000)
		return -EINVAL;
	*ret = 1.0 / (double)n;
	return 0;
}

/* Percent, also with its sign. */
static int parse_percent(const char *text, double *ret)
{
	size_t len = strlen(text);
	char number[32];
	double percent;

	*ret = 0;
	if (strcmp(text, "off") == 0)
		return 0;
	len -= len && text[len - 1] == '%';
	if (len >= sizeof(number))
		return -EINVAL;
	memcpy(number, text, len);
	number[len] = 0;
	if (text_to_real(number, &percent) < 0 || !(percent >= SWITCHBACK_PERCENT_MIN) ||
	    percent > 100 * SWITCHBACK_SHARE_MAX)
		return -EINVAL;
	*ret = percent / 100;
	return 0;
}

int wait_parse(const struct wait_options *o, struct wait_params *ret, struct err *err)
{
	/* An option without a value is NULL. */
	const char *control = o->control_reads ? o->control_reads : "";
	const char *switchback = o->switchback ? o->switchback : "";

	ret->crowded_share = (double)o->cpu_pressure / 100;
	if (parse_share(control, &ret->control_share) < 0)
		return err_set(err, -EINVAL,
			       "option control_reads: '%s' is neither 1/N, one of N reads, nor off",
			       control);
	if (parse_percent(switchback, &ret->switchback_share) < 0)
		return err_set(err, -EINVAL,
			       "option switchback: '%s' is neither percent, 0.1 to 10, nor off",
			       switchback);
	ret->is_ghost_auto = o->ghost_bytes == CONF_AUTO;
	ret->ghost_bytes = ret->is_ghost_auto ? o->available_bytes : o->ghost_bytes;
	return 0;
}
