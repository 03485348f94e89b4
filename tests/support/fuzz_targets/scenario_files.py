"""A scenario of the simulator: a scenario, or ScenarioError."""

import tomllib
from contextlib import suppress

from gputally.simulator.scenario import ScenarioError
from gputally.simulator.scenario_file import parse_scenario

CORPUS = [
    b'gpus = 4\nmodel = "h100"\nseed = 7\n[[workload]]\nname = "a"\nkind = "train"\ngpus = [0]\n'
    b'[[fault]]\nkind = "xid"\ngpu = 0\nat = 60\ncode = 79\n[[mig]]\ngpu = 1\nprofiles = ["1g.10gb"]\n',
    b"gpus = 99999999999999999999\nseed = -1\n",
    b"power_limit = nan\n",
]


def one_input(data: bytes) -> None:
    with suppress(ScenarioError, tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError):
        parse_scenario(tomllib.loads(data.decode()))
