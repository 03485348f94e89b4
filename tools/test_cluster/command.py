"""Start, end and look at the test cluster."""

import argparse
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tools import Failed
from tools.test_cluster import cluster, layout, preflight, record
from tools.test_cluster.cluster import Cluster
from tools.test_cluster.layout import Layout

_NOT_RUNNING = 3


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="tools/cluster",
        description="A whole Kubernetes on this machine alone, with one node that runs pods.",
    )
    parser.add_argument("command", choices=["up", "down", "status"])
    parser.add_argument(
        "--folder",
        type=Path,
        default=layout.default_folder(),
        help="where the cluster has its files; new or empty (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, _interrupt)
    folder = options.folder.absolute()
    try:
        preflight.check_user()
        if options.command == "up":
            _welcome(cluster.up(folder, _say))
        elif options.command == "down":
            cluster.down(folder, _say)
        else:
            return _status()
    except Failed as failure:
        print(failure, file=sys.stderr)
        return 1
    except (OSError, subprocess.CalledProcessError) as failure:
        # A full disk, say, or a command of the system that refuses.
        print(f"tools/cluster: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _status() -> int:
    folder = record.running()
    if folder is None:
        print("no cluster is running; `tools/cluster up` starts one")
        return _NOT_RUNNING
    found = Cluster(Layout(folder))
    for program in found.programs():
        again = f", started {program['starts']} times" if program["starts"] > 1 else ""
        runs = "runs" if program["pid"] else "does not run"
        print(f"{program['name']:24} {runs}{again}")
    ready = found.node_is_ready()
    print(f"node {layout.NODE_NAME:19} {'is ready' if ready else 'is not ready'}")
    _welcome(found)
    return 0 if ready else 1


def _welcome(found: Cluster) -> None:
    print(f"folder {found.place.folder}, logs in {found.place.logs}")
    print(f"export KUBECONFIG={found.plane.kubeconfig}", flush=True)


def _say(text: str) -> None:
    print(f"cluster: {text}", file=sys.stderr, flush=True)


def _interrupt(*_: object) -> NoReturn:
    # Once is enough: a second Ctrl-C must not cut the cleaning up short.
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
