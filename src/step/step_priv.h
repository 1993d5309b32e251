/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the step share. */
#ifndef CLAIRFS_STEP_PRIV_H
#define CLAIRFS_STEP_PRIV_H

#include "clairfs/step.h"

/* --- jobs.c --- */
struct step_job *step_job_at(struct step *s, uint32_t index); /* in the plan; or NULL */
void step_jobs_start(struct step *s, struct order_ref *take_order, uint64_t now_ns);
void step_jobs_free(struct step *s);
void step_jobs_look(struct step *s, uint64_t now_ns);

/* --- kept.c --- */
bool step_keeps_any(const struct step *s);
/* All that is in the store is looked up once more; is_first: what no order wants is let go. */
void step_look_again(struct step *s, bool is_first);
/* There is no job any more: its pages are given back, or there is one again. */
void step_pages(struct step *s, bool is_over);
/* Tells the plan a share of what the store has; true when there is more. */
bool step_tell_kept(struct step *s, uint64_t now_ns);
/* Gives a share of the pages back that were pushed for jobs that are over; true when there is more. */
bool step_give_back(struct step *s);

#endif
