"""Schemas that several values share: `#/$defs/NAME` in an @schema line.

Alternatives are lists in `type`, never anyOf: Helm then reports a mistake in one line, with the path.
"""

from typing import Any

Schema = dict[str, Any]

_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED_NAME = r"([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_POSITIVE = r"([1-9][0-9]*(\.[0-9]+)?|0\.[0-9]*[1-9][0-9]*)"

TEXT: Schema = {"type": "string"}
SWITCH: Schema = {"type": "boolean"}
CLOCK: Schema = {"type": "string", "pattern": "^[0-9]{2}:[0-9]{2}$"}
LABEL_VALUE: Schema = {
    "type": "string",
    "pattern": "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$",
    "maxLength": 63,
}


def one_of(*words: str) -> Schema:
    return {"enum": list(words)}


def whole_number(minimum: int, maximum: int | None = None) -> Schema:
    return {"type": "integer", "minimum": minimum} | ({} if maximum is None else {"maximum": maximum})


def a_list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def a_map(keys: str, values: Schema) -> Schema:
    """A map whose keys the user chooses; they match the pattern."""
    return {"type": "object", "patternProperties": {f"^{keys}$": values}, "additionalProperties": False}


def strict(properties: dict[str, Schema], required: tuple[str, ...] = ()) -> Schema:
    """A map with exactly these keys; any other key is an error."""
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema | ({"required": list(required)} if required else {})


def ref(name: str) -> Schema:
    return {"$ref": f"#/definitions/{name}"}


_FREE: Schema = {"type": "object"}
_KEY_OF_OBJECT = strict({"name": TEXT, "key": TEXT, "optional": SWITCH}, ("key",))

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_WEIGHT = whole_number(1, 100)


def _expressions(*operators: str) -> Schema:
    return a_list(
        strict(
            {"key": TEXT, "operator": one_of(*operators), "values": a_list(TEXT)},
            ("key", "operator"),
        )
    )


_NODE_EXPRESSIONS = _expressions("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_NODE_TERM = strict({"matchExpressions": _NODE_EXPRESSIONS, "matchFields": _NODE_EXPRESSIONS})
_POD_TERM = strict(
    {
        "labelSelector": ref("labelSelector"),
        "matchLabelKeys": a_list(TEXT),
        "mismatchLabelKeys": a_list(TEXT),
        "namespaces": a_list(TEXT),
        "namespaceSelector": ref("labelSelector"),
        "topologyKey": TEXT,
    },
    ("topologyKey",),
)
_POD_AFFINITY = strict(
    {
        _REQUIRED: a_list(ref("podAffinityTerm")),
        _PREFERRED: a_list(
            strict(
                {"weight": _WEIGHT, "podAffinityTerm": ref("podAffinityTerm")}, ("weight", "podAffinityTerm")
            )
        ),
    }
)
_NODE_AFFINITY = strict(
    {
        _REQUIRED: strict({"nodeSelectorTerms": a_list(_NODE_TERM)}, ("nodeSelectorTerms",)),
        _PREFERRED: a_list(strict({"weight": _WEIGHT, "preference": _NODE_TERM}, ("weight", "preference"))),
    }
)
_VOLUME_SOURCES = (
    "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "configMap", "csi", "downwardAPI",
    "emptyDir", "ephemeral", "fc", "flexVolume", "flocker", "gcePersistentDisk", "gitRepo", "glusterfs",
    "hostPath", "image", "iscsi", "nfs", "persistentVolumeClaim", "photonPersistentDisk", "portworxVolume",
    "projected", "quobyte", "rbd", "scaleIO", "secret", "storageos", "vsphereVolume",
)  # fmt: skip
_RELABEL_ACTIONS = (
    "Replace", "Keep", "Drop", "KeepEqual", "DropEqual", "HashMod", "LabelMap", "LabelDrop", "LabelKeep",
    "Lowercase", "Uppercase",
)  # fmt: skip

DEFINITIONS: dict[str, Schema] = {
    # Names and text
    "name": {"type": "string", "pattern": f"^({_DNS_LABEL})?$", "maxLength": 63},
    "objectName": {"type": "string", "pattern": rf"^({_DNS_LABEL}(\.{_DNS_LABEL})*)?$", "maxLength": 253},
    "labelValue": LABEL_VALUE,
    "labels": a_map(_QUALIFIED_NAME, LABEL_VALUE),
    "annotations": a_map(_QUALIFIED_NAME, TEXT),
    "teams": a_map(
        ".+",
        strict(
            {
                "namespaces": a_list({"type": "string", "pattern": "^[a-z0-9*?-]+$"}),
                "podLabels": a_map(_QUALIFIED_NAME, LABEL_VALUE),
                "receiver": one_of("slack", "pagerduty", "opsgenie", "email", "teams", "webhook"),
                "namespaceBudget": {"type": "number", "minimum": 0},
            }
        ),
    ),
    "seriesLabels": a_map("[A-Za-z_][A-Za-z0-9_]*", TEXT),
    "absolutePath": {"type": "string", "pattern": "^(/.*)?$"},
    # Numbers with units
    "duration": {"type": "string", "pattern": "^([0-9]+(ms|s|m|h|d|w|y))+$"},
    "samplingTime": {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(ms|s|m|h)$"},
    "quantity": {
        "type": ["string", "number"],
        "minimum": 0,
        "pattern": r"^[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i|[eE][0-9]+)?$",
    },
    "size": {"type": "string", "pattern": f"^{_POSITIVE}([kMGTPE]|[KMGTPE]i)$"},
    "port": whole_number(1, 65535),
    "intOrPercent": {"type": ["integer", "string"], "minimum": 1, "pattern": "^([1-9][0-9]?|100)%$"},
    # Parts of a pod
    "env": a_list(
        strict(
            {
                "name": {"type": "string", "pattern": "^[^=]+$"},
                "value": TEXT,
                "valueFrom": strict(
                    {
                        "configMapKeyRef": _KEY_OF_OBJECT,
                        "fieldRef": strict({"apiVersion": TEXT, "fieldPath": TEXT}, ("fieldPath",)),
                        "fileKeyRef": _FREE,
                        "resourceFieldRef": strict(
                            {"containerName": TEXT, "divisor": ref("quantity"), "resource": TEXT},
                            ("resource",),
                        ),
                        "secretKeyRef": _KEY_OF_OBJECT,
                    }
                ),
            },
            ("name",),
        )
    ),
    "volumes": a_list(strict({"name": TEXT} | dict.fromkeys(_VOLUME_SOURCES, _FREE), ("name",))),
    "volumeMounts": a_list(
        strict(
            {
                "name": TEXT,
                "mountPath": {"type": "string", "minLength": 1},
                "mountPropagation": one_of("None", "HostToContainer", "Bidirectional"),
                "readOnly": SWITCH,
                "recursiveReadOnly": one_of("Disabled", "IfPossible", "Enabled"),
                "subPath": TEXT,
                "subPathExpr": TEXT,
            },
            ("name", "mountPath"),
        )
    ),
    # Extended resources have a / in their names, so a misspelt `memroy` is refused.
    "resourceList": a_map("(cpu|memory|ephemeral-storage|hugepages-.+|.+/.+)", ref("quantity")),
    "resources": strict(
        {
            "limits": ref("resourceList"),
            "requests": ref("resourceList"),
            "claims": a_list(strict({"name": TEXT, "request": TEXT}, ("name",))),
        }
    ),
    "tolerations": a_list(
        strict(
            {
                "key": TEXT,
                "operator": one_of("Exists", "Equal", "Lt", "Gt"),
                "value": TEXT,
                "effect": one_of("", "NoSchedule", "PreferNoSchedule", "NoExecute"),
                "tolerationSeconds": {"type": "integer"},
            }
        )
    ),
    "labelSelector": strict(
        {
            "matchLabels": ref("labels"),
            "matchExpressions": _expressions("In", "NotIn", "Exists", "DoesNotExist"),
        }
    ),
    "podAffinityTerm": _POD_TERM,
    "affinity": strict(
        {"nodeAffinity": _NODE_AFFINITY, "podAffinity": _POD_AFFINITY, "podAntiAffinity": _POD_AFFINITY}
    ),
    # Parts of other objects
    "networkPolicyPeers": a_list(
        strict(
            {
                "ipBlock": strict({"cidr": TEXT, "except": a_list(TEXT)}, ("cidr",)),
                "namespaceSelector": ref("labelSelector"),
                "podSelector": ref("labelSelector"),
            }
        )
    ),
    "timeIntervals": a_list(
        strict(
            {
                "times": a_list(
                    strict({"start_time": CLOCK, "end_time": CLOCK}, ("start_time", "end_time")),
                ),
                "weekdays": a_list(TEXT),
                "days_of_month": a_list(TEXT),
                "months": a_list(TEXT),
                "years": a_list(TEXT),
                "location": TEXT,
            }
        )
        | {"minProperties": 1}
    ),
    "routingTiming": strict(
        dict.fromkeys(
            ("critical", "warning", "info", "team"),
            strict(dict.fromkeys(("groupWait", "groupInterval", "repeatInterval"), ref("duration"))),
        )
    ),
    "relabelings": a_list(
        strict(
            {
                "action": one_of(*(word.lower() for word in _RELABEL_ACTIONS), *_RELABEL_ACTIONS),
                "modulus": whole_number(1),
                "regex": TEXT,
                "replacement": TEXT,
                "separator": TEXT,
                "sourceLabels": a_list(TEXT),
                "targetLabel": TEXT,
            }
        )
    ),
}
