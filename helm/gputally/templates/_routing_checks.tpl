{{- define "gputally.validate.routing" -}}
{{- $receivers := without (include "gputally.routing.receivers" . | fromJsonArray) "discard" -}}
{{- $ownAlertmanager := and .Values.stack.enabled .Values.stack.alertmanager.enabled -}}
{{- with .Values.routing -}}
{{- if and $receivers (not $.Values.alertmanagerConfig.enabled) (not $ownAlertmanager) -}}
{{- fail (printf "routing: %s is to hear of alerts, but nothing routes them: set alertmanagerConfig.enabled or stack.enabled (with stack.alertmanager.enabled)" (join ", " $receivers)) -}}
{{- end -}}
{{- if and $.Values.alertmanagerConfig.enabled (not $receivers) -}}
{{- fail "alertmanagerConfig.enabled: nobody would hear of any alert; set routing.default (and routing.critical) to a receiver" -}}
{{- end -}}
{{- $withoutSecret := and (eq (join "" $receivers) "email") (not .email.username) -}}
{{- if and $receivers (not $withoutSecret) (not .secret) -}}
{{- fail (printf "routing.secret: name the Secret with the keys of %s" (join ", " $receivers)) -}}
{{- end -}}
{{- if has "email" $receivers -}}
{{- range $key := list "to" "from" "smarthost" -}}
{{- if not (get $.Values.routing.email $key) -}}
{{- fail (printf "routing.email.%s: a message cannot be sent without it" $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (has "slack" $receivers) (not .slack.channel) -}}
{{- fail "routing.slack.channel: name the channel, as in #gpu-alerts" -}}
{{- end -}}
{{- range $namespace, $_ := .namespaces -}}
{{- if regexMatch "(^|-)\\*" $namespace -}}
{{- fail (printf "routing.namespaces: %q is a regular expression, in which any text is .*" $namespace) -}}
{{- end -}}
{{- $_ := mustRegexMatch $namespace "" -}}
{{- end -}}
{{- if $.Values.alertmanagerConfig.enabled -}}
{{- range .maintenance -}}
{{- if .location -}}
{{- fail "routing.maintenance: an AlertmanagerConfig has no location; give the times in UTC" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
