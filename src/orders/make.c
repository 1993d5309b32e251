/* SPDX-License-Identifier: Apache-2.0 */
/* Orders whose kind may read a file (list, megatron) are made while others wait for nothing: the
 * file may be on a source that does not answer, and a thread that waits for it cannot be woken. So
 * each is made on a thread of its own, and whoever told it waits with a limit: for ten minutes,
 * which a list of a billion lines takes, or until the mount is taken away. Then the thread is left
 * behind. It ends when the file answers, or with the process; until then it uses the dataset, which
 * is therefore not freed before it has ended.
 *
 * No more than a few are left behind of each of those who tell orders (lanes), so that nobody can
 * take the others' threads: further orders of that lane are refused until the file answers. Who was
 * interrupted is not waited for. Such a thread is detached and must never touch struct orders: it has
 * what it needs in struct making and the maker.
 *
 * Threads: order-make runs make_main; order_make the announce thread and whoever replaces an order;
 * the rest the thread that builds and tears down. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "path.h"
#include "orders_priv.h"

#define PATIENCE_NS (600 * NS_PER_S)
#define LOOK_NS (50 * NS_PER_MS) /* whether who asked is still there */
#define END_PATIENCE_NS NS_PER_S
#define MAKING_MAX 4

struct order_maker {
	struct mutex mu;
	struct cond cv;
	unsigned n_making[MAKE_LANES]; /* mu: threads there are */
	unsigned refs;                  /* mu: of them, and of the orders */
	bool is_quitting;               /* mu */
	int source_fd;
	char *source, *mountpoint;
};

static void maker_free(struct order_maker *maker)
{
	if (!maker)
		return;
	free(maker->source);
	free(maker->mountpoint);
	free(maker);
}

struct making {
	struct order_maker *maker;
	unsigned lane;
	struct order_spec *spec;
	struct order_params params;
	struct order *order;
	struct err err;
	int rc;
	bool is_done, is_left; /* maker->mu; whoever comes second frees it */
};

int order_maker_new(int source_fd, const char *source, const char *mountpoint,
		    struct order_maker **ret, struct err *err)
{
	struct order_maker *maker = calloc(1, sizeof(*maker));

	if (maker) {
		maker->source_fd = source_fd;
		maker->source = strdup(source);
		maker->mountpoint = strdup(mountpoint);
	}
	if (!maker || !maker->source || !maker->mountpoint) {
		maker_free(maker);
		return err_set(err, -ENOMEM, "out of memory");
	}
	mutex_init(&maker->mu);
	cond_init(&maker->cv);
	maker->refs = 1;
	*ret = maker;
	return 0;
}

static void maker_put(struct order_maker *maker)
{
	bool is_last;

	mutex_lock(&maker->mu);
	assert(maker->refs > 0);
	is_last = --maker->refs == 0;
	mutex_unlock(&maker->mu);
	if (!is_last)
		return;
	cond_fini(&maker->cv);
	mutex_fini(&maker->mu);
	maker_free(maker);
}

void order_maker_quit(struct order_maker *maker)
{
	if (!maker)
		return;
	mutex_lock(&maker->mu);
	maker->is_quitting = true;
	cond_broadcast(&maker->cv);
	mutex_unlock(&maker->mu);
}

static unsigned count_making(const struct order_maker *maker) REQUIRES(maker->mu)
{
	unsigned n = 0;

	for (unsigned i = 0; i < MAKE_LANES; i++)
		n += maker->n_making[i];
	return n;
}

bool order_maker_free(struct order_maker *maker)
{
	bool is_late = false, is_left;

	if (!maker)
		return true;
	mutex_lock(&maker->mu);
	while (count_making(maker) > 0 && !is_late)
		is_late = cond_wait_for(&maker->cv, &maker->mu, END_PATIENCE_NS);
	is_left = count_making(maker) > 0;
	mutex_unlock(&maker->mu);
	maker_put(maker);
	return !is_left;
}

static void making_free(struct making *m)
{
	order_free(m->order);
	order_spec_free(m->spec);
	free(m);
}

static void *make_main(void *arg)
{
	struct making *m = arg;
	struct order_maker *maker = m->maker;
	struct order *order = NULL;
	struct err err = { 0 };
	unsigned lane = m->lane;
	int rc = order_new(m->spec, &m->params, &order, &err);
	bool is_left;

	mutex_lock(&maker->mu);
	m->rc = rc;
	m->err = err;
	m->order = order;
	m->is_done = true;
	is_left = m->is_left;
	mutex_unlock(&maker->mu);
	if (is_left)
		making_free(m);
	mutex_lock(&maker->mu);
	assert(maker->n_making[lane] > 0);
	maker->n_making[lane]--; /* from here on the dataset is not used */
	cond_broadcast(&maker->cv);
	mutex_unlock(&maker->mu);
	maker_put(maker);
	return NULL;
}

static int start(struct order_maker *maker, struct making *m, struct err *err)
{
	struct thr thr = { .is_started = false };
	int rc = 0;

	mutex_lock(&maker->mu);
	if (maker->is_quitting)
		rc = err_set(err, -ECANCELED, "the mount is being taken away");
	else if (maker->n_making[m->lane] == MAKING_MAX)
		rc = err_set(err, -EBUSY, "the files of %d orders told before do not answer",
			     MAKING_MAX);
	if (rc == 0)
		rc = thr_start(&thr, "order-make", make_main, m, err);
	if (rc == 0) {
		pthread_detach(thr.id);
		maker->n_making[m->lane]++;
		maker->refs++;
	}
	mutex_unlock(&maker->mu);
	return rc;
}

static bool is_gone(const struct order_ask *ask)
{
	return ask->is_gone && atomic_load(ask->is_gone);
}

/* Why it is not waited for any longer. */
static void say_left(const struct order_maker *maker, const struct order_ask *ask, struct err *err)
	REQUIRES(maker->mu)
{
	if (maker->is_quitting)
		err_set(err, -ECANCELED, "the mount is being taken away");
	else if (is_gone(ask))
		err_set(err, -EINTR, "whoever told the order was interrupted");
	else
		err_set(err, -ETIMEDOUT, "the order's file was not read within %d minutes",
			(int)(PATIENCE_NS / NS_PER_S / 60));
}

/* False: it was left behind, and is not ours any more. */
static bool await(struct order_maker *maker, struct making *m, const struct order_ask *ask,
		  struct err *err)
{
	uint64_t now = clock_now(clock_monotonic()), end = now + PATIENCE_NS;
	bool is_done;

	mutex_lock(&maker->mu);
	while (!m->is_done && !maker->is_quitting && now < end && !is_gone(ask)) {
		uint64_t left = end - now;

		cond_wait_for(&maker->cv, &maker->mu, ask->is_gone ? MIN(left, LOOK_NS) : left);
		now = clock_now(clock_monotonic());
	}
	is_done = m->is_done;
	m->is_left = !is_done;
	if (!is_done)
		say_left(maker, ask, err);
	mutex_unlock(&maker->mu);
	return is_done;
}

static int open_beneath(void *ctx, const char *path, struct err *err)
{
	const struct order_maker *maker = ctx;

	return path_open(maker->source_fd,
			    path_relative(path, maker->source, maker->mountpoint), err);
}

int order_make(struct order_maker *maker, const struct order_spec *spec,
	       const struct order_params *params, const struct order_ask *ask, struct order **ret,
	       struct err *err)
{
	struct making *m = calloc(1, sizeof(*m));
	int rc;

	assert(ask->lane < MAKE_LANES);
	*ret = NULL;
	if (!m)
		return err_set(err, -ENOMEM, "out of memory");
	m->maker = maker;
	m->lane = ask->lane;
	m->params = *params;
	if (!ask->is_own_words) {
		m->params.open_file = open_beneath;
		m->params.open_ctx = maker;
	}
	/* A copy: the caller may be gone first. */
	rc = order_spec_parse(order_spec_text(spec), &m->spec, err);
	if (rc == 0)
		rc = start(maker, m, err);
	if (rc < 0) {
		making_free(m);
		return rc;
	}
	if (!await(maker, m, ask, err))
		return err->code;
	rc = m->rc;
	if (rc < 0)
		*err = m->err;
	*ret = TAKE(m->order);
	making_free(m);
	return rc;
}
