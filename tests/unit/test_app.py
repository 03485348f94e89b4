"""The parts that `serve` builds from the settings."""

from pathlib import Path

import pytest

from gputally import app
from gputally.attribution.sidecar import SidecarOwners
from gputally.config import Config
from gputally.flags import ConfigError
from tests.support.fake_procfs import FakeProcfs


def test_a_sidecar_with_the_hosts_processes_is_refused(tmp_path: Path) -> None:
    host = FakeProcfs(tmp_path)
    settings = Config(sidecar=True, procfs=host.root)
    assert isinstance(app._owners(settings), SidecarOwners)
    host.start(2, "0::/\n", name="kthreadd")
    with pytest.raises(ConfigError, match="hostPID"):
        app._owners(settings)
