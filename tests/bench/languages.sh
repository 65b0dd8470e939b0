#!/bin/sh
# What a handler costs in each language: builds the examples, measures their components without
# Redis, and writes the table of docs/languages.md between its marks.
# languages.sh HOSTLER LANGUAGE...
set -eu

hostler=$(realpath "$1")
shift
root=$(realpath "$(dirname "$0")/../..")
doc=$root/docs/languages.md
table=$(mktemp)
trap 'rm -f "$table" "$table.doc" "$table.json" "$table.log"' EXIT INT TERM

printf '%s' '{"id":"o-1","amount":42.5,"currency":"EUR","status":"paid","items":["espresso beans 1 kg"],"gift":false}' > "$table.json"
# A number of the one line of JSON; with a section before it, of that section.
field() { printf '%s' "$json" | sed -n "s/.*\"$1\":{[^}]*\"$2\":\([0-9.]*\).*/\1/p"; }
top() { printf '%s' "$json" | sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p"; }

{
  echo '| language | component | build | cold start | cached start | fresh | reused |'
  echo '|---|---:|---:|---:|---:|---:|---:|'
} > "$table"
for language in "$@"; do
  case $language in
    rust) name=Rust file=target/wasm32-wasip2/release/orders_handler.wasm ;;
    rust-batch) continue ;;
    js) name=JavaScript file=handler.wasm ;;
    ts) name=TypeScript file=handler.wasm ;;
    python) name=Python file=handler.wasm ;;
    go) name=Go file=handler.wasm ;;
    c) name=C file=handler.wasm ;;
    cpp) name=C++ file=handler.wasm ;;
    zig) name=Zig file=handler.wasm ;;
    *) name=$language file=handler.wasm ;;
  esac
  folder=$root/guest-examples/$language
  make -s -C "$root" "guest-$language" > /dev/null
  # The tools and the dependencies are there: only the handler is built again.
  rm -rf "$folder/handler.wasm" "$folder/build"
  touch "$folder"/*.* "$folder"/src/* "$folder"/order/* 2> /dev/null || true
  begun=$(date +%s%N)
  make -s -C "$root" "guest-$language" > /dev/null
  built=$(( ($(date +%s%N) - begun) / 1000000 ))
  # What it says to people is of the guest's log, cut at its limits, unless it fails.
  json=$("$hostler" bench --in-process "$folder/$file" --body-file "$table.json" --json 2> "$table.log") || {
    cat "$table.log" >&2; exit 1; }
  awk -v name="$name" -v size="$(top size_bytes)" -v built="$built" \
    -v compile="$(top compile_ms)" -v cached="$(top cached_start_ms)" \
    -v fresh="$(field fresh p50_us)" -v reuse="$(field reuse p50_us)" '
    function time(us) {
      if (us >= 1000000) return sprintf("%.1f s", us / 1000000)
      if (us >= 1000) return sprintf("%.1f ms", us / 1000)
      return sprintf("%.1f us", us)
    }
    BEGIN { printf "| %s | %s | %s | %s | %s | %s | %s |\n", name,
      (size >= 1048576 ? sprintf("%.1f MiB", size / 1048576) : sprintf("%.0f KiB", size / 1024)),
      time(built * 1000), time(compile * 1000), time(cached * 1000), time(fresh), time(reuse) }' >> "$table"
  tail -n 1 "$table" >&2
done

awk -v table="$table" '
  /<!-- measured -->/ { print; while ((getline line < table) > 0) print line; skip = 1; next }
  /<!-- end -->/ { skip = 0 }
  !skip { print }' "$doc" > "$table.doc"
cat "$table.doc" > "$doc"
