"""A `kubectl` that plays a cluster from a file: what it has, and where its ports lead to."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_PROGRAM = f"""#!{sys.executable} -SE
import json, pathlib, sys, time

cluster = json.loads(pathlib.Path(__file__).with_suffix(".json").read_text())
arguments = [one for one in sys.argv[1:] if not one.startswith("--")]
flags = dict(one[2:].split("=", 1) for one in sys.argv[1:] if one.startswith("--") and "=" in one)
with pathlib.Path(__file__).with_suffix(".log").open("a") as log:
    print(" ".join(sys.argv[1:]), file=log)


def fail(said):
    sys.exit(f"kubectl is asked for something:\\n{{said}}")


def wanted(made):
    labels = made["metadata"].get("labels", {{}})
    asked = [pair.split("=", 1) for pair in flags.get("selector", "").split(",") if pair]
    phase = flags.get("field-selector", "").partition("status.phase=")[2]
    return (
        flags.get("namespace", made["metadata"].get("namespace")) == made["metadata"].get("namespace")
        and all(labels.get(key) == value for key, value in asked)
        and (not phase or made.get("status", {{}}).get("phase") == phase)
    )


match arguments:
    case ["get", kind]:
        if kind in cluster["refused"]:
            fail(f"Error from server (Forbidden): {{kind}} is forbidden")
        if kind not in cluster["objects"] and "." in kind:
            fail(f'error: the server doesn\\'t have a resource type "{{kind}}"')
        print(json.dumps({{"items": [made for made in cluster["objects"].get(kind, []) if wanted(made)]}}))
    case ["api-resources"]:
        print("\\n".join(kind for kind in cluster["objects"] if kind.endswith(flags["api-group"])))
    case ["exec", *_]:
        print(cluster["password"]) if cluster["password"] else fail("error: cannot exec")
    case ["port-forward", target, port]:
        if target not in cluster["ways"]:
            fail("error: unable to forward port because pod is not running")
        print(f"Forwarding from 127.0.0.1:{{cluster['ways'][target]}} -> {{port[1:]}}", flush=True)
        time.sleep(60)
    case _:
        fail(f"unknown: {{arguments}}")
"""


class FakeKubectl:
    """Lies in `directory` as `kubectl`; `objects` by kind as it is asked for."""

    def __init__(
        self,
        directory: Path,
        objects: Mapping[str, Sequence[Any]],
        *,
        ways: Mapping[str, int] | None = None,
        password: str = "",
        refused: Sequence[str] = (),
    ) -> None:
        self.program = directory / "kubectl"
        self.program.write_text(_PROGRAM)
        self.program.chmod(0o755)
        cluster = {"objects": objects, "ways": ways or {}, "password": password, "refused": refused}
        self.program.with_suffix(".json").write_text(json.dumps(cluster))

    @property
    def asked(self) -> list[str]:
        return self.program.with_suffix(".log").read_text().splitlines()
