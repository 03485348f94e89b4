{{- define "gputally.validate.routing" -}}
{{- $receivers := without (include "gputally.routing.receivers" . | fromJsonArray) "discard" -}}
{{- $ownAlertmanager := and .Values.stack.enabled .Values.stack.alertmanager.enabled -}}
{{- with .Values.routing -}}
{{- if and $receivers (not $.Values.alertmanagerConfig.enabled) (not $ownAlertmanager) -}}
{{- fail (printf "routing: receiver %s is set, but no Alertmanager is configured; set alertmanagerConfig.enabled or stack.enabled (with stack.alertmanager.enabled)" (join ", " $receivers)) -}}
{{- end -}}
{{- if and $.Values.alertmanagerConfig.enabled (not $receivers) -}}
{{- fail "alertmanagerConfig.enabled: no receiver is set; set routing.default or routing.critical" -}}
{{- end -}}
{{- $withoutSecret := and (eq (join "" $receivers) "email") (not .email.username) -}}
{{- if and $receivers (not $withoutSecret) (not .secret) -}}
{{- fail (printf "routing.secret: required by the receiver %s; set it to the Secret with its keys" (join ", " $receivers)) -}}
{{- end -}}
{{- if .watchdog.enabled -}}
{{- if not $ownAlertmanager -}}
{{- fail "routing.watchdog.enabled: requires stack.enabled and stack.alertmanager.enabled" -}}
{{- end -}}
{{- if not .secret -}}
{{- fail "routing.secret: required by routing.watchdog.enabled; set it to the Secret with the key watchdog-url" -}}
{{- end -}}
{{- end -}}
{{- if has "email" $receivers -}}
{{- range $key := list "to" "from" "smarthost" -}}
{{- if not (get $.Values.routing.email $key) -}}
{{- fail (printf "routing.email.%s: required by the receiver email" $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (has "slack" $receivers) (not .slack.channel) -}}
{{- fail "routing.slack.channel: required by the receiver slack, for example #gpu-alerts" -}}
{{- end -}}
{{- range $namespace, $_ := .namespaces -}}
{{- if regexMatch "(^|-)\\*" $namespace -}}
{{- fail (printf "routing.namespaces: %q is not a regular expression; use .* instead of *" $namespace) -}}
{{- end -}}
{{- $_ := mustRegexMatch $namespace "" -}}
{{- end -}}
{{- if $.Values.alertmanagerConfig.enabled -}}
{{- range .maintenance -}}
{{- if .location -}}
{{- fail "routing.maintenance: location is not supported by AlertmanagerConfig; remove it and set the times in UTC" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
