# `make` alone says what there is. Everything stays in .venv and .leaseway of this checkout.
.DEFAULT_GOAL := help
PYTEST = .venv/bin/pytest
# Two workers, in the order of the files: what takes longest comes first.
PARALLEL = -n 2 --dist loadscope --no-loadscope-reorder
# Where this branch left main; on main itself nothing has changed since.
BASE ?= $(shell git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main 2>/dev/null)
# The parts of the proof, by the names of their files.
PARTS = $(patsubst tests/proof/test_%.py,%,$(sort $(wildcard tests/proof/test_*.py)))
# Plugins that look at each test and that no unit test uses: a tenth of their time.
UNUSED = -p no:hypothesispytest -p no:anyio
# Compiled files kept from run to run save a third of the unit tests' time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help env demo demo-crash up down test unit integration e2e e2e-long prove chaos prove-long bench lint format clean

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' Makefile | expand -t 14

env: ## the virtual environments, from pinned requirements; does nothing when nothing changed
	@sh localstack/bootstrap.sh

demo: env ## from nothing to a published dataset, and where to look
	@.venv/bin/leaseway demo

demo-crash: env ## the same, with a worker that is killed in the middle, twice
	@.venv/bin/leaseway demo --crash

up: env ## start the local stack with everything it keeps
	@.venv/bin/leaseway up

down: env ## stop the local stack; `make up` brings everything back
	@.venv/bin/leaseway down

test: env ## all tests, on a stack of their own: a running demo isn't touched
	@$(PYTEST) $(PARALLEL)

unit: env ## the tests that need no stack, in seconds
	@$(PYTEST) $(UNUSED) tests/unit

integration: env ## the tests on PostgreSQL, Oxigraph and LocalStack, each alone
	@$(PYTEST) $(PARALLEL) tests/localstack tests/integration

e2e: env ## the tests on the whole stack
	@$(PYTEST) tests/e2e

e2e-long: env ## 3,000,000 records in functions of 20 seconds, two of them killed: minutes of an otherwise idle machine
	@$(PYTEST) -m long tests/e2e

prove: env ## proof that no job hangs and no two owners commit, in minutes; mutants of the SQL changed since main, or since BASE
	@$(PYTEST) $(PARALLEL) tests/proof
	@if [ -n "$(BASE)" ]; then .venv/bin/python -m tests.proof.mutate --since "$(BASE)"; \
	else echo "There is no branch main here: no mutants of what has changed since. Name a commit: make prove BASE=..."; fi

chaos: env ## the whole stack with everything failing, told; then five broken products that this must catch; CHAOS_SEED
	@$(PYTEST) -s -m "long or not long" tests/proof/test_chaos.py

prove-long: env ## the same at length, and every mutant of the SQL: hours, by hand; ONLY=stateful|interleavings|…: one part
	@$(if $(filter-out $(PARTS),$(ONLY)),$(error ONLY is one of: $(PARTS); mutants alone: .venv/bin/python -m tests.proof.mutate))
	@PROVE=long $(PYTEST) $(PARALLEL) -m "long or not long" tests/proof$(if $(ONLY),/test_$(ONLY).py)
	@[ -n "$(ONLY)" ] || $(PYTEST) $(PARALLEL) tests/integration
	@[ -n "$(ONLY)" ] || .venv/bin/python -m tests.proof.mutate

bench: env ## the figures of docs/benchmarks.md; ONLY=exports|engine|cold|scale: one part of them
	@sh localstack/bootstrap.sh bench
	@PYTHONPATH=localstack/plugins/process_executor .venv/bin/python -m tests.bench

lint: env ## style and docstrings, types, import contracts
	@.venv/bin/ruff check --quiet .
	@.venv/bin/ruff format --quiet --check .
	@.venv/bin/mypy
	@for plugin in process_executor durable_s3; do \
	  (cd localstack/plugins/$$plugin && ../../../.venv/bin/mypy --config-file ../mypy.ini \
	    --python-executable ../../../.leaseway/localstack-env/bin/python .) || exit 1; \
	done
	@.venv/bin/lint-imports

format: env ## lay the code out as `make lint` wants it
	@.venv/bin/ruff format --quiet .
	@.venv/bin/ruff check --quiet --fix .

clean: ## stop everything and remove it: environments, the stack AND ALL ITS DATA
	@if [ -x .venv/bin/python ]; then .venv/bin/python -m localstack.remove; fi
	@echo "… removing the environments and all data" >&2
	@rm -rf .venv .leaseway .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .coverage
