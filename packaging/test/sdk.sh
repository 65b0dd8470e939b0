# The packages of the SDKs: the template of each language is built with the package, and its cases run. Nothing but the
# dependencies of the packages comes from registries, or from what was downloaded before.
. packaging/test/lib.sh
if [ -z "${HOSTLER:-}" ]; then
  tar -xzf "$(package "hostler-$VERSION-$(uname -m)-linux.tar.gz")" -C "$work"
  HOSTLER=$work/hostler-$VERSION-$(uname -m)-linux/bin/hostler
fi
export TOOLCHAINS="$root/.toolchains"
sdk=$root/guest-examples/sdk
cases() {
  "$HOSTLER" test "$1" cases.toml --config hostler.toml || fail "the cases"
}

# A crate is a folder here: a registry of crates needs a server. The crate of the attribute stands for that of the
# registry.
rust() {
  for crate in hostler-handler hostler-handler-macros; do
    tar -xzf "$(package "$crate-$VERSION.crate")"
  done
  cp -r "$sdk"/rust/template/. .
  rm hostler-handler && mv "hostler-handler-$VERSION" hostler-handler
  mv "hostler-handler-macros-$VERSION" macros
  printf '\n[patch.crates-io]\nhostler-handler-macros = { path = "macros" }\n' >> Cargo.toml
  cargo build --quiet --release --target wasm32-wasip2
  cases target/wasm32-wasip2/release/orders_handler.wasm
}

go() {
  python3 -m zipfile -e "$(package "hostler-go-$VERSION.zip")" .
  cp -r "$sdk"/go/template/. .
  rm hostler && mv "hostler@v$VERSION" hostler
  make --no-print-directory test all
  cases handler.wasm
}

js() {
  cp -r "$sdk"/js/template/js/. .
  npm install --silent --no-audit --no-fund --prefer-offline "$(package "hostler-$VERSION.tgz")"
  npm run --silent build
  cases handler.wasm
}

# Its module of the build is in the package.
python() {
  wheel=$(package "hostler_handler-$VERSION-py3-none-any.whl")
  python3 -m venv venv
  venv/bin/pip install --quiet --disable-pip-version-check --no-index "$wheel"
  cp -r "$sdk"/python/template/. .
  rm hostler_handler
  PATH="$PWD/venv/bin:$PATH" make --no-print-directory test all
  cases handler.wasm
}

for language in ${LANGUAGES:-rust go js python}; do
  case $language in
    go) has go golang ;;
    js) has npm ;;
  esac
  mkdir "$work/$language"
  (cd "$work/$language" && "$language") || fail "$language"
  say "$language: its template is built with the package, and its cases run"
done
