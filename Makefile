# Every target sets up what it needs in .venv; Python and make are all a machine must have.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Modules are compiled when they are first imported, and most never are.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help quickstart tour test tests test-slow attack lint types docs bench bench-train bench-evaluate bench-gpu format clean

help:
	@echo "make quickstart   trains a small conditional GAN on handwritten digits, in about five minutes on two cores"
	@echo "make tour         a tour of the layer"
	@echo "make test         everything that continuous integration runs: lint, types, tests, doc examples, docs"
	@echo "make test-slow    the longer checks, attacks included"
	@echo "make attack       damaged files, hostile requests and random calls, 100,000 and more, with a table of what was found"
	@echo "make bench        forward and backward, time and memory, as ratios to batch normalisation"
	@echo "make bench-train  seconds per training iteration, as ratios to batch normalisation"
	@echo "make bench-evaluate  images per second of FID's network, beside torch-fidelity's own command"
	@echo "make bench-gpu    kernels, layers, iterations and inference on a GPU, and training beside plain operators"
	@echo "make docs         the documentation, into site/"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# torch first: with it in place, nothing that asks for some torch pulls another.
$(VENV)/layers: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) torch
	$(INSTALL) numpy -e .
	@touch $@

$(VENV)/train: $(VENV)/layers
	$(INSTALL) -e '.[train]'
	@touch $@

# All at once, which takes less time than one after the other.
$(VENV)/everything: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) torch
	$(INSTALL) -e '.[dev,docs,evaluate,cluster,tune,web,export]'
	@touch $(VENV)/layers $(VENV)/train $(VENV)/evaluate $@

# Trains the digits with cWC and with its baseline cBN; run again, it goes on where it was stopped.
quickstart: $(VENV)/train
	$(BIN)/wcgan train digits/cWC --out runs/quickstart/cWC --resume
	$(BIN)/wcgan train digits/cBN --out runs/quickstart/cBN --resume
	$(BIN)/wcgan compare runs/quickstart/cWC runs/quickstart/cBN --out runs/quickstart/report.html
	@echo "samples: $$(ls runs/quickstart/cWC/samples/*.png | tail -n 1), one class a row"
	@echo "         $$(ls runs/quickstart/cBN/samples/*.png | tail -n 1), the baseline"

tour: $(VENV)/layers
	$(BIN)/python examples/tour.py

lint: $(VENV)/everything
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/everything
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/everything
	$(BIN)/mypy

# Types are checked beside the tests: both cores are busy to the end.
test: lint
	$(MAKE) --no-print-directory --jobs 2 types tests

# These build the documentation too, strictly.
tests: $(VENV)/everything
	$(BIN)/python -m pytest -n 2 --dist worksteal -q

# Only the slow tests need these: installing them takes longer than all tests of the loggers.
$(VENV)/loggers: $(VENV)/everything
	$(INSTALL) -e '.[wandb,mlflow]'
	@touch $@

test-slow: $(VENV)/loggers
	$(BIN)/python -m pytest -q -m slow

attack: $(VENV)/everything
	$(BIN)/python -m pytest -q -m attack

docs: $(VENV)/everything
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(VENV)/layers
	$(BIN)/python benchmarks/layers.py

$(VENV)/evaluate: $(VENV)/train
	$(INSTALL) -e '.[evaluate]'
	@touch $@

bench-evaluate: $(VENV)/evaluate
	$(BIN)/python benchmarks/evaluate.py

# More of it with BENCH, such as BENCH="--parts layers --seconds 300".
bench-gpu: $(VENV)/evaluate
	$(BIN)/python benchmarks/gpu.py --out results/performance/gpu.json $(BENCH)

bench-train: $(VENV)/train
	$(BIN)/python benchmarks/train.py
	$(BIN)/python benchmarks/loader.py

clean:
	rm -rf $(VENV) site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
