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
ALLOW_CLUSTER_ACCESS: {{ .Values.manager.allow_cluster_access | quote }}
{{- if and (not .Values.manager.allow_cluster_access) .Values.manager.allowed_namespaces }}
ALLOWED_NAMESPACES: {{ join "," .Values.manager.allowed_namespaces | quote }}
{{- end }}
CLUSTER_ID: {{ .Values.cluster.id | quote }}
ENABLE_LIMITED_CACHE: {{ .Values.manager.enable_limited_cache | quote }}
MANAGEMENT_NAMESPACE: {{ include "operand.managementNamespace" . | quote }}
RELEASE_NAMESPACE: {{ include "operand.managementNamespace" . | quote }}
{{- end -}}

{{- define "operand.credential" -}}
{{- if .encoded }}{{ .value | quote }}{{ else }}{{ .value | b64enc | quote }}{{ end -}}
{{- end -}}

{{- /* Data of the Secret with the credentials for Service Manager. */ -}}
{{- define "operand.credentials" -}}
{{- $secret := .Values.manager.secret -}}
{{- $encoded := $secret.b64encoded -}}
clientid: {{ include "operand.credential" (dict "encoded" $encoded "value" $secret.clientid) }}
clientsecret: {{ include "operand.credential" (dict "encoded" $encoded "value" $secret.clientsecret) }}
sm_url: {{ include "operand.credential" (dict "encoded" $encoded "value" $secret.sm_url) }}
tokenurl: {{ include "operand.credential" (dict "encoded" $encoded "value" $secret.tokenurl) }}
tokenurlsuffix: {{ $secret.tokenurlsuffix | b64enc | quote }}
{{- if and $secret.tls.crt $secret.tls.key }}
tls.crt: {{ include "operand.credential" (dict "encoded" $encoded "value" $secret.tls.crt) }}
tls.key: {{ include "operand.credential" (dict "encoded" $encoded "value" $secret.tls.key) }}
{{- end }}
{{- range $key, $value := $secret.extra }}
{{ $key | quote }}: {{ $value | quote }}
{{- end }}
{{- end -}}
