{{/* NOTES.txt: installed parts, commands to open them, warnings. */}}
{{- define "gputally.notes" -}}
{{- $name := include "gputally.fullname" . -}}
{{- $namespace := include "gputally.namespace" . -}}
{{- $stack := .Values.stack -}}
{{- $scheme := ternary "https" "http" .Values.web.tls.enabled -}}
GPUTally {{ .Chart.AppVersion }} in namespace {{ $namespace }}:
{{- range include "gputally.notes.parts" . | fromJsonArray }}
  - {{ . }}
{{- end }}
{{- if .Values.exporter.enabled }}

Metrics of one node:
  kubectl port-forward --namespace {{ $namespace }} daemonset/{{ $name }} {{ int .Values.exporter.port }}
  {{ $scheme }}://localhost:{{ int .Values.exporter.port }}
{{- end }}
{{- if and $stack.enabled $stack.grafana.enabled }}

Grafana, with {{ ternary (printf "the user and password in the Secret %s" $stack.grafana.admin.secret) "the user admin" (ne $stack.grafana.admin.secret "") }}:
  kubectl port-forward --namespace {{ $namespace }} service/{{ $name }}-grafana 3000:80
  http://localhost:3000{{ include "gputally.stack.grafanaPath" . }}
{{- if not $stack.grafana.admin.secret }}
Its password is generated at the first start:
  kubectl exec --namespace {{ $namespace }} --container grafana statefulset/{{ $name }}-grafana -- cat /var/lib/grafana/admin-password
{{- end }}
{{- end }}

Test the installation:
  helm test {{ .Release.Name }} --namespace {{ .Release.Namespace }}
{{- with include "gputally.notes.warnings" . | fromJsonArray }}

Warnings:
{{- range . }}
  - {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The installed parts, as a list in JSON. */}}
{{- define "gputally.notes.parts" -}}
{{- $parts := list -}}
{{- $scrapers := list -}}
{{- range $key, $kind := dict "scrapeConfig" "ScrapeConfig" "serviceMonitor" "ServiceMonitor" "podMonitor" "PodMonitor" -}}
{{- if (get $.Values $key).enabled -}}
{{- $scrapers = append $scrapers (printf "scraped by a %s" $kind) -}}
{{- end -}}
{{- end -}}
{{- if .Values.stack.enabled -}}
{{- $scrapers = append $scrapers "scraped by the stack's Prometheus" -}}
{{- end -}}
{{- if .Values.exporter.enabled -}}
{{- $parts = append $parts (printf "the exporter on %s%s" (ternary "every GPU node" "every node" .Values.exporter.gpuNodesOnly) (ternary "" (printf ", %s" (join ", and " $scrapers)) (empty $scrapers))) -}}
{{- with .Values.networkPolicy -}}
{{- $admitted := list -}}
{{- with .scrapers -}}
{{- $admitted = append $admitted (printf "%s in %s" (join ", " .) (join ", " $.Values.networkPolicy.scraperNamespaces)) -}}
{{- end -}}
{{- if .from -}}
{{- $admitted = append $admitted "the peers of networkPolicy.from" -}}
{{- end -}}
{{- if $.Values.stack.enabled -}}
{{- $admitted = append $admitted "the stack's Prometheus" -}}
{{- end -}}
{{- if and .enabled $admitted -}}
{{- $parts = append $parts (printf "a NetworkPolicy: only %s and `helm test` can reach the exporter" (join ", " $admitted)) -}}
{{- else -}}
{{- $parts = append $parts "no restriction of who reads the metrics: every pod of the cluster can; name your scrapers in networkPolicy.scrapers and networkPolicy.scraperNamespaces" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if .Values.stack.enabled -}}
{{- $parts = append $parts (printf "Prometheus%s%s, with GPUTally's rules and dashboards" (ternary ", Alertmanager" "" .Values.stack.alertmanager.enabled) (ternary ", Grafana" "" .Values.stack.grafana.enabled)) -}}
{{- end -}}
{{- if .Values.prometheusRule.enabled -}}
{{- $parts = append $parts "alerts and recording rules (PrometheusRule)" -}}
{{- end -}}
{{- if .Values.alertmanagerConfig.enabled -}}
{{- $parts = append $parts "routes (AlertmanagerConfig)" -}}
{{- end -}}
{{- with .Values.dashboards -}}
{{- if or .configMaps.enabled .grafanaOperator.enabled .openShiftConsole.enabled -}}
{{- $parts = append $parts "dashboards" -}}
{{- end -}}
{{- end -}}
{{- toJson $parts -}}
{{- end -}}

{{/* Warnings of one line each, as a list in JSON. Only these depend on the APIs of the cluster. */}}
{{- define "gputally.notes.warnings" -}}
{{- $values := .Values -}}
{{- $warnings := list -}}
{{- $scraping := or $values.scrapeConfig.enabled $values.serviceMonitor.enabled $values.podMonitor.enabled -}}
{{- $apis := list
      (list $values.scrapeConfig.enabled "scrapeConfig.enabled" "monitoring.coreos.com/v1alpha1" "ScrapeConfig" "the Prometheus operator 0.65 or newer")
      (list $values.serviceMonitor.enabled "serviceMonitor.enabled" "monitoring.coreos.com/v1" "ServiceMonitor" "the Prometheus operator")
      (list (or $values.podMonitor.enabled $values.podMonitor.sidecars.enabled $values.podMonitor.pods.enabled) "podMonitor" "monitoring.coreos.com/v1" "PodMonitor" "the Prometheus operator")
      (list $values.prometheusRule.enabled "prometheusRule.enabled" "monitoring.coreos.com/v1" "PrometheusRule" "the Prometheus operator")
      (list $values.alertmanagerConfig.enabled "alertmanagerConfig.enabled" "monitoring.coreos.com/v1alpha1" "AlertmanagerConfig" "the Prometheus operator")
      (list $values.dashboards.grafanaOperator.enabled "dashboards.grafanaOperator.enabled" "grafana.integreatly.org/v1beta1" "GrafanaDashboard" "the Grafana operator")
      (list (or $values.argoWorkflows.sidecar.enabled $values.argoWorkflows.stressTest.enabled) "argoWorkflows" "argoproj.io/v1alpha1" "WorkflowTemplate" "Argo Workflows")
      (list $values.autoscaling.keda.enabled "autoscaling.keda.enabled" "keda.sh/v1alpha1" "ScaledObject" "KEDA")
      (list $values.securityContextConstraints.enabled "securityContextConstraints.enabled" "security.openshift.io/v1" "SecurityContextConstraints" "OpenShift") -}}
{{- range $api := $apis -}}
{{- $version := printf "%s/%s" (index $api 2) (index $api 3) -}}
{{- if and (index $api 0) (not ($.Capabilities.APIVersions.Has $version)) -}}
{{- $warnings = append $warnings (printf "%s: this cluster has no API %s; install %s" (index $api 1) $version (index $api 4)) -}}
{{- end -}}
{{- end -}}
{{- $objects := list
      (list $values.scrapeConfig.enabled "scrapeConfig" $values.scrapeConfig.additionalLabels)
      (list $values.serviceMonitor.enabled "serviceMonitor" $values.serviceMonitor.additionalLabels)
      (list (or $values.podMonitor.enabled $values.podMonitor.sidecars.enabled $values.podMonitor.pods.enabled) "podMonitor" $values.podMonitor.additionalLabels)
      (list $values.prometheusRule.enabled "prometheusRule" $values.prometheusRule.additionalLabels) -}}
{{- $unlabelled := list -}}
{{- range $objects -}}
{{- if and (first .) (not (hasKey ($values.commonLabels | default dict) "release")) (not (hasKey (last . | default dict) "release")) -}}
{{- $unlabelled = append $unlabelled (index . 1) -}}
{{- end -}}
{{- end -}}
{{- if and $unlabelled (not $values.securityContextConstraints.enabled) -}}
{{- $warnings = append $warnings (printf "%s: no label `release`; kube-prometheus-stack selects objects whose label `release` is the name of its release. Set commonLabels.release" (join ", " $unlabelled)) -}}
{{- end -}}
{{- if and $values.exporter.enabled (not $scraping) (not $values.stack.enabled) -}}
{{- $warnings = append $warnings "nothing scrapes the exporter: set stack.enabled, or enable one of scrapeConfig, serviceMonitor and podMonitor, or configure your own Prometheus" -}}
{{- end -}}
{{- if and $values.exporter.enabled (or $values.podMonitor.sidecars.enabled (and $values.stack.enabled $values.argoWorkflows.sidecar.enabled)) -}}
{{- $warnings = append $warnings "sidecars are scraped in addition to the exporter of their node: the use of their pods is counted twice (docs/argo.md)" -}}
{{- end -}}
{{- $reasons := include "gputally.notes.privileged" . | fromJsonArray -}}
{{- if $reasons -}}
{{- $warnings = append $warnings (printf "%s: if Pod Security is enforced, run `kubectl label namespace %s pod-security.kubernetes.io/enforce=privileged`" (join ", " $reasons) (include "gputally.namespace" .)) -}}
{{- end -}}
{{- if and (or $values.alertmanagerConfig.enabled (and $values.stack.enabled $values.stack.alertmanager.enabled)) (not $values.routing.default) -}}
{{- $some := or $values.routing.critical $values.routing.namespaces -}}
{{- $warnings = append $warnings (printf "routing.default: no receiver is set; no message is sent for %s" (ternary "alerts without another route" "any alert" (not (empty $some)))) -}}
{{- end -}}
{{- if and $values.exporter.enabled $values.web.basicAuth.enabled (not $values.web.tls.enabled) -}}
{{- $warnings = append $warnings "web.basicAuth: without web.tls.enabled the password is sent unencrypted" -}}
{{- end -}}
{{- toJson $warnings -}}
{{- end -}}

{{/* The values that Pod Security allows only at the level `privileged`, as a list in JSON. */}}
{{- define "gputally.notes.privileged" -}}
{{- $reasons := list -}}
{{- if .Values.exporter.enabled -}}
{{- with .Values.privileges -}}
{{- range $key := list "hostPID" "accounting" "capabilities" "privileged" -}}
{{- if get $.Values.privileges $key -}}
{{- $reasons = append $reasons (printf "privileges.%s" $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range include "gputally.exporter.volumes" . | fromYamlArray -}}
{{- if and .hostPath (not (has "hostPath volumes" $reasons)) -}}
{{- $reasons = append $reasons "hostPath volumes" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $reasons -}}
{{- end -}}
