#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prolog= of slurm.conf: mounts for jobs that ask for it. Whatever happens here, the job runs: only the exit code 1,
# which clairfs has when the site set prolog_drains, gets through. Run it in the foreground, and anything of yours after it.
clairfs="@bindir@/clairfs"
[ -x "$clairfs" ] || { echo "$clairfs is not there: no mounts for jobs" >&2; exit 0; }
"$clairfs" hook prolog
[ $? -ne 1 ]
