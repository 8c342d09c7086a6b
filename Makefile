# Two commands matter: `make demo` and `make test`.  Both build .venv on first use and reuse it afterwards.
PYTHON ?= python3
VENV   ?= .venv
DEMO   ?= demo-out
BIN    := $(VENV)/bin
# Tests compile small kernels; more threads than this only fight over the cores that the test workers use.
THREADS ?= 1
# One more than there are cores: tests wait too, for compilers and deadlines.
JOBS    ?= $(shell echo $$(( $$(nproc 2>/dev/null || echo 2) + 1 )))
# Seconds within which `make long` starts tests.
LONG    ?= 900
TESTS   ?= tests
# Wheels for x86-64, as install.sh adds them up.
RUN_SIZE := 140 MB
DEV_SIZE := 430 MB
# The environment is ours: compiled on first use even where the user wants no such files elsewhere.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo test optional long check slow lint lock clean

help:
	@echo "make demo    scan -> plan -> simulate -> run, with a report in $(DEMO)/"
	@echo "make test    the test suite (3 to 4 minutes on 2 cores, the first time)"
	@echo "make check   ruff, mypy --strict and the test suite"
	@echo "make slow    the long tests too"
	@echo "make long    of the long tests what starts within $(LONG) s, TESTS=\"tests/planning ...\""
	@echo "make optional  the tests that need one of the tools below, alone"
	@echo "make clean   remove $(VENV), caches and $(DEMO)/"
	@echo
	@echo "needed: python3 (3.10 or newer), python3-venv, build-essential"
	@echo "optional: OR-Tools, ONNX, ONNX Runtime, Parquet, Ray, MCAP, rosbags, ROS 2, pygls, PyTorch, aarch64 compiler, Zig,"
	@echo "  aarch64 emulator, llvm-mca, nvcc, GPU, TensorRT, OpenCL,"
	@echo "  HTP compiler, RKNN compiler, real time, power sensors, Chromium (socsched doctor says what is there and"
	@echo "  how to get the rest)"

demo: $(VENV)/.run
	$(BIN)/socsched demo -o $(DEMO)
	@echo "socsched on the PATH of this shell:  . $(BIN)/activate"

test: $(VENV)/.dev
	TVM_NUM_THREADS=$(THREADS) $(BIN)/python -m pytest -q -m "not slow" -n $(JOBS) --dist worksteal

optional: $(VENV)/.dev
	TVM_NUM_THREADS=$(THREADS) $(BIN)/python -m pytest -q -rs -m "optional and not slow" -n $(JOBS) --dist worksteal

slow: $(VENV)/.dev
	TVM_NUM_THREADS=$(THREADS) $(BIN)/python -m pytest -q

# The long tests of some folders, for CI; what it has no time for is counted as skipped; none there is no error (5).
long: $(VENV)/.dev
	TVM_NUM_THREADS=$(THREADS) $(BIN)/python -m pytest -q -m slow --start-within $(LONG) -n $(JOBS) --dist worksteal $(TESTS) || [ $$? = 5 ]

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/mypy

check: lint test

# Stamps: the environment is complete only once its stamp exists, so an interrupted installation is taken up again.
# One run of pip for each lock, wheels only; dev.lock holds all of run.lock.  The native executor is built while pip loads.
EXECUTOR = from socsched.executor import build; build.find_executor()
$(VENV)/.run: requirements/run.lock pyproject.toml tools/ci/preflight.sh tools/ci/install.sh
	@sh tools/ci/preflight.sh "$(PYTHON)"
	@nice $(PYTHON) -S -c "$(EXECUTOR)" > /dev/null 2>&1 & \
	  sh tools/ci/install.sh "$(PYTHON)" $(VENV) requirements/run.lock "$(RUN_SIZE)"
	@touch $@

$(VENV)/.dev: requirements/dev.lock pyproject.toml socsched_literature/pyproject.toml tools/ci/preflight.sh tools/ci/install.sh
	@sh tools/ci/preflight.sh "$(PYTHON)"
	@sh tools/ci/install.sh "$(PYTHON)" $(VENV) requirements/dev.lock "$(DEV_SIZE)" ./socsched_literature
	@touch $(VENV)/.run $@

UV_COMPILE = uv pip compile --quiet --custom-compile-command "make lock" --universal --python-version 3.10 --generate-hashes --no-annotate --no-emit-index-url
lock:
	$(UV_COMPILE) pyproject.toml requirements/build.in -o requirements/run.lock
	$(UV_COMPILE) pyproject.toml requirements/build.in --extra dev -c requirements/run.lock -o requirements/dev.lock
	$(UV_COMPILE) pyproject.toml requirements/build.in --extra onnx -c requirements/run.lock -c requirements/dev.lock -o requirements/onnx.lock

clean:
	rm -rf $(VENV) .cache $(DEMO) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
