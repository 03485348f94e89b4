"""Pod source `own_pod`: the exporter's own pod, from the downward API. A sidecar sees no other pod.

Each fact is taken from the first source that has it:

| fact      | environment                           | file                                        |
|-----------|---------------------------------------|---------------------------------------------|
| pod       | GPUTALLY_POD_NAME, POD_NAME           | podinfo/name                                |
| namespace | GPUTALLY_POD_NAMESPACE, POD_NAMESPACE | podinfo/namespace, serviceaccount/namespace |
| UID       | GPUTALLY_POD_UID, POD_UID             | podinfo/uid                                 |
| node      | GPUTALLY_NODE_NAME, NODE_NAME         | (not available in a volume)                  |
| container | GPUTALLY_CONTAINER_NAME               | (not in the downward API)                   |
| labels    |                                       | podinfo/labels                              |
| workload  |                                       | podinfo/labels: the workflow, where Argo    |
|           |                                       | made the pod                                |

Pod and namespace are required, the rest is optional. GPUTALLY_CONTAINER_NAME is the container that uses the
GPU, if it is only one; it is set in the pod's specification. CONTAINER_NAME is not read: that would be the
exporter's own container.

https://kubernetes.io/docs/concepts/workloads/pods/downward-api/
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from gputally.attribution import PodReport, is_container, is_namespace, is_pod, parse_pod_uid
from gputally.attribution.limits import LABELS_OF_POD
from gputally.model import PodInfo, Unavailable

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

DOWNWARD_API = (
    "add to the container, under env: "
    "{name: GPUTALLY_POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, "
    "{name: GPUTALLY_POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}, "
    "{name: GPUTALLY_POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}"
)

_LONGEST_FILE = 262_144  # the limit for all labels and annotations of an object together
_WORKFLOW_LABEL = "workflows.argoproj.io/workflow"
_LABEL_LINE = re.compile(r'([A-Za-z0-9][-A-Za-z0-9_./]*)="([-A-Za-z0-9_.]*)"')


class OwnPod:
    """The pod source `own_pod`: reports one pod, the one it runs in.

    `pod_labels` are the names of the labels to keep; a name that ends in * is a prefix.
    """

    name = "own_pod"

    def __init__(
        self,
        environment: Mapping[str, str],
        podinfo: Path | None = Path("/etc/podinfo"),
        service_account: Path | None = SERVICE_ACCOUNT,
        pod_labels: Collection[str] = (),
    ) -> None:
        self._environment = environment
        self._podinfo = podinfo
        self._service_account = service_account
        self._label_names = frozenset(name for name in pod_labels if not name.endswith("*"))
        self._label_prefixes = tuple(name[:-1] for name in pod_labels if name.endswith("*"))

    def read(self) -> PodReport:
        pod = self._first(is_pod, self._texts("POD_NAME", "name"))
        namespace = self._first(is_namespace, self._texts("POD_NAMESPACE", "namespace"))
        if pod is None or namespace is None:
            missing = " and ".join(
                fact for fact, value in (("name", pod), ("namespace", namespace)) if value is None
            )
            raise Unavailable(f"the {missing} of the exporter's own pod is not set", DOWNWARD_API)
        uids = (parse_pod_uid(text) for text in self._texts("POD_UID", "uid"))
        container = self._environment.get("GPUTALLY_CONTAINER_NAME", "").strip()
        labels = parse_labels(_file_text(self._podinfo, "labels"))
        workflow = dict(labels).get(_WORKFLOW_LABEL)
        own = PodInfo(
            namespace,
            pod,
            pod_uid=next((uid for uid in uids if uid), ""),
            container_names=(container,) if is_container(container) else (),
            node=self._first(is_pod, self._texts("NODE_NAME")) or "",
            workload=f"Workflow/{workflow}" if workflow else "",
            labels=tuple(self._allowed(labels)),
        )
        return PodReport(pods=(own,))

    def close(self) -> None:
        """Nothing is kept open between two reads."""

    def _allowed(self, labels: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """First those that are allowed by their full names."""
        allowed = [
            (name, value)
            for name, value in labels
            if name in self._label_names or name.startswith(self._label_prefixes)
        ]
        return sorted(allowed, key=lambda label: label[0] not in self._label_names)[:LABELS_OF_POD]

    def _texts(self, variable: str, file: str = "") -> Iterator[str]:
        yield self._environment.get(f"GPUTALLY_{variable}", "").strip()
        yield self._environment.get(variable, "").strip()
        if file:
            yield _file_text(self._podinfo, file).strip()
        if file == "namespace":
            yield _file_text(self._service_account, file).strip()

    @staticmethod
    def _first(fits: Callable[[str], bool], texts: Iterator[str]) -> str | None:
        return next((text for text in texts if fits(text)), None)


def _file_text(directory: Path | None, name: str) -> str:
    if directory is None:
        return ""
    try:
        with (directory / name).open(encoding="utf-8") as file:
            return file.read(_LONGEST_FILE)
    except (OSError, UnicodeDecodeError):
        return ""


def parse_labels(text: str) -> tuple[tuple[str, str], ...]:
    """Labels as the downward API writes them into a file, a line each: key="value"."""
    found = (_LABEL_LINE.fullmatch(line) for line in text.split("\n"))
    return tuple(sorted({match[1]: match[2] for match in found if match}.items()))
