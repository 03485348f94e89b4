"""A host with the AMD GPUs of a fixture, for programs that read /sys: AMD's own tools.

The program runs in a mount namespace with the fixture's /sys, completed by files that the tools need and
GPUTally does not read: the state of the module, a voltage, and links between KFD's nodes.
"""

import shlex
from pathlib import Path

from tests.support.amd_trees import plant

_NODE = {
    "array_count": "8",
    "caches_count": "0",
    "cu_per_simd_array": "14",
    "domain": "0",
    "drm_render_minor": "0",
    "gfx_target_version": "90010",
    "hive_id": "0",
    "location_id": "0",
    "mem_banks_count": "0",
    "num_xcc": "1",
    "simd_arrays_per_engine": "1",
    "simd_count": "0",
    "unique_id": "0",
}
_LINK = (
    "type 2\nversion_major 0\nversion_minor 0\nnode_from {node}\nnode_to 0\nweight 20\nmin_latency 0\n"
    "max_latency 0\nmin_bandwidth 0\nmax_bandwidth 64000\nrecommended_transfer_size 0\nflags 1\n"
)
# The tools leave locks in /dev/shm.
_SCRIPT = """#!/bin/sh
exec unshare --map-root-user --mount -- sh -c \\
  'mount --bind "$0" /sys && mount -t tmpfs none /dev/shm && exec "$@"' {sys} {program} "$@"
"""


class AmdHost:
    """Its `sys` may be changed between two runs of a program."""

    def __init__(self, directory: Path, fixture: str | None) -> None:
        """Without a fixture the driver is loaded and there is no GPU."""
        self._directory = directory
        self.sys = (directory if fixture is None else plant(fixture, directory)) / "sys"
        (self.sys / "class/drm").mkdir(parents=True, exist_ok=True)
        _write(self.sys / "module/amdgpu/initstate", "live\n")
        (self.sys / "class/kfd/kfd/proc").mkdir(parents=True, exist_ok=True)
        nodes = self.sys / "class/kfd/kfd/topology/nodes"
        if not nodes.exists():
            self._add_nodes(nodes)
        for node in nodes.iterdir():
            _complete(node)
        for sensors in self.sys.glob("devices/**/hwmon/hwmon*"):
            if not (sensors / "in0_label").exists():
                _write(sensors / "in0_label", "vddgfx\n")

    def command(self, program: Path) -> str:
        """A program's path that runs `program` on this host."""
        script = self._directory / program.name
        _write(script, _SCRIPT.format(sys=shlex.quote(str(self.sys)), program=shlex.quote(str(program))))
        script.chmod(0o755)
        return str(script)

    def _add_nodes(self, nodes: Path) -> None:
        _write(nodes / "0/gpu_id", "0\n")
        _write(nodes / "0/properties", "cpu_cores_count 32\n")
        for number, (address, render) in enumerate(sorted(self._cards().items()), 1):
            domain, bus, rest = address.split(":")
            device, function = rest.split(".")
            location = int(bus, 16) << 8 | int(device, 16) << 3 | int(function)
            _write(nodes / f"{number}/gpu_id", f"{1000 + number}\n")
            _write(
                nodes / f"{number}/properties",
                f"location_id {location}\ndomain {int(domain, 16)}\ndrm_render_minor {render}\n",
            )

    def _cards(self) -> dict[str, str]:
        """PCI address -> minor number of the render node."""
        return {
            (render / "device").resolve().name: render.name.removeprefix("renderD")
            for render in (self.sys / "class/drm").glob("renderD*")
            if "DRIVER=amdgpu\n" in (render / "device/uevent").read_text()
            if (render / "device/vendor").exists()
        }


def _complete(node: Path) -> None:
    (node / "p2p_links").mkdir(exist_ok=True)
    (node / "io_links").mkdir(exist_ok=True)
    if not (node / "name").exists():
        _write(node / "name", "\n")
    if (node / "gpu_id").read_text().strip() == "0":
        return
    properties = dict(line.split(" ", 1) for line in (node / "properties").read_text().splitlines())
    lines = [f"{name} {value}\n" for name, value in {**_NODE, **properties}.items()]
    _write(node / "properties", "".join(lines))
    if not list((node / "io_links").iterdir()):
        _write(node / "io_links/0/properties", _LINK.format(node=node.name))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
