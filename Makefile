# Two commands: `make demo` and `make test`. Both make .venv, install what they need, then run; nothing is built twice.
#   make demo PYTHON=python3.12              another interpreter (3.11 or newer)
#   make demo LLAMA_CPP_WHEEL=path.whl       a prebuilt llama-cpp-python instead of compiling it
#   make demo CMAKE_ARGS="-DGGML_CUDA=on"    further build options for llama.cpp (a GPU, say); others build it again
#   make bench BENCH="--quick decode"        some of the measures; BENCH=--help lists them

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
CMAKE_ARGS ?=
LLAMA_CPP_WHEEL ?=
export CMAKE_ARGS LLAMA_CPP_WHEEL
LLAMA_CPP := $(shell sed -n 's/^llama-cpp = \["\(.*\)"\]/\1/p' pyproject.toml)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: help demo test test-slow lint format types bench clean always

help:
	@echo "make demo    install, then run the shipped model through pass@1, SC, ESC, ASC and ReASC"
	@echo "make test    install, then run the tests;  make test-slow  those that take long"
	@echo "make lint    style and types;  make format  rewrite to style;  make bench  measures beside other engines"

demo: $(VENV)/.demo
	@$(BIN)/reasc demo --plot
	@printf '%s\n' '' 'The command is $(BIN)/reasc ("source $(BIN)/activate" makes it reasc).' 'Next:' \
	  '  $(BIN)/reasc ask "Kira has 7 roses and wants 12. How many more?" --trace' \
	  '  $(BIN)/reasc calibrate questions.jsonl --model my.gguf    your own model' \
	  '  $(BIN)/reasc --help'

# Two processes at a time. Each test that waits leaves its core to the other; more would fall over each other's time limits.
test: $(VENV)/.test
	@$(BIN)/python -m pytest -n 2 --dist worksteal --benchmark-disable

test-slow: $(VENV)/.test
	@$(BIN)/python -m pytest -m slow

lint: $(VENV)/.lint
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy langchain_reasc backends benchmarks examples/*.py
	@cd examples/word_problems && MYPYPATH=../..:../../backends ../../$(BIN)/mypy --config-file ../../pyproject.toml *.py

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

# Says nothing where llama.cpp is there already, and CMAKE_ARGS and LLAMA_CPP_WHEEL are as they were.
$(VENV)/.llama-cpp: $(VENV)/.made always
	@$(SHELL) backends/llama_cpp_build.sh $(VENV) "$(LLAMA_CPP)"

$(VENV)/.demo: $(VENV)/.llama-cpp pyproject.toml
	@$(PIP) install --editable '.[llama-cpp,plot]'
	@touch $@

$(VENV)/.test: $(VENV)/.demo tests/parity/requirements.txt
	@$(PIP) install --editable '.[llama-cpp,plot,openai,huggingface]' --group test --group providers
	@$(PIP) install --no-deps -r tests/parity/requirements.txt
	@touch $@

$(VENV)/.bench: $(VENV)/.demo
	@$(PIP) install --group bench
	@touch $@

$(VENV)/.lint: $(VENV)/.test
	@$(PIP) install --group lint
	@touch $@
