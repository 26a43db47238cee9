# Every target sets itself up: on a fresh machine, `make test` is all there is to type.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable
SEARCH := $(VENV)/.search
READY := $(VENV)/.ready
PEERS := $(VENV)/.peers

MILVUS := .milvus/.ready

.PHONY: help demo test milvus lint results readme card screenshots bench clean

help:
	@echo "make demo   set up and see Sightline at work"
	@echo "make test   set up and run every test"
	@echo "make milvus   install a Milvus server for tests/scale, in an environment of its own"
	@echo "make lint   check style and types"
	@echo "make results  write docs/results.md, scale.md and performance.md anew from benchmarks/results"
	@echo "make readme   write what the demo prints, and the plots of speed, into README.md"
	@echo "make card     write the bundled model's card anew"
	@echo "make screenshots  photograph the page for README.md"
	@echo "make bench  measure speed next to what one would use instead, in less than 15 minutes"

# What searching needs: no torch, and a minute's download.
$(SEARCH): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) .
	@touch $@

$(READY): $(SEARCH)
	$(PIP) '.[dev]'
	@touch $@

# What only benchmarks need: what one would use instead.
$(PEERS): $(READY)
	$(PIP) '.[dev,bench]'
	@touch $@

demo: $(SEARCH)
	$(BIN)/sightline demo

# The processes that share the tests must find them in the same order.
test: export PYTHONHASHSEED := 0
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
	$(BIN)/python -m replication.results_page
	$(BIN)/python -m benchmarks.pages.scale
	$(BIN)/python -m benchmarks.pages.performance

readme: $(READY)
	$(BIN)/python -m benchmarks.pages.readme

card: $(READY)
	$(BIN)/python -m benchmarks.pages.model_card bundles/default

screenshots: $(READY)
	$(BIN)/python -m benchmarks.pages.screenshots

bench: $(PEERS)
	$(BIN)/python -m benchmarks.bench

clean:
	rm -rf $(VENV) .milvus .pytest_cache .mypy_cache .ruff_cache .hypothesis
