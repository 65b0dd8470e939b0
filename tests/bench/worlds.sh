#!/bin/sh
# Measures the cost of the orders example in each world, and as a program in each language, without Redis. It writes
# the table of docs/internals/worlds.md between its marks.
# worlds.sh HOSTLER GUESTS PROGRAMS [DOCUMENT]
#   GUESTS    the folder that has wasm32-wasip2/release and wasm32-wasip1/release
#   PROGRAMS  the folder that has go.wasm, c.wasm, ...; a language that is not built is left out
set -eu

hostler=$(realpath "$1")
components=$2/wasm32-wasip2/release
modules=$2/wasm32-wasip1/release
programs=$3
parts=$(realpath "$(dirname "$0")")
doc=${4:-$parts/../../docs/internals/worlds.md}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
. "$parts/table.sh"

{
  echo '| handler | language | file | cold start | cached start | fresh | reused |'
  echo '|---|---|---:|---:|---:|---:|---:|'
} > "$dir/table"
handler() {
  [ -e "$3" ] || return 0
  measure "$3"
  row "$1" "$2" "bytes:$(top size_bytes)" $(costs)
}
handler 'hostler' Rust "$components/orders_handler.wasm"
handler 'Spin, Redis trigger' Rust "$components/orders_spin.wasm"
handler 'Spin, SQS trigger' Rust "$components/orders_sqs.wasm"
handler 'wasmCloud' Rust "$components/orders_wasmcloud.wasm"
handler 'program, component' Rust "$components/orders_program.wasm"
handler 'program, module' Rust "$modules/orders_program.wasm"
handler 'program, module' Go "$programs/go.wasm"
handler 'program, module' C "$programs/c.wasm"
handler 'program, module' C++ "$programs/cpp.wasm"
handler 'program, module' Zig "$programs/zig.wasm"
into "$doc"
