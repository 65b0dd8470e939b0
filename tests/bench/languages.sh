#!/bin/sh
# Measures the cost of a handler in each language. For each language the script makes a project as a
# user would, builds it twice and measures its component without Redis. It writes the table of
# docs/languages.md between its marks.
# languages.sh HOSTLER LANGUAGE...
set -eu

hostler=$(realpath "$1")
shift
parts=$(realpath "$(dirname "$0")")
doc=$parts/../../docs/languages.md
dir=$(mktemp -d)
trap 'chmod -R u+w "$dir" 2> /dev/null; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
. "$parts/table.sh"

# Use no earlier downloads and builds, except the crates that cargo has downloaded.
unset MAKEFLAGS MFLAGS MAKELEVEL TOOLCHAINS CARGO_TARGET_DIR LANG 2> /dev/null || true
export npm_config_cache="$dir/npm" PIP_NO_CACHE_DIR=1 GOMODCACHE="$dir/gomod" GOCACHE="$dir/gocache" GOFLAGS=-modcacherw

now() { echo $(( $(date +%s%N) / 1000000 )); }
# Run a build. Show its output if it fails.
build() { sh -c "$1" > "$dir/log" 2>&1 < /dev/null || { cat "$dir/log" >&2; exit 1; }; }

{
  echo '| language | component | memory | set-up | build | cold start | cached start | fresh | reused |'
  echo '|---|---:|---:|---:|---:|---:|---:|---:|---:|'
} > "$dir/table"
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
  # Those without the SDK: the table of engines has the others.
  case $language in
    js | ts) engine='--engine quickjs' ;;
    rust | python | go) engine=--raw ;;
    *) engine= ;;
  esac
  # shellcheck disable=SC2086
  "$hostler" new --lang "$language" $engine probe > /dev/null 2>&1
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
  measure "$file"
  row "$name" "bytes:$(top size_bytes)" "bytes:$(top memory_bytes)" "us:$((first > again ? (first - again) * 1000 : 0))" "us:$((again * 1000))" $(costs)
  cd "$dir"
  chmod -R u+w "$language"
  rm -rf "$language"
done

into "$doc"
