# From a fresh clone each of these sets up .venv (core, every plugin, tools) and then does its job.

PYTHON ?= python3
JOBS ?= 2

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
MANIFESTS := setup.cfg pyproject.toml $(wildcard plugins/*/*/pyproject.toml)
PLUGINS := $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/*/pyproject.toml))
EDITABLE := $(addprefix -e ./,$(PLUGINS))
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile

.PHONY: demo test test-fast lint docs bench install clean

demo: $(STAMP)  ## the digits suite: table and report
	$(BIN)/fiood-run

test: $(STAMP)  ## every test
	$(PYTEST)

test-fast: $(STAMP)  ## the tests that take less than a few seconds each
	$(PYTEST) -m "not slow"

lint: $(STAMP)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(STAMP)  ## the site, without warnings, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(STAMP)  ## speed beside pytorch-ood and the machine's GEMM rate
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-build-isolation -e ".[bench]"
	set -e; for script in benchmarks/speed/*.py; do echo "== $$script"; $(BIN)/python "$$script"; done

install: $(STAMP)  ## .venv only

# torch by pip, which takes the CPU or CUDA build that the machine's pip settings ask for; the rest by uv, which installs
# sixty editable plugins in seconds. Requirements are read from the distributions' own metadata.
$(STAMP): $(MANIFESTS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet torch torchvision uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python "setuptools>=77" "flit_core>=3.9"
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-build-isolation -e ".[dev]" $(EDITABLE)
	touch $@

clean:  ## remove .venv and what was built
	rm -rf $(VENV) build dist site *.egg-info
