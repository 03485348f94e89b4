{{/* The names of the dashboards to install, as a list in JSON. */}}
{{- define "gputally.dashboards.names" -}}
{{- $names := list -}}
{{- range $path, $_ := .Files.Glob "dashboards/*.json" -}}
{{- $names = append $names (base $path | trimSuffix ".json") -}}
{{- end -}}
{{- .Values.dashboards.include | default $names | uniq | sortAlpha | toJson -}}
{{- end -}}

{{/* The JSON of the dashboard `name`: of Node and GPU, with the link to the live page. */}}
{{- define "gputally.dashboards.text" -}}
{{- $text := .context.Files.Get (printf "dashboards/%s.json" .name) | trimSuffix "\n" -}}
{{- $url := .context.Values.dashboards.livePageUrl -}}
{{- if and $url (eq .name "node") -}}
{{- $link := dict "title" "Live page" "type" "link" "icon" "bolt" "tooltip" "The node as its exporter sees it now" "url" $url "tags" list "asDropdown" false "includeVars" false "keepTime" false "targetBlank" true -}}
{{- $begin := "\n \"links\": [\n" -}}
{{- $text = replace $begin (printf "%s  %s,\n" $begin (toJson $link)) $text -}}
{{- end -}}
{{- $text -}}
{{- end -}}
