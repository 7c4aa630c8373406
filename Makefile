# The two commands: `make demo` (set up, run the main job) and `make test` (set up, check, test).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OUT ?= out

.PHONY: demo serve test lint types contract pytest openapi clean

demo: $(VENV)/.runtime
	$(BIN)/stowplan demo --output $(OUT)

serve: $(VENV)/.runtime
	$(BIN)/stowplan serve

# pytest comes last, so that its closing line closes the run.
test: lint types contract pytest

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.dev
	$(BIN)/mypy

contract: $(VENV)/.dev
	$(BIN)/lint-imports
	$(BIN)/python -m api.openapi --check

pytest: $(VENV)/.dev
	$(BIN)/pytest

openapi: $(VENV)/.dev
	$(BIN)/python -m api.openapi

clean:
	rm -rf $(VENV) $(OUT) build *.egg-info

$(VENV)/.runtime: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@
