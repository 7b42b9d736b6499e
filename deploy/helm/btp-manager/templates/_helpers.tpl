{{- define "btp-manager.selector" -}}
app.kubernetes.io/name: btp-manager
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- /* The label managed-by says Helm, never btp-manager: a deprovisioning removes what carries that. */ -}}
{{- define "btp-manager.labels" -}}
{{ include "btp-manager.selector" . }}
app.kubernetes.io/component: manager
app.kubernetes.io/part-of: kyma
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "btp-manager.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}
