# Two commands matter: `make demo` and `make test`.  Both build .venv on first use and reuse it afterwards.
PYTHON ?= python3
VENV   ?= .venv
DEMO   ?= demo-out
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet --no-input
# Tests compile small kernels; more threads than this only fight over the cores that the test workers use.
THREADS ?= 1
JOBS    ?= auto

.DEFAULT_GOAL := help
.PHONY: help demo test check slow lint lock clean

help:
	@echo "make demo    scan -> plan -> simulate -> run, with a report in $(DEMO)/"
	@echo "make test    the test suite (less than 15 minutes on 2 cores)"
	@echo "make check   ruff, mypy --strict and the test suite"
	@echo "make slow    the long tests too"
	@echo "make clean   remove $(VENV), caches and $(DEMO)/"

demo: $(VENV)/.run
	$(BIN)/socsched demo -o $(DEMO)
	@echo "socsched on the PATH of this shell:  . $(BIN)/activate"

test: $(VENV)/.dev
	TVM_NUM_THREADS=$(THREADS) $(BIN)/python -m pytest -q -m "not slow" -n $(JOBS)

slow: $(VENV)/.dev
	TVM_NUM_THREADS=$(THREADS) $(BIN)/python -m pytest -q

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/mypy

check: lint test

# Stamps: the environment is complete only once its stamp exists, so an interrupted installation is taken up again.
$(VENV)/.run: requirements/run.lock pyproject.toml tools/preflight.sh
	@sh tools/preflight.sh "$(PYTHON)"
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	@echo "installing locked packages into $(VENV) (once)" >&2
	@$(PIP) install --require-hashes -r requirements/run.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements/dev.lock $(VENV)/.run
	@$(PIP) install --require-hashes -r requirements/dev.lock
	@touch $@

UV_COMPILE = uv pip compile --quiet --custom-compile-command "make lock" --universal --python-version 3.10 --generate-hashes --no-annotate --no-emit-index-url
lock:
	$(UV_COMPILE) pyproject.toml requirements/build.in -o requirements/run.lock
	$(UV_COMPILE) pyproject.toml requirements/build.in --all-extras -c requirements/run.lock -o requirements/dev.lock

clean:
	rm -rf $(VENV) $(DEMO) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
