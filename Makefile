# Every target sets up what it needs and skips what is there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := .stamps
# The root file system that this checkout hashes to, unless the caller names another one.
WITH_ROOTFS = SANDBOX_ROOTFS="$${SANDBOX_ROOTFS:-$$($(PYTHON) images/build.py rootfs --print-path)}"

# Each step relies on the one before it: first the checks, then what they allow.
.NOTPARALLEL:
.PHONY: help python setup demo serve doctor test test-fast lint bench images images-docker rootfs clean

help:  ## Show what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12
	@echo 'The first of setup, demo, serve, doctor, test, bench and images downloads about 1.2 GB.'

# In words that every Python understands, before anything else is read by it.
python:
	@command -v $(PYTHON) >/dev/null || { echo '$(PYTHON) is not there: install Python 3.11 or newer (Debian: python3 python3-venv), or call make with PYTHON=python3.12'; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "$(PYTHON) is not Python 3.11 or newer ($$($(PYTHON) --version 2>&1 | head -n 1)): install one (Debian: python3 python3-venv) and call make with PYTHON=python3.11, or what it is called"; exit 1; }

preflight-%: python
	@$(PYTHON) runner/preflight.py --for $*

setup: preflight-setup $(STAMPS)/host $(STAMPS)/runner rootfs  ## Install host packages, the Python environment, the root file system

demo: preflight-demo $(STAMPS)/host $(STAMPS)/runner rootfs  ## One conversation from raw files to finished documents
	@$(WITH_ROOTFS) $(BIN)/foliobox demo

serve: preflight-serve $(STAMPS)/host $(STAMPS)/runner rootfs  ## Serve on loopback; set SANDBOX_API_KEY
	@$(WITH_ROOTFS) $(BIN)/foliobox serve

doctor: python $(STAMPS)/host $(STAMPS)/runner rootfs  ## What this host offers, the settings, and a real start of a sandbox
	@$(WITH_ROOTFS) $(BIN)/foliobox doctor

test: preflight-test $(STAMPS)/host $(STAMPS)/dev rootfs  ## All tests, tier by tier, each in its columns and its time budget; ENGINES=bubblewrap leaves Docker out
	@$(WITH_ROOTFS) $(BIN)/python -m tests.tiers

test-fast: preflight-setup $(STAMPS)/dev  ## Tests that need no sandbox; one minute
	@$(BIN)/python -m tests.tiers unit

lint: preflight-setup $(STAMPS)/dev  ## Style, types, import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo 'run: $(BIN)/ruff format .'; exit 1; }
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: preflight-setup $(STAMPS)/host $(STAMPS)/dev rootfs  ## Benchmarks against floors and a peer
	@$(WITH_ROOTFS) $(BIN)/python -m bench

images: preflight-setup $(STAMPS)/host  ## The sandbox's root file system, and images where a Docker engine answers
	@$(PYTHON) images/build.py rootfs
	@if docker version >/dev/null 2>&1; then $(PYTHON) images/build.py images; else echo 'no Docker engine answers, so no images were made: start one, then make images-docker'; fi

images-docker: python  ## The images of the sandbox and of the runner, for Docker
	@$(PYTHON) images/build.py images

rootfs: $(STAMPS)/host | python
	@test -n "$$SANDBOX_ROOTFS" || $(PYTHON) images/build.py rootfs

$(STAMPS)/host: images/host-packages.txt | python
	@$(PYTHON) images/build.py host
	@mkdir -p $(STAMPS) && touch $@

$(VENV)/bin/python: | $(STAMPS)/host
	@$(PYTHON) -m venv $(VENV)

$(STAMPS)/runner: requirements/runner.lock pyproject.toml | $(VENV)/bin/python
	@echo "Installing the Python environment …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/runner.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/dev: requirements/dev.lock $(STAMPS)/runner
	@echo "Installing what tests need …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@mkdir -p $(STAMPS) && touch $@

clean:  ## Remove the environment and what was made; the root file system's cache stays
	rm -rf $(VENV) $(STAMPS) demo-output bench-output
