{{/*
Every template calls this first. `helm upgrade --reuse-values` passes the values of the older chart, which lack the
keys that are new in this one: their defaults are added from files/values.yaml, a copy of values.yaml. With values of
this chart's version nothing is added, so that a default can be removed with null.
*/}}
{{- define "gputally.defaults" -}}
{{- if ne (toString .Values.defaultsVersion) .Chart.Version -}}
{{- $values := mergeOverwrite (.Files.Get "files/values.yaml" | fromYaml) (deepCopy .Values) -}}
{{- range $key, $value := $values -}}
{{- $_ := set $.Values $key $value -}}
{{- end -}}
{{- $_ := set .Values "defaultsVersion" .Chart.Version -}}
{{- end -}}
{{- include "gputally.teams" . -}}
{{- end -}}

{{/* Adds the receivers and budgets of .Values.teams to .Values.routing and .Values.rules, whose own entries win. */}}
{{- define "gputally.teams" -}}
{{- $receivers := dict -}}
{{- $budgets := dict -}}
{{- range $team := .Values.teams -}}
{{- with and .receiver .namespaces -}}
{{- $_ := set $receivers (join "|" . | replace "*" ".*" | replace "?" ".") $team.receiver -}}
{{- end -}}
{{- if hasKey $team "namespaceBudget" -}}
{{- range .namespaces -}}
{{- if not (regexMatch "[*?]" .) -}}
{{- $_ := set $budgets . $team.namespaceBudget -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $receivers -}}
{{- $_ := set $.Values.routing "namespaces" (merge (deepCopy ($.Values.routing.namespaces | default dict)) .) -}}
{{- end -}}
{{- with $budgets -}}
{{- $rules := dict "tables" (dict "namespaceBudgets" .) -}}
{{- $_ := set $.Values "rules" (mergeOverwrite $rules (deepCopy ($.Values.rules | default dict))) -}}
{{- end -}}
{{- end -}}

{{- define "gputally.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of the release's objects, unique per namespace. 39 characters leave room for suffixes such as "-alertmanager". */}}
{{- define "gputally.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 39 | trimSuffix "-" -}}
{{- else if contains (include "gputally.name" .) .Release.Name -}}
{{- .Release.Name | trunc 39 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "gputally.name" .) | trunc 39 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "gputally.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{/* The name of cluster-scoped objects: unique for releases with the same name in different namespaces. */}}
{{- define "gputally.clusterName" -}}
{{- printf "%s.%s" (include "gputally.namespace" .) (include "gputally.fullname" .) -}}
{{- end -}}

{{- define "gputally.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "gputally.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{/* Takes (dict "context" $ "component" "exporter"). */}}
{{- define "gputally.selectorLabels" -}}
app.kubernetes.io/name: {{ include "gputally.name" .context }}
app.kubernetes.io/instance: {{ .context.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Takes (dict "context" $ "component" "exporter"). */}}
{{- define "gputally.labels" -}}
{{ include "gputally.selectorLabels" . }}
app.kubernetes.io/part-of: gputally
app.kubernetes.io/version: {{ .context.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .context.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .context.Chart.Name .context.Chart.Version | replace "+" "_" }}
{{- with .context.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
The metadata of an object: (dict "context" $ "component" "exporter"). Optional keys: "suffix" (appended to the name),
"name" (replaces it), "namespace", "labels", "annotations", and "clusterScoped" true.
*/}}
{{- define "gputally.metadata" -}}
{{- $suffix := .suffix | default "" -}}
name: {{ .name | default (printf "%s%s" (include (ternary "gputally.clusterName" "gputally.fullname" (.clusterScoped | default false)) .context) (ternary (printf "-%s" $suffix) "" (ne $suffix ""))) }}
{{- if not .clusterScoped }}
namespace: {{ .namespace | default (include "gputally.namespace" .context) }}
{{- end }}
labels:
  {{- $labels := include "gputally.labels" . | fromYaml }}
  {{- toYaml (mergeOverwrite $labels (deepCopy (.labels | default dict))) | nindent 2 }}
{{- with mergeOverwrite (dict) (deepCopy (.context.Values.commonAnnotations | default dict)) (deepCopy (.annotations | default dict)) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Takes (dict "context" $ "image" .Values.image "tag" .Chart.AppVersion). */}}
{{- define "gputally.image" -}}
{{- $registry := .image.registry | default .context.Values.global.imageRegistry -}}
{{- with $registry }}{{ . | trimSuffix "/" }}/{{ end -}}
{{- .image.repository -}}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ .image.tag | default .tag }}{{ end -}}
{{- end -}}

{{/* `imagePullSecrets:` of a pod, or empty. */}}
{{- define "gputally.imagePullSecrets" -}}
{{- with .Values.global.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* The label `cluster` of every series. */}}
{{- define "gputally.cluster" -}}
{{- .Values.scrapeConfig.cluster | default .Values.cluster -}}
{{- end -}}

{{/* The URL of Prometheus, or empty. */}}
{{- define "gputally.prometheusUrl" -}}
{{- if .Values.prometheusUrl -}}
{{- .Values.prometheusUrl | trimSuffix "/" -}}
{{- else if .Values.stack.enabled -}}
{{- printf "http://%s-prometheus.%s:9090" (include "gputally.fullname" .) (include "gputally.namespace" .) -}}
{{- end -}}
{{- end -}}

{{/* The security context of a container without privileges. */}}
{{- define "gputally.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}
