"""The landing page: the frame that the live page's script fills, or without it links to the metrics."""

from collections.abc import Mapping
from html import escape

from gputally.printable import printable

WITH_SCRIPT = """\
<meta name="color-scheme" content="light dark">
<link rel="icon" href="{icon}" type="image/svg+xml">
<link rel="stylesheet" href="{style}">
<script src="{script}" defer></script>
"""
LIVE = """\
<noscript><p class="note">The live page needs JavaScript. The links below have the same data.</p></noscript>
<div id="live" hidden></div>
"""


def render_landing(*, version: str, hostname: str, metrics_path: str, assets: Mapping[str, str]) -> bytes:
    """As UTF-8. `assets`: name -> address, empty without the live page."""
    name, path = escape(printable(hostname)), escape(printable(metrics_path))
    head = (
        WITH_SCRIPT.format(
            icon=escape(assets["live.svg"]),
            style=escape(assets["live.css"]),
            script=escape(assets["live.js"]),
        )
        if assets
        else ""
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{name} · GPUTally</title>
{head}</head>
<body>
<header>
<div>
<p class="brand">GPUTally <span>{escape(printable(version))}</span></p>
<h1>{name}</h1>
</div>
<div id="status"></div>
</header>
<main>
{LIVE if assets else ""}</main>
<footer>
<nav aria-label="Endpoints">
<ul id="links">
<li><a href=".{path}">{path}</a> for Prometheus</li>
<li><a href="./healthz">/healthz</a> liveness</li>
<li><a href="./readyz">/readyz</a> readiness</li>
{'<li><a href="./api/v1/snapshot">/api/v1/snapshot</a> JSON</li>' if assets else ""}
</ul>
</nav>
</footer>
</body>
</html>
""".encode()
