"""The flags, the waiting and the exit status."""

import io
from pathlib import Path

import pytest

from gputally.cli import main
from gputally.commands import FAILURE, NOT_CHECKED, OK, Finding, passed, report_lines, some
from gputally.commands.verify import run, until_passed
from tests.support.fake_servers import site

WELL = Finding(OK, "rules", "loaded")
ILL = Finding(FAILURE, "targets", "down", "start them")
METRICS = {"/metrics": b'\ngputally_exporter_info{version="1"} 1\n'}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def wait(looks: list[list[Finding]], seconds: float) -> tuple[list[Finding], str, float]:
    clock, out = Clock(), io.StringIO()
    left = iter(looks)
    found = until_passed(lambda: next(left), seconds, out, clock=clock, sleep=clock.sleep)
    return found, out.getvalue(), clock.now


def test_pending_checks_are_waited_for_but_do_not_fail() -> None:
    early = Finding(NOT_CHECKED, "dashboards", "not counted yet", early=True)
    found, said, took = wait([[early], [WELL]], 60)
    assert (found, took) == ([WELL], 5)
    assert "waiting for: dashboards" in said
    found, _, took = wait([[early]] * 3, 10)
    assert (found, took) == ([early], 10)
    assert passed(found)


def test_the_report_has_a_line_for_each_finding_and_one_for_its_fix() -> None:
    assert "\n".join(report_lines([WELL, ILL])) == (
        "ok       rules    loaded\nfailure  targets  down\n                  fix: start them"
    )


def test_only_a_failure_fails() -> None:
    assert passed([WELL, Finding(NOT_CHECKED, "a", "b"), Finding("warning", "a", "b")])
    assert not passed([WELL, ILL])


def test_of_many_names_the_first_are_printed_sorted_and_unique() -> None:
    assert some(["b", "a", "b"]) == "a, b"
    assert some("gfedcba") == "a, b, c, d, e and 2 more"


def test_verify_waits_until_nothing_fails_and_prints_the_pending_checks() -> None:
    found, said, seconds = wait([[ILL], [ILL], [WELL, Finding(FAILURE, "rules", "x")], [WELL]], 60)
    assert found == [WELL]
    assert said == "waiting for: targets\nwaiting for: rules\n"
    assert seconds == 15


def test_verify_waits_no_longer_than_the_timeout() -> None:
    found, _, seconds = wait([[ILL]] * 5, 12)
    assert (found, seconds) == ([ILL], 10)
    assert wait([[ILL]], 0)[1:] == ("", 0)


def test_verify_does_not_wait_for_permanent_failures() -> None:
    final = Finding(FAILURE, "grafana", "the login is wrong", final=True)
    assert wait([[final]], 60)[0] == [final]


def test_the_exit_code_is_1_only_after_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    with site(METRICS) as served:
        assert main(["verify", "--exporter", served.url]) == 0
    assert "ok           exporter " in capsys.readouterr().out
    assert main(["verify", "--exporter", "http://127.0.0.1:1"]) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "at least one of --exporter"),
        (["--rule-groups", "3", "--dashboards", "2"], "at least one of --exporter"),
        (["--prometheus", "prometheus:9090"], "'prometheus:9090' is not allowed; it takes a URL"),
        (["--prometheus", "file:///etc/passwd"], "it takes a URL"),
        (["--exporter", "http://a", "--wait", "soon"], "'soon'"),
        (["--exporter", "http://a", "--rule-groups", "-1"], "--rule-groups"),
        (["--exporter", "http://a", "--exporter-login", "/nowhere"], "/nowhere/username"),
        (["pod", "--prometheus", "http://a"], "the following arguments are required: --namespace, --pod"),
    ],
)
def test_a_wrong_flag_is_an_error_of_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(arguments, io.StringIO())
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_logins_and_several_exporters_are_used(tmp_path: Path) -> None:
    (tmp_path / "username").write_text("ann")
    (tmp_path / "password").write_text("x")
    out = io.StringIO()
    with site(METRICS, login="Basic YW5uOng=") as first, site(METRICS) as second:
        flags = ["--exporter", first.url, "--exporter", f"{second.url}/", "--exporter-login", str(tmp_path)]
        assert run(flags, out) == 0
    assert out.getvalue().count("ok           exporter ") == 2
