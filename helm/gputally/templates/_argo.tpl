{{/* The release's namespace and `namespaces`, without duplicates: (dict "context" $ "namespaces" (list)). */}}
{{- define "gputally.argo.namespaces" -}}
{{- prepend (.namespaces | default list) (include "gputally.namespace" .context) | uniq | toJson -}}
{{- end -}}

{{/* The exporter as an entry of `sidecars:`. Argo wraps the command in its own executor, so it must be set. */}}
{{- define "gputally.argo.sidecar" -}}
{{- $sidecar := .Values.argoWorkflows.sidecar -}}
name: gputally
image: {{ include "gputally.image" (dict "context" . "image" .Values.image "tag" .Chart.AppVersion) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
command: [gputally]
args:
  - serve
  - --sidecar
  - --reader={{ $sidecar.reader }}
  - --interval={{ .Values.exporter.interval }}
  - --port={{ int .Values.exporter.port }}
  - --pod-labels={{ append (.Values.kubernetes.podLabels | default list) "workflows.argoproj.io/workflow" | uniq | join "," }}
  - --log-level={{ .Values.exporter.logLevel }}
  - --log-format={{ .Values.exporter.logFormat }}
env:
  - {name: GPUTALLY_POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  - {name: GPUTALLY_POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
  - {name: GPUTALLY_POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
  - {name: GPUTALLY_NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
  - {name: GPUTALLY_CONTAINER_NAME, value: main}
  # A GPU request would block a GPU. With `all` it reads the GPUs of the node, and the processes of its own pod.
  - {name: NVIDIA_VISIBLE_DEVICES, value: all}
  - {name: NVIDIA_DRIVER_CAPABILITIES, value: utility}
ports:
  - {name: {{ .Values.podMonitor.sidecars.port | quote }}, containerPort: {{ int .Values.exporter.port }}}
volumeMounts:
  - {name: gputally-podinfo, mountPath: /etc/podinfo, readOnly: true}
{{- with $sidecar.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "gputally.argo.restricted" . | nindent 2 }}
{{- end -}}

{{/* `volumes:` of a template with the sidecar: the labels of its own pod, from the downward API. */}}
{{- define "gputally.argo.sidecarVolumes" -}}
- name: gputally-podinfo
  downwardAPI:
    items:
      - {path: labels, fieldRef: {fieldPath: metadata.labels}}
{{- end -}}

{{/* For pods that the chart does not define, where the pod's security context cannot be set. */}}
{{- define "gputally.argo.restricted" -}}
{{ include "gputally.restricted" . }}
runAsNonRoot: true
runAsUser: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "gputally.validate.argo" -}}
{{- if and .Values.argoWorkflows.stressTest.enabled (not (include "gputally.prometheusUrl" .)) -}}
{{- fail "argoWorkflows.stressTest.enabled: requires a Prometheus; set prometheusUrl or stack.enabled" -}}
{{- end -}}
{{- if and .Values.argoWorkflows.stressTest.enabled (not .Values.argoWorkflows.stressTest.command) -}}
{{- fail "argoWorkflows.stressTest.command: required by Argo; set the command that generates the load" -}}
{{- end -}}
{{- end -}}
