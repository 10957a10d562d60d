# `make help` lists the targets. PYTHON picks the interpreter that makes .venv (3.11 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
UV_VERSION := $(shell sed -n '/^name = "uv"$$/{n;s/^version = "\(.*\)"$$/\1/p;}' uv.lock)
APPS := .venv-apps
APPS_STAMP := $(APPS)/.stamp
DOCS := .cache/docs
DOCS_STAMP := $(DOCS)/.stamp

# Every process compiles anew all that it imports where this is set, as in images: `ragmeter run --help`
# takes 2.2 s of a processor instead of 0.7 s, and the tests start hundreds. pytest rewrites the tests
# anew, too: to collect them takes each worker 29 s instead of 10 s.
unexport PYTHONDONTWRITEBYTECODE

# Behind a proxy with a certificate authority of its own: pip reads other variables than uv does, and
# so do Go and what is built on requests. One of them is enough.
CA_BUNDLE := $(firstword $(SSL_CERT_FILE) $(REQUESTS_CA_BUNDLE) $(PIP_CERT) $(CURL_CA_BUNDLE))
ifneq ($(CA_BUNDLE),)
export SSL_CERT_FILE := $(or $(SSL_CERT_FILE),$(CA_BUNDLE))
export REQUESTS_CA_BUNDLE := $(or $(REQUESTS_CA_BUNDLE),$(CA_BUNDLE))
endif

# Each worker begins with a run of neighbours, so that what a file sets up is made once, not by all.
# Tests wait for processes, disks and timers: one worker more than there are cores.
WORKERS = $$(($$(getconf _NPROCESSORS_ONLN) + 1))

.DEFAULT_GOAL := help
.PHONY: help setup setup-apps lock run docs test test-slow acceptance kafka kafka-up deploy-tools audit secrets sbom chaos chaos-kafka lint format bench figures clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP)  ## make .venv with the locked dependencies and the `ragmeter` command

$(STAMP): pyproject.toml uv.lock hatch_build.py agent/ragmeter/metrics/kernel.pyx $(wildcard agent/ragmeter/metrics/native/*.hpp)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ragmeter needs Python 3.11 or newer: make setup PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	UV_PROJECT_ENVIRONMENT=$(VENV) $(BIN)/uv sync --quiet --locked --all-extras --no-install-project
	[ -z "$$($(BIN)/python hatch_build.py)" ] || UV_PROJECT_ENVIRONMENT=$(VENV) $(BIN)/uv sync --quiet --locked --inexact --only-group compiler
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

setup-apps: $(APPS_STAMP)  ## make .venv-apps with the frameworks that the slow tests run

# The stamp is a copy of the lock, so that the tests know a half-made or an old environment.
$(APPS_STAMP): uv.lock | $(STAMP)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(APPS)
	UV_PROJECT_ENVIRONMENT=$(APPS) $(BIN)/uv sync --quiet --locked --only-group apps
	@cp uv.lock $@

$(DOCS_STAMP): uv.lock | $(STAMP)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(DOCS)
	UV_PROJECT_ENVIRONMENT=$(DOCS) $(BIN)/uv sync --quiet --locked --only-group docs
	@cp uv.lock $@

lock: setup  ## write uv.lock anew, with the newest versions
	$(BIN)/uv lock --upgrade

run: setup  ## replay a day of a service with an incident, and serve the page
	$(BIN)/python -m examples.demo

docs: $(DOCS_STAMP)  ## build the documentation site into dist/docs; dead links and anchors fail
	rm -rf dist/docs
	$(DOCS)/bin/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env \
		--doctree-dir $(DOCS)/doctrees docs dist/docs

test: setup  ## the fast tests, which need Python alone
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "not (slow or real)"

# Not all of tests/: two workers would import what has no test for them. By file, so that what a file
# sets up is made once; those that take longest are the first.
FIRST = $(addprefix tests/,parts/test_removal.py chaos/kafka/test_chaos.py kafka/test_worker_faults.py \
	embedded/test_crash.py deploy/test_alertmanager.py apps/test_real_agents.py kafka/test_worker.py)
SLOW = $(FIRST) $(filter-out $(FIRST),$(shell grep -rlE --include='test_*.py' 'mark\.(slow|real)' tests | sort -r))

test-slow: setup  ## the longer suites: crash tests, flat memory, real outside parts
	-@$(MAKE) --no-print-directory setup-apps  # without it those tests are skipped, in CI they fail
	-@$(BIN)/python -m tests.deploy.tools --downloads >/dev/null
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "(slow or real) and not long" $(SLOW)

acceptance: setup  ## at length what test-slow tries in small: before a release, and for what it is about
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m long $$(grep -rl --include='test_*.py' 'mark\.long' tests)

kafka: setup  ## fetch Apache Kafka for the tests, by Maven into .cache
	$(BIN)/python -m tests.kafka_server

kafka-up: setup  ## a broker at 127.0.0.1:9092 until Ctrl-C, which deletes its data
	$(BIN)/python -m tests.kafka_server --serve

deploy-tools: setup  ## fetch what checks chart, dashboard and image: Helm, schemas, linters
	$(BIN)/python -m tests.deploy.tools

audit: setup  ## known vulnerabilities of all locked versions; OFFLINE=1 looks at the lock alone
	$(BIN)/python -m deploy.supply.audit $(if $(OFFLINE),--offline)

secrets: setup  ## secrets in the files and in the whole history, by gitleaks
	$(BIN)/python -m deploy.supply.leaks

sbom: setup  ## the bill of materials of the images, in CycloneDX, into dist/
	$(BIN)/python -m deploy.supply.sbom

chaos: setup  ## the agent under kills, a bad judge, a full disk, clock jumps and overload, compared with the truth
	$(BIN)/python -m tests.chaos --home embedded --seed $(or $(SEED),1) --seconds $(or $(SECONDS),600)

chaos-kafka: setup  ## 100,000 traces under kills and broker restarts, compared with the truth
	$(BIN)/python -m tests.chaos --home kafka --seed $(or $(SEED),1)

lint: setup  ## formatter, linter and strict type check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: setup  ## format the code and apply the linter's safe mends
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup  ## speed, as ratios within one run
	$(BIN)/python -m benchmarks.agent
	$(BIN)/python -m benchmarks.throughput --profile
	$(BIN)/python -m benchmarks.windows
	$(BIN)/python -m benchmarks.scrape
	$(BIN)/python -m benchmarks.tiers
	$(BIN)/python -m benchmarks.peers
	$(BIN)/python -m benchmarks.judge
	$(BIN)/python -m benchmarks.budget --seeds 2
	$(BIN)/python -m benchmarks.probes
	$(BIN)/python -m benchmarks.otlp
	$(BIN)/python -m benchmarks.beside --rounds 4
	$(BIN)/python -m benchmarks.kafka_workers

figures: setup  ## the statistics of the docs, simulated anew: hours
	$(BIN)/python -m benchmarks.acceptance --set heldout --process 36 --write docs/statistics.md
	$(BIN)/python -m benchmarks.sampling
	$(BIN)/python -m benchmarks.drift
	$(BIN)/python -m benchmarks.drift_errors
	$(BIN)/python -m benchmarks.segments

clean:  ## remove what setup and runs have made
	rm -rf $(VENV) $(APPS) .cache .ragmeter .mypy_cache .pytest_cache .ruff_cache .hypothesis
