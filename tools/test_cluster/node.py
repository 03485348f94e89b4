"""The first process in a cluster's namespaces: mounts, addresses, and all programs of the node.

`unshare` starts it as process 1, so that all others end with it. It restarts programs that end, as a service
manager does.
"""

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tools.test_cluster import layout
from tools.test_cluster.layout import Layout

_SECONDS_BETWEEN_STARTS = 1.0
_SECONDS_FOR_THE_LINK = 10


@dataclass(slots=True)
class Program:
    """A program of the node."""

    name: str
    command: list[str]
    needs_api: bool
    starts: int = 0
    last_start: float = float("-inf")
    process: "subprocess.Popen[bytes] | None" = None


class Node:
    """The programs of a plan, which are restarted when they end."""

    def __init__(self, place: Layout) -> None:
        self.place = place
        plan = json.loads(place.plan.read_text())
        self._environment: dict[str, str] = plan["environment"]
        self._programs = [Program(**program) for program in plan["programs"]]
        self._api_answered = False

    def run(self) -> None:
        while True:
            self._start_what_can_be()
            self._bury()
            time.sleep(0.1)

    def _start_what_can_be(self) -> None:
        self._api_answered = self._api_answered or self.place.plane.responds("/readyz")
        for program in self._programs:
            rested = time.monotonic() - program.last_start >= _SECONDS_BETWEEN_STARTS
            if program.process is None and rested and (self._api_answered or not program.needs_api):
                self._start(program)

    def _start(self, program: Program) -> None:
        with (self.place.logs / f"{program.name}.log").open("ab") as log:
            program.process = subprocess.Popen(
                program.command,
                cwd=self.place.directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        program.starts += 1
        program.last_start = time.monotonic()
        self._write_state()

    def _bury(self) -> None:
        """Records the programs that have ended, and reaps orphans of other processes."""
        ours = {program.process.pid: program for program in self._programs if program.process}
        while pid := _ended():
            program = ours.pop(pid, None)
            if program is None or program.process is None:
                os.waitpid(pid, 0)
                continue
            say(f"{program.name} ended ({program.process.wait()})")
            program.process = None
            self._write_state()

    def _write_state(self) -> None:
        """Name, pid (in this namespace) and number of starts of each program."""
        state = [
            {
                "name": program.name,
                "pid": program.process.pid if program.process else None,
                "starts": program.starts,
            }
            for program in self._programs
        ]
        unfinished = self.place.state.with_suffix(".new")
        unfinished.write_text(json.dumps(state))
        unfinished.replace(self.place.state)


def mount(place: Layout) -> None:
    """Mounts directories of the cluster on /run and /var, so that the host's stay unchanged."""
    # Mounts of the kubelet and of containerd must be visible to each other.
    _run("mount", "--make-rshared", "/")
    _run("mount", "-t", "tmpfs", "tmpfs", "/run")
    layers = f"lowerdir=/var,upperdir={place.directory / 'var'},workdir={place.directory / 'var-work'}"
    _run("mount", "-t", "overlay", "overlay", "-o", layers, "/var")
    for target, directory in place.mounts.items():
        Path(target).mkdir(parents=True, exist_ok=True)
        _run("mount", "--bind", directory, target)


def join_network() -> None:
    """Configures the address of the link from the host, and the bridge of the pods."""
    deadline = time.monotonic() + _SECONDS_FOR_THE_LINK
    while not _link_is_here():
        if time.monotonic() > deadline:
            sys.exit("the link from the host is missing")
        time.sleep(0.02)
    for command in (
        "link set lo up",
        f"address add {layout.NODE_ADDRESS}/{layout.LINK_LENGTH} dev eth0",
        "link set eth0 up",
        # Service addresses need a route only so that packets reach the translation.
        f"route add {layout.ADDRESSES} via {layout.HOST_ADDRESS}",
        # Version 1.1 of the plugin fails the first time if it has to create the bridge.
        f"link add {layout.BRIDGE} type bridge",
        f"address add {layout.BRIDGE_ADDRESS}/{layout.LINK_LENGTH} dev {layout.BRIDGE}",
        f"link set {layout.BRIDGE} up",
    ):
        _run("ip", *command.split())
    for setting in ("ip_forward", "conf/all/route_localnet"):
        Path("/proc/sys/net/ipv4", setting).write_text("1")


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def _link_is_here() -> bool:
    return subprocess.run(["ip", "link", "show", "eth0"], capture_output=True, check=False).returncode == 0


def _ended() -> int:
    """The pid of a child that has ended and is not reaped yet; 0 if there is none."""
    with suppress(ChildProcessError):
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return found.si_pid if found else 0
    return 0


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True)


def main() -> None:
    place = Layout(Path(sys.argv[1]))
    mount(place)
    join_network()
    say("mounts and addresses are ready")
    Node(place).run()


if __name__ == "__main__":
    main()
