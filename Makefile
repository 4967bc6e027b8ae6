# Everything runs in .venv, which the first command creates. Needs: Python 3.11 or newer, pip, make. No root.
# PYTHON=python3.12 make test    chooses another interpreter (remove .venv, or `make clean`, to change it later).

PYTHON ?= python3
VENV   ?= .venv
# Processes for pytest: two more than there are cores, because the two that run tests of live servers mostly wait.
CORES  := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
JOBS   ?= $(shell expr $(CORES) + 2)

BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DEMO   := $(VENV)/.installed-demo
READY  := $(VENV)/.compiled

# Compiled modules are kept even where the shell says otherwise: every process of the tests would compile them again, and
# pytest every test file.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup check test lint format types layers fast unit static docs demo page pagecheck bench release pins clean

help: ## what can be asked for (this list)
	@grep -hE '^[a-z]+:.*## ' Makefile | awk -F ':.*## ' '{ printf "  make %-10s %s\n", $$1, $$2 }'

setup: $(STAMP) ## create .venv and install everything that is needed, pinned by hash

# The pins are the complete environment, so dpcrowd itself is installed without looking at dependencies again. Those of the
# demo are a part of the others: both go into the same .venv.
$(STAMP) $(DEMO): pyproject.toml
$(STAMP): requirements-dev.txt
	@$(call install,requirements-dev.txt)
$(DEMO): requirements-demo.txt
	@$(call install,requirements-demo.txt)

define install
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
  echo "dpcrowd needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || echo missing)." \
       "Try: make PYTHON=python3.11 ..."; exit 2; }; \
$(PYTHON) -c 'import venv, ensurepip' || { \
  echo "'$(PYTHON)' cannot create virtual environments (on Debian: apt-get install python3-venv)."; exit 2; }; \
test -x $(BIN)/python || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); } && \
$(BIN)/python scripts/install.py $(1) && touch $@
endef

# Style takes half a second and comes first. The other static checks run beside the tests; their output is kept apart and
# printed after the tests, so that each failure is shown, and one failure is enough to fail.
beside = log=$$(mktemp); $(MAKE) --no-print-directory --keep-going $(1) >"$$log" 2>&1 & \
  static=$$!; trap 'kill $$static; rm -f "$$log"; exit 130' INT TERM; tests=passed; beside=passed; \
  $(MAKE) --no-print-directory $(2) || tests=failed; \
  wait $$static || beside=failed; \
  echo "== $(1)"; cat "$$log"; rm -f "$$log"; \
  test $$tests = passed || echo "make $@: $(2): tests have failed; see above."; \
  test $$beside = passed || echo "make $@: one of these has failed; see above: $(1)"; \
  test $$tests$$beside = passedpassed

check: lint ## the fast loop: style, types, layers, fast tests
	+@$(call beside,types layers,fast)
	@echo "make check: passed. Slow tests, live servers and documentation are left to make test."

test: lint ## every check: style, types, layers, docs, tests
	+@$(call beside,types layers docs,unit)
	@echo "make test: all checks passed. What was skipped, if anything, is listed above with its reason."

lint: $(STAMP) ## style: ruff check, ruff format --check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMP) ## let ruff rewrite the files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP) ## mypy --strict
	$(BIN)/mypy --strict

layers: $(STAMP) ## import-linter: imports go downwards, the core does no I/O
	$(BIN)/lint-imports

# Each process of the tests would compile the kernels (15 s) and the test files (10 s) of a fresh clone for itself, all at
# the same time. Later each compiles what has changed. If it fails here, the tests say why.
$(READY): $(wildcard src/dpcrowd/kernels/*.py) | $(STAMP)
	@echo "compiling kernels and test files, which the processes of the tests share"
	@$(BIN)/python -m pytest -q --collect-only >/dev/null 2>&1 & files=$$!; \
	  $(BIN)/python scripts/compile_kernels.py || echo "kernels are not compiled; each process of the tests will do it"; \
	  wait $$files || true; touch $@

# Nothing waits here, so there is one process per core.
fast: $(STAMP) $(READY) ## the tests that need less than about a fifth of a second each, no processes and no sockets
	$(BIN)/python -m pytest -q -n $(CORES) --dist worksteal -m "not slow" tests/unit tests/oracle tests/property

# The files that have tests with this mark: two processes need not read the others once more.
TIMED = $(shell grep -lw mark.timed tests/e2e/test_*.py)

# Tests that compare moments of real clocks come last: nothing else may keep the machine busy then. They mostly wait, so
# that two files at a time do not disturb one another.
unit: $(STAMP) $(READY) ## all tests
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadscope --no-loadscope-reorder -m "not timed"
	$(BIN)/python -m pytest -q -n 2 --dist loadscope --no-loadscope-reorder -m timed $(TIMED)

# Not --quiet: it would hide the warnings that --strict counts.
docs: $(STAMP) ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir site

# The demo needs a fifth of what the tests need; where everything is installed, nothing more is.
demo: $(if $(wildcard $(STAMP)),$(STAMP),$(DEMO)) ## a live network of five servers on this machine, for a minute
	$(BIN)/dpcrowd demo --seconds 60

# Needs no .venv: Python's standard library, and Node.js from PATH or, without one, from PyPI in .venv-node.
page: ## build the live page from web/ into the package
	$(PYTHON) scripts/page.py

pagecheck: ## check that the committed page is what web/ gives, byte for byte
	$(PYTHON) scripts/page.py --check

bench: $(STAMP) ## measure speed and scale, print the tables
	@for file in benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

release: $(STAMP) ## build sdist and wheel into dist/, and try the wheel in a fresh environment
	$(BIN)/python scripts/release.py

# uv only resolves here; the results hold versions and hashes, no addresses, and work on every platform and Python. The
# constraint keeps the demo's pins equal to those of the tests.
compile = $(VENV)-pins/bin/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes \
  --upgrade --quiet --no-emit-index-url --no-emit-find-links --custom-compile-command "make pins"

pins: ## renew requirements-dev.txt and requirements-demo.txt from pyproject.toml
	test -x $(VENV)-pins/bin/uv || { $(PYTHON) -m venv $(VENV)-pins && $(VENV)-pins/bin/pip install --quiet uv; }
	$(compile) --extra dev --output-file requirements-dev.txt
	$(compile) --extra node --extra build --constraint requirements-dev.txt --output-file requirements-demo.txt
	@if grep -n '://' requirements-*.txt; then echo "requirements files must not name any address"; exit 1; fi

clean: ## remove .venv and everything that was built
	rm -rf $(VENV) $(VENV)-pins .venv-node web/node_modules site build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
