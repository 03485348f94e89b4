"""The screen of `gputally top` in a real terminal, compared character by character."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.documents import responses, with_lost_gpu
from tests.support.fake_servers import Site, site
from tests.support.terminal import Terminal, in_terminal
from tools import Failed

GOLDEN = Path(__file__).with_name("top")
SIZES = [(80, 24), (200, 50)]
DOWN, TAB, ENTER, ESCAPE = "\x1b[B", "\t", "\r", "\x1b"
# The port differs from run to run.
ADDRESS = "EXPORTER"


@contextmanager
def top(exporter: Site, columns: int, lines: int, *arguments: str) -> Iterator[Terminal]:
    with in_terminal(["top", "--connect", exporter.url, *arguments], columns, lines) as terminal:
        yield terminal


def check_screen(terminal: Terminal, name: str, exporter: Site, update: bool) -> None:
    """The whole screen is as the file says; it may still be being drawn."""
    file = GOLDEN / f"{name}.txt"

    def shown() -> str:
        # As long as before, so that nothing moves.
        text = terminal.text.replace(exporter.url, ADDRESS.ljust(len(exporter.url)))
        return "\n".join(line.rstrip() for line in text.split("\n")) + "\n"

    if update:
        terminal.settle()
        file.write_text(shown())
    with suppress(Failed):
        terminal.wait_until(lambda _: shown() == file.read_text(), "the screen is as expected")
    assert shown() == file.read_text()


@pytest.mark.parametrize(("columns", "lines"), SIZES)
@pytest.mark.parametrize("gpus", [1, 8, 72])
def test_a_node(gpus: int, columns: int, lines: int, update_golden: bool) -> None:
    with site(responses(gpus)) as exporter, top(exporter, columns, lines) as terminal:
        terminal.wait_for(f" {gpus} GPU", " of ")
        check_screen(terminal, f"{gpus}-gpus-{columns}x{lines}", exporter, update_golden)


@pytest.mark.parametrize(("columns", "lines"), SIZES)
def test_a_lost_gpu_with_its_reason(columns: int, lines: int, update_golden: bool) -> None:
    with site(with_lost_gpu()) as exporter, top(exporter, columns, lines) as terminal:
        terminal.wait_for("lost", "of 2 GPUs up")
        check_screen(terminal, f"lost-{columns}x{lines}", exporter, update_golden)


@pytest.mark.parametrize(("columns", "lines"), SIZES)
def test_the_pods_of_two_nodes(columns: int, lines: int, update_golden: bool) -> None:
    other = responses(8, "a100", "gpu-node-2")
    with site(responses(8)) as exporter, site(other) as second:
        arguments = ["top", "--connect", exporter.url, second.url, "--view", "pods"]
        with in_terminal(arguments, columns, lines) as terminal:
            terminal.wait_for("16 GPUs", "2 nodes", "nlp/pretrain")
            check_screen(terminal, f"pods-{columns}x{lines}", exporter, update_golden)


def test_a_pod_that_is_followed(update_golden: bool) -> None:
    with (
        site(responses(8)) as exporter,
        top(exporter, 80, 24, "--view", "pods", "--sort", "memory") as terminal,
    ):
        terminal.wait_for("POD OR OWNER", "nlp/pretrain")
        terminal.press(ENTER)
        terminal.wait_for("pod nlp/pretrain", "GPUs 1-4 of 4")
        check_screen(terminal, "followed-80x24", exporter, update_golden)
        terminal.press(ESCAPE)
        terminal.wait_until(lambda text: "pod nlp/pretrain" not in text, "all pods are back")


def test_the_help(update_golden: bool) -> None:
    with site(responses(1)) as exporter, top(exporter, 80, 24) as terminal:
        terminal.wait_for("1 GPU")
        terminal.press("?")
        terminal.wait_for("keys", "quit")
        check_screen(terminal, "help-80x24", exporter, update_golden)


def test_ascii_only(update_golden: bool) -> None:
    with site(responses(8)) as exporter, top(exporter, 80, 24, "--ascii") as terminal:
        terminal.wait_for(" 8 GPU", " of ")
        check_screen(terminal, "ascii-80x24", exporter, update_golden)
        assert terminal.text.isascii()
