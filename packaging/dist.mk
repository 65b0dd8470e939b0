# Packages: `make dist` makes them in dist/, `make dist-test` tests them with the real tools.
# Everything is pinned here and in packaging/requirements.txt, and installed below .toolchains/dist.

MDBOOK_VERSION := 0.5.4
CARGO_DEB_VERSION := 3.8.0
CARGO_CYCLONEDX_VERSION := 0.5.9
BUNDLE_LICENSES_VERSION := 5.0.0
HELM_VERSION := v3.22.0
# The Kubernetes that it renders for, as its own releases say.
HELM_KUBERNETES := k8sVersionMajor=1 k8sVersionMinor=34
KUBECONFORM_VERSION := v0.8.0
KEDA_VERSION := v2.21.0
TAPLO_VERSION := 0.7.0

DIST := $(CURDIR)/dist
DIST_TOOLS := $(TOOLCHAINS)/dist
DIST_BIN := $(DIST_TOOLS)/bin
DIST_PYTHON := $(DIST_TOOLS)/python
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
# arm64 needs the Rust target `aarch64-unknown-linux-gnu`.
DIST_TARGETS ?= x86_64-unknown-linux-gnu
# glibc 2.28: Debian 10, Ubuntu 18.10, RHEL 8 and everything newer.
DIST_GLIBC := 2_28

.PHONY: dist dist-binaries dist-sdk dist-docs dist-kubernetes dist-checksums dist-test dist-tools book kubernetes version

dist: dist-binaries dist-sdk dist-docs dist-kubernetes
	@$(MAKE) --no-print-directory dist-checksums
	@ls -l $(DIST)

# ---- Tools

$(DIST_PYTHON)/.installed: packaging/requirements.txt
	python3 -m venv $(DIST_PYTHON)
	$(DIST_PYTHON)/bin/pip install --quiet --disable-pip-version-check -r packaging/requirements.txt
	@touch $@

# One folder for all of them: they share most of what they depend on.
define cargo_tool
$(DIST_BIN)/$(1)-$(2):
	CARGO_TARGET_DIR=$(DIST_TOOLS)/target $(CARGO) install --quiet --locked --debug $(1) --version $(2) $(3) --root $(DIST_TOOLS)
	@mv $(DIST_BIN)/$(1) $$@ && ln -sf $(1)-$(2) $(DIST_BIN)/$(1)
endef
$(eval $(call cargo_tool,mdbook,$(MDBOOK_VERSION),--no-default-features --features search))
$(eval $(call cargo_tool,cargo-deb,$(CARGO_DEB_VERSION),))
$(eval $(call cargo_tool,cargo-cyclonedx,$(CARGO_CYCLONEDX_VERSION),))
$(eval $(call cargo_tool,cargo-bundle-licenses,$(BUNDLE_LICENSES_VERSION),))

$(DIST_BIN)/helm-$(HELM_VERSION):
	GOBIN=$(DIST_BIN) go install -ldflags '$(HELM_KUBERNETES:%=-X helm.sh/helm/v3/pkg/chartutil.%)' \
	  helm.sh/helm/v3/cmd/helm@$(HELM_VERSION)
	@mv $(DIST_BIN)/helm $@ && ln -sf helm-$(HELM_VERSION) $(DIST_BIN)/helm

$(DIST_BIN)/kubeconform-$(KUBECONFORM_VERSION):
	GOBIN=$(DIST_BIN) go install github.com/yannh/kubeconform/cmd/kubeconform@$(KUBECONFORM_VERSION)
	@mv $(DIST_BIN)/kubeconform $@ && ln -sf kubeconform-$(KUBECONFORM_VERSION) $(DIST_BIN)/kubeconform

# The schemas of KEDA's own definitions, as kubeconform reads them.
$(DIST_TOOLS)/keda-$(KEDA_VERSION)/.made: $(DIST_PYTHON)/.installed
	sh packaging/kubernetes/keda-schemas.sh $(KEDA_VERSION) $(KUBECONFORM_VERSION) $(DIST_PYTHON)/bin/python $(@D)
	@touch $@

$(DIST_TOOLS)/node/node_modules/.bin/taplo: | setup-node
	npm install --prefix $(DIST_TOOLS)/node --no-audit --no-fund --loglevel=error @taplo/cli@$(TAPLO_VERSION)

DIST_TOOLS_ALL := $(DIST_PYTHON)/.installed $(DIST_BIN)/mdbook-$(MDBOOK_VERSION) \
  $(DIST_BIN)/cargo-deb-$(CARGO_DEB_VERSION) $(DIST_BIN)/cargo-cyclonedx-$(CARGO_CYCLONEDX_VERSION) \
  $(DIST_BIN)/cargo-bundle-licenses-$(BUNDLE_LICENSES_VERSION) $(DIST_BIN)/helm-$(HELM_VERSION) \
  $(DIST_BIN)/kubeconform-$(KUBECONFORM_VERSION) $(DIST_TOOLS)/keda-$(KEDA_VERSION)/.made \
  $(DIST_TOOLS)/node/node_modules/.bin/taplo

dist-tools: $(DIST_TOOLS_ALL)

# ---- Packages

# For each target: the wheel, whose build makes the binary, then the archive, the Debian package and the image.
dist-binaries: setup-rust $(DIST_PYTHON)/.installed $(DIST_BIN)/cargo-deb-$(CARGO_DEB_VERSION) \
  $(DIST_BIN)/cargo-cyclonedx-$(CARGO_CYCLONEDX_VERSION) $(DIST_BIN)/cargo-bundle-licenses-$(BUNDLE_LICENSES_VERSION)
	+@for target in $(DIST_TARGETS); do \
	  PATH="$(DIST_PYTHON)/bin:$(DIST_BIN):$$PATH" sh packaging/build.sh $$target $(DIST_GLIBC) $(VERSION) $(DIST) || exit 1; \
	done

# What handlers are written with: one package for each language.
dist-sdk: $(DIST_PYTHON)/.installed | setup-rust setup-node
	PATH="$(DIST_PYTHON)/bin:$$PATH" sh packaging/sdk.sh $(VERSION) $(DIST)

book dist-docs: $(DIST_BIN)/mdbook-$(MDBOOK_VERSION)
	sh packaging/book.sh $(DIST_BIN)/mdbook $(DIST)/book
	@if [ $@ = dist-docs ]; then tar -C $(DIST) -czf $(DIST)/hostler-$(VERSION)-docs.tar.gz book; fi

dist-kubernetes: $(DIST_BIN)/helm-$(HELM_VERSION)
	@mkdir -p $(DIST)
	$(DIST_BIN)/helm package --destination $(DIST) packaging/helm/hostler
	cp packaging/kubernetes/hostler.yaml $(DIST)/hostler-$(VERSION)-kubernetes.yaml

# The manifests are the chart with its values as they stand.
kubernetes: $(DIST_BIN)/helm-$(HELM_VERSION)
	sh packaging/kubernetes/render.sh $(DIST_BIN)/helm > packaging/kubernetes/hostler.yaml

dist-checksums:
	cd $(DIST) && find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%P\n' | sort | xargs sha256sum > SHA256SUMS

# The tests of packages that `make dist` has made. One: make dist-test ONLY=wheel
ONLY ?=
dist-test: $(DIST_TOOLS_ALL)
	@PATH="$(DIST_PYTHON)/bin:$(DIST_BIN):$(DIST_TOOLS)/node/node_modules/.bin:$$PATH" \
	  DIST=$(DIST) VERSION=$(VERSION) TOOLS=$(DIST_TOOLS) KEDA=$(DIST_TOOLS)/keda-$(KEDA_VERSION) \
	  sh packaging/test/run.sh $(ONLY)

# The version of everything that has one: make version TO=0.2.0
version:
	@sh packaging/version.sh "$(TO)"
