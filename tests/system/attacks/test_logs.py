"""Attack: foreign text that forges lines of the log, rewrites the terminal or reverses what one reads."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from tests.support.command_line import run
from tests.support.exporter import Exporter
from tests.support.fake_servers import site
from tools.standin.kubelet import kubelet, message
from tools.standin.procfs import FakeProcfs, container_id, pod_cgroup, uid

CAPTURE = Path(__file__).parents[2] / "fixtures/nvidia-smi/h100-processes"
PLAYER = Path(__file__).parents[1] / "play_nvidia_smi.py"
FORGED = "2026-01-01T00:00:00.000Z INFO    all is well"
# Sets the title of the terminal, clears it, forges a line in two ways, and reverses the text after it.
HOSTILE = f"owned\x1b]0;x\x07\x1b[2J\r\n{FORGED}\x85\x9b31m\u2028\u202efdp.exe\u2066\ufeff\x7f"
ESCAPED = rf"owned\x1b]0;x\x07\x1b[2J\r\n{FORGED}\x85\x9b31m\u2028\u202efdp.exe\u2066\ufeff\x7f"
IN_ONE_LINE = HOSTILE.replace("\r\n", "")
ESCAPED_IN_ONE_LINE = ESCAPED.replace(r"\r\n", "")
LIST = "/v1.PodResourcesLister/List"
LIST_PODS = "/v1alpha1.Pods/ListPods"


def assert_harmless(text: str) -> None:
    """It has no character that a terminal or a browser obeys, and no line that is not the program's own."""
    raw = {character for character in text if not (character.isprintable() or character == "\n")}
    assert raw == set(), text
    assert not [line for line in text.split("\n") if line.startswith(FORGED)]


def refuse(context: grpc.ServicerContext) -> bytes:
    context.abort(grpc.StatusCode.INTERNAL, HOSTILE)
    raise AssertionError("abort raises")


@pytest.fixture
def sockets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("k")  # a socket's path may have 107 bytes and no more


@contextmanager
def hostile_kubelet(sockets: Path) -> Iterator[tuple[str, ...]]:
    """The flags for it; gRPC sends the text of an error percent-encoded in `grpc-message`."""
    path = sockets / "kubelet.sock"
    with kubelet(path, {LIST: refuse, LIST_PODS: refuse}):
        yield "--pod-resources-socket", str(path), "--kubelet-pods-socket", str(path)


def nvidia_smi(directory: Path, script: str) -> tuple[str, ...]:
    """The flags for it."""
    tool = directory / "nvidia-smi"
    tool.write_text("#!/bin/sh\n" + script)
    tool.chmod(0o755)
    return "--nvidia-smi", str(tool)


def failing_nvidia_smi(directory: Path) -> tuple[str, ...]:
    text = directory / "error"
    text.write_text(HOSTILE)
    return nvidia_smi(directory, f'cat "{text}" >&2; exit 9\n')


def renamed_gpu(directory: Path) -> tuple[str, ...]:
    """A GPU with a hostile name, as only a virtual machine's host could set it."""
    names = directory / "names.sed"
    names.write_text(f"s/NVIDIA H100[^,]*/{IN_ONE_LINE}/\n")
    return nvidia_smi(directory, f'"{sys.executable}" "{PLAYER}" "{CAPTURE}" 550 "$@" | sed -f "{names}"\n')


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_errors_of_the_driver_and_the_kubelet_in_log_and_pages(
    tmp_path: Path, sockets: Path, log_format: str
) -> None:
    flags = ("--reader", "nvidia-smi", *failing_nvidia_smi(tmp_path), "--log-format", log_format)
    with (
        hostile_kubelet(sockets) as pods,
        Exporter(tmp_path / "log", "serve", "--interval", "300ms", *flags, *pods) as exporter,
    ):
        exporter.next_snapshots()
        log = exporter.log.read_text()
        page, ready = (exporter.get(path)[1].decode() for path in ("/api/v1/snapshot", "/readyz"))
    messages = [json.loads(line)["message"] for line in log.splitlines()] if log_format == "json" else [log]
    for text in ("\n".join(messages), page, ready):
        assert_harmless(text)
        assert text.count("owned") == 3, text
    assert_harmless(log)
    assert all(line.startswith(("{", "20")) for line in log.splitlines())


def test_the_name_of_a_gpu_on_the_page(tmp_path: Path) -> None:
    flags = ("--reader", "nvidia-smi", *renamed_gpu(tmp_path), "--interval", "300ms")
    with Exporter(tmp_path / "log", "serve", *flags) as exporter:
        exporter.next_snapshots()
        page = exporter.get("/api/v1/snapshot")[1].decode()
        assert exporter.scrape().count("owned\x1b]") == 8  # Prometheus shows labels as they are
    assert_harmless(page)
    assert [gpu["model"] for gpu in json.loads(page)["gpus"]] == 8 * [ESCAPED_IN_ONE_LINE]


@pytest.mark.parametrize("gpus", [failing_nvidia_smi, renamed_gpu])
def test_what_check_prints(tmp_path: Path, sockets: Path, gpus: object) -> None:
    assert callable(gpus)
    flags = ("--reader", "nvidia-smi", *gpus(tmp_path))
    with hostile_kubelet(sockets) as pods:
        text = run("check", *flags, *pods)
        as_json = run("check", "--json", *flags, *pods)
    for result in (text, as_json):
        assert_harmless(result.stdout + result.stderr)
    assert text.stdout.count("INTERNAL: " + ESCAPED) == 2
    assert any(HOSTILE in finding["text"] for finding in json.loads(as_json.stdout)["findings"])


def test_what_whose_prints(tmp_path: Path, sockets: Path) -> None:
    proc = FakeProcfs(tmp_path / "proc")
    proc.start(41, pod_cgroup(uid(1), container_id(1)), name=IN_ONE_LINE)
    proc.start(42, pod_cgroup(uid(2), container_id(2)), name=IN_ONE_LINE)
    proc.start(43, f"0::/system.slice/{IN_ONE_LINE}.service\n", name=IN_ONE_LINE)
    (tmp_path / "pods" / f"team-a_{HOSTILE}_{uid(1)}" / HOSTILE).mkdir(parents=True)
    (tmp_path / "containers").mkdir()
    metadata = message("k8s.io.api.core.v1.ObjectMeta", name=HOSTILE, namespace=HOSTILE, uid=uid(2))
    listed = message("v1alpha1.ListPodsResponse", pods=[_pod(metadata)]).SerializeToString()
    path = sockets / "kubelet.sock"
    host = (
        *("--procfs", proc.root, "--pod-logs", tmp_path / "pods"),
        *("--container-logs", tmp_path / "containers", "--kubelet-pods-socket", path),
    )
    with kubelet(path, {LIST_PODS: listed}):
        text, as_json = run("whose", "41", "42", "43", *host), run("whose", "--json", "41", "42", "43", *host)
    for result in (text, as_json):
        assert_harmless(result.stdout + result.stderr)
    assert len(text.stdout.splitlines()) == 3
    assert f"namespace={ESCAPED} pod={ESCAPED}" in text.stdout
    assert json.loads(as_json.stdout)[1]["pod"] == HOSTILE


def _pod(metadata: object) -> bytes:
    pod = message("k8s.io.api.core.v1.Pod", metadata=metadata)
    encoded: bytes = pod.SerializeToString()
    return encoded


def test_what_verify_prints() -> None:
    error = (400, "application/json", json.dumps({"status": "error", "error": HOSTILE}).encode())
    down = f'gputally_source_up{{source="{IN_ONE_LINE}"}} 0\n'.encode()
    pages = {
        "/metrics": (200, "text/plain; version=0.0.4", down),
        "/readyz": (503, "text/plain", HOSTILE.encode()),
        **dict.fromkeys(("/api/v1/query", "/api/v1/rules", "/api/v1/targets", "/api/search"), error),
        "/api/health": {"version": HOSTILE},
        "/api/v2/status": {"versionInfo": {"version": HOSTILE}},
    }
    with site(pages) as servers:
        parts = ("exporter", "prometheus", "alertmanager", "grafana")
        result = run("verify", *(f"--{part}={servers.url}" for part in parts))
    assert_harmless(result.stdout + result.stderr)
    assert "owned" in result.stdout
