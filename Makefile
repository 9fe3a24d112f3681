# Every target but `clean` makes .venv first when it is missing or older than what describes it.
PYTHON ?= python3
FREE_THREADED ?= python3.14t
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
FUZZ_SECONDS ?= 60
SEEDS ?= 100000
CLUSTER_SEEDS ?= 2000
FIRST ?= 0
EXTRAS ?= arrow,spark,avro,fast,cli,http,security,test,dev
PYTEST := $(BIN)/pytest
SUBSET := tests/test_config.py tests/test_errors.py tests/test_serialization.py tests/records tests/net tests/admin \
	tests/producer/test_sending.py tests/producer/test_interrupts.py tests/producer/test_flushing.py \
	tests/consumer/test_reading.py tests/consumer/test_groups.py tests/e2e/test_public_surface.py

# Without bytecode on disk, each of the many Python processes of the tests compiles the package again, and each worker
# of pytest rewrites the assertions of all tests again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-pure test-free-threaded test-without-gil test-python test-subset test-slow test-kafka kerberos
.PHONY: fuzz torture chaos chaos-copy chaos-spark plants simulate lint sync-clients docs bench clean

help:
	@echo "make demo        run the main job: real input through producer, broker, consumer group and Spark"
	@echo "make test        the tests (under 10 minutes on 2 cores)"
	@echo "make test-pure   the codec and client tests without the compiled codec"
	@echo "make test-free-threaded  the client's tests without the interpreter's lock (FREE_THREADED=python3.14t)"
	@echo "make test-python PYTHON=/path/to/python3.13  builds for another Python and runs the tests that depend on it most"
	@echo "make test-slow   the tests that take longer"
	@echo "make test-kafka  the tests against a real Apache Kafka and its classes (needs a JDK and Maven, or PYCLIENT_TEST_BOOTSTRAP)"
	@echo "make kerberos    what its tests of GSSAPI need: a KDC (as root, by apt) and python-gssapi"
	@echo "make fuzz        generated and mutated requests against a broker (FUZZ_SECONDS=60, FUZZ_SEED=a number)"
	@echo "make torture     kill, damage and fail the broker's storage (TORTURE_ARGS='--seed 1 --seconds 600 --only damage')"
	@echo "make chaos       clients at work on three broker processes under kills, pauses, cuts and damage (CHAOS_ARGS='--seed 1 --seconds 600', docs/chaos.md)"
	@echo "make chaos-copy  an exactly-once copy of 100,000 messages under kills, zombies and late requests (COPY_ARGS='--seed 1 --size 750')"
	@echo "make chaos-spark 1,000 kills of Spark's workers, and kills of its driver, brokers and coordinators (CHAOS_SPARK_ARGS='--seed 1 --kills 200')"
	@echo "make plants      apply planted bugs, each of which a chaos run, a simulation or a test has to find (PLANTS_ARGS='--only votes-twice')"
	@echo "make simulate    simulated metadata quorums (SEEDS=100000, FIRST=0), and whole clusters with clients (CLUSTER_SEEDS=2000)"
	@echo "make lint        ruff, mypy --strict, import-linter, rules of our own, generated files up to date"
	@echo "make sync-clients  write the synchronous clients from the asyncio ones"
	@echo "make docs        write docs/options.md from the table of options"
	@echo "make bench       pyclient compared with confluent-kafka, kafka-python and aiokafka"

$(STAMP): pyproject.toml setup.py $(wildcard $(foreach room,records producer,$(foreach kind,pyx pxi pxd,pyclient/$(room)/*.$(kind))))
	@$(PYTHON) -c 'import sys; sys.exit("pyclient needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[$(EXTRAS)]"
	touch $(STAMP)

setup: $(STAMP)

demo: $(STAMP)
	$(BIN)/pyclient demo $(DEMO_ARGS)

test: $(STAMP)
	$(PYTEST) -n 4 --dist loadgroup -m "not kafka and not slow"

test-pure: $(STAMP)
	PYCLIENT_PURE=1 $(PYTEST) -n 4 -m "not kafka and not slow and not spark and not compiled" tests/records tests/producer tests/consumer tests/e2e

# A virtual environment of its own: the compiled codec is built for that interpreter.
test-free-threaded:
	$(MAKE) test-without-gil PYTHON=$(FREE_THREADED) VENV=.venv-free-threaded EXTRAS=arrow,fast,test

test-without-gil: $(STAMP)
	PYTHON_GIL=0 $(PYTEST) -n 2 -m "not kafka and not slow and not spark" tests/records tests/protocol tests/net tests/cluster tests/producer tests/consumer tests/e2e

# That the codec builds and the clients work on another release of Python: what depends on it most.
test-python:
	$(MAKE) test-subset PYTHON=$(PYTHON) VENV=.venv-$(notdir $(PYTHON)) EXTRAS=arrow,fast,cli,test

test-subset: $(STAMP)
	$(BIN)/python -W error -c 'from pyclient import *; import sys, pyclient.records as r; print(sys.version, r.IMPLEMENTATION); assert r.IMPLEMENTATION == "cython"'
	$(PYTEST) -n 4 -m "not kafka and not slow and not spark" $(SUBSET)

test-slow: $(STAMP)
	$(PYTEST) -n 3 --dist loadgroup -m "slow and not kafka"

test-kafka: $(STAMP) kerberos
	$(PYTEST) -n 3 --dist loadgroup -m kafka

kerberos: $(STAMP)
	tools/kerberos.sh $(BIN)/python

fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS) $(if $(FUZZ_SEED),--seed $(FUZZ_SEED))

torture: $(STAMP)
	$(BIN)/python -m tests.torture $(TORTURE_ARGS)

chaos: $(STAMP)
	$(BIN)/python -m tests.chaos $(CHAOS_ARGS)

chaos-copy: $(STAMP)
	$(BIN)/python -m tests.chaos.copy_chain $(COPY_ARGS)

chaos-spark: $(STAMP)
	$(BIN)/python -m tests.spark.kill_points --kills 1000 --driver-kills 3 --broker-kills 4 --coordinator-kills 20 $(CHAOS_SPARK_ARGS)

plants: $(STAMP)
	$(BIN)/python -m tests.plants $(PLANTS_ARGS)

simulate: $(STAMP)
	$(BIN)/python -m tests.broker_embedded.raft --seeds $(SEEDS) --first $(FIRST)
	$(BIN)/python -m tests.simulation --seeds $(CLUSTER_SEEDS) --first $(FIRST)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/lint-imports --config tools/broker_rooms.toml
	$(BIN)/python -m tools.lint_rules
	$(BIN)/python -m tools.sync_clients --check

sync-clients: $(STAMP)
	$(BIN)/python -m tools.sync_clients

docs: $(STAMP)
	$(BIN)/pyclient options --markdown > docs/options.md

bench: $(STAMP)
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .venv-free-threaded .venv-python3.* build dist *.egg-info $(foreach room,records producer,pyclient/$(room)/_speedups.c pyclient/$(room)/*.so)
