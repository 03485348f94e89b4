"""The check of the rules: each kind of fault is reported with its group and rule."""

from pathlib import Path

import pytest

from alerts import check
from alerts.model import Alert, Group, RecordingRule, RowSetting, Setting, Severity
from alerts.runbooks import SECTIONS

POWER = "gputally_gpu_power_watts"


def alert(name: str = "GPUTallyHot", expr: str = f"{POWER} > [[ much ]]", description: str = "d") -> Alert:
    return Alert(name, expr, Severity.WARNING, summary="s", description=description)


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    (tmp_path / "GPUTallyHot.md").write_text("# GPUTallyHot\n" + "".join(f"## {s}\n" for s in SECTIONS))
    return tmp_path


def found(
    pages: Path,
    *rules: Alert | RecordingRule,
    settings: tuple[Setting, ...] = (),
    tables: tuple[RowSetting, ...] = (),
) -> list[str]:
    group = Group("gputally-test", rules or (Alert("GPUTallyHot", f"{POWER} > 1", Severity.INFO, "s", "d"),))
    return check.problems((group,), settings, tables, pages)


def test_a_correct_rule_has_no_fault(pages: Path) -> None:
    assert found(pages) == []


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (alert(expr="gputally_gpu_powr_watts > 1"), "gputally-test: GPUTallyHot: there is no metric"),
        (alert(expr=f'{POWER}{{pod="x"}} > 1'), "GPUTallyHot: gputally_gpu_power_watts has no label pod"),
        (alert(expr=f"{POWER} > [[ nowhere ]]"), "gputally-test: GPUTallyHot: there is no setting nowhere"),
        (alert(expr=f"{POWER} > 1", description="{{ $labels.pod }}"), "its text uses $labels.pod"),
        (alert("GPUHot", f"{POWER} > 1"), "must begin with GPUTally"),
        (alert("GPUTallyCold", f"{POWER} < 1"), "GPUTallyCold has no runbook"),
        (RecordingRule("power", POWER), "level:metric:operation"),
        (RecordingRule("gpu:power:row", f"{POWER} * [[ value ]]", each="prices"), "there is no table prices"),
        (
            RecordingRule("gpu:power:sum", "sum by (pod) (up)"),
            "gpu:power:sum: sum: what is aggregated has no label",
        ),
    ],
)
def test_a_fault_is_reported_with_its_group_and_rule(
    rule: Alert | RecordingRule, words: str, pages: Path
) -> None:
    assert any(words in problem for problem in found(pages, rule)), found(pages, rule)


def test_an_unused_setting_and_an_unused_table_are_faults(pages: Path) -> None:
    problems = found(pages, settings=(Setting("lonely", 1, "h"),), tables=(RowSetting("rows", {}, "h"),))
    assert [problem.split()[:2] for problem in problems] == [["setting", "lonely"], ["table", "rows"]]


def test_an_alert_that_is_defined_twice_is_a_fault(pages: Path) -> None:
    same = alert(expr=f"{POWER} > 1")
    (problem,) = found(pages, same, same)
    assert problem.startswith("GPUTallyHot ")


def test_a_runbook_without_an_alert_or_without_its_sections_is_a_fault(pages: Path) -> None:
    (pages / "GPUTallyOld.md").write_text("# GPUTallyOld\n")
    (pages / "GPUTallyHot.md").write_text("# GPUTallyHot\n## Meaning\n")
    problems = found(pages)
    assert any("GPUTallyHot.md: " in problem for problem in problems)
    assert any("GPUTallyOld.md " in problem for problem in problems)


def test_a_record_may_read_one_that_is_defined_below_it(pages: Path) -> None:
    high = RecordingRule("cluster:power:sum", "sum by (cluster) (node:power:sum)")
    low = RecordingRule("node:power:sum", f"sum by (cluster, node) ({POWER})")
    hot = alert(expr="cluster:power:sum > 1", description="{{ $labels.cluster }}")
    assert found(pages, high, low, hot) == []
