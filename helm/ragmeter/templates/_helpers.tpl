{{/* Names, labels and the image. */}}

{{- define "ragmeter.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "ragmeter.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- /* 50: what is appended ("-kafka-init", "-0") must fit into 63 */ -}}
{{- $full | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "ragmeter.selectorLabels" -}}
app.kubernetes.io/name: {{ include "ragmeter.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: {{ .Values.mode }}
{{- end -}}

{{- define "ragmeter.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "ragmeter.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* `metadata`; takes dict "root" "name" "namespace" "annotations" "labels". Names are quoted here and
     elsewhere: a release or namespace may be called 123, and a number is no name. */}}
{{- define "ragmeter.metadata" -}}
{{- $labels := merge (dict) (.labels | default dict) (include "ragmeter.labels" .root | fromYaml) -}}
name: {{ .name | default (include "ragmeter.fullname" .root) | quote }}
namespace: {{ .namespace | default .root.Release.Namespace | quote }}
labels:
  {{- toYaml $labels | nindent 2 }}
{{- with .annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "ragmeter.image" -}}
{{- $image := .Values.image -}}
{{- $name := ternary $image.repository (printf "%s/%s" $image.registry $image.repository) (empty $image.registry) -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- $variant := ternary "-kafka" "" (eq .Values.mode "worker") -}}
{{- printf "%s:%s" $name (default (print .Chart.AppVersion $variant) $image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "ragmeter.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "ragmeter.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}
