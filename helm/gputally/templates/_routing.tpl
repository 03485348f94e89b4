{{/*
Who hears of which alert. Made by tools/render from alerts/: change it there.
The chart has the routes, inhibitions and messages of alerts/plain/alertmanager.yml, and of its receivers those
that .Values.routing names.
*/}}

{{/* The receivers that are named, as a list in JSON; `nobody` is one of them. */}}
{{- define "gputally.routing.receivers" -}}
{{- with .Values.routing -}}
{{- $named := concat (list .default .critical) (values (.namespaces | default dict)) | compact | uniq | sortAlpha -}}
{{- concat (list "nobody") $named | toJson -}}
{{- end -}}
{{- end -}}

{{/* The first line of a message. Alertmanager fills it in, and what follows. */}}
{{- define "gputally.routing.title" -}}
{{ `[{{ .Status | toUpper }}{{ if eq .Status "firing" }}:{{ .Alerts.Firing | len }}{{ end }}] {{ with .CommonLabels.severity }}{{ . | toUpper }} {{ end }}{{ with .CommonLabels.alertname }}{{ . }}{{ else }}several GPU alerts{{ end }}{{ with .CommonLabels.namespace }} in namespace {{ . }}{{ end }}{{ with .CommonLabels.node }} on node {{ . }}{{ end }}{{ with .CommonLabels.cluster }} ({{ . }}){{ end }}` }}
{{- end -}}

{{/* What a message says of its alerts, with a link to a dashboard where Grafana's address is known. */}}
{{- define "gputally.routing.text" -}}
{{- with .Values.routing.grafanaUrl | default (include "gputally.stack.grafanaRoot" .) | trimSuffix "/" -}}
{{ `{{ range .Alerts }}{{ if eq .Status "resolved" }}RESOLVED {{ end }}{{ .Labels.alertname }}: {{ .Annotations.summary }}
{{ with .Labels.node }}Node {{ . }} {{ end }}{{ with .Labels.gpu }}GPU {{ . }} {{ end }}{{ with .Labels.namespace }}Namespace {{ . }} {{ end }}{{ with .Labels.pod }}Pod {{ . }} {{ end }}{{ with .Labels.action }}{{ if ne . "none" }}Action {{ . }}{{ end }}{{ end }}
{{ .Annotations.description }}
Runbook: {{ .Annotations.runbook_url }}{{ with .Labels.node }}
Dashboard: ` }}{{ . }}{{ `/d/gputally-node?var-node={{ . }}{{ end }}

{{ end }}` }}
{{- else -}}
{{ `{{ range .Alerts }}{{ if eq .Status "resolved" }}RESOLVED {{ end }}{{ .Labels.alertname }}: {{ .Annotations.summary }}
{{ with .Labels.node }}Node {{ . }} {{ end }}{{ with .Labels.gpu }}GPU {{ . }} {{ end }}{{ with .Labels.namespace }}Namespace {{ . }} {{ end }}{{ with .Labels.pod }}Pod {{ . }} {{ end }}{{ with .Labels.action }}{{ if ne . "none" }}Action {{ . }}{{ end }}{{ end }}
{{ .Annotations.description }}
Runbook: {{ .Annotations.runbook_url }}

{{ end }}` }}
{{- end -}}
{{- end -}}

{{/* The whole alertmanager.yml. */}}
{{- define "gputally.routing.alertmanager" -}}
{{- $default := .Values.routing.default | default "nobody" -}}
{{- $critical := .Values.routing.critical | default $default -}}
{{- $title := include "gputally.routing.title" . | toJson -}}
{{- $text := include "gputally.routing.text" . | toJson -}}
{{- $times := .Values.routing.times | default dict -}}
route:
  # Whatever is not about GPUs: nobody hears of it here.
  receiver: nobody
  group_by: [alertname]
  routes:
    - matchers: ["alertname=~\"GPUTally.+\""]
      receiver: {{ $default }}
      routes:
        {{- range $namespace, $receiver := .Values.routing.namespaces }}
        - matchers: ["audience=\"team\"", {{ printf "namespace=~%q" $namespace | toJson }}]
          receiver: {{ $receiver }}
          group_by: ["cluster", "namespace", "alertname"]
          group_wait: {{ dig "team" "groupWait" "5m" $times }}
          group_interval: {{ dig "team" "groupInterval" "30m" $times }}
          repeat_interval: {{ dig "team" "repeatInterval" "24h" $times }}
          {{- if $.Values.routing.maintenance }}
          mute_time_intervals: [maintenance]
          {{- end }}
        {{- end }}
        - matchers: ["audience=\"team\""]
          receiver: {{ $default }}
          group_by: ["cluster", "namespace", "alertname"]
          group_wait: {{ dig "team" "groupWait" "5m" $times }}
          group_interval: {{ dig "team" "groupInterval" "30m" $times }}
          repeat_interval: {{ dig "team" "repeatInterval" "24h" $times }}
          {{- if $.Values.routing.maintenance }}
          mute_time_intervals: [maintenance]
          {{- end }}
        - matchers: ["severity=\"critical\""]
          receiver: {{ $critical }}
          group_by: ["cluster", "node"]
          group_wait: {{ dig "critical" "groupWait" "30s" $times }}
          group_interval: {{ dig "critical" "groupInterval" "5m" $times }}
          repeat_interval: {{ dig "critical" "repeatInterval" "4h" $times }}
        - matchers: ["severity=\"warning\""]
          receiver: {{ $default }}
          group_by: ["cluster", "node"]
          group_wait: {{ dig "warning" "groupWait" "2m" $times }}
          group_interval: {{ dig "warning" "groupInterval" "15m" $times }}
          repeat_interval: {{ dig "warning" "repeatInterval" "12h" $times }}
          {{- if $.Values.routing.maintenance }}
          mute_time_intervals: [maintenance]
          {{- end }}
        - matchers: ["severity=\"info\""]
          receiver: {{ $default }}
          group_by: ["cluster", "node"]
          group_wait: {{ dig "info" "groupWait" "5m" $times }}
          group_interval: {{ dig "info" "groupInterval" "1h" $times }}
          repeat_interval: {{ dig "info" "repeatInterval" "24h" $times }}
          {{- if $.Values.routing.maintenance }}
          mute_time_intervals: [maintenance]
          {{- end }}
{{- with .Values.routing.maintenance }}
time_intervals:
  # Critical alerts are sent all the same.
  - name: maintenance
    time_intervals:
      {{- toYaml . | nindent 6 }}
{{- end }}
inhibit_rules:
  # A node that is down explains all that is said about it.
  - source_matchers: ["alertname=~\"KubeNodeNotReady|KubeNodeUnreachable|NodeDown|HostDown\"", "node!=\"\""]
    target_matchers: ["alertname=~\"GPUTally.+\""]
    equal: ["cluster", "node"]
  # When no exporter answers, the single ones are not worth a message.
  - source_matchers: ["alertname=~\"GPUTallyAllExportersDown|GPUTallyExporterAbsent\""]
    target_matchers: ["alertname=\"GPUTallyExporterDown\""]
    equal: ["cluster"]
  # What was last said about GPUs that nobody can read now cannot be confirmed.
  - source_matchers: ["alertname=~\"GPUTallyExporterDown|GPUTallyDriverUnavailable\""]
    target_matchers: ["alertname=~\"GPUTally.+\"", "alertname!~\"GPUTallyExporterDown|GPUTallyDriverUnavailable\""]
    equal: ["cluster", "node"]
  # A lost GPU explains every other alert about it.
  - source_matchers: ["alertname=\"GPUTallyGpuLost\""]
    target_matchers: ["alertname=~\"GPUTally.+\"", "alertname!=\"GPUTallyGpuLost\"", "uuid!=\"\""]
    equal: ["cluster", "node", "uuid"]
  # A GPU that is lost is also missing.
  - source_matchers: ["alertname=\"GPUTallyGpuLost\""]
    target_matchers: ["alertname=\"GPUTallyGpusMissing\""]
    equal: ["cluster", "node"]
  # Of a pod that wastes a GPU the longest step of the ladder is enough.
  - source_matchers: ["alertname=\"GPUTallyHeldIdleLong\""]
    target_matchers: ["alertname=~\"GPUTallyHeldIdle|GPUTallyHeldUnderused\""]
    equal: ["cluster", "namespace", "pod"]
  # Of one GPU the worst is enough.
  - source_matchers: ["alertname=~\"GPUTally.+\"", "severity=\"critical\"", "uuid!=\"\""]
    target_matchers: ["alertname=~\"GPUTally.+\"", "severity=~\"warning|info\"", "uuid!=\"\""]
    equal: ["cluster", "node", "uuid"]
receivers:
  {{- range include "gputally.routing.receivers" . | fromJsonArray }}
  - name: {{ . }}
    {{- if eq . "slack" }}
    slack_configs:
      - api_url_file: /etc/alertmanager/secrets/slack-url
        channel: {{ $.Values.routing.slack.channel | toJson }}
        send_resolved: true
        title: {{ $title }}
        text: {{ $text }}
    {{- else if eq . "pagerduty" }}
    pagerduty_configs:
      - routing_key_file: /etc/alertmanager/secrets/pagerduty-key
        send_resolved: true
        description: {{ $title }}
        severity: {{ `{{ if .CommonLabels.severity }}{{ .CommonLabels.severity }}{{ else }}error{{ end }}` | toJson }}
        details:
          alerts: {{ $text }}
    {{- else if eq . "opsgenie" }}
    opsgenie_configs:
      - api_key_file: /etc/alertmanager/secrets/opsgenie-key
        send_resolved: true
        message: {{ $title }}
        description: {{ $text }}
        priority: {{ `{{ if eq .CommonLabels.severity "critical" }}P1{{ else if eq .CommonLabels.severity "warning" }}P3{{ else }}P5{{ end }}` | toJson }}
    {{- else if eq . "email" }}
    {{- with $.Values.routing.email }}
    email_configs:
      - to: {{ .to | toJson }}
        from: {{ .from | toJson }}
        smarthost: {{ .smarthost | toJson }}
        {{- with .username }}
        auth_username: {{ . | toJson }}
        auth_password_file: /etc/alertmanager/secrets/email-password
        {{- end }}
        {{- if not .requireTls }}
        require_tls: false
        {{- end }}
        send_resolved: true
        headers:
          Subject: {{ $title }}
        text: {{ $text }}
        html: ""
    {{- end }}
    {{- else if eq . "teams" }}
    msteamsv2_configs:
      - webhook_url_file: /etc/alertmanager/secrets/teams-url
        send_resolved: true
        title: {{ $title }}
        text: {{ $text }}
    {{- else if eq . "webhook" }}
    webhook_configs:
      - url_file: /etc/alertmanager/secrets/webhook-url
        send_resolved: true
    {{- end }}
  {{- end }}
{{- end -}}

{{/* The spec of an AlertmanagerConfig. */}}
{{- define "gputally.routing.resource" -}}
{{- $default := .Values.routing.default | default "nobody" -}}
{{- $critical := .Values.routing.critical | default $default -}}
{{- $title := include "gputally.routing.title" . | toJson -}}
{{- $text := include "gputally.routing.text" . | toJson -}}
{{- $times := .Values.routing.times | default dict -}}
{{- $secret := .Values.routing.secret -}}
route:
  matchers: [{"name": "alertname", "matchType": "=~", "value": "GPUTally.+"}]
  receiver: {{ $default }}
  routes:
    {{- range $namespace, $receiver := .Values.routing.namespaces }}
    - matchers: [{"name": "audience", "matchType": "=", "value": "team"}, {"name": "namespace", "matchType": "=~", "value": {{ toJson $namespace }}}]
      receiver: {{ $receiver }}
      groupBy: ["cluster", "namespace", "alertname"]
      groupWait: {{ dig "team" "groupWait" "5m" $times }}
      groupInterval: {{ dig "team" "groupInterval" "30m" $times }}
      repeatInterval: {{ dig "team" "repeatInterval" "24h" $times }}
      {{- if $.Values.routing.maintenance }}
      muteTimeIntervals: [maintenance]
      {{- end }}
    {{- end }}
    - matchers: [{"name": "audience", "matchType": "=", "value": "team"}]
      receiver: {{ $default }}
      groupBy: ["cluster", "namespace", "alertname"]
      groupWait: {{ dig "team" "groupWait" "5m" $times }}
      groupInterval: {{ dig "team" "groupInterval" "30m" $times }}
      repeatInterval: {{ dig "team" "repeatInterval" "24h" $times }}
      {{- if $.Values.routing.maintenance }}
      muteTimeIntervals: [maintenance]
      {{- end }}
    - matchers: [{"name": "severity", "matchType": "=", "value": "critical"}]
      receiver: {{ $critical }}
      groupBy: ["cluster", "node"]
      groupWait: {{ dig "critical" "groupWait" "30s" $times }}
      groupInterval: {{ dig "critical" "groupInterval" "5m" $times }}
      repeatInterval: {{ dig "critical" "repeatInterval" "4h" $times }}
    - matchers: [{"name": "severity", "matchType": "=", "value": "warning"}]
      receiver: {{ $default }}
      groupBy: ["cluster", "node"]
      groupWait: {{ dig "warning" "groupWait" "2m" $times }}
      groupInterval: {{ dig "warning" "groupInterval" "15m" $times }}
      repeatInterval: {{ dig "warning" "repeatInterval" "12h" $times }}
      {{- if $.Values.routing.maintenance }}
      muteTimeIntervals: [maintenance]
      {{- end }}
    - matchers: [{"name": "severity", "matchType": "=", "value": "info"}]
      receiver: {{ $default }}
      groupBy: ["cluster", "node"]
      groupWait: {{ dig "info" "groupWait" "5m" $times }}
      groupInterval: {{ dig "info" "groupInterval" "1h" $times }}
      repeatInterval: {{ dig "info" "repeatInterval" "24h" $times }}
      {{- if $.Values.routing.maintenance }}
      muteTimeIntervals: [maintenance]
      {{- end }}
{{- with .Values.routing.maintenance }}
muteTimeIntervals:
  # Critical alerts are sent all the same.
  - name: maintenance
    timeIntervals:
      {{- range . }}
      {{- $interval := pick . "weekdays" "months" "years" }}
      {{- with .times }}
      {{- $times := list }}
      {{- range . }}
      {{- $times = append $times (dict "startTime" .start_time "endTime" .end_time) }}
      {{- end }}
      {{- $_ := set $interval "times" $times }}
      {{- end }}
      {{- with .days_of_month }}
      {{- $days := list }}
      {{- range . }}
      {{- $days = append $days (dict "start" (splitList ":" . | first | int) "end" (splitList ":" . | last | int)) }}
      {{- end }}
      {{- $_ := set $interval "daysOfMonth" $days }}
      {{- end }}
      - {{ toJson $interval }}
      {{- end }}
{{- end }}
inhibitRules:
  # A node that is down explains all that is said about it.
  - sourceMatch: [{"name": "alertname", "matchType": "=~", "value": "KubeNodeNotReady|KubeNodeUnreachable|NodeDown|HostDown"}, {"name": "node", "matchType": "!=", "value": ""}]
    targetMatch: [{"name": "alertname", "matchType": "=~", "value": "GPUTally.+"}]
    equal: ["cluster", "node"]
  # When no exporter answers, the single ones are not worth a message.
  - sourceMatch: [{"name": "alertname", "matchType": "=~", "value": "GPUTallyAllExportersDown|GPUTallyExporterAbsent"}]
    targetMatch: [{"name": "alertname", "matchType": "=", "value": "GPUTallyExporterDown"}]
    equal: ["cluster"]
  # What was last said about GPUs that nobody can read now cannot be confirmed.
  - sourceMatch: [{"name": "alertname", "matchType": "=~", "value": "GPUTallyExporterDown|GPUTallyDriverUnavailable"}]
    targetMatch: [{"name": "alertname", "matchType": "=~", "value": "GPUTally.+"}, {"name": "alertname", "matchType": "!~", "value": "GPUTallyExporterDown|GPUTallyDriverUnavailable"}]
    equal: ["cluster", "node"]
  # A lost GPU explains every other alert about it.
  - sourceMatch: [{"name": "alertname", "matchType": "=", "value": "GPUTallyGpuLost"}]
    targetMatch: [{"name": "alertname", "matchType": "=~", "value": "GPUTally.+"}, {"name": "alertname", "matchType": "!=", "value": "GPUTallyGpuLost"}, {"name": "uuid", "matchType": "!=", "value": ""}]
    equal: ["cluster", "node", "uuid"]
  # A GPU that is lost is also missing.
  - sourceMatch: [{"name": "alertname", "matchType": "=", "value": "GPUTallyGpuLost"}]
    targetMatch: [{"name": "alertname", "matchType": "=", "value": "GPUTallyGpusMissing"}]
    equal: ["cluster", "node"]
  # Of a pod that wastes a GPU the longest step of the ladder is enough.
  - sourceMatch: [{"name": "alertname", "matchType": "=", "value": "GPUTallyHeldIdleLong"}]
    targetMatch: [{"name": "alertname", "matchType": "=~", "value": "GPUTallyHeldIdle|GPUTallyHeldUnderused"}]
    equal: ["cluster", "namespace", "pod"]
  # Of one GPU the worst is enough.
  - sourceMatch: [{"name": "alertname", "matchType": "=~", "value": "GPUTally.+"}, {"name": "severity", "matchType": "=", "value": "critical"}, {"name": "uuid", "matchType": "!=", "value": ""}]
    targetMatch: [{"name": "alertname", "matchType": "=~", "value": "GPUTally.+"}, {"name": "severity", "matchType": "=~", "value": "warning|info"}, {"name": "uuid", "matchType": "!=", "value": ""}]
    equal: ["cluster", "node", "uuid"]
receivers:
  {{- range include "gputally.routing.receivers" . | fromJsonArray }}
  - name: {{ . }}
    {{- if eq . "slack" }}
    slackConfigs:
      - apiURL: {name: {{ $secret }}, key: slack-url}
        channel: {{ $.Values.routing.slack.channel | toJson }}
        sendResolved: true
        title: {{ $title }}
        text: {{ $text }}
    {{- else if eq . "pagerduty" }}
    pagerdutyConfigs:
      - routingKey: {name: {{ $secret }}, key: pagerduty-key}
        sendResolved: true
        description: {{ $title }}
        severity: {{ `{{ if .CommonLabels.severity }}{{ .CommonLabels.severity }}{{ else }}error{{ end }}` | toJson }}
        details: [{key: alerts, value: {{ $text }}}]
    {{- else if eq . "opsgenie" }}
    opsgenieConfigs:
      - apiKey: {name: {{ $secret }}, key: opsgenie-key}
        sendResolved: true
        message: {{ $title }}
        description: {{ $text }}
        priority: {{ `{{ if eq .CommonLabels.severity "critical" }}P1{{ else if eq .CommonLabels.severity "warning" }}P3{{ else }}P5{{ end }}` | toJson }}
    {{- else if eq . "email" }}
    {{- with $.Values.routing.email }}
    emailConfigs:
      - to: {{ .to | toJson }}
        from: {{ .from | toJson }}
        smarthost: {{ .smarthost | toJson }}
        {{- with .username }}
        authUsername: {{ . | toJson }}
        authPassword: {name: {{ $secret }}, key: email-password}
        {{- end }}
        {{- if not .requireTls }}
        requireTLS: false
        {{- end }}
        sendResolved: true
        headers: [{key: Subject, value: {{ $title }}}]
        text: {{ $text }}
    {{- end }}
    {{- else if eq . "teams" }}
    msteamsv2Configs:
      - webhookURL: {name: {{ $secret }}, key: teams-url}
        sendResolved: true
        title: {{ $title }}
        text: {{ $text }}
    {{- else if eq . "webhook" }}
    webhookConfigs:
      - urlSecret: {name: {{ $secret }}, key: webhook-url}
        sendResolved: true
    {{- end }}
  {{- end }}
{{- end -}}
