"""The chart's switches, and the values with which the tests render it.

Every two options of different switches occur together in some combination, unless the chart refuses them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import yaml

from tests.bundle.chart import PRESETS, merged
from tests.bundle.pairwise import Options, pairwise

Values = Mapping[str, Any]

PROMETHEUS = "https://prometheus.example:9090"
RELABELING = {"sourceLabels": ["pod"], "targetLabel": "exporter_pod"}
DROPPING = {"sourceLabels": ["__name__"], "regex": "gputally_process_.*", "action": "drop"}
SCRAPE_EXTRAS = {
    "additionalLabels": {"release": "kps"},
    "relabelings": [RELABELING],
    "metricRelabelings": [DROPPING],
}
CONTAINER_SIZES = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": 2, "memory": "2Gi"}}
SCHEDULING = {
    "nodeSelector": {"pool": "monitoring"},
    "tolerations": [{"key": "pool", "operator": "Equal", "value": "monitoring"}],
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}
            ]
        }
    },
}
# The labels of extraObjects, which distinguish them from the objects of the chart.
EXTRA = {"example.org/extra": "true"}
OBSERVABILITY = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "observability"}}}
EPHEMERAL = {"persistence": {"enabled": False}}

# switch -> option -> values.
SWITCHES: Mapping[str, Mapping[str, Values]] = {
    "names": {
        "default": {},
        "name": {"nameOverride": "gpus"},
        "fullname": {"fullnameOverride": "node-gpus"},
    },
    "namespace": {"release": {}, "another": {"namespaceOverride": "gpu-metrics"}},
    "common": {
        "none": {},
        "labels": {"commonLabels": {"team": "ml-platform"}, "commonAnnotations": {"owner": "ml@example.org"}},
    },
    "cluster": {"none": {}, "west": {"cluster": "west-1"}},
    "images": {
        "default": {},
        "mirror": {
            "global": {"imageRegistry": "registry.example.org/mirror", "imagePullSecrets": ["pull"]},
            "image": {"digest": "sha256:" + "0a" * 32, "pullPolicy": "Always"},
        },
    },
    "exporter": {"on": {}, "off": {"exporter": {"enabled": False}}},
    "reader": {
        "auto": {},
        "simulated": {"exporter": {"reader": "simulated"}},
        "nvidia-smi": {
            "exporter": {"reader": "nvidia-smi", "interval": "10s", "livePage": False, "retention": "1h"}
        },
    },
    "extras": {
        "none": {},
        "all": {
            "exporter": {
                "metrics": "full",
                "metricsInclude": ["nvlink"],
                "metricsExclude": ["host", "sources"],
                "compat": ["dcgm", "opencost"],
                "processMetrics": True,
                "pcieThroughput": True,
                "logFormat": "json",
                "logLevel": "debug",
                "extraArgs": ["--hostname-override=a"],
                "extraEnv": [{"name": "TZ", "value": "UTC"}],
                "extraVolumes": [{"name": "more", "emptyDir": {}}],
                "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
                "podAnnotations": {"example.org/note": "a"},
                "podLabels": {"example.org/tier": "b"},
                "port": 9500,
                "maxUnavailable": 1,
                "revisionHistoryLimit": 0,
                "terminationGracePeriodSeconds": 0,
            }
        },
        "relay": {"exporter": {"relay": "http://$(NODE_IP):9400/metrics"}},
    },
    "nodes": {
        "with a GPU": {},
        "all": {"exporter": {"gpuNodesOnly": False, "tolerations": []}},
        "chosen": {
            "exporter": {
                **SCHEDULING,
                "runtimeClassName": "nvidia",
                "priorityClassName": "system-node-critical",
            }
        },
    },
    "hostPID": {"on": {}, "off": {"privileges": {"hostPID": False}}},
    "podLogs": {
        "links": {},
        "directories": {"privileges": {"podLogDirectories": True}},
        "off": {"privileges": {"podLogs": False}},
    },
    "podResources": {"on": {}, "off": {"privileges": {"podResources": False}}},
    "kubeletPods": {
        "off": {},
        "on": {"privileges": {"kubeletPods": True, "kubeletDirectory": "/var/lib/k0s/kubelet"}},
    },
    "accounting": {"off": {}, "on": {"privileges": {"accounting": True}}},
    "capabilities": {"none": {}, "some": {"privileges": {"capabilities": ["SYS_ADMIN", "SYS_PTRACE"]}}},
    "privileged": {"off": {}, "on": {"privileges": {"privileged": True}}},
    "groups": {
        "none": {},
        "set": {"privileges": {"supplementalGroups": [0], "seLinuxType": "container_logreader_t"}},
    },
    "driver": {
        "runtime": {},
        "gke": {"driver": {"hostPath": "/home/kubernetes/bin/nvidia"}},
        "operator": {
            "driver": {
                "hostPath": "/run/nvidia/driver",
                "libraryDirectories": [],
                "libraries": ["usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"],
                "programDirectories": ["usr/bin"],
            }
        },
    },
    "state": {
        "hostPath": {},
        "emptyDir": {"state": {"volume": "emptyDir"}},
        "none": {"state": {"volume": "none"}},
    },
    "kubernetes": {
        "off": {},
        "on": {"kubernetes": {"enabled": True}},
        "labels": {
            "kubernetes": {
                "enabled": True,
                "podLabels": ["app", "workflows.argoproj.io/*"],
                "podAnnotations": ["example.org/cost-center"],
                "nodeLabels": ["topology.kubernetes.io/zone"],
            }
        },
    },
    "account": {
        "created": {},
        "named": {"serviceAccount": {"name": "gpu-metrics", "annotations": {"a": "b"}}},
        "existing": {"serviceAccount": {"create": False, "name": "existing-account"}},
    },
    "rbac": {"on": {}, "off": {"rbac": {"create": False}}},
    "constraints": {"off": {}, "on": {"securityContextConstraints": {"enabled": True}}},
    "service": {
        "on": {},
        "node port": {"service": {"type": "NodePort", "port": 9401, "annotations": {"a": "b"}}},
        "off": {"service": {"enabled": False}},
    },
    "tls": {
        "off": {},
        "on": {"web": {"tls": {"enabled": True, "secret": "certificate", "serverName": "gpus.example"}}},
        "unchecked": {"web": {"tls": {"enabled": True, "secret": "certificate", "insecureSkipVerify": True}}},
    },
    "login": {
        "off": {},
        "on": {
            "web": {"basicAuth": {"enabled": True, "users": {"p": "$2y$10$" + "e" * 53}, "secret": "login"}}
        },
    },
    "networkPolicy": {
        "on": {},
        "off": {"networkPolicy": {"enabled": False}},
        "from one namespace": {
            "networkPolicy": {
                "scrapers": ["prometheus"],
                "scraperNamespaces": ["observability"],
                "prometheusClients": [OBSERVABILITY],
                "grafanaClients": [OBSERVABILITY],
                "grafanaEgress": [{"to": [OBSERVABILITY], "ports": [{"port": 443}]}],
                "apiServerPorts": [16443],
            }
        },
    },
    "scraping": {
        "none": {},
        "scrapeConfig": {"scrapeConfig": {"enabled": True, **SCRAPE_EXTRAS}},
        "serviceMonitor": {"serviceMonitor": {"enabled": True, **SCRAPE_EXTRAS}},
        "podMonitor": {"podMonitor": {"enabled": True, **SCRAPE_EXTRAS}},
    },
    "sidecarMonitor": {"off": {}, "on": {"podMonitor": {"sidecars": {"enabled": True}}}},
    "podsMonitor": {"off": {}, "on": {"podMonitor": {"pods": {"enabled": True, "path": "/gpu"}}}},
    "rules": {
        "off": {},
        "on": {"prometheusRule": {"enabled": True}},
        "tuned": {
            "prometheusRule": {"enabled": True, "additionalLabels": {"release": "kps"}},
            "rules": {
                "settings": {"memoryFullRatio": 0.98},
                "alerts": {"GPUTallyGpuLost": {"severity": "warning", "for": "10m"}},
            },
        },
    },
    "alertmanagerConfig": {
        "off": {},
        "on": {"alertmanagerConfig": {"enabled": True, "additionalLabels": {"release": "kps"}}},
    },
    "routing": {
        "none": {},
        "slack": {"routing": {"secret": "receivers", "default": "slack"}},
        "many": {
            "routing": {
                "secret": "receivers",
                "critical": "pagerduty",
                "default": "email",
                "namespaces": {"team-a-.*": "teams", "team-b": "webhook", "team-c": "opsgenie"},
                "email": {
                    "to": "gpu@example.org",
                    "from": "alerts@example.org",
                    "smarthost": "mail.example.org:587",
                    "username": "alerts",
                    "requireTls": False,
                },
                "maintenance": [{"weekdays": ["saturday", "sunday"]}],
                "grafanaUrl": "https://grafana.example.org",
            }
        },
    },
    "watchdog": {
        "off": {},
        "on": {"routing": {"secret": "receivers", "watchdog": {"enabled": True}}},
    },
    "dashboards": {"all": {}, "some": {"dashboards": {"include": ["fleet", "node"], "folder": "GPUs"}}},
    "configMaps": {
        "off": {},
        "on": {"dashboards": {"configMaps": {"enabled": True}}},
        "elsewhere": {
            "dashboards": {"configMaps": {"enabled": True, "namespace": "grafana", "folderAnnotation": ""}}
        },
    },
    "grafanaOperator": {
        "off": {},
        "on": {"dashboards": {"grafanaOperator": {"enabled": True}}},
        "own namespace": {
            "dashboards": {
                "grafanaOperator": {
                    "enabled": True,
                    "allowCrossNamespaceImport": False,
                    "matchLabels": {"team": "ml"},
                    "additionalLabels": {"team": "ml"},
                }
            }
        },
    },
    "openShiftConsole": {"off": {}, "on": {"dashboards": {"openShiftConsole": {"enabled": True}}}},
    "stack": {
        "off": {},
        "on": {"stack": {"enabled": True}},
        "prometheus only": {
            "stack": {
                "enabled": True,
                "prometheus": EPHEMERAL,
                "alertmanager": {"enabled": False},
                "grafana": {"enabled": False},
            }
        },
        "ephemeral": {
            "stack": {
                "enabled": True,
                "runAsImageUser": False,
                "prometheus": EPHEMERAL,
                "alertmanager": EPHEMERAL,
                "grafana": EPHEMERAL,
            }
        },
        "full": {
            "stack": {
                "enabled": True,
                "prometheus": {
                    "retention": "1y",
                    "retentionSize": "90GB",
                    "externalLabels": {"region": "west"},
                    "remoteWrite": [{"url": "https://mimir.example/api/v1/push"}],
                    "extraScrapeConfigs": [
                        {"job_name": "more", "static_configs": [{"targets": ["localhost:1"]}]}
                    ],
                    "extraArgs": ["--web.enable-lifecycle"],
                    "secrets": ["mimir"],
                    "alertmanagers": [{"static_configs": [{"targets": ["alerts.example.org:9093"]}]}],
                    "persistence": {"storageClass": "fast", "size": "1Ti", "whenDeleted": "Delete"},
                    "resources": CONTAINER_SIZES,
                    **SCHEDULING,
                },
                "alertmanager": {"persistence": {"storageClass": "fast"}, **SCHEDULING},
                "kubeStateMetrics": {"enabled": True, **SCHEDULING},
                "grafana": {
                    "admin": {"secret": "grafana-admin"},
                    "rootUrl": "https://grafana.example.org",
                    "extraEnv": [{"name": "GF_USERS_DEFAULT_THEME", "value": "light"}],
                    "ingress": {
                        "enabled": True,
                        "className": "nginx",
                        "host": "grafana.example.org",
                        "annotations": {"a": "b"},
                        "tlsSecret": "grafana-tls",
                    },
                    **SCHEDULING,
                },
            }
        },
    },
    "sidecar": {
        "off": {},
        "on": {"argoWorkflows": {"sidecar": {"enabled": True}}},
        "namespaces": {
            "argoWorkflows": {
                "sidecar": {
                    "enabled": True,
                    "reader": "nvidia-smi",
                    "namespaces": ["team-a", "team-b"],
                    "namespaceDefaults": True,
                }
            }
        },
    },
    "bill": {
        "off": {},
        "on": {"bill": {"enabled": True}, "prometheusUrl": PROMETHEUS},
        "teams": {
            "bill": {
                "enabled": True,
                "by": "team",
                "format": "focus",
                "currency": "EUR",
                "seal": False,
                "prometheusSecret": "prometheus-login",
                "webhookSecret": "bill-webhook",
                "persistence": {"enabled": False},
                "resources": CONTAINER_SIZES,
                **SCHEDULING,
            },
            "teams": {
                "vision": {"namespaces": ["vision", "vision-*"], "namespaceBudget": 500},
                "nlp": {"podLabels": {"team": "nlp"}},
            },
            "prometheusUrl": PROMETHEUS,
        },
    },
    "stressTest": {
        "off": {},
        "on": {"argoWorkflows": {"stressTest": {"enabled": True}}, "prometheusUrl": PROMETHEUS},
        "namespaces": {
            "argoWorkflows": {
                "stressTest": {"enabled": True, "namespaces": ["team-a"], "serviceAccountName": "workflow"}
            },
            "prometheusUrl": PROMETHEUS,
        },
    },
    "adapter": {
        "off": {},
        "on": {"autoscaling": {"prometheusAdapter": {"enabled": True}}},
        "elsewhere": {"autoscaling": {"prometheusAdapter": {"enabled": True, "namespace": "custom-metrics"}}},
    },
    "keda": {
        "off": {},
        "on": {
            "autoscaling": {
                "keda": {"enabled": True, "target": {"name": "inference", "namespace": "models"}}
            },
            "prometheusUrl": PROMETHEUS,
        },
    },
    "extraObjects": {
        "none": {},
        "some": {
            "extraObjects": [
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": "mine", "labels": EXTRA},
                    "data": {"a": "b"},
                },
                "apiVersion: v1\nkind: ConfigMap\n"
                f"metadata: {{name: '{{{{ .Release.Name }}}}-too', labels: {json.dumps(EXTRA)}}}\n",
            ]
        },
    },
}

# Options that the chart refuses together -> the key that its message begins with.
REFUSED: Mapping[Options, str] = {
    **{
        frozenset({("exporter", "off"), ("scraping", scraper)}): f"{scraper}.enabled"
        for scraper in ("scrapeConfig", "serviceMonitor", "podMonitor")
    },
    frozenset({("exporter", "off"), ("constraints", "on")}): "securityContextConstraints.enabled",
    frozenset({("scraping", "serviceMonitor"), ("service", "off")}): "serviceMonitor.enabled",
    frozenset({("accounting", "on"), ("reader", "simulated")}): "privileges.accounting",
    frozenset({("privileged", "on"), ("capabilities", "some")}): "privileges.capabilities",
    frozenset(
        {("login", "on"), ("service", "node port"), ("tls", "off")}
    ): "web.basicAuth.enabled with service.type NodePort",
    frozenset({("alertmanagerConfig", "on"), ("routing", "none")}): "alertmanagerConfig.enabled",
    **{
        frozenset({("routing", to), ("alertmanagerConfig", "off"), ("stack", stack)}): "routing"
        for to in ("slack", "many")
        for stack in ("off", "prometheus only")
    },
    **{
        frozenset({("watchdog", "on"), ("stack", stack)}): "routing.watchdog.enabled"
        for stack in ("off", "prometheus only")
    },
    **{
        frozenset(
            {("kubernetes", api), ("rbac", "off"), ("account", account)}
        ): "kubernetes.enabled without rbac.create"
        for api in ("on", "labels")
        for account in ("created", "named")
    },
}


@dataclass(frozen=True, slots=True)
class Case:
    """Values files and values to render the chart with."""

    values: Values
    files: Sequence[Path] = ()

    @property
    def arguments(self) -> dict[str, Any]:
        """For the functions of tests.bundle.chart."""
        return {"values": self.values, "files": self.files}

    @property
    def given(self) -> dict[str, Any]:
        """The values that differ from the chart's defaults."""
        return reduce(merged, (*(yaml.safe_load(file.read_text()) for file in self.files), self.values), {})

    @property
    def named(self) -> set[str]:
        """Every text in the values, among them the names of objects that the chart does not render."""
        return {*_texts(self.given)}


def _texts(tree: Any) -> Iterator[str]:
    if isinstance(tree, Mapping):
        tree = [*tree.values()]
    if isinstance(tree, list):
        for part in tree:
            yield from _texts(part)
    elif isinstance(tree, str):
        yield tree


def of_options(options: Mapping[str, str]) -> dict[str, Any]:
    """The values that set switches to options."""
    chosen = (SWITCHES[switch][options[switch]] for switch in SWITCHES if switch in options)
    return reduce(merged, chosen, {})


def _with_every_option(combinations: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """A few combinations that together contain every option."""
    waiting = {option for combination in combinations for option in combination.items()}
    chosen = []
    while waiting:
        best = max(combinations, key=lambda combination: len(waiting & combination.items()))
        chosen.append(best)
        waiting -= best.items()
    return chosen


def _cases(combinations: Sequence[dict[str, str]]) -> dict[str, Case]:
    return {
        f"combination {COMBINATIONS.index(combination) + 1}": Case(of_options(combination))
        for combination in combinations
    }


COMBINATIONS = pairwise({switch: [*options] for switch, options in SWITCHES.items()}, REFUSED)
_PLAIN = {
    "defaults": Case({}),
    # Without prometheusUrl, the stack's Prometheus is queried.
    "stack": Case(
        {
            "stack": {"enabled": True},
            "argoWorkflows": {"stressTest": {"enabled": True}},
            "autoscaling": {"keda": {"enabled": True, "target": {"name": "inference"}}},
        }
    ),
    **{f"preset {name}": Case({}, (file,)) for name, file in PRESETS.items()},
}
CASES = {**_PLAIN, **_cases(COMBINATIONS)}
# For tests that do not depend on pairs of options.
FEW_CASES = {**_PLAIN, **_cases(_with_every_option(COMBINATIONS))}
