{{/* The URL of a Service of the stack: (dict "context" $ "name" "prometheus" "port" 9090). */}}
{{- define "gputally.stack.url" -}}
{{- printf "http://%s-%s.%s:%d" (include "gputally.fullname" .context) .name (include "gputally.namespace" .context) (int .port) -}}
{{- end -}}

{{/* Grafana's URL in the browser, or empty. */}}
{{- define "gputally.stack.grafanaRoot" -}}
{{- with .Values.stack.grafana -}}
{{- if .rootUrl -}}
{{- trimSuffix "/" .rootUrl -}}
{{- else if .ingress.enabled -}}
{{- printf "%s://%s" (ternary "https" "http" (ne .ingress.tlsSecret "")) .ingress.host -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The path of Grafana's URL, which also prefixes its health and metrics endpoints. */}}
{{- define "gputally.stack.grafanaPath" -}}
{{- (urlParse (include "gputally.stack.grafanaRoot" .)).path | trimSuffix "/" -}}
{{- end -}}

{{/* Labels of a pod. Without the chart's version, which would restart unchanged pods on every upgrade. */}}
{{- define "gputally.stack.podLabels" -}}
{{ include "gputally.selectorLabels" . }}
app.kubernetes.io/part-of: gputally
{{- with .context.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Takes (dict "context" $ "user" 65534) with the image's user. */}}
{{- define "gputally.stack.podSecurity" -}}
runAsNonRoot: true
{{- if .context.Values.stack.runAsImageUser }}
runAsUser: {{ .user }}
runAsGroup: {{ .user }}
fsGroup: {{ .user }}
{{- end }}
# Otherwise each start would change the group of every file of a large volume.
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* Scheduling and image pull Secrets of a pod: (dict "context" $ "part" .Values.stack.grafana). */}}
{{- define "gputally.stack.placement" -}}
{{- include "gputally.imagePullSecrets" .context }}
{{- with .part.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .part.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .part.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The volume claim `data` of a StatefulSet: (dict "context" $ "component" "grafana" "persistence" ...). */}}
{{- define "gputally.stack.claim" -}}
{{- if .persistence.enabled }}
{{- if eq .persistence.whenDeleted "Delete" }}
persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete, whenScaled: Retain}
{{- end }}
volumeClaimTemplates:
  # With kind and version, as the API server returns it.
  - apiVersion: v1
    kind: PersistentVolumeClaim
    metadata:
      name: data
      labels:
        {{- include "gputally.selectorLabels" . | nindent 8 }}
    spec:
      accessModes: [ReadWriteOnce]
      {{- with .persistence.storageClass }}
      storageClassName: {{ . | quote }}
      {{- end }}
      resources:
        requests:
          storage: {{ .persistence.size }}
{{- end }}
{{- end -}}

{{/* The volume `data` without persistence. */}}
{{- define "gputally.stack.emptyData" -}}
{{- if not .enabled }}
- name: data
  emptyDir: {}
{{- end }}
{{- end -}}

{{/* A Kubernetes quantity or a Prometheus size (whose units are powers of 1024), in bytes. */}}
{{- define "gputally.stack.bytes" -}}
{{- $size := toString . -}}
{{- $unit := regexFind "[A-Za-z]*$" $size -}}
{{- $number := trimSuffix $unit $size | float64 -}}
{{- $powers := dict "K" 1 "M" 2 "G" 3 "T" 4 "P" 5 "E" 6 -}}
{{- $base := ternary 1000.0 1024.0 (and (eq (len $unit) 1) (ne $unit "B")) -}}
{{- range until (int (get $powers (upper (trunc 1 $unit)))) -}}
{{- $number = mulf $number $base -}}
{{- end -}}
{{- printf "%.0f" $number -}}
{{- end -}}

{{/* Prometheus's retention size, or empty. 80 % of the volume leave room for the write-ahead log and the head block. */}}
{{- define "gputally.stack.retentionSize" -}}
{{- with .Values.stack.prometheus -}}
{{- if .retentionSize -}}
{{- .retentionSize -}}
{{- else if .persistence.enabled -}}
{{- printf "%.0fMB" (floor (divf (mulf (include "gputally.stack.bytes" .persistence.size | float64) 0.8) 1048576.0)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A pod of this release, as `from` or `to` of a NetworkPolicy: (dict "context" $ "component" "grafana"). */}}
{{- define "gputally.stack.peer" -}}
- podSelector:
    matchLabels:
      {{- include "gputally.selectorLabels" . | nindent 6 }}
{{- end -}}

{{/* A map of labels as a label selector: a=b,c=d. */}}
{{- define "gputally.stack.selector" -}}
{{- $terms := list -}}
{{- range $label, $value := . -}}
{{- $terms = append $terms (printf "%s=%s" $label $value) -}}
{{- end -}}
{{- join "," $terms -}}
{{- end -}}

{{/* The namespaces in which Prometheus discovers pods, as a list in JSON: the release's, and those of Argo sidecars. */}}
{{- define "gputally.stack.namespaces" -}}
{{- $sidecar := .Values.argoWorkflows.sidecar -}}
{{- include "gputally.argo.namespaces" (dict "context" . "namespaces" (ternary $sidecar.namespaces list $sidecar.enabled)) -}}
{{- end -}}

{{- define "gputally.stack.prometheusConfig" -}}
{{- $settings := (include "gputally.rules.values" . | fromYaml).settings -}}
{{- $cluster := include "gputally.cluster" . -}}
{{- $labels := deepCopy (.Values.stack.prometheus.externalLabels | default dict) -}}
{{- with $cluster }}{{ $_ := set $labels "cluster" . }}{{ end -}}
global:
  scrape_interval: {{ $settings.scrapeInterval }}
  scrape_timeout: {{ $settings.scrapeTimeout }}
  evaluation_interval: {{ $settings.scrapeInterval }}
  {{- with $labels }}
  external_labels:
    {{- toYaml . | nindent 4 }}
  {{- end }}

storage:
  tsdb:
    retention:
      time: {{ .Values.stack.prometheus.retention }}
      {{- with include "gputally.stack.retentionSize" . }}
      size: {{ . }}
      {{- end }}

rule_files: [gputally.rules.yml]

scrape_configs:
  {{- if .Values.exporter.enabled }}
  - job_name: {{ $settings.job | quote }}
    # The labels pod and namespace of a series name the pod that uses the GPU, not the exporter's pod.
    honor_labels: true
    {{- if .Values.web.tls.enabled }}
    scheme: https
    tls_config:
      server_name: {{ include "gputally.exporter.serverName" . | quote }}
      {{- if .Values.web.tls.insecureSkipVerify }}
      insecure_skip_verify: true
      {{- else }}
      ca_file: /etc/prometheus/exporter/ca.crt
      {{- end }}
    {{- end }}
    {{- if .Values.web.basicAuth.enabled }}
    basic_auth:
      username_file: /etc/prometheus/exporter/username
      password_file: /etc/prometheus/exporter/password
    {{- end }}
    kubernetes_sd_configs:
      - role: pod
        namespaces:
          names: [{{ include "gputally.namespace" . }}]
        selectors:
          - role: pod
            label: {{ include "gputally.stack.selector" (include "gputally.selectorLabels" (dict "context" $ "component" "exporter") | fromYaml) | quote }}
    relabel_configs:
      - source_labels: [__meta_kubernetes_pod_container_port_name]
        regex: metrics
        action: keep
      - source_labels: [__meta_kubernetes_pod_phase]
        regex: Succeeded|Failed
        action: drop
      - source_labels: [__meta_kubernetes_pod_node_name]
        target_label: node
      # The node, not the pod's address: series continue when the exporter's pod is replaced.
      - source_labels: [__meta_kubernetes_pod_node_name]
        target_label: instance
      {{- with $cluster }}
      - target_label: cluster
        replacement: {{ . | quote }}
      {{- end }}
  {{- end }}
  {{- if .Values.argoWorkflows.sidecar.enabled }}
  {{- $sidecars := .Values.podMonitor.sidecars }}
  - job_name: {{ printf "%s-sidecars" $settings.job | quote }}
    kubernetes_sd_configs:
      - role: pod
        namespaces:
          names: {{ include "gputally.stack.namespaces" . }}
        selectors:
          - role: pod
            label: {{ include "gputally.stack.selector" $sidecars.matchLabels | quote }}
    relabel_configs:
      - source_labels: [__meta_kubernetes_pod_container_port_name]
        regex: {{ $sidecars.port | quote }}
        action: keep
      - source_labels: [__meta_kubernetes_pod_phase]
        regex: Succeeded|Failed
        action: drop
      - source_labels: [__meta_kubernetes_namespace]
        target_label: namespace
      - source_labels: [__meta_kubernetes_pod_name]
        target_label: pod
      - source_labels: [__meta_kubernetes_pod_node_name]
        target_label: node
      - source_labels: [__meta_kubernetes_namespace, __meta_kubernetes_pod_name]
        separator: /
        target_label: instance
      {{- with $cluster }}
      - target_label: cluster
        replacement: {{ . | quote }}
      {{- end }}
      - target_label: job
        replacement: {{ $settings.job | quote }}
    metric_relabel_configs:
      # Prometheus sets pod and namespace by discovery, so a sidecar cannot claim the name of another pod.
      - regex: exported_(namespace|pod)
        action: labeldrop
  {{- end }}
  {{- range $job := include "gputally.stack.ownJobs" . | fromJsonArray }}
  - job_name: {{ $job.name }}
    {{- with $job.path }}
    metrics_path: {{ . }}
    {{- end }}
    static_configs:
      - targets: [{{ $job.target | quote }}]
        {{- with $cluster }}
        labels:
          cluster: {{ . | quote }}
        {{- end }}
    {{- if eq $job.name "kube-state-metrics" }}
    # The labels namespace, pod and node of a series name its object.
    honor_labels: true
    # What remains are six series per pod, and those of its GPUs.
    metric_relabel_configs:
      - source_labels: [resource]
        regex: cpu|memory|storage|ephemeral_storage|pods|hugepages_.*|attachable_volumes_.*
        action: drop
      - source_labels: [__name__, phase]
        regex: kube_pod_status_phase;(Succeeded|Failed|Unknown)
        action: drop
      - source_labels: [__name__, condition]
        regex: kube_pod_status_scheduled;unknown|kube_node_status_condition;.*(Pressure|Unavailable|Problem)
        action: drop
      - source_labels: [__name__, status]
        regex: kube_node_status_condition;(false|unknown)
        action: drop
    {{- end }}
  {{- end }}
  {{- with .Values.stack.prometheus.extraScrapeConfigs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}

{{- if or .Values.stack.alertmanager.enabled .Values.stack.prometheus.alertmanagers }}

alerting:
  alertmanagers:
    {{- if .Values.stack.alertmanager.enabled }}
    - static_configs:
        - targets: ["{{ include "gputally.fullname" . }}-alertmanager.{{ include "gputally.namespace" . }}:9093"]
    {{- end }}
    {{- with .Values.stack.prometheus.alertmanagers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
{{- with .Values.stack.prometheus.remoteWrite }}

remote_write:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The scrape jobs of the stack's own servers, as a list in JSON. */}}
{{- define "gputally.stack.ownJobs" -}}
{{- $host := printf "%s-%%s.%s:%%d" (include "gputally.fullname" .) (include "gputally.namespace" .) -}}
{{- $jobs := list (dict "name" "prometheus" "target" "localhost:9090") -}}
{{- if .Values.stack.alertmanager.enabled -}}
{{- $jobs = append $jobs (dict "name" "alertmanager" "target" (printf $host "alertmanager" 9093)) -}}
{{- end -}}
{{- if .Values.stack.grafana.enabled -}}
{{- $path := printf "%s/metrics" (include "gputally.stack.grafanaPath" .) -}}
{{- $jobs = append $jobs (dict "name" "grafana" "target" (printf $host "grafana" 80) "path" $path) -}}
{{- end -}}
{{- if .Values.stack.kubeStateMetrics.enabled -}}
{{- $jobs = append $jobs (dict "name" "kube-state-metrics" "target" (printf $host "kube-state-metrics" 8080)) -}}
{{- end -}}
{{- toJson $jobs -}}
{{- end -}}

{{/* The metrics of kube-state-metrics that rules and dashboards read, as a list in JSON. A test compares them. */}}
{{- define "gputally.stack.kubeMetrics" -}}
{{- $node := list "info" "spec_taint" "spec_unschedulable" "status_allocatable" "status_condition" -}}
{{- $pod := list "container_resource_requests" "container_status_waiting_reason" "created" "status_phase" "status_reason" "status_scheduled" "status_scheduled_time" -}}
{{- $names := list "^kube_resourcequota$" -}}
{{- range $node }}{{ $names = append $names (printf "^kube_node_%s$" .) }}{{ end -}}
{{- range $pod }}{{ $names = append $names (printf "^kube_pod_%s$" .) }}{{ end -}}
{{- toJson $names -}}
{{- end -}}

{{- define "gputally.stack.grafanaIni" -}}
{{- $root := include "gputally.stack.grafanaRoot" . -}}
{{- with $root }}
[server]
root_url = {{ . }}/
{{- if include "gputally.stack.grafanaPath" $ }}
serve_from_sub_path = true
{{- end }}
{{- end }}

[security]
{{- if .Values.stack.grafana.admin.secret }}
admin_user = $__file{/etc/grafana/admin/user}
admin_password = $__file{/etc/grafana/admin/password}
{{- else }}
admin_user = admin
admin_password = $__file{/var/lib/grafana/admin-password}
{{- end }}
secret_key = $__file{/var/lib/grafana/secret-key}
cookie_secure = {{ hasPrefix "https://" $root }}
disable_gravatar = true

[auth.anonymous]
enabled = false

[users]
allow_sign_up = false
allow_org_create = false

[public_dashboards]
enabled = false

[snapshots]
external_enabled = false

[dashboards]
{{- if has "fleet" (include "gputally.dashboards.names" . | fromJsonArray) }}
default_home_dashboard_path = /etc/grafana/dashboards/fleet.json
{{- end }}

[metrics]
# `helm test` reads the number of dashboards from these metrics soon after the start.
total_stats_collector_interval_seconds = 60

[analytics]
enabled = false
reporting_enabled = false
check_for_updates = false
check_for_plugin_updates = false
feedback_links_enabled = false

[news]
news_feed_enabled = false

[plugins]
plugin_admin_enabled = false
public_key_retrieval_disabled = true
# Since 13.2 the Prometheus data source is a plugin. The image contains it; to install a newer one, Grafana would
# unload it and then fail to write to the read-only file system.
preinstall_disabled = true
preinstall_auto_update = false

[log]
mode = console
{{- end -}}

{{- define "gputally.stack.dataSources" -}}
{{- $settings := (include "gputally.rules.values" . | fromYaml).settings -}}
apiVersion: 1
# Removes data sources that were provisioned earlier and are no longer listed.
prune: true
datasources:
  - name: Prometheus
    uid: prometheus
    type: prometheus
    access: proxy
    url: {{ include "gputally.stack.url" (dict "context" $ "name" "prometheus" "port" 9090) }}
    isDefault: true
    editable: false
    jsonData:
      httpMethod: POST
      timeInterval: {{ $settings.scrapeInterval }}
      {{- if .Values.stack.alertmanager.enabled }}
      alertmanagerUid: alertmanager
      {{- end }}
  {{- if .Values.stack.alertmanager.enabled }}
  - name: Alertmanager
    uid: alertmanager
    type: alertmanager
    access: proxy
    url: {{ include "gputally.stack.url" (dict "context" $ "name" "alertmanager" "port" 9093) }}
    editable: false
    jsonData:
      implementation: prometheus
  {{- end }}
{{- end -}}

{{- define "gputally.stack.dashboardProvider" -}}
apiVersion: 1
providers:
  - name: gputally
    type: file
    folder: {{ .Values.dashboards.folder | quote }}
    allowUiUpdates: false
    disableDeletion: false
    updateIntervalSeconds: 30
    options:
      path: /etc/grafana/dashboards
{{- end -}}

{{/*
Generates the Grafana secrets at the first start. They are stored beside Grafana's database, so rendering the chart
stays deterministic.
*/}}
{{- define "gputally.stack.generateSecrets" -}}
set -eu
umask 077
for name in secret-key{{ if not .Values.stack.grafana.admin.secret }} admin-password{{ end }}; do
  file=/var/lib/grafana/$name
  if [ ! -s "$file" ]; then
    tr -dc A-Za-z0-9 < /dev/urandom | head -c 32 > "$file.new"
    mv "$file.new" "$file"
  fi
done
{{- end -}}
