#!/usr/bin/env bash
# The stack without containers or Grafana: a Prometheus with the rules, and a receiver of OTLP, on the loopback until interrupted.
# Takes prometheus, promtool and victoria-metrics from $GPUTRACE_SERVERS/bin or PATH. Usage: stack.sh [FOLDER FOR DATA]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
data=$(mkdir -p "${1:-build/stack}" && cd "${1:-build/stack}" && pwd)
PATH="${GPUTRACE_SERVERS:-$PWD/.servers}/bin:$PATH"
port=${STACK_PORT:-9090}
receiver_port=${STACK_RECEIVER_PORT:-8428}
command -v prometheus >/dev/null || { echo "No prometheus: \`make servers\`, or put it on PATH" >&2; exit 1; }
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT

# Else another server would be taken for this one.
taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
if taken "$port"; then
  echo "Something listens on 127.0.0.1:$port already: end it, or choose another port with STACK_PORT" >&2
  exit 1
fi

prometheus=(prometheus --storage.tsdb.path="$data/prometheus" --config.file="$data/prometheus.yml"
  --web.listen-address="127.0.0.1:$port" --web.enable-remote-write-receiver --enable-feature=exemplar-storage)
config="global: {evaluation_interval: 1m}
rule_files: ['$here/prometheus/rules/gputrace-*.yml']
storage: {tsdb: {out_of_order_time_window: 40d}}"
if prometheus --help 2>&1 | grep -q web.enable-otlp-receiver; then
  prometheus+=(--web.enable-otlp-receiver)
  otlp=http://127.0.0.1:$port/api/v1/otlp
else
  # Debian's Prometheus takes no OTLP: VictoriaMetrics takes it in its place, and is scraped.
  command -v victoria-metrics >/dev/null || { echo "This Prometheus takes no OTLP, and there is no victoria-metrics: \`make servers\`" >&2; exit 1; }
  if taken "$receiver_port"; then
    echo "Something listens on 127.0.0.1:$receiver_port already: end it, or choose another port with STACK_RECEIVER_PORT" >&2
    exit 1
  fi
  victoria-metrics -storageDataPath="$data/victoria" -httpListenAddr="127.0.0.1:$receiver_port" -retentionPeriod=2d \
    -opentelemetry.usePrometheusNaming -search.latencyOffset=0s >"$data/victoria.log" 2>&1 &
  otlp=http://127.0.0.1:$receiver_port/opentelemetry
  config+="
scrape_configs:
  - job_name: gputrace
    honor_labels: true
    scrape_interval: 15s
    metrics_path: /federate
    params: {'match[]': ['{__name__=~\"gputrace_.+|hw_.+|target_info\"}']}
    static_configs: [{targets: ['127.0.0.1:$receiver_port']}]
    # Which service and process it was, as a Prometheus that takes OTLP calls them.
    metric_relabel_configs:
      - {source_labels: [service_name], target_label: job}
      - {source_labels: [service_instance_id], target_label: instance}
      - {action: labeldrop, regex: 'service_name|service_instance_id|telemetry_.+'}"
fi
echo "$config" >"$data/prometheus.yml"
"${prometheus[@]}" >"$data/prometheus.log" 2>&1 &
echo "Prometheus with the rules: http://127.0.0.1:$port (log in $data). Feed it, say, with"
echo "  OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=$otlp/v1/metrics gputrace demo"
echo "or, with history: gputrace simulate --days 1 --step 60 --remote-write http://127.0.0.1:$port (the rules record from now on)"
echo "and add it to a Grafana of yours as a data source; the boards are in $here/dashboards."
status=0
wait -n || status=$?
echo "A server of the stack has ended (status $status). The last lines of its log are among these:" >&2
tail -n 5 "$data"/*.log >&2
exit 1
