#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# TaskProlog= of slurm.conf: tells each task where its data is (CLAIRFS_MNT, CLAIRFS_STATUS). Slurm reads the output.
clairfs="@bindir@/clairfs"
# A step inherits what another node, or another job, was told.
for name in STATUS MNT SOURCE REASON; do
	echo "unset CLAIRFS_$name"
done
[ -x "$clairfs" ] || exit 0
"$clairfs" hook task-prolog
exit 0
