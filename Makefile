# The two commands: `make demo` (set up, run the main job) and `make test` (set up, check, test). `make demo-loop` sets up
# the executor, too, and closes the loop: plan, deploy on CPU ranks, measure, calibrate, plan again, reconfigure.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OUT ?= out
# Processes that share the tests: two more than processors, since tests of services and launches wait much of their time.
WORKERS ?= $(shell echo $$(($$(nproc 2>/dev/null || echo 2) + 2)))
# pip compiles what it installs in one process, the tests of all packages included; this is done on all processors
# without those. A few files of other packages cannot be compiled, and need not be.
PIP := $(BIN)/python -m pip install --quiet --no-compile
COMPILE := $(BIN)/python -m compileall -qq -j 0 -x '/tests?/' $(VENV)/lib >/dev/null || true
# A file stays in one process, which makes its fixtures once; the order is kept, so that long files come first.
# The trainer's tests are trainings, and their libraries take long to load.
PARALLEL := --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder --ignore tests/executor/trainer

.PHONY: demo demo-loop serve executor test check static lint types contract site pytest trainings others openapi page clean

demo: $(VENV)/.runtime
	$(BIN)/stowplan demo --output $(OUT)

demo-loop: $(VENV)/.executor
	$(BIN)/python -m benchmarks closed-loop --output $(OUT)/loop

serve: $(VENV)/.runtime
	$(BIN)/stowplan serve

executor: $(VENV)/.executor

# Side by side; what one says stays together. The tests take longest, so that their closing line closes the run.
SIDE_BY_SIDE := $(MAKE) --no-print-directory --output-sync=target

test: $(VENV)/.dev
	$(SIDE_BY_SIDE) --jobs 3 trainings others lint types contract site

static: $(VENV)/.dev
	$(SIDE_BY_SIDE) --jobs 2 lint types contract site

# All but the tests marked slow or training.
check: static
	$(BIN)/pytest $(PARALLEL) -m "not slow and not training"

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/hadolint Dockerfile deploy/Dockerfile

types: $(VENV)/.dev
	nice $(BIN)/mypy

contract: $(VENV)/.dev
	$(BIN)/lint-imports
	$(BIN)/python -m api.openapi --check
	$(BIN)/datamodel-codegen --check

# Warnings are errors: links that lead nowhere, pages in no menu, docstrings that cannot be read.
site: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=. nice $(BIN)/python -m mkdocs build --quiet --strict

pytest: $(VENV)/.dev
	$(SIDE_BY_SIDE) --jobs 2 trainings others

# One training at a time: the ranks of several would starve one another on few processors. They mostly wait, and come
# before all else when they do not.
# What fails for want of time on a slow machine gets one more try, by itself; what fails twice has failed.
trainings: $(VENV)/.dev
	$(BIN)/pytest -m training tests/executor --durations 10 --override-ini cache_dir=.pytest_cache/trainings || \
		$(BIN)/pytest -m training tests/executor --last-failed --override-ini cache_dir=.pytest_cache/trainings

others: $(VENV)/.dev
	nice $(BIN)/pytest $(PARALLEL) -m "not training" --durations 20 || \
		$(BIN)/pytest --ignore tests/executor/trainer -m "not training" --last-failed

openapi: $(VENV)/.dev
	$(BIN)/python -m api.openapi
	$(BIN)/datamodel-codegen

# The page, of what lies in ui/; what is built is committed, so that nobody else needs Node.
page:
	cd ui && npm ci --ignore-scripts && npm run build

clean:
	rm -rf $(VENV) $(OUT) build *.egg-info

$(VENV)/.pip:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	touch $@

$(VENV)/.runtime: pyproject.toml | $(VENV)/.pip
	$(PIP) --editable .
	$(COMPILE)
	touch $@

# Without operators that compilers would have to build; torch's default wheel would bring gigabytes for GPUs.
$(VENV)/.executor: pyproject.toml | $(VENV)/.pip
	DS_BUILD_OPS=0 $(PIP) --editable '.[executor]'
	$(COMPILE)
	touch $(VENV)/.runtime $@

# All in one pass: each would build the project and look through all requirements again.
$(VENV)/.dev: pyproject.toml | $(VENV)/.pip
	DS_BUILD_OPS=0 $(PIP) --editable '.[executor,dev]'
	$(COMPILE)
	touch $(VENV)/.runtime $(VENV)/.executor $@
