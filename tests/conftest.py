"""Settings and fixtures of all tests."""

import os
import random
from collections.abc import Generator

import pytest
from hypothesis import settings
from xdist.remote import Producer  # type: ignore[import-untyped]

from tests.support.schedule import END_TO_END, LongestFirst
from tools import Missing
from tools.testing.report import ProgressReport

# The machine may be busy: the duration of an example says nothing about the code. A run tries the same
# examples as the run before; `tools/test --stress` tries new ones.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("new", deadline=None, database=None, print_blob=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files, then compare")
    parser.addoption("--progress-bar", action="store_true", help="show the progress as a bar that moves")
    parser.addoption(
        "--shuffle", type=int, metavar="SEED", help="shuffle the tests, and try new examples of properties"
    )


@pytest.hookimpl(trylast=True)  # after pytest has made its terminal reporter
def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("same" if config.getoption("--shuffle") is None else "new")
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(
            ProgressReport(
                lambda text: terminal.write(text, flush=True), bar=bool(config.getoption("--progress-bar"))
            )
        )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffles files, and the tests within a file; those of the cluster follow each other as written."""
    seed = config.getoption("--shuffle")
    if seed is None:
        return
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    order = list(files)
    # Workers must collect the same order: the source depends on the seed only.
    source = random.Random(seed)
    source.shuffle(order)
    for name in order:
        if not (name.startswith(f"{END_TO_END}/") or files[name][0].get_closest_marker("one_cluster")):
            source.shuffle(files[name])
    items[:] = [item for name in order for item in files[name]]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Leaves a test out when the machine lacks what it needs; in CI every skipped test fails."""
    report = yield
    if call.excinfo is not None and call.excinfo.errisinstance(Missing):
        path, line, _ = report.location
        report.outcome, report.longrepr = "skipped", (path, line or 0, str(call.excinfo.value))
    if report.skipped and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = f"could not run, and with CI=true every test must: {report.longrepr}"
    return report


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LongestFirst | None:
    return LongestFirst(config, log) if config.getvalue("dist") == "loadfile" else None
