{{- define "ballast.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "ballast.pull" -}}
image: {{ include "ballast.image" . }}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end }}

{{- /* Where the data plane answers its probes: --stats-port of controller.args, else BALLAST_STATS_PORT of settings, as the program has it. */ -}}
{{- define "ballast.statsPort" -}}
{{- $port := get (.Values.settings | default dict) "BALLAST_STATS_PORT" | default 1936 }}
{{- $isNext := false }}
{{- range .Values.controller.args }}
  {{- if $isNext }}
    {{- $port = . }}
  {{- else if hasPrefix "--stats-port=" . }}
    {{- $port = trimPrefix "--stats-port=" . }}
  {{- end }}
  {{- $isNext = eq . "--stats-port" }}
{{- end }}
{{- int $port }}
{{- end }}
