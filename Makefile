# `make run` shows the project at work, `make test` checks it. Both make their own virtual environment on first use.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
PYTEST := $(BIN)/python -m pytest -n auto
LIT := $(BIN)/lit -sv test/lit

.PHONY: run test test-long lint style types ir bench clean

run: $(STAMP)
	$(BIN)/python examples/search.py

# Types take one core for a while: meanwhile the other one goes through the tests of the IR.
test: $(STAMP)
	$(MAKE) -j2 lint ir
	$(PYTEST) -m "not long"

test-long: $(STAMP)
	$(MAKE) -j2 lint ir
	$(PYTEST)

lint: style types

style: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/pyright

ir: $(STAMP)
	$(LIT)

bench: $(STAMP)
	@failed=; for each in bench/*.py; do echo "== $$each"; $(BIN)/python $$each || failed="$$failed $$each"; done; \
	test -z "$$failed" || { echo "bounds exceeded or errors in:$$failed"; exit 1; }

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .hypothesis test/lit/Output
	find . -name __pycache__ -prune -exec rm -rf {} +

PIP := $(BIN)/python -m pip install -q --disable-pip-version-check

# torch goes first and with its exact version, so that an index that offers a CPU-only build of it is free to give that one. The
# editable install is a plain path entry (compat): an import hook would make every start of a tool slower.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "Python 3.11 is needed: make PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) 'torch==2.13.0'
	$(PIP) --config-settings editable_mode=compat -e '.[test,torch,examples,search]'
	touch $@

include docs/docs.mk
