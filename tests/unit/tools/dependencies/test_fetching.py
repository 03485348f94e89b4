"""Fetches that fail: repeated when a registry did not answer, and explained. The outputs are real ones."""

import io
from pathlib import Path

import pytest

from tools import Failed
from tools.dependencies import fetching
from tools.dependencies.fetching import fetched
from tools.dependencies.progress import Work

NO_ANSWER = {
    "apt": "Could not connect to 127.0.0.1:1 (127.0.0.1). - connect (111: Connection refused)",
    "pip": """\
WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(Failed to establish a new
ERROR: Could not find a version that satisfies the requirement ziglang==0.16.0 (from versions: none)
ERROR: No matching distribution found for ziglang==0.16.0""",
    "go": '"Error": "example.org/x@v0.8.0: Get x: dial tcp 127.0.0.1:1: connect: connection refused"',
    "npm": "npm error code ECONNREFUSED\nnpm error syscall connect\nnpm error errno ECONNREFUSED",
}
GONE = {
    "apt": "E: Version '149.*' for 'chromium' was not found",
    "apt without the package": "E: Unable to locate package nosuchpackage",
    "pip": "ERROR: No matching distribution found for ziglang==0.99.0",
    "go": '"Error": "example.org/x@v0.99.0: reading v0.99.0.info: 404 Not Found"',
    "npm": "npm error code ETARGET\nnpm error notarget No matching version found for tslib@2.99.1.",
}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "SECONDS_BEFORE_ANOTHER_TRY", 0)


class Registry:
    """A recipe whose fetches print these texts, one per try; "" is a success."""

    def __init__(self, directory: Path, *answers: str) -> None:
        self.answers = list(answers)
        self.screen = io.StringIO()
        self.work = Work("tool 1.0", directory / "log", self.screen)

    def fetch(self) -> None:
        answer = self.answers.pop(0)
        self.work.run("fetching", ["sh", "-c", 'echo "$0"; [ -z "$0" ]', answer])

    def fetched(self) -> None:
        fetched(self.fetch, self.work, "table", ["tool", "other"])


@pytest.mark.parametrize("client", NO_ANSWER)
def test_a_fetch_without_a_response_is_repeated_once(client: str, tmp_path: Path) -> None:
    registry = Registry(tmp_path, NO_ANSWER[client], "")
    registry.fetched()
    assert "trying once more" in registry.screen.getvalue()


@pytest.mark.parametrize("client", NO_ANSWER)
def test_two_fetches_without_a_response_are_a_failure_that_names_the_network(
    client: str, tmp_path: Path
) -> None:
    registry = Registry(tmp_path, NO_ANSWER[client], NO_ANSWER[client])
    with pytest.raises(
        Failed, match=r"fetching failed[^$]*A package registry did not answer\. Check the network"
    ):
        registry.fetched()


@pytest.mark.parametrize("client", GONE)
def test_a_version_that_a_registry_lacks_is_not_repeated_and_the_line_to_change_is_named(
    client: str, tmp_path: Path
) -> None:
    registry = Registry(tmp_path, GONE[client])
    with pytest.raises(Failed, match=r"lacks this version\. Change \[table\] in tools/programs.toml"):
        registry.fetched()


def test_any_failure_names_the_variable_for_other_programs(tmp_path: Path) -> None:
    registry = Registry(tmp_path, "tool.c:3: syntax error")
    with pytest.raises(Failed, match="Set GPUTALLY_PROGRAMS=tool=PATH,other=PATH to use your own"):
        registry.fetched()


def test_after_ctrl_c_nothing_is_repeated(tmp_path: Path) -> None:
    registry = Registry(tmp_path, NO_ANSWER["go"])
    registry.work.stop.set()
    with pytest.raises(Failed):
        registry.fetched()
