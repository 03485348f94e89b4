"""What the names and UIDs of pods may look like. Whatever does not look so names no pod.

https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
"""

import re

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DNS_LABEL = re.compile(_LABEL)
_DNS_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}")


def is_namespace(text: str) -> bool:
    return len(text) <= 63 and _DNS_LABEL.fullmatch(text) is not None


def is_pod(text: str) -> bool:
    return len(text) <= 253 and _DNS_SUBDOMAIN.fullmatch(text) is not None


is_container = is_namespace


def pod_uid(text: str) -> str | None:
    """A pod's UID as the API writes it, from any spelling of it; None when it is none.

    The UID of a static pod is the MD5 hash of its configuration: 32 hex digits.
    """
    uid = text.lower().replace("_", "-")
    return uid if _UID.fullmatch(uid) else None
