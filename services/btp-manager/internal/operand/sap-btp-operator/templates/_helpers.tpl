{{- /* What tells the operand's pods from all others; a selector can never be changed. */ -}}
{{- define "operand.selector" -}}
app.kubernetes.io/instance: sap-btp-operator
app.kubernetes.io/name: sap-btp-operator
control-plane: controller-manager
{{- end -}}

{{- /* Labels of every object of the operand. */ -}}
{{- define "operand.labels" -}}
app.kubernetes.io/component: operand
app.kubernetes.io/instance: sap-btp-operator
app.kubernetes.io/name: sap-btp-operator
app.kubernetes.io/part-of: btp-manager
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{- define "operand.managementNamespace" -}}
{{- .Values.manager.management_namespace | default .Release.Namespace -}}
{{- end -}}

{{- define "operand.image" -}}
{{- $image := .Values.manager.image -}}
{{- $image.repository -}}
{{- with $image.tag }}:{{ . }}{{ end -}}
{{- with $image.sha }}@sha256:{{ . }}{{ end -}}
{{- end -}}

{{- /* Data of the ConfigMap that the operand has as its environment. */ -}}
{{- define "operand.config" -}}
ALLOW_CLUSTER_ACCESS: "true"
CLUSTER_ID: {{ .Values.cluster.id | quote }}
ENABLE_LIMITED_CACHE: {{ .Values.manager.enable_limited_cache | quote }}
MANAGEMENT_NAMESPACE: {{ include "operand.managementNamespace" . | quote }}
RELEASE_NAMESPACE: {{ include "operand.managementNamespace" . | quote }}
{{- end -}}

{{- /* Data of the Secret with the credentials for Service Manager. */ -}}
{{- define "operand.credentials" -}}
{{- $secret := .Values.manager.secret -}}
clientid: {{ $secret.clientid | b64enc | quote }}
clientsecret: {{ $secret.clientsecret | b64enc | quote }}
sm_url: {{ $secret.sm_url | b64enc | quote }}
tokenurl: {{ $secret.tokenurl | b64enc | quote }}
tokenurlsuffix: {{ $secret.tokenurlsuffix | b64enc | quote }}
{{- if and $secret.tls.crt $secret.tls.key }}
tls.crt: {{ $secret.tls.crt | b64enc | quote }}
tls.key: {{ $secret.tls.key | b64enc | quote }}
{{- end }}
{{- range $key, $value := $secret.extra }}
{{ $key | quote }}: {{ $value | quote }}
{{- end }}
{{- end -}}
