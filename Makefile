# make demo   sets everything up and runs the main job
# make test   sets everything up and runs ruff, mypy and all tests
# The virtual environment is made anew only when pyproject.toml or constraints.txt change.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt

.PHONY: demo test lint docs clean

demo: $(VENV)/.core
	$(BIN)/scopereg demo

test: $(VENV)/.dev lint
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.dev
	$(BIN)/python docs/make_cli_reference.py
	$(BIN)/python docs/make_phantom_sheet.py

# torch comes first and alone: pinned, so that no other requirement can pull a CUDA build of several gigabytes.
$(VENV)/.core: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) torch
	$(INSTALL) -e .
	touch $@

$(VENV)/.dev: $(VENV)/.core
	$(INSTALL) -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) out build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
