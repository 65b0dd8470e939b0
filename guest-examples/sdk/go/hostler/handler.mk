# Builds handler.wasm from the main package in this folder, or in MAIN.

HERE := $(dir $(lastword $(MAKEFILE_LIST)))
include $(HERE)toolchains.mk

MAIN ?= .
HANDLER ?= handler.wasm
BUILD := build/$(basename $(HANDLER))

all: $(HANDLER)

$(HANDLER): $(BUILD)/core.wasm $(wildcard $(HERE)wit/*.wit) | $(WASM_TOOLS)
	$(WASM_TOOLS) component embed $(HERE)wit --world handler $< -o $(BUILD)/embedded.wasm
	@mkdir -p $(dir $@)
	$(WASM_TOOLS) component new $(BUILD)/embedded.wasm --adapt $(HERE)wasi_snapshot_preview1.reactor.wasm -o $@

# Go itself knows what has changed. The overlay changes two files of Go's library: net/http sends its requests
# through hostler, and the error of a socket says that there are none.
# The allocator of the bindings links to internal names of the Go runtime. -checklinkname=0 allows this.
$(BUILD)/core.wasm: FORCE
	@command -v go >/dev/null || { \
	  echo "Go is missing: install Go 1.25 or later from https://go.dev/dl, then run make again" >&2; exit 1; }
	@mkdir -p $(BUILD)
	@sed 's#"Connection refused"#"a handler in Go has no sockets, but net/http works"#' \
	  "$$(go env GOROOT)/src/syscall/tables_wasip1.go" > $(BUILD)/errors
	@printf '{"Replace":{"%s/src/%s":"%s","%s/src/%s":"%s"}}\n' \
	  "$$(go env GOROOT)" net/http/roundtrip.go "$(abspath $(HERE)_std/roundtrip.go)" \
	  "$$(go env GOROOT)" syscall/tables_wasip1.go "$(abspath $(BUILD)/errors)" > $(BUILD)/overlay.json
	GOOS=wasip1 GOARCH=wasm go build -trimpath -buildmode=c-shared -overlay $(BUILD)/overlay.json \
	  -ldflags="-s -w -checklinkname=0" -o $@ $(MAIN)

test:
	go test ./...

clean:
	rm -rf build $(HANDLER)

.PHONY: all test clean FORCE
