#!/bin/sh
# Measures the cost of a handler in each language. For each language the script makes a project as a
# user would, builds it twice and measures its component without Redis. It writes the table of
# docs/languages.md between its marks.
# languages.sh HOSTLER LANGUAGE...
set -eu

hostler=$(realpath "$1")
shift
root=$(realpath "$(dirname "$0")/../..")
doc=$root/docs/languages.md
dir=$(mktemp -d)
trap 'chmod -R u+w "$dir" 2> /dev/null; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
table=$dir/table
json=

# Use no earlier downloads and builds, except the crates that cargo has downloaded.
unset MAKEFLAGS MFLAGS MAKELEVEL TOOLCHAINS CARGO_TARGET_DIR LANG 2> /dev/null || true
export npm_config_cache="$dir/npm" PIP_NO_CACHE_DIR=1 GOMODCACHE="$dir/gomod" GOCACHE="$dir/gocache" GOFLAGS=-modcacherw

printf '%s' '{"id":"o-1","amount":42.5,"currency":"EUR","status":"paid","items":["espresso beans 1 kg"],"gift":false}' > "$dir/order.json"
# `field` and `top` read a number of the one line of JSON; `field` reads it from a section.
field() { printf '%s' "$json" | sed -n "s/.*\"$1\":{[^}]*\"$2\":\([0-9.]*\).*/\1/p"; }
top() { printf '%s' "$json" | sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p"; }

now() { echo $(( $(date +%s%N) / 1000000 )); }
# Run a build. Show its output if it fails.
build() { sh -c "$1" > "$dir/log" 2>&1 < /dev/null || { cat "$dir/log" >&2; exit 1; }; }

{
  echo '| language | component | set-up | build | cold start | cached start | fresh | reused |'
  echo '|---|---:|---:|---:|---:|---:|---:|---:|'
} > "$table"
for language in "$@"; do
  fetch=:
  build=make
  file=handler.wasm
  comment=//
  case $language in
    rust) name=Rust source=src/order.rs file=target/wasm32-wasip2/release/probe.wasm
      fetch='cargo fetch --locked' build='cargo build --release --target wasm32-wasip2' ;;
    rust-batch) continue ;;
    js) name=JavaScript source=src/order.js fetch='npm install' build='npm run build' ;;
    ts) name=TypeScript source=src/order.ts fetch='npm install' build='npm run build' ;;
    python) name=Python source=order.py comment='#' ;;
    go) name=Go source=order/order.go ;;
    c) name=C source=order.c ;;
    cpp) name=C++ source=order.cpp ;;
    zig) name=Zig source=order.zig ;;
    *) echo "unknown language: $language" >&2; exit 64 ;;
  esac
  rm -rf "$dir/$language"
  mkdir "$dir/$language"
  export XDG_DATA_HOME="$dir/$language/data"
  cd "$dir/$language"
  "$hostler" new --lang "$language" probe > /dev/null 2>&1
  cd probe
  begun=$(now)
  build "$fetch && $build"
  first=$(( $(now) - begun ))
  # A small change, as during development.
  echo "$comment measured" >> "$source"
  rm -f handler.wasm
  begun=$(now)
  build "$build"
  again=$(( $(now) - begun ))
  # Standard error has only the guest's log, cut at its limits. Show it if the bench fails.
  json=$("$hostler" bench --in-process "$file" --body-file "$dir/order.json" --json 2> "$dir/log") || {
    cat "$dir/log" >&2; exit 1; }
  awk -v name="$name" -v size="$(top size_bytes)" -v setup="$((first > again ? first - again : 0))" -v again="$again" \
    -v compile="$(top compile_ms)" -v cached="$(top cached_start_ms)" \
    -v fresh="$(field fresh p50_us)" -v reuse="$(field reuse p50_us)" '
    function time(us) {
      if (us >= 1000000) return sprintf("%.1f s", us / 1000000)
      if (us >= 1000) return sprintf("%.1f ms", us / 1000)
      return sprintf("%.1f us", us)
    }
    BEGIN { printf "| %s | %s | %s | %s | %s | %s | %s | %s |\n", name,
      (size >= 1048576 ? sprintf("%.1f MiB", size / 1048576) : sprintf("%.0f KiB", size / 1024)),
      time(setup * 1000), time(again * 1000), time(compile * 1000), time(cached * 1000), time(fresh), time(reuse) }' >> "$table"
  tail -n 1 "$table" >&2
  cd "$dir"
  chmod -R u+w "$language"
  rm -rf "$language"
done

awk -v table="$table" '
  /<!-- measured -->/ { print; while ((getline line < table) > 0) print line; skip = 1; next }
  /<!-- end -->/ { skip = 0 }
  !skip { print }' "$doc" > "$dir/doc"
cat "$dir/doc" > "$doc"
