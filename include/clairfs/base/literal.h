/* SPDX-License-Identifier: Apache-2.0 */
/* Words of a Python literal in foreign bytes, as numpy's headers are: "{'shape': (3, 4), }". All of
 * them pass over blanks and ends of lines first, and read nothing behind the reader's end. */
#ifndef CLAIRFS_BASE_LITERAL_H
#define CLAIRFS_BASE_LITERAL_H

#include <stdbool.h>
#include <stdint.h>

#include "clairfs/base/buf.h"

/* The next byte that is no blank, which stays; 0: there is none. */
uint8_t literal_next(struct buf_reader *r);
/* Takes these bytes if they come next. */
bool literal_take(struct buf_reader *r, const char *word);
/* Takes a whole number; false: none comes next, or it has more than 64 bits. */
bool literal_take_number(struct buf_reader *r, uint64_t *ret);
/* Takes what stands between two items: a comma, or nothing where `end` comes next, which stays. */
bool literal_take_comma(struct buf_reader *r, char end);
/* Whether nothing but blanks is left. */
bool literal_is_over(struct buf_reader *r);

#endif
