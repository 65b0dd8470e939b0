#!/bin/sh
# sdk.sh VERSION DIST: the packages of the SDKs: crates, an npm package, a wheel and a Go module.
set -eu
version=$1 dist=$2
cd "$(dirname "$0")/.."
sdk=$PWD/guest-examples/sdk
mkdir -p "$dist"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say() { printf '\n== %s\n' "$*"; }

say "crates"
# They are built from the packages by the test: a build here would need the registry, where the macros are not.
(cd "$sdk/rust" && cargo package --quiet --workspace --locked --allow-dirty --no-verify --target-dir "$work/crates")
cp "$work"/crates/package/*.crate "$dist/"

say "npm package"
npm pack --silent "$sdk/js" --pack-destination "$dist"

say "wheel"
# A copy: the build writes beside its sources.
cp -rL "$sdk/python" "$work/python"
pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$dist" "$work/python"

say "Go module"
# The form of zip files of modules, but for its name: a path without a domain is in no registry.
cp -rL "$sdk/go/hostler" "$work/hostler@v$version"
(cd "$work" && python3 - "hostler@v$version" "$dist/hostler-go-$version.zip" <<'PYTHON'
import pathlib, sys, zipfile

folder, to = sys.argv[1:]
with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as archive:
    for path in sorted(pathlib.Path(folder).rglob("*")):
        if path.is_file():
            # Always the same bytes.
            entry = zipfile.ZipInfo(path.as_posix())
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, path.read_bytes())
PYTHON
)
