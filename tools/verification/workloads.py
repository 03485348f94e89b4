"""Pods that do not run and volumes that are pending, with reasons and remedies."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gputally.commands import FAILURE, OK, Finding, some
from tools.verification.kubectl import Object
from tools.verification.release import COMPONENT, labels_of, name_of

_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_IMAGE = (
    "check the name and the access: image.repository, image.tag, global.imageRegistry and "
    "global.imagePullSecrets"
)
_FIXES = {
    "ImagePullBackOff": _IMAGE,
    "ErrImagePull": _IMAGE,
    "InvalidImageName": _IMAGE,
    "ErrImageNeverPull": _IMAGE,
    "CreateContainerConfigError": "create the Secret or ConfigMap that it names",
    "OOMKilled": "more memory: `resources` of this part",
}
_STARTING = ("ContainerCreating", "PodInitializing")


def stateful_sets(found: Iterable[Object]) -> Iterator[Finding]:
    for made in found:
        wanted, ready = made["spec"].get("replicas", 1), made.get("status", {}).get("readyReplicas", 0)
        subject = labels_of(made).get(COMPONENT, name_of(made))
        if ready < wanted:
            yield Finding(FAILURE, subject, f"{ready} of {wanted} pods are ready")
        else:
            yield Finding(OK, subject, f"{ready} of {wanted} pods are ready")


def not_created(events: Iterable[Object], owners: Iterable[Object], namespace: str) -> Iterator[Finding]:
    """The reasons for missing pods: Pod Security, a quota, a webhook."""
    subjects = {name_of(owner): labels_of(owner).get(COMPONENT, name_of(owner)) for owner in owners}
    said = {
        subjects[event["involvedObject"]["name"]]: event["message"]
        for event in events
        if event.get("reason") == "FailedCreate" and event["involvedObject"]["name"] in subjects
    }
    for subject, message in sorted(said.items()):
        refused = "violates PodSecurity" in message
        fix = f"kubectl label namespace {namespace} pod-security.kubernetes.io/enforce=privileged --overwrite"
        why = "its pods are rejected because the namespace enforces Pod Security" if refused else message
        yield Finding(
            FAILURE, subject, why, f"{fix}; or fewer privileges (presets/minimal.yaml)" if refused else ""
        )


def pods(found: Sequence[Object], events: Sequence[Object]) -> Iterator[Finding]:
    """One finding per reason, with the pods that have it."""
    troubles: dict[tuple[str, str, str], list[str]] = {}
    for pod in found:
        component = labels_of(pod).get(COMPONENT, "pods")
        for text, fix in _troubles(pod, events):
            troubles.setdefault((component, text, fix), []).append(name_of(pod))
    for (component, text, fix), names in sorted(troubles.items()):
        yield Finding(FAILURE, component, f"{some(names, 3)}: {text}", fix.replace("POD", names[0]))


def _troubles(pod: Object, events: Sequence[Object]) -> Iterator[tuple[str, str]]:
    status = pod.get("status", {})
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            yield f"not scheduled: {condition.get('message', condition.get('reason', ''))}", ""
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = container.get("state", {}).get("waiting")
        if waiting and waiting["reason"] in _STARTING:
            yield from _why_not_started(pod, events)
        elif waiting and waiting["reason"] == "CrashLoopBackOff":
            yield _crash(container, pod)
        elif waiting:
            reason = waiting["reason"]
            message = f"{reason}: {waiting.get('message', '')}".rstrip(": ")
            yield message, _FIXES.get(reason, "kubectl describe pod POD")


def _crash(container: Mapping[str, Any], pod: Object) -> tuple[str, str]:
    ended = container.get("lastState", {}).get("terminated") or {}
    last = (ended.get("message") or "").strip().splitlines()
    why = last[-1] if last else f"exit code {ended.get('exitCode', '?')}"
    if ended.get("reason") == "OOMKilled":
        return "restarts repeatedly: out of memory", _FIXES["OOMKilled"]
    logs = f"kubectl logs --namespace {pod['metadata']['namespace']} POD -c {container['name']} --previous"
    return f"restarts repeatedly: {why}", logs


def _why_not_started(pod: Object, events: Sequence[Object]) -> Iterator[tuple[str, str]]:
    """Nothing for a container that is being created, unless an event reports a problem."""
    said = [
        event["message"]
        for event in events
        if event["involvedObject"]["name"] == name_of(pod) and event.get("reason", "").startswith("Failed")
    ]
    if said:
        yield said[-1], "kubectl describe pod POD"


def volumes(claims: Iterable[Object], classes: Sequence[Object]) -> Iterator[Finding]:
    pending = [claim for claim in claims if claim.get("status", {}).get("phase") == "Pending"]
    if not pending:
        return
    names = some(map(name_of, pending))
    usual = [
        one for one in classes if (one["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true"
    ]
    unnamed = any(not claim["spec"].get("storageClassName") for claim in pending)
    if unnamed and not usual:
        there = f"one of {some(map(name_of, classes))}" if classes else "the cluster has none"
        yield Finding(
            FAILURE,
            "volumes",
            f"{names}: no StorageClass is named, and the cluster has no default one",
            f"stack.*.persistence.storageClass ({there}), or stack.*.persistence.enabled=false",
        )
    else:
        yield Finding(
            FAILURE, "volumes", f"{names}: still pending", "kubectl describe persistentvolumeclaims"
        )
