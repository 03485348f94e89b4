"""A stand-in for the nvidia-smi command that answers from captures, and refuses what the real one refuses."""

import json
import stat
import sys
from pathlib import Path

CAPTURES = Path(__file__).parents[3] / "fixtures" / "nvidia-smi"
QUERY_CAPTURES = sorted(CAPTURES.glob("*/query-gpu-*.csv"))
MACHINES = CAPTURES.parent / "nvidia-smi-machines"
MACHINE_NAMES = tuple(path.stem for path in sorted(MACHINES.glob("*.txt")))
_RULE = "#" * 80 + "\n"

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

    @classmethod
    def on_machine(cls, directory: Path, name: str, state: str) -> "CapturedNvidiaSmi":
        """The tool of a real machine, in the state `idle` or `load`."""
        tool = cls(directory)
        parts = _parts_of(MACHINES / f"{name}.txt")
        asked, table = parts[f"{state} :: query-gpu (csv, what the exporter parses)"]
        columns = asked.partition("--query-gpu=")[2].split()[0].split(",")
        # The captures lack this text. Each column begins a paragraph in the texts of 535 and 550.
        help = "".join(f'\n"{column}"\nWhat it is.\n' for column in columns)
        _, apps = parts[f"{state} :: query-compute-apps (per-process)"]
        for file, text in {
            "help-query-gpu.txt": f"List of valid properties:\n{help}",
            "version.txt": parts["capabilities :: version"][1],
            "list.txt": parts["capabilities :: list (-L)"][1],
            "query-gpu.csv": table,
            # gpu_uuid, pid, process_name and used_gpu_memory are the last of eight columns.
            "query-compute-apps.csv": "".join(f"{line.split(', ', 4)[4]}\n" for line in apps.splitlines()),
        }.items():
            (directory / file).write_text(text)
        here = str(directory)
        tool._state = {
            "capture": here,
            "table": f"{here}/query-gpu.csv",
            "tool": here,
            "version_exit_code": 0,
        }
        tool._write()
        return tool

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


def _parts_of(capture: Path) -> dict[str, tuple[str, str]]:
    """Title -> command and output."""
    _, *sections = capture.read_text().split(_RULE)
    parts = {}
    for head, output in zip(sections[::2], sections[1::2], strict=True):
        title, command = head.splitlines()
        parts[title.removeprefix("# ")] = command, output.strip("\n") + "\n"
    return parts
