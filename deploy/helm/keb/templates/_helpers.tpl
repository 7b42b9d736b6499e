{{- define "keb.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else if contains $name .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- /* The selector of a component: dict "root" $ "component" "broker". */ -}}
{{- define "keb.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "keb.labels" -}}
{{ include "keb.selector" . }}
app.kubernetes.io/part-of: keb
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* All pods of the release. */ -}}
{{- define "keb.allSelector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "keb.image" -}}
{{- $v := .root.Values.image -}}
{{ with $v.registry }}{{ trimSuffix "/" . }}/{{ end }}keb/{{ .service }}:{{ $v.tag | default .root.Chart.AppVersion }}
{{- end -}}

{{- define "keb.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "keb.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "keb.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- /* The workers that run, as JSON: name to settings, the defaults filled in. */ -}}
{{- define "keb.workers" -}}
{{- $out := dict -}}
{{- range $name, $own := .Values.workers -}}
{{- $worker := mergeOverwrite (deepCopy $.Values.workerDefaults) (deepCopy ($own | default dict)) -}}
{{- if $worker.enabled -}}
{{- $_ := set $out $name $worker -}}
{{- end -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}

{{- define "keb.jobs" -}}
{{- $out := dict -}}
{{- range $name, $own := .Values.jobs -}}
{{- $job := mergeOverwrite (deepCopy $.Values.jobDefaults) (deepCopy ($own | default dict)) -}}
{{- if $job.enabled -}}
{{- $_ := set $out $name $job -}}
{{- end -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}

{{- /* "true" if a component has a variable, else nothing: dict "c" its values "name" the variable. */ -}}
{{- define "keb.has" -}}
{{- if or (hasKey (.c.env | default dict) .name) (hasKey (.c.secretEnv | default dict) .name) (hasKey (.c.secretFiles | default dict) .name) }}true{{ end -}}
{{- end -}}

{{- /* Names of Secrets: those that are named in the values, else those that secrets.create makes. */ -}}
{{- define "keb.postgresSecret" -}}{{ .Values.postgres.existingSecret | default (printf "%s-postgres" (include "keb.fullname" .)) }}{{- end -}}
{{- define "keb.natsSecret" -}}
{{- if .Values.nats.existingSecret -}}{{ .Values.nats.existingSecret }}
{{- else if .Values.nats.bundled.enabled -}}{{ include "keb.fullname" . }}-nats
{{- end -}}
{{- end -}}
{{- define "keb.keysSecret" -}}{{ .Values.keys.existingSecret | default (printf "%s-keys" (include "keb.fullname" .)) }}{{- end -}}
{{- define "keb.osbSecret" -}}
{{- if .Values.osb.existingSecret -}}{{ .Values.osb.existingSecret }}
{{- else if .Values.secrets.create -}}{{ include "keb.fullname" . }}-osb
{{- end -}}
{{- end -}}
{{- define "keb.tokensSecret" -}}
{{- if .Values.access.tokens.existingSecret -}}{{ .Values.access.tokens.existingSecret }}
{{- else if and .Values.secrets.create (not .Values.access.none) (not .Values.access.oidc.issuer) -}}{{ include "keb.fullname" . }}-access
{{- end -}}
{{- end -}}

{{- /* The configured address of the console in browsers, or nothing. */ -}}
{{- define "keb.consoleURL" -}}
{{- if .Values.access.publicURL -}}{{ .Values.access.publicURL }}
{{- else if and .Values.ingress.console.enabled .Values.ingress.console.host -}}https://{{ .Values.ingress.console.host }}
{{- end -}}
{{- end -}}

{{- /* The configured address of the broker for customers, or nothing. */ -}}
{{- define "keb.osbPublicURL" -}}
{{- if .Values.osb.publicURL -}}{{ .Values.osb.publicURL }}
{{- else if and .Values.ingress.osb.enabled .Values.ingress.osb.host -}}https://{{ .Values.ingress.osb.host }}
{{- end -}}
{{- end -}}

{{- /* The ages from which instances expire: broker and jobs. `helm upgrade --reuse-values` from release 1.0.0 has no lifetimes. */ -}}
{{- define "keb.lifetimeEnv" -}}
{{- $lifetimes := .Values.lifetimes | default dict -}}
- name: KEB_TRIAL_LIFETIME
  value: {{ $lifetimes.trial | default "336h" | quote }}
- name: KEB_FREE_LIFETIME
  value: {{ $lifetimes.free | default "720h" | quote }}
{{- end -}}

{{- define "keb.natsURL" -}}
{{- if .Values.nats.bundled.enabled -}}{{ ternary "tls" "nats" (ne .Values.nats.bundled.tlsSecretName "") }}://{{ include "keb.fullname" . }}-nats:4222{{- else -}}{{ .Values.nats.url }}{{- end -}}
{{- end -}}

{{- /* The account of NATS that the streams are in: without users there is only $G. */ -}}
{{- define "keb.natsStreams" -}}
{{- if include "keb.natsSecret" . -}}{{ (.Files.Get "files/nats-users.yaml" | fromYaml).orchestrator.account }}{{- else -}}$G{{- end -}}
{{- end -}}

{{- define "keb.secretRef" -}}
valueFrom:
  secretKeyRef:
    name: {{ .name | quote }}
    key: {{ .key | quote }}
{{- end -}}

{{- /* The files of a hop as variables: dict "prefix" "folder" "own" (certificate and key) "ca" the name of the variable for ca.crt, or empty. */ -}}
{{- define "keb.tlsFiles" -}}
{{- if .ca }}
- name: {{ .prefix }}{{ .ca }}
  value: /etc/keb/{{ .folder }}/ca.crt
{{- end }}
{{- if .own }}
- name: {{ .prefix }}CERT_FILE
  value: /etc/keb/{{ .folder }}/tls.crt
- name: {{ .prefix }}KEY_FILE
  value: /etc/keb/{{ .folder }}/tls.key
{{- end }}
{{- end -}}

{{- /* Variables of TLS: dict "root" "hops" a list of nats, database, api, metrics, broker. */ -}}
{{- define "keb.tlsEnv" -}}
{{- $v := .root.Values -}}
{{- if and (has "nats" .hops) $v.nats.tls.secretName }}
{{- include "keb.tlsFiles" (dict "prefix" "KEB_NATS_" "folder" "nats-tls" "own" $v.nats.tls.mutual "ca" "CA_FILE") }}
{{- end }}
{{- if and (has "nats" .hops) $v.nats.tls.handshakeFirst }}
- name: KEB_NATS_TLS_FIRST
  value: "true"
{{- end }}
{{- if and (has "database" .hops) $v.postgres.tls.secretName }}
{{- include "keb.tlsFiles" (dict "prefix" "KEB_DATABASE_" "folder" "postgres-tls" "own" $v.postgres.tls.mutual "ca" "CA_FILE") }}
{{- end }}
{{- if $v.tls.enabled }}
{{- if has "api" .hops }}
{{- include "keb.tlsFiles" (dict "prefix" "KEB_TLS_" "folder" "tls" "own" true "ca" (ternary "CLIENT_CA_FILE" "" $v.tls.mutual)) }}
{{- end }}
{{- if and (has "metrics" .hops) $v.tls.metrics }}
{{- include "keb.tlsFiles" (dict "prefix" "KEB_METRICS_TLS_" "folder" "tls" "own" true "ca" (ternary "CLIENT_CA_FILE" "" $v.tls.mutual)) }}
{{- end }}
{{- if has "broker" .hops }}
{{- include "keb.tlsFiles" (dict "prefix" "KEB_BROKER_" "folder" "tls" "own" $v.tls.mutual "ca" "CA_FILE") }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* The Secrets of these hops by the name of their folder, as JSON: "secret", and whether "ca" and "own" (certificate and key) are read. */ -}}
{{- define "keb.tlsSecrets" -}}
{{- $v := .root.Values -}}
{{- $out := dict -}}
{{- if and (has "nats" .hops) $v.nats.tls.secretName }}{{ $_ := set $out "nats-tls" (dict "secret" $v.nats.tls.secretName "ca" true "own" $v.nats.tls.mutual) }}{{ end -}}
{{- if and (has "database" .hops) $v.postgres.tls.secretName }}{{ $_ := set $out "postgres-tls" (dict "secret" $v.postgres.tls.secretName "ca" true "own" $v.postgres.tls.mutual) }}{{ end -}}
{{- if and $v.tls.enabled (or (has "api" .hops) (has "broker" .hops) (and (has "metrics" .hops) $v.tls.metrics)) }}{{ $_ := set $out "tls" (dict "secret" $v.tls.secretName "ca" (or $v.tls.mutual (has "broker" .hops)) "own" (or $v.tls.mutual (not (has "broker" .hops)))) }}{{ end -}}
{{- toJson $out -}}
{{- end -}}

{{- define "keb.tlsVolumes" -}}
{{- range $folder, $files := include "keb.tlsSecrets" . | fromJson }}
- name: {{ $folder }}
  secret:
    secretName: {{ $files.secret | quote }}
    # Mount only the files that the pod reads. The Secret may also contain the key of the CA.
    items:
      {{- if $files.ca }}
      - {key: ca.crt, path: ca.crt}
      {{- end }}
      {{- if $files.own }}
      - {key: tls.crt, path: tls.crt}
      - {key: tls.key, path: tls.key}
      {{- end }}
{{- end }}
{{- end -}}

{{- define "keb.tlsMounts" -}}
{{- range $folder, $_ := include "keb.tlsSecrets" . | fromJson }}
- name: {{ $folder }}
  mountPath: /etc/keb/{{ $folder }}
  readOnly: true
{{- end }}
{{- end -}}

{{- define "keb.brokerURL" -}}
{{ ternary "https" "http" .Values.tls.enabled }}://{{ include "keb.fullname" . }}-broker:8080
{{- end -}}

{{- /* What every service and worker reads: dict "root" $ "user" NATS user. */ -}}
{{- define "keb.commonEnv" -}}
{{- $root := .root -}}
- name: KEB_METRICS_ADDR
  value: ":9090"
- name: KEB_LOG_LEVEL
  value: {{ $root.Values.log.level | quote }}
- name: KEB_LOG_FORMAT
  value: {{ $root.Values.log.format | quote }}
- name: KEB_NATS_URL
  value: {{ include "keb.natsURL" $root | quote }}
{{- with include "keb.natsSecret" $root }}
- name: KEB_NATS_USER
  value: {{ $.user | quote }}
- name: KEB_NATS_PASSWORD
  {{- include "keb.secretRef" (dict "name" . "key" $.user) | nindent 2 }}
{{- end }}
{{- with $root.Values.tracing.endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ . | quote }}
{{- end }}
{{- if $root.Values.extraCA.configMap }}
- name: SSL_CERT_DIR
  value: /etc/keb/ca
{{- end }}
{{- end -}}

{{- /* Who may use the operator API; broker and orchestrator. */ -}}
{{- define "keb.accessEnv" -}}
{{- $a := .Values.access -}}
{{- if $a.none }}
- name: KEB_ACCESS
  value: none
{{- end }}
{{- if include "keb.tokensSecret" . }}
- name: KEB_ACCESS_TOKENS_FILE
  value: /etc/keb/access/{{ $a.tokens.key }}
{{- end }}
{{- if $a.oidc.issuer }}
- name: KEB_ACCESS_OIDC_ISSUER
  value: {{ $a.oidc.issuer | quote }}
- name: KEB_ACCESS_OIDC_AUDIENCE
  value: {{ $a.oidc.audience | quote }}
- name: KEB_ACCESS_OIDC_ROLES_CLAIM
  value: {{ $a.oidc.rolesClaim | quote }}
{{- with $a.oidc.viewers }}
- name: KEB_ACCESS_OIDC_VIEWERS
  value: {{ join "," . | quote }}
{{- end }}
{{- with $a.oidc.operators }}
- name: KEB_ACCESS_OIDC_OPERATORS
  value: {{ join "," . | quote }}
{{- end }}
{{- end }}
{{- with $a.trustedProxies }}
- name: KEB_ACCESS_TRUSTED_PROXIES
  value: {{ join "," . | quote }}
{{- end }}
{{- end -}}

{{- /* Settings of a component: env, secretEnv, secretFiles. */ -}}
{{- define "keb.ownEnv" -}}
{{- range $name, $value := .env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- range $name, $ref := .secretEnv }}
- name: {{ $name }}
  {{- include "keb.secretRef" (dict "name" $ref.name "key" $ref.key) | nindent 2 }}
{{- end }}
{{- range $name, $ref := .secretFiles }}
- name: {{ $name }}
  value: /etc/keb/files/{{ $name | lower | replace "_" "-" }}/{{ $ref.key }}
{{- end }}
{{- end -}}

{{- /* Where a worker or job finds the simulated systems: dict "root" $ "systems" its entry of files/systems.yaml "env", "secretEnv", "secretFiles". */ -}}
{{- define "keb.systemEnv" -}}
{{- if .root.Values.landscape.enabled -}}
{{- $own := . -}}
{{- range $names, $path := .systems }}
{{- $given := false }}
{{- range $n := splitList "|" $names }}
{{- if include "keb.has" (dict "c" $own "name" $n) }}{{ $given = true }}{{ end }}
{{- end }}
{{- if not $given }}
- name: {{ first (splitList "|" $names) }}
  {{- if hasPrefix "/" $path }}
  value: http://{{ include "keb.fullname" $own.root }}-landscape:8090{{ $path }}
  {{- else }}
  value: {{ $path | quote }}
  {{- end }}
{{- end }}
{{- end }}
{{- end -}}
{{- end -}}

{{- /* Volumes and mounts of extraCA and secretFiles: dict "root" $ "secretFiles". */ -}}
{{- define "keb.volumes" -}}
{{- with .root.Values.extraCA.configMap }}
- name: ca
  configMap:
    name: {{ . | quote }}
{{- end }}
{{- range $name, $ref := .secretFiles }}
- name: {{ $name | lower | replace "_" "-" }}
  secret:
    secretName: {{ $ref.name | quote }}
    items:
      - key: {{ $ref.key | quote }}
        path: {{ $ref.key | quote }}
{{- end }}
{{- end -}}

{{- define "keb.mounts" -}}
{{- if .root.Values.extraCA.configMap }}
- name: ca
  mountPath: /etc/keb/ca
  readOnly: true
{{- end }}
{{- range $name, $ref := .secretFiles }}
- name: {{ $name | lower | replace "_" "-" }}
  mountPath: /etc/keb/files/{{ $name | lower | replace "_" "-" }}
  readOnly: true
{{- end }}
{{- end -}}

{{- /* Probes at the port metrics. A service that waits for its database or the bus has five minutes. */ -}}
{{- define "keb.probes" -}}
{{- $scheme := ternary "HTTPS" "HTTP" (and .Values.tls.enabled .Values.tls.metrics) -}}
startupProbe:
  httpGet:
    path: /healthz
    port: metrics
    scheme: {{ $scheme }}
  periodSeconds: 2
  failureThreshold: 150
livenessProbe:
  httpGet:
    path: /healthz
    port: metrics
    scheme: {{ $scheme }}
  periodSeconds: 20
  timeoutSeconds: 5
readinessProbe:
  httpGet:
    path: /readyz
    port: metrics
    scheme: {{ $scheme }}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end -}}

{{- /* Where and how the pods of a component run: dict "root" $ "component" "c" its values. */ -}}
{{- define "keb.placement" -}}
{{- $c := .c -}}
{{- if and $c.topologySpread $c.topologySpread.enabled }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: {{ $c.topologySpread.topologyKey | quote }}
    whenUnsatisfiable: {{ $c.topologySpread.whenUnsatisfiable }}
    labelSelector:
      matchLabels:
        {{- include "keb.selector" . | nindent 8 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with $c.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $c.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $c.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "keb.podMeta" -}}
labels:
  {{- include "keb.labels" . | nindent 2 }}
  {{- with mergeOverwrite (deepCopy .root.Values.podLabels) (deepCopy (.c.podLabels | default dict)) }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  kubectl.kubernetes.io/default-container: {{ .container }}
  {{- with .checksum }}
  checksum/config: {{ . | sha256sum }}
  {{- end }}
  {{- with mergeOverwrite (deepCopy .root.Values.podAnnotations) (deepCopy (.c.podAnnotations | default dict)) }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "keb.pdb" -}}
{{- $p := .c.podDisruptionBudget -}}
{{- if and $p.enabled (gt (int .replicas) 1) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    {{- include "keb.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ $p.maxUnavailable }}
  selector:
    matchLabels:
      {{- include "keb.selector" . | nindent 6 }}
{{- end }}
{{- end -}}

{{- define "keb.serviceAccount" -}}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    {{- include "keb.labels" . | nindent 4 }}
automountServiceAccountToken: false
{{- end -}}

{{- define "keb.claim" -}}
{{- if .size }}
volumeClaimTemplates:
  - metadata:
      name: data
    spec:
      accessModes: [ReadWriteOnce]
      {{- with .className }}
      storageClassName: {{ . | quote }}
      {{- end }}
      resources:
        requests:
          storage: {{ .size }}
{{- end }}
{{- end -}}
