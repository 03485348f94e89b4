"""The section of docs/performance.md about the rules, and their targets."""

from collections.abc import Mapping, Sequence

from tools.benchmark.figures import number, table
from tools.benchmark.fleet import GPUS
from tools.benchmark.rules import SCRAPE_SECONDS, RulesCost
from tools.benchmark.targets import TargetResult

TARGET_NODES = 1000
EVALUATION_SECONDS_PER_MINUTE = 10.0
RECORDED_PER_GPU = 30.0
_HOUR = 3600
_UNITS = ((86_400, "d"), (_HOUR, "h"), (60, "m"), (1, "s"))


def judge_rules(cost: RulesCost) -> list[TargetResult]:
    """The limits are those of a thousand nodes: the time of a smaller fleet is extrapolated, linearly."""
    factor = TARGET_NODES / cost.nodes
    size = f"rules, {TARGET_NODES:,} nodes x {GPUS} GPUs"
    if factor != 1:
        size += f", extrapolated from {cost.nodes:,} nodes"
    return [
        TargetResult(
            f"{size}: evaluation per minute (duration x 60 / interval, sum over the groups)",
            cost.seconds_per_minute * factor,
            EVALUATION_SECONDS_PER_MINUTE,
            "s",
        ),
        TargetResult(
            f"{size}: CPU time of the whole Prometheus per minute",
            cost.cpu_seconds_per_minute * factor,
            EVALUATION_SECONDS_PER_MINUTE,
            "s",
        ),
        TargetResult(f"{size}: recorded series per GPU", cost.recorded_per_gpu, RECORDED_PER_GPU, ""),
    ]


def rules_section(cost: RulesCost, command: str, date: str, load: float) -> str:
    gpus = cost.nodes * GPUS
    verdicts = {True: "met", False: "**not met**", None: "not measured"}
    missing = [group.name for group in cost.groups if group.seconds is None]
    parts = [
        f"## The rules, {cost.nodes:,} nodes x {GPUS} GPUs in one Prometheus",
        f"Measured by `{command}` on {date}; load of the machine from other programs: {load:.1f}. The "
        "durations of evaluations are those that Prometheus reports, and include waiting for a busy machine; "
        "CPU time does not, and includes everything that Prometheus does: evaluating, writing the results, "
        "collecting garbage.",
        table(
            ["target", "measured", "limit", "verdict"],
            [
                [
                    verdict.target,
                    f"{number(verdict.measured)} {verdict.unit}".rstrip(),
                    f"< {number(verdict.limit)} {verdict.unit}".rstrip(),
                    verdicts[verdict.met],
                ]
                for verdict in judge_rules(cost)
            ],
        ),
        f"Prometheus has {cost.series:,} series of the set `standard`, scraped every {SCRAPE_SECONDS} s, and "
        f"{number(cost.samples / 1e6)} million samples. Every series goes back as far as a rule reads it, so "
        f"that every window is full: {_furthest(cost.reach)}. Prometheus evaluated each group at its own "
        f"interval for {cost.minutes:g} minutes, "
        f"missed {cost.missed} evaluations, had {cost.failed} failures, and used "
        f"{number(cost.resident_bytes / 2**30)} GiB of memory.",
        table(
            ["group", "interval", "rules", "s per evaluation", "s per minute", "recorded series per GPU"],
            [
                [
                    group.name,
                    _duration(group.interval_seconds),
                    str(group.rules),
                    number(group.seconds),
                    number(group.seconds_per_minute),
                    number(group.recorded / gpus),
                ]
                for group in cost.groups
            ],
        ),
    ]
    if missing:
        parts.append(f"Not evaluated in this time: {', '.join(missing)}.")
    return "\n\n".join(parts)


def _furthest(reach: Mapping[str, float]) -> str:
    """The series that are read over more than an hour, the furthest first."""
    by_time: dict[float, list[str]] = {}
    for name, seconds in reach.items():
        if seconds > _HOUR:
            by_time.setdefault(seconds, []).append(f"`{name}`")
    parts = [f"{_duration(one)} of {_list(sorted(by_time[one]))}" for one in sorted(by_time, reverse=True)]
    return "; ".join([*parts, "an hour or less of all others"])


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _duration(seconds: float) -> str:
    left, text = int(seconds), ""
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        text += f"{count}{unit}" if count else ""
    return text or "0s"
