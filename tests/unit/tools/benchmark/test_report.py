"""What tools/bench writes: numbers, tables, verdicts and the page."""

import dataclasses
import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.benchmark.command import parser
from tools.benchmark.contenders import ALL_SMI, NAMES, OURS, PLAIN, Contender, Role
from tools.benchmark.figures import Spread, number, range_of, ratio, table
from tools.benchmark.fleet import Answer, FleetCost
from tools.benchmark.lint import Faults, parse_findings, promtool_faults
from tools.benchmark.machine import MachineFacts, parse_cpu_model
from tools.benchmark.price import Size
from tools.benchmark.report import BenchmarkRun, report
from tools.benchmark.rounds import Effort, Result, Round, count_series
from tools.benchmark.scaling import Point, least, read_duration
from tools.benchmark.targets import MIB, TargetResult, judge

FLOOR = Contender("static-bytes", "the floor", Role.FLOOR, ("x",))
PEER = Contender("a-peer", "a peer", Role.PEER, ("x", "{port}", "{interval}"))
MACHINE = MachineFacts(2, "Some CPU", 24 << 30, "6.1", "3.11.7", 0.5)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (0.0, "0"),
        (26.13, "26.1"),
        (0.04567, "0.0457"),
        (0.0999951, "0.100"),
        (9.9996, "10.0"),
        (12345.6, "12,300"),
        (999.9, "1,000"),
        (-1.5, "-1.50"),
    ],
)
def test_numbers_have_three_significant_digits(value: float | None, shown: str) -> None:
    assert number(value) == shown


@given(st.floats(min_value=1e-6, max_value=1e12))
def test_a_shown_number_is_within_half_a_percent(value: float) -> None:
    assert math.isclose(float(number(value).replace(",", "")), value, rel_tol=0.0051)


def test_a_range_is_shown_where_rounds_differ() -> None:
    assert range_of(Spread(1.0, 0.9, 1.2)) == "1.00 (0.900-1.20)"
    assert range_of(Spread(1.0001, 1.0, 1.0002)) == "1.00"


def test_a_ratio_needs_both_values() -> None:
    assert ratio(3.0, 2.0) == "1.5x"
    assert ratio(None, 2.0) == "-"
    assert ratio(3.0, 0.0) == "-"


def test_a_table_survives_bars_and_line_breaks_in_its_cells() -> None:
    assert table(["a", "b"], [["x|y", "1\n2"]]).splitlines() == [
        "| a | b |",
        "| --- | --: |",
        "| x\\|y | 1 2 |",
    ]


def one_round(p50: float, **other: float) -> Round:
    figures: dict[str, float] = {
        "start_seconds": 0.1,
        "resident_idle_bytes": 20 * MIB,
        "resident_after_bytes": 20 * MIB,
        "p50_seconds": p50,
        "p99_seconds": 3 * p50,
        "cpu_seconds_per_thousand": 0.1,
        "prometheus_p50_seconds": p50,
        "rate_per_second": 1000.0,
    }
    return Round(**(figures | other))  # type: ignore[arg-type]


def result(contender: Contender, *rounds: Round, idle: float = 0.05, fast_idle: float = 0.5) -> Result:
    return Result(
        contender,
        list(rounds),
        series=10,
        body_bytes=1000,
        idle_cpu_percent=idle,
        fast_idle_cpu_percent=fast_idle,
    )


def points(unit: str, costs: dict[int, float]) -> list[Point]:
    base = Point(8, 0, 0.001, 0.001, 0.001, 100, 1000, 20 * MIB, 0.0001)
    return [
        dataclasses.replace(base, scraped_cpu_seconds=cost, **{unit: count}) for count, cost in costs.items()
    ]


LINEAR_GPUS = points("gpus", {1: 1, 2: 2, 4: 4, 8: 8, 16: 16})
QUICK_FLEET = FleetCost(
    1000,
    30_000_000,
    [
        Answer("Worst GPUs, A", 0.25, 50, 1_000_000),
        Answer("GPUs, A", 0.004, 1, 4),
        Answer("Lost, A", 0.001, 0, 4),
    ],
)
LINEAR_PROCESSES = points("processes", {0: 1, 10: 2, 100: 11, 1000: 101})


def good_run() -> list[Result]:
    return [
        result(OURS, one_round(0.0001), one_round(0.0002), one_round(0.0009)),
        result(FLOOR, one_round(0.00014)),
        result(PLAIN, one_round(0.003, resident_idle_bytes=26 * MIB, resident_after_bytes=26 * MIB)),
        result(PEER, one_round(0.001)),
        result(ALL_SMI, one_round(0.002), idle=0.07),
    ]


def verdict_of(verdicts: list[TargetResult], text: str) -> TargetResult:
    (found,) = [verdict for verdict in verdicts if text in verdict.target]
    return found


def test_a_good_run_meets_every_target() -> None:
    verdicts = judge(
        good_run(),
        LINEAR_GPUS,
        LINEAR_PROCESSES,
        ledger_window_seconds=0.0004,
        profiles_seconds=0.009,
        fleet=QUICK_FLEET,
    )
    assert [verdict.target for verdict in verdicts if not verdict.met] == []
    assert len(verdicts) == 17


def test_a_slow_ledger_misses_its_target() -> None:
    assert verdict_of(judge(good_run(), [], [], ledger_window_seconds=0.002), "ledger").met is False


def test_a_slow_query_on_a_large_fleet_misses_its_target() -> None:
    slow = dataclasses.replace(QUICK_FLEET, answers=[Answer("Nodes, A", 1.0, 1, 1)])
    verdicts = judge(good_run(), [], [], fleet=slow)
    assert verdict_of(verdicts, "Fleet dashboard, 1,000 nodes x 8 GPUs").met is False


def test_targets_are_measured_against_the_best_peer_of_this_run() -> None:
    third = verdict_of(judge(good_run(), [], []), "a third")
    assert third.limit_of == "a-peer"
    assert third.measured == pytest.approx(0.2)
    assert third.limit == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("text", "spoil"),
    [
        ("a third", {"p50_seconds": 0.00034}),
        ("static bytes", {"p50_seconds": 0.00022}),
        ("p99", {"p99_seconds": 0.003}),
        ("CPU per 1,000", {"cpu_seconds_per_thousand": 0.5}),
        ("memory idle", {"resident_idle_bytes": 26 * MIB}),
        ("memory after", {"resident_after_bytes": 27 * MIB}),
        ("start to", {"start_seconds": 0.2}),
    ],
)
def test_each_target_can_be_missed(text: str, spoil: dict[str, float]) -> None:
    run = good_run()
    run[0] = result(
        OURS, one_round(0.0001, **spoil) if "p50_seconds" not in spoil else one_round(spoil["p50_seconds"])
    )
    assert verdict_of(judge(run, LINEAR_GPUS, LINEAR_PROCESSES), text).met is False


def test_idle_targets_can_be_missed() -> None:
    run = good_run()
    run[0] = result(OURS, one_round(0.0001), idle=0.071, fast_idle=1.0)
    verdicts = judge(run, [], [])
    assert verdict_of(verdicts, "every 5 s").met is False
    assert verdict_of(verdicts, "every 1 s").met is False


def test_a_sample_can_cost_too_much() -> None:
    for text, by_gpus, by_processes in (
        ("of 8 GPUs", [dataclasses.replace(LINEAR_GPUS[3], sample_cpu_seconds=0.002)], []),
        ("and 1,000 processes", [], [dataclasses.replace(LINEAR_PROCESSES[3], sample_cpu_seconds=0.02)]),
    ):
        verdicts = judge(good_run(), by_gpus, by_processes)
        (found,) = [one for one in verdicts if one.target.endswith(text)]
        assert found.met is False


def test_more_memory_than_the_target_is_missed() -> None:
    run = good_run()
    run[0] = result(OURS, one_round(0.0001, resident_after_bytes=22 * MIB))
    (found,) = [one for one in judge(run, [], []) if one.target == "resident memory"]
    assert found.met is False


def test_growth_worse_than_linear_is_missed() -> None:
    quadratic = points("processes", {0: 1, 10: 1.1, 100: 11, 1000: 1001})
    verdicts = judge(good_run(), LINEAR_GPUS, quadratic)
    assert verdict_of(verdicts, "with GPUs").met is True
    assert verdict_of(verdicts, "with processes").met is False


def test_unmeasured_targets_are_neither_met_nor_missed() -> None:
    alone = judge([result(OURS, one_round(0.0001))], [], [])
    for text in (
        "a third",
        "static bytes",
        "p99",
        "every 5 s",
        "memory idle",
        "with GPUs",
        "Fleet dashboard",
    ):
        assert verdict_of(alone, text).met is None


def test_without_our_exporter_there_is_no_result() -> None:
    assert judge([result(PEER, one_round(0.001))], [], []) == []


def test_the_large_fleet_is_evaluated_without_an_exporter() -> None:
    assert len(judge([], [], [], fleet=QUICK_FLEET)) == 1


def whole_run(results: list[Result]) -> BenchmarkRun:
    return BenchmarkRun(
        machine=MACHINE,
        command="tools/bench --quick",
        date="2026-01-02 03:04 UTC",
        seconds=90,
        effort=Effort(),
        results=results,
        missing={"dcgm-exporter": "not on PATH"},
        faults={"a-peer": Faults(3, ("x no help text", "y no help text"))},
        by_gpus=LINEAR_GPUS,
        by_processes=LINEAR_PROCESSES,
        verdicts=judge(
            results,
            LINEAR_GPUS,
            LINEAR_PROCESSES,
            ledger_window_seconds=0.0004,
            profiles_seconds=0.009,
            fleet=QUICK_FLEET,
        ),
        fleet=QUICK_FLEET,
    )


def test_the_page_has_machine_date_and_method() -> None:
    page = report(whole_run(good_run()))
    for text in ("tools/bench --quick", "2026-01-02", "Some CPU", "3.11.7", "17 of 17 met"):
        assert text in page
    assert "| gputally | 10 | 1.00 | 0.200 (0.100-0.900) |" in page
    assert "**dcgm-exporter** was not measured: not on PATH" in page
    assert "| a-peer | 2 | lint | x no help text |" in page


def test_the_page_names_the_slowest_queries() -> None:
    page = report(whole_run(good_run()))
    assert "3 queries. The slowest takes 250 ms, the median 4.00 ms" in page
    assert "Without results on this fleet: Lost, A." in page
    assert "| Worst GPUs, A | 250 | 50 | 1,000,000 |" in page


def test_a_page_of_the_large_fleet_alone_has_no_exporters() -> None:
    verdicts = judge([], [], [], fleet=QUICK_FLEET)
    run = dataclasses.replace(
        whole_run(good_run()), results=[], missing={}, faults={}, by_gpus=[], verdicts=verdicts
    )
    page = report(run)
    assert "## The Fleet dashboard" in page
    assert "1 of 1 met" in page
    assert "## Side by side" not in page
    assert "promtool" not in page


def test_the_page_shows_a_missed_target() -> None:
    run = good_run()
    run[0] = result(OURS, one_round(0.01))
    page = report(whole_run(run))
    assert "**not met**" in page
    assert "17 of 17" not in page


def test_the_page_prices_the_series_of_each_set_and_peer() -> None:
    page = report(dataclasses.replace(whole_run(good_run()), sets=[Size("gputally, core", 160, 8000, 2000)]))
    # 160 series every 15 s for 30 days are 27.648 million samples.
    assert "| gputally, core | 160 | 20.0 | 8.00 | 2.00 | 1.66 | 0.83 |" in page
    assert "| a-peer | 10 | 1.25 | 1.00 | 0 | 0.10 | 0.05 |" in page


def test_a_failed_exporter_is_named_and_not_compared() -> None:
    broken = Result(PEER, trouble="it ended with exit code 1")
    page = report(whole_run([*good_run()[:3], broken]))
    assert "left out: it ended with exit code 1" in page
    assert "| a-peer | 10" not in page


def test_every_table_of_the_page_is_rectangular() -> None:
    page = report(whole_run(good_run()))
    for block in page.split("\n\n"):
        if block.startswith("| "):
            widths = {line.count("|") - line.count("\\|") for line in block.splitlines()}
            assert len(widths) == 1, block


def test_series_are_sample_lines() -> None:
    assert count_series(b'# HELP a b\n# TYPE a gauge\na 1\na{b="#"} 2\n\n# EOF\n') == 2


def test_the_read_duration_is_found_in_our_scrape() -> None:
    body = (
        b"# TYPE gputally_source_duration_seconds gauge\n"
        b'gputally_source_duration_seconds{source="nvidia-smi"} 9\n'
        b'gputally_source_duration_seconds{source="nvml"} 0.0125\n'
    )
    assert read_duration(body) == 0.0125


def test_of_two_rounds_the_lower_cost_counts() -> None:
    first, second = points("gpus", {8: 2.0}) + points("gpus", {8: 1.0})
    second = dataclasses.replace(second, read_seconds=5.0)
    both = least([first, second])
    assert (both.scraped_cpu_seconds, both.read_seconds, both.gpus) == (1.0, 0.001, 8)


def test_cpu_models_are_read_where_there_is_one() -> None:
    assert parse_cpu_model("processor : 0\nmodel name\t: Fast  CPU @ 3\n") == "Fast CPU @ 3"
    assert parse_cpu_model("processor : 0\nCPU implementer : 0x41\n")


def test_findings_are_lines() -> None:
    assert parse_findings("a no help text\n\n  b bad\n") == ("a no help text", "b bad")


def test_promtool_reads_standard_input(tmp_path: pytest.TempPathFactory) -> None:
    script = tmp_path / "promtool"  # type: ignore[operator]
    script.write_text(f"#!{sys.executable}\nimport sys\nprint(sys.argv[1:], sys.stdin.read())\nsys.exit(3)\n")
    script.chmod(0o755)
    faults = promtool_faults(script, b"a 1")
    assert faults.first == "['check', 'metrics'] a 1"
    assert faults.verdict == "lint"


def test_commands_are_filled_in() -> None:
    assert PEER.started_as(9400, 5) == ["x", "9400", "5"]
    assert PEER.started_as(9400, 0.25) == ["x", "9400", "0.25"]
    assert PEER.samples_on_its_own
    assert not PLAIN.samples_on_its_own


def test_the_flags_are_parsed() -> None:
    options = parser().parse_args(
        ["--rounds", "2", "--scrapes", "50", "--only", "gputally", "all-smi", "--check"]
    )
    assert (options.rounds, options.scrapes, options.only, options.check) == (
        2,
        50,
        ["gputally", "all-smi"],
        True,
    )
    assert parser().parse_args(["--only", "fleet"]).only == ["fleet"]
    with pytest.raises(SystemExit):
        parser().parse_args(["--only", "nobody"])
    assert "static-bytes" in NAMES
