# ccm-lb: `make help` lists the targets. Everything sets itself up; nothing has to be installed by hand but Python 3.11, make and tar.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
UV_VERSION := 0.13.9
UV := .tools/bin/uv
BIN := .venv/bin
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export VIRTUAL_ENV := $(CURDIR)/.venv
unexport PYTHONPATH

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  %-20s %s\n", $$1, $$2}'

# ---- environment ------------------------------------------------------------------------------------------------

.tools/.uv-$(UV_VERSION):
	@echo "setup: installing uv $(UV_VERSION)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ccm-lb needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; set PYTHON=/path/to/python3.11")'
	@$(PYTHON) -m venv .tools || { echo "setup: python's venv module is missing; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@.tools/bin/python -m pip -q install --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@

.venv/.ready: .tools/.uv-$(UV_VERSION) requirements-dev.lock pyproject.toml
	@echo "setup: installing the pinned packages into .venv"
	@test -x .venv/bin/python || $(UV) venv -q --python "$$(command -v $(PYTHON))" .venv
	@$(UV) pip sync -q --compile-bytecode --require-hashes requirements-dev.lock
	@$(UV) pip install -q --no-deps --editable .
	@touch $@

.PHONY: setup
setup: .venv/.ready ## create .venv with the pinned packages

.PHONY: lock
lock: .tools/.uv-$(UV_VERSION) ## renew requirements*.lock from pyproject.toml
	$(UV) pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate pyproject.toml -o requirements.lock
	$(UV) pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate --extra dev pyproject.toml -o requirements-dev.lock

# What packets, the virtual machine, the image and the cluster need from Debian; without root, or elsewhere, the tests skip what is missing and say so.
PACKAGES := buildah conntrack containernetworking-plugins crun haproxy iproute2 ipset iptables mariadb-server mmdebstrap nftables nginx-light openssl prometheus qemu-system-x86
# Docker's own package has these as well, and Debian's would take its place.
PACKAGES += $(if $(shell command -v containerd),,containerd runc)

.PHONY: packages
packages:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! dpkg -s $(PACKAGES) >/dev/null 2>&1; then \
	  echo "setup: installing $(PACKAGES)"; \
	  apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends $(PACKAGES) >/dev/null \
	    || echo "setup: not installed; the tests that need them are skipped"; \
	fi

# ---- see it work ------------------------------------------------------------------------------------------------

.PHONY: demo
demo: .venv/.ready ## a cluster with a cloud and real traffic, live; ONCE=1 proves it and ends
	@python -m tests.demo $(if $(filter-out 0,$(ONCE)),--once)

.PHONY: bench
bench: controlplane ## print the time to address for 1,000 Services at once; ONLY=NAME plays one, `python -m tests.bench --list` names them
	@python -m tests.bench $(addprefix --only=,$(ONLY))

.PHONY: bench-dataplane
bench-dataplane: .venv/.ready ## fakecloud's data plane beside HAProxy, in one run
	@python -m tests.bench.dataplane

# ---- checks -----------------------------------------------------------------------------------------------------

# Each suite has a budget in seconds, prints its time, and fails when it takes longer. Unit: about 35 s on two idle cores, and under 60 s
# is the promise; its budget leaves room for a machine that does other work.
SUITE = tests/suite.sh
# Each suite writes down which of the public reports its tests played; `make test` wants every one.
export SUITE_LOGS
export SCENARIOS_FOLDER := $(CURDIR)/build/scenarios
LINT_BUDGET := 120
UNIT_BUDGET := 90
COMPONENT_BUDGET := 300
FAKECLOUD_BUDGET := 600
INTEGRATION_BUDGET := 2000
PACKETS_BUDGET := 1200
IPVS_BUDGET := 600
IMAGE_BUDGET := 600
OPENSTACK_BUDGET := 1200
MANIFESTS_BUDGET := 200
PARITY_BUDGET := 480
DOCS_BUDGET := 300
DEMO_BUDGET := 120
CLUSTER_BUDGET := 480
E2E_BUDGET := 6000
CONTROLPLANE_BUDGET := 1900

# Suites that share nothing run side by side, in lanes: two cores are busy then, and a test's deadlines still hold. What shares the
# default addresses and ports of fakecloud (the pages and the demo) is in one lane, one after the other.
SIDE_BY_SIDE := $(MAKE) --no-print-directory --jobs=2 SUITE_LOGS=$(CURDIR)/build/suites

.PHONY: test
test: forget-scenarios packages controlplane ## everything, with all its set-up
	@began=$$(date +%s); \
	$(MAKE) --no-print-directory lint test-unit \
	  && $(SIDE_BY_SIDE) lane-processes lane-network \
	  && python -m tests.scenarios \
	  && echo "== all suites: $$(($$(date +%s) - began)) s"

.PHONY: lane-processes lane-network
lane-processes: test-component
	@for suite in integration openstack; do $(MAKE) --no-print-directory test-$$suite || exit; done
lane-network:
	@for suite in image cluster manifests fakecloud packets ipvs docs demo; do $(MAKE) --no-print-directory test-$$suite || exit; done

.PHONY: forget-scenarios
forget-scenarios:
	@rm -rf "$(SCENARIOS_FOLDER)"

.PHONY: controlplane
controlplane: .venv/.ready ## build and cache kube-apiserver, etcd and their like (about 15 minutes the first time)
	@$(SUITE) controlplane $(CONTROLPLANE_BUDGET) python -m tests.controlplane build

.PHONY: openstack
openstack: .venv/.ready packages ## cache OpenStack's services for the tests (2 minutes the first time)
	@$(SUITE) openstack-services $(CONTROLPLANE_BUDGET) python -m tests.openstack build

.PHONY: lint
lint: .venv/.ready ## formatting, lint, types, import directions
	@$(SUITE) lint $(LINT_BUDGET) sh -c 'ruff format --check . && ruff check . && mypy && lint-imports --no-logo'

.PHONY: test-unit
test-unit: .venv/.ready ## the decisions: neither Go nor root nor a server; every branch of the pure modules
	@$(SUITE) unit $(UNIT_BUDGET) sh -c 'coverage run --rcfile=tests/pure.toml --data-file=.coverage.unit -m pytest -q tests/unit && coverage report --rcfile=tests/pure.toml --data-file=.coverage.unit --skip-covered'

.PHONY: test-component
test-component: .venv/.ready ## parts together on virtual time, the provider kit on every backend
	@$(SUITE) component $(COMPONENT_BUDGET) pytest -q -n 2 --dist worksteal tests/component tests/contract

.PHONY: test-fakecloud
test-fakecloud: .venv/.ready ## fakecloud over real HTTP and real sockets
	@$(SUITE) fakecloud $(FAKECLOUD_BUDGET) pytest -q -n 2 --dist worksteal tests/fakecloud

.PHONY: test-integration
test-integration: controlplane ## the controller as a process, a genuine API server; KUBE_VERSION=1.34.4 for an older one
	@$(SUITE) integration $(INTEGRATION_BUDGET) pytest -q -n 2 --dist worksteal tests/integration --durations=10

.PHONY: test-packets
test-packets: controlplane packages ## real packets through the genuine kube-proxy in network namespaces; needs root
	@$(SUITE) packets $(PACKETS_BUDGET) pytest -q -n 2 --dist loadgroup tests/packets

.PHONY: test-ipvs
test-ipvs: controlplane packages ## kube-proxy in mode ipvs, in an emulated virtual machine; needs root
	@$(SUITE) ipvs $(IPVS_BUDGET) pytest -q tests/ipvs

.PHONY: test-image
test-image: controlplane packages ## the image, built from the Dockerfile and run as a pod runs it; needs root
	@$(SUITE) image $(IMAGE_BUDGET) pytest -q -s tests/image

.PHONY: test-cluster
test-cluster: controlplane packages ## a genuine cluster: two nodes with containers, the image, the overlays, drains and upgrades; needs root
	@$(SUITE) cluster $(CLUSTER_BUDGET) pytest -q -s tests/cluster

.PHONY: test-e2e
test-e2e: controlplane packages ## Kubernetes' own tests of load balancers, on demand; ROLLING=1 plays the long ones too, FOCUS=TEXT those with it
	@python -m tests.controlplane build --only e2e.test,agnhost
	@$(SUITE) e2e $(E2E_BUDGET) pytest -q -s tests/e2e

.PHONY: test-manifests
test-manifests: controlplane packages ## kustomize's overlays, Helm's chart and alerts, on the genuine API server and Prometheus
	@$(SUITE) manifests $(MANIFESTS_BUDGET) pytest -q -n 2 --dist worksteal tests/manifests

.PHONY: test-openstack
test-openstack: controlplane openstack ## the backend for OpenStack, against the genuine Keystone, Neutron and Octavia
	@$(SUITE) openstack $(OPENSTACK_BUDGET) pytest -q tests/openstack --durations=5

.PHONY: test-parity
test-parity: controlplane ## the Go service controller and ours side by side, on genuine API servers
	@$(SUITE) parity $(PARITY_BUDGET) pytest -q -n 2 --dist loadfile tests/parity --durations=5

.PHONY: test-docs
test-docs: controlplane ## what the pages tell people to type, typed
	@$(SUITE) docs $(DOCS_BUDGET) pytest -q tests/docs

.PHONY: test-demo
test-demo: controlplane ## make demo ONCE=1, as a user runs it
	@$(SUITE) demo $(DEMO_BUDGET) python -m tests.demo --once

.PHONY: clean
clean: ## remove what was made in this folder; the cache of built binaries stays
	rm -rf .venv .tools build .mypy_cache .ruff_cache .pytest_cache .hypothesis
