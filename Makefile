# `make demo` and `make test` do all the set-up themselves on a Debian machine that has rustup, a C
# toolchain and make. `make help` lists the rest.

CARGO ?= cargo
GUEST := guest-examples/rust/target/wasm32-wasip2/release/orders_handler.wasm

.PHONY: help demo test lint setup setup-rust setup-redis host guests-test clean

help:
	@echo "make demo    the main job on a batch of orders, against a private Redis"
	@echo "make test    the whole test suite"
	@echo "make lint    formatting and lints"
	@echo "make host    the host alone, optimized: target/release/hostler"
	@echo "make clean   remove everything that was built"

setup: setup-rust setup-redis

setup-rust:
	@command -v rustup >/dev/null || command -v $(CARGO) >/dev/null || { \
	  echo "Rust is missing: install it from https://rustup.rs, then run make again" >&2; exit 1; }
	@if command -v rustup >/dev/null; then \
	  rustup target list --installed | grep -q '^wasm32-wasip2$$' || rustup target add wasm32-wasip2; \
	fi

setup-redis:
	@command -v redis-server >/dev/null || command -v valkey-server >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends redis-server; \
	  else \
	    echo "redis-server is missing: run \`sudo apt-get install redis-server\`, then make again" >&2; exit 1; \
	  fi; }

# What users compile: each guest is a package of its own.
$(GUEST): $(wildcard guest-examples/rust/src/*.rs) guest-examples/rust/Cargo.toml wit/world.wit | setup-rust
	$(CARGO) build --release --locked --target wasm32-wasip2 --manifest-path guest-examples/rust/Cargo.toml

guests-test: $(GUEST) | setup-rust
	$(CARGO) build --release --locked --target wasm32-wasip2 --manifest-path tests/guests/Cargo.toml

host: setup-rust
	$(CARGO) build --release --locked -p hostler

demo: setup $(GUEST)
	$(CARGO) build --locked -p hostler
	@sh tests/demo/demo.sh target/debug/hostler $(GUEST)

test: setup guests-test
	$(CARGO) test --release --locked --manifest-path guest-examples/rust/Cargo.toml
	$(CARGO) build --workspace --locked --all-targets
	$(CARGO) test --workspace --locked

lint: setup-rust
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

clean:
	$(CARGO) clean
	rm -rf guest-examples/*/target tests/guests/target .hostler
