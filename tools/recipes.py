"""How external programs are got from the package registries: one function per recipe of programs.toml.

A recipe leaves each program of its kit as `job.into/<program>` and may scribble in `job.scratch`.
Registries are whatever pip, go, npm, cargo and apt are set up to use on this machine.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.progress import Failed, Work

BUILD_JOBS = "2"
DEBIAN_RELEASES = {"bullseye", "bookworm", "trixie", "forky", "stable", "testing", "unstable", "sid"}


@dataclass(frozen=True, slots=True)
class Job:
    """One kit to be got."""

    version: str
    programs: Mapping[str, str]
    settings: Mapping[str, Any]
    into: Path
    scratch: Path
    work: Work
    find: Callable[[str], Path]
    """Where another program is: a recipe's own tools come through the same mechanism."""


def go(job: Job) -> None:
    """Build commands of one Go module, with the versions and checksums of that module's own go.sum."""
    module, version = job.settings["module"].split("@")
    environment = _go_environment(job)
    command = job.find("go")
    source = _go_module(job, environment)
    # A module whose go.mod has replace directives cannot be `go install`ed: build it as a dependency of
    # a module of our own, which takes over its go.mod.
    wrapper = job.scratch / "wrapper"
    wrapper.mkdir()
    lines = (source / "go.mod").read_text().splitlines()
    lines = ["module wrapper" if line.startswith("module ") else line for line in lines]
    (wrapper / "go.mod").write_text("\n".join([*lines, f"require {module} {version}", ""]))
    (wrapper / "go.sum").write_text((source / "go.sum").read_text())
    (wrapper / "wrapper.go").write_text("package wrapper\n")
    linker_flags = "-s -w"
    if variable := job.settings.get("version_variable"):
        linker_flags += f" -X {variable}={job.version}"
    for program, package in job.programs.items():
        job.work.run(
            f"building {program} (minutes, the first time)",
            [
                *(command, "build", "-p", BUILD_JOBS, "-trimpath", "-ldflags", linker_flags),
                *("-tags", ",".join(job.settings.get("tags", ()))),
                *("-o", job.into / program, f"{module}/{package}"),
            ],
            folder=wrapper,
            environment=environment,
        )


def prometheus_ui(job: Job) -> None:
    """Build Prometheus's pages from its Go module, with the versions and hashes of its own lock file."""
    environment = _go_environment(job)
    pages = job.scratch / "ui"
    shutil.copytree(_go_module(job, environment) / "web" / "ui", pages)
    for path in (pages, *pages.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)
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
        job.work.run(step, [*pnpm, *arguments], folder=pages, environment=environment)
    for program, folder in job.programs.items():
        shutil.move(pages / folder, job.into / program)


def pypi(job: Job) -> None:
    """Install a distribution into an environment of its own."""
    environment = job.into / "venv"
    job.work.run("making an environment", [sys.executable, "-m", "venv", environment])
    python = environment / "bin" / "python"
    requirement = f"{job.settings['package']}=={job.version}"
    job.work.run("installing", [python, "-m", "pip", "install", "--no-cache-dir", requirement])
    (site,) = environment.glob("lib/python*/site-packages")
    (job.into / "site").symlink_to(site.relative_to(job.into))
    _launchers(job)


def cargo(job: Job) -> None:
    """Build a crate's commands with the crate's own lock file.

    `tools` are programs that the build looks for in variables, `libraries` what the commands are linked to.
    """
    command = shutil.which("cargo")
    if command is None:
        raise Failed(f"{job.work.title} needs Rust: install it so that `cargo` is on PATH")
    environment = {"CARGO_TARGET_DIR": str(job.scratch / "target")}
    environment |= {name: str(job.find(tool)) for name, tool in job.settings.get("tools", {}).items()}
    if libraries := job.settings.get("libraries"):
        # Unlike RUSTFLAGS, the encoded form takes a path with blanks.
        environment["CARGO_ENCODED_RUSTFLAGS"] = "\x1f".join(_libraries_beside(job, libraries))
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


def debian(job: Job) -> None:
    """Unpack Debian packages, not installed, from the archive that this machine's apt uses."""
    names = job.settings.get("only_for") or ", ".join(job.programs)
    instead = f"Put an executable named {names} on PATH instead."
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise Failed(f"{job.work.title} comes as a Debian package, and apt is not here. {instead}")
    archive = _debian_archive(job)
    if archive is None:
        raise Failed(f"{job.work.title}: this machine's apt has no Debian archive to take it from. {instead}")
    options = _apt_options(job, archive)
    job.work.run("reading the package list", ["apt-get", *options, "update"])
    job.work.run(
        "downloading", ["apt-get", *options, "download", *job.settings["packages"]], folder=job.scratch
    )
    for file in job.scratch.glob("*.deb"):
        job.work.run("unpacking", ["dpkg-deb", "-x", file, job.into / "root"])
    _launchers(job)


def _launchers(job: Job) -> None:
    """A program that is a path becomes a link, one that is a command (with `$here`, the kit) a script."""
    for program, source in job.programs.items():
        place = job.into / program
        if "$here" not in source:
            place.symlink_to(source)
            continue
        # The folder is found at run time, because the kit is renamed into place.
        place.write_text(f'#!/bin/sh\nhere=$(dirname "$(readlink -f "$0")")\nexec {source} "$@"\n')
        place.chmod(0o755)


def _libraries_beside(job: Job, kits: Sequence[str]) -> list[str]:
    """Copy the shared libraries of Debian kits into the kit, and return the flags of rustc that use them."""
    folder = job.into / "lib"
    folder.mkdir()
    for kit in kits:
        for file in job.find(kit).glob("*-linux-*/*.so*"):
            # Links stay links: a -dev package also has some to libraries that were not asked for.
            shutil.copy(file, folder, follow_symlinks=False)
    # The command looks beside itself, because the kit is renamed into place.
    return ["-L", str(folder), "-C", "link-arg=-Wl,-rpath,$ORIGIN/lib"]


def _go_environment(job: Job) -> dict[str, str]:
    environment = {
        "CGO_ENABLED": "0",
        "GOCACHE": str(job.scratch / "go-build"),
        "GOFLAGS": "-mod=mod -buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    if not {"GOMODCACHE", "GOPATH"} & os.environ.keys():
        # A gigabyte of modules that nobody asked for does not stay; someone's own cache is shared.
        environment["GOMODCACHE"] = str(job.scratch / "go-modules")
    return environment


def _go_module(job: Job, environment: Mapping[str, str]) -> Path:
    module = job.settings["module"]
    printed = job.work.run(
        "downloading its source",
        [job.find("go"), "mod", "download", "-json", module],
        folder=job.scratch,
        environment=environment,
    )
    facts = json.loads(printed[printed.index("{") :])
    if facts["Sum"] != job.settings["module_sum"]:
        raise Failed(f"{module} is {facts['Sum']}, and programs.toml expects {job.settings['module_sum']}")
    return Path(facts["Dir"])


def _debian_archive(job: Job) -> str | None:
    """The address of the Debian archive among this machine's package sources."""
    format = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
    targets = job.work.run(
        "looking for the archive", ["apt-get", "indextargets", "--format", format, "Created-By: Packages"]
    )
    for line in targets.splitlines():
        address, release, component = line.split()
        if component == "main" and release in DEBIAN_RELEASES:
            return address
    return None


def _apt_options(job: Job, archive: str) -> list[str]:
    """apt, pointed at one suite and at folders of its own: no root, and nothing of the machine changes."""
    keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    signed_by = f"[signed-by={keyring}] " if keyring.exists() else ""
    sources = job.scratch / "sources.list"
    sources.write_text(f"deb {signed_by}{archive} {job.settings['suite']} {job.settings['component']}\n")
    lists, cache = job.scratch / "lists", job.scratch / "cache"
    for folder in (lists / "partial", cache / "archives" / "partial"):
        folder.mkdir(parents=True)
    settings = {
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": "-",
        "Dir::State::Lists": lists,
        "Dir::Cache": cache,
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
    }
    return ["-q", *(f"-o{name}={value}" for name, value in settings.items())]


RECIPES: dict[str, Callable[[Job], None]] = {
    "go": go,
    "prometheus_ui": prometheus_ui,
    "pypi": pypi,
    "cargo": cargo,
    "debian": debian,
}
