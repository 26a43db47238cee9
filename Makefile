# Every target sets itself up: on a fresh machine, `make test` is all there is to type.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help demo test lint results bench clean

help:
	@echo "make demo   set up and see Sightline at work"
	@echo "make test   set up and run every test"
	@echo "make lint   check style and types"
	@echo "make results  write docs/results.md anew from benchmarks/results"
	@echo "make bench  measure speed and memory"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(READY)
	$(BIN)/sightline demo

test: $(READY)
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

results: $(READY)
	$(BIN)/python benchmarks/report.py

bench: $(READY)
	$(BIN)/python benchmarks/evaluation.py --json benchmarks/results/evaluation.json

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
