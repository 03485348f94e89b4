"""Which pod the exporter itself runs in, as the downward API tells it: for a sidecar, which sees no other.

Each fact is taken from the first place that has it:

| fact      | environment                           | file                                        |
|-----------|---------------------------------------|---------------------------------------------|
| pod       | GPUTALLY_POD_NAME, POD_NAME           | podinfo/name                                |
| namespace | GPUTALLY_POD_NAMESPACE, POD_NAMESPACE | podinfo/namespace, serviceaccount/namespace |
| UID       | GPUTALLY_POD_UID, POD_UID             | podinfo/uid                                 |
| node      | GPUTALLY_NODE_NAME, NODE_NAME         | (a volume cannot have it)                   |
| container | GPUTALLY_CONTAINER_NAME               | (the downward API does not know it)         |
| labels    |                                       | podinfo/labels                              |
| workload  |                                       | podinfo/labels: the workflow, where Argo    |
|           |                                       | made the pod                                |

Pod and namespace are needed, the rest is not. GPUTALLY_CONTAINER_NAME is the container that uses the GPU,
where it is only one; people write it into the pod's specification. CONTAINER_NAME is not looked at: that
would be the exporter's own container.

https://kubernetes.io/docs/concepts/workloads/pods/downward-api/
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from gputally.attribution import Knowledge, PodFacts
from gputally.attribution.pod_names import is_container, is_namespace, is_pod, pod_uid
from gputally.model import Unavailable

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

DOWNWARD_API = (
    "give the container, under env: "
    "{name: GPUTALLY_POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, "
    "{name: GPUTALLY_POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}, "
    "{name: GPUTALLY_POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}"
)

_LONGEST_FILE = 262_144  # all labels and annotations of an object together have at most so many bytes
_WORKFLOW_LABEL = "workflows.argoproj.io/workflow"
_LABEL_LINE = re.compile(r'([A-Za-z0-9][-A-Za-z0-9_./]*)="([-A-Za-z0-9_.]*)"')


class OwnPod:
    """The source `own_pod`: knows one pod, the one it runs in.

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

    def read(self) -> Knowledge:
        pod = self._first(is_pod, self._told("POD_NAME", "name"))
        namespace = self._first(is_namespace, self._told("POD_NAMESPACE", "namespace"))
        if pod is None or namespace is None:
            missing = " and ".join(
                fact for fact, value in (("name", pod), ("namespace", namespace)) if value is None
            )
            raise Unavailable(f"nothing tells the {missing} of the exporter's own pod", DOWNWARD_API)
        uids = (pod_uid(text) for text in self._told("POD_UID", "uid"))
        container = self._environment.get("GPUTALLY_CONTAINER_NAME", "").strip()
        labels = parse_labels(_file_text(self._podinfo, "labels"))
        workflow = dict(labels).get(_WORKFLOW_LABEL)
        facts = PodFacts(
            namespace,
            pod,
            uid=next((uid for uid in uids if uid), ""),
            container_names=(container,) if is_container(container) else (),
            node=self._first(is_pod, self._told("NODE_NAME")) or "",
            workload=f"Workflow/{workflow}" if workflow else "",
            labels=tuple(label for label in labels if self._is_allowed(label[0])),
        )
        return Knowledge(pods=(facts,))

    def close(self) -> None:
        """Nothing is held open between two looks."""

    def _is_allowed(self, label: str) -> bool:
        return label in self._label_names or label.startswith(self._label_prefixes)

    def _told(self, variable: str, file: str = "") -> Iterator[str]:
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
