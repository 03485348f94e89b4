"""Objects and configuration files of the stack: Prometheus, Alertmanager and Grafana."""

import configparser
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.groups import ALERTS
from tests.bundle import chart
from tests.bundle.chart import Object
from tools.dependencies import programs

COMPONENTS = ("prometheus", "alertmanager", "grafana")
NAME = "app.kubernetes.io/name"
INSTANCE = "app.kubernetes.io/instance"
COMPONENT = "app.kubernetes.io/component"
WRITER: Object = {
    "url": "https://mimir.example.com/api/v1/push",
    "basic_auth": {"username": "gpus", "password_file": "/etc/prometheus/secrets/mimir/password"},
    "queue_config": {"max_samples_per_send": 2_000_000},
}


def on(**values: Any) -> dict[str, Any]:
    """Values with the stack enabled."""
    return {"stack": {"enabled": True, **values}}


def of(component: str, kind: str, values: dict[str, Any]) -> Object:
    (found,) = (
        made for made in chart.objects(kind, values) if made["metadata"]["name"] == f"gputally-{component}"
    )
    return found


def pod(component: str, values: dict[str, Any]) -> Object:
    spec: Object = of(component, "StatefulSet", values)["spec"]["template"]["spec"]
    return spec


def prometheus(values: dict[str, Any]) -> Object:
    """The content of prometheus.yml."""
    config: Object = yaml.safe_load(of("prometheus", "ConfigMap", values)["data"]["prometheus.yml"])
    return config


def job(name: str, values: dict[str, Any]) -> Object:
    (found,) = (job for job in prometheus(values)["scrape_configs"] if job["job_name"] == name)
    return dict(found)


def grafana(values: dict[str, Any]) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(of("grafana", "ConfigMap", values)["data"]["grafana.ini"])
    return parser


def volume(name: str, spec: Object) -> Object:
    (found,) = (volume for volume in spec["volumes"] if volume["name"] == name)
    return dict(found)


def clients(component: str, values: dict[str, Any]) -> list[Object]:
    """The peers that its NetworkPolicy admits."""
    (rule,) = of(component, "NetworkPolicy", values)["spec"]["ingress"]
    assert rule["ports"] == [{"port": "http"}]
    return list(rule.get("from", []))


def ours(*components: str) -> list[Object]:
    return [
        {"podSelector": {"matchLabels": {NAME: "gputally", INSTANCE: "gputally", COMPONENT: component}}}
        for component in components
    ]


def test_the_stack_is_disabled_by_default() -> None:
    assert {made["metadata"]["labels"][COMPONENT] for made in chart.render()}.isdisjoint(COMPONENTS)


def test_alertmanager_and_grafana_can_be_disabled() -> None:
    made = chart.render(on(alertmanager={"enabled": False}, grafana={"enabled": False}))
    components = {each["metadata"]["labels"][COMPONENT] for each in made}
    assert components & {*COMPONENTS, "dashboards"} == {"prometheus"}
    config = prometheus(on(alertmanager={"enabled": False}, grafana={"enabled": False}))
    assert "alerting" not in config
    assert [job["job_name"] for job in config["scrape_configs"]] == ["gputally", "prometheus"]


def test_only_prometheus_has_a_token_and_may_list_pods_of_its_namespace() -> None:
    tokens = {name: pod(name, on())["automountServiceAccountToken"] for name in COMPONENTS}
    assert tokens == {"prometheus": True, "alertmanager": False, "grafana": False}
    role = of("prometheus", "Role", on())
    assert role["metadata"]["namespace"] == "monitoring"
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
    bound = of("prometheus", "RoleBinding", on())["subjects"]
    assert bound == [{"kind": "ServiceAccount", "name": "gputally-prometheus", "namespace": "monitoring"}]


def test_the_labels_of_the_exporter_are_honoured() -> None:
    assert job("gputally", on())["honor_labels"] is True


def test_sidecars_of_workflows_are_discovered_in_their_namespaces() -> None:
    values = {**on(), "argoWorkflows": {"sidecar": {"enabled": True, "namespaces": ["ml"]}}}
    roles = [
        made for made in chart.objects("Role", values) if made["metadata"]["name"].endswith("prometheus")
    ]
    assert {role["metadata"]["namespace"] for role in roles} == {"monitoring", "ml"}
    found = job("gputally-sidecars", values)
    (discovery,) = found["kubernetes_sd_configs"]
    assert discovery["namespaces"] == {"names": ["monitoring", "ml"]}
    assert discovery["selectors"] == [{"role": "pod", "label": "gputally.io/sidecar=true"}]
    assert not found.get("honor_labels")


def test_changed_rules_reach_prometheus_without_a_restart_and_changed_routes_restart_alertmanager() -> None:
    rules = {**on(), "rules": {"settings": {"leakHorizonHours": 7}}}
    routes = {**on(), "routing": {"default": "slack", "secret": "s", "slack": {"channel": "#gpus"}}}
    assert of("prometheus", "ConfigMap", rules) != of("prometheus", "ConfigMap", on())
    for name in COMPONENTS:
        assert of(name, "StatefulSet", rules) == of(name, "StatefulSet", on())
    annotations = [
        of("alertmanager", "StatefulSet", values)["spec"]["template"]["metadata"]["annotations"]
        for values in (on(), routes)
    ]
    assert annotations[0] != annotations[1]


def test_changed_settings_restart_grafana() -> None:
    renamed = {**on(), "dashboards": {"folder": "GPUs"}}
    assert of("grafana", "StatefulSet", renamed) != of("grafana", "StatefulSet", on())


def test_a_new_chart_version_alone_replaces_no_pod() -> None:
    for name in COMPONENTS:
        labels = of(name, "StatefulSet", on())["spec"]["template"]["metadata"]["labels"]
        assert not {"helm.sh/chart", "app.kubernetes.io/version"} & labels.keys()


@pytest.mark.parametrize(
    ("size", "kept"),
    [("50Gi", "40960MB"), ("1Ti", "838860MB"), ("100G", "76293MB"), ("500Mi", "400MB"), ("1.5Gi", "1228MB")],
)
def test_data_never_fills_the_volume(size: str, kept: str) -> None:
    values = on(prometheus={"persistence": {"size": size}})
    assert prometheus(values)["storage"]["tsdb"]["retention"] == {"time": "180d", "size": kept}


def test_retention_time_and_size_are_values() -> None:
    values = on(prometheus={"retention": "30d", "retentionSize": "9GB", "persistence": {"size": "10Gi"}})
    assert prometheus(values)["storage"]["tsdb"]["retention"] == {"time": "30d", "size": "9GB"}


def test_without_persistence_data_is_in_the_pod_and_limited_by_time_only() -> None:
    off = {"persistence": {"enabled": False}}
    values = on(prometheus=off, alertmanager=off, grafana=off)
    for name in COMPONENTS:
        assert volume("data", pod(name, values)) == {"name": "data", "emptyDir": {}}
        assert "volumeClaimTemplates" not in of(name, "StatefulSet", values)["spec"]
    assert prometheus(values)["storage"]["tsdb"]["retention"] == {"time": "180d"}


@pytest.mark.parametrize("name", COMPONENTS)
def test_storage_class_size_and_deletion_of_a_volume_are_values(name: str) -> None:
    kept = {"storageClass": "fast", "size": "7Gi", "whenDeleted": "Delete"}
    spec = of(name, "StatefulSet", on(**{name: {"persistence": kept}}))["spec"]
    (claim,) = spec["volumeClaimTemplates"]
    assert claim["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": "7Gi"}},
    }
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Delete", "whenScaled": "Retain"}
    assert "persistentVolumeClaimRetentionPolicy" not in of(name, "StatefulSet", on())["spec"]


@pytest.mark.parametrize("name", COMPONENTS)
def test_image_scheduling_and_resources_are_values(name: str) -> None:
    digest = f"sha256:{'a' * 64}"
    part = {
        "image": {"registry": "own.example.com", "digest": digest, "pullPolicy": "Always"},
        "nodeSelector": {"pool": "monitoring"},
        "tolerations": [{"key": "monitoring", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "resources": {"limits": {"memory": "123Mi"}},
    }
    spec = pod(name, {**on(**{name: part}), "global": {"imagePullSecrets": ["login"]}})
    for container in (*spec.get("initContainers", []), *spec["containers"]):
        assert container["image"].startswith("own.example.com/")
        assert container["image"].endswith(f"@{digest}")
        assert container["imagePullPolicy"] == "Always"
    assert spec["containers"][0]["resources"]["limits"] == {"memory": "123Mi"}
    assert {key: spec[key] for key in ("nodeSelector", "tolerations", "affinity")} == {
        key: part[key] for key in ("nodeSelector", "tolerations", "affinity")
    }
    assert spec["imagePullSecrets"] == [{"name": "login"}]


def test_user_ids_can_be_left_to_the_cluster() -> None:
    users = {"runAsUser", "runAsGroup", "fsGroup"}
    for name in COMPONENTS:
        assert users <= pod(name, on())["securityContext"].keys()
        assert not users & pod(name, on(runAsImageUser=False))["securityContext"].keys()


def test_remote_write_has_secrets_as_files_and_external_labels() -> None:
    part = {"remoteWrite": [WRITER], "secrets": ["mimir"], "externalLabels": {"region": "north"}}
    values = {**on(prometheus=part), "cluster": "lab"}
    config = prometheus(values)
    assert config["remote_write"] == [WRITER]
    assert config["global"]["external_labels"] == {"cluster": "lab", "region": "north"}
    spec = pod("prometheus", values)
    assert {mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]} >= {
        "/etc/prometheus/secrets/mimir"
    }
    assert volume("secret-0", spec)["secret"]["secretName"] == "mimir"


def test_tls_and_login_of_the_exporter_are_files_without_its_private_key() -> None:
    users = {"prometheus": "$2y$10$" + "e" * 53}
    web = {
        "tls": {"enabled": True, "secret": "certificate", "serverName": "gpus"},
        "basicAuth": {"enabled": True, "users": users, "secret": "login"},
    }
    values = {**on(), "web": web}
    found = job("gputally", values)
    assert found["scheme"] == "https"
    assert found["tls_config"] == {"server_name": "gpus", "ca_file": "/etc/prometheus/exporter/ca.crt"}
    assert found["basic_auth"] == {
        "username_file": "/etc/prometheus/exporter/username",
        "password_file": "/etc/prometheus/exporter/password",
    }
    sources = volume("exporter", pod("prometheus", values))["projected"]["sources"]
    given = {
        source["secret"]["name"]: [item["path"] for item in source["secret"]["items"]] for source in sources
    }
    assert given == {"certificate": ["ca.crt"], "login": ["username", "password"]}


def test_an_unverified_certificate_needs_no_file() -> None:
    values = {**on(), "web": {"tls": {"enabled": True, "secret": "s", "insecureSkipVerify": True}}}
    assert "ca_file" not in job("gputally", values)["tls_config"]
    assert [each["name"] for each in pod("prometheus", values)["volumes"]] == ["config"]


def test_additional_jobs_alertmanagers_and_flags_are_values() -> None:
    more: Object = {
        "extraScrapeConfigs": [{"job_name": "dcgm", "static_configs": [{"targets": ["dcgm:9400"]}]}],
        "alertmanagers": [{"scheme": "https", "static_configs": [{"targets": ["central:9093"]}]}],
        "extraArgs": ["--query.timeout=30s"],
    }
    values = on(prometheus=more)
    assert prometheus(values)["scrape_configs"][-1] == more["extraScrapeConfigs"][0]
    assert prometheus(values)["alerting"]["alertmanagers"][1:] == more["alertmanagers"]
    assert pod("prometheus", values)["containers"][0]["args"][-1] == "--query.timeout=30s"


def test_network_policies_admit_the_stacks_own_clients() -> None:
    assert clients("prometheus", on()) == ours("grafana", "verify")
    assert clients("alertmanager", on()) == ours("prometheus", "grafana", "verify")
    assert clients("grafana", on()) == []


def test_additional_clients_are_values() -> None:
    peer = {"namespaceSelector": {"matchLabels": {"team": "platform"}}}
    values = {**on(), "networkPolicy": {"prometheusClients": [peer], "grafanaClients": [peer]}}
    assert clients("prometheus", values) == [*ours("grafana", "verify"), peer]
    assert clients("grafana", values) == [*ours("prometheus", "verify"), peer]


def test_autoscalers_may_query_prometheus() -> None:
    scaled = {
        "prometheusAdapter": {"enabled": True},
        "keda": {"enabled": True, "target": {"name": "server"}},
    }
    (peer,) = clients("prometheus", {**on(), "autoscaling": scaled})[2:]
    assert peer["podSelector"]["matchExpressions"][0]["values"] == ["keda-operator", "prometheus-adapter"]


def test_grafana_may_reach_its_data_sources_only() -> None:
    more = {"ports": [{"port": 636}]}
    values = {**on(), "networkPolicy": {"grafanaEgress": [more]}}
    egress = of("grafana", "NetworkPolicy", values)["spec"]["egress"]
    assert egress[:2] == [
        {"ports": [{"port": 9090}], "to": ours("prometheus")},
        {"ports": [{"port": 9093}], "to": ours("alertmanager")},
    ]
    assert {port["port"] for port in egress[2]["ports"]} == {53, 5353}
    assert egress[3:] == [more]


def test_alertmanager_has_egress_only_with_a_receiver() -> None:
    told = {**on(), "routing": {"default": "slack", "secret": "s", "slack": {"channel": "#gpus"}}}
    policies = [of("alertmanager", "NetworkPolicy", values)["spec"] for values in (on(), told)]
    assert [policy.get("egress", []) for policy in policies] == [[], [{}]]
    assert policies[0]["policyTypes"] == ["Ingress", "Egress"]


def test_the_secrets_of_receivers_are_files() -> None:
    values = {**on(), "routing": {"default": "slack", "secret": "keys", "slack": {"channel": "#gpus"}}}
    spec = pod("alertmanager", values)
    assert volume("secrets", spec)["secret"]["secretName"] == "keys"
    config = yaml.safe_load(of("alertmanager", "ConfigMap", values)["data"]["alertmanager.yml"])
    (slack,) = (found for found in config["receivers"] if found["name"] == "slack")
    (mount,) = (found for found in spec["containers"][0]["volumeMounts"] if found["name"] == "secrets")
    assert slack["slack_configs"][0]["api_url_file"] == f"{mount['mountPath']}/slack-url"


def test_a_password_in_a_secret_is_a_file_and_none_is_generated() -> None:
    admin = {"secret": "login", "userKey": "name", "passwordKey": "word"}
    values = on(grafana={"admin": admin})
    assert grafana(values)["security"]["admin_user"] == "$__file{/etc/grafana/admin/user}"
    assert grafana(values)["security"]["admin_password"] == "$__file{/etc/grafana/admin/password}"
    spec = pod("grafana", values)
    assert volume("admin", spec)["secret"]["items"] == [
        {"key": "name", "path": "user"},
        {"key": "word", "path": "password"},
    ]
    assert "admin-password" not in json.dumps(spec)


def test_grafana_connects_to_no_external_service() -> None:
    settings = grafana(on())
    off = [
        *(("analytics", key) for key in ("enabled", "reporting_enabled", "check_for_updates")),
        *(("analytics", key) for key in ("check_for_plugin_updates", "feedback_links_enabled")),
        ("news", "news_feed_enabled"),
        ("snapshots", "external_enabled"),
        ("plugins", "plugin_admin_enabled"),
        ("plugins", "preinstall_auto_update"),
    ]
    assert {settings[section][key] for section, key in off} == {"false"}
    assert settings["plugins"]["preinstall_disabled"] == "true"
    assert settings["plugins"]["public_key_retrieval_disabled"] == "true"


def test_an_ingress_sets_grafanas_root_url() -> None:
    ingress = {
        "enabled": True,
        "host": "gpu.example.com",
        "className": "nginx",
        "tlsSecret": "certificate",
        "annotations": {"issuer": "acme"},
    }
    values = on(grafana={"ingress": ingress})
    made = of("grafana", "Ingress", values)
    assert made["metadata"]["annotations"] == {"issuer": "acme"}
    assert made["spec"]["ingressClassName"] == "nginx"
    assert made["spec"]["tls"] == [{"hosts": ["gpu.example.com"], "secretName": "certificate"}]
    (rule,) = made["spec"]["rules"]
    assert rule["host"] == "gpu.example.com"
    (path,) = rule["http"]["paths"]
    assert (path["path"], path["backend"]["service"]["name"]) == ("/", "gputally-grafana")
    assert grafana(values)["server"]["root_url"] == "https://gpu.example.com/"
    assert grafana(values)["security"]["cookie_secure"] == "true"


def test_grafana_can_be_served_below_a_path() -> None:
    """Its metrics are then below that path only."""
    address = {"rootUrl": "https://example.com/gpus/", "ingress": {"enabled": True, "host": "example.com"}}
    values = on(grafana=address)
    assert dict(grafana(values)["server"]) == {
        "root_url": "https://example.com/gpus/",
        "serve_from_sub_path": "true",
    }
    (rule,) = of("grafana", "Ingress", values)["spec"]["rules"]
    assert rule["http"]["paths"][0]["path"] == "/gpus"
    container = pod("grafana", values)["containers"][0]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] == "/gpus/api/health"
    assert job("grafana", values)["metrics_path"] == "/gpus/metrics"


def test_grafana_mounts_the_selected_dashboards_and_opens_the_fleet_dashboard() -> None:
    values = {**on(), "dashboards": {"include": ["node", "idle"]}}
    sources = volume("dashboards", pod("grafana", values))["projected"]["sources"]
    assert [source["configMap"]["name"] for source in sources] == [
        "gputally-dashboard-idle",
        "gputally-dashboard-node",
    ]
    assert "default_home_dashboard_path" not in grafana(values)["dashboards"]
    assert grafana(on())["dashboards"]["default_home_dashboard_path"].endswith("/fleet.json")


WEB = {
    "tls": {"enabled": True, "secret": "s"},
    "basicAuth": {"enabled": True, "users": {"a": "$2y$10$" + "e" * 53}, "secret": "s"},
}
CONFIGURATIONS = {
    "default": on(),
    "everything": {
        **on(
            prometheus={
                "remoteWrite": [WRITER],
                "externalLabels": {"a": "b"},
                "alertmanagers": [{"static_configs": [{"targets": ["central:9093"]}]}],
                "extraScrapeConfigs": [{"job_name": "more"}],
            }
        ),
        "cluster": "1",
        "web": WEB,
        "argoWorkflows": {"sidecar": {"enabled": True, "namespaces": ["ml"]}},
        "rules": {"alerts": {alert.name: {"enabled": True} for alert in ALERTS}},
    },
    "minimal": {
        **on(alertmanager={"enabled": False}, grafana={"enabled": False}),
        "exporter": {"enabled": False},
    },
}


@pytest.mark.parametrize("values", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_the_files_of_prometheus_are_valid(values: dict[str, Any], tmp_path: Path) -> None:
    data = of("prometheus", "ConfigMap", values)["data"]
    for name, text in data.items():
        (tmp_path / name).write_text(text)
    checked = subprocess.run(
        [programs.path("promtool"), "check", "config", "--syntax-only", tmp_path / "prometheus.yml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    checked = subprocess.run(
        [programs.path("promtool"), "check", "rules", tmp_path / "gputally.rules.yml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("receiver", ["", "slack", "pagerduty", "opsgenie", "email", "teams", "webhook"])
def test_the_file_of_alertmanager_is_valid(receiver: str, tmp_path: Path) -> None:
    email = {
        "to": "a@example.com",
        "from": "b@example.com",
        "smarthost": "mail.example.com:587",
        "username": "b",
    }
    routing = {"default": receiver, "secret": "keys", "email": email} if receiver else {}
    file = tmp_path / "alertmanager.yml"
    file.write_text(of("alertmanager", "ConfigMap", {**on(), "routing": routing})["data"]["alertmanager.yml"])
    checked = subprocess.run(
        [programs.path("amtool"), "check-config", file], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "an ingress without Grafana": (
        on(grafana={"enabled": False, "ingress": {"enabled": True, "host": "a"}}),
        "stack.grafana.ingress.enabled",
    ),
    "an ingress without a stack": (
        {"stack": {"grafana": {"ingress": {"enabled": True, "host": "a"}}}},
        "stack.grafana.ingress.enabled",
    ),
    "an ingress without a host": (on(grafana={"ingress": {"enabled": True}}), "stack.grafana.ingress.host"),
    "remote write without a stack": (
        {"stack": {"prometheus": {"remoteWrite": [WRITER]}}},
        "stack.prometheus.remoteWrite",
    ),
    "a password in a ConfigMap": (
        on(prometheus={"remoteWrite": [{"url": "http://a", "basic_auth": {"password": "secret"}}]}),
        "basic_auth.password_file",
    ),
    "a token in a ConfigMap": (
        on(prometheus={"remoteWrite": [{"url": "http://a", "authorization": {"credentials": "secret"}}]}),
        "authorization.credentials_file",
    ),
    "retention larger than the volume": (
        on(prometheus={"retentionSize": "60GB", "persistence": {"size": "50Gi"}}),
        "stack.prometheus.retentionSize",
    ),
    "the cluster in the external labels": (
        on(prometheus={"externalLabels": {"cluster": "a"}}),
        "stack.prometheus.externalLabels.cluster",
    ),
    "a job that exists already": (
        on(prometheus={"extraScrapeConfigs": [{"job_name": "grafana"}]}),
        'job "grafana"',
    ),
    "a duplicate job": (
        on(prometheus={"extraScrapeConfigs": [{"job_name": "a"}, {"job_name": "a"}]}),
        'job "a"',
    ),
    "a job of the stack": ({**on(), "rules": {"settings": {"job": "grafana"}}}, "rules.settings.job"),
    "a flag of the chart": (on(prometheus={"extraArgs": ["--config.file=/a"]}), "--config.file"),
    "retention as a flag": (
        on(prometheus={"extraArgs": ["--storage.tsdb.retention.time=1d"]}),
        "stack.prometheus.retentionSize",
    ),
    "a timeout that is too long": (
        {"rules": {"settings": {"scrapeInterval": "5s"}}},
        "rules.settings.scrapeTimeout",
    ),
}


@pytest.mark.parametrize(("values", "named"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_refused_in_one_line(values: dict[str, Any], named: str) -> None:
    assert named in chart.refusal(values)


@pytest.mark.parametrize(("interval", "timeout"), [("1m", "60s"), ("1m30s", "1m"), ("1h", "59m59s")])
def test_a_timeout_may_be_as_long_as_the_interval(interval: str, timeout: str) -> None:
    assert chart.render({"rules": {"settings": {"scrapeInterval": interval, "scrapeTimeout": timeout}}})
