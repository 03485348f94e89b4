{{/*
KEDA's query: the utilisation of all pods of the target, in per cent. A sum, because KEDA divides it by the number of
replicas. Pods are matched by name, so `workload` from the API server is not needed.
In per cent, because KEDA 2.14 to 2.17 truncates the threshold to an integer in the fallback.
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
A regular expression for the names of a workload's pods. The random parts have no vowels and no 0, 1 or 3, so
`ranker-canary-...` does not match `ranker`. Kubernetes truncates long names to 58 characters before the last five.
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
{{- fail "autoscaling.keda.target.name: required with autoscaling.keda.enabled; set the name of the Deployment or StatefulSet" -}}
{{- end -}}
{{- if not (include "gputally.prometheusUrl" .) -}}
{{- fail "autoscaling.keda.enabled: requires a Prometheus; set prometheusUrl or stack.enabled" -}}
{{- end -}}
{{- if gt (int $keda.minReplicas) (int $keda.maxReplicas) -}}
{{- fail (printf "autoscaling.keda.minReplicas: %d is greater than autoscaling.keda.maxReplicas, %d" (int $keda.minReplicas) (int $keda.maxReplicas)) -}}
{{- end -}}
{{- if or (lt (int $keda.fallbackReplicas) (int $keda.minReplicas)) (gt (int $keda.fallbackReplicas) (int $keda.maxReplicas)) -}}
{{- fail (printf "autoscaling.keda.fallbackReplicas: %d is not between minReplicas, %d, and maxReplicas, %d" (int $keda.fallbackReplicas) (int $keda.minReplicas) (int $keda.maxReplicas)) -}}
{{- end -}}
{{- end -}}
{{- if or $keda.enabled .Values.autoscaling.prometheusAdapter.enabled -}}
{{- $groups := (include "gputally.rules.values" . | fromYaml).groups -}}
{{- range list "gputally-devices" "gputally-owners" -}}
{{- if not (index $groups .).enabled -}}
{{- fail (printf "rules.groups.%s.enabled: must be true; autoscaling queries the recording rules of this group" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
