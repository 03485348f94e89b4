"""The files of a release, each made by one function from the source alone."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from pathlib import Path

from tools import Failed
from tools.releasing import bill_of_materials
from tools.releasing.archives import Files, tar_gz, zipped
from tools.releasing.source import Source

CHECKSUMS = "SHA256SUMS"


def python_distributions(source: Source) -> Files:
    """The wheel and the sdist."""
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", directory],
            cwd=source.root,
            env={**os.environ, "SOURCE_DATE_EPOCH": str(source.seconds)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Failed(f"the wheel cannot be built: {done.stderr.strip()[-1000:]}")
        return {path.name: path.read_bytes() for path in Path(directory).iterdir()}


def chart(source: Source) -> Files:
    """The chart as `helm package` writes it, which takes the time of each run and so never the same bytes."""
    root = source.root / "helm/gputally"
    ignored = [
        line.rstrip("/")
        for line in (root / ".helmignore").read_text().splitlines()
        if line and line[0] != "#"
    ]
    paths = {path.relative_to(root): path for path in root.rglob("*") if path.is_file()}
    files = {
        f"gputally/{name}": path.read_bytes()
        for name, path in paths.items()
        if name.name == ".helmignore"
        or not any(fnmatch(part, pattern) for part in name.parts for pattern in ignored)
    }
    return {f"gputally-{source.version}.tgz": tar_gz(files, source.seconds)}


def manifests(source: Source) -> Files:
    """The installation without Helm, and the rules alone."""
    deploy, alerts = source.root / "deploy", source.root / "alerts"
    return {
        "gputally-exporter.yaml": (deploy / "exporter.yaml").read_bytes(),
        "gputally-stack.yaml": (deploy / "stack.yaml").read_bytes(),
        "gputally-prometheusrule.yaml": (alerts / "manifests/prometheusrule.yaml").read_bytes(),
        "gputally.rules.yml": (alerts / "plain/gputally.rules.yml").read_bytes(),
    }


def dashboards(source: Source) -> Files:
    """The dashboards, to import them into a Grafana."""
    found = sorted((source.root / "helm/gputally/dashboards").glob("*.json"))
    files = {f"gputally-dashboards/{path.name}": path.read_bytes() for path in found}
    return {f"gputally-dashboards-{source.version}.zip": zipped(files, source.seconds)}


def sbom(source: Source) -> Files:
    return {f"gputally-{source.version}.cdx.json": bill_of_materials.text(source).encode()}


def notes(source: Source) -> Files:
    return {"RELEASE_NOTES.md": source.notes.encode()}


STEPS: Mapping[str, Callable[[Source], Files]] = {
    "python": python_distributions,
    "chart": chart,
    "manifests": manifests,
    "dashboards": dashboards,
    "sbom": sbom,
    "notes": notes,
}
"""By name, in their order."""


def checksums(files: Files) -> bytes:
    """As sha256sum writes and checks them."""
    return "".join(f"{_sha256(files[name])}  {name}\n" for name in sorted(files)).encode()


def provenance(source: Source, files: Files) -> bytes:
    """What was built from what: an in-toto statement with SLSA's provenance, to be signed."""
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": _sha256(files[name])}} for name in sorted(files)],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "https://github.com/gputally/gputally/blob/main/docs/releasing.md",
                "externalParameters": {"version": source.version},
                "resolvedDependencies": [
                    {
                        "uri": "git+https://github.com/gputally/gputally",
                        "digest": {"gitCommit": source.commit},
                    }
                ],
            },
            "runDetails": {"builder": {"id": "tools/release"}},
        },
    }
    return (json.dumps(statement, indent=2) + "\n").encode()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
