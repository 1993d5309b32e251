# SPDX-License-Identifier: Apache-2.0
"""Files and directories whose times are far away, in both directions: the mount shows the dates that the source shows, versions
are told apart, and nothing else depends on them."""
import os

import mountkit
import tap
from mountkit import wait_until, write_file

# Seconds of 1 January of a year; what the filesystem of the source cannot have it changes itself.
YEARS = {1902: -2145916800, 1950: -631152000, 1970: 0, 2039: 2177452800, 2262: 9214646400, 2263: 9246182400, 2300: 10413792000,
         2400: 13569465600, 2440: 14831769600}


def times(path):
    st = os.stat(path)
    return st.st_mtime_ns, st.st_ctime_ns


def far_dates(place):
    data = place.files([5000] * len(YEARS), name="y{:02d}/file")
    names = dict(zip(YEARS, sorted(data)))
    for year, name in names.items():
        for path in (place.path("source", name), place.path("source", os.path.dirname(name))):
            os.utime(path, ns=(YEARS[year] * 10**9 + 123456789,) * 2)
    for what in ("scanned", "with a snapshot"):
        with place.mount(revalidate=1) as mount:
            for year, name in names.items():
                for path in (name, os.path.dirname(name)):
                    tap.equal(times(mount.path(path)), times(place.path("source", path)), f"{what}: the year {year} is shown")
            tap.ok(all(mount.read(name) == content for name, content in data.items()), f"{what}: all bytes are right")
            stats = mount.stats()["counters"]
            tap.equal((stats["read_errors"], stats["source_errors"]), (0, 0), f"{what}: nothing failed")
    # Another version whose date only is another one, 300 years on, and one with the old date again.
    with place.mount(revalidate=1) as mount:
        for year, name in names.items():
            tap.ok(mount.read(name) == data[name], f"{year}: the first version")
            new = os.urandom(5000)
            write_file(place.path("source", name), new)
            os.utime(place.path("source", name), ns=(YEARS[year] * 10**9 + 123456789,) * 2)
            wait_until(lambda n=name, c=new: mount.read(n) == c, f"{year}: the new version is seen")
            wait_until(lambda n=name: times(mount.path(n)) == times(place.path("source", n)), f"{year}: with its date")
        tap.ok(True, "new versions with old dates are seen")


mountkit.run(far_dates)
