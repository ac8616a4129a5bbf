# `make run` shows the project at work, `make test` checks it. Both make their own virtual environment on first use.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
CORE := $(VENV)/.core
# Tests start many processes; each reads what was compiled once, also where the environment asks not to write it.
export PYTHONDONTWRITEBYTECODE :=
# Each core goes through its own part of the tests from front to back, so that what a file prepares is prepared once.
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal --durations 20 --durations-min 1
# `make test` takes a fifth of the parameter sets of every test, at least one, and at the next commit the next fifth: FIRST=0 to FIRST=4
# are all of them.
FIRST ?= $(shell git rev-list --count HEAD 2>/dev/null || echo 0)
TURN := --every 5 --first $(FIRST)
# Of the tests' own files it checks the types of a fifth, too.
TYPED_IN_TURN = ktir examples bench $(shell find test/unit test/campaign test/models -name '*.py' | sort | awk 'NR % 5 == $(FIRST) % 5')
LIT := $(BIN)/lit -sv test/lit
# The inner loop: one in ten of the parameter sets of every test that neither starts processes nor compiles models, something of each
# folder, one model, and some programs of each generator. It leaves out most of what runs on the device or through Inductor, the suites of
# torch, the examples, the pages and the other models.
QUICK := --every 10 $(wildcard test/unit/test_*.py test/unit/checking/test_*.py) $(addprefix test/unit/,analysis arithmetic assembly \
	checking/stream conformance cost device/test_tensors.py dialects docs/test_examples.py emulator/machine \
	emulator/reference/test_kernels.py isa lang lowering/ktir_to_spyre lowering/region_to_ktir package passes runtime \
	tools/test_ktir_run.py $(addprefix lowering/inductor/test_,values.py views.py integers.py refusals.py)) \
	test/models/test_residency.py test/campaign/test_graphs.py test/campaign/test_functions.py

.PHONY: run test test-quick test-long test-beside test-long-beside nightly lint style types ir bench clean

run: $(STAMP)
	$(BIN)/python examples/search.py

# Types take one core for a while: meanwhile the other one goes on. While torch and the like are installed, the tests of the IR run, which
# need none of them. `test-long` adds tests that take minutes each, and the types of all files.
test test-long:
	@echo '== Types (pyright), and beside them: style (ruff), the tests of the IR (lit), then all others (pytest) and the slowest of them'
	$(MAKE) -j2 types $@-beside $(if $(findstring long,$@),,TYPED="$(TYPED_IN_TURN)")

test-beside test-long-beside: style ir $(STAMP)
	$(PYTEST) $(if $(findstring long,$@),,-m "not long" $(TURN))

test-quick: $(STAMP)
	@echo '== 1 of 2: the tests of the IR (lit)'
	$(LIT)
	@echo '== 2 of 2: some of the tests (pytest) on all cores, then the slowest of them'
	$(PYTEST) -m "not long" $(QUICK)

# All levels from operators to the server, in less than three hours, compared with the night before; NIGHTLY are options.
nightly: $(STAMP)
	$(BIN)/python test/nightly/run.py $(NIGHTLY)

lint: style types

style: $(CORE)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# The checker makes many objects that do not last: with room for them it collects seldom.
types: export NODE_OPTIONS += --max-semi-space-size=128
types: $(STAMP)
	$(BIN)/pyright $(TYPED)

ir: $(CORE)
	$(LIT)

bench: $(STAMP)
	@failed=; for each in bench/*.py; do echo "== $$each"; $(BIN)/python $$each || failed="$$failed $$each"; done; \
	test -z "$$failed" || { echo "bounds exceeded or errors in:$$failed"; exit 1; }

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .hypothesis test/lit/Output
	find . -name __pycache__ -prune -exec rm -rf {} +

PIP := $(BIN)/python -m pip install -q --disable-pip-version-check --no-compile

# Modules are compiled where they are first imported: most of those that are installed never are. The editable install is a plain path
# entry (compat): an import hook would make every start of a tool slower. torch goes before what needs it and with its exact version, so
# that an index that offers a CPU-only build of it is free to give that one; the package itself stays as it was installed first.
$(CORE): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "Python 3.11 is needed: make PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --config-settings editable_mode=compat -e '.[text]'
	touch $@

$(STAMP): $(CORE)
	$(PIP) 'torch==2.13.0'
	$(PIP) 'ktir[test,torch,examples,search]'
	touch $@

include docs/docs.mk
include test/serving/serving.mk
