/* SPDX-License-Identifier: Apache-2.0 */
/* Orders: from a spec to the order of this mount's dataset, at the start and whenever a job tells
 * another one through the mount; and what the launcher of a job says about its place.
 *
 * Whoever may reach the mount may read through it, but an order is everybody's: with allow_other
 * only the mount's owner and root may change it. The rank and world of the environment are those of
 * whoever types a spec, so clients fill them in; the daemon's own environment says nothing about a
 * job that comes later. wire_announce runs on the announce thread of fs, one at a time, and may
 * read a list file for as long as that takes; the text is read by the reactor. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "clairfs/base/log.h"
#include "daemon_priv.h"

void daemon_job_place(struct order_place *ret)
{
	*ret = (struct order_place){ .rank = getenv("RANK"),
				     .world = getenv("WORLD_SIZE"),
				     .rank_name = "RANK",
				     .world_name = "WORLD_SIZE" };
	if (ret->rank && ret->world)
		return;
	*ret = (struct order_place){ .rank = getenv("SLURM_PROCID"),
				     .world = getenv("SLURM_NTASKS"),
				     .rank_name = "SLURM_PROCID",
				     .world_name = "SLURM_NTASKS" };
}

void wire_order_init(struct wire *w)
{
	mutex_init(&w->order_mu);
}

void wire_order_fini(struct wire *w)
{
	free(w->order_text);
	mutex_fini(&w->order_mu);
}

int wire_make_order(struct wire *w, const struct order_spec *spec, struct order **ret,
		    struct err *err)
{
	struct order_params op;

	daemon_order_params(w->dataset, &op);
	return order_new(spec, &op, ret, err);
}

int wire_set_order_text(struct wire *w, const char *text)
{
	char *copy = text ? strdup(text) : NULL, *old;

	if (text && !copy)
		return -ENOMEM;
	mutex_lock(&w->order_mu);
	old = w->order_text;
	w->order_text = copy;
	mutex_unlock(&w->order_mu);
	free(old);
	return 0;
}

char *wire_get_order_text(struct wire *w)
{
	char *copy;

	mutex_lock(&w->order_mu);
	copy = w->order_text ? strdup(w->order_text) : NULL;
	mutex_unlock(&w->order_mu);
	return copy;
}

int wire_render_order(void *ctx, struct buf_writer *out)
{
	AUTO_FREE char *text = wire_get_order_text(ctx);

	buf_printf(out, "%s\n", text ? text : "none");
	return out->is_bad ? -ENOMEM : 0;
}

/* NULL: no order any more. */
static int replace_order(struct wire *w, const struct order_spec *spec, struct err *err)
{
	struct order *order = NULL;
	int rc = spec ? wire_make_order(w, spec, &order, err) : 0;

	if (rc < 0)
		return rc;
	rc = cache_set_order(w->cache, order);
	if (rc < 0)
		return err_set_errno(err, rc, "the order stays as it was");
	if (wire_set_order_text(w, spec ? order_spec_text(spec) : NULL) < 0)
		log_warn("out of memory: status shows the order before");
	return 0;
}

static int announce(struct wire *w, uint32_t uid, const char *text, struct err *err)
{
	struct order_spec *spec = NULL;
	int rc = 0;

	if (uid != 0 && uid != geteuid())
		return err_set(err, -EPERM,
			       "only root and the user who mounted it may announce an order");
	if (strcmp(text, "none") != 0)
		rc = order_spec_parse(text, &spec, err);
	if (rc == 0)
		rc = replace_order(w, spec, err);
	if (rc == 0)
		log_info("%s: order announced by user %u: %s", w->mountpoint, uid,
			 spec ? order_spec_text(spec) : "none");
	order_spec_free(spec);
	return rc;
}

int wire_announce(void *ctx, uint32_t uid, const char *text, struct buf_writer *answer)
{
	struct wire *w = ctx;
	struct err err = { 0 };
	int rc = announce(w, uid, text, &err);
	AUTO_FREE char *now = rc == 0 ? wire_get_order_text(w) : NULL;

	buf_printf(answer, "%s", rc < 0 ? err.msg : now ? now : "none");
	return rc;
}
