"""The plain files of rules, scraping and routing, and the manifests for the Prometheus operator."""

from collections.abc import Sequence

from alerts import messages, routing
from alerts.filling import defaults
from alerts.rules import rule_groups
from alerts.templating import render
from gputally import __version__

PLAIN = "alerts/plain"
MANIFESTS = "alerts/manifests"
_RESOURCES = ("prometheusrule.yaml", "scrapeconfig.yaml", "alertmanagerconfig.yaml")


def files() -> dict[str, str]:
    """Path in the repository -> text."""
    values = {"version": __version__, "groups": rule_groups(), **defaults()}
    templates = {
        f"{PLAIN}/gputally.rules.yml": "gputally.rules.yml.j2",
        f"{PLAIN}/scrape_configs.yml": "scrape_configs.yml.j2",
        f"{MANIFESTS}/prometheusrule.yaml": "prometheusrule.yaml.j2",
        f"{MANIFESTS}/scrapeconfig.yaml": "scrapeconfig.yaml.j2",
        f"{MANIFESTS}/kustomization.yaml": "kustomization.yaml.j2",
    }
    return {
        **{path: render(name, resources=_RESOURCES, **values) for path, name in templates.items()},
        f"{PLAIN}/alertmanager.yml": alertmanager(),
        f"{MANIFESTS}/alertmanagerconfig.yaml": alertmanager_config(),
    }


def alertmanager(teams: dict[str, str] | None = None) -> str:
    """Alertmanager's configuration file, with every kind of receiver."""
    return render("alertmanager.yml.j2", **_routing(teams))


def alertmanager_config(
    teams: dict[str, str] | None = None, receivers: Sequence[str] = ("slack", "pagerduty")
) -> str:
    """The operator's resource. Only used receivers: the operator rejects all of it if a secret is missing."""
    return render("alertmanagerconfig.yaml.j2", receivers=receivers, **_routing(teams))


def _routing(teams: dict[str, str] | None) -> dict[str, object]:
    return {
        "version": __version__,
        "ours": routing.OURS,
        "routes": routing.routes(teams),
        "watchdog": routing.WATCHDOG,
        "inhibitions": routing.INHIBITIONS,
        "title": messages.TITLE,
        "text": messages.text(),
        "priority": messages.PRIORITY,
        "severity": messages.SEVERITY,
    }
