{{- define "hostler.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "hostler.selector" -}}
app.kubernetes.io/name: hostler
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "hostler.labels" -}}
{{ include "hostler.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "hostler.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "hostler.name" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The configuration as data; a wrong file is an error of the chart, not of a Pod. */}}
{{- define "hostler.config" -}}
{{- $config := fromToml .Values.config -}}
{{- if hasKey $config "Error" -}}
{{- fail (printf "values: `config` is not TOML: %s" (get $config "Error")) -}}
{{- end -}}
{{- toJson $config -}}
{{- end -}}
