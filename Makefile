# Every target but `clean` makes .venv first when it is missing or older than what describes it.
PYTHON ?= python3
FREE_THREADED ?= python3.14t
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
EXTRAS ?= arrow,spark,fast,cli,test,dev
PYTEST := $(BIN)/pytest

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-pure test-free-threaded test-without-gil test-slow test-kafka lint bench clean

help:
	@echo "make demo        run the main job: real input through producer, broker, consumer group and Spark"
	@echo "make test        the tests (under 10 minutes on 2 cores)"
	@echo "make test-pure   the codec and client tests without the compiled codec"
	@echo "make test-free-threaded  the client's tests without the interpreter's lock (FREE_THREADED=python3.14t)"
	@echo "make test-slow   the tests that take longer"
	@echo "make test-kafka  the tests against a real Apache Kafka and its classes (needs a JDK and Maven, or PYCLIENT_TEST_BOOTSTRAP)"
	@echo "make lint        ruff, mypy --strict, import-linter"
	@echo "make bench       pyclient beside confluent-kafka, kafka-python and aiokafka"

$(STAMP): pyproject.toml setup.py $(wildcard pyclient/records/*.pyx pyclient/records/*.pxi)
	@$(PYTHON) -c 'import sys; sys.exit("pyclient needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[$(EXTRAS)]"
	touch $(STAMP)

setup: $(STAMP)

demo: $(STAMP)
	$(BIN)/pyclient demo $(DEMO_ARGS)

test: $(STAMP)
	$(PYTEST) -n 2 --dist loadgroup -m "not kafka and not slow"

test-pure: $(STAMP)
	PYCLIENT_PURE=1 $(PYTEST) -n 2 -m "not kafka and not slow and not spark and not compiled" tests/records tests/protocol tests/producer tests/consumer tests/e2e

# A virtual environment of its own: the compiled codec is built for that interpreter.
test-free-threaded:
	$(MAKE) test-without-gil PYTHON=$(FREE_THREADED) VENV=.venv-free-threaded EXTRAS=arrow,fast,test

test-without-gil: $(STAMP)
	PYTHON_GIL=0 $(PYTEST) -n 2 -m "not kafka and not slow and not spark" tests/records tests/protocol tests/net tests/cluster tests/producer tests/consumer tests/e2e

test-slow: $(STAMP)
	$(PYTEST) -m "slow and not kafka"

test-kafka: $(STAMP)
	$(PYTEST) -m kafka

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .venv-free-threaded build dist *.egg-info pyclient/records/_speedups.c pyclient/records/*.so
