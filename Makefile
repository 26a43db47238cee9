# Every target sets itself up: on a fresh machine, `make test` is all there is to type.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable
SEARCH := $(VENV)/.search
READY := $(VENV)/.ready

MILVUS := .milvus/.ready

.PHONY: help demo test milvus lint results readme card screenshots bench clean

help:
	@echo "make demo   set up and see Sightline at work"
	@echo "make test   set up and run every test"
	@echo "make milvus   install a Milvus server for tests/scale, in an environment of its own"
	@echo "make lint   check style and types"
	@echo "make results  write docs/results.md and docs/scale.md anew from benchmarks/results"
	@echo "make readme   write what the demo prints into README.md"
	@echo "make card     write the bundled model's card anew"
	@echo "make screenshots  photograph the page for README.md"
	@echo "make bench  measure speed and memory"

# What searching needs: no torch, and a minute's download.
$(SEARCH): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) .
	@touch $@

$(READY): $(SEARCH)
	$(PIP) '.[dev]'
	@touch $@

demo: $(SEARCH)
	$(BIN)/sightline demo

test: $(READY)
	$(BIN)/python -m pytest -n auto --dist loadfile

$(MILVUS): .ci/milvus
	PYTHON=$(PYTHON) .ci/milvus
	@touch $@

milvus: $(MILVUS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

results: $(READY)
	$(BIN)/python benchmarks/report.py
	$(BIN)/python benchmarks/scale_page.py

readme: $(READY)
	$(BIN)/python benchmarks/readme.py

card: $(READY)
	$(BIN)/python benchmarks/model_card.py bundles/default

screenshots: $(READY)
	$(BIN)/python benchmarks/screenshots.py

bench: $(READY)
	$(BIN)/python benchmarks/evaluation.py --json benchmarks/results/evaluation.json

clean:
	rm -rf $(VENV) .milvus .pytest_cache .mypy_cache .ruff_cache .hypothesis
