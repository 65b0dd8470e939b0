#!/bin/sh
# What swaps cost: the same queue is emptied by one host, first with one version of its handler, then
# while its file is replaced by ever new versions, each of which must be compiled.
# swap.sh HOSTLER COMPONENT [MESSAGES] [ROUNDS] [SECONDS BETWEEN VERSIONS]
set -eu

hostler=$(realpath "$1")
component=$(realpath "$2")
messages=${3:-600000}
rounds=${4:-3}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT INT TERM
cd "$dir"

# The component with a section that says nothing: another digest, the same handler.
version() { { cat "$component"; printf '\000\011\004swap%04d' "$1"; } > "$dir/next" && mv "$dir/next" "$dir/handler.wasm"; }

# measure NAME SECONDS: with SECONDS = 0 nothing is swapped, else a new version comes so often.
measure() {
  round=1
  while [ "$round" -le "$rounds" ]; do
    rm -rf .hostler
    version 0
    seq "$messages" | "$hostler" publish --redis embedded --stream orders --lines > /dev/null 2>&1
    swapper=
    begun=$(date +%s%N)
    if [ "$2" != 0 ]; then
      (n=1; while [ "$n" -lt 1000 ]; do sleep "$2"; version "$n"; n=$((n + 1)); done) &
      swapper=$!
    fi
    summary=$("$hostler" run --redis embedded --stream orders --group g --handler handler.wasm --compile-cache off \
      --until-empty --summary json 2> "$dir/log")
    took=$(( ($(date +%s%N) - begun) / 1000000 ))
    if [ -n "$swapper" ]; then kill "$swapper" 2> /dev/null; wait "$swapper" 2> /dev/null || true; fi
    acked=$(printf '%s' "$summary" | sed -n 's/.*"acked":\([0-9]*\).*/\1/p')
    swaps=$(printf '%s' "$summary" | sed -n 's/.*"swaps":\([0-9]*\).*/\1/p')
    echo "$1: $acked acknowledged in $took ms, $((acked * 1000 / took)) a second, $swaps swaps"
    round=$((round + 1))
  done
}

measure "one version" 0
measure "a new version each ${5:-2} s" "${5:-2}"
