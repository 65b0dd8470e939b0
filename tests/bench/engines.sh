#!/bin/sh
# Measures the engines that run JavaScript and Python by the SDKs: the same small handler in each. It writes the second
# table of docs/languages.md, which is under "Cost".
# engines.sh HOSTLER PIP COMPONENTIZE_PY, the two as folders
set -eu

hostler=$(realpath "$1")
parts=$(realpath "$(dirname "$0")")
sdk=$parts/../../guest-examples/sdk
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
. "$parts/table.sh"

engine() {
  measure "$2"
  row "$1" "bytes:$(top size_bytes)" "bytes:$(top memory_bytes)" $(costs)
}

{
  echo '| engine | component | memory | cold start | cached start | fresh | reused |'
  echo '|---|---:|---:|---:|---:|---:|---:|'
} > "$dir/table"
for name in starlingmonkey quickjs; do
  (cd "$parts/engines" && node "$sdk/js/build/cli.js" handler.js -o "$dir/$name.wasm" --folder "$dir/$name" --engine $name)
done
engine 'JavaScript, StarlingMonkey' "$dir/starlingmonkey.wasm"
engine 'JavaScript, QuickJS' "$dir/quickjs.wasm"
mkdir "$dir/python"
cp "$parts/engines/handler.py" "$dir/python"
printf 'stream = "orders"\ngroup = "bench"\nhandler = "handler.wasm"\n' > "$dir/python/hostler.toml"
PYTHONPATH=$sdk/python python3 -m hostler_handler.build --project "$dir/python" -o "$dir/python.wasm" --pip "$2" --componentize-py "$3"
engine 'Python, CPython' "$dir/python.wasm"
into "$parts/../../docs/languages.md" engines
