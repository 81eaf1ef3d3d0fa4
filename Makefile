# `make` alone lists what there is to do. Every target sets up what it needs, into $(VENV),
# and does so again only when pyproject.toml has changed.

SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV ?= .venv
BIN := $(VENV)/bin
# The first Python that is new enough; PYTHON=/path/to/python overrides it.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

# Nothing is installed through a link into the environment of another tree, unless VENV names it on purpose.
OWN_VENV = $(if $(filter file,$(origin VENV)),tests/support/own_directory.sh $(VENV),:)
# Continuous integration installs versions that have been tested, so that a new release of a dependency breaks nothing.
PINNED := $(if $(CI),PIP_CONSTRAINT=.ci/constraints.txt PIP_BUILD_CONSTRAINT=.ci/constraints.txt)
RUNTIME := $(VENV)/.installed-runtime
DEVELOPMENT := $(VENV)/.installed-development

# Arguments for the program that a target runs: make run ARGS='--http-port 8082'
ARGS ?=
# The demo replays this many flights; 0 is all of them.
DEMO_FLIGHTS ?= 0
# The Kafka clients that make conformance runs: all, or a comma list such as sarama,java.
CLIENTS ?= all
# Where make suites finds the suites that no package registry serves.
SUITES_DIR ?=
# How many processes make test runs the tests in: five for two cores, because tests wait for brokers, PostgreSQL and Spark;
# each collects all tests first. 0 runs them in a single process, for a debugger.
TEST_PROCESSES ?= $(shell echo $$((5 * $$(getconf _NPROCESSORS_ONLN) / 2)))
# The same for make long and make conformance: one per core: Spark and many brokers at once compute more than they wait.
LONG_PROCESSES ?= $(shell getconf _NPROCESSORS_ONLN)
# The suites that do not mind at which broker a listener is.
CLUSTER_SUITES = tests/integration/test_interoperability.py tests/conformance tests/integration/spark \
	tests/integration/cdc tests/integration/test_conditional_produce.py tests/integration/mirror/test_mirror_of_kafka.py \
	tests/integration/iceberg/test_key_value.py
FUZZ_SECONDS ?= 60
LOAD_SECONDS ?= 20
LOAD_USERS ?= 20
export LOAD_SECONDS LOAD_USERS

.PHONY: help setup run test coverage long test-cluster long-cluster conformance suites lint format docs bench load demo demo-restore cluster fuzz faults mutants constraints release torture clean

help: ## list the targets
	@echo "Stele, a log broker. Targets:"
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | \
		while IFS=$$'\t' read -r name text; do printf '  make %-12s %s\n' "$$name" "$$text"; done

setup: $(DEVELOPMENT) ## install everything needed to work on Stele into .venv
	@echo "ready: $(BIN)/stele, and make run, test, lint, bench, load, demo"

run: $(RUNTIME) ## start a broker on 127.0.0.1 (HTTP 8080, binary 9009, Kafka 9092, schema registry 8081, data in ./data)
	@exec $(BIN)/stele serve $(ARGS)

test: $(DEVELOPMENT) ## run all tests except the long and the unbounded ones, in parallel, the same way each time
	@# Without cached bytecode, every process that a test starts compiles what it imports.
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m compileall -q app clients load
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder -m "not torture and not long" $(ARGS)

coverage: $(DEVELOPMENT) ## measure the coverage of tests/unit, which has a floor, or of ARGS: ten minutes of CPU time, in a single process
	@rm -rf build/coverage
	$(BIN)/python -m coverage run -m pytest -q -m "not torture and not long" $(or $(ARGS),tests/unit)
	@$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report $(if $(ARGS),--fail-under 0)

long: $(DEVELOPMENT) ## run what takes minutes, and costly variants: kills of pipelines, Spark clusters, many seeds
	$(BIN)/python -m pytest -n $(LONG_PROCESSES) --dist loadfile --no-loadscope-reorder -m "long and not torture" $(ARGS)

test-cluster: $(DEVELOPMENT) ## run what a broker serves against three brokers with shared storage
	STELE_TEST_BROKERS=3 $(BIN)/python -m pytest -n $(LONG_PROCESSES) --dist loadfile --no-loadscope-reorder \
		-m "not torture and not long and not one_broker" $(CLUSTER_SUITES) $(ARGS)

long-cluster: $(DEVELOPMENT) ## run the same with all CLIENTS of make conformance and with the long tests
	STELE_TEST_BROKERS=3 STELE_CONFORMANCE_CLIENTS=$(CLIENTS) $(BIN)/python -m pytest -n $(LONG_PROCESSES) \
		--dist loadfile --no-loadscope-reorder -m "not torture and not one_broker" $(CLUSTER_SUITES) $(ARGS)

conformance: $(DEVELOPMENT) ## test the Kafka listener with CLIENTS (default all), write the table of docs/conformance.md
	@echo "running the conformance tests; what is downloaded and built for them goes to .conformance"
	STELE_CONFORMANCE_CLIENTS=$(CLIENTS) STELE_CONFORMANCE_TABLE=docs/conformance.md \
		$(BIN)/python -m pytest -n $(LONG_PROCESSES) --dist loadfile --no-loadscope-reorder tests/conformance $(ARGS)

suites: $(DEVELOPMENT) ## run the test suites of Kafka clients: ARGS='sarama kafka-go'; SUITES_DIR has those no registry serves
	@echo "running the suites of Kafka clients; what is downloaded, built and printed goes to .conformance/suites"
	@SUITES_DIR='$(SUITES_DIR)' $(BIN)/python -m tests.suites $(ARGS)

lint: $(DEVELOPMENT) ## check style, format, types, layers, the Dockerfile, and that make format has nothing to generate
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python clients/python/unasync.py --check
	$(BIN)/pyright --pythonpath $(BIN)/python
	@# The types of the client must be complete. With --verifytypes, pyright takes the python on the PATH.
	@set -o pipefail; echo "pyright --verifytypes stele --ignoreexternal"; PATH="$(abspath $(BIN)):$$PATH" \
		PYTHONPATH="$(CURDIR)/clients/python" pyright --verifytypes stele --ignoreexternal | sed '/^Public modules/,/^$$/d'
	$(BIN)/lint-imports --no-logo
	@if [ -x $(BIN)/hadolint ]; then echo "$(BIN)/hadolint Dockerfile"; $(BIN)/hadolint Dockerfile; \
	else echo "hadolint has no package for this machine: the Dockerfile was not checked"; test -z "$${CI:-}"; fi

format: $(DEVELOPMENT) ## write the format that lint checks, and the blocking client from the asyncio one
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python clients/python/unasync.py

docs: $(DEVELOPMENT) ## build the documentation site with the reference of the client into build/site; broken links fail
	$(BIN)/python tools/site/build.py $(ARGS)

bench: $(DEVELOPMENT) ## run the benchmarks of load/ beside yardsticks measured in the same run; ARGS=--save keeps the result
	$(BIN)/python -m load.run_benchmarks $(ARGS)

load: $(DEVELOPMENT) ## load a temporary broker over HTTP and TCP for LOAD_SECONDS (20), report in load/reports/
	$(BIN)/python -m load.run_locust $(ARGS)

demo: $(DEVELOPMENT) ## replay 336,776 flights over both protocols and read each back through the other
	$(BIN)/python -m load.demo_flights --flights $(DEMO_FLIGHTS) $(ARGS)

demo-restore: $(DEVELOPMENT) ## kill a broker under load, delete its directory, restore it from a bucket and compare
	$(BIN)/python -m load.demo_restore $(ARGS)

cluster: $(DEVELOPMENT) ## start PostgreSQL, an S3 server and three brokers on this machine, until ctrl-c
	@$(if $(findstring --inline,$(ARGS)),:,tests/integration/install_seaweedfs.sh)
	@exec $(BIN)/python -m load.run_cluster $(ARGS)

fuzz: $(DEVELOPMENT) ## search at random, FUZZ_SECONDS (60) each: tests with other seeds, decoders guided by coverage
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS) -- -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder $(ARGS)
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(OWN_VENV)
	@$(BIN)/python -c 'import atheris' 2>/dev/null || \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: atheris || { \
		echo "atheris could not be installed: it has wheels for Linux on x86_64 only."; exit 1; }
	$(BIN)/python -m tests.fuzz.kafka_decoders -max_total_time=$(FUZZ_SECONDS)

faults: $(DEVELOPMENT) ## run faults for ten minutes: ARGS='--minutes 120', or ARGS='--brokers 1 --kills 100'
	$(BIN)/python -m tests.support.faults $(ARGS)

mutants: $(DEVELOPMENT) ## check that the tests fail for each mistake listed in tests/mutants
	$(BIN)/python -m tests.mutants

constraints: | $(BIN)/python ## add what .ci/constraints.txt lacks; ARGS=--upgrade takes the newest version of everything
	@$(OWN_VENV)
	@$(BIN)/python -c 'import uv' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --all-extras --no-annotate \
		--custom-compile-command 'make constraints' --output-file .ci/constraints.txt pyproject.toml $(ARGS)

release: $(DEVELOPMENT) ## build and try VERSION=x.y.z, then commit and tag it; ARGS=--dry-run writes nothing
	$(BIN)/python tools/release.py $(VERSION) $(ARGS)

torture: $(DEVELOPMENT) ## run the unbounded crash, power-cut and fuzz tests (hours)
	@echo "running the torture tests; a failure is saved with its seed in tests/fuzz/cases"
	STELE_TORTURE=1 STELE_CONFORMANCE_CLIENTS=$(CLIENTS) $(BIN)/python -m pytest --seed new -m torture $(ARGS)

clean: ## remove .venv, caches, builds and reports (never ./data)
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache .conformance dist build load/reports

$(BIN)/python:
	@$(OWN_VENV)
	@if [ -z "$(PYTHON)" ]; then \
		echo "Stele needs Python 3.11 or newer; none was found on the PATH."; \
		echo "Install one (for example: apt install python3.11 python3.11-venv), or name it: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; \
		exit 1; fi
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "The virtual environment could not be made. On Debian and Ubuntu: apt install python3-venv"; exit 1; }

$(RUNTIME): pyproject.toml | $(BIN)/python
	@$(OWN_VENV)
	@echo "installing the broker and its client into $(VENV)"
	@$(PINNED) $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(DEVELOPMENT): pyproject.toml | $(BIN)/python
	@$(OWN_VENV)
	@echo "installing the broker, its client and the tools of development into $(VENV): 1.8 GB, most of it Spark; minutes"
	@set -o pipefail; $(PINNED) $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off \
		--editable '.[cdc,cluster,demo,dev,iceberg,load,oauth,otel,pipelines,protobuf,spark]' | \
		sed -unE 's/^((Collecting|Building wheels for|Installing) .{0,80}).*/  \1/p'
	@touch $@ $(RUNTIME)
