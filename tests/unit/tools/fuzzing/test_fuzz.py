"""A short pass of every fuzz target, and the command around the long one."""

import itertools
import sys
from pathlib import Path

import pytest

from tools import Failed
from tools.fuzzing import command, targets
from tools.fuzzing.mutation import inputs
from tools.fuzzing.worker import INPUT_FAILED

RUNS = 300


@pytest.mark.parametrize("name", targets.names())
def test_a_short_pass(name: str) -> None:
    target = targets.load(name)
    assert target.corpus
    for number, data in enumerate(itertools.islice(inputs(target.corpus, 1), len(target.corpus) + RUNS)):
        try:
            target.one_input(data)
        except BaseException as error:
            error.add_note(f"input {number} of {name}: {data[:2000]!r}")
            raise


def test_a_seed_gives_the_same_inputs_again() -> None:
    corpus = [b"one", b"another"]
    first, second, third = (list(itertools.islice(inputs(corpus, seed), 50)) for seed in (1, 1, 2))
    assert first == second != third
    assert first[:2] == corpus


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(Failed, match="relay_text"):
        targets.load("nonesuch")


def test_a_failing_input_is_kept_and_its_repetition_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The worker runs in the repository, so the target is one that fails on every input."""
    worker = tmp_path / "python"
    worker.write_text(
        "#!/bin/sh\n"
        'while [ "$1" != --findings ]; do shift; done\n'
        'echo bad > "$2/relay_text-crash-1"\n'
        "echo '#7 NEW cov: 42' >&2\n"
        f"exit {INPUT_FAILED}\n"
    )
    worker.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(worker))
    monkeypatch.setattr(command, "OUTPUT", tmp_path)
    monkeypatch.setattr(command, "_FINDINGS", tmp_path / "findings")
    report = tmp_path / "report.md"
    report.write_text("before\n<!-- fuzz -->\n<!-- /fuzz -->\nafter\n")
    assert command.main(["0.01", "--target", "relay_text", "--report", str(report)]) == 1
    repeat = f"tools/fuzz --target relay_text --input {tmp_path}/findings/relay_text-crash-1"
    for shown in (report.read_text(), capsys.readouterr().out):
        assert "| `relay_text` | 7 |" in shown
        assert repeat in shown
    assert report.read_text().startswith("before\n")
    assert report.read_text().endswith("after\n")


def test_one_input_is_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "input").write_bytes(b"0up 1\n")
    assert command.main(["--target", "relay_text", "--input", str(tmp_path / "input")]) == 0
    assert "does not fail" in capsys.readouterr().out
