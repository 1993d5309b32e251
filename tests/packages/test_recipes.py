# SPDX-License-Identifier: Apache-2.0
"""Recipes of package managers that are not on this machine: they parse, have the version of meson.build, name options and
dependencies that the build has, and the Kubernetes manifest keeps what FUSE in a pod depends on."""
import json
import os
import re
import subprocess
import sys
import types

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
sys.path.append("/usr/lib/python3/dist-packages")  # another Python than the distribution's may run this
import tap
import yaml

PACKAGING = "packaging/"
# Dependency of meson.build: its names in the recipes.
DEPENDENCIES = {"fuse3": ("libfuse", "libfuse3-dev", "fuse3-devel"), "libxxhash": ("xxhash",), "inih": ("inih",), "jansson": ("jansson",),
                "cairo-svg": ("cairo",), "ncursesw": ("ncurses",), "liburing": ("liburing",)}


def version_in(meson):
    return re.search(r"^project\(.* version: '([^']+)'", meson, re.M)[1]


def versions(text):
    """What a changelog begins with."""
    return re.search(r"^## (\S+)", text, re.M)[1]


def missing(names):
    """Dependencies of the build that a recipe does not have."""
    have = {n.lower() for n in names}
    return [d for d, known in DEPENDENCIES.items() if not have & set(known)]


def options_of(text):
    return set(re.findall(r"^option\('(\w+)'", text, re.M))


def unknown_options(text):
    """-DNAME= of a recipe that meson would refuse; names with b_ or of directories are meson's own."""
    return sorted(set(re.findall(r"-D(\w+)=", text)) - options_of(tap.read("meson_options.txt")))


class Spack(types.ModuleType):
    """As much of spack.package as a recipe says at import."""

    def __init__(self):
        super().__init__("spack.package")
        self.said = []
        self.MesonPackage = type("MesonPackage", (), {})
        self.__all__ = ["MesonPackage", "run_after", "version", "variant", "depends_on", "extends", "license"]
        for name in ("version", "variant", "depends_on", "extends", "license"):
            setattr(self, name, lambda *a, word=name, **k: self.said.append((word, a, k)))

    @staticmethod
    def run_after(_):
        return lambda method: method


def spack(version):
    module, name = Spack(), PACKAGING + "spack/package.py"
    sys.modules["spack"], sys.modules["spack.package"] = types.ModuleType("spack"), module
    recipe = {}
    exec(compile(tap.read(name), name, "exec"), recipe)
    tap.ok(issubclass(recipe["Clairfs"], module.MesonPackage), "Spack: a recipe of Meson's kind, with the name of the package")
    tap.equal([a[0] for word, a, _ in module.said if word == "version"], [version], "Spack: the version of meson.build")
    tap.ok(f"clairfs-{version}.tar.gz" in recipe["Clairfs"].url, "Spack: the archive of packaging/tarball")
    tap.equal(missing(re.match(r"[a-z0-9-]+", a[0])[0] for word, a, _ in module.said if word == "depends_on"), [], "Spack: every dependency of the build")
    features = {a[0] for word, a, _ in module.said if word == "variant"} - {"python"}
    tap.ok(features <= options_of(tap.read("meson_options.txt")), "Spack: variants are options of the build", features)
    package = recipe["Clairfs"]()
    package.spec = types.SimpleNamespace(satisfies=lambda what: what != "+plot")
    tap.equal(sorted(package.meson_args()), ["-Dplot=disabled", "-Dtests=false", "-Dtop=enabled", "-During=enabled"], "Spack: variants switch them")


def easybuild(version):
    name, known = PACKAGING + "easybuild/clairfs.eb", {"SOURCELOWER_TAR_GZ": "%(namelower)s-%(version)s.tar.gz"}
    recipe = dict(known)
    exec(compile(tap.read(name), name, "exec"), recipe)
    mandatory = ("name", "version", "homepage", "description", "toolchain", "sources", "moduleclass", "easyblock", "sanity_check_paths")
    tap.equal([m for m in mandatory if m not in recipe], [], "EasyBuild: every parameter that has to be there")
    tap.equal((recipe["name"], recipe["version"]), ("clairfs", version), "EasyBuild: the version of meson.build")
    names = [d[0] for d in recipe["dependencies"]] + [n for d in recipe["osdependencies"] for n in d]
    tap.equal(missing(names), [], "EasyBuild: every dependency of the build")
    tap.equal(unknown_options(recipe["configopts"]), [], "EasyBuild: options that the build has")


def conda(version):
    recipe = yaml.safe_load(tap.read(PACKAGING + "conda/recipe.yaml"))
    tap.equal(recipe["context"], {"name": "clairfs", "version": version}, "conda: the version of meson.build, as text")
    tap.equal(missing(r.split()[0] for r in recipe["requirements"]["host"]), [], "conda: every dependency of the build")
    tap.equal(unknown_options("\n".join(recipe["build"]["script"])), [], "conda: options that the build has")
    tap.ok({"build", "host", "run"} == set(recipe["requirements"]) and recipe["tests"], "conda: requirements of three kinds, and a test")


def sections(text):
    """{stage: {section: lines}} of an Apptainer definition."""
    stages, stage, section = {}, None, None
    for line in text.splitlines():
        header = re.match(r"(Bootstrap|From|Stage): (\S+)$", line)
        if header:
            if header[1] == "Bootstrap":
                stage = {}
            stage[header[1]] = header[2]
            stages[header[2] if header[1] == "Stage" else len(stages)] = stage
            section = None
        elif line.startswith("%"):
            section = stage.setdefault(line.split()[0], [])
        elif section is not None:
            section.append(line.strip())
        elif line.strip() and not line.startswith("#"):
            raise ValueError(f"outside of a section: {line!r}")
    return {name: s for name, s in stages.items() if isinstance(name, str)}


def shell_errors(lines):
    done = subprocess.run(["shellcheck", "-s", "sh", "-"], input="\n".join(lines) + "\n", stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout.splitlines()


def containers(version):
    stages = sections(tap.read(PACKAGING + "container/clairfs.def"))
    tap.equal(sorted(stages), ["build", "final"], "Apptainer: two stages")
    tap.ok(all(s["Bootstrap"] == "docker" and s["From"] for s in stages.values()), "Apptainer: each with its base")
    bad = [e for s in stages.values() for name in ("%post", "%test", "%runscript") for e in shell_errors(s.get(name, ["true"]))]
    tap.no_findings(bad, "Apptainer: its scripts pass shellcheck")
    file = tap.read(PACKAGING + "container/Containerfile")
    words = {line.split()[0] for line in re.sub(r"\\\n", " ", file).splitlines() if line.strip() and line[0] != "#"}
    tap.equal(words - {"FROM", "COPY", "RUN", "ENTRYPOINT"}, set(), "Containerfile: known instructions")
    for text in (file, "\n".join(stages["build"]["%post"])):
        for script in set(re.findall(r"packaging/[\w/-]+", text)):
            tap.ok(script.endswith(".yaml") or script.endswith("/Containerfile") or os.access(tap.ROOT / script, os.X_OK), f"containers: {script} is a program of the tree")
    tap.ok(f"clairfs:{version}" in file, "Containerfile: the version of meson.build")


def propagation(container, volume):
    return [m.get("mountPropagation") for m in container["volumeMounts"] if m["name"] == volume]


def kubernetes(version):
    daemons, pod = yaml.safe_load_all(tap.read(PACKAGING + "container/kubernetes.yaml"))
    spec = daemons["spec"]["template"]["spec"]
    tap.equal((daemons["apiVersion"], daemons["kind"], pod["kind"]), ("apps/v1", "DaemonSet", "Pod"), "Kubernetes: a DaemonSet and a pod that uses it")
    tap.equal(daemons["spec"]["selector"]["matchLabels"], daemons["spec"]["template"]["metadata"]["labels"], "Kubernetes: the selector is the template's labels")
    everyone = spec["containers"] + spec["initContainers"]
    tap.ok(all(c["image"] == f"clairfs:{version}" for c in everyone), "Kubernetes: the image of the Containerfile, in this version")
    tap.ok(all(c["securityContext"]["privileged"] and propagation(c, "export") == ["Bidirectional"] for c in everyone),
           "Kubernetes: privileged, and the mount leaves the pod")
    tap.equal(propagation(pod["spec"]["containers"][0], "data"), ["HostToContainer"], "Kubernetes: the job gets a mount that is made later")
    for who in (spec, pod["spec"]):
        volumes = {v["name"] for v in who["volumes"]}
        tap.equal({m["name"] for c in who["containers"] for m in c["volumeMounts"]}, volumes, "Kubernetes: every volume is there and used")
    the_command(spec["containers"][0])


def the_command(container):
    """The arguments must be what this program takes."""
    done = subprocess.run([os.environ["CLAIRFS"], "mount", *container["args"][1:-2], "--print-config"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    tap.ok(done.returncode == 0 and "allow_other = on" in done.stdout, "Kubernetes: the program takes these options", done.stdout)
    memory = container["resources"]
    tap.equal(memory["requests"]["memory"], memory["limits"]["memory"], "Kubernetes: what the mount may use is reserved for it")


def self_test():
    tap.equal(missing(["libfuse", "xxHash", "inih", "jansson", "cairo", "ncurses"]), ["liburing"], "a dependency that is left out is found")
    tap.equal(unknown_options("-Dtests=false -Dnothing=1"), ["nothing"], "an option that the build does not have is found")
    tap.ok(shell_errors(["rm $1"]), "a bad script is found")
    try:
        sections("Bootstrap: docker\nwords\n")
        tap.ok(False, "text outside of sections is found")
    except ValueError:
        tap.ok(True, "text outside of sections is found")


self_test()
wanted = version_in(tap.read("meson.build"))
tap.ok(re.fullmatch(r"\d+\.\d+\.\d+", wanted), "the version is a semantic one", wanted)
tap.equal(versions(tap.read("CHANGELOG.md")), wanted, "the changelog begins with it")
tap.ok(json.dumps(wanted) not in tap.read(PACKAGING + "python/pyproject.toml"), "the Python module does not say it again")
for check in (spack, easybuild, conda, containers, kubernetes):
    check(wanted)
tap.done()
