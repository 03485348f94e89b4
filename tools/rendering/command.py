"""Writes the generated files, or (--check) reports those that are stale."""

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from alerts import chart, manifests
from alerts import check as alerts_check
from dashboards import check as dashboards_check
from dashboards import registry
from tools import ROOT, Failed
from tools.chart_values import check as values_check
from tools.chart_values import readme, schema, source
from tools.rendering import (
    accuracy,
    alerts_page,
    compose,
    metrics_page,
    migrate_page,
    plain_install,
    xids_page,
)

CHART = ROOT / chart.CHART

Render = Callable[[str], str]
"""From a file's current text ("" when it does not exist) to its generated text."""


def version(root: Path = ROOT) -> str:
    """GPUTally's version, from exporter/gputally/__init__.py."""
    source = (root / "exporter/gputally/__init__.py").read_text()
    found = re.search(r'^__version__ = "([^"]+)"$', source, re.MULTILINE)
    if found is None:
        raise SystemExit("exporter/gputally/__init__.py has no __version__")
    return found[1]


def stamp_version(pattern: str) -> Render:
    """Replaces the pattern's only group by the version."""

    def stamp(text: str) -> str:
        def replace(match: re.Match[str]) -> str:
            before, after = match.start(1) - match.start(), match.end(1) - match.start()
            return match[0][:before] + version() + match[0][after:]

        stamped, count = re.subn(pattern, replace, text)
        if not count:
            raise SystemExit(f"the version cannot be written: {pattern!r} matches nothing")
        return stamped

    return stamp


def stamp_accuracy(text: str) -> str:
    """Replaces the text between the two marks of docs/energy.md by the measured errors."""
    between = r"(?<=<!-- accuracy -->\n).*?(?=<!-- /accuracy -->)"
    stamped, count = re.subn(between, lambda _: f"\n{accuracy.table()}\n", text, flags=re.DOTALL)
    if not count:
        raise SystemExit("docs/energy.md has no marks <!-- accuracy --> and <!-- /accuracy -->")
    return stamped


stamp_values = stamp_version(r"(?m)^defaultsVersion: (\S+)$")


def chart_values() -> str:
    """The chart's generated values.yaml, the source of other files."""
    return stamp_values((CHART / "values.yaml").read_text())


def chart_presets() -> list[source.Preset]:
    return source.presets(CHART / "presets")


def whole(text: str) -> Render:
    """A file without any text written by hand."""
    return lambda _: text


def _compose_file(path: str, _: str) -> str:
    return compose.files(chart_values())[path]


GENERATED: tuple[tuple[str, Render], ...] = (
    ("docs/metrics.md", lambda _: metrics_page.text()),
    ("docs/energy.md", stamp_accuracy),
    ("docs/migrate.md", migrate_page.stamp),
    ("docs/alerts.md", alerts_page.stamp),
    *xids_page.PAGES,
    ("Dockerfile", stamp_version(r'org\.opencontainers\.image\.version="([^"]*)"')),
    ("helm/gputally/Chart.yaml", stamp_version(r'(?m)^(?:version: |appVersion: ")([^"\n]+)')),
    ("deploy/argocd/application.yaml", stamp_version(r"targetRevision: v(\S+)")),
    ("deploy/argocd/applicationset.yaml", stamp_version(r"targetRevision: v(\S+)")),
    ("helm/gputally/values.yaml", stamp_values),
    ("helm/gputally/values.schema.json", lambda _: schema.text(chart_values())),
    ("helm/gputally/files/values.yaml", lambda _: source.without_comments(chart_values())),
    ("helm/gputally/README.md", lambda _: readme.text(chart_values(), chart_presets())),
    *((path, whole(text)) for path, text in (manifests.files() | chart.files() | registry.files()).items()),
    *((path, partial(_compose_file, path)) for path in compose.files(chart_values())),
    # Last: Helm renders them from the generated chart.
    (plain_install.EXPORTER, lambda _: plain_install.text(plain_install.EXPORTER)),
    (plain_install.STACK, lambda _: plain_install.text(plain_install.STACK)),
)


def stale(
    generated: Sequence[tuple[str, Render]] = GENERATED, root: Path = ROOT
) -> Iterator[tuple[Path, str, str]]:
    """The files that differ from their source: (path, current text, generated text).

    In order: a caller that writes each file at once has later files generated from the new text.
    """
    for name, render in generated:
        path = root / name
        now = path.read_text() if path.exists() else ""
        right = render(now)
        if now != right:
            yield path, now, right


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools/render", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is stale")
    options = parser.parse_args(arguments)
    if wrong := [
        *alerts_check.problems(),
        *dashboards_check.problems(),
        *values_check.problems(chart_values(), chart_presets()),
    ]:
        print(*wrong, sep="\n", file=sys.stderr)
        return 1
    found = 0
    for path, now, right in stale():
        found += 1
        name = path.relative_to(ROOT)
        if options.check:
            print(f"{name} is stale; run tools/render:")
            print(_short_diff(now, right))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(right)
            print(f"wrote {name}")
    fresh = len(GENERATED) - found
    print(f"{fresh} of {len(GENERATED)} generated files were up to date")
    return 1 if options.check and found else 0


def _short_diff(now: str, right: str, most: int = 20) -> str:
    lines = list(difflib.unified_diff(now.splitlines(), right.splitlines(), "now", "right", "", "", 1, ""))
    more = [f"... and {len(lines) - most} more lines"] if len(lines) > most else []
    return "\n".join(f"    {line}" for line in lines[:most] + more)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as failure:
        sys.exit(str(failure))
