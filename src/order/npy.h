/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of whole numbers in numpy's .npy files. */
#ifndef CLAIRFS_ORDER_NPY_H
#define CLAIRFS_ORDER_NPY_H

#include <stdbool.h>
#include <stdint.h>

#include "clairfs/base/err.h"

struct npy {
	int fd;                 /* at the first element, or -1 */
	uint64_t rows, columns; /* columns: 1 for an array of one dimension */
	unsigned dimensions;    /* 1 or 2 */
	unsigned width;         /* bytes of an element: 4 or 8 */
	bool is_signed;
};

struct order_params;
/* Opens the file and checks that it is exactly as long as its header says. -EINVAL: not a .npy
 * file, cut short, or not an array of one or two dimensions of little-endian 32- or 64-bit
 * numbers. params: say which files may be opened; NULL: any. Errors do not name the path. */
int npy_open(const struct order_params *params, const char *path, struct npy *ret,
	     struct err *err) MUST_USE;
void npy_close(struct npy *npy);
/* Reads all elements to out[rows * columns]; each must be below `limit`. */
int npy_read(struct npy *npy, uint64_t limit, uint32_t *out, struct err *err) MUST_USE;

#endif
