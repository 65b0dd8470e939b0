#!/bin/sh
# Measures the cost of swaps. One host empties the same queue twice: first with one version of its
# handler, then while new versions replace its file. The host must compile each new version. The second
# part also prints the rate while a version is verified, and the rate between versions.
# swap.sh HOSTLER COMPONENT [MESSAGES] [ROUNDS] [SECONDS BETWEEN VERSIONS]
set -eu

hostler=$(realpath "$1")
component=$(realpath "$2")
messages=${3:-600000}
rounds=${4:-3}
pause=${5:-2}
dir=$(mktemp -d)
trap 'stop; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
cd "$dir"

swapper=
watcher=
stop() {
  for pid in $swapper $watcher; do
    kill "$pid" 2> /dev/null || true
    wait "$pid" 2> /dev/null || true
  done
  swapper=
  watcher=
}

# Write the component with an extra section: another digest, the same handler.
version() { { cat "$component"; printf '\000\011\004swap%04d' "$1"; } > "$dir/next" && mv "$dir/next" "$dir/handler.wasm"; }

# Wait for the address of the host's admin server in the log, and print it.
admin() {
  while ! grep -q '"ready"' "$dir/log" 2> /dev/null; do sleep 0.05; done
  sed -n 's/.*"address":"\([^"]*\)".*/\1/p' "$dir/log" | head -n 1
}

# Print the attempts a second while a version was verified, and between versions. The host's log has the
# times of verification, and `looks` has the counts of attempts. An interval that is only partly in a
# verification is left out.
paces() {
  {
    sed -n 's/.*"timestamp":"[^T]*T\([0-9]*\):\([0-9]*\):\([0-9.]*\)Z".*"message":"\(verifying\|swapped\|a new version was refused\|a version was superseded\).*/log \1 \2 \3 \4/p' "$dir/log"
    sed -n 's/.*"at_ms":\([0-9]*\).*"attempts":\([0-9]*\),.*"error":null.*/look \1 \2/p' "$dir/looks"
  } | awk '
    $1 == "log" {
      at = $2 * 3600 + $3 * 60 + $4
      if ($5 == "verifying") { from[++n] = at; to[n] = 1e9 } else if (n) to[n] = at
    }
    $1 == "look" {
      at = $2 / 1000 % 86400
      if (seen && at > last) {
        inside = outside = 0
        for (i = 1; i <= n; i++) {
          if (from[i] <= last && at <= to[i]) inside = 1
          else if (from[i] < at && last < to[i]) outside = 1
        }
        kind = inside ? 1 : !outside ? 0 : 2
        attempts[kind] += $3 - before; time[kind] += at - last
      }
      seen = 1; last = at; before = $3
    }
    END {
      if (!time[0] || !time[1]) { print "  too short to separate verification from the rest: use more messages"; exit }
      quiet = attempts[0] / time[0]; busy = attempts[1] / time[1]
      printf "  %d a second between versions (%.1f s), %d while one is verified (%.1f s): %d %%\n",
        quiet, time[0], busy, time[1], busy * 100 / quiet
    }'
}

# measure NAME SECONDS: a new version comes every SECONDS seconds; 0 = no swaps.
measure() {
  round=1
  while [ "$round" -le "$rounds" ]; do
    rm -rf .hostler log looks
    version 0
    # The messages are orders, so the example handlers acknowledge them.
    seq "$messages" | sed 's/.*/{"id":"&","amount":1}/' | "$hostler" publish --redis embedded --stream orders --lines > /dev/null 2>&1
    begun=$(date +%s%N)
    "$hostler" run --redis embedded --stream orders --group g --handler handler.wasm --compile-cache off \
      --admin 127.0.0.1:0 --until-empty --summary json > summary 2> log &
    host=$!
    if [ "$2" != 0 ]; then
      address=$(admin)
      "$hostler" watch --redis embedded --stream orders --group g --admin "$address" --every 100ms --json > looks 2> /dev/null &
      watcher=$!
      (n=1; while [ "$n" -lt 1000 ]; do sleep "$2"; version "$n"; n=$((n + 1)); done) &
      swapper=$!
    fi
    wait "$host" || { tail -n 5 log >&2; exit 1; }
    took=$(( ($(date +%s%N) - begun) / 1000000 ))
    stop
    acked=$(sed -n 's/.*"acked":\([0-9]*\).*/\1/p' summary)
    swaps=$(sed -n 's/.*"swaps":\([0-9]*\).*/\1/p' summary)
    [ "$acked" = "$messages" ] || { echo "$acked of $messages were acknowledged" >&2; exit 1; }
    echo "$1: $acked acknowledged in $took ms, $((acked * 1000 / took)) a second, $swaps swaps"
    if [ "$2" != 0 ]; then paces; fi
    round=$((round + 1))
  done
}

measure "one version" 0
measure "a new version each $pause s" "$pause"
