"""Records rules over data that is there already, with promtool."""

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
from tools.replay.rule_files import Group, read_groups, split_by_level
from tools.servers.prometheus import UNMERGED, serving

_FILE = "rules.yml"


def record_rules(
    data_folder: Path, rule_files: Sequence[Path], period: Period, *, block_hours: int = 2
) -> int:
    """Add what the recording rules would have given to the blocks in `data_folder`; returns how many rules.

    Rules may read each other's results, in whatever file and order they stand. Each is evaluated every
    `period.step` seconds, whatever its group says; as in Prometheus, a group has its own moment in each step.
    What was recorded before stays. Of each rule, `block_hours` (2, or 6, 18, 54...) are asked for and written
    at once: of few series, many hours are recorded much faster.
    No Prometheus may be running on the folder. Raises Failed, and ValueError for rules that read each other
    in a circle.
    """
    # Groups of two files may have the same name, but not in the one file that is made of them.
    levels = split_by_level(
        {**group, "name": f"{file.name}: {group['name']}"}
        for file in rule_files
        for group in read_groups(file)
    )
    for groups in levels:
        with tempfile.TemporaryDirectory(prefix=".rules-", dir=data_folder) as scratch:
            folder = Path(scratch)
            with serving(data_folder, UNMERGED, _lookback(period)) as prometheus:
                _record(groups, period, prometheus.url, folder, block_hours)
            move_blocks(folder / "blocks", data_folder)
    return sum(len(group["rules"]) for groups in levels for group in groups)


def _lookback(period: Period) -> str:
    """What is recorded here is never marked as stale, so it must not count for long after its end."""
    return f"--query.lookback-delta={2 * period.step:.0f}s"


def _nameless(rule: Mapping[str, Any]) -> dict[str, Any]:
    """The rule with a result that has lost its name, as what is recorded does.

    promtool takes what was `x` first and `-x` later, of an expression `x or -x`, for two series that it
    cannot write as one.
    """
    return {**rule, "expr": f"({rule['expr']}\n) + 0"}


def _record(groups: Sequence[Group], period: Period, url: str, folder: Path, block_hours: int) -> None:
    written = [
        {"name": group["name"], "rules": [_nameless(rule) for rule in group["rules"]]} for group in groups
    ]
    (folder / _FILE).write_text(yaml.safe_dump({"groups": written}))
    (folder / "blocks").mkdir()
    command: list[str | Path] = [
        *(programs.path("promtool"), "tsdb", "create-blocks-from", f"--max-block-duration={block_hours}h"),
        *("rules", "--quiet"),
        *(f"--url={url}", f"--start={period.first:.0f}", f"--end={period.last:.0f}"),
        *(f"--eval-interval={round(period.step * 1000)}ms", "--output-dir=blocks"),
        _FILE,  # its name and that of the group say at which moment: the same for all parts of a group
    ]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    if done.returncode or "error" in done.stderr.lower():
        raise Failed(f"promtool did not record the rules:\n{done.stdout}{done.stderr}")
