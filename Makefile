# Four verbs: quickstart, test, test-all, bench. Each sets up what it needs in .venv and needs no flag.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: help quickstart test test-all bench check clean
help:
	@echo "make quickstart   set up, then mid-train and RL-train a small agent on this machine (CPU)"
	@echo "make test         set up, then lint, types, import contract, bare wheel and tests"
	@echo "make test-all     the same with the slow proofs in full size"
	@echo "make bench        set up, then every script of benchmarks/ in its quick size"

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.quickstart: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt torch
	$(PIP) install -c constraints.txt -e '.[quickstart]'
	@touch $@

$(VENV)/.dev: $(VENV)/.quickstart
	$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@

quickstart: $(VENV)/.quickstart
	$(BIN)/tradewind run recipes/quickstart.toml --resume

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check
	$(BIN)/python -m pytest

test-all: check
	TRADEWIND_FULL=1 $(BIN)/python -m pytest

bench: $(VENV)/.dev
	@for script in benchmarks/[a-z]*.py; do echo "== $$script"; $(BIN)/python $$script --quick || exit 1; done

clean:
	rm -rf $(VENV) runs .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
