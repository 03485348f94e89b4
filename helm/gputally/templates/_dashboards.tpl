{{/* The names of the dashboards to install, as a list in JSON. */}}
{{- define "gputally.dashboards.names" -}}
{{- $names := list -}}
{{- range $path, $_ := .Files.Glob "dashboards/*.json" -}}
{{- $names = append $names (base $path | trimSuffix ".json") -}}
{{- end -}}
{{- .Values.dashboards.include | default $names | uniq | sortAlpha | toJson -}}
{{- end -}}
