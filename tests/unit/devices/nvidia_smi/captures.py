"""A stand-in for the nvidia-smi command that answers from captures, and refuses what the real one refuses."""

import json
import stat
import sys
from pathlib import Path

CAPTURES = Path(__file__).parents[3] / "fixtures" / "nvidia-smi"
QUERY_CAPTURES = sorted(CAPTURES.glob("*/query-gpu-*.csv"))

_SCRIPT = r"""#!{python} -SE
import json, re, sys
here = {here!r}
state = json.load(open(here + "/state.json"))
arguments = sys.argv[1:]
open(here + "/calls", "a").write(json.dumps(arguments) + "\n")
chosen = arguments[arguments.index("-i") + 1].split(",") if "-i" in arguments else None

def answer(text, code=0):
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
    sys.stdout.flush()
    sys.exit(code)

def read(path):
    return open(path, encoding="utf-8", errors="surrogateescape", newline="").read()

for flag, (text, code) in state["answers"].items():
    if any(argument.startswith(flag) for argument in arguments) and chosen is None:
        answer(text, code)
if "--help-query-gpu" in arguments:
    answer(read(state["tool"] + "/help-query-gpu.txt"))
if "--version" in arguments:
    answer(read(state["tool"] + "/version.txt"), state["version_exit_code"])
if "-L" in arguments:
    answer(read(state["capture"] + "/list.txt"))
if any(argument.startswith("--query-compute-apps") for argument in arguments):
    answer(read(state["capture"] + "/query-compute-apps.csv"))
query = next(argument for argument in arguments if argument.startswith("--query-gpu="))
asked = query.removeprefix("--query-gpu=").split(",")
header, *rows = [line.split(", ") for line in read(state["table"]).splitlines()]
names = [re.sub(r" \[.*", "", cell) for cell in header]
for column in asked:
    if column not in names:
        answer('Field "%s" is not a valid field to query.\n\n' % column, 2)
places = [names.index(column) for column in asked]
index = names.index("index")
lines = [header] + [row for row in rows if chosen is None or row[index] in chosen]
answer("".join(", ".join(line[place] for place in places) + "\n" for line in lines))
"""


class CapturedNvidiaSmi:
    """Its `path` is the command. What it answers can be changed between two samples."""

    def __init__(self, directory: Path, capture: str = "h100-processes", tool: str = "550") -> None:
        self.directory = directory
        self.path = str(directory / "nvidia-smi")
        self.answers: dict[str, tuple[str, int]] = {}
        self.play(capture, tool)
        script = directory / "nvidia-smi"
        script.write_text(_SCRIPT.format(python=sys.executable, here=str(directory)))
        script.chmod(script.stat().st_mode | stat.S_IXUSR)

    def play(self, capture: str, tool: str = "550") -> None:
        self._state = {
            "capture": str(CAPTURES / capture),
            "table": str(CAPTURES / capture / f"query-gpu-{tool}.csv"),
            "tool": str(CAPTURES / f"tool-{tool}"),
            "version_exit_code": 255 if tool == "535" else 0,
        }
        self._write()

    def answer(self, flag: str, text: str, exit_code: int = 0) -> None:
        """The output for calls with an argument that begins with `flag` and no selection of GPUs."""
        self.answers[flag] = (text, exit_code)
        self._write()

    def answer_normally(self) -> None:
        self.answers.clear()
        self._write()

    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.directory / "calls").read_text().splitlines()]

    def _write(self) -> None:
        (self.directory / "state.json").write_text(json.dumps({**self._state, "answers": self.answers}))
