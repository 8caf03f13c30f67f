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
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  %-20s %s\n", $$1, $$2}'

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
	@$(UV) pip sync -q --require-hashes requirements-dev.lock
	@$(UV) pip install -q --no-deps --editable .
	@touch $@

.PHONY: setup
setup: .venv/.ready ## create .venv with the pinned packages

.PHONY: lock
lock: .tools/.uv-$(UV_VERSION) ## renew requirements*.lock from pyproject.toml
	$(UV) pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate pyproject.toml -o requirements.lock
	$(UV) pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate --extra dev pyproject.toml -o requirements-dev.lock

# ---- checks -----------------------------------------------------------------------------------------------------

.PHONY: lint
lint: .venv/.ready ## formatting, lint, types, import directions
	ruff format --check .
	ruff check .
	mypy
	lint-imports
