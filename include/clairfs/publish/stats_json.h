/* SPDX-License-Identifier: Apache-2.0 */
/* What commands take from a mount's stats.json: member b of object a. Another version's may have
 * none. */
#ifndef CLAIRFS_PUBLISH_STATS_JSON_H
#define CLAIRFS_PUBLISH_STATS_JSON_H

#include <jansson.h>

static inline double num(const json_t *root, const char *a, const char *b)
{
	return json_number_value(json_object_get(json_object_get(root, a), b));
}

static inline const char *str(const json_t *root, const char *a, const char *b)
{
	const char *s = json_string_value(json_object_get(json_object_get(root, a), b));

	return s ? s : "";
}

#endif
