"""tools/cluster: starts, ends and shows the test cluster."""

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
        description="Runs a complete Kubernetes on this machine, with one node that runs pods.",
    )
    parser.add_argument("command", choices=["up", "down", "status"])
    parser.add_argument(
        "--directory",
        type=Path,
        default=layout.default_directory(),
        help="directory for the cluster's files; new or empty (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, _interrupt)
    directory = options.directory.absolute()
    try:
        preflight.check_user()
        if options.command == "up":
            _welcome(cluster.up(directory, _say))
        elif options.command == "down":
            cluster.down(directory, _say)
        else:
            return _status()
    except Failed as failure:
        print(failure, file=sys.stderr)
        return 1
    except (OSError, subprocess.CalledProcessError) as failure:
        # For example a full disk, or a failing command of the system.
        print(f"tools/cluster: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _status() -> int:
    directory = record.running()
    if directory is None:
        print("no cluster is running; run `tools/cluster up` to start one")
        return _NOT_RUNNING
    found = Cluster(Layout(directory))
    for program in found.programs():
        again = f", started {program['starts']} times" if program["starts"] > 1 else ""
        runs = "runs" if program["pid"] else "does not run"
        print(f"{program['name']:24} {runs}{again}")
    ready = found.node_is_ready()
    print(f"node {layout.NODE_NAME:19} {'is ready' if ready else 'is not ready'}")
    _welcome(found)
    return 0 if ready else 1


def _welcome(found: Cluster) -> None:
    print(f"directory {found.place.directory}, logs in {found.place.logs}")
    print(f"export KUBECONFIG={found.plane.kubeconfig}", flush=True)


def _say(text: str) -> None:
    print(f"cluster: {text}", file=sys.stderr, flush=True)


def _interrupt(*_: object) -> NoReturn:
    # A second Ctrl-C must not interrupt the cleanup.
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
