/* SPDX-License-Identifier: Apache-2.0 */
/* Orders: from a spec to the order of this mount's dataset, at the start and whenever a job tells
 * another one through the mount.
 *
 * Whoever may reach the mount may read through it, but an order is everybody's: with allow_other
 * only the mount's owner and root may change it (fs refuses others before they come here). Root may
 * be that of a container, and a job need not have the daemon's rights: of what they name only files
 * beneath the source are read (path.c), and the answer, which everybody may see, never shows
 * what is in a file. The words of the mounting user (option order) may name any.
 *
 * The rank and world of the environment are those of whoever types a spec, so clients fill them in;
 * the daemon's own environment says nothing about a job that comes later. orders_announce runs on the
 * threads of fs, one of each lane, and may read a list file for as long as that takes; the text is
 * read by the reactor. The owner gets an order that is made: nobody else may ever wait for a file. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "clairfs/base/log.h"
#include "clairfs/dataset/records.h"
#include "clairfs/hint.h"
#include "orders_priv.h"

/* list: what was told in parts, or NULL. */
static int make_order(struct orders *o, const struct order_spec *spec, const struct told_list *list,
		      const struct order_ask *ask, struct order **ret, struct err *err)
{
	struct order_params op;

	orders_dataset_params(o->dataset, &op);
	op.memory = o->memory;
	if (list)
		told_list_params(list, &op);
	/* What was told reads no file, and until we are mounted nobody waits for us. */
	if (list || !o->maker)
		return order_new(spec, &op, ret, err);
	return order_make(o->maker, spec, &op, ask, ret, err);
}

/* The order in force is in the words of the mounting user. */
static bool is_own_words(struct orders *o)
{
	bool is_own;

	mutex_lock(&o->order_mu);
	is_own = o->jobs.n && o->jobs.job[0].is_own_words;
	mutex_unlock(&o->order_mu);
	return is_own;
}

int orders_make(struct orders *o, const struct order_spec *spec, struct order **ret,
		struct err *err)
{
	struct order_ask ask = { .lane = MAKE_LANE_OWN, .is_own_words = is_own_words(o) };

	return make_order(o, spec, NULL, &ask, ret, err);
}

bool orders_is_unshuffled(const char *text)
{
	return strncmp(text, "sequential", strlen("sequential")) == 0 || strstr(text, ":shuffle=0");
}

void orders_log_note(const struct order_spec *spec, const struct order *order)
{
	if (order_note(order))
		log_info("order %s: %s", order_spec_text(spec), order_note(order));
}

void orders_get_told(struct orders *o, struct orders_told *ret)
{
	mutex_lock(&o->order_mu);
	*ret = o->told;
	ret->answer = o->told.answer ? strdup(o->told.answer) : NULL;
	mutex_unlock(&o->order_mu);
}

/* For those who get no answer, and for everybody else who wonders. */
static void keep_answer(struct orders *o, const char *answer, bool is_refused)
{
	char *copy = strdup(answer), *old;

	mutex_lock(&o->order_mu);
	o->told.n++;
	o->told.n_refused += is_refused;
	o->told.is_refused = is_refused;
	old = o->told.answer;
	o->told.answer = copy;
	mutex_unlock(&o->order_mu);
	free(old);
}

#define NONE_OF_JOB "none:job="

/* What somebody says. */
struct saying {
	struct order_spec *spec; /* NULL: none any more, or a part of a list that is not its last */
	bool is_over;            /* false: more parts are to come */
	bool is_question;        /* nothing is to change */
	uint64_t n;              /* how many samples the order asked about numbers */
};

/* A list may be of samples or of records, as its keys say; order_new looks at which. */
static uint32_t most_numbers(const struct dataset *ds)
{
	return MAX(dataset_n_samples(ds), dataset_n_records(ds));
}

static bool is_withdrawal(const char *text)
{
	return strcmp(text, "none") == 0 || strncmp(text, NONE_OF_JOB, strlen(NONE_OF_JOB)) == 0;
}

static int take_saying(struct orders *o, const struct orders_said *told, struct saying *ret,
		       struct err *err)
{
	*ret = (struct saying){ .is_over = true };
	if (told->uid != 0 && told->uid != geteuid())
		return err_set(err, -EPERM,
			       "only root and the user who mounted it may announce an order");
	if (told->list) {
		ret->is_over = told->list->flags & CLAIRFS_LIST_LAST;
		return told_list_add(&o->list[told->lane], told->list, most_numbers(o->dataset),
				     &ret->spec, err);
	}
	if (told->text[0] == '?') {
		ret->is_question = true;
		return told->text[1] ? order_spec_parse(told->text + 1, &ret->spec, err) : 0;
	}
	return is_withdrawal(told->text) ? 0 : order_spec_parse(told->text, &ret->spec, err);
}

/* Who says it. A name in what is said goes before that of who says it. */
static int take_announcer(const struct orders_said *told, const struct order_spec *spec,
			  struct announcer *ret, struct err *err)
{
	const char *given = spec ? order_spec_job(spec) : NULL;

	if (!told->list && strncmp(told->text, NONE_OF_JOB, strlen(NONE_OF_JOB)) == 0)
		given = told->text + strlen(NONE_OF_JOB);
	*ret = (struct announcer){ .uid = told->uid, .name = given, .is_given = given };
	if (!given && *told->job)
		ret->name = told->job;
	teller_find(told->tid, told->is_lookup, &ret->process); /* it waits for us: it is there */
	return ret->name ? order_job_check(ret->name, err) : 0;
}

static uint64_t count_numbered(const struct order *order)
{
	const struct order_info *info = order_info(order);
	uint64_t n = info->n;

	if (order_n_records(order) > 0)
		return order_n_records(order);
	for (uint64_t i = 0; info->outside && i < info->n; i++)
		n -= info->outside[i / 64] >> i % 64 & 1;
	return n;
}

static void log_told(struct orders *o, const struct orders_said *told, const char *line,
		     bool is_refused)
{
	if (is_refused)
		log_limited(LOG_LEVEL_INFO, "%s: an announced order was not taken: %s",
			    o->mountpoint, line);
	else
		log_limited(LOG_LEVEL_INFO, "%s: order announced by user %u: %s", o->mountpoint,
			    told->uid, line);
}

/* Has the owner put in force what was said. */
static int send_said(struct orders *o, const struct saying *said, const struct announcer *by,
		     struct order *take_order, struct err *err)
{
	struct message m = { .kind = said->spec ? MESSAGE_TOLD : MESSAGE_WITHDRAWN,
			     .spec = said->spec,
			     .take_order = take_order,
			     .by = by };
	int rc;

	inbox_post(&o->inbox, &m);
	rc = inbox_await(&o->inbox, &m);
	if (rc < 0)
		*err = m.err;
	return rc;
}

static int announce(struct orders *o, const struct orders_said *told, struct saying *said,
		    struct err *err)
{
	struct order_ask ask = { .lane = told->lane, .is_gone = told->is_gone };
	struct told_list *list = &o->list[told->lane];
	struct order *order = NULL;
	struct announcer by;
	int rc = take_saying(o, told, said, err);
	bool is_list = told->list && said->spec; /* it is whole; else it is somebody else's, or
						  * waits */

	if (rc == 0)
		rc = take_announcer(told, said->spec, &by, err);
	if (rc == 0 && said->spec)
		rc = make_order(o, said->spec, is_list ? list : NULL, &ask, &order, err);
	if (rc == 0 && said->is_question)
		said->n = order ? count_numbered(order) : 0;
	else if (rc == 0 && said->spec && !is_list) /* a list told in parts lacks the others yet */
		orders_log_note(said->spec, order);
	if (is_list)
		told_list_fini(list);
	if (rc == 0 && said->is_over && !said->is_question)
		rc = send_said(o, said, &by, TAKE(order), err);
	order_free(order);
	return rc;
}

int orders_announce(struct orders *o, const struct orders_said *told, struct buf_writer *answer)
{
	struct saying said = { .spec = NULL };
	struct err err = { 0 };
	int rc = announce(o, told, &said, &err);
	bool is_told = said.is_over && !said.is_question;
	AUTO_FREE char *now = rc == 0 && !is_told ? orders_text(o) : NULL;
	const char *line = now ? now : "none";

	if (rc < 0)
		line = err.msg;
	else if (said.spec)
		line = order_spec_text(said.spec);
	if (rc == 0 && said.is_question && said.spec)
		buf_printf(answer, "%" PRIu64 " ", said.n);
	buf_printf(answer, "%s", line);
	if (!said.is_question && (rc < 0 || is_told)) {
		keep_answer(o, line, rc < 0);
		log_told(o, told, line, rc < 0);
	}
	order_spec_free(said.spec);
	return rc;
}
