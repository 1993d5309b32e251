/* SPDX-License-Identifier: Apache-2.0 */
/* A call of the plan, to who watches: PLAN_TELL(plan, .kind = PLAN_CALL_END_JOB, .job = index).
 * Costs a branch when nobody does. */
#ifndef CLAIRFS_PLAN_TELL_H
#define CLAIRFS_PLAN_TELL_H

#include "plan_priv.h"

#define PLAN_TELL(plan, ...)                                                                       \
	do {                                                                                       \
		if ((plan)->watch.called)                                                          \
			(plan)->watch.called((plan)->watch.ctx,                                    \
					     &(struct plan_call){ __VA_ARGS__ });                  \
	} while (0)

#endif
