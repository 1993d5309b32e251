# SPDX-License-Identifier: Apache-2.0
"""bench/run slurm: what jobs of a real Slurm cost on a node, against what must be reached.

  slurm_prolog_warm   seconds of a prolog, from its start until the mount answers; 1.3 million files, their index is kept
  slurm_prolog_first  the same where the index is made (a prolog does not wait that long by default)
  slurm_epilog        seconds of an epilog; and of one whose source does not answer any more
  slurm_jobs_mounted  of 200 jobs back to back, eight at a time; what they left, and nodes drained

Jobs are run by bench/slurmjobs.py, on the cluster of tests/slurm. Needs root and Slurm's programs, and no systemd.
"""
import json
import subprocess
import sys

import benchlib
from benchlib import Failed

SECONDS = {"slurm_prolog_warm": 2, "slurm_epilog": 10, "slurm_epilog_source_hangs": 10, "slurm_prolog_first": None}


def run(bench):
    jobs = bench.size.slurm_jobs
    done = subprocess.run([sys.executable, f"{benchlib.HERE}/slurmjobs.py", "--build", bench.build, "--files",
                           str(bench.size.slurm_files), "--jobs", str(jobs), "--rounds", str(bench.rounds)],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    goals = {"slurm_jobs_mounted": (">=", jobs), "slurm_left": ("<=", 0), "slurm_nodes_drained": ("<=", 0)}
    goals.update({name: ("<=", most) for name, most in SECONDS.items() if most})
    for row in done.stdout.decode(errors="replace").splitlines():
        if row.startswith("{"):  # else it is of the test kit
            line = json.loads(row)
            more = {"files": bench.size.slurm_files} if "prolog" in line["name"] else {}
            bench.emit(line["name"], "s" if line["name"] in SECONDS else "count", line["values"], goal=goals.get(line["name"]), **more)
    if done.returncode:
        raise Failed(done.stderr.decode(errors="replace").strip() or f"slurmjobs.py: exit status {done.returncode}")
