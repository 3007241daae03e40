# make demo   sets everything up and runs the main job
# make test   sets everything up and runs ruff, mypy, import-linter, repo-review and all tests
# Packages are installed again only when pyproject.toml or constraints.txt change.
# PYTEST_ARGS reaches pytest, after the number of processes: PYTEST_ARGS='-n 0 --pdb tests/ops' runs some in this one.
# TORCH_ARGS reaches the installation of torch alone, for its CPU or CUDA builds: TORCH_ARGS='--index-url URL'.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Without bytecode: what is imported is compiled then, the rest of a gigabyte never.
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --quiet --no-compile -c constraints.txt

# Kept then, whatever the environment says: dozens of tests start processes of their own, which import all of it.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test lint browser fuzz wheel audit pins docs pictures clean

demo: $(VENV)/.core
	$(BIN)/scopereg demo

# A file stays in one process, since its tests share what is slow to make; tests/conftest.py says in which order.
# Three on two cores, and lint beside the first of them: tests wait for other things than the processor a third of the time.
test: $(VENV)/.dev browser
	@$(MAKE) --no-print-directory lint & lint=$$!; \
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS); tests=$$?; \
	wait $$lint || { echo "make lint found faults, see above"; exit 1; }; exit $$tests

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/repo-review --show err .

# Browsers for the tests of the viewer, from Debian's packages, and a screen for Firefox's WebGL; where one cannot be had,
# its tests are skipped and say so.
browser:
	@have() { for each; do command -v $$each >/dev/null && return; done; false; }; wanted=; \
	have chromium chromium-browser google-chrome google-chrome-stable || wanted="chromium"; \
	have firefox-esr firefox || wanted="$$wanted firefox-esr"; have Xvfb || wanted="$$wanted xvfb"; \
	test -z "$$wanted" || { test "$$(id -u)" = 0 && have apt-get && export DEBIAN_FRONTEND=noninteractive && \
	    apt-get update -qq && apt-get install -y -qq --no-install-recommends $$wanted >/dev/null; } || \
	  echo "not here and not to be installed: $$wanted; tests in a browser that is missing will be skipped"

# An hour of coverage-guided fuzzing of all readers (Linux): FUZZ_ARGS='nrrd dicom --seconds 60'.
fuzz: $(VENV)/.dev
	$(BIN)/python tests/fuzzing/fuzz.py --seconds 3600 $(FUZZ_ARGS)

# The wheel, twice to see that its bytes are the same, and the source archive, both as the package index wants them; and
# beside them the bill of what users install with them (CycloneDX), with versions and hashes of the pins.
wheel: $(VENV)/.dev
	rm -rf dist build/again
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/python -m build --wheel --no-isolation --outdir build/again .
	cmp dist/*.whl build/again/*.whl
	$(BIN)/twine check --strict dist/*
	$(INSTALL) cyclonedx-bom
	version=$$($(BIN)/python -c 'import scopereg; print(scopereg.__version__)') && \
	sed "s/^dynamic = .*/version = \"$$version\"/" pyproject.toml > dist/pyproject.toml && \
	$(BIN)/python .ci/pins.py --of all | $(BIN)/cyclonedx-py requirements --pyproject dist/pyproject.toml \
	  --output-format JSON --output-file "dist/scopereg-$$version.cdx.json" -
	rm dist/pyproject.toml

# Known vulnerabilities of the pins, for which it asks the service of PyPI, and weaknesses of the workflows.
audit: $(VENV)/.dev
	$(INSTALL) pip-audit zizmor
	$(BIN)/zizmor --offline .github
	$(BIN)/pip-audit --no-deps --disable-pip --requirement constraints-hashes.txt

# Anew after a change of pyproject.toml or constraints.txt; needs the index.
pins: $(VENV)/.dev
	$(BIN)/python .ci/pins.py

# The site, in site/: any warning ends it. Notebooks are run for it; SCOPEREG_NOTEBOOKS=off leaves that out.
docs: $(VENV)/.dev
	$(BIN)/python docs/make_cli_reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "the site is in site/index.html"

# Those pictures of the docs that are made in seconds.
pictures: $(VENV)/.dev
	$(BIN)/python docs/make_phantom_sheet.py
	$(BIN)/python docs/make_coordinates_figure.py

# torch comes first and alone, so that TORCH_ARGS can choose its build and no other requirement replaces it.
$(VENV)/.core: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) $(TORCH_ARGS) torch
	$(INSTALL) -e .
	touch $@

$(VENV)/.dev: $(VENV)/.core
	$(INSTALL) -e '.[dev,docs]'
	touch $@

clean:
	rm -rf $(VENV) out build dist site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
