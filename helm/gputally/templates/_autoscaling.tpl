{{/*
What KEDA asks: the use of all pods of the target, in per cent. A sum, since KEDA divides it by the number of
replicas; pods are told by the names that their controllers give them, for which nobody needs to ask the API.
In per cent, since KEDA 2.14 to 2.17 cuts a threshold off to a whole number when it falls back.
*/}}
{{- define "gputally.autoscaling.query" -}}
{{- $cluster := include "gputally.cluster" . -}}
{{- with .Values.autoscaling.keda.target -}}
sum(pod:gputally_utilization:ratio{ {{- with $cluster }}cluster={{ . | quote }},{{ end -}}
namespace={{ .namespace | default (include "gputally.namespace" $) | quote -}}
,pod=~{{ include "gputally.autoscaling.podNames" . | quote }}}) * 100
{{- end -}}
{{- end -}}

{{/*
A regular expression of the names of a workload's pods. A random part has no vowels and no 0, 1 or 3, so
`ranker-canary-...` is none of `ranker`. Of a name that is too long for more, 58 characters are left before the
last five.
*/}}
{{- define "gputally.autoscaling.podNames" -}}
{{- $random := "[bcdfghjklmnpqrstvwxz2456789]" -}}
{{- $name := .name | replace "." "[.]" -}}
{{- if eq .kind "StatefulSet" -}}
{{- $name }}-[0-9]+
{{- else if gt (len .name) 46 -}}
{{- .name | trunc 58 | replace "." "[.]" }}-?{{ $random }}*-?{{ $random }}{5}
{{- else -}}
{{- $name }}-{{ $random }}{1,10}-{{ $random }}{5}
{{- end -}}
{{- end -}}

{{- define "gputally.validate.autoscaling" -}}
{{- $keda := .Values.autoscaling.keda -}}
{{- if $keda.enabled -}}
{{- if not $keda.target.name -}}
{{- fail "autoscaling.keda.target.name: say which Deployment or StatefulSet is scaled" -}}
{{- end -}}
{{- if not (include "gputally.prometheusUrl" .) -}}
{{- fail "autoscaling.keda.enabled: set prometheusUrl to where Prometheus answers, or stack.enabled" -}}
{{- end -}}
{{- if gt (int $keda.minReplicas) (int $keda.maxReplicas) -}}
{{- fail (printf "autoscaling.keda.minReplicas: %d is more than autoscaling.keda.maxReplicas, %d" (int $keda.minReplicas) (int $keda.maxReplicas)) -}}
{{- end -}}
{{- if or (lt (int $keda.fallbackReplicas) (int $keda.minReplicas)) (gt (int $keda.fallbackReplicas) (int $keda.maxReplicas)) -}}
{{- fail (printf "autoscaling.keda.fallbackReplicas: %d is not between minReplicas and maxReplicas, %d and %d" (int $keda.fallbackReplicas) (int $keda.minReplicas) (int $keda.maxReplicas)) -}}
{{- end -}}
{{- end -}}
{{- if or $keda.enabled .Values.autoscaling.prometheusAdapter.enabled -}}
{{- $groups := (include "gputally.rules.values" . | fromYaml).groups -}}
{{- range list "gputally-devices" "gputally-owners" -}}
{{- if not (index $groups .).enabled -}}
{{- fail (printf "rules.groups.%s.enabled: autoscaling reads what this group records; leave it on" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
