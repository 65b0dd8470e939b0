#!/bin/sh
# Compares the files of uPlot with their digests, and vendor/wasmtime with the published crate: nothing may differ but what vendor/wasmtime.patch says.
# `vendor/published` is locked to the published crate, with its checksum: cargo fetches it from there.
set -eu
# What `diff` says is compared, too.
export LC_ALL=C
cd "$(dirname "$0")/.."
(cd host/src/ui/page/uplot && sha256sum --quiet --check SHA256SUMS)
version=48.0.8
mended=src/runtime/vm/sys/unix/pagemap.rs
lock=vendor/published/Cargo.toml
${CARGO:-cargo} fetch --quiet --locked --manifest-path $lock
manifest=$(${CARGO:-cargo} metadata --locked --offline --format-version 1 --manifest-path $lock |
  grep -o "\"[^\"]*/wasmtime-$version/Cargo.toml\"" | head -n 1 | tr -d '"')
[ -n "$manifest" ] || { echo "vendor/published is not locked to wasmtime $version" >&2; exit 1; }
published=$(dirname "$manifest")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
diff -rq -x .cargo-ok "$published" vendor/wasmtime > "$work/files" || true
printf 'Files %s and %s differ\n' "$published/$mended" "vendor/wasmtime/$mended" > "$work/expected"
diff "$work/expected" "$work/files" >&2 || { echo "vendor/wasmtime is not wasmtime $version with the patch" >&2; exit 1; }
diff -u --label "a/$mended" --label "b/$mended" "$published/$mended" "vendor/wasmtime/$mended" > "$work/patch" || true
diff vendor/wasmtime.patch "$work/patch" >&2 || { echo "vendor/wasmtime.patch does not say what differs" >&2; exit 1; }
