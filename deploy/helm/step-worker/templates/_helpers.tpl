{{- define "step-worker.name" -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name .Values.worker) (contains .Values.worker .Release.Name) | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "step-worker.selector" -}}
app.kubernetes.io/name: step-worker
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "step-worker.labels" -}}
{{ include "step-worker.selector" . }}
app.kubernetes.io/component: worker-{{ .Values.worker }}
app.kubernetes.io/part-of: keb
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
keb.kyma-project.io/worker: {{ .Values.worker | quote }}
{{- end -}}
