# SPDX-License-Identifier: Apache-2.0
"""The RPM packages: they build with the rpm of this machine, install, work, and leave nothing when they are removed.
Dependencies are not looked at: rpm knows none of the packages of a Debian machine."""
import os
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mount")]
import mountkit
import packagekit
import tap


def packages(place):
    built = packagekit.build(place, "rpmbuild builds", "rpm/build", "--nodeps")
    version = packagekit.write_version(place)
    kinds = sorted(name.split(f"-{version}-")[0] for name in built if name.endswith(".rpm") and ".src." not in name)
    tap.equal(kinds, ["clairfs", "clairfs-devel", "python3-clairfs"], "program, header and module are packages of their own")
    packagekit.make_source(place)
    packagekit.in_a_copy(place, [
        ("rpm installs them", "rm -f /mnt/packages/*.src.rpm; rpm --dbpath /tmp/db --initdb\n"
         "rpm --dbpath /tmp/db -i --nodeps /mnt/packages/*.rpm"),
        *packagekit.USE,
        ("the module is whole", "cd / && PYTHONPATH=$(rpm --dbpath /tmp/db -ql python3-clairfs | sed -n 's,/clairfs$,,p') /usr/bin/python3 -c "
         "'import clairfs, importlib.metadata as m; assert m.version(\"clairfs\") == open(\"/mnt/version\").read().strip()'"),
        ("rpm knows every file as it was packed", "rpm --dbpath /tmp/db -V --nodeps clairfs clairfs-devel python3-clairfs"),
        ("no file names the place of the build", "if rpm --dbpath /tmp/db -ql clairfs python3-clairfs | while read -r f; do "
         "[ ! -f $f ] || echo $f; done | xargs grep -l clairfs-rpm; then false; fi"),
        ("erasing them leaves nothing",
         "rpm --dbpath /tmp/db -ql clairfs clairfs-devel python3-clairfs | grep -v build-id | sort -u >/tmp/files\n"
         "rpm --dbpath /tmp/db -e --nodeps clairfs clairfs-devel python3-clairfs\n"
         "while read -r f; do if [ -e \"$f\" ] || [ -L \"$f\" ]; then echo left: $f; false; fi; done </tmp/files"),
    ])


mountkit.run(packages)
