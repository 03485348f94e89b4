"""The landing page: state of GPUs and sources, with the reason and fix of each problem.

Self-contained: no script, no external file. It reloads itself every few seconds.
"""

import time
from html import escape

from gputally.devices.vendors import vendor_of
from gputally.model import MigReading, Reading, Snapshot, SourceState
from gputally.printable import printable

RELOAD_SECONDS = 10
GIB = 1024**3
UNKNOWN = '<span class="unknown" title="not supported by this GPU, driver or reader">&ndash;</span>'


def render_landing(
    snapshot: Snapshot, *, version: str, hostname: str, metrics_path: str, now_seconds: float | None = None
) -> bytes:
    """The whole page, as UTF-8."""
    now = time.time() if now_seconds is None else now_seconds
    age = snapshot.age_seconds + max(0.0, now - snapshot.taken_at_seconds)
    title = f"{_text(hostname)} &middot; GPUTally"
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
<div><p class="brand">GPUTally <span>{_text(version)}</span></p><h1>{_text(hostname)}</h1></div>
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
<a href="{_text(metrics_path)}">{_text(metrics_path)}<span>for Prometheus</span></a>
<a href="/healthz">/healthz<span>liveness probe</span></a>
<a href="/readyz">/readyz<span>readiness probe</span></a>
</nav></footer>
</body>
</html>
"""
    return page.encode()


def _text(text: str) -> str:
    return escape(printable(text))


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
    remedy = f'<p class="fix">{_text(fix)}</p>' if fix else ""
    return f'<div class="note"><p>{_text(problem)}</p>{remedy}</div>'


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
        f'<td><b>{_text(gpu.model)}</b>{badge}<span class="uuid">{_text(gpu.uuid)}</span></td>'
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
        f'<tr class="mig"><td></td><td>{_text(name)}<span class="uuid">{_text(instance.uuid)}</span></td>'
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
        f"<tr><td><b>{_text(source.name)}</b></td><td>{_state(source.up, 'up', 'down')}</td>"
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


# System fonts; light or dark by the setting of the browser.
STYLE = """
:root{color-scheme:light dark;--page:#f5f6f8;--card:#fff;--ink:#15191f;--soft:#5b6572;--line:#e1e5ea;
--accent:#3566d6;--good:#14743a;--good-bg:#dff3e5;--bad:#b3241b;--bad-bg:#fde5e3;--wait:#7a5200;
--wait-bg:#fdf0cf;--track:#e6eaf0}
@media(prefers-color-scheme:dark){:root{--page:#0f1216;--card:#171b21;--ink:#e8ebef;--soft:#98a3b1;
--line:#29303a;--accent:#6f9bff;--good:#6fd694;--good-bg:#12321f;--bad:#ff8d84;--bad-bg:#43191a;
--wait:#f2c75c;--wait-bg:#3b2f0e;--track:#2a323d}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.45 system-ui,-apple-system,"Segoe UI",
Roboto,"Helvetica Neue",sans-serif}
header,main,footer{max-width:76rem;margin:0 auto;padding:0 1.5rem}
header{display:flex;justify-content:space-between;align-items:center;gap:1rem;padding-top:1.75rem}
p,h1,h2{margin:0}
h1{font-size:1.7rem;line-height:1.25;overflow-wrap:anywhere}
h2{font-size:1.05rem;margin:2rem 0 .6rem}
small{color:var(--soft);font-weight:400;font-size:.85em}
h2 small{margin-left:.5rem}
.brand{color:var(--soft);font-weight:600}
.brand span{font-weight:400}
.pill,.state,.badge{border-radius:99px;font-weight:600;white-space:nowrap}
.pill{padding:.4rem 1rem}
.state{padding:.12rem .6rem;font-size:.87rem}
.badge{padding:.1rem .5rem;font-size:.78rem;background:var(--wait-bg);color:var(--wait)}
.good{background:var(--good-bg);color:var(--good)}
.bad{background:var(--bad-bg);color:var(--bad)}
.wait{background:var(--wait-bg);color:var(--wait)}
.note{background:var(--bad-bg);border-left:4px solid var(--bad);border-radius:8px;padding:.75rem 1rem;
margin-top:1rem;font-weight:600;overflow-wrap:anywhere}
.fix{font:.93em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;margin-top:.3rem}
.scroll,.empty{background:var(--card);border:1px solid var(--line);border-radius:10px;overflow-x:auto}
.empty{padding:1rem;color:var(--soft)}
table{width:100%;border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.6rem .9rem;text-align:left;vertical-align:middle}
th{color:var(--soft);font-size:.82rem;font-weight:600;white-space:nowrap}
td{border-top:1px solid var(--line);white-space:nowrap}
.number{text-align:right}
.uuid{display:block;color:var(--soft);font:.8rem ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.bar{display:inline-block;vertical-align:middle;width:6.5rem;height:.5rem;margin-right:.6rem;
border-radius:99px;background:var(--track);overflow:hidden}
.bar i{display:block;height:100%;border-radius:99px;background:var(--accent)}
.lost td{background:var(--bad-bg)}
.mig td{border-top:0;padding-top:.15rem}
.mig td:nth-child(2){padding-left:2.2rem}
.hot{color:var(--bad)}
.unknown{color:var(--soft)}
footer{padding-top:2rem;padding-bottom:2.5rem}
nav{display:flex;flex-wrap:wrap;gap:.75rem}
a{color:var(--accent);font-weight:600;text-decoration:none;background:var(--card);
border:1px solid var(--line);border-radius:10px;padding:.6rem 1rem}
a:hover,a:focus-visible{border-color:var(--accent)}
a span{display:block;color:var(--soft);font-weight:400;font-size:.85rem}
"""
