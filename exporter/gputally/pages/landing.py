"""The landing page: state of GPUs and sources, with the reason and fix of each problem.

Self-contained: no script, no external file. It reloads itself every few seconds.
"""

import time
from html import escape

from gputally.devices.vendors import vendor_of
from gputally.model import MigReading, Reading, Snapshot, SourceState
from gputally.pages.style import STYLE

RELOAD_SECONDS = 10
GIB = 1024**3
UNKNOWN = '<span class="unknown" title="not supported by this GPU, driver or reader">&ndash;</span>'


def render_landing(
    snapshot: Snapshot, *, version: str, hostname: str, metrics_path: str, now_seconds: float | None = None
) -> bytes:
    """The whole page, as UTF-8."""
    now = time.time() if now_seconds is None else now_seconds
    age = snapshot.age_seconds + max(0.0, now - snapshot.taken_at_seconds)
    title = f"{escape(hostname)} &middot; GPUTally"
    page = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="{RELOAD_SECONDS}">
<title>{title}</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<div><p class="brand">GPUTally <span>{escape(version)}</span></p><h1>{escape(hostname)}</h1></div>
{_summary(snapshot)}
</header>
<main>
{_problems(snapshot)}
<section>
<h2>GPUs</h2>
{_gpus(snapshot)}
</section>
<section>
<h2>Sources <small>snapshot {_duration(age)} old</small></h2>
{_sources(snapshot, now)}
</section>
</main>
<footer><nav>
<a href="{escape(metrics_path)}">{escape(metrics_path)}<span>for Prometheus</span></a>
<a href="/healthz">/healthz<span>liveness probe</span></a>
<a href="/readyz">/readyz<span>readiness probe</span></a>
</nav></footer>
</body>
</html>
"""
    return page.encode("utf-8", "replace")


def _summary(snapshot: Snapshot) -> str:
    if not snapshot.sources:
        return '<p class="pill wait">first sample not finished</p>'
    total, up = len(snapshot.readings), sum(reading.up for reading in snapshot.readings)
    sources_up = all(source.up for source in snapshot.sources)
    if total and up == total and sources_up:
        return f'<p class="pill good">{_count(total, "GPU")} up</p>'
    if up < total:
        return f'<p class="pill bad">{total - up} of {_count(total, "GPU")} lost</p>'
    if not sources_up:
        return '<p class="pill bad">a source is down</p>'
    return '<p class="pill wait">no GPU found</p>'


def _problems(snapshot: Snapshot) -> str:
    notes = [
        _note(f"{source.name}: {source.reason or 'down'}", source.fix)
        for source in snapshot.sources
        if not source.up
    ]
    notes += [
        _note(f"GPU {reading.gpu.index} ({reading.gpu.uuid}) is lost", "")
        for reading in snapshot.readings
        if not reading.up
    ]
    return "\n".join(notes)


def _note(problem: str, fix: str) -> str:
    remedy = f'<p class="fix">{escape(fix)}</p>' if fix else ""
    return f'<div class="note"><p>{escape(problem)}</p>{remedy}</div>'


def _gpus(snapshot: Snapshot) -> str:
    if not snapshot.readings:
        return '<p class="empty">No GPU has been read yet.</p>'
    rows = []
    for reading in sorted(snapshot.readings, key=lambda one: (one.gpu.vendor, one.gpu.index)):
        rows.append(_gpu_row(reading))
        rows += [_mig_row(reading.gpu.vendor, instance) for instance in reading.mig]
    heads = "".join(
        f"<th{' class=' + kind if kind else ''}>{name}</th>"
        for name, kind in (
            ("#", "number"),
            ("Model", ""),
            ("State", ""),
            ("Utilisation", ""),
            ("Memory", ""),
            ("Power", "number"),
            ("Temperature", "number"),
        )
    )
    return _table(heads, "".join(rows))


def _table(heads: str, rows: str) -> str:
    return f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


def _gpu_row(reading: Reading) -> str:
    gpu = reading.gpu
    badge = ' <span class="badge">simulated</span>' if gpu.simulated else ""
    return (
        f'<tr{"" if reading.up else " class=lost"}><td class="number">{gpu.index}</td>'
        f'<td><b>{escape(gpu.model)}</b>{badge}<span class="uuid">{escape(gpu.uuid)}</span></td>'
        f"<td>{_state(reading.up, 'up', 'lost')}</td>"
        f"<td>{_ratio(reading.gpu_utilization_ratio)}</td>"
        f"<td>{_memory(reading.memory_used_bytes, reading.memory_total_bytes)}</td>"
        f'<td class="number">{_power(reading)}</td>'
        f'<td class="number">{_temperature(reading)}</td></tr>'
    )


def _mig_row(vendor: str, reading: MigReading) -> str:
    instance = reading.instance
    label = vendor_of(vendor).partition_label
    name = label.format(number=instance.gpu_instance_id, profile=instance.profile or "").strip()
    busy = reading.graphics_active_ratio if reading.sm_active_ratio is None else reading.sm_active_ratio
    return (
        f'<tr class="mig"><td></td><td>{escape(name)}<span class="uuid">{escape(instance.uuid)}</span></td>'
        f"<td></td><td>{_ratio(busy)}</td>"
        f"<td>{_memory(reading.memory_used_bytes, reading.memory_total_bytes)}</td><td></td><td></td></tr>"
    )


def _sources(snapshot: Snapshot, now: float) -> str:
    if not snapshot.sources:
        return '<p class="empty">No source has been sampled yet.</p>'
    rows = "".join(_source_row(source, now) for source in snapshot.sources)
    heads = (
        "<th>Source</th><th>State</th><th class=number>GPUs</th><th class=number>Last success</th>"
        "<th class=number>Duration</th><th class=number>Failures</th><th class=number>Overruns</th>"
    )
    return _table(heads, rows)


def _source_row(source: SourceState, now: float) -> str:
    last = source.last_success_seconds
    took = source.duration_seconds
    return (
        f"<tr><td><b>{escape(source.name)}</b></td><td>{_state(source.up, 'up', 'down')}</td>"
        f'<td class="number">{source.gpus}</td>'
        f'<td class="number">{"never" if last is None else _duration(max(0.0, now - last)) + " ago"}</td>'
        f'<td class="number">{UNKNOWN if took is None else _duration(took)}</td>'
        f'<td class="number">{source.failures}</td><td class="number">{source.overruns}</td></tr>'
    )


def _state(good: bool, yes: str, no: str) -> str:
    return f'<span class="state {"good" if good else "bad"}">{yes if good else no}</span>'


def _ratio(ratio: float | None) -> str:
    return UNKNOWN if ratio is None else f"{_bar(ratio)}<span>{ratio * 100:.0f}&nbsp;%</span>"


def _memory(used: int | None, total: int | None) -> str:
    if used is None or not total:
        return UNKNOWN
    return f"{_bar(used / total)}<span>{used / GIB:.1f} of {total / GIB:.0f}&nbsp;GiB</span>"


def _bar(ratio: float) -> str:
    percent = min(100.0, max(0.0, ratio * 100))
    return f'<span class="bar"><i style="width:{percent:.0f}%"></i></span>'


def _power(reading: Reading) -> str:
    if reading.power_watts is None:
        return UNKNOWN
    limit = reading.power_enforced_limit_watts or reading.power_limit_watts
    of = "" if limit is None else f"<small> of {limit:.0f}</small>"
    return f"{reading.power_watts:.0f}{of}&nbsp;W"


def _temperature(reading: Reading) -> str:
    now, slowdown = reading.temperature_celsius, reading.temperature_slowdown_celsius
    if now is None:
        return UNKNOWN
    text = f"{now:.0f}&nbsp;&deg;C"
    return f'<b class="hot">{text}</b>' if slowdown is not None and now >= slowdown else text


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
