{{/* A duration of Prometheus in milliseconds. */}}
{{- define "ragmeter.millis" -}}
{{- $sum := 0 -}}
{{- range regexFindAll "[0-9]+[a-z]+" . -1 -}}
{{- $unit := get (dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000) (regexFind "[a-z]+" .) -}}
{{- $sum = add $sum (mul (regexFind "[0-9]+" . | int) $unit) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{/* An endpoint of ServiceMonitor or PodMonitor, but for its port; takes dict "root" "monitor". Token
     and certificate are those of the agent, so that nothing is said twice. */}}
{{- define "ragmeter.scrape" -}}
{{- $root := .root -}}
{{- $scheme := include "ragmeter.scheme" $root -}}
{{- $token := include "ragmeter.scrapeToken" $root | fromJson -}}
path: /metrics
{{- if eq $scheme "https" }}
scheme: https
tlsConfig:
  {{- if .monitor.tlsConfig }}
  {{- toYaml .monitor.tlsConfig | nindent 2 }}
  {{- else }}
  ca:
    secret:
      name: {{ required "config.http.tls needs the monitor's tlsConfig" $root.Values.secrets.httpTls.existingSecret | quote }}
      key: {{ $root.Values.secrets.httpTls.caKey | quote }}
  # Prometheus asks the Pods by address, which no certificate names
  serverName: {{ printf "%s.%s.svc" (include "ragmeter.fullname" $root) $root.Release.Namespace }}
  {{- end }}
{{- end }}
{{- if or .monitor.authorization $token }}
authorization:
  {{- if .monitor.authorization }}
  {{- toYaml .monitor.authorization | nindent 2 }}
  {{- else }}
  type: Bearer
  credentials:
    {{- toYaml $token | nindent 4 }}
  {{- end }}
{{- end }}
{{- with .monitor }}
interval: {{ .interval }}
scrapeTimeout: {{ .scrapeTimeout }}
{{- with .relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}
