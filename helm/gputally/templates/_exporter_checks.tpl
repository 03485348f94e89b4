{{- define "gputally.validate.exporter" -}}
{{- $values := .Values -}}
{{- $scrapers := list -}}
{{- range $name := list "scrapeConfig" "serviceMonitor" "podMonitor" -}}
{{- if (get $values $name).enabled -}}
{{- $scrapers = append $scrapers (printf "%s.enabled" $name) -}}
{{- end -}}
{{- end -}}
{{- if gt (len $scrapers) 1 -}}
{{- fail (printf "%s: choose one, or everything is scraped twice" (join " and " $scrapers)) -}}
{{- end -}}
{{- with $values.dashboards -}}
{{- $any := or $values.exporter.enabled $values.stack.enabled $values.prometheusRule.enabled $values.alertmanagerConfig.enabled .configMaps.enabled .grafanaOperator.enabled .openShiftConsole.enabled $values.podMonitor.sidecars.enabled $values.podMonitor.pods.enabled $values.argoWorkflows.sidecar.enabled $values.argoWorkflows.stressTest.enabled $values.autoscaling.prometheusAdapter.enabled $values.autoscaling.keda.enabled $values.extraObjects -}}
{{- if not $any -}}
{{- fail "nothing is enabled: set exporter.enabled, or whatever else is wanted" -}}
{{- end -}}
{{- end -}}
{{- range $where := list (list "commonLabels" ($values.commonLabels | default dict)) (list "exporter.podLabels" ($values.exporter.podLabels | default dict)) -}}
{{- range $label := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" -}}
{{- if hasKey (last $where) $label -}}
{{- fail (printf "%s: %s is the chart's own, by which it finds its pods; take another label" (first $where) $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $values.exporter.enabled -}}
{{- include "gputally.validate.exporter.enabled" . -}}
{{- else if $scrapers -}}
{{- fail (printf "%s: there is nothing to scrape while exporter.enabled is false" (first $scrapers)) -}}
{{- else if $values.securityContextConstraints.enabled -}}
{{- fail "securityContextConstraints.enabled: there is nobody to give them to while exporter.enabled is false" -}}
{{- end -}}
{{- end -}}

{{- define "gputally.validate.exporter.enabled" -}}
{{- $values := .Values -}}
{{- if and $values.serviceMonitor.enabled (not $values.service.enabled) -}}
{{- fail "serviceMonitor.enabled: it looks for a Service; set service.enabled, or take podMonitor or scrapeConfig" -}}
{{- end -}}
{{- with $values.web -}}
{{- if and .tls.enabled (not .tls.secret) -}}
{{- fail "web.tls.secret: name the Secret with tls.crt and tls.key" -}}
{{- end -}}
{{- if and .basicAuth.enabled (not .basicAuth.users) -}}
{{- fail "web.basicAuth.users: without a user nobody can log in; set USER: HASH, as `htpasswd -nBC 10 USER` prints it" -}}
{{- end -}}
{{- if and .basicAuth.enabled (not .basicAuth.secret) -}}
{{- fail "web.basicAuth.secret: name the Secret with username and password, for the scraper" -}}
{{- end -}}
{{- if and (or .tls.secret .tls.serverName .tls.insecureSkipVerify) (not .tls.enabled) -}}
{{- fail "web.tls: it is set but not on; set web.tls.enabled" -}}
{{- end -}}
{{- if and (or .basicAuth.users .basicAuth.secret) (not .basicAuth.enabled) -}}
{{- fail "web.basicAuth: it is set but not on; set web.basicAuth.enabled" -}}
{{- end -}}
{{- if and .basicAuth.enabled (not .tls.enabled) (eq $values.service.type "NodePort") -}}
{{- fail "web.basicAuth.enabled with service.type NodePort: passwords would leave the cluster in the clear; set web.tls.enabled too" -}}
{{- end -}}
{{- end -}}
{{- with $values.kubernetes -}}
{{- range $list := list "podLabels" "podAnnotations" -}}
{{- if and (get $values.kubernetes $list) (not $values.kubernetes.enabled) (not $values.privileges.kubeletPods) -}}
{{- fail (printf "kubernetes.%s: nothing reads them; set kubernetes.enabled (or privileges.kubeletPods, with a kubelet of 1.37 or newer)" $list) -}}
{{- end -}}
{{- end -}}
{{- if and .nodeLabels (not .enabled) -}}
{{- fail "kubernetes.nodeLabels: only the API server knows them; set kubernetes.enabled" -}}
{{- end -}}
{{- if and .enabled (not $values.rbac.create) $values.serviceAccount.create -}}
{{- fail "kubernetes.enabled without rbac.create: nobody can have given a role to an account that the chart makes; set rbac.create, or serviceAccount.create false with serviceAccount.name" -}}
{{- end -}}
{{- end -}}
{{- if and (not $values.serviceAccount.create) (not $values.serviceAccount.name) $values.kubernetes.enabled -}}
{{- fail "serviceAccount.name: name the account that serviceAccount.create false leaves to you; the namespace's default one would get the role" -}}
{{- end -}}
{{- if and (eq $values.state.volume "hostPath") (not $values.state.hostPath) -}}
{{- fail "state.hostPath: name a folder of the node, or set state.volume to emptyDir or none" -}}
{{- end -}}
{{- with $values.driver -}}
{{- if and .hostPath (not .mountPath) -}}
{{- fail "driver.mountPath: say where the container has driver.hostPath" -}}
{{- end -}}
{{- if and .libraries (not .hostPath) -}}
{{- fail "driver.libraries: they are looked for below driver.hostPath; set it" -}}
{{- end -}}
{{- end -}}
{{- with $values.privileges -}}
{{- if and .privileged .capabilities -}}
{{- fail "privileges.capabilities: a privileged container has all of them; leave them out, or privileges.privileged" -}}
{{- end -}}
{{- if and .accounting (has $values.exporter.reader (list "amdgpu" "rocm-smi" "simulated")) -}}
{{- fail (printf "privileges.accounting: only NVIDIA's driver has an accounting mode, and exporter.reader is %s" $values.exporter.reader) -}}
{{- end -}}
{{- end -}}
{{- with $values.exporter -}}
{{- $request := get ((.resources | default dict).requests | default dict) "nvidia.com/gpu" -}}
{{- $limit := get ((.resources | default dict).limits | default dict) "nvidia.com/gpu" -}}
{{- if or $request $limit -}}
{{- fail "exporter.resources: nvidia.com/gpu would take a GPU away from everybody else; the exporter sees all of them without" -}}
{{- end -}}
{{- include "gputally.validate.exporter.arguments" $ -}}
{{- end -}}
{{- end -}}

{{/* Refuses flags for which there is a value, and flags that do not work in this pod. */}}
{{- define "gputally.validate.exporter.arguments" -}}
{{- $values := dict "--listen-address" "exporter.port" "--state-file" "state.volume" "--web-config" "web" -}}
{{- range include "gputally.exporter.flags" . | fromYamlArray -}}
{{- $_ := set $values (last .) (first .) -}}
{{- end -}}
{{- $reasons := dict
      "--log-file" "`kubectl logs` would be empty"
      "--metrics-path" "everything scrapes /metrics"
      "--once" "the pod would end and start again, forever"
      "--pods" "it is off when privileges and kubernetes.enabled leave nobody who knows the names"
      "--sidecar" "it is for containers of other pods: argoWorkflows.sidecar" -}}
{{- $flags := list -}}
{{- range .Values.exporter.extraArgs -}}
{{- $flag := first (splitList "=" .) -}}
{{- $flags = append $flags $flag -}}
{{- with get $values $flag -}}
{{- fail (printf "exporter.extraArgs: for %s there is the value %s" $flag .) -}}
{{- end -}}
{{- with get $reasons $flag -}}
{{- fail (printf "exporter.extraArgs: leave %s out: %s" $flag .) -}}
{{- end -}}
{{- end -}}
{{- if and (has "--relay-metrics" $flags) (not .Values.exporter.relay) -}}
{{- fail "exporter.extraArgs: --relay-metrics is of no use without exporter.relay" -}}
{{- end -}}
{{- range list "--gpus" "--model" "--seed" "--scenario-start" "--scenario" -}}
{{- if and (has . $flags) (ne $.Values.exporter.reader "simulated") -}}
{{- fail (printf "exporter.extraArgs: %s is for exporter.reader simulated" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
