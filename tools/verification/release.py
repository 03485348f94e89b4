"""Finds the installation and its objects."""

from collections.abc import Sequence
from dataclasses import dataclass

from tools import Failed
from tools.verification.kubectl import Kubectl, Object

PART_OF = "app.kubernetes.io/part-of=gputally"
COMPONENT = "app.kubernetes.io/component"
INSTANCE = "app.kubernetes.io/instance"


@dataclass(frozen=True, slots=True)
class Release:
    """An installation, by the chart or by deploy/: its exporter and the objects around it."""

    namespace: str
    name: str
    exporter: Object

    @property
    def fullname(self) -> str:
        return name_of(self.exporter)

    def has(self, made: Object) -> bool:
        """Whether an object belongs to this release. Objects of alerts/manifests belong to every release."""
        return labels_of(made).get(INSTANCE, self.name) == self.name

    def of(self, found: Sequence[Object], component: str) -> list[Object]:
        return [made for made in found if labels_of(made).get(COMPONENT) == component]


def find_release(kubectl: Kubectl, namespace: str, name: str) -> Release:
    """Raises Failed when no release matches, or several."""
    where = f"--namespace={namespace}" if namespace else "--all-namespaces"
    found = [
        Release(made["metadata"]["namespace"], labels_of(made).get(INSTANCE, ""), made)
        for made in kubectl.get("daemonsets", where, f"--selector={PART_OF},{COMPONENT}=exporter")
    ]
    wanted = [release for release in found if not name or release.name == name]
    if not wanted:
        others = ", ".join(f"{one.name} in {one.namespace}" for one in found)
        raise Failed(
            f"there is no exporter of {f'release {name}' if name else 'gputally'} "
            + (f"in namespace {namespace}" if namespace else "in any namespace")
            + (f"; there is {others}" if others else "")
            + ". To install one: helm install gputally helm/gputally --namespace gputally --create-namespace"
        )
    if len(wanted) > 1:
        choices = ", ".join(f"--namespace {one.namespace} --release {one.name}" for one in wanted)
        raise Failed(f"there are {len(wanted)} releases of gputally; choose one of: {choices}")
    return wanted[0]


def labels_of(made: Object) -> dict[str, str]:
    return dict(made["metadata"].get("labels") or {})


def name_of(made: Object) -> str:
    return str(made["metadata"]["name"])
