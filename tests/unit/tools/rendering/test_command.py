"""Generated files: written from their sources, and named when they are stale."""

from pathlib import Path

import pytest

from alerts import check as alerts_check
from dashboards import check as dashboards_check
from gputally import __version__
from gputally.declarations import CORE, Group
from gputally.metrics.catalog import CATALOG, Kind, Metric, Scope
from tools.chart_values import check as values_check
from tools.rendering import command as render
from tools.rendering import metrics_page


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    generated = (("docs/page.md", lambda _: "right\n"), ("label", render.stamp_version(r'version="([^"]*)"')))
    monkeypatch.setattr(render, "GENERATED", generated)
    monkeypatch.setattr(render, "ROOT", tmp_path)
    monkeypatch.setattr(render, "stale", lambda: stale(generated, tmp_path))
    monkeypatch.setattr(render, "version", lambda: "9.8.7")
    # Each has tests of its own, and takes a second.
    for check in (alerts_check, dashboards_check, values_check):
        monkeypatch.setattr(check, "problems", lambda *_: [])
    (tmp_path / "label").write_text('name="x" version="0.0.1"\nrest stays\n')
    return tmp_path


stale = render.stale


def test_render_writes_stale_files_and_then_all_are_up_to_date(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert render.main([]) == 0
    assert (root / "docs/page.md").read_text() == "right\n"
    assert (root / "label").read_text() == 'name="x" version="9.8.7"\nrest stays\n'
    assert "wrote docs/page.md" in capsys.readouterr().out
    assert render.main(["--check"]) == 0
    assert "2 of 2 " in capsys.readouterr().out


def test_check_names_stale_files_shows_the_difference_and_writes_nothing(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "docs").mkdir()
    (root / "docs/page.md").write_text("wrong\n")
    assert render.main(["--check"]) == 1
    said = capsys.readouterr().out
    assert "docs/page.md is stale" in said
    assert "    -wrong\n    +right\n" in said
    assert '+name="x" version="9.8.7"' in said
    assert (root / "docs/page.md").read_text() == "wrong\n"


def test_a_problem_in_a_source_is_named_and_nothing_is_written(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dashboards_check, "problems", lambda: ["two panels overlap"])
    assert render.main([]) == 1
    assert capsys.readouterr().err == "two panels overlap\n"
    assert not (root / "docs/page.md").exists()


def test_a_long_difference_is_truncated(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "docs").mkdir()
    (root / "docs/page.md").write_text("wrong\n" * 500)
    assert render.main(["--check"]) == 1
    said = capsys.readouterr().out
    assert "more lines" in said
    assert said.count("-wrong") < 30


def test_a_file_without_a_marker_for_the_version_is_an_error(root: Path) -> None:
    (root / "label").write_text("no label here\n")
    with pytest.raises(SystemExit, match="matches nothing"):
        render.main(["--check"])


def test_the_version_comes_from_the_package() -> None:
    assert render.version() == __version__


def test_the_reference_has_a_row_for_every_metric() -> None:
    rows = [line.split("|")[1].strip() for line in metrics_page.text().splitlines() if line.startswith("| `")]
    assert sorted(rows) == sorted(f"`{metric.name}`" for metric in CATALOG)


def test_a_row_has_all_values_of_the_catalogue() -> None:
    metric = Metric(
        "gputally_gpu_x_bytes_total",
        Kind.COUNTER,
        Scope.GPU,
        "nvlink_bytes",
        "This | that.",
        ("link",),
        group=Group.NVLINK,
        set=CORE,
        usual=("0",),
    )
    page = metrics_page.text([metric])
    assert "Labels: `gpu`, `uuid`." in page
    row = r"| `gputally_gpu_x_bytes_total` | This \| that. | nvlink | core | counter | bytes | `link`: `0` |"
    assert f"{row} nvml |" in page
    assert "## MIG" not in page


def test_every_scope_has_a_title_and_a_text() -> None:
    assert set(metrics_page.TITLES) == set(metrics_page.ABOUT) == set(Scope)
