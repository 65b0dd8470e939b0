#!/bin/sh
# Measures what telemetry costs: CPU of the host in microseconds for each message, without a collector, and with one
# and several shares of recorded messages, in alternating ROUNDS. What else the machine does only adds: so the least counts,
# and the median of the ratios within a round. REUSE=1: a fresh instance for each message.
# telemetry.sh HOSTLER GUESTS
set -eu

hostler=$(realpath "$1")
guests=$(realpath "$2")
messages=${MESSAGES:-50000}
rounds=${ROUNDS:-5}
dir=$(mktemp -d)
port=
sink=

stop() {
  [ -z "$port" ] || redis-cli -p "$port" shutdown nosave > /dev/null 2>&1 || true
  [ -z "$sink" ] || kill "$sink" 2> /dev/null || true
  rm -rf "$dir"
}
trap stop EXIT
trap 'exit 1' INT TERM

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

port=$(free_port)
redis-server --port "$port" --bind 127.0.0.1 --save "" --daemonize yes --dir "$dir" > /dev/null
until redis-cli -p "$port" ping > /dev/null 2>&1; do sleep 0.05; done

# A collector that takes everything, and keeps nothing.
collector=$(free_port)
python3 - "$collector" <<'SINK' &
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Sink).serve_forever()
SINK
sink=$!

measure() { # NAME FLAG...
  name=$1
  shift
  redis-cli -p "$port" flushall > /dev/null
  redis-cli -p "$port" eval \
    "for i = 1, tonumber(ARGV[1]) do redis.call('XADD', 'orders', '*', '_payload', '{\"id\":1}') end" 0 "$messages" > /dev/null
  redis-cli -p "$port" xgroup create orders bench 0 > /dev/null
  python3 - "$dir/$name" "$messages" "$hostler" run --redis "redis://127.0.0.1:$port" --stream orders --group bench \
    --handler "$guests/ack.wasm" --reuse "${REUSE:-1000}" --until-empty --summary json --log-level warn "$@" <<'RUN'
import resource, subprocess, sys
out, messages, *command = sys.argv[1:]
done = subprocess.run(command, check=True, capture_output=True, text=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
assert f'"acked":{messages}' in done.stdout, done.stdout + done.stderr
print(f"{(used.ru_utime + used.ru_stime) / int(messages) * 1e6:.2f}", file=open(out, "a"))
RUN
}

otlp="--otlp-endpoint=http://127.0.0.1:$collector --otlp-protocol=http"
# The first run compiles the component.
measure warm
for _ in $(seq "$rounds"); do
  measure off
  # shellcheck disable=SC2086 # several flags
  measure none $otlp --otlp-sample=0%
  # shellcheck disable=SC2086
  measure one $otlp --otlp-sample=1%
  # shellcheck disable=SC2086
  measure all $otlp --otlp-sample=100%
done

median() { sort -n | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }

echo "telemetry | CPU of the host for each message (us): least, median | of that without: least, median of the rounds"
for name in off none one all; do
  for of in "$dir/$name" "$dir/off"; do sort -n "$of" | head -n 1; done | paste -s > "$dir/least"
  paste "$dir/$name" "$dir/off" | awk '{ print $1 / $2 * 100 }' | median > "$dir/ratio"
  median < "$dir/$name" > "$dir/median"
  paste "$dir/least" "$dir/median" "$dir/ratio" |
    awk -v name="$name" '{ printf "%s | %.2f, %.2f | %.1f %%, %.1f %%\n", name, $1, $3, $1 / $2 * 100, $4 }'
done
