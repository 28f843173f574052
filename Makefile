# Two commands: `make demo` and `make test`. Both make .venv, install what they need, then run; nothing is built twice.
#   make demo PYTHON=python3.12              another interpreter (3.11 or newer)
#   make demo LLAMA_CPP_WHEEL=path.whl       a prebuilt llama-cpp-python instead of compiling it
#   make demo CMAKE_ARGS="-DGGML_CUDA=on"    other build options for llama.cpp (a GPU, say)
#   make bench BENCH="--quick decode"        some of the measures; BENCH=--help lists them

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
CMAKE_ARGS ?= -DLLAVA_BUILD=OFF
LLAMA_CPP_WHEEL ?=
LLAMA_CPP := $(shell sed -n 's/^llama-cpp = \["\(.*\)"\]/\1/p' pyproject.toml)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
BUILD_LOG := $(VENV)/llama-cpp-build.log

# The lowest versions that pyproject.toml allows, in a virtual environment of their own, and what is tested with them.
comma := ,
LOWEST := $(VENV)/lowest
LLAMA_CPP_LOWEST := $(subst >=,==,$(firstword $(subst $(comma), ,$(LLAMA_CPP))))
LOWEST_TESTS := tests/test_imports.py $(addprefix tests/,calibration logprobs runnable evaluation cli) \
  $(addprefix tests/openai_backend/test_,chat_model.py call_options.py error_kinds.py probing.py sample_streams.py) \
  $(addprefix tests/backends/test_,chat_model.py hub.py readme.py tools.py)

.PHONY: help demo test test-lowest lint format types bench clean

help:
	@echo "make demo    install, then run the shipped model through pass@1, SC, ESC, ASC and ReASC"
	@echo "make test    install, then run the tests;  make test-lowest  some of them, with the lowest versions allowed"
	@echo "make lint    style and types;  make format  rewrite to style;  make bench  measures beside other engines"

demo: $(VENV)/.demo
	@$(BIN)/reasc demo --plot

test: $(VENV)/.test
	@$(BIN)/python -m pytest

test-lowest: $(VENV)/.lowest
	@$(LOWEST)/bin/python -m pytest -p no:cacheprovider $(LOWEST_TESTS)

lint: $(VENV)/.lint
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy langchain_reasc backends benchmarks examples/*.py
	@cd examples/word_problems && MYPYPATH=../..:../../backends ../../$(BIN)/mypy --config-file ../../pyproject.toml *.py
	@$(BIN)/python tests/documentation/check_snippets.py

format: $(VENV)/.lint
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

bench: $(VENV)/.bench
	@$(BIN)/python -m benchmarks $(BENCH)

clean:
	rm -rf $(VENV) build dist demo-output

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed ($$($(PYTHON) --version) found); name another with PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "cannot make $(VENV); on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@$(PIP) install --upgrade pip
	@touch $@

# llama-cpp-python comes as source. Its progress is shown as one line; the whole log is kept beside it.
$(VENV)/.llama-cpp: $(VENV)/.made
	@if [ -n "$(LLAMA_CPP_WHEEL)" ]; then $(PIP) install "$(LLAMA_CPP_WHEEL)"; touch $@; exit 0; fi; \
	command -v c++ >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null || { \
	  echo "a C++ compiler is needed to build llama.cpp: apt install build-essential (Debian, Ubuntu), dnf install gcc-c++ (Fedora), xcode-select --install (macOS); or give a prebuilt wheel: make LLAMA_CPP_WHEEL=path.whl" >&2; exit 1; }; \
	echo "Building llama.cpp from source, once; 4 to 8 minutes on 2 cores (log: $(BUILD_LOG))"; \
	start=$$SECONDS; \
	if CMAKE_ARGS="$(CMAKE_ARGS)" CMAKE_BUILD_PARALLEL_LEVEL=$$(getconf _NPROCESSORS_ONLN) \
	  $(BIN)/python -m pip --disable-pip-version-check install --verbose "$(LLAMA_CPP)" 2>&1 | tee $(BUILD_LOG) \
	  | awk 'match($$0, /\[[0-9]+\/[0-9]+\]/) { step = substr($$0, RSTART, RLENGTH); if (step != last) printf "\r  compiling %s   ", step; last = step; fflush() } END { print "" }'; \
	then echo "Built in $$((SECONDS - start)) s."; touch $@; \
	else echo "the build of $(LLAMA_CPP) failed; the end of $(BUILD_LOG):" >&2; tail -n 15 $(BUILD_LOG) >&2; exit 1; fi

$(VENV)/.demo: $(VENV)/.llama-cpp pyproject.toml
	@$(PIP) install --editable '.[llama-cpp,plot]'
	@touch $@

$(VENV)/.test: $(VENV)/.demo tests/parity/requirements.txt
	@$(PIP) install --editable '.[llama-cpp,plot,openai,huggingface]' --group test --group providers
	@$(PIP) install --no-deps -r tests/parity/requirements.txt
	@touch $@

$(VENV)/.lowest: $(VENV)/.llama-cpp pyproject.toml
	@$(PIP) install uv
	@CMAKE_ARGS="$(CMAKE_ARGS)" $(PIP) wheel --no-deps --wheel-dir $(VENV)/wheels "$(or $(LLAMA_CPP_WHEEL),$(LLAMA_CPP_LOWEST))"
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(LOWEST)
	@$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct \
	  --find-links $(VENV)/wheels --editable '.[all]'
	@$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python pytest pytest-asyncio hypothesis gguf jsonschema
	@touch $@

$(VENV)/.bench: $(VENV)/.demo
	@$(PIP) install --group bench
	@touch $@

$(VENV)/.lint: $(VENV)/.test
	@$(PIP) install --group lint
	@touch $@
