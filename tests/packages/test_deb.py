# SPDX-License-Identifier: Apache-2.0
"""The Debian packages: they build, lintian has nothing to say, they install, work, and leave nothing when they are removed."""
import os
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mount")]
import mountkit
import packagekit
import tap


def packages(place):
    built = packagekit.build(place, "dpkg-buildpackage builds, and lintian finds neither errors nor warnings", "deb")
    version = packagekit.write_version(place)
    names = {name.split("_")[0] for name in built if name.endswith(".deb")}
    tap.ok({"clairfs", "clairfs-dev", "python3-clairfs"} <= names, "program, header and module are packages of their own", names)
    tap.equal("clairfs-spank" in names, os.path.exists(tap.ROOT / "packaging/slurm/spank_clairfs.c"),
              "the plugin of Slurm is a package where its source is")
    tap.ok(f"clairfs_{version}-1.dsc" in built, "the source package has the version of meson.build", built)
    packagekit.make_source(place)
    files = "for p in $(cat /tmp/names); do dpkg -L $p; done"
    packagekit.in_a_copy(place, [
        ("dpkg installs them, dependencies looked at",
         "for f in /mnt/packages/*.deb; do case $f in *-dbgsym_*) ;; *) dpkg-deb -f $f Package >>/tmp/names; set -- \"$@\" $f; esac; done\n"
         "dpkg -i \"$@\""),
        *packagekit.USE,
        ("the header compiles by itself",
         "printf '#include <clairfs/hint.h>\\nint main(void) { return sizeof(struct clairfs_hint) == 0; }\\n' | gcc -Wall -Werror -x c -o /tmp/a - && /tmp/a"),
        ("Python finds the module, in its version",
         "cd / && /usr/bin/python3 -c 'import clairfs, importlib.metadata as m; print(clairfs.__file__); "
         "assert m.version(\"clairfs\") == open(\"/mnt/version\").read().strip()'"),
        ("dpkg knows every file as it was packed", "dpkg --verify $(cat /tmp/names) | tee /tmp/changed; test ! -s /tmp/changed"),
        ("purging them leaves no file",
         f"({files}) | sort -u >/tmp/files\ndpkg --purge $(cat /tmp/names)\n"
         "while read -r f; do if [ -e \"$f\" ] && ! [ -d \"$f\" ] || [ -L \"$f\" -a ! -d \"$f\" ]; then echo left: $f; false; fi; done </tmp/files\n"
         "test ! -e /usr/share/clairfs && test ! -e /usr/include/clairfs && test -z \"$(dpkg --audit)\""),
    ])


mountkit.run(packages)
