# Two commands matter: `make train` and `make test`. Each sets up everything it needs on a fresh machine and
# is quick the second time: the set-up runs again only when pyproject.toml or constraints.txt change.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
TOOLED := $(VENV)/.tooled
TESTABLE := $(VENV)/.testable
PEERS := .venv-peers/.installed
ENVS := .venv-envs
PYGAME := .venv-envs-pygame
TESTING := pytest pytest-cov pytest-xdist setuptools wheel
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup train test test-envs browser lint format bench peers clean

help:  ## list these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(TESTABLE)  ## create .venv and install the package with the extras that tests need

train: $(INSTALLED)  ## train PPO on CartPole-v1 to 500 (ARGS="seed=1 ..." is passed on)
	$(BIN)/reverie train CartPole-v1:ppo $(ARGS)

test: $(TESTABLE) browser  ## run all tests; coverage below 90 %, or 80 % of a module, fails
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov=reverie --cov-report=term-missing:skip-covered \
		--cov-report=json:.coverage.json --cov-fail-under=90
	$(BIN)/python .ci/module_coverage.py .coverage.json 80

test-envs: $(ENVS)/.installed $(PYGAME)/.installed  ## run the tests of all suites, in two environments of their own
	SUITE_STEPS=1000 $(ENVS)/bin/python -m pytest -n 2 tests/suites tests/unit/envs tests/e2e/test_presets.py
	SUITE_STEPS=1000 $(PYGAME)/bin/python -m pytest tests/suites -k pusht

# All suites whose packages can live together: some gigabytes. Declarations say what is installed without dependencies.
$(ENVS)/.installed: pyproject.toml constraints.txt .ci/suite_extras.py
	$(PYTHON) -m venv $(ENVS)
	$(ENVS)/bin/python -m pip install --quiet -c constraints.txt $(TESTING) -e .
	$(ENVS)/bin/python -m pip install --quiet -c constraints.txt -e ".[$$($(ENVS)/bin/python .ci/suite_extras.py extras)]"
	$(ENVS)/bin/python -m pip install --quiet --no-deps $$($(ENVS)/bin/python .ci/suite_extras.py bare)
	@touch $@

# pygame and pygame-ce share a folder, so suites that need pygame have an environment without the other suites.
$(PYGAME)/.installed: $(ENVS)/.installed
	$(PYTHON) -m venv $(PYGAME)
	$(ENVS)/bin/python .ci/suite_extras.py base > $(PYGAME)/base.txt
	$(ENVS)/bin/python .ci/suite_extras.py separate > $(PYGAME)/suites.txt
	$(PYGAME)/bin/python -m pip install --quiet -c constraints.txt $(TESTING) -r $(PYGAME)/base.txt -r $(PYGAME)/suites.txt
	$(PYGAME)/bin/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

browser:  ## install Chromium, which tests of pages need, where this may be done; else say how
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && { apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive timeout 600 apt-get install -y -qq --no-install-recommends \
		chromium chromium-driver; } >/dev/null 2>&1; } || \
		echo "The tests of pages will be skipped; for them: sudo apt-get install chromium chromium-driver"

lint: $(TOOLED)  ## check style, format, types, pages and licences
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pymarkdown scan *.md docs
	$(BIN)/python .ci/licences.py

format: $(TOOLED)  ## repair style and format where a machine can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED)  ## measure throughput (ARGS="..." is passed on); never part of the tests
	$(BIN)/python -m bench $(ARGS)

peers: $(PEERS)  ## install what the speed measurements compare with, in an environment of its own

$(PEERS): bench/peers.txt
	$(PYTHON) -m venv $(dir $(PEERS))
	$(dir $(PEERS))bin/python -m pip install --quiet -r bench/peers.txt
	@touch $@

clean:  ## remove the environment, caches and build products; runs/ stays
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .coverage .coverage.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# pip comes last into a new environment: without it, the making broke off and is repeated.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Reverie needs Python 3.11 or newer. Name one: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The stamp is touched last, so that an installation that broke off starts again.
$(INSTALLED): pyproject.toml constraints.txt | $(BIN)/pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[box2d,tensorboard,video]"
	@touch $@

# What only those who change Reverie need; `make train` does without.
$(TOOLED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	@touch $@

# Tests of envs and formats that most users do without.
$(TESTABLE): $(TOOLED)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[atari,crafter,dmc,minari,minigrid,wandb]"
	@touch $@
