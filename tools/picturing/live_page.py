"""Takes the pictures of the live page of a simulator, when its timelines have a shape."""

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from tools import ROOT
from tools.dependencies import programs
from tools.servers.ports import free_port
from tools.servers.waiting import wait_until

DIRECTORY = ROOT / "docs/images"
STEPS = 30
"""Of the timelines: five minutes."""
SCENARIO_AGE_SECONDS = 4_700
"""A training, notebooks, a pod that requested no GPU, a suspected hang and an idle pod are there."""
PICTURES = (
    {"name": "live.png", "width": 1440, "scheme": "light"},
    {"name": "live-dark.png", "width": 1440, "scheme": "dark"},
)
_DRIVER = Path(__file__).with_name("live_page.js")
_FONTS = """\
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig><dir>{fonts}</dir><cachedir>{cache}</cachedir></fontconfig>
"""


def main() -> int:
    port = free_port()
    command = [
        *(sys.executable, "-m", "gputally", "simulate", "--listen-address", f"127.0.0.1:{port}"),
        *("--hostname-override", "gpu-h100-01", "--log-level", "error", "--interval", "1s"),
        *("--scenario-start", str(int(time.time()) - SCENARIO_AGE_SECONDS)),
    ]
    with tempfile.TemporaryDirectory() as directory, subprocess.Popen(command) as exporter:
        try:
            url = f"http://127.0.0.1:{port}/"
            wait_until(lambda: _steps(url) >= STEPS, f"there are {STEPS} steps", STEPS * 10 + 60)
            _take(Path(directory), url)
        finally:
            exporter.terminate()
    for picture in PICTURES:
        print(DIRECTORY / str(picture["name"]))
    return 0


def _steps(url: str) -> int:
    try:
        with urllib.request.urlopen(f"{url}api/v1/history", timeout=10) as response:
            gpus = json.load(response)["gpus"]
    except OSError:
        return 0
    return len(gpus[0]["power_watts"]) if gpus else 0


def _take(directory: Path, url: str) -> None:
    task, fonts = directory / "task.json", directory / "fonts.conf"
    task.write_text(
        json.dumps(
            {
                "playwright": str(programs.path("playwright-core")),
                "chromium": str(programs.path("chromium")),
                "url": url,
                "pictures": [{**one, "path": str(DIRECTORY / str(one["name"]))} for one in PICTURES],
            }
        )
    )
    fonts.write_text(_FONTS.format(fonts=programs.path("dejavu-fonts"), cache=directory / "fonts"))
    environment = {**os.environ, "FONTCONFIG_FILE": str(fonts)}
    subprocess.run([programs.path("node"), _DRIVER, task], check=True, env=environment)


if __name__ == "__main__":
    sys.exit(main())
