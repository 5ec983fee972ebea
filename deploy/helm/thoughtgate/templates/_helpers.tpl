{{- define "thoughtgate.name" -}}
{{- if contains .Chart.Name .Release.Name -}}{{ .Release.Name | trunc 63 | trimSuffix "-" }}{{- else -}}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" }}{{- end -}}
{{- end -}}

{{- define "thoughtgate.selector" -}}
app.kubernetes.io/name: thoughtgate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "thoughtgate.labels" -}}
{{ include "thoughtgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- /* The service account of the pods, if they have their own. */ -}}
{{- define "thoughtgate.account" -}}
{{- if .Values.serviceAccount.create -}}{{ .Values.serviceAccount.name | default (include "thoughtgate.name" .) }}{{- else -}}{{ .Values.serviceAccount.name }}{{- end -}}
{{- end -}}

{{- /* The configuration with what the chart itself decides. */ -}}
{{- define "thoughtgate.config" -}}
{{- $own := dict "version" 1 "listen" "0.0.0.0:8080" "state_dir" "/var/lib/thoughtgate" "operators" (dict "listen" "0.0.0.0:8081") "shutdown" (dict "delay" (printf "%ds" (int .Values.shutdown.delaySeconds)) "drain" (printf "%ds" (int .Values.shutdown.drainSeconds))) -}}
{{- with .Values.ingress.operators.host -}}
{{- $_ := set (get $own "operators") "url" (printf "https://%s" .) -}}
{{- end -}}
{{- with .Values.ingress.agents.host -}}
{{- $_ := set $own "allowed_hosts" (append ($.Values.config.allowed_hosts | default list) . | uniq) -}}
{{- end -}}
{{- mergeOverwrite (deepCopy .Values.config) $own | toYaml -}}
{{- end -}}
