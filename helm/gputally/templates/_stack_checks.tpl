{{/* A duration of Prometheus, as in 1m30s, in milliseconds. */}}
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
{{- fail (printf "rules.settings.scrapeTimeout: %s is longer than scrapeInterval, %s; Prometheus takes no such settings" $settings.scrapeTimeout $settings.scrapeInterval) -}}
{{- end -}}
{{- with .Values.stack -}}
{{- $grafana := .grafana -}}
{{- $prometheus := .prometheus -}}
{{- if and $grafana.ingress.enabled (not (and .enabled $grafana.enabled)) -}}
{{- fail "stack.grafana.ingress.enabled: there is no Grafana to reach; set stack.enabled (and stack.grafana.enabled)" -}}
{{- end -}}
{{- if and $prometheus.remoteWrite (not .enabled) -}}
{{- fail "stack.prometheus.remoteWrite: there is no Prometheus that writes; set stack.enabled, or have your own Prometheus write" -}}
{{- end -}}
{{- if .enabled -}}
{{- if and $grafana.ingress.enabled (not $grafana.ingress.host) -}}
{{- fail "stack.grafana.ingress.host: name the host, as in gpu.example.com" -}}
{{- end -}}
{{- if hasKey ($prometheus.externalLabels | default dict) "cluster" -}}
{{- fail "stack.prometheus.externalLabels.cluster: set `cluster` instead; it is on the series of this Prometheus, too" -}}
{{- end -}}
{{- if and $prometheus.persistence.enabled $prometheus.retentionSize -}}
{{- if gt (include "gputally.stack.bytes" $prometheus.retentionSize | float64) (include "gputally.stack.bytes" $prometheus.persistence.size | float64) -}}
{{- fail (printf "stack.prometheus.retentionSize: %s is more than persistence.size, %s; the disk would be full first" $prometheus.retentionSize $prometheus.persistence.size) -}}
{{- end -}}
{{- end -}}
{{- $jobs := list $settings.job (printf "%s-sidecars" $settings.job) -}}
{{- range include "gputally.stack.ownJobs" $ | fromJsonArray -}}
{{- if has .name $jobs -}}
{{- fail (printf "rules.settings.job: %s is the job of the stack's own %s; take another name" .name .name) -}}
{{- end -}}
{{- $jobs = append $jobs .name -}}
{{- end -}}
{{- range $prometheus.extraScrapeConfigs -}}
{{- if has .job_name $jobs -}}
{{- fail (printf "stack.prometheus.extraScrapeConfigs: there is a job %q already; Prometheus takes each name once" .job_name) -}}
{{- end -}}
{{- $jobs = append $jobs .job_name -}}
{{- end -}}
{{- range $prometheus.extraArgs -}}
{{- $flag := index (splitList "=" .) 0 -}}
{{- if has $flag (list "--config.file" "--config.auto-reload" "--storage.tsdb.path" "--web.external-url") -}}
{{- fail (printf "stack.prometheus.extraArgs: the chart sets %s itself" $flag) -}}
{{- end -}}
{{- if hasPrefix "--storage.tsdb.retention" $flag -}}
{{- fail (printf "stack.prometheus.extraArgs: instead of %s, set retention and retentionSize" $flag) -}}
{{- end -}}
{{- end -}}
{{- range $writer := $prometheus.remoteWrite -}}
{{- range $part, $key := dict "basic_auth" "password" "authorization" "credentials" "oauth2" "client_secret" -}}
{{- if hasKey (get $writer $part | default dict) $key -}}
{{- fail (printf "stack.prometheus.remoteWrite: %s.%s would stand in a ConfigMap for all to read; have it in a Secret, name that in stack.prometheus.secrets, and give %s.%s_file" $part $key $part $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
