#!/bin/sh
# version.sh VERSION: writes the version of a release to every file that has one. A test compares them.
set -eu
to=${1:-}
case $to in
  [0-9]*.[0-9]*.[0-9]*) ;;
  *) echo "which version? make version TO=0.2.0" >&2; exit 1 ;;
esac
cd "$(dirname "$0")/.."
from=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
sed -i "0,/^version = \"$from\"/s//version = \"$to\"/" Cargo.toml
sed -i "s/^version: .*/version: $to/; s/^appVersion: .*/appVersion: \"$to\"/" packaging/helm/hostler/Chart.yaml
sed -i "s/^\(\s*\)\(image: \"hostler:\).*/\1\2$to\"/; s/\(app.kubernetes.io\/version: \).*/\1\"$to\"/; s/\(helm.sh\/chart: hostler-\).*/\1$to/" \
  packaging/kubernetes/hostler.yaml
sed -i "s/^ARG HOSTLER_VERSION=.*/ARG HOSTLER_VERSION=$to/" packaging/image/Containerfile
for crate in hostler-handler hostler-handler/macros; do
  sed -i "s/^version = \"$from\"/version = \"$to\"/; s/^\(hostler-handler-macros = { version = \"\)$from/\1$to/" \
    "guest-examples/sdk/rust/$crate/Cargo.toml"
done
sed -i "s/^version = \"$from\"/version = \"$to\"/" guest-examples/sdk/python/pyproject.toml
sed -i "1,12s/^\( *\"version\": \"\)$from\"/\1$to\"/" guest-examples/sdk/js/package.json guest-examples/sdk/js/package-lock.json
cargo update --quiet --offline --workspace
for folder in guest-examples/sdk/rust guest-examples/sdk/rust/template guest-examples/jobs/rust tests/libraries/rust; do
  # This writes the versions of what lies in folders.
  cargo metadata --quiet --offline --format-version 1 --manifest-path $folder/Cargo.toml > /dev/null
done
sed -i "s/^## \[Unreleased\]\$/## [Unreleased]\n\n## [$to]/" CHANGELOG.md
echo "$from -> $to; next: make check, then a tag v$to"
