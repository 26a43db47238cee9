# Every target sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Modules are compiled when they are first used: most of them never are.
PIP := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check
LOCKED := $(PIP) --no-deps --require-hashes --requirement
CHECKOUT := $(PIP) --no-deps --no-build-isolation --editable .
SEARCH := $(VENV)/.search
READY := $(VENV)/.ready
PEERS := $(VENV)/.peers

MILVUS := .milvus/.ready

.PHONY: help demo test milvus audit lint results readme card model screenshots bench clean

help:
	@echo "make demo         set up and show what Sightline does"
	@echo "make test         set up and run all tests"
	@echo "make lint         check style and types"
	@echo "make bench        measure speed next to alternatives (about 15 minutes)"
	@echo "make results      regenerate the result pages in docs/ from benchmarks/results"
	@echo "make readme       regenerate the demo output and speed plots in README.md"
	@echo "make card         regenerate the bundled model's card"
	@echo "make model        train, export and measure the bundled model (needs a GPU)"
	@echo "make screenshots  take the screenshots of README.md"
	@echo "make milvus       install a Milvus server for tests/scale, in its own environment"
	@echo "make audit        report known vulnerabilities of the locked packages"
	@echo "make clean        remove environments and caches"

# Search only: no torch. Packages have the versions and hashes of the lock files, which .ci/lock.py writes. The pip that
# comes with Python may be old, and take twice as long.
$(SEARCH): pyproject.toml .ci/pip.lock .ci/search.lock
	$(PYTHON) -m venv $(VENV)
	$(LOCKED) .ci/pip.lock
	$(LOCKED) .ci/search.lock
	$(CHECKOUT)
	@touch $@

$(READY): $(SEARCH) .ci/dev.lock constraints.txt
	$(LOCKED) .ci/dev.lock
	$(PIP) --constraint constraints.txt torch
	@touch $@

# The alternatives that benchmarks compare with.
$(PEERS): $(READY)
	$(PIP) --constraint constraints.txt --editable '.[dev,bench]'
	@touch $@

demo: $(SEARCH)
	$(BIN)/sightline demo

# Test processes must collect tests in the same order, and have a core each; one more works while others wait for a
# browser or a server. Tests start many processes of Python, which are to find their modules compiled.
test: workers = $(shell expr 1 + `getconf _NPROCESSORS_ONLN`)
test: export PYTHONHASHSEED := 0
test: export PYTHONDONTWRITEBYTECODE :=
test: export OMP_NUM_THREADS := 1
test: $(READY)
	$(BIN)/python -m pytest -n $(workers) --dist loadfile --no-loadscope-reorder

$(MILVUS): .ci/milvus
	PYTHON=$(PYTHON) .ci/milvus
	@touch $@

milvus: $(MILVUS)

audit:
	PYTHON=$(PYTHON) .ci/audit

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

results: $(READY)
	$(BIN)/python -m replication.results_page
	$(BIN)/python -m benchmarks.pages

readme: $(READY)
	$(BIN)/python -m benchmarks.pages --readme

card: $(READY)
	$(BIN)/python -m bundles.card bundles/default

# Goes on where it stopped: MODEL_MINUTES=9 make model, as often as it takes.
model: $(READY)
	@test -n "$$SIGHTLINE_DATA" -a -n "$$SIGHTLINE_PRETRAINED" || { echo "Set SIGHTLINE_DATA and SIGHTLINE_PRETRAINED"; exit 2; }
	$(BIN)/python -m bundles.make recipes/default.model.toml --out bundles/default $(if $(MODEL_MINUTES),--minutes $(MODEL_MINUTES))
	$(BIN)/python -m benchmarks.relevance --write
	$(BIN)/python -m bundles.card bundles/default

screenshots: $(READY)
	$(BIN)/python docs/images/screenshots.py

bench: $(PEERS)
	$(BIN)/python -m benchmarks.bench

clean:
	rm -rf $(VENV) .milvus .audit .pytest_cache .mypy_cache .ruff_cache .hypothesis
