{{/* The container of every mode. */}}

{{- define "ragmeter.container" -}}
{{- $settings := include "ragmeter.settings" . | fromJson -}}
{{- $sidecar := eq .Values.mode "sidecar" -}}
name: ragmeter
image: {{ include "ragmeter.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
  - {{ ternary "worker" "run" (eq .Values.mode "worker") }}
  - --config
  - /etc/ragmeter/config/ragmeter.yaml
  {{- with .Values.extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  {{- if ne .Values.mode "worker" }}
  - name: {{ ternary "ragmeter-otlp" "otlp-http" $sidecar }}
    containerPort: {{ $settings.http.otlp_port }}
    protocol: TCP
  {{- end }}
  - name: {{ include "ragmeter.metricsPort" . }}
    containerPort: {{ $settings.http.metrics_port }}
    protocol: TCP
{{- include "ragmeter.env" . }}
{{- if not $sidecar }}
startupProbe:
  {{- include "ragmeter.probe" (dict "root" . "path" "/healthz" "probe" .Values.probes.startup) | nindent 2 }}
{{- end }}
livenessProbe:
  {{- include "ragmeter.probe" (dict "root" . "path" "/healthz" "probe" .Values.probes.liveness) | nindent 2 }}
{{- if or (not $sidecar) .Values.sidecar.readinessProbe }}
readinessProbe:
  {{- include "ragmeter.probe" (dict "root" . "path" "/readyz" "probe" .Values.probes.readiness) | nindent 2 }}
{{- end }}
{{- with .Values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
  - name: ragmeter-config
    mountPath: /etc/ragmeter/config
    readOnly: true
  - name: ragmeter-state
    mountPath: /var/lib/ragmeter
  - name: ragmeter-tmp
    mountPath: /tmp
  {{- if include "ragmeter.secretFiles" . | fromJsonArray }}
  - name: ragmeter-secrets
    mountPath: /etc/ragmeter/secrets
    readOnly: true
  {{- end }}
  {{- if .Values.hhem.enabled }}
  - name: ragmeter-hhem
    mountPath: /var/lib/ragmeter-hhem
    {{- with .Values.hhem.subPath }}
    subPath: {{ . | quote }}
    {{- end }}
    readOnly: true
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* In a sidecar the ports share their names with the application's. */}}
{{- define "ragmeter.metricsPort" -}}
{{- ternary "ragmeter-http" "metrics" (eq .Values.mode "sidecar") -}}
{{- end -}}

{{- define "ragmeter.probe" -}}
httpGet:
  path: {{ .path }}
  port: {{ include "ragmeter.metricsPort" .root }}
  {{- if eq (include "ragmeter.scheme" .root) "https" }}
  scheme: HTTPS
  {{- end }}
{{- with .probe }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "ragmeter.env" -}}
{{- $salt := .Values.secrets.sessionSalt }}
env:
  # ONNX Runtime must send nothing to its makers
  - name: ORT_DISABLE_TELEMETRY
    value: "1"
  {{- if $salt.existingSecret }}
  - name: RAGMETER_OTLP__SESSION_SALT
    valueFrom:
      secretKeyRef:
        name: {{ $salt.existingSecret | quote }}
        key: {{ $salt.key | quote }}
  {{- end }}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The volumes of every mode; takes dict "root" "state" (a volume source, none: from a template). */}}
{{- define "ragmeter.volumes" -}}
{{- $root := .root -}}
- name: ragmeter-config
  configMap:
    name: {{ include "ragmeter.configName" $root | quote }}
{{- with .state }}
- name: ragmeter-state
  {{- toYaml . | nindent 2 }}
{{- end }}
- name: ragmeter-tmp
  emptyDir: {}
{{- with include "ragmeter.secretFiles" $root | fromJsonArray }}
- name: ragmeter-secrets
  projected:
    # readable for the container's user, which in a sidecar need not be of the Pod's group
    defaultMode: 0444
    sources:
      {{- range . }}
      - secret:
          name: {{ .secret | quote }}
          items:
            - key: {{ .key | quote }}
              path: {{ .file }}
      {{- end }}
{{- end }}
{{- if $root.Values.hhem.enabled }}
- name: ragmeter-hhem
  {{- toYaml $root.Values.hhem.volume | nindent 2 }}
{{- end }}
{{- with $root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* A Pod of ours, standalone or worker; takes dict "root" "state". */}}
{{- define "ragmeter.podTemplate" -}}
{{- $root := .root -}}
{{- $values := $root.Values -}}
metadata:
  labels:
    {{- toYaml (merge (dict) $values.podLabels (include "ragmeter.labels" $root | fromYaml)) | nindent 4 }}
  annotations:
    checksum/config: {{ include "ragmeter.checksum" $root | quote }}
    {{- with $values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- include "ragmeter.podSpec" $root | nindent 2 }}
  terminationGracePeriodSeconds: {{ include "ragmeter.graceSeconds" $root }}
  {{- with $values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- range . }}
    - {{- toYaml (merge (dict) . (dict "labelSelector" (dict "matchLabels" (include "ragmeter.selectorLabels" $root | fromYaml)))) | nindent 6 }}
    {{- end }}
  {{- end }}
  containers:
    - {{- include "ragmeter.container" $root | nindent 6 }}
  volumes:
    {{- include "ragmeter.volumes" . | nindent 4 }}
{{- end -}}

{{/* What Pods of the agent and of jobs have in common. */}}
{{- define "ragmeter.podSpec" -}}
serviceAccountName: {{ include "ragmeter.serviceAccountName" . | quote }}
automountServiceAccountToken: false
# variables for the Services of the namespace are nothing that it reads
enableServiceLinks: false
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
