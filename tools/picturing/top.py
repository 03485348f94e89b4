"""Takes the picture of the screen of `gputally top`, from the simulator, always at the same moment."""

import asyncio
import os
import re
import time
from dataclasses import replace

from gputally.commands.top.documents import Node, read_document
from gputally.commands.top.nodes import Nodes, summed
from gputally.commands.top.screen import TopApp
from gputally.commands.top.state import State
from gputally.simulator.default_scenario import default_scenario
from gputally.simulator.scenario import GpuFault, GpuFaultKind
from gputally.simulator.schedule import Span
from tools import ROOT
from tools.replay.documents import STORY_SECONDS, Document, responses

IMAGES = ROOT / "docs" / "images"
_NODE = "gpu-node-1"
_COLUMNS, _LINES = 110, 27
_SEED = 1
_LOST_GPU = 7
_FROM_ELSEWHERE = re.compile(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", re.DOTALL)
_FONTS = "DejaVu Sans Mono, Menlo, Consolas, monospace"


class Recorded(Nodes):
    """A node as its exporter described it."""

    def __init__(self, documents: dict[str, Document]) -> None:
        super().__init__(_NODE)
        self._node = read_document(documents["/api/v1/snapshot"])
        for at, utilization, power in summed([documents["/api/v1/history"]]):
            self._minutes.add(at, utilization, power)

    def read(self) -> list[Node]:
        return [self._node]

    def close(self) -> None:
        """Nothing is open."""


def picture_of_top() -> str:
    """The screen of `gputally top` as SVG, without files from elsewhere."""
    svg = asyncio.run(_screenshot(TopApp(Recorded(_documents()), State(), 3600)))
    return _FROM_ELSEWHERE.sub("", svg).replace("Fira Code, monospace", _FONTS)


async def _screenshot(app: TopApp) -> str:
    async with app.run_test(size=(_COLUMNS, _LINES)) as pilot:
        while not app.is_shown:
            await pilot.pause(0.05)
        return app.export_screenshot(title="gputally top")


def _documents() -> dict[str, Document]:
    scenario = default_scenario(8, "h100", seed=_SEED)
    lost = GpuFault(kind=GpuFaultKind.LOST, gpus=(_LOST_GPU,), span=Span(STORY_SECONDS + 300))
    return responses(replace(scenario, faults=(*scenario.faults, lost)), _NODE)


def main() -> int:
    os.environ["TZ"] = "UTC"
    time.tzset()
    file = IMAGES / "top.svg"
    file.write_text(picture_of_top())
    print(file)
    return 0
