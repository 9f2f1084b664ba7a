# Every target sets up what it needs in .venv; Python and make are all a machine must have.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help quickstart test test-slow lint types docs bench format clean

help:
	@echo "make quickstart   a two-minute tour of the layer"
	@echo "make test         everything that continuous integration runs: lint, types, tests, doc examples, docs"
	@echo "make test-slow    the longer checks"
	@echo "make bench        forward and backward, time and memory, as ratios to batch normalisation"
	@echo "make docs         the documentation, into site/"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# torch first: with it in place, nothing that asks for some torch pulls another.
$(VENV)/layers: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) torch
	$(INSTALL) numpy -e .
	@touch $@

$(VENV)/everything: $(VENV)/layers
	$(INSTALL) -e '.[dev,docs]'
	@touch $@

quickstart: $(VENV)/layers
	$(BIN)/python examples/tour.py

lint: $(VENV)/everything
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/everything
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/everything
	$(BIN)/mypy

test: lint types docs
	$(BIN)/python -m pytest -n 2 -q

test-slow: $(VENV)/everything
	$(BIN)/python -m pytest -q -m slow

docs: $(VENV)/everything
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(VENV)/layers
	$(BIN)/python benchmarks/layers.py

clean:
	rm -rf $(VENV) site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
