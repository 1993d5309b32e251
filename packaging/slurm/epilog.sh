#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Epilog= of slurm.conf: takes away what the prolog and the job have mounted. It fails, which drains the node, only when
# something is left and the site set epilog_drains.
clairfs="@bindir@/clairfs"
[ -x "$clairfs" ] || { echo "$clairfs is not there: no mounts for jobs" >&2; exit 0; }
"$clairfs" hook epilog
[ $? -ne 1 ]
