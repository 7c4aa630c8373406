{{- define "stowplan.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end -}}
{{- end }}

{{- define "stowplan.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "stowplan.labels" -}}
{{ include "stowplan.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "stowplan.secret" -}}
{{- if and .Values.token .Values.existingSecret }}{{ fail "give token or existingSecret, not both" }}{{ end -}}
{{- if not (or .Values.token .Values.existingSecret) }}{{ fail "set existingSecret to a secret whose key `token` is the token of the operator, or set token: without one whoever reaches the service could plan and deploy" }}{{ end -}}
{{- default (include "stowplan.name" .) .Values.existingSecret -}}
{{- end }}
