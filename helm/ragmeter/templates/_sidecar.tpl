{{/* For the application's chart, which has this one as a dependency: see README.md. Each takes the
     context of this chart, `.Subcharts.ragmeter`, with `mode: sidecar`. */}}

{{/* Items for `initContainers`: the native sidecar. Empty where `sidecar.type` is classic. */}}
{{- define "ragmeter.sidecar.initContainers" -}}
{{- if eq .Values.sidecar.type "native" -}}
- {{- include "ragmeter.container" . | nindent 2 }}
  # makes it a sidecar: started before the application, ended after it
  restartPolicy: Always
{{- end -}}
{{- end -}}

{{/* Items for `containers`: the classic sidecar. Empty where `sidecar.type` is native. */}}
{{- define "ragmeter.sidecar.containers" -}}
{{- if eq .Values.sidecar.type "classic" -}}
- {{- include "ragmeter.container" . | nindent 2 }}
  {{- with .Values.sidecar.preStopSeconds }}
  lifecycle:
    preStop:
      exec:
        command: [sleep, {{ . | quote }}]
  {{- end }}
{{- end -}}
{{- end -}}

{{/* Items for `volumes`. */}}
{{- define "ragmeter.sidecar.volumes" -}}
{{- include "ragmeter.volumes" (dict "root" . "state" (dict "emptyDir" .Values.sidecar.emptyDir)) -}}
{{- end -}}

{{/* Labels of the Pod: PodMonitor and NetworkPolicy find it by them. */}}
{{- define "ragmeter.sidecar.labels" -}}
ragmeter/sidecar: {{ include "ragmeter.fullname" . | quote }}
{{- end -}}

{{/* Annotations of the Pod: it is replaced when the settings change. */}}
{{- define "ragmeter.sidecar.annotations" -}}
ragmeter/config-checksum: {{ include "ragmeter.checksum" . | quote }}
{{- end -}}

{{/* Environment of the application's own container: where its exporter sends traces. */}}
{{- define "ragmeter.sidecar.appEnv" -}}
{{- $settings := include "ragmeter.settings" . | fromJson -}}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ include "ragmeter.scheme" . }}://127.0.0.1:{{ $settings.http.otlp_port }}
{{- end -}}

{{/* Least `terminationGracePeriodSeconds` of the Pod. A native sidecar has what the application leaves
     of it, so the application's own seconds come on top. */}}
{{- define "ragmeter.sidecar.graceSeconds" -}}
{{- include "ragmeter.graceSeconds" . -}}
{{- end -}}

{{/* Which Pods the chart's own objects are about. */}}
{{- define "ragmeter.podSelector" -}}
{{- if eq .Values.mode "sidecar" -}}
{{- include "ragmeter.sidecar.labels" . -}}
{{- else -}}
{{- include "ragmeter.selectorLabels" . -}}
{{- end -}}
{{- end -}}
