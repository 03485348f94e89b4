"""Recipes, as far as they can be tried without building anything; the real ones run before every test run."""

import io
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tools import recipes
from tools.progress import Failed, Work

MODULE = {"module": "example.org/tool@v1.2.3", "module_sum": "h1:right="}


def job(folder: Path, programs: dict[str, str], **settings: Any) -> recipes.Job:
    for name in ("into", "scratch"):
        (folder / name).mkdir()
    return recipes.Job(
        version="1.2.3",
        programs=programs,
        settings=settings,
        into=folder / "into",
        scratch=folder / "scratch",
        work=Work("tool 1.2.3", folder / "log", io.StringIO()),
        find=lambda name: folder / name,
    )


def script(file: Path, text: str) -> None:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def stand_in_go(folder: Path) -> Path:
    """A `go` that downloads a module with a replace directive, and on `build` records what it was given."""
    source = folder / "module"
    source.mkdir()
    (source / "go.mod").write_text(
        "module example.org/tool\n\ngo 1.25.0\n\nreplace a.org/x => b.org/y v1.0.0\n"
    )
    (source / "go.sum").write_text("a.org/x v1.0.0 h1:x=\n")
    facts = json.dumps({"Dir": str(source), "Sum": "h1:right="})
    script(
        folder / "go",
        f"""case "$1" in
        mod) echo 'go: downloading'; echo '{facts}' ;;
        build) echo "$@" > {folder}/arguments; env > {folder}/environment; cp go.mod go.sum {folder} ;;
        esac""",
    )
    return source


def test_a_go_program_is_built_from_a_module_of_ours_that_takes_over_its_replacements_and_sums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GOPATH", "GOMODCACHE"):
        monkeypatch.delenv(name, raising=False)
    stand_in_go(tmp_path)
    recipes.go(job(tmp_path, {"tool": "cmd/tool"}, **MODULE, tags=["a", "b"], version_variable="v.Version"))
    wrapper = (tmp_path / "go.mod").read_text()
    assert "module wrapper\n" in wrapper
    assert "replace a.org/x => b.org/y v1.0.0\n" in wrapper
    assert "require example.org/tool v1.2.3\n" in wrapper
    assert (tmp_path / "go.sum").read_text() == "a.org/x v1.0.0 h1:x=\n"
    arguments = (tmp_path / "arguments").read_text()
    assert "-tags a,b" in arguments
    assert "-X v.Version=1.2.3" in arguments
    assert arguments.endswith(f"-o {tmp_path}/into/tool example.org/tool/cmd/tool\n")
    environment = (tmp_path / "environment").read_text()
    assert f"GOMODCACHE={tmp_path}/scratch/" in environment
    assert f"GOCACHE={tmp_path}/scratch/" in environment


def test_someones_own_go_module_cache_is_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOMODCACHE", "/their/cache")
    stand_in_go(tmp_path)
    recipes.go(job(tmp_path, {"tool": "cmd/tool"}, **MODULE))
    assert "GOMODCACHE=/their/cache\n" in (tmp_path / "environment").read_text()


def test_a_module_that_is_not_what_was_pinned_is_refused(tmp_path: Path) -> None:
    stand_in_go(tmp_path)
    wrong = job(tmp_path, {"tool": "cmd/tool"}, module=MODULE["module"], module_sum="h1:other=")
    with pytest.raises(Failed, match="expects h1:other="):
        recipes.go(wrong)
    assert not (tmp_path / "arguments").exists()


def test_launchers_work_from_wherever_the_kit_is_renamed_to(tmp_path: Path) -> None:
    made = job(tmp_path, {"linked": "root/bin/hello", "run": '"$here/root/bin/hello" kit'})
    (made.into / "root" / "bin").mkdir(parents=True)
    script(made.into / "root" / "bin" / "hello", 'echo "hello $*"')
    recipes._launchers(made)
    kit = made.into.rename(tmp_path / "a kit")
    link = tmp_path / "link"
    link.symlink_to(kit / "run")
    assert printed(kit / "linked", "world") == "hello world\n"
    assert printed(kit / "run", "a  b") == "hello kit a  b\n"
    assert printed(link) == "hello kit\n"


def printed(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def rust_machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cargo that records what it was given, and leaves a command where it was told to."""
    commands = folder / "commands"
    commands.mkdir()
    script(
        commands / "cargo",
        f"""echo "$@" > {folder}/arguments; env > {folder}/environment
        mkdir -p {folder}/scratch/root/bin && echo built > {folder}/scratch/root/bin/tool""",
    )
    for name in ("PROTOC", "CARGO_ENCODED_RUSTFLAGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")


def environment_given(folder: Path) -> dict[str, str]:
    lines = (folder / "environment").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def test_a_crate_is_built_as_it_was_locked_and_its_build_changes_no_flags_unasked(
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


def test_a_crate_gets_its_build_tools_and_libraries_from_other_kits_and_keeps_the_libraries_beside_it(
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
    kit = made.into.rename(tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "libthing")
    assert {file.name for file in (kit / "lib").iterdir() if file.exists()} == {
        "libthing.so",
        "libthing.so.2",
    }
    assert (kit / "lib" / "libthing.so").read_text() == "the library"


def debian_machine(folder: Path, monkeypatch: pytest.MonkeyPatch, *targets: str) -> Path:
    """An apt-get and a dpkg-deb that record how they were called."""
    commands = folder / "commands"
    commands.mkdir()
    lines = "; ".join(f"echo {target}" for target in targets)
    script(
        commands / "apt-get",
        f"""echo "$@" >> {folder}/calls
        case "$*" in indextargets*) {lines} ;; *download*) touch tool.deb ;; esac""",
    )
    script(commands / "dpkg-deb", 'mkdir -p "$3/usr/bin" && echo "#!/bin/sh" > "$3/usr/bin/tool"')
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    return folder / "calls"


def test_a_debian_package_comes_from_the_machines_own_archive_and_changes_nothing_of_its_apt(
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
        for folder in ("Dir::State::Lists", "Dir::Cache", "Dir::Etc::SourceList"):
            assert f"-o{folder}={made.scratch}/" in call
    assert "download tool=9.*" in calls.read_text()


@pytest.mark.parametrize("targets", [[], ["http://other.example/repository/ jammy main"]])
def test_without_a_debian_archive_the_way_out_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, targets: list[str]
) -> None:
    debian_machine(tmp_path, monkeypatch, *targets)
    made = job(tmp_path, {"tool-9": "root/usr/bin/tool"}, suite="trixie", component="main", packages=["tool"])
    with pytest.raises(Failed, match="Put an executable named tool-9 on PATH"):
        recipes.debian(made)


def test_without_apt_or_rust_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    made = job(tmp_path, {"tool-9": "x"})
    with pytest.raises(Failed, match="Put an executable named tool-9 on PATH"):
        recipes.debian(made)
    with pytest.raises(Failed, match="install it so that `cargo` is on PATH"):
        recipes.cargo(made)


def test_without_apt_the_way_out_of_a_library_is_the_program_that_wants_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Failed, match="Put an executable named tool-9 on PATH"):
        recipes.debian(job(tmp_path, {"libthing": "root/usr/lib"}, only_for="tool-9"))
