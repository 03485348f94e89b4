{{- define "gputally.validate.exporter" -}}
{{- $values := .Values -}}
{{- $scrapers := list -}}
{{- range $name := list "scrapeConfig" "serviceMonitor" "podMonitor" -}}
{{- if (get $values $name).enabled -}}
{{- $scrapers = append $scrapers (printf "%s.enabled" $name) -}}
{{- end -}}
{{- end -}}
{{- if gt (len $scrapers) 1 -}}
{{- fail (printf "%s: enable only one of them; two scrape the exporter twice" (join " and " $scrapers)) -}}
{{- end -}}
{{- with $values.dashboards -}}
{{- $any := or $values.exporter.enabled $values.stack.enabled $values.prometheusRule.enabled $values.alertmanagerConfig.enabled .configMaps.enabled .grafanaOperator.enabled .openShiftConsole.enabled $values.podMonitor.sidecars.enabled $values.podMonitor.pods.enabled $values.argoWorkflows.sidecar.enabled $values.argoWorkflows.stressTest.enabled $values.autoscaling.prometheusAdapter.enabled $values.autoscaling.keda.enabled $values.extraObjects -}}
{{- if not $any -}}
{{- fail "nothing is enabled: set exporter.enabled or another feature" -}}
{{- end -}}
{{- end -}}
{{- range $where := list (list "commonLabels" ($values.commonLabels | default dict)) (list "exporter.podLabels" ($values.exporter.podLabels | default dict)) -}}
{{- range $label := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" -}}
{{- if hasKey (last $where) $label -}}
{{- fail (printf "%s: the label %s is reserved; the chart selects its pods by it. Use another label" (first $where) $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $values.exporter.enabled -}}
{{- include "gputally.validate.exporter.enabled" . -}}
{{- else if $scrapers -}}
{{- fail (printf "%s: nothing to scrape because exporter.enabled is false" (first $scrapers)) -}}
{{- else if $values.securityContextConstraints.enabled -}}
{{- fail "securityContextConstraints.enabled: no pod needs them because exporter.enabled is false" -}}
{{- end -}}
{{- end -}}

{{- define "gputally.validate.exporter.enabled" -}}
{{- $values := .Values -}}
{{- if and $values.serviceMonitor.enabled (not $values.service.enabled) -}}
{{- fail "serviceMonitor.enabled: requires a Service; set service.enabled, or use podMonitor or scrapeConfig" -}}
{{- end -}}
{{- with $values.web -}}
{{- if and .tls.enabled (not .tls.secret) -}}
{{- fail "web.tls.secret: required with web.tls.enabled; set it to the Secret with tls.crt and tls.key" -}}
{{- end -}}
{{- if and .basicAuth.enabled (not .basicAuth.users) -}}
{{- fail "web.basicAuth.users: required with web.basicAuth.enabled; set USER: HASH, as printed by `htpasswd -nBC 10 USER`" -}}
{{- end -}}
{{- if and .basicAuth.enabled (not .basicAuth.secret) -}}
{{- fail "web.basicAuth.secret: required with web.basicAuth.enabled; set it to the Secret with the scraper's username and password" -}}
{{- end -}}
{{- if and (or .tls.secret .tls.serverName .tls.insecureSkipVerify) (not .tls.enabled) -}}
{{- fail "web.tls: values are set but TLS is disabled; set web.tls.enabled" -}}
{{- end -}}
{{- if and (or .basicAuth.users .basicAuth.secret) (not .basicAuth.enabled) -}}
{{- fail "web.basicAuth: values are set but basic authentication is disabled; set web.basicAuth.enabled" -}}
{{- end -}}
{{- if and .basicAuth.enabled (not .tls.enabled) (eq $values.service.type "NodePort") -}}
{{- fail "web.basicAuth.enabled with service.type NodePort: passwords would leave the cluster unencrypted; set web.tls.enabled" -}}
{{- end -}}
{{- end -}}
{{- with $values.networkPolicy -}}
{{- if and .scrapers (not .scraperNamespaces) -}}
{{- fail "networkPolicy.scraperNamespaces: required with networkPolicy.scrapers; set the namespaces of the scrapers, for example [monitoring]" -}}
{{- else if and .scraperNamespaces (not .scrapers) -}}
{{- fail "networkPolicy.scraperNamespaces: without effect; set networkPolicy.scrapers, for example [prometheus]" -}}
{{- end -}}
{{- end -}}
{{- with $values.kubernetes -}}
{{- range $list := list "podLabels" "podAnnotations" -}}
{{- if and (get $values.kubernetes $list) (not $values.kubernetes.enabled) (not $values.privileges.kubeletPods) -}}
{{- fail (printf "kubernetes.%s: requires kubernetes.enabled, or privileges.kubeletPods with kubelet 1.37 or newer" $list) -}}
{{- end -}}
{{- end -}}
{{- if and .nodeLabels (not .enabled) -}}
{{- fail "kubernetes.nodeLabels: node labels are read from the API server; set kubernetes.enabled" -}}
{{- end -}}
{{- if and .enabled (not $values.rbac.create) $values.serviceAccount.create -}}
{{- fail "kubernetes.enabled without rbac.create: the ServiceAccount that the chart creates would have no role; set rbac.create, or set serviceAccount.create=false and serviceAccount.name" -}}
{{- end -}}
{{- end -}}
{{- if and (not $values.serviceAccount.create) (not $values.serviceAccount.name) $values.kubernetes.enabled -}}
{{- fail "serviceAccount.name: required with serviceAccount.create=false and kubernetes.enabled; otherwise the namespace's default account would get the role" -}}
{{- end -}}
{{- if and (eq $values.state.volume "hostPath") (not $values.state.hostPath) -}}
{{- fail "state.hostPath: required with state.volume=hostPath; set a directory on the node, or set state.volume to emptyDir or none" -}}
{{- end -}}
{{- with $values.driver -}}
{{- if and .hostPath (not .mountPath) -}}
{{- fail "driver.mountPath: required with driver.hostPath; set the mount path in the container" -}}
{{- end -}}
{{- if and .libraries (not .hostPath) -}}
{{- fail "driver.libraries: paths below driver.hostPath, which is not set; set driver.hostPath" -}}
{{- end -}}
{{- end -}}
{{- with $values.privileges -}}
{{- if and .podLogDirectories (not .podLogs) -}}
{{- fail "privileges.podLogDirectories: requires privileges.podLogs" -}}
{{- end -}}
{{- if and .privileged .capabilities -}}
{{- fail "privileges.capabilities: a privileged container has all capabilities; remove them, or set privileges.privileged=false" -}}
{{- end -}}
{{- if and .accounting (has $values.exporter.reader (list "amdgpu" "rocm-smi" "simulated")) -}}
{{- fail (printf "privileges.accounting: only NVIDIA's driver has an accounting mode, but exporter.reader is %s" $values.exporter.reader) -}}
{{- end -}}
{{- end -}}
{{- with $values.exporter -}}
{{- $request := get ((.resources | default dict).requests | default dict) "nvidia.com/gpu" -}}
{{- $limit := get ((.resources | default dict).limits | default dict) "nvidia.com/gpu" -}}
{{- if or $request $limit -}}
{{- fail "exporter.resources: remove nvidia.com/gpu; the exporter reads all GPUs without requesting one, and a request would block a GPU for other pods" -}}
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
      "--metrics-path" "the scrape objects of the chart use /metrics"
      "--once" "the pod would exit and restart forever"
      "--pods" "pod names are disabled by disabling all pod sources in privileges and kubernetes.enabled"
      "--sidecar" "it is for a container in another pod; use argoWorkflows.sidecar" -}}
{{- $flags := list -}}
{{- range .Values.exporter.extraArgs -}}
{{- $flag := first (splitList "=" .) -}}
{{- $flags = append $flags $flag -}}
{{- with get $values $flag -}}
{{- fail (printf "exporter.extraArgs: %s is set by the value %s; use that value" $flag .) -}}
{{- end -}}
{{- with get $reasons $flag -}}
{{- fail (printf "exporter.extraArgs: remove %s: %s" $flag .) -}}
{{- end -}}
{{- end -}}
{{- if and (has "--relay-metrics" $flags) (not .Values.exporter.relay) -}}
{{- fail "exporter.extraArgs: --relay-metrics requires exporter.relay" -}}
{{- end -}}
{{- range list "--gpus" "--model" "--seed" "--scenario-start" "--scenario" -}}
{{- if and (has . $flags) (ne $.Values.exporter.reader "simulated") -}}
{{- fail (printf "exporter.extraArgs: %s requires exporter.reader=simulated" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
