/* SPDX-License-Identifier: Apache-2.0 */
/* A few threads that do the same thing until it is done, while the caller reports progress. Kept
 * apart from the scan because both the scan and the check of a snapshot work this way. A machine
 * that lets us start no thread at all (a container with a pids limit) is no reason to refuse a
 * mount: the caller works itself then. Must never leave a thread behind. Runs in the thread that
 * opens the dataset. */
#include "clairfs/base/log.h"
#include "scan_priv.h"

#define CREW_MAX 64u
#define CREW_TICK_NS (100 * NS_PER_MS)

struct crew {
	void (*fn)(void *arg);
	void *arg;
	struct mutex mu;
	struct cond cv;
	unsigned running; /* mu */
};

static void *crew_main(void *arg)
{
	struct crew *crew = arg;

	crew->fn(crew->arg);
	mutex_lock(&crew->mu);
	crew->running--;
	cond_signal(&crew->cv);
	mutex_unlock(&crew->mu);
	return NULL;
}

static void crew_wait(struct crew *crew, const struct scan_options *options)
{
	bool is_over = false;

	while (!is_over) {
		bool has_ticked = false;

		mutex_lock(&crew->mu);
		while (crew->running > 0 && !has_ticked)
			has_ticked = cond_wait_for(&crew->cv, &crew->mu, CREW_TICK_NS);
		is_over = crew->running == 0;
		mutex_unlock(&crew->mu);
		if (!is_over && options->tick)
			options->tick(options->tick_ctx);
	}
}

void crew_run(const struct scan_options *options, const char *name, void (*fn)(void *arg),
	      void *arg)
{
	struct crew crew = { .fn = fn, .arg = arg };
	struct thr threads[CREW_MAX] = { 0 };
	unsigned n = MIN(options->threads, CREW_MAX), started = 0;
	struct err err = { 0 };

	mutex_init(&crew.mu);
	cond_init(&crew.cv);
	for (; started < n; started++) {
		mutex_lock(&crew.mu);
		crew.running++;
		mutex_unlock(&crew.mu);
		if (thr_start(&threads[started], name, crew_main, &crew, &err) < 0) {
			log_warn("%u of %u scan threads: %s", started, n, err.msg);
			mutex_lock(&crew.mu);
			crew.running--;
			mutex_unlock(&crew.mu);
			break;
		}
	}
	if (started == 0)
		fn(arg);
	crew_wait(&crew, options);
	for (unsigned i = 0; i < started; i++)
		thr_join(&threads[i]);
	cond_fini(&crew.cv);
	mutex_fini(&crew.mu);
}
