{{/* The agent's settings: what the chart knows, then `config`, which wins. */}}

{{/* The secrets that are files: settings key, file name, Secret and key in it. */}}
{{- define "ragmeter.secretFiles" -}}
{{- $secrets := .Values.secrets -}}
{{- $files := list
  (list "judge" "api_key_file" "judge-api-key" $secrets.judgeApiKey)
  (list "judge.second" "api_key_file" "second-judge-api-key" $secrets.secondJudgeApiKey)
  (list "results_export" "headers_file" "results-headers" $secrets.resultsHeaders)
  (list "privacy" "hash_key_file" "hash-key" $secrets.hashKey)
  (list "http" "token_file" "http-token" $secrets.httpToken)
  (list "http" "send_token_file" "http-send-token" $secrets.httpSendToken)
  (list "http" "scrape_token_file" "http-scrape-token" $secrets.httpScrapeToken)
  (list "http.tls" "cert_file" "http-tls.crt" (dict "existingSecret" $secrets.httpTls.existingSecret "key" $secrets.httpTls.certKey))
  (list "http.tls" "key_file" "http-tls.key" (dict "existingSecret" $secrets.httpTls.existingSecret "key" $secrets.httpTls.keyKey))
  (list "http.tls" "client_ca_file" "http-client-ca.crt" (dict "existingSecret" $secrets.httpTls.existingSecret "key" $secrets.httpTls.clientCaKey))
-}}
{{- if eq .Values.mode "worker" -}}
{{- $tls := $secrets.kafkaTls -}}
{{- $files = concat $files (list
  (list "kafka.security" "password_file" "kafka-password" $secrets.kafkaPassword)
  (list "kafka.security.oauth" "client_secret_file" "kafka-client-secret" $secrets.kafkaClientSecret)
  (list "kafka.security" "ca_file" "kafka-ca.crt" (dict "existingSecret" $tls.existingSecret "key" $tls.caKey))
  (list "kafka.security" "cert_file" "kafka-client.crt" (dict "existingSecret" $tls.existingSecret "key" $tls.certKey))
  (list "kafka.security" "key_file" "kafka-client.key" (dict "existingSecret" $tls.existingSecret "key" $tls.keyKey)))
-}}
{{- end -}}
{{- $given := list -}}
{{- range $files -}}
{{- $source := index . 3 -}}
{{- if and $source.existingSecret $source.key -}}
{{- $given = append $given (dict "section" (index . 0) "setting" (index . 1) "file" (index . 2) "secret" $source.existingSecret "key" $source.key) -}}
{{- end -}}
{{- end -}}
{{- toJson $given -}}
{{- end -}}

{{/* As JSON, which is YAML: toYaml would write 20971520 as 2.097152e+07, and that is no integer. */}}
{{- define "ragmeter.settings" -}}
{{- $own := dict
  "http" (dict "host" (ternary "*" "0.0.0.0" (hasSuffix "DualStack" (default "" .Values.service.ipFamilyPolicy))) "otlp_port" 4318 "metrics_port" 9464 "names" (include "ragmeter.serviceNames" . | fromJsonArray))
  "state" (dict "path" "/var/lib/ragmeter/state.sqlite")
-}}
{{- if eq .Values.mode "sidecar" -}}
{{- /* the application is in the same Pod; probes and Prometheus are not */ -}}
{{- $_ := set $own.http "otlp_host" "127.0.0.1" -}}
{{- end -}}
{{- if .Values.hhem.enabled -}}
{{- $_ := set $own "hhem" (dict "path" "/var/lib/ragmeter-hhem") -}}
{{- end -}}
{{- if .Values.alertRules -}}
{{- $_ := set $own "alerts" (dict "rules" "/etc/ragmeter/config/rules.yaml") -}}
{{- end -}}
{{- range include "ragmeter.secretFiles" . | fromJsonArray -}}
{{- $tree := dict .setting (printf "/etc/ragmeter/secrets/%s" .file) -}}
{{- range (splitList "." .section | reverse) -}}
{{- $tree = dict . $tree -}}
{{- end -}}
{{- $own = mustMergeOverwrite $own $tree -}}
{{- end -}}
{{- mustMergeOverwrite $own (deepCopy .Values.config) | toPrettyJson -}}
{{- end -}}

{{/* The names of the Service with a dot in them: a browser may ask by them where no token is asked for. */}}
{{- define "ragmeter.serviceNames" -}}
{{- $names := list -}}
{{- if ne .Values.mode "sidecar" -}}
{{- $name := printf "%s.%s" (include "ragmeter.fullname" .) .Release.Namespace -}}
{{- $names = list $name (printf "%s.svc" $name) (printf "%s.svc.cluster.local" $name) -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/* How the ports are spoken to: http or https. */}}
{{- define "ragmeter.scheme" -}}
{{- $settings := include "ragmeter.settings" . | fromJson -}}
{{- ternary "https" "http" (not (empty (dig "tls" "cert_file" "" $settings.http))) -}}
{{- end -}}

{{/* The Secret and key of the token that opens /metrics, as JSON; an empty object: none. */}}
{{- define "ragmeter.scrapeToken" -}}
{{- $secrets := .Values.secrets -}}
{{- $found := dict -}}
{{- range list $secrets.httpToken $secrets.httpScrapeToken -}}
{{- if .existingSecret -}}
{{- $found = dict "name" .existingSecret "key" .key -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{- define "ragmeter.configName" -}}
{{- printf "%s-config" (include "ragmeter.fullname" .) -}}
{{- end -}}

{{- define "ragmeter.configFiles" -}}
ragmeter.yaml: |
  {{- include "ragmeter.settings" . | nindent 2 }}
{{- with .Values.alertRules }}
rules.yaml: |
  {{- toPrettyJson . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Changes with the settings, so that Pods are replaced with them. */}}
{{- define "ragmeter.checksum" -}}
{{- include "ragmeter.configFiles" . | sha256sum -}}
{{- end -}}

{{/* Seconds from SIGTERM to the agent's own end, rounded up: preStop and drain. */}}
{{- define "ragmeter.stopSeconds" -}}
{{- $drain := dig "limits" "drain_seconds" 10 .Values.config -}}
{{- $pre := ternary .Values.sidecar.preStopSeconds 0 (and (eq .Values.mode "sidecar") (eq .Values.sidecar.type "classic")) -}}
{{- add (ceil $drain | int) ($pre | int) -}}
{{- end -}}

{{- define "ragmeter.graceSeconds" -}}
{{- $stop := include "ragmeter.stopSeconds" . | int -}}
{{- if kindIs "invalid" .Values.terminationGracePeriodSeconds -}}
{{- add $stop 20 -}}
{{- else -}}
{{- $grace := .Values.terminationGracePeriodSeconds | int -}}
{{- if lt $grace (add $stop 5 | int) -}}
{{- fail (printf "terminationGracePeriodSeconds %d is too short: the agent may take %d s to finish (limits.drain_seconds and preStopSeconds), and 5 s to end" $grace $stop) -}}
{{- end -}}
{{- $grace -}}
{{- end -}}
{{- end -}}

{{/* Most workers that can share the work. */}}
{{- define "ragmeter.partitions" -}}
{{- dig "kafka" "partitions" 8 .Values.config | int -}}
{{- end -}}

{{/* The name of a topic; takes dict "root" "kind". */}}
{{- define "ragmeter.topic" -}}
{{- $topics := dig "kafka" "topics" dict .root.Values.config -}}
{{- default (print (dig "prefix" "rag." $topics) .kind) (get $topics .kind) -}}
{{- end -}}
