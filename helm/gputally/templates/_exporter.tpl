{{/* Whether the exporter needs user 0 ("true" or ""): it owns the sockets and directories, and only it gets capabilities. */}}
{{- define "gputally.exporter.root" -}}
{{- with .Values.privileges -}}
{{- if or .podResources .kubeletPods .privileged .capabilities (eq $.Values.state.volume "hostPath") -}}
true
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whether the exporter has a web configuration ("true" or ""). */}}
{{- define "gputally.exporter.web" -}}
{{- if or .Values.web.tls.enabled .Values.web.basicAuth.enabled -}}
true
{{- end -}}
{{- end -}}

{{/* exporter-toolkit's web configuration: --web-config. */}}
{{- define "gputally.exporter.webConfig" -}}
{{- if .Values.web.tls.enabled -}}
tls_server_config:
  cert_file: /etc/gputally/tls/tls.crt
  key_file: /etc/gputally/tls/tls.key
{{ end -}}
{{- if .Values.web.basicAuth.enabled -}}
basic_auth_users:
  {{- toYaml .Values.web.basicAuth.users | nindent 2 }}
{{- end -}}
{{- end -}}

{{/*
Chart values that are flags of `gputally serve`. A new value for a flag takes one row here and one key in values.yaml.
The type of the value decides how it is passed: true is the flag alone, a list is joined with commas, and false, "" and
[] are left out; --live-page, which is on by default, is passed only where it is false. `exporter.extraArgs` refuses every flag of this table.
*/}}
{{- define "gputally.exporter.flags" -}}
- [exporter.port, --port]
- [exporter.reader, --reader]
- [exporter.interval, --interval]
- [exporter.retention, --retention]
- [exporter.logLevel, --log-level]
- [exporter.logFormat, --log-format]
- [exporter.metrics, --metrics]
- [exporter.metricsInclude, --metrics-include]
- [exporter.metricsExclude, --metrics-exclude]
- [exporter.compat, --compat]
- [kubernetes.nodeLabels, --node-labels]
- [kubernetes.podAnnotations, --pod-annotations]
- [kubernetes.podLabels, --pod-labels]
- [privileges.accounting, --accounting]
- [kubernetes.enabled, --kubernetes]
- [exporter.livePage, --live-page]
- [exporter.grafanaUrl, --grafana-url]
- [exporter.pcieThroughput, --pcie-throughput]
- [exporter.processMetrics, --process-metrics]
- [exporter.relay, --relay]
{{- end -}}

{{/* The arguments of the exporter's container, as a list in JSON. */}}
{{- define "gputally.exporter.arguments" -}}
{{- $arguments := list "serve" -}}
{{- range $row := include "gputally.exporter.flags" . | fromYamlArray -}}
{{- $flag := last $row -}}
{{- $value := $.Values -}}
{{- range splitList "." (first $row) -}}
{{- $value = get $value . -}}
{{- end -}}
{{- if eq $flag "--live-page" -}}
{{- $arguments = ternary $arguments (append $arguments "--live-page=false") $value -}}
{{- else if kindIs "bool" $value -}}
{{- $arguments = ternary (append $arguments $flag) $arguments $value -}}
{{- else -}}
{{- /* Not `join` for numbers: it writes 1000000 as 1e+06. */}}
{{- with ternary (toJson $value) (join "," $value) (kindIs "float64" $value) -}}
{{- $arguments = append $arguments (printf "%s=%s" $flag .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- /* Otherwise the exporter would report a source that it cannot read. */}}
{{- if not .Values.privileges.podLogs -}}
{{- $arguments = append $arguments "--pod-logs=none" -}}
{{- end -}}
{{- if not .Values.privileges.podResources -}}
{{- $arguments = append $arguments "--pod-resources-socket=none" -}}
{{- end -}}
{{- if ne .Values.state.volume "none" -}}
{{- $arguments = append $arguments "--state-file=/var/lib/gputally/ledger.json" -}}
{{- end -}}
{{- if include "gputally.exporter.web" . -}}
{{- $arguments = append $arguments "--web-config=/etc/gputally/web/web-config.yml" -}}
{{- end -}}
{{- concat $arguments (.Values.exporter.extraArgs | default list) | toJson -}}
{{- end -}}

{{/* Environment for NVIDIA's runtime and the dynamic linker, also of the init container. */}}
{{- define "gputally.exporter.driverEnv" -}}
- {name: NVIDIA_VISIBLE_DEVICES, value: all}
- {name: NVIDIA_DRIVER_CAPABILITIES, value: utility}
{{- $driver := .Values.driver }}
{{- if $driver.hostPath }}
{{- $below := printf "%s/%%s" (trimSuffix "/" $driver.mountPath) }}
{{- with $driver.libraryDirectories }}
{{- $paths := list }}
{{- range . }}{{ $paths = append $paths (printf $below .) }}{{ end }}
- {name: LD_LIBRARY_PATH, value: {{ join ":" $paths | quote }}}
{{- end }}
{{- with $driver.libraries }}
{{- $files := list }}
{{- range . }}{{ $files = append $files (printf $below .) }}{{ end }}
# Preloaded by path, because its directory may contain another libc than the image's.
- {name: LD_PRELOAD, value: {{ join ":" $files | quote }}}
{{- end }}
{{- with $driver.programDirectories }}
{{- $paths := list "/opt/gputally/bin" "/usr/local/sbin" "/usr/local/bin" "/usr/sbin" "/usr/bin" "/sbin" "/bin" }}
{{- range . }}{{ $paths = append $paths (printf $below .) }}{{ end }}
- {name: PATH, value: {{ join ":" $paths | quote }}}
{{- end }}
{{- end }}
{{- end -}}

{{- define "gputally.exporter.driverMount" -}}
{{- with .Values.driver }}
{{- if .hostPath }}
# Makes a driver visible that is installed or replaced while the exporter runs.
- {name: driver, mountPath: {{ .mountPath }}, readOnly: true, mountPropagation: HostToContainer}
{{- end }}
{{- end }}
{{- end -}}

{{- define "gputally.exporter.podSecurity" -}}
{{- if include "gputally.exporter.root" . }}
runAsNonRoot: false
runAsUser: 0
runAsGroup: 0
{{- else }}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
{{- end }}
{{- with .Values.privileges.supplementalGroups }}
supplementalGroups: {{ toJson . }}
{{- end }}
{{- with .Values.privileges.seLinuxType }}
seLinuxOptions: {type: {{ . }}}
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* Takes (dict "context" $ "capabilities" (list)). Omits restrictions that conflict with `privileged`. */}}
{{- define "gputally.exporter.containerSecurity" -}}
{{- if .context.Values.privileges.privileged -}}
privileged: true
readOnlyRootFilesystem: true
{{- else -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  {{- with .capabilities }}
  add: {{ toJson . }}
  {{- end }}
{{- end -}}
{{- end -}}

{{/*
Terms of a node affinity; a node with any of these labels matches. First NFD by vendor (as the GPU operators configure
it) and by class and vendor (NFD's default): 10de is NVIDIA, 1002 AMD, 03xx a display controller, 12xx an accelerator.
Then the GPU operators and node labellers, and the cloud providers.
*/}}
{{- define "gputally.exporter.gpuNodes" -}}
{{- range $device := list "10de" "0300_10de" "0302_10de" "1002" "0300_1002" "0302_1002" "0380_1002" "1200_1002" }}
- matchExpressions: [{key: feature.node.kubernetes.io/pci-{{ $device }}.present, operator: In, values: ["true"]}]
{{- end }}
{{- range $key := list "feature.node.kubernetes.io/amd-gpu" "feature.node.kubernetes.io/amd-vgpu" "nvidia.com/gpu.present" }}
- matchExpressions: [{key: {{ $key }}, operator: In, values: ["true"]}]
{{- end }}
{{- range $key := list
      "amd.com/gpu.family" "beta.amd.com/gpu.family" "cloud.google.com/gke-accelerator"
      "k8s.amazonaws.com/accelerator" "kubernetes.azure.com/accelerator" }}
- matchExpressions: [{key: {{ $key }}, operator: Exists}]
{{- end }}
{{- range $key := list
      "eks.amazonaws.com/instance-gpu-manufacturer" "karpenter.azure.com/sku-gpu-manufacturer"
      "karpenter.k8s.aws/instance-gpu-manufacturer" }}
- matchExpressions: [{key: {{ $key }}, operator: In, values: [nvidia, amd]}]
{{- end }}
{{- end -}}

{{/*
The peers that may scrape, as a list; empty if none is known. A pod counts as a scraper only in a named namespace.
Labels: the Prometheus and VictoriaMetrics operators and charts, Grafana's charts alloy and k8s-monitoring, the
OpenTelemetry operator and chart, the Datadog operator and chart.
*/}}
{{- define "gputally.exporter.scrapers" -}}
{{- range $scraper := .Values.networkPolicy.scrapers }}
{{- $labels := get (dict
      "prometheus" (list (dict "app.kubernetes.io/name" "prometheus"))
      "prometheus-agent" (list (dict "app.kubernetes.io/name" "prometheus-agent"))
      "vmagent" (list (dict "app.kubernetes.io/name" "vmagent") (dict "app.kubernetes.io/name" "victoria-metrics-agent"))
      "alloy" (list (dict "app.kubernetes.io/name" "alloy") (dict "app.kubernetes.io/name" "alloy-metrics"))
      "opentelemetry" (list (dict "app.kubernetes.io/component" "opentelemetry-collector") (dict "app.kubernetes.io/name" "opentelemetry-collector"))
      "datadog" (list (dict "agent.datadoghq.com/component" "agent") (dict "app.kubernetes.io/component" "agent"))) $scraper }}
{{- range $labels }}
- namespaceSelector:
    matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: {{ toJson $.Values.networkPolicy.scraperNamespaces }}}]
  podSelector:
    matchLabels: {{ toJson . }}
{{- end }}
{{- end }}
{{- with .Values.networkPolicy.from }}
{{ toYaml . }}
{{- end }}
{{- if .Values.stack.enabled }}
- podSelector:
    matchLabels: {{ include "gputally.selectorLabels" (dict "context" $ "component" "prometheus") | fromYaml | toJson }}
{{- end }}
{{- end -}}

{{/* The selector labels of the exporter's pods, as a map in JSON. */}}
{{- define "gputally.exporter.selector" -}}
{{- include "gputally.selectorLabels" (dict "context" . "component" "exporter") | fromYaml | toJson -}}
{{- end -}}

{{/* The server name in the exporters' certificate. */}}
{{- define "gputally.exporter.serverName" -}}
{{- .Values.web.tls.serverName | default (printf "%s.%s.svc" (include "gputally.fullname" .) (include "gputally.namespace" .)) -}}
{{- end -}}

{{/* TLS and basic authentication in the operator's format: (dict "context" $ "scheme" "https"). */}}
{{- define "gputally.exporter.scrapeAccess" -}}
{{- with .context.Values.web }}
{{- if .tls.enabled }}
scheme: {{ $.scheme }}
tlsConfig:
  serverName: {{ include "gputally.exporter.serverName" $.context }}
  {{- if .tls.insecureSkipVerify }}
  insecureSkipVerify: true
  {{- else }}
  ca:
    secret: {name: {{ .tls.secret }}, key: ca.crt}
  {{- end }}
{{- end }}
{{- if .basicAuth.enabled }}
basicAuth:
  username: {name: {{ .basicAuth.secret }}, key: username}
  password: {name: {{ .basicAuth.secret }}, key: password}
{{- end }}
{{- end }}
{{- end -}}

{{/* Relabelings from a discovered pod to the labels of its series, the same for every kind of scrape object. */}}
{{- define "gputally.exporter.relabelings" -}}
- sourceLabels: [__meta_kubernetes_pod_phase]
  regex: Succeeded|Failed
  action: drop
- sourceLabels: [__meta_kubernetes_pod_node_name]
  targetLabel: node
# The node, not the pod's address: series continue when the exporter's pod is replaced.
- sourceLabels: [__meta_kubernetes_pod_node_name]
  targetLabel: instance
{{- with include "gputally.cluster" . }}
- targetLabel: cluster
  replacement: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* The same for ServiceMonitor and PodMonitor, to which the operator adds labels. */}}
{{- define "gputally.exporter.monitorRelabelings" -}}
{{- $settings := (include "gputally.rules.values" . | fromYaml).settings -}}
{{ include "gputally.exporter.relabelings" . }}
- targetLabel: job
  replacement: {{ $settings.job | quote }}
# The labels of the exporter's own pod: on a series of a GPU they would look like the pod that uses it.
- regex: namespace|service|endpoint|pod|container
  action: labeldrop
{{- end -}}

{{/* Mounts directories, never a socket: a restarted kubelet creates a new socket. */}}
{{- define "gputally.exporter.mounts" -}}
{{- with .Values.privileges }}
{{- if .podLogs }}
- {name: container-logs, mountPath: /var/log/containers, readOnly: true}
{{- end }}
{{- if .podLogDirectories }}
- {name: pod-logs, mountPath: /var/log/pods, readOnly: true}
{{- end }}
{{- if .podResources }}
- {name: pod-resources, mountPath: /var/lib/kubelet/pod-resources, readOnly: true}
{{- end }}
{{- if .kubeletPods }}
- {name: kubelet-pods, mountPath: /var/lib/kubelet/pods-api, readOnly: true}
{{- end }}
{{- end }}
{{- include "gputally.exporter.driverMount" . }}
{{- if ne .Values.state.volume "none" }}
- {name: state, mountPath: /var/lib/gputally}
{{- end }}
{{- if include "gputally.exporter.web" . }}
- {name: web-config, mountPath: /etc/gputally/web, readOnly: true}
{{- end }}
{{- if .Values.web.tls.enabled }}
- {name: tls, mountPath: /etc/gputally/tls, readOnly: true}
{{- end }}
{{- with .Values.exporter.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Creates missing directories, so that the exporter starts on every node and reports what is missing. */}}
{{- define "gputally.exporter.volumes" -}}
{{- with .Values.privileges }}
{{- if .podLogs }}
- {name: container-logs, hostPath: {path: /var/log/containers, type: DirectoryOrCreate}}
{{- end }}
{{- if .podLogDirectories }}
- {name: pod-logs, hostPath: {path: /var/log/pods, type: DirectoryOrCreate}}
{{- end }}
{{- $kubelet := trimSuffix "/" .kubeletDirectory }}
{{- if .podResources }}
- {name: pod-resources, hostPath: {path: {{ $kubelet }}/pod-resources, type: DirectoryOrCreate}}
{{- end }}
{{- if .kubeletPods }}
- {name: kubelet-pods, hostPath: {path: {{ $kubelet }}/pods-api, type: DirectoryOrCreate}}
{{- end }}
{{- end }}
{{- with .Values.driver.hostPath }}
- {name: driver, hostPath: {path: {{ . }}, type: DirectoryOrCreate}}
{{- end }}
{{- if eq .Values.state.volume "hostPath" }}
- {name: state, hostPath: {path: {{ .Values.state.hostPath }}, type: DirectoryOrCreate}}
{{- else if eq .Values.state.volume "emptyDir" }}
- {name: state, emptyDir: {}}
{{- end }}
{{- if include "gputally.exporter.web" . }}
- {name: web-config, secret: {secretName: {{ include "gputally.fullname" . }}-web}}
{{- end }}
{{- if .Values.web.tls.enabled }}
- {name: tls, secret: {secretName: {{ .Values.web.tls.secret }}}}
{{- end }}
{{- with .Values.exporter.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
