# Each target needs only make and Python 3.11 or later: it creates .venv and installs its dependencies
# there. Choose the interpreter with `make test PYTHON=python3.12`.

PYTHON ?= python3
VENV ?= .venv
BIN := $(abspath $(VENV))/bin
# Processes for the tests, divided by files, each with one thread of BLAS. With more processes the
# same kernels are compiled more often, and more memory is needed.
TESTERS ?= 2
# What `make bench` runs; `make bench BENCH=.` runs everything, which takes long.
BENCH ?= ^kernels.Kernels.*float32.*one|Start|Moments|Epoch|Systems.time

.PHONY: help demo test bench lint docs clean

help:
	@echo "make demo | test | bench | lint | docs | clean"

# One stamp for each extra, so that a target installs its own dependencies only.
$(VENV)/%.stamp: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "fastmf needs Python 3.11 or later: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable ".[$*]"
	@touch $@

demo: $(VENV)/sklearn,plot,progress.stamp
	$(BIN)/fastmf demo

test: $(VENV)/test.stamp
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(TESTERS) --dist loadfile \
		--no-loadscope-reorder

# Rows that asv did not run are n/a: they are removed from its tables, with the reasons.
bench: $(VENV)/bench.stamp
	cd asv_bench && $(BIN)/asv machine --yes > /dev/null
	@rm -f asv_bench/.asv/failed
	cd asv_bench && { $(BIN)/asv run --python=same --quick --show-stderr --bench '$(BENCH)' || \
		{ mkdir -p .asv && touch .asv/failed; }; } | \
		sed -e '/n\/a *$$/d' -e '/For parameters:/{N;N;/asv: skipped/d;}'
	@test ! -e asv_bench/.asv/failed

lint: $(VENV)/lint.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Runs the examples of the gallery: some minutes at first. Warnings are errors. The history of
# benchmarks is added where there is one.
docs: $(VENV)/docs.stamp
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -b html docs build/docs
	@if test -d asv_bench/.asv/results && test -x $(BIN)/asv; then \
		cd asv_bench && $(BIN)/asv publish --html-dir ../build/docs/asv; fi
	@echo "build/docs/index.html"

clean:
	rm -rf $(VENV) build dist docs/gallery docs/api/generated .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
