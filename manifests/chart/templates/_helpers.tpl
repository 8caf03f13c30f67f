{{- define "ccm-lb.labels" -}}
app.kubernetes.io/name: ccm-lb
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "ccm-lb.selector" -}}
app.kubernetes.io/name: ccm-lb
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ccm-lb.serviceAccount" -}}
{{- default .Release.Name .Values.serviceAccount.name }}
{{- end }}

{{- define "ccm-lb.secret" -}}
{{- default .Release.Name .Values.existingSecret }}
{{- end }}
