{{/* The name of everything in this release: two releases in one namespace do not collide. */}}
{{- define "gputally.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "gputally.selectorLabels" -}}
app.kubernetes.io/name: gputally
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "gputally.labels" -}}
{{ include "gputally.selectorLabels" . }}
app.kubernetes.io/part-of: gputally
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}
