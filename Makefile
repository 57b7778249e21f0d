# Each target needs only make and Python 3.11 or later: it creates .venv and installs its dependencies
# there. Choose the interpreter with `make test PYTHON=python3.12`.

PYTHON ?= python3
VENV ?= .venv
BIN := $(abspath $(VENV))/bin
# Processes for the tests, divided by files and kernels (`tests/conftest.py`), each with one thread of
# BLAS. With more processes the same kernels are compiled more often, and more memory is needed.
TESTERS ?= 2
# Benchmarks of asv that `make bench` runs after all kernels, one after the other: regular expressions
# of names and parameters.
BENCH ?= Start Epoch time_solve.*belief time_solve.*expectation time_solve.*spike time_solve.*pseudo
# The commit that `make bench-compare` compares with.
BASE ?= HEAD~1

.PHONY: help demo wheel test nightly bench bench-compare lint docs clean

help:
	@echo "make demo | wheel | test | nightly | bench | bench-compare BASE=main~20 | lint | docs | clean"

# One stamp for each extra, so that a target installs its own dependencies only.
$(VENV)/%.stamp: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "fastmf needs Python 3.11 or later: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable ".[$*]"
	@touch $@

demo: $(VENV)/sklearn,plot,progress.stamp
	$(BIN)/fastmf demo

# A wheel for this platform, with the kernels built ahead for its instruction sets: some minutes, and
# a compiler of C. PLATFORM is its tag, such as manylinux_2_28_x86_64 where it is built for PyPI.
PLATFORM ?=
wheel: $(VENV)/sklearn,plot,progress.stamp
	rm -rf build/library
	OPENBLAS_NUM_THREADS=1 $(BIN)/python scripts/build_library.py build/library
	FASTMF_BUILT=build/library FASTMF_PLATFORM=$(PLATFORM) $(BIN)/python -m pip wheel --no-deps \
		--wheel-dir dist .

test: $(VENV)/test.stamp
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(TESTERS) --dist loadfile \
		--no-loadscope-reorder

# Rules of the house, scripts, types, texts and slow tests, which `make test` leaves out.
nightly: $(VENV)/test.stamp
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(TESTERS) --dist loadfile \
		--no-loadscope-reorder -m "slow or not slow" tests/house tests/scripts tests/typing \
		tests/test_docstrings.py tests/test_documentation.py
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -m slow tests

# Kernels beside their twins, a line each; then whole tasks by asv, a call each, since asv prints
# when it ends.
bench: $(VENV)/bench.stamp
	@mkdir -p build
	$(BIN)/python scripts/kernel_ratios.py --write build/ratios.json
	@cd asv_bench && $(BIN)/asv machine --yes > /dev/null
	@cd asv_bench && for name in $(BENCH); do \
		$(BIN)/asv run --python=same --quick --show-stderr --bench "$$name" || exit 1; done

# The present table of cases at both commits; only the ratios kernel : twin that differ are printed.
bench-compare: $(VENV)/bench.stamp
	@mkdir -p build
	@rm -rf build/base && git worktree prune
	git worktree add --detach build/base $(BASE)
	@for tree in build/base .; do echo "== $$tree"; \
		PYTHONPATH=$$tree $(BIN)/python scripts/kernel_ratios.py $(ONLY:%=--only %) \
			--write build/ratios-$$(basename $$(cd $$tree && pwd)).json || exit 1; done
	@git worktree remove --force build/base
	$(BIN)/python scripts/kernel_ratios.py --compare build/ratios-base.json \
		build/ratios-$$(basename $$(pwd)).json

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
	rm -rf $(VENV) build dist docs/gallery docs/api/generated docs/project/generated .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
