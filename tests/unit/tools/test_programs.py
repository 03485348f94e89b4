"""External programs: found on PATH, or got once into the cache, whatever else goes on."""

import os
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

from tools import programs, recipes
from tools.programs import Kit
from tools.progress import Failed

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUTALLY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def kit(**settings: object) -> Kit:
    return Kit("tool", {"version": "1.0", "recipe": "count", "programs": {"tool": "x"}, **settings})


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How often the recipe `count` ran."""
    found: list[str] = []

    def count(job: recipes.Job) -> None:
        found.append(job.version)
        (job.into / "tool").write_text("#!/bin/sh\necho tool\n")

    monkeypatch.setitem(recipes.RECIPES, "count", count)
    return found


def script(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


def test_a_developers_own_program_on_path_is_used_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = script(tmp_path / "bin", "promtool", "exit 1")
    monkeypatch.setenv("PATH", str(own.parent))
    assert programs.path("promtool") == own


def test_a_build_tool_on_path_that_is_too_old_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = script(tmp_path / "old", "go", '[ "$1" = version ] && echo go version go1.19.4 linux/amd64')
    new = script(tmp_path / "new", "go", '[ "$1" = version ] && echo go version go1.99.0 linux/amd64')
    monkeypatch.setenv("PATH", f"{old.parent}:/usr/bin:/bin")
    assert programs.find("go") is None
    monkeypatch.setenv("PATH", f"{new.parent}:/usr/bin:/bin")
    assert programs.find("go") == new


def test_a_kit_is_made_once(runs: list[str]) -> None:
    first, second = programs.install(kit()), programs.install(kit())
    assert first == second
    assert (first / "tool").exists()
    assert runs == ["1.0"]


def test_a_changed_pin_or_build_setting_is_another_kit(runs: list[str]) -> None:
    folders = {
        programs.install(made) for made in (kit(), kit(version="1.1"), kit(tags=["a"]), kit(tags=["b"]))
    }
    assert len(folders) == 4
    assert len(runs) == 4


def test_what_a_failed_try_leaves_is_no_program_and_the_next_try_starts_clean(
    monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    def half(job: recipes.Job) -> None:
        (job.into / "tool").write_text("half of it")
        read_only = job.scratch / "modules"
        read_only.mkdir()
        (read_only / "source.go").write_text("")
        read_only.chmod(0o500)
        raise Failed("the registry did not answer")

    def whole(job: recipes.Job) -> None:
        assert not list(job.into.iterdir())
        (job.into / "tool").write_text("all of it")

    monkeypatch.setitem(recipes.RECIPES, "count", half)
    with pytest.raises(Failed, match="did not answer"):
        programs.install(kit())
    assert not kit().folder.exists()
    monkeypatch.setitem(recipes.RECIPES, "count", whole)
    assert (programs.install(kit()) / "tool").read_text() == "all of it"
    assert not list(cache.rglob("*.unfinished"))


def test_two_runs_that_start_together_make_a_kit_once(tmp_path: Path) -> None:
    code = textwrap.dedent(
        """
        import sys, time
        from pathlib import Path
        from tools import programs, recipes

        def slow(job):
            with Path(sys.argv[1]).open("a") as runs:
                runs.write("run\\n")
            time.sleep(1)
            (job.into / "tool").write_text("whole")

        recipes.RECIPES["slow"] = slow
        kit = programs.Kit("tool", {"version": "1", "recipe": "slow", "programs": {"tool": "x"}})
        print((programs.install(kit) / "tool").read_text())
        """
    )
    log = tmp_path / "runs"
    command = [sys.executable, "-c", code, str(log)]
    together = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    printed = [process.communicate(timeout=60) for process in together]
    assert [out for out, _ in printed] == ["whole\n"] * 3
    assert log.read_text() == "run\n"
    assert sum("another run is getting it" in err for _, err in printed) == 2


def test_inside_a_test_run_nothing_is_built_and_the_command_that_does_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Failed, match="run `tools/programs promtool` first"):
        programs.path("promtool")


def test_an_unknown_program_is_named_with_those_that_there_are() -> None:
    with pytest.raises(Failed, match=r"no program 'promtoll'.*promtool"):
        programs.path("promtoll")


def test_the_command_prints_what_it_found_goes_on_after_a_failure_and_says_so_by_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = script(tmp_path / "bin", "promtool", "")
    monkeypatch.setenv("PATH", str(own.parent))
    assert programs.main(["promtool"]) == 0
    assert capsys.readouterr().out == f"{own}\n"
    assert programs.main(["prometheus", "promtool"]) == 1
    answer = capsys.readouterr()
    assert answer.out == f"{own}\n"
    assert "tools/programs prometheus" in answer.err


def test_listing_gets_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cache: Path
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert programs.main(["--list", "--for", "test"]) == 0
    assert re.search(r"^promtool +-$", capsys.readouterr().out, re.MULTILINE)
    assert not cache.exists()


def test_the_cache_is_outside_the_repository_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUTALLY_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert programs.cache() == Path(os.environ["HOME"]) / ".cache/gputally"
    assert ROOT not in programs.cache().parents


def test_the_tests_and_the_demo_know_what_they_need() -> None:
    assert {"prometheus", "promtool", "nvidia-smi-535", "nvidia-smi-550", "cc"} <= set(programs.names("test"))
    assert {"alertmanager", "amtool", "chromium", "playwright-core", "node"} <= set(programs.names("test"))
    assert {"prometheus", "prometheus-ui", "alertmanager-with-ui"} <= set(programs.names("demo"))
    assert "all-smi" not in programs.names("test")
    assert "go" not in programs.names()


@pytest.mark.parametrize("name", sorted(programs.kits()))
def test_every_kit_can_be_made_from_its_pins_alone(name: str) -> None:
    made = programs.kits()[name]
    assert made.settings["recipe"] in recipes.RECIPES
    assert made.programs
    assert re.fullmatch(r"\d+(\.\d+)*(\.post\d+)?", made.settings["version"])
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
    return requirement.lower().replace("_", "-")
