# SPDX-License-Identifier: Apache-2.0
"""Spack recipe: put it into a repository of yours as packages/clairfs/package.py. packaging/tarball makes the archive, which
is looked for in the directory where spack runs."""
import os

from spack.package import *


class Clairfs(MesonPackage):
    """Read-only FUSE filesystem that prefetches training data in the order of the job."""

    manual_download = True
    url = f"file://{os.getcwd()}/clairfs-0.1.0.tar.gz"

    license("Apache-2.0")

    # No checksum: the archive is made here. Add sha256= for one that you keep.
    version("0.1.0")

    variant("uring", default=True, description="asynchronous reads of local disks by io_uring")
    variant("plot", default=True, description="charts of clairfs simulate and bench")
    variant("top", default=True, description="live view of clairfs top")
    variant("python", default=True, description="Python module that tells a mount the order of a job")

    depends_on("c", type="build")
    depends_on("meson@1.0:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3.8:", type=("build", "run"))
    depends_on("libfuse@3.10:")
    depends_on("xxhash")
    depends_on("inih")
    depends_on("jansson")
    depends_on("liburing@2.3:", when="+uring")
    depends_on("cairo+svg", when="+plot")
    depends_on("ncurses", when="+top")

    extends("python", when="+python")
    depends_on("py-pip", type="build", when="+python")
    depends_on("py-setuptools@61:", type="build", when="+python")
    depends_on("py-wheel", type="build", when="+python")

    def meson_args(self):
        features = [f"-D{name}={'enabled' if self.spec.satisfies('+' + name) else 'disabled'}" for name in ("uring", "plot", "top")]
        return ["-Dtests=false", *features]

    @run_after("install")
    def install_python(self):
        if self.spec.satisfies("+python"):
            with working_dir("packaging/python"):
                python("-m", "pip", "install", "--no-deps", "--no-index", "--no-build-isolation", f"--prefix={self.prefix}", ".")

    def setup_run_environment(self, env):
        env.set("CLAIRFS_WORKLOADS", self.prefix.share.clairfs.workloads)
