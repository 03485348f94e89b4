"""The texts of notifications as Alertmanager templates, shared by all receivers."""

TITLE = (
    '[{{ .Status | toUpper }}{{ if eq .Status "firing" }}:{{ .Alerts.Firing | len }}{{ end }}] '
    "{{ with .CommonLabels.severity }}{{ . | toUpper }} {{ end }}"
    "{{ with .CommonLabels.alertname }}{{ . }}{{ else }}several GPU alerts{{ end }}"
    "{{ with .CommonLabels.namespace }} in namespace {{ . }}{{ end }}"
    "{{ with .CommonLabels.node }} on node {{ . }}{{ end }}"
    "{{ with .CommonLabels.cluster }} ({{ . }}){{ end }}"
)

PRIORITY = (
    '{{ if eq .CommonLabels.severity "critical" }}P1'
    '{{ else if eq .CommonLabels.severity "warning" }}P3{{ else }}P5{{ end }}'
)
"""For Opsgenie."""

SEVERITY = "{{ if .CommonLabels.severity }}{{ .CommonLabels.severity }}{{ else }}error{{ end }}"
"""For PagerDuty; `error` for a group with several severities."""


def text(grafana_url: str = "") -> str:
    """Each alert with its object, its annotations and its links."""
    dashboard = f"\nDashboard: {grafana_url}/d/gputally-node?var-node={{{{ . }}}}" if grafana_url else ""
    link = f"{{{{ with .Labels.node }}}}{dashboard}{{{{ end }}}}" if dashboard else ""
    return (
        "{{ range .Alerts }}"
        '{{ if eq .Status "resolved" }}RESOLVED {{ end }}'
        "{{ .Labels.alertname }}: {{ .Annotations.summary }}\n"
        "{{ with .Labels.node }}Node {{ . }} {{ end }}"
        "{{ with .Labels.gpu }}GPU {{ . }} {{ end }}"
        "{{ with .Labels.namespace }}Namespace {{ . }} {{ end }}"
        "{{ with .Labels.pod }}Pod {{ . }} {{ end }}"
        '{{ with .Labels.action }}{{ if ne . "none" }}Action {{ . }}{{ end }}{{ end }}\n'
        "{{ .Annotations.description }}\n"
        "Runbook: {{ .Annotations.runbook_url }}"
        f"{link}\n\n"
        "{{ end }}"
    )
