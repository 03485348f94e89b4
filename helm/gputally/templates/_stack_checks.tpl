{{/* A Prometheus duration such as 1m30s, in milliseconds. */}}
{{- define "gputally.stack.milliseconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000 "w" 604800000 "y" 31536000000 -}}
{{- $sum := 0 -}}
{{- range regexFindAll "[0-9]+(ms|[smhdwy])" (toString .) -1 -}}
{{- $sum = add $sum (mul (regexFind "^[0-9]+" .) (get $units (regexFind "[a-z]+$" .))) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{- define "gputally.validate.stack" -}}
{{- $settings := (include "gputally.rules.values" . | fromYaml).settings -}}
{{- if gt (include "gputally.stack.milliseconds" $settings.scrapeTimeout | int64) (include "gputally.stack.milliseconds" $settings.scrapeInterval | int64) -}}
{{- fail (printf "rules.settings.scrapeTimeout: %s is longer than rules.settings.scrapeInterval, %s; Prometheus refuses this" $settings.scrapeTimeout $settings.scrapeInterval) -}}
{{- end -}}
{{- with .Values.stack -}}
{{- $grafana := .grafana -}}
{{- $prometheus := .prometheus -}}
{{- if and $grafana.ingress.enabled (not (and .enabled $grafana.enabled)) -}}
{{- fail "stack.grafana.ingress.enabled: requires stack.enabled and stack.grafana.enabled" -}}
{{- end -}}
{{- if and $prometheus.remoteWrite (not .enabled) -}}
{{- fail "stack.prometheus.remoteWrite: requires stack.enabled; otherwise configure remote write in your own Prometheus" -}}
{{- end -}}
{{- if .enabled -}}
{{- if and $grafana.ingress.enabled (not $grafana.ingress.host) -}}
{{- fail "stack.grafana.ingress.host: required with stack.grafana.ingress.enabled, for example gpu.example.com" -}}
{{- end -}}
{{- if hasKey ($prometheus.externalLabels | default dict) "cluster" -}}
{{- fail "stack.prometheus.externalLabels.cluster: set the value `cluster` instead; it also labels the series in this Prometheus" -}}
{{- end -}}
{{- if and $prometheus.persistence.enabled $prometheus.retentionSize -}}
{{- if gt (include "gputally.stack.bytes" $prometheus.retentionSize | float64) (include "gputally.stack.bytes" $prometheus.persistence.size | float64) -}}
{{- fail (printf "stack.prometheus.retentionSize: %s is larger than stack.prometheus.persistence.size, %s; the volume would fill up first" $prometheus.retentionSize $prometheus.persistence.size) -}}
{{- end -}}
{{- end -}}
{{- $jobs := list $settings.job (printf "%s-sidecars" $settings.job) -}}
{{- range include "gputally.stack.ownJobs" $ | fromJsonArray -}}
{{- if has .name $jobs -}}
{{- fail (printf "rules.settings.job: %s is the job name of the stack's %s; use another name" .name .name) -}}
{{- end -}}
{{- $jobs = append $jobs .name -}}
{{- end -}}
{{- range $prometheus.extraScrapeConfigs -}}
{{- if has .job_name $jobs -}}
{{- fail (printf "stack.prometheus.extraScrapeConfigs: the job %q exists already; job names must be unique" .job_name) -}}
{{- end -}}
{{- $jobs = append $jobs .job_name -}}
{{- end -}}
{{- range $prometheus.extraArgs -}}
{{- $flag := index (splitList "=" .) 0 -}}
{{- if has $flag (list "--config.file" "--config.auto-reload" "--storage.tsdb.path" "--web.external-url") -}}
{{- fail (printf "stack.prometheus.extraArgs: remove %s; the chart sets it" $flag) -}}
{{- end -}}
{{- if hasPrefix "--storage.tsdb.retention" $flag -}}
{{- fail (printf "stack.prometheus.extraArgs: remove %s; set stack.prometheus.retention and stack.prometheus.retentionSize" $flag) -}}
{{- end -}}
{{- end -}}
{{- range $writer := $prometheus.remoteWrite -}}
{{- range $part, $key := dict "basic_auth" "password" "authorization" "credentials" "oauth2" "client_secret" -}}
{{- if hasKey (get $writer $part | default dict) $key -}}
{{- fail (printf "stack.prometheus.remoteWrite: %s.%s would be readable in a ConfigMap; put it into a Secret, add the Secret to stack.prometheus.secrets, and set %s.%s_file" $part $key $part $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
