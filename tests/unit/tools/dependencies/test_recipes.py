"""Recipes, as far as they can be tried without building anything; the real ones run before every test run."""

import io
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tools import Failed
from tools.dependencies import recipes
from tools.dependencies.progress import Work

MODULE = {"module": "example.org/tool@v1.2.3", "module_sum": "h1:right="}


def job(directory: Path, programs: dict[str, str], **settings: Any) -> recipes.BuildJob:
    for name in ("into", "scratch", "shared"):
        (directory / name).mkdir()
    return recipes.BuildJob(
        version="1.2.3",
        programs=programs,
        settings=settings,
        into=directory / "into",
        scratch=directory / "scratch",
        shared=directory / "shared",
        work=Work("tool 1.2.3", directory / "log", io.StringIO()),
        find=lambda name: directory / name,
    )


def script(file: Path, text: str) -> None:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def stand_in_go(directory: Path) -> Path:
    """A `go` that downloads a read-only module, and on `build` records where it is and what it was given."""
    source = directory / "module"
    (source / "crds").mkdir(parents=True)
    (source / "go.mod").write_text(
        "module example.org/tool\n\ngo 1.25.0\n\nreplace a.org/x => b.org/y v1.0.0\n"
    )
    (source / "crds" / "rule.yaml").write_text("kind: Rule\n")
    for path in (source / "crds" / "rule.yaml", source / "crds", source):
        path.chmod(path.stat().st_mode & ~0o222)
    facts = json.dumps({"Dir": str(source), "Sum": "h1:right="})
    script(
        directory / "go",
        f"""case "$1" in
        mod) echo 'go: downloading'; echo '{facts}' ;;
        build) echo "$@" > {directory}/arguments; env > {directory}/environment; pwd > {directory}/built-in ;;
        esac""",
    )
    return source


def test_a_go_program_is_built_inside_its_module_with_its_replacements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GOPATH", "GOMODCACHE"):
        monkeypatch.delenv(name, raising=False)
    source = stand_in_go(tmp_path)
    recipes.go(job(tmp_path, {"tool": "cmd/tool"}, **MODULE, tags=["a", "b"], version_variable="v.Version"))
    built_in = Path((tmp_path / "built-in").read_text().strip())
    assert built_in.is_relative_to(tmp_path / "scratch")
    assert (built_in / "go.mod").read_text() == (source / "go.mod").read_text()
    arguments = (tmp_path / "arguments").read_text()
    assert "-tags netgo,a,b" in arguments
    assert "-X v.Version=1.2.3" in arguments
    assert arguments.endswith(f"-o {tmp_path}/into/tool ./cmd/tool\n")
    given = environment_given(tmp_path)
    assert given["GOMODCACHE"].startswith(f"{tmp_path}/shared/")
    assert given["GOCACHE"].startswith(f"{tmp_path}/shared/")
    assert given["GOTMPDIR"] == f"{tmp_path}/scratch", "what a killed build leaves goes with the rest of it"


def test_only_the_pinned_module_is_not_looked_up_in_the_checksum_database(tmp_path: Path) -> None:
    stand_in_go(tmp_path)
    recipes.go(job(tmp_path, {"tool": "."}, **MODULE))
    assert environment_given(tmp_path)["GONOSUMDB"] == "example.org/tool"


def test_additional_files_are_copied_into_the_built_module(
    tmp_path: Path,
) -> None:
    source = stand_in_go(tmp_path)
    recipes.go(job(tmp_path, {"tool": "."}, **MODULE, files={"ui/dist/index.html": "none"}))
    built_in = Path((tmp_path / "built-in").read_text().strip())
    assert (built_in / "ui/dist/index.html").read_text() == "none"
    assert not (source / "ui").exists()


def test_nested_modules_are_taken_as_published(
    tmp_path: Path,
) -> None:
    source = stand_in_go(tmp_path)
    before = """\
replace a.org/none => ./FORBIDDEN
replace (
\tk8s.io/api => ./staging/api
\ta.org/tool/v3 => ../tool/v3
\ta.org/x => b.org/y v1.0.0
)
"""
    source.chmod(0o755)
    (source / "go.mod").write_text(before)
    recipes.go(job(tmp_path, {"tool": "."}, **MODULE, parts="v0.4.5"))
    after = before.replace("./staging/api", "k8s.io/api v0.4.5").replace("../tool/v3", "a.org/tool/v3 v0.4.5")
    assert (tmp_path / "scratch/source/go.mod").read_text() == after


def test_programs_of_one_package_are_built_once_with_several_names(tmp_path: Path) -> None:
    stand_in_go(tmp_path)
    made = job(tmp_path, {"first": "cmd/all", "second": "cmd/all"}, **MODULE, variables={"v.Tag": "v1"})
    recipes.go(made)
    arguments = (tmp_path / "arguments").read_text()
    assert arguments.endswith(f"-o {tmp_path}/into/first ./cmd/all\n")
    assert "-X v.Tag=v1" in arguments
    assert (made.into / "second").readlink() == Path("first")


def test_a_directory_of_a_go_module_is_copied_and_can_be_removed(tmp_path: Path) -> None:
    stand_in_go(tmp_path)
    made = job(tmp_path, {"tool-crds": "crds"}, **MODULE)
    recipes.go_files(made)
    taken = made.into / "tool-crds"
    assert [file.name for file in taken.iterdir()] == ["rule.yaml"]
    assert (taken / "rule.yaml").read_text() == "kind: Rule\n"
    assert all(path.stat().st_mode & 0o200 for path in (taken, taken / "rule.yaml"))
    assert not (tmp_path / "arguments").exists()


def test_a_single_file_of_a_go_module_is_copied_alone(tmp_path: Path) -> None:
    stand_in_go(tmp_path)
    made = job(tmp_path, {"tool-rule": "crds/rule.yaml"}, **MODULE)
    recipes.go_files(made)
    assert [file.name for file in made.into.iterdir()] == ["tool-rule"]
    assert (made.into / "tool-rule").read_text() == "kind: Rule\n"
    assert (made.into / "tool-rule").stat().st_mode & 0o200


def test_an_existing_go_module_cache_is_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOMODCACHE", "/their/cache")
    stand_in_go(tmp_path)
    recipes.go(job(tmp_path, {"tool": "cmd/tool"}, **MODULE))
    assert "GOMODCACHE=/their/cache\n" in (tmp_path / "environment").read_text()


def test_a_module_with_another_checksum_is_refused(tmp_path: Path) -> None:
    stand_in_go(tmp_path)
    wrong = job(tmp_path, {"tool": "cmd/tool"}, module=MODULE["module"], module_sum="h1:other=")
    for recipe in (recipes.go, recipes.go_files):
        with pytest.raises(Failed, match="expects h1:other="):
            recipe(wrong)
    assert not (tmp_path / "arguments").exists()


def test_launchers_work_after_the_build_is_renamed(tmp_path: Path) -> None:
    made = job(tmp_path, {"linked": "root/bin/hello", "run": '"$here/root/bin/hello" word'})
    (made.into / "root" / "bin").mkdir(parents=True)
    script(made.into / "root" / "bin" / "hello", 'echo "hello $*"')
    recipes._launchers(made)
    moved = made.into.rename(tmp_path / "a directory")
    link = tmp_path / "link"
    link.symlink_to(moved / "run")
    assert printed(moved / "linked", "world") == "hello world\n"
    assert printed(moved / "run", "a  b") == "hello word a  b\n"
    assert printed(link) == "hello word\n"


def printed(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def stand_in_npm(directory: Path, installed: dict[str, str]) -> None:
    """An `npm` that records its arguments, and installs these packages (place@version -> hash)."""
    packages: dict[str, dict[str, str]] = {"": {}}
    for package, integrity in installed.items():
        place, _, version = package.rpartition("@")
        packages[place] = {"version": version, "integrity": integrity}
    (directory / "lock").write_text(json.dumps({"packages": packages}))
    script(
        directory / "npm",
        f"echo $@ > {directory}/arguments; cp {directory}/lock {directory}/into/package-lock.json",
    )


def test_npm_packages_are_installed_by_version_without_their_scripts(tmp_path: Path) -> None:
    stand_in_npm(tmp_path, {"node_modules/@a/tool@1.2.3": "sha512-a", "node_modules/lib@4.5.6": "sha512-b"})
    packages = {"@a/tool@1.2.3": "sha512-a", "lib@4.5.6": "sha512-b"}
    made = job(tmp_path, {"tool": "node_modules/@a/tool"}, packages=packages)
    recipes.npm(made)
    arguments = (tmp_path / "arguments").read_text()
    assert "--ignore-scripts" in arguments
    assert arguments.endswith(f"--prefix {made.into} @a/tool@1.2.3 lib@4.5.6\n")
    assert (made.into / "tool").readlink() == Path("node_modules/@a/tool")


@pytest.mark.parametrize(
    "installed",
    [
        {"node_modules/tool@1.2.3": "sha512-other"},
        {"node_modules/tool@1.2.4": "sha512-a"},
        {"node_modules/tool@1.2.3": "sha512-a", "node_modules/unknown@1.0.0": "sha512-b"},
        {"node_modules/tool@1.2.3": "sha512-a", "node_modules/tool/node_modules/tool@1.2.3": "sha512-a"},
    ],
    ids=["another hash", "another version", "one more package", "one more, inside another"],
)
def test_npm_packages_with_another_checksum_are_refused(tmp_path: Path, installed: dict[str, str]) -> None:
    stand_in_npm(tmp_path, installed)
    made = job(tmp_path, {"tool": "node_modules/tool"}, packages={"tool@1.2.3": "sha512-a"})
    with pytest.raises(Failed, match=r"programs.toml expects \{'tool@1.2.3': 'sha512-a'\}"):
        recipes.npm(made)
    assert not (made.into / "tool").is_symlink()


def rust_machine(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cargo that records what it was given, and leaves a command where it was told to."""
    commands = directory / "commands"
    commands.mkdir()
    script(
        commands / "cargo",
        f"""echo "$@" > {directory}/arguments; env > {directory}/environment
        mkdir -p {directory}/scratch/root/bin && echo built > {directory}/scratch/root/bin/tool""",
    )
    for name in ("PROTOC", "CARGO_ENCODED_RUSTFLAGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")


def environment_given(directory: Path) -> dict[str, str]:
    lines = (directory / "environment").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def test_a_crate_is_built_with_its_lock_file_and_without_other_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rust_machine(tmp_path, monkeypatch)
    made = job(tmp_path, {"tool": "a-crate"})
    recipes.cargo(made)
    assert (made.into / "tool").read_text() == "built\n"
    assert (tmp_path / "arguments").read_text().startswith("install a-crate --version =1.2.3 --locked ")
    given = environment_given(tmp_path)
    assert given["CARGO_TARGET_DIR"].startswith(f"{made.scratch}/")
    assert "CARGO_ENCODED_RUSTFLAGS" not in given


def test_a_crate_gets_tools_and_libraries_of_other_sets_and_keeps_the_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rust_machine(tmp_path, monkeypatch)
    unpacked = tmp_path / "libthing" / "x86_64-linux-gnu"
    unpacked.mkdir(parents=True)
    (unpacked / "libthing.so.2").write_text("the library")
    (unpacked / "libthing.so").symlink_to("libthing.so.2")
    (unpacked / "libthing.a").write_text("not to be linked")
    (unpacked / "libother.so").symlink_to("libother.so.1")  # of a package that was not asked for
    made = job(tmp_path, {"tool": "a-crate"}, tools={"PROTOC": "protoc"}, libraries=["libthing"])
    recipes.cargo(made)
    given = environment_given(tmp_path)
    assert given["PROTOC"] == str(tmp_path / "protoc")
    flags = given["CARGO_ENCODED_RUSTFLAGS"].split("\x1f")
    assert flags == ["-L", f"{made.into}/lib", "-C", "link-arg=-Wl,-rpath,$ORIGIN/lib"]
    moved = made.into.rename(tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "libthing")
    assert {file.name for file in (moved / "lib").iterdir() if file.exists()} == {
        "libthing.so",
        "libthing.so.2",
    }
    assert (moved / "lib" / "libthing.so").read_text() == "the library"


def debian_machine(directory: Path, monkeypatch: pytest.MonkeyPatch, *targets: str) -> Path:
    """An apt-get and a dpkg-deb that record how they were called."""
    commands = directory / "commands"
    commands.mkdir()
    lines = "; ".join(f"echo {target}" for target in targets)
    script(
        commands / "apt-get",
        f"""echo "$@" >> {directory}/calls
        case "$*" in indextargets*) {lines} ;; *download*) touch tool.deb ;;
        *install*) echo 'Inst libc6 (2.36-9 Debian:12 [amd64])'; echo 'Inst tool (9.1-1 Debian:12 [amd64])'
          echo 'Inst libthing2 (2:4.5-6+b1 Debian:12 [amd64])'; echo 'Conf tool (9.1-1 Debian:12 [amd64])'
        esac""",
    )
    script(commands / "dpkg-deb", 'mkdir -p "$3/usr/bin" && echo "#!/bin/sh" > "$3/usr/bin/tool"')
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    return directory / "calls"


def test_a_debian_package_comes_from_the_archive_of_the_machine_without_changing_apt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = debian_machine(
        tmp_path,
        monkeypatch,
        "http://other.example/repository/ jammy main",
        "http://mirror.example/security/ bookworm-security main",
        "http://mirror.example/packages/ bookworm main",
    )
    made = job(
        tmp_path,
        {"tool-9": "root/usr/bin/tool"},
        suite="trixie",
        component="non-free",
        packages=["tool=9.*"],
    )
    recipes.debian(made)
    assert (made.into / "tool-9").resolve() == made.into / "root/usr/bin/tool"
    sources = (made.scratch / "sources.list").read_text()
    assert sources.endswith(" http://mirror.example/packages/ trixie non-free\n")
    for call in calls.read_text().splitlines()[1:]:
        for directory in ("Dir::State::Lists", "Dir::Cache", "Dir::Etc::SourceList"):
            assert f"-o{directory}={made.scratch}/" in call
    assert "download tool=9.*" in calls.read_text()


def test_a_debian_package_can_include_dependencies_except_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = debian_machine(tmp_path, monkeypatch, "http://mirror.example/packages/ bookworm main")
    made = job(
        tmp_path,
        {"tool-9": "root/usr/bin/tool"},
        suite="bookworm",
        component="main",
        packages=["tool=9.*"],
        dependencies_without=["libc[0-9]"],
    )
    recipes.debian(made)
    *_, asked, downloaded = calls.read_text().splitlines()
    assert asked.endswith("install --simulate --no-install-recommends tool=9.*")
    assert f"-oDir::State::status={made.scratch}/status" in asked
    assert (made.scratch / "status").read_text() == "", "what this machine has installed does not count"
    assert downloaded.endswith(" download tool=9.1-1 libthing2=2:4.5-6+b1")


def test_a_debian_package_that_cannot_be_unpacked_fails_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    debian_machine(tmp_path, monkeypatch, "http://mirror.example/packages/ bookworm main")
    script(tmp_path / "commands" / "dpkg-deb", 'echo "$2 is no package"; exit 2')
    made = job(tmp_path, {"tool": "root/usr/bin/tool"}, suite="bookworm", component="main", packages=["tool"])
    with pytest.raises(Failed, match="unpacking failed"):
        recipes.debian(made)


@pytest.mark.parametrize("targets", [[], ["http://other.example/repository/ jammy main"]])
def test_without_a_debian_archive_the_reason_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, targets: list[str]
) -> None:
    debian_machine(tmp_path, monkeypatch, *targets)
    made = job(tmp_path, {"tool-9": "root/usr/bin/tool"}, suite="trixie", component="main", packages=["tool"])
    with pytest.raises(Failed, match="apt has no Debian archive"):
        recipes.debian(made)


def test_without_apt_or_rust_the_reason_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    made = job(tmp_path, {"tool-9": "x"})
    with pytest.raises(Failed, match="this machine has no apt-get or dpkg-deb"):
        recipes.debian(made)
    with pytest.raises(Failed, match="needs Rust: `cargo`"):
        recipes.cargo(made)
