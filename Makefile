# The two commands: `make demo` (set up, run the main job) and `make test` (set up, check, test). `make demo-loop` sets up
# the executor, too, and closes the loop: plan, deploy on CPU ranks, measure, calibrate, plan again, reconfigure.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OUT ?= out
# Processes that share the tests: two more than processors, since tests of services and launches wait much of their time;
# of the lower rooms half as many, which wait for nothing, and one more than that of all others.
WORKERS ?= $(shell echo $$(($$(nproc 2>/dev/null || echo 2) + 2)))
HALF := $(shell echo $$((($(WORKERS) + 1) / 2)))
MORE := $(shell echo $$(($(HALF) + 1)))
# pip compiles what it installs in one process, the tests of all packages included; this is done on all processors
# without those, and without what nothing here loads and is a third of all. A few files of other packages cannot be
# compiled, and need not be.
PIP := $(BIN)/python -m pip install --quiet --no-compile
# What is built where there is a compiler.
COMPILED := setup.py shipping/compiled.py $(wildcard models/parallelism/incremental/cpp/*)
ROOMS := api benchmarks executor models solver stowplan stowplan_metrics.py topology workloads
UNUSED := fontTools|graphql|kubernetes/(aio|client/(api|models))|mypyc?|numpy/distutils
UNUSED := $(UNUSED)|ray/(data|llm|rllib|serve|train|tune)|sqlalchemy/(orm|testing)|torch/(_vendor|testing/_internal)
UNUSED := $(UNUSED)|transformers/(exporters|models)
COMPILE := $(BIN)/python -m compileall -qq -j 0 -x '/(tests?|$(UNUSED))/' $(VENV)/lib $(ROOMS) >/dev/null || true
# Tests start hundreds of processes, none of which is to compile what it loads, or to share its sums among threads.
unexport PYTHONDONTWRITEBYTECODE
check trainings upper lower: export OMP_NUM_THREADS ?= 1
# A file stays in one process, which makes its fixtures once; the order is kept, so that long files come first.
PARALLEL := --dist loadfile --no-loadscope-reorder
# Every process loads all tests that it shares with others, which takes as long as many of them. So those of the lower
# rooms, which load no service and no launcher, have processes of their own.
LOWER := $(addprefix tests/,benchmarks models solver topology workloads)
# Trainings, whose libraries take long to load.
TRAININGS := $(addprefix tests/executor/,trainer deployed/test_growing.py launch/test_native.py)
UPPER := tests $(patsubst %,--ignore %,$(LOWER) $(TRAININGS))
# $(call pytest,NAME,ARGUMENTS,PROCESSES,NICE): what fails for want of time on a slow machine gets one more try, by itself;
# what fails twice has failed.
pytest = $(4) $(BIN)/pytest $(2) --override-ini cache_dir=.pytest_cache/$(1) $(PARALLEL) --numprocesses $(3) --durations 20 \
	|| $(BIN)/pytest $(2) --override-ini cache_dir=.pytest_cache/$(1) --last-failed

.PHONY: demo demo-loop serve executor test check static lint types contract site pytest trainings upper lower openapi page clean

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
	$(SIDE_BY_SIDE) --jobs 4 trainings upper lower lint types contract site

static: $(VENV)/.dev
	$(SIDE_BY_SIDE) --jobs 2 lint types contract site

# All but the tests marked slow or training.
check: static
	$(BIN)/pytest tests $(TRAININGS:%=--ignore %) $(PARALLEL) --numprocesses $(WORKERS) -m "not slow and not training"

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
	$(SIDE_BY_SIDE) --jobs 3 trainings upper lower

# Two trainings at a time, which mostly wait: the ranks of more would starve one another on few processors. They come
# before all else when they do not wait.
trainings: $(VENV)/.dev
	$(call pytest,trainings,tests/executor -m training,2)

upper: $(VENV)/.dev
	$(call pytest,upper,$(UPPER) -m "not training",$(MORE),nice)

lower: $(VENV)/.dev
	$(call pytest,lower,$(LOWER) -m "not training",$(HALF),nice)

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

$(VENV)/.runtime: pyproject.toml $(COMPILED) | $(VENV)/.pip
	$(PIP) --editable .
	$(COMPILE)
	touch $@

# Without operators that compilers would have to build; torch's default wheel would bring gigabytes for GPUs.
$(VENV)/.executor: pyproject.toml $(COMPILED) | $(VENV)/.pip
	DS_BUILD_OPS=0 $(PIP) --editable '.[executor]'
	$(COMPILE)
	touch $(VENV)/.runtime $@

# All in one pass: each would build the project and look through all requirements again.
$(VENV)/.dev: pyproject.toml $(COMPILED) | $(VENV)/.pip
	DS_BUILD_OPS=0 $(PIP) --editable '.[executor,dev]'
	$(COMPILE)
	touch $(VENV)/.runtime $(VENV)/.executor $@
