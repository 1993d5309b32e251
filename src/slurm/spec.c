/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a job asks for, from its comment or the option of the SPANK plugin: text of an ordinary
 * user that reaches a process of root. So nothing is unescaped, expanded or passed over. The
 * characters allowed are those that shells, globs, INI files and -o lists leave alone; the first
 * other one ends the matter with a reason. Whether the source exists is not asked here: the daemon
 * asks, as the user.
 *
 * Pure.
 */
#include <errno.h>
#include <string.h>

#include "clairfs/base/text.h"
#include "clairfs/slurm.h"

#define WORD "clairfs:"

/* Options of a mount that are the job's to choose. Others cost the node or other users
 * something. */
static const char *const keys[] = { "order", "layout", "recover", "ram", NULL };

static bool is_allowed(unsigned char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       (c != 0 && strchr("/._+@%:=~-", c));
}

static int check_characters(const char *text, size_t len, struct err *err)
{
	char shown[16];

	if (len == 0)
		return err_set(err, -EINVAL, "the spec is empty");
	if (len >= SLURM_SPEC_MAX)
		return err_set(err, -EINVAL, "the spec is longer than %d bytes",
			       SLURM_SPEC_MAX - 1);
	for (size_t i = 0; i < len; i++)
		if (text[i] != ',' && !is_allowed((unsigned char)text[i]))
			return err_set(err, -EINVAL, "byte %zu of the spec, '%s', is not allowed",
				       i + 1, text_escape(text + i, 1, shown, sizeof(shown)));
	return 0;
}

static int check_spec_source(const char *path, struct err *err)
{
	if (*path != '/')
		return err_set(err, -EINVAL, "the source '%s' is no absolute path", path);
	for (const char *at = path; *at;) {
		size_t len;

		at++; /* the slash */
		len = strcspn(at, "/");
		if ((len == 0 && (*at || at == path + 1)) || (len == 1 && *at == '.') ||
		    (len == 2 && at[0] == '.' && at[1] == '.'))
			return err_set(err, -EINVAL,
				       "the source '%s' has a part that is empty, . or ..", path);
		at += len;
	}
	return 0;
}

static int take_spec_option(struct slurm_spec *spec, char *item, struct err *err)
{
	char *value = strchr(item, '=');
	const char *near;
	int k = 0;

	if (!value || value == item || !value[1])
		return err_set(err, -EINVAL, "'%s' is not KEY=VALUE", item);
	*value++ = 0;
	while (keys[k] && strcmp(keys[k], item) != 0)
		k++;
	if (!keys[k]) {
		near = text_nearest(item, keys);
		return err_set(err, -EINVAL, "a job may not set '%s'%s%s%s", item,
			       near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
	}
	for (unsigned i = 0; i < spec->n_options; i++)
		if (strcmp(spec->option[i].key, item) == 0)
			return err_set(err, -EINVAL, "'%s' comes twice", item);
	spec->option[spec->n_options].key = keys[k];
	spec->option[spec->n_options++].value = value;
	return 0;
}

int slurm_spec_parse(const char *text, size_t len, struct slurm_spec *ret, struct err *err)
{
	char *next, *item;
	int rc;

	memset(ret, 0, sizeof(*ret));
	rc = check_characters(text, len, err);
	if (rc < 0)
		return rc;
	memcpy(ret->text, text, len);
	if (strcmp(ret->text, "off") == 0)
		return 0;
	next = ret->text;
	item = strsep(&next, ",");
	rc = check_spec_source(item, err);
	while (rc == 0 && next)
		rc = take_spec_option(ret, strsep(&next, ","), err);
	if (rc == 0)
		ret->source = item;
	return rc;
}

int slurm_comment_spec(const char *comment, const char **ret_at, size_t *ret_len)
{
	int found = 0;

	for (const char *at = comment; *at;) {
		size_t len;

		at += strspn(at, " ");
		len = strcspn(at, " ");
		if (strncmp(at, WORD, strlen(WORD)) == 0 && found++ == 0) {
			*ret_at = at + strlen(WORD);
			*ret_len = len - strlen(WORD);
		}
		at += len;
	}
	return found == 1 ? 0 : found ? -EINVAL : -ENOENT;
}

static const char *find_variable(char *const *environment, const char *name)
{
	size_t len = strlen(name);

	for (; environment && *environment; environment++)
		if (strncmp(*environment, name, len) == 0 && (*environment)[len] == '=')
			return *environment + len + 1;
	return NULL;
}

static int parse_variable(char *const *environment, const char *name, uint32_t *ret, struct err *err)
{
	const char *text = find_variable(environment, name);
	uint64_t v;

	if (!text)
		return err_set(err, -EINVAL, "Slurm did not set %s", name);
	if (text_to_u64(text, &v) < 0 || v >= UINT32_MAX)
		return err_set(err, -EINVAL, "%s is no number", name);
	*ret = (uint32_t)v;
	return 0;
}

static void find_wish(char *const *environment, struct slurm_job *ret)
{
	/* As Slurm forwards --clairfs of the plugin "clairfs". */
	const char *option = find_variable(environment, "SPANK__SLURM_SPANK_OPTION_clairfs_clairfs");
	const char *comment = find_variable(environment, "SLURM_JOB_COMMENT");

	if (option) {
		ret->wish = option;
		ret->wish_len = strlen(option);
	} else if (comment) {
		ret->is_wish_bad =
			slurm_comment_spec(comment, &ret->wish, &ret->wish_len) == -EINVAL;
	}
}

int slurm_job_parse(char *const *environment, struct slurm_job *ret, struct err *err)
{
	int rc;

	memset(ret, 0, sizeof(*ret));
	rc = parse_variable(environment, "SLURM_JOB_ID", &ret->id, err);
	if (rc == 0 && ret->id == 0)
		rc = err_set(err, -EINVAL, "SLURM_JOB_ID is 0");
	if (rc == 0)
		rc = parse_variable(environment, "SLURM_JOB_UID", &ret->uid, err);
	if (rc == 0)
		rc = parse_variable(environment, "SLURM_JOB_GID", &ret->gid, err);
	if (rc == 0)
		find_wish(environment, ret);
	return rc;
}
