"""External programs: the pinned ones, got once into the cache, whatever else goes on."""

import os
import re
import select
import signal
import subprocess
import sys
import textwrap
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tools import ROOT, Failed, Missing
from tools.dependencies import command, programs, recipes
from tools.dependencies.programs import ProgramSet
from tools.servers.waiting import wait_until


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUTALLY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GPUTALLY_PROGRAMS", raising=False)
    return tmp_path / "cache"


def program_set(name: str = "tool", **settings: object) -> ProgramSet:
    return ProgramSet(name, {"version": "1.0", "recipe": "stand-in", "programs": {name: "x"}, **settings})


Pin = Callable[..., None]


@pytest.fixture
def pin(monkeypatch: pytest.MonkeyPatch) -> Pin:
    """Makes these the only sets that there are; their recipe, unless it is given, makes an empty file.

    What is asked for is really got, as it is not elsewhere in a test run.
    """
    monkeypatch.delenv("PYTEST_VERSION")

    def whole(job: recipes.BuildJob) -> None:
        for program in job.programs:
            (job.into / program).touch()

    def pin(*sets: ProgramSet, recipe: Callable[[recipes.BuildJob], None] = whole) -> None:
        monkeypatch.setattr(
            programs, "program_sets", lambda: {program_set.name: program_set for program_set in sets}
        )
        monkeypatch.setitem(recipes.RECIPES, "stand-in", recipe)

    return pin


def finish(job: recipes.BuildJob) -> None:
    (program,) = job.programs
    (job.into / program).touch()


def name(job: recipes.BuildJob) -> str:
    (program,) = job.programs
    return program


def script(directory: Path, name: str, text: str) -> Path:
    directory.mkdir(exist_ok=True)
    file = directory / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def other_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on PATH with every program that is pinned, of another version."""
    directory = tmp_path / "bin"
    for each in programs.program_sets().values():
        for program in each.programs:
            script(directory, program, f"echo {program} 99.0.0")
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")
    return directory


def test_programs_on_path_do_not_replace_the_pinned_ones(other_versions: Path, cache: Path) -> None:
    # Any C compiler gives the same result.
    for program in set(programs.names()) - {"cc"}:
        assert programs.find(program) is None, program
    pinned = programs.program_sets()["helm"].directory / "helm"
    pinned.parent.mkdir(parents=True)
    pinned.touch()
    assert programs.path("helm") == pinned
    assert programs.path("cc") == other_versions / "cc"


def test_other_programs_are_used_if_they_are_named(
    other_versions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = script(tmp_path / "elsewhere", "chromium-browser", "")
    plugins = tmp_path / "cni"
    plugins.mkdir()
    monkeypatch.setenv("GPUTALLY_PROGRAMS", f"helm,chromium={elsewhere},cni-plugins={plugins}")
    assert programs.path("helm") == other_versions / "helm"
    assert programs.path("chromium") == elsewhere
    assert programs.path("cni-plugins") == plugins
    assert programs.find("kubectl") is None


@pytest.mark.parametrize(
    ("asked_for", "told"),
    [("helm=/nowhere/helm", "/nowhere/helm is no executable"), ("helmm", "'helmm' is not in programs.toml")],
)
def test_a_missing_named_program_is_not_replaced_by_the_pinned_one(
    asked_for: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUTALLY_PROGRAMS", asked_for)
    with pytest.raises(Failed, match=told):
        programs.path("helm")


def test_a_set_is_installed_once(pin: Pin) -> None:
    runs: list[str] = []

    def count(job: recipes.BuildJob) -> None:
        runs.append(job.version)
        finish(job)

    pin(program_set(), recipe=count)
    first, second = programs.path("tool"), programs.path("tool")
    assert first == second == program_set().directory / "tool"
    assert first.exists()
    assert runs == ["1.0"]


def test_a_changed_pin_or_build_setting_is_another_set_and_a_changed_use_is_not(pin: Pin) -> None:
    made = (
        program_set(),
        program_set(version="1.1"),
        program_set(tags=["a"]),
        program_set(tags=["b"]),
        program_set(tags=["b"], minutes=5, needed_by=["fast"]),
    )
    places = []
    for one in made:
        pin(one)
        places.append(programs.path("tool"))
    assert len(set(places)) == 4
    assert places[3] == places[4]


def test_two_sets_are_installed_at_a_time_the_slowest_and_the_fastest(pin: Pin) -> None:
    short_ones_ready = threading.Event()
    ready: list[str] = []

    def recipe(job: recipes.BuildJob) -> None:
        if name(job) == "long":
            assert short_ones_ready.wait(timeout=30)
        finish(job)
        ready.append(name(job))
        if name(job) == "middle":
            short_ones_ready.set()

    pin(program_set("middle", minutes=2), program_set("long", minutes=5), program_set("short"), recipe=recipe)
    assert programs.install(["middle", "long", "short"]) == []
    assert ready == ["short", "middle", "long"]


def test_in_order_the_first_named_sets_are_begun_first(pin: Pin) -> None:
    begun: list[str] = []

    def recipe(job: recipes.BuildJob) -> None:
        begun.append(name(job))
        finish(job)

    names = ["middle", "short", "long"]
    pin(program_set("middle", minutes=2), program_set("short"), program_set("long", minutes=5), recipe=recipe)
    assert programs.install(names, in_order=True) == []
    assert set(begun[:2]) == {"middle", "short"}


def test_sets_that_are_installed_together_share_a_temporary_directory(pin: Pin, cache: Path) -> None:
    shared: set[Path] = set()

    def recipe(job: recipes.BuildJob) -> None:
        module = job.shared / "modules" / name(job)
        module.mkdir(parents=True)
        (module / "source.go").touch()
        module.chmod(0o500)
        shared.add(job.shared)
        finish(job)

    pin(program_set("one"), program_set("two"), recipe=recipe)
    assert programs.install(["one", "two"]) == []
    (directory,) = shared
    assert directory.is_relative_to(cache)
    assert not directory.exists()


def test_a_set_may_need_a_program_of_another_set_that_is_being_installed(pin: Pin) -> None:
    made: list[str] = []

    def recipe(job: recipes.BuildJob) -> None:
        if name(job) != "compiler":
            assert job.find("compiler").exists()
        made.append(name(job))
        finish(job)

    pin(
        program_set("first", minutes=2),
        program_set("compiler", minutes=1),
        program_set("second"),
        recipe=recipe,
    )
    assert programs.install(["first", "compiler", "second"]) == []
    assert made[0] == "compiler"
    assert sorted(made) == ["compiler", "first", "second"]


def test_after_a_failure_the_other_sets_are_installed_and_all_failures_are_reported(
    pin: Pin, capsys: pytest.CaptureFixture[str]
) -> None:
    def recipe(job: recipes.BuildJob) -> None:
        if job.settings.get("fails"):
            raise Failed(f"{job.work.title}: the registry did not answer")
        finish(job)

    pin(
        program_set("one", fails=True),
        program_set("two"),
        program_set("three", fails=True),
        program_set("four"),
        recipe=recipe,
    )
    assert command.main(["one", "two", "three", "four"]) == 1
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        str(program_set("two").directory / "two"),
        str(program_set("four").directory / "four"),
    ]
    for failed in ("one 1.0: the registry did not answer", "three 1.0: the registry did not answer"):
        assert said.err.count(failed) == 1


def test_a_failed_set_of_several_programs_is_tried_and_reported_once(
    pin: Pin, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(job: recipes.BuildJob) -> None:
        raise Failed(f"{job.work.title}: the registry did not answer")

    pin(program_set("tool", programs={"one": "x", "two": "x"}), recipe=fail)
    assert command.main(["one", "two"]) == 1
    assert capsys.readouterr().err.count("did not answer") == 1


def test_an_exception_in_a_recipe_is_a_failure(pin: Pin) -> None:
    def wrong(job: recipes.BuildJob) -> None:
        raise IndexError(job.version)

    pin(program_set("one"), program_set("two"), recipe=wrong)
    with pytest.raises(IndexError):
        programs.install(["one", "two"])


def test_ctrl_c_stops_all_sets_and_their_processes(pin: Pin, cache: Path, tmp_path: Path) -> None:
    begun = [tmp_path / "one", tmp_path / "three"]
    for fifo in begun:
        os.mkfifo(fifo)
    commands: list[int] = []

    def press_ctrl_c_when_both_run() -> None:
        commands.extend(int(fifo.read_text()) for fifo in begun)
        signal.pthread_kill(main_thread, signal.SIGINT)

    def endless(job: recipes.BuildJob) -> None:
        job.work.run("building", ["sh", "-c", f"echo $$ > {tmp_path}/{name(job)}; exec sleep 98765"])

    pin(program_set("one"), program_set("two"), program_set("three"), recipe=endless)
    main_thread = threading.get_ident()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=press_ctrl_c_when_both_run).start()
        assert command.main(["one", "two", "three"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(commands) == 2
    assert not [pid for pid in commands if Path(f"/proc/{pid}").exists()]
    assert not (tmp_path / "two").exists(), "after Ctrl-C nothing is begun"
    assert not (cache / "programs" / ".shared").exists()
    assert not [
        program_set(name).directory
        for name in ("one", "two", "three")
        if program_set(name).directory.exists()
    ]


def test_the_leftovers_of_a_failed_attempt_are_not_used(pin: Pin, cache: Path) -> None:
    def half(job: recipes.BuildJob) -> None:
        (job.into / "tool").write_text("half of it")
        read_only = job.scratch / "modules"
        read_only.mkdir()
        (read_only / "source.go").write_text("")
        read_only.chmod(0o500)
        raise Failed("the registry did not answer")

    def whole(job: recipes.BuildJob) -> None:
        assert not list(job.into.iterdir())
        (job.into / "tool").write_text("all of it")

    pin(program_set(), recipe=half)
    with pytest.raises(Failed, match="did not answer"):
        programs.path("tool")
    assert not program_set().directory.exists()
    pin(program_set(), recipe=whole)
    assert programs.path("tool").read_text() == "all of it"
    assert not list(cache.rglob("*.unfinished"))


RUN = """
import sys, time
from pathlib import Path
from tools.dependencies import programs
from tools.dependencies import recipes

def recipe(job):
{recipe}

recipes.RECIPES["stand-in"] = recipe
settings = {{"version": "1.0", "recipe": "stand-in", "programs": {{"tool": "x"}}}}
programs.program_sets = lambda: {{"tool": programs.ProgramSet("tool", settings)}}
print(programs.path("tool").read_text())
"""


def another_run(recipe: str, *arguments: str | Path) -> subprocess.Popen[str]:
    """Another process that gets the program_set `tool`, by the body of a recipe."""
    code = RUN.format(recipe=textwrap.indent(textwrap.dedent(recipe), "    "))
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "PYTEST_VERSION"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_set_of_a_killed_run_is_installed_again_with_its_compiled_files(
    pin: Pin, cache: Path, tmp_path: Path
) -> None:
    fifo = tmp_path / "begun"
    os.mkfifo(fifo)
    killed = another_run(
        """
        (job.shared / "compiled").touch()
        (job.into / "tool").write_text("half of it")
        job.work.run("building", ["sh", "-c", f"echo begun > {sys.argv[1]}; exec sleep 98765"])
        """,
        fifo,
    )
    assert fifo.read_text() == "begun\n"
    killed.kill()
    killed.communicate(timeout=30)

    def whole(job: recipes.BuildJob) -> None:
        assert not list(job.into.iterdir())
        assert (job.shared / "compiled").exists()
        (job.into / "tool").write_text("all of it")

    pin(program_set(), recipe=whole)
    assert programs.path("tool").read_text() == "all of it"
    assert not (cache / "programs" / ".shared").exists()


def test_the_leftovers_of_a_killed_run_are_removed_even_if_nothing_is_to_be_installed(
    pin: Pin, cache: Path
) -> None:
    pin(program_set())
    programs.path("tool")
    left = cache / "programs" / ".shared" / "modules"
    left.mkdir(parents=True)
    assert programs.install(["tool"]) == []
    assert not left.parent.exists()


def test_concurrent_runs_install_a_set_once(tmp_path: Path) -> None:
    slow = """
    with Path(sys.argv[1]).open("a") as runs:
        runs.write("run\\n")
    Path(sys.argv[2]).read_text()
    (job.into / "tool").write_text("whole")
    """
    log, go_on = tmp_path / "runs", tmp_path / "go-on"
    os.mkfifo(go_on)
    together = [another_run(slow, log, go_on) for _ in range(3)]
    # One builds and prints nothing yet; the others say that they wait for it.
    errors = [process.stderr for process in together if process.stderr]
    wait_until(lambda: len(select.select(errors, [], [], 0)[0]) == 2, "two runs wait")
    go_on.write_text("")
    printed = [process.communicate(timeout=60) for process in together]
    assert [out for out, _ in printed] == ["whole\n"] * 3
    assert log.read_text() == "run\n"
    assert sum("another run is installing it" in err for _, err in printed) == 2


def test_inside_a_test_run_nothing_is_built_and_the_command_is_named() -> None:
    with pytest.raises(Missing, match=r"^promtool .*run `tools/programs promtool`"):
        programs.path("promtool")


def test_an_unknown_program_is_named_with_the_known_ones() -> None:
    with pytest.raises(Failed, match=r"'promtoll'.*allowed: .*promtool"):
        programs.path("promtoll")


def test_the_command_prints_paths_continues_after_a_failure_and_returns_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = script(tmp_path / "bin", "promtool", "")
    monkeypatch.setenv("GPUTALLY_PROGRAMS", f"promtool={own}")
    assert command.main(["promtool"]) == 0
    assert capsys.readouterr().out == f"{own}\n"
    assert command.main(["prometheus", "promtool"]) == 1
    answer = capsys.readouterr()
    assert answer.out == f"{own}\n"
    assert "tools/programs prometheus" in answer.err


def test_listing_installs_nothing(capsys: pytest.CaptureFixture[str], cache: Path) -> None:
    assert command.main(["--list", "--for", "test"]) == 0
    assert re.search(r"^promtool +-$", capsys.readouterr().out, re.MULTILINE)
    assert not cache.exists()


def test_the_cache_is_outside_the_repository_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUTALLY_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert programs.cache() == Path(os.environ["HOME"]) / ".cache/gputally"
    assert ROOT not in programs.cache().parents


def test_the_programs_of_tests_and_demo_are_known() -> None:
    test = set(programs.names("test"))
    assert {"prometheus", "promtool", "nvidia-smi-535", "nvidia-smi-550", "cc"} <= test
    assert {"alertmanager", "amtool", "chromium", "playwright-core", "node"} <= test
    assert {"kube-apiserver", "kubectl", "etcd", "helm", "helm-4"} <= test
    assert {"containerd", "coredns", "buildah", "debian-python", "nft"} <= set(programs.names("cluster"))
    assert not test & set(programs.names("cluster"))
    assert {"prometheus", "prometheus-ui", "alertmanager-with-ui"} <= set(programs.names("demo"))
    assert "all-smi" not in test
    assert "go" not in programs.names()


def test_the_fast_tests_need_only_downloaded_programs() -> None:
    fast = set(programs.names("fast"))
    assert "helm" in fast
    assert fast <= set(programs.names("test"))
    for each in programs.program_sets().values():
        if fast & set(each.programs):
            assert each.settings["recipe"] in {"npm", "pypi"}


@pytest.mark.parametrize("name", sorted(programs.program_sets()))
def test_every_set_is_defined_by_its_pins_alone(name: str) -> None:
    made = programs.program_sets()[name]
    assert made.settings["recipe"] in recipes.RECIPES
    assert made.programs
    assert made.minutes >= 0
    assert set(made.needed_by) <= set(programs.GROUPS)
    number = re.fullmatch(r"\d+(\.\d+)*(\.post\d+)?", made.settings["version"])
    assert number or made.settings["version"] == made.settings["suite"]
    if "module" in made.settings:
        assert re.fullmatch(
            r"[a-z0-9./-]+@v\d+\.\d+\.\d+(-(0\.)?\d{14}-[0-9a-f]{12})?", made.settings["module"]
        )
        assert made.settings["module_sum"].startswith("h1:")
    if made.settings["recipe"] == "npm":
        for package, integrity in made.settings["packages"].items():
            assert re.fullmatch(r"[a-z@/-]+@\d+\.\d+\.\d+", package)
            assert integrity.startswith("sha512-")


def test_the_pins_name_no_registry() -> None:
    for name in ("tools/programs.toml", "tools/constraints.txt", "pyproject.toml"):
        assert "://" not in (ROOT / name).read_text()


def test_every_direct_requirement_of_the_tools_is_exact_and_agrees_with_the_constraints() -> None:
    lines = (ROOT / "tools/constraints.txt").read_text().splitlines()
    pinned = {normal(line) for line in lines if not line.startswith("#")}
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    for requirement in (entry for group in groups.values() for entry in group if isinstance(entry, str)):
        assert "==" in requirement
        assert normal(requirement) in pinned


def normal(requirement: str) -> str:
    return requirement.partition(";")[0].lower().replace("_", "-")
