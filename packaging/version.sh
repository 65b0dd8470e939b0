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
cargo update --quiet --offline --workspace
sed -i "s/^## \[Unreleased\]\$/## [Unreleased]\n\n## [$to]/" CHANGELOG.md
echo "$from -> $to; next: make check, then a tag v$to"
