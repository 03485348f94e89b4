"""How external programs are built from the package registries: one function per recipe of programs.toml.

A recipe writes each program of its set to `job.into/<program>`; `job.scratch` is for temporary files.
The registries are those that pip, go, npm, cargo and apt are configured to use on this machine.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from tools import Failed
from tools.dependencies import grafana_build
from tools.dependencies.progress import Work

BUILD_JOBS = "2"
DEBIAN_RELEASES = {"bullseye", "bookworm", "trixie", "forky", "stable", "testing", "unstable", "sid"}


@dataclass(frozen=True, slots=True)
class BuildJob:
    """One program set to build."""

    version: str
    programs: Mapping[str, str]
    settings: Mapping[str, Any]
    into: Path
    scratch: Path
    shared: Path
    """Caches that other builds may use at the same time."""
    work: Work
    find: Callable[[str], Path]
    """The path of another program: the tools of a recipe are installed in the same way."""


def go(job: BuildJob) -> None:
    """Builds commands of one Go module, with the versions and checksums of that module's own go.sum.

    Programs of the same package are one file under several names. `files` (name -> text) are files that the
    build needs and the module lacks, `parts` is the version of modules from other directories of its
    repository, `variables` (name -> text) are set in the program.
    """
    environment = _go_environment(job)
    # Replace directives, as some of these modules have, hold only for a build inside the module.
    source = job.scratch / "source"
    _copy(_go_module(job, environment), source)
    for name, text in job.settings.get("files", {}).items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    if parts := job.settings.get("parts"):
        _publish_parts(source / "go.mod", parts)
    variables = dict(job.settings.get("variables", {}))
    if variable := job.settings.get("version_variable"):
        variables[variable] = job.version
    # Without C, netgo changes nothing, but builds with the same tags share their compiled packages.
    tags = dict.fromkeys(("netgo", *job.settings.get("tags", ())))
    linker_flags = " ".join(["-s -w", *(f"-X {name}={text}" for name, text in variables.items())])
    built: dict[str, str] = {}
    for program, package in job.programs.items():
        if package in built:
            (job.into / program).symlink_to(built[package])
            continue
        # Without inlining (-l) a build takes a quarter less time, and the program needs half as much again.
        job.work.run(
            f"building {program} (minutes, the first time)",
            [
                *(job.find("go"), "build", "-p", BUILD_JOBS, "-trimpath", "-tags", ",".join(tags)),
                *("-gcflags", "all=-dwarf=false", "-ldflags", linker_flags),
                *("-o", job.into / program, f"./{package}"),
            ],
            directory=source,
            environment=environment,
        )
        built[package] = program


def go_files(job: BuildJob) -> None:
    """Copies directories or single files from a Go module, and builds nothing."""
    source = _go_module(job, _go_environment(job))
    for program, path in job.programs.items():
        _copy(source / path, job.into / program)


def prometheus_ui(job: BuildJob) -> None:
    """Builds Prometheus's pages from its Go module, with the versions and hashes of its own lock file."""
    environment = _go_environment(job)
    pages = job.scratch / "ui"
    _copy(_go_module(job, environment) / "web" / "ui", pages)
    node, npm = job.find("node"), job.find("npm")
    homes = ("npm_config_cache", "npm_config_store_dir", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
    environment |= {home: str(job.scratch / home) for home in homes}
    environment["PATH"] = f"{node.parent}{os.pathsep}{os.environ['PATH']}"
    pnpm = [str(npm), "exec", "--yes", f"pnpm@{job.settings['pnpm']}", "--"]
    steps = {
        "downloading packages": ["install", "--frozen-lockfile", "--filter", "@prometheus-io/mantine-ui..."],
        "building": ["run", "build:mantine-ui"],
    }
    for step, arguments in steps.items():
        job.work.run(step, [*pnpm, *arguments], directory=pages, environment=environment)
    for program, path in job.programs.items():
        shutil.move(pages / path, job.into / program)


def grafana(job: BuildJob) -> None:
    """Builds Grafana from its Go module, without the plugins in `plugins_left_out`."""
    environment = _go_environment(job)
    source = job.scratch / "source"
    _copy(_go_module(job, environment), source)
    grafana_build.build(job, source, environment, BUILD_JOBS)
    _launchers(job)


def npm(job: BuildJob) -> None:
    """Installs exactly the npm packages of `packages` (name@version -> hash)."""
    wanted: Mapping[str, str] = job.settings["packages"]
    flags = ("--ignore-scripts", "--no-audit", "--no-fund")
    job.work.run(
        "installing",
        [job.find("npm"), "install", *flags, "--prefix", job.into, *wanted],
        environment={"npm_config_cache": str(job.scratch / "cache")},
    )
    lock = json.loads((job.into / "package-lock.json").read_text())
    installed = {
        f"{path.removeprefix('node_modules/')}@{facts['version']}": facts["integrity"]
        for path, facts in lock["packages"].items()
        if path
    }
    if installed != wanted:
        raise Failed(f"npm installed {installed}; programs.toml expects {dict(wanted)}")
    _launchers(job)


def pypi(job: BuildJob) -> None:
    """Installs a distribution into an environment of its own."""
    environment = job.into / "venv"
    job.work.run("creating an environment", [sys.executable, "-m", "venv", environment])
    python = environment / "bin" / "python"
    requirement = f"{job.settings['package']}=={job.version}"
    job.work.run("installing", [python, "-m", "pip", "install", "--no-cache-dir", requirement])
    (site,) = environment.glob("lib/python*/site-packages")
    (job.into / "site").symlink_to(site.relative_to(job.into))
    _launchers(job)


def cargo(job: BuildJob) -> None:
    """Builds a crate's commands with the crate's own lock file.

    `tools` (variable -> program) are used by the build, `libraries` are linked to the commands.
    """
    command = shutil.which("cargo")
    if command is None:
        raise Failed(f"{job.work.title} needs Rust: `cargo` is not on PATH")
    environment = {"CARGO_TARGET_DIR": str(job.scratch / "target")}
    environment |= {name: str(job.find(tool)) for name, tool in job.settings.get("tools", {}).items()}
    if libraries := job.settings.get("libraries"):
        # Unlike RUSTFLAGS, the encoded form takes a path with blanks.
        environment["CARGO_ENCODED_RUSTFLAGS"] = "\x1f".join(_copy_libraries(job, libraries))
    for program, crate in job.programs.items():
        job.work.run(
            f"building {program} (minutes)",
            [
                *(command, "install", crate, "--version", f"={job.version}", "--locked", "--no-track"),
                *("--jobs", BUILD_JOBS, "--root", job.scratch / "root"),
            ],
            environment=environment,
        )
        shutil.move(job.scratch / "root" / "bin" / program, job.into / program)


def debian(job: BuildJob) -> None:
    """Unpacks Debian packages, without installing them, from the archive that this machine's apt uses.

    With `dependencies_without`, also their dependencies except the packages that it names.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise Failed(f"{job.work.title} is a Debian package, and this machine has no apt-get or dpkg-deb.")
    archive = _debian_archive(job)
    if archive is None:
        raise Failed(f"{job.work.title}: this machine's apt has no Debian archive.")
    options = _apt_options(job, archive)
    job.work.run("reading the package list", ["apt-get", *options, "update"])
    packages = job.settings["packages"]
    if (without := job.settings.get("dependencies_without")) is not None:
        packages = _with_dependencies(job, options, without)
    job.work.run("downloading", ["apt-get", *options, "download", *packages], directory=job.scratch)
    unpack = 'for file in *.deb; do dpkg-deb -x "$file" "$0" || exit; done'
    job.work.run("unpacking", ["sh", "-c", unpack, job.into / "root"], directory=job.scratch)
    _launchers(job)


def _launchers(job: BuildJob) -> None:
    """Writes a link for a program that is a path, and a script for one that is a command with `$here`."""
    for program, source in job.programs.items():
        launcher = job.into / program
        if "$here" not in source:
            launcher.symlink_to(source)
            continue
        # `here` is read at run time because the directory is renamed after the build.
        launcher.write_text(f'#!/bin/sh\nhere=$(dirname "$(readlink -f "$0")")\nexec {source} "$@"\n')
        launcher.chmod(0o755)


def _copy(source: Path, target: Path) -> None:
    """Copies a part of Go's read-only module cache; the copy can be changed and removed."""
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)
    for path in (target, *target.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)


def _copy_libraries(job: BuildJob, packages: Sequence[str]) -> list[str]:
    """Copies shared libraries of Debian packages into the set, and returns the flags of rustc to use them."""
    directory = job.into / "lib"
    directory.mkdir()
    for package in packages:
        for file in job.find(package).glob("*-linux-*/*.so*"):
            # Links stay links: a -dev package also has links to libraries of other packages.
            shutil.copy(file, directory, follow_symlinks=False)
    # A path relative to the command, because the directory is renamed after the build.
    return ["-L", str(directory), "-C", "link-arg=-Wl,-rpath,$ORIGIN/lib"]


def _go_environment(job: BuildJob) -> dict[str, str]:
    environment = {
        "CGO_ENABLED": "0",
        "GOCACHE": str(job.shared / "go-build"),
        "GOTMPDIR": str(job.scratch),
        "GOFLAGS": "-mod=mod -buildvcs=false",
        # The public checksum database lacks some commits. The pin is the check.
        "GONOSUMDB": job.settings["module"].partition("@")[0],
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    if not {"GOMODCACHE", "GOPATH"} & os.environ.keys():
        # A cache that the user has set is used; otherwise gigabytes of modules are removed at the end.
        environment["GOMODCACHE"] = str(job.shared / "go-modules")
    return environment


def _go_module(job: BuildJob, environment: Mapping[str, str]) -> Path:
    module = job.settings["module"]
    printed = job.work.run(
        "downloading its source",
        [job.find("go"), "mod", "download", "-json", module],
        directory=job.scratch,
        environment=environment,
    )
    facts = json.loads(printed[printed.index("{") :])
    if facts["Sum"] != job.settings["module_sum"]:
        raise Failed(
            f"{module} has the checksum {facts['Sum']}; programs.toml expects {job.settings['module_sum']}"
        )
    return Path(facts["Dir"])


def _publish_parts(go_mod: Path, version: str) -> None:
    """Replaces modules of the same repository, which the archive lacks, by their published versions.

    Only those in a block: etcd has a single line for a directory that must not exist.
    """
    text = go_mod.read_text()
    go_mod.write_text(re.sub(r"^(\t(\S+) =>) \.\.?/.*$", rf"\1 \2 {version}", text, flags=re.MULTILINE))


def _debian_archive(job: BuildJob) -> str | None:
    """The address of the Debian archive among this machine's package sources."""
    format = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
    targets = job.work.run(
        "reading the package sources", ["apt-get", "indextargets", "--format", format, "Created-By: Packages"]
    )
    for line in targets.splitlines():
        address, release, component = line.split()
        if component == "main" and release in DEBIAN_RELEASES:
            return address
    return None


def _with_dependencies(job: BuildJob, options: Sequence[str], without: Sequence[str]) -> list[str]:
    """The packages of a set and their dependencies on a machine without any package."""
    plan = job.work.run(
        "resolving dependencies",
        ["apt-get", *options, "install", "--simulate", "--no-install-recommends", *job.settings["packages"]],
    )
    return [
        f"{name}={version}"
        for name, version in re.findall(r"^Inst (\S+) \((\S+)", plan, re.MULTILINE)
        if not any(fnmatch(name, pattern) for pattern in without)
    ]


def _apt_options(job: BuildJob, archive: str) -> list[str]:
    """Options of apt for one suite and private directories: no root, no change of the machine."""
    keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    signed_by = f"[signed-by={keyring}] " if keyring.exists() else ""
    sources = job.scratch / "sources.list"
    sources.write_text(f"deb {signed_by}{archive} {job.settings['suite']} {job.settings['component']}\n")
    lists, cache = job.scratch / "lists", job.scratch / "cache"
    for directory in (lists / "partial", cache / "archives" / "partial"):
        directory.mkdir(parents=True)
    installed = job.scratch / "status"
    installed.touch()
    settings = {
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": "-",
        "Dir::State::Lists": lists,
        "Dir::State::status": installed,
        "Dir::Cache": cache,
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
        "Acquire::Retries": 3,
        # Otherwise apt goes on without a list that it could not download.
        "APT::Update::Error-Mode": "any",
    }
    return ["-q", *(f"-o{name}={value}" for name, value in settings.items())]


RECIPES: dict[str, Callable[[BuildJob], None]] = {
    "go": go,
    "go_files": go_files,
    "prometheus_ui": prometheus_ui,
    "grafana": grafana,
    "npm": npm,
    "pypi": pypi,
    "cargo": cargo,
    "debian": debian,
}
