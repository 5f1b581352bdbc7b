# Every target sets up what it needs and skips what is there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := .stamps

.PHONY: help setup demo serve test test-fast lint bench images clean preflight-%

help:  ## Show what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

preflight-%:
	@$(PYTHON) runner/preflight.py --for $*

setup: preflight-setup $(STAMPS)/host $(STAMPS)/runner rootfs  ## Install host packages, the Python environment, the root file system

demo: preflight-demo $(STAMPS)/host $(STAMPS)/runner rootfs  ## One conversation from raw files to finished documents
	@$(BIN)/foliobox demo

serve: preflight-serve $(STAMPS)/host $(STAMPS)/runner rootfs  ## Serve on loopback; set SANDBOX_API_KEY
	@$(BIN)/foliobox serve

test: preflight-test $(STAMPS)/host $(STAMPS)/dev rootfs  ## All tests, tier by tier, each with its time budget
	@$(BIN)/python -m tests.tiers

test-fast: $(STAMPS)/dev  ## Tests that need no sandbox; one minute
	@$(BIN)/python -m tests.tiers unit

lint: $(STAMPS)/dev  ## Style, types, import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo 'run: ruff format .'; exit 1; }
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: $(STAMPS)/host $(STAMPS)/dev rootfs  ## Benchmarks against floors and a peer
	@$(BIN)/python -m bench

images: $(STAMPS)/host rootfs  ## The sandbox's root file system

.PHONY: rootfs
rootfs: $(STAMPS)/host
	@$(PYTHON) images/build.py rootfs

$(STAMPS)/host: images/host-packages.txt
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
