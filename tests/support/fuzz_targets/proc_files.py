"""Files of /proc and of the AMD driver: a value or none, never an exception."""

from gputally.attribution.procfs import parse_real_uid, parse_stat
from gputally.devices.amdgpu.fdinfo import parse_fdinfo, parse_task
from gputally.devices.amdgpu.files import parse_count, parse_counts, parse_levels, parse_number
from gputally.devices.amdgpu.kfd import parse_properties

CORPUS = [
    b"1 (python) S 1 1 1 0 -1 4194304 1 0 0 0 1 1 0 0 20 0 3 0 12345 1 1",
    b"1 (a) b) (c) R 1 1 1 0 -1 " + b"9" * 5000 + b" 1 0 0 0 1 1 0 0 20 0 3 0 12345 1 1",
    b"Name:\tpython\nUid:\t1000\t1000\t1000\t1000\n",
    b"pos:\t0\ndrm-driver:\tamdgpu\ndrm-pdev:\t0000:03:00.0\ndrm-client-id:\t7\n"
    b"drm-engine-gfx:\t123 ns\ndrm-memory-vram:\t5 KiB\n",
    b"0: 500Mhz *\n1: 1000Mhz\n",
    b"ue: 0\nce: 12\n",
    b"simd_count 440\ngfx_target_version 90402\nlocation_id " + b"9" * 5000,
    b"\xb2\xb3 12 -5 0x7f " + b"9" * 5000,
]


def one_input(data: bytes) -> None:
    parse_stat(data)
    parse_real_uid(data)
    parse_task(7, data)
    parse_fdinfo(data)
    parse_properties(data)
    text = data.decode(errors="replace")
    parse_number(text)
    parse_levels(text)
    parse_counts(text)
    parse_count(text)
