#!/bin/sh
# build.sh TARGET GLIBC VERSION DIST: the packages of one target.
# The wheel comes first: its build makes the binary that all packages hold. BINARY=FILE packs that one instead, without a
# wheel: to work on the packages.
set -eu
target=$1 glibc=$2 version=$3 dist=$4
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
case $target in
  x86_64-*) arch=x86_64 deb=amd64 oci=amd64 ;;
  aarch64-*) arch=aarch64 deb=arm64 oci=arm64 ;;
  *) echo "no packages are made for $target" >&2; exit 1 ;;
esac
mkdir -p "$dist"
say() { printf '\n== %s\n' "$*"; }

if ! rustc --print target-libdir --target "$target" >/dev/null 2>&1 ||
  [ ! -d "$(rustc --print target-libdir --target "$target")" ]; then
  rustup target add "$target" || {
    echo "the Rust target $target cannot be installed here: no packages for it" >&2
    exit 1
  }
fi

binary=${BINARY:-target/dist/$target/release/hostler}
if [ -n "${BINARY:-}" ]; then
  say "no wheel: the packages hold $BINARY"
else
  say "wheel and binary, $target, glibc $glibc"
  (cd packaging/wheel && maturin build --zig --release --locked --target "$target" \
    --compatibility "manylinux_$glibc" --target-dir "$root/target/dist" --out "$dist")
fi
ls -l "$binary"

say "manual pages, completions, licences, list of parts"
made=target/dist/$target/made
rm -rf "$made"
mkdir -p "$made/man1" "$made/completions" "$made/schema"
# They are the same for every target: the binary of this machine writes them.
runs=$binary
"$runs" --version >/dev/null 2>&1 || runs=target/dist/$(uname -m)-unknown-linux-gnu/release/hostler
"$runs" man "$made/man1" >/dev/null
gzip -9n "$made"/man1/*.1
"$runs" completions bash > "$made/completions/hostler"
"$runs" completions zsh > "$made/completions/_hostler"
"$runs" completions fish > "$made/completions/hostler.fish"
"$runs" config schema > "$made/schema/hostler.schema.json"
"$runs" config schema cases > "$made/schema/cases.schema.json"
"$runs" config init - > "$made/hostler.toml.example"
# The licences of all dependencies. The crates of wasmtime hold no text of theirs: it is the one of hostler.
(cd host && RUST_LOG=error cargo bundle-licenses --format yaml --output "$root/$made/THIRDPARTY.yml")
sed -i 's/^    text: NOT FOUND$/    text: See LICENSE for Apache-2.0 WITH LLVM-exception; the crate holds no text./' "$made/THIRDPARTY.yml"
# The dashboard holds a script that is no crate.
{ printf '  - package_name: uplot\n    package_version: 1.6.32\n    repository: https://github.com/leeoniya/uPlot\n'
  printf '    license: MIT\n    licenses:\n      - license: MIT\n        text: |\n'
  sed 's/^./          &/' host/src/ui/page/uplot/LICENSE; echo; } >> "$made/THIRDPARTY.yml"
cargo cyclonedx --manifest-path host/Cargo.toml --format json --target "$target" --override-filename "hostler-$target"
mv "host/hostler-$target.json" "$dist/hostler-$version-$arch.cdx.json"
# Other members of the workspace get a file, too.
find . -maxdepth 3 -name "hostler-$target.json" -not -path './target/*' -delete

say "archive"
name=hostler-$version-$arch-linux
tree=target/dist/$target/$name
rm -rf "$tree"
mkdir -p "$tree/bin" "$tree/share/man" "$tree/share/doc/hostler" "$tree/share/bash-completion/completions" \
  "$tree/share/zsh/site-functions" "$tree/share/fish/vendor_completions.d" "$tree/share/hostler" "$tree/lib/systemd/system"
cp "$binary" "$tree/bin/hostler"
cp -r "$made/man1" "$tree/share/man/"
cp "$made/completions/hostler" "$tree/share/bash-completion/completions/"
cp "$made/completions/_hostler" "$tree/share/zsh/site-functions/"
cp "$made/completions/hostler.fish" "$tree/share/fish/vendor_completions.d/"
cp -r "$made/schema" "$tree/share/hostler/"
cp README.md CHANGELOG.md LICENSE "$made/THIRDPARTY.yml" "$made/hostler.toml.example" "$tree/share/doc/hostler/"
cp packaging/systemd/hostler@.service "$tree/lib/systemd/system/"
tar --sort=name --owner=0 --group=0 --numeric-owner -C "$(dirname "$tree")" -czf "$dist/$name.tar.gz" "$name"

say "Debian package"
rm -rf target/dist/deb
mkdir -p target/dist/deb
cp -r "$made" target/dist/deb/made
cp "$binary" target/dist/deb/hostler
cargo deb --no-build --no-strip --manifest-path host/Cargo.toml --target "$target" \
  --output "$dist/hostler_${version}_$deb.deb"

say "image"
if command -v umoci >/dev/null && command -v mmdebstrap >/dev/null; then
  sh packaging/image/build.sh "$binary" "$oci" "$version" "$dist"
else
  echo "no image: it needs umoci and mmdebstrap (apt-get install umoci mmdebstrap)"
fi
