/* SPDX-License-Identifier: Apache-2.0 */
/* The recurrence of a data loader with worker processes, as PyTorch's is: batch k is worked on by
 * worker k mod W, batches are delivered in order, and taking one allows the one P * W later to be
 * begun:
 *
 *	start(k) = max(fin(k - W), recv(k - P W))        fin(k)  = start(k) + io(k) + decode(k)
 *	wait(k)  = max(0, fin(k) - asked(k))             recv(k) = max(fin(k), asked(k))
 *	asked(k) = recv(k - 1) + compute(k - 1)          asked(0) = 0: the workers start then
 *
 * Only the last W ends and the last P W receipts are kept, so a pass of any length takes the same
 * scratch memory. Pure: any thread.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stall_priv.h"

int stall_play_init(struct stall_play *p)
{
	assert(p->workers > 0 && p->prefetch > 0 && !p->fin && !p->recv);
	p->fin = calloc(p->workers, sizeof(*p->fin));
	p->recv = calloc((size_t)p->workers * p->prefetch, sizeof(*p->recv));
	if (p->fin && p->recv)
		return 0;
	stall_play_fini(p);
	return -ENOMEM;
}

void stall_play_fini(struct stall_play *p)
{
	free(p->fin);
	free(p->recv);
	p->fin = p->recv = NULL;
}

void stall_play_run(const struct stall_play *p, uint64_t *ret_wait, struct stall_schedule *ret)
{
	uint64_t ahead = (uint64_t)p->workers * p->prefetch, asked = 0, recv = 0, fin = 0;
	uint64_t w = 0, a = 0; /* k mod W, k mod P W */

	assert(p->workers > 0 && ahead > 0);
	*ret = (struct stall_schedule){ 0 };
	for (uint64_t k = 0; k < p->n; k++) {
		const struct stall_batch *b = &p->batch[k];
		uint64_t start = k < p->workers ? 0 : p->fin[w];

		if (k >= ahead)
			start = MAX(start, p->recv[a]);
		fin = start + b->io_ns + (uint64_t)((double)b->decode_ns * p->decode_share);
		recv = MAX(fin, asked);
		assert(w < p->workers && a < ahead && fin >= start);
		if (ret_wait)
			ret_wait[k] = recv - asked;
		ret->wait_ns += recv - asked;
		ret->fetched_ns = MAX(ret->fetched_ns, fin);
		p->fin[w] = fin;
		p->recv[a] = recv;
		asked = recv + (p->compute_ns == STALL_NO_COMPUTE ? b->compute_ns : p->compute_ns);
		w = w + 1 == p->workers ? 0 : w + 1;
		a = a + 1 == ahead ? 0 : a + 1;
	}
	ret->end_ns = asked;
}
