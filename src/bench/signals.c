/* SPDX-License-Identifier: Apache-2.0 */
/* Signals of the main process: blocked, and taken where it waits, so that nothing is ever torn down
 * in the middle of something. Children get the mask back that the program was started with. */
#include <errno.h>
#include <signal.h>
#include <time.h>

#include "bench_priv.h"
#include "clairfs/base/clock.h"

static void fill_set(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGHUP);
	sigaddset(set, SIGCHLD);
}

void bench_signals_block(sigset_t *ret_before)
{
	sigset_t set;

	fill_set(&set);
	pthread_sigmask(SIG_BLOCK, &set, ret_before);
}

int bench_wait(uint64_t ns)
{
	struct timespec t = { .tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S) };
	sigset_t set;
	int sig;

	fill_set(&set);
	sig = sigtimedwait(&set, NULL, &t);
	return sig < 0 || sig == SIGCHLD ? 0 : -EINTR;
}
