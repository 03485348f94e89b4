"""Records rules over existing data, with promtool."""

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tools import Failed
from tools.dependencies import programs
from tools.replay.blocks import move_blocks
from tools.replay.fleet import Period
from tools.replay.rule_files import RuleGroup, read_groups, split_by_level
from tools.servers.prometheus import UNMERGED, serving

_FILE = "rules.yml"


def record_rules(
    data_directory: Path, rule_files: Sequence[Path], period: Period, *, block_hours: int = 2
) -> int:
    """Adds the results of recording rules to the blocks in `data_directory`, and returns the number of rules.

    Rules may read each other, in any file and order. Each is evaluated every `period.step` seconds,
    independent of its group's interval; as in Prometheus, each group has its own offset. Earlier records
    stay. Each rule is queried and written in parts of `block_hours` (2, 6, 18, 54 ...): with few series,
    large parts are much faster.
    No Prometheus may run on the directory. Raises Failed, and ValueError for rules that read each other in a
    circle.
    """
    # Groups of two files may have the same name, but not in the merged file.
    levels = split_by_level(
        {**group, "name": f"{file.name}: {group['name']}"}
        for file in rule_files
        for group in read_groups(file)
    )
    for groups in levels:
        with tempfile.TemporaryDirectory(prefix=".rules-", dir=data_directory) as scratch:
            directory = Path(scratch)
            with serving(data_directory, UNMERGED, _lookback(period)) as prometheus:
                _record(groups, period, prometheus.url, directory, block_hours)
            move_blocks(directory / "blocks", data_directory)
    return sum(len(group["rules"]) for groups in levels for group in groups)


def _lookback(period: Period) -> str:
    """Records are never marked as stale, so the lookback must be short."""
    return f"--query.lookback-delta={2 * period.step:.0f}s"


def _nameless(rule: Mapping[str, Any]) -> dict[str, Any]:
    """The rule with a result that has no metric name, as in a record.

    Otherwise promtool reads the results of `x or -x` as two series and cannot write them as one.
    """
    return {**rule, "expr": f"({rule['expr']}\n) + 0"}


def _record(groups: Sequence[RuleGroup], period: Period, url: str, directory: Path, block_hours: int) -> None:
    written = [
        {"name": group["name"], "rules": [_nameless(rule) for rule in group["rules"]]} for group in groups
    ]
    (directory / _FILE).write_text(yaml.safe_dump({"groups": written}))
    (directory / "blocks").mkdir()
    command: list[str | Path] = [
        *(programs.path("promtool"), "tsdb", "create-blocks-from", f"--max-block-duration={block_hours}h"),
        *("rules", "--quiet"),
        *(f"--url={url}", f"--start={period.first:.0f}", f"--end={period.last:.0f}"),
        *(f"--eval-interval={round(period.step * 1000)}ms", "--output-dir=blocks"),
        _FILE,  # the offset of a group follows from the names of file and group: it is the same for all parts
    ]
    done = subprocess.run(command, cwd=directory, check=False, capture_output=True, text=True)
    if done.returncode or "error" in done.stderr.lower():
        raise Failed(f"promtool did not record the rules:\n{done.stdout}{done.stderr}")
