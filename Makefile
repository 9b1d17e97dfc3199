# `make demo` and `make test` work on a fresh checkout that has python3 (3.10-3.13) and a C compiler: all else,
# CMake and Ninja too, comes from the package index into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Wheels of tensorflow-cpu are for x86-64; elsewhere the full package brings the same.
TENSORFLOW := $(if $(filter x86_64,$(shell uname -m)),tensorflow-cpu,tensorflow)
SOURCES := pyproject.toml $(shell find src \( -name '*.pyx' -o -name '*.pxd' -o -name '*.[ch]' -o -name CMakeLists.txt \))
# Where PYTEST_ARGS picks tests, a folder that has none of them (exit code 5) is no failure.
run-tests = $(BIN)/python -m pytest -q $(PYTEST_ARGS) $(1) || test $$? = 5 $(if $(PYTEST_ARGS),,-a never = now)

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-unit test-integration test-faults lint bench matrix clean

help:
	@echo "make demo    watch two ranks of a small training, one with a slow input pipeline"
	@echo "make test    the whole test suite (PYTEST_ARGS='-k name' for a part of it)"
	@echo "make lint    ruff, mypy, import-linter"
	@echo "make bench   what sampling costs, measured here"
	@echo "make matrix  hooks and truth on TensorFlow 2.15 to 2.20, each with its Keras (40 minutes)"
	@echo "make clean   remove .venv and everything built"

venv: $(VENV)/.installed

$(VENV)/.installed: $(SOURCES)
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' || \
	  { echo "Python 3.10 to 3.13 is needed, $(PYTHON) is another: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) can't make virtual environments: apt install python3-venv, or PYTHON=another"; exit 1; }
	@command -v $${CC:-cc} >/dev/null || { echo "no C compiler: apt install gcc"; exit 1; }
	@$(PYTHON) -c 'import os, sysconfig as s, sys; sys.exit(not os.path.exists(s.get_path("include") + "/Python.h"))' || \
	  { echo "$(PYTHON) has no Python.h: apt install python3-dev"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing hpcsampler and what it needs into $(VENV) (minutes the first time) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$(TENSORFLOW),top,demo,dev]'
	@touch $@

demo: venv
	@$(BIN)/hpcsampler demo

test: test-unit test-integration test-faults

# In this order, and each only after the last: what is quick to tell is told first.
test-unit: venv
	@$(call run-tests,tests/unit)
test-integration: test-unit
	@$(call run-tests,tests/integration)
test-faults: test-integration
	@$(call run-tests,tests/faults)

lint: venv
	@$(BIN)/ruff check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

bench: venv
	@$(BIN)/python -m bench

# TensorFlow and the Keras of its days. The newest is what `make test` has. The tests are those of what is hooked.
MATRIX := 2.15.1+2.15.0 2.16.2+3.3.3 2.18.1+3.6.0 2.20.0+3.11.3
MATRIX_TESTS := $(patsubst %,tests/integration/test_%.py,\
  doctor_hooks phase_truth stages own_figures collectives same_program truth)

matrix: $(MATRIX:%=matrix-%)

matrix-%:
	@echo "TensorFlow $(firstword $(subst +, ,$*)), Keras $(lastword $(subst +, ,$*))"
	@test -x $(VENV)-$*/bin/python || $(PYTHON) -m venv $(VENV)-$*
	@$(VENV)-$*/bin/python -m pip install --quiet --disable-pip-version-check -C build-dir=build/$* -e '.[dev]' \
	  $(TENSORFLOW)==$(firstword $(subst +, ,$*)) keras==$(lastword $(subst +, ,$*))
	@$(VENV)-$*/bin/python -m pytest -q $(PYTEST_ARGS) $(MATRIX_TESTS)

clean:
	rm -rf $(VENV) $(VENV)-* build dist src/ext/*.so
