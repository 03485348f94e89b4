"""The software bill of materials: CycloneDX 1.6, of the wheel and of the image's Python packages.

It is written from what the image is built from: each package in packaging/image/requirements.txt is
installed by its hash, and nothing else is.
"""

import json
import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tools.releasing.source import Source

_PIN = re.compile(r"(?m)^([A-Za-z0-9._-]+)==(\S+)((?:\s\\\n\s+--hash=sha256:[0-9a-f]{64})+)")
_BASE_IMAGE = re.compile(r"(?m)^ARG PYTHON_IMAGE=([^:@\s]+):([^@\s]+)@sha256:([0-9a-f]{64})$")


def text(source: Source) -> str:
    name, version = "gputally", source.version
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{name}@{source.commit}')}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(source.seconds, UTC).isoformat(),
            "component": {
                "type": "application",
                "bom-ref": f"pkg:pypi/{name}@{version}",
                "name": name,
                "version": version,
                "purl": f"pkg:pypi/{name}@{version}",
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
        },
        "components": [_base_image(source.root), *_packages(source.root)],
    }
    return json.dumps(document, indent=2) + "\n"


def _base_image(root: Path) -> dict[str, Any]:
    found = _BASE_IMAGE.search((root / "Dockerfile").read_text())
    if found is None:
        raise ValueError("the Dockerfile names no base image by digest")
    name, tag, digest = found.groups()
    return {
        "type": "container",
        "bom-ref": f"pkg:docker/{name}@sha256:{digest}",
        "name": name,
        "version": tag,
        "purl": f"pkg:docker/{name}@sha256:{digest}",
    }


def _packages(root: Path) -> Iterator[dict[str, Any]]:
    pins = _PIN.finditer((root / "packaging/image/requirements.txt").read_text())
    for name, version, hashes in sorted(pin.groups() for pin in pins):
        purl = f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
        yield {
            "type": "library",
            "bom-ref": purl,
            "name": name,
            "version": version,
            "purl": purl,
            # A wheel for each processor and Python; one of them is installed.
            "properties": [
                {"name": "gputally:wheel:sha256", "value": one} for one in re.findall(r"[0-9a-f]{64}", hashes)
            ],
        }
