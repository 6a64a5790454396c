# The targets of this project. `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all check bench chaos constraints clean distclean
.SUFFIXES:
SHELL := /bin/sh

VENV := .venv/bin
# Folders that mypy reads. function_app.py at the root is left out: the package of the same name is the module.
PACKAGES := $(patsubst %/,%,$(wildcard shared/ shard_validation/ horovod_lint/ training_job/ function_app/ cli/ local_azure/ bench/ tools/ tests/))

# For two cores: a third worker computes while the others wait. tests/conftest.py says which tests stay together.
WORKERS := --numprocesses 3

# A developer's sandbox or container may set this; the Functions worker would believe that it runs in Azure.
unexport CONTAINER_NAME
# The tests start hundreds of Python processes, each of which would compile the whole project again.
unexport PYTHONDONTWRITEBYTECODE

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

setup: ## prepare .venv, .venv-training and node_modules (the other targets do it themselves)
	@python=$$(sh tools/find_machine.sh) && "$$python" -m tools.setup

demo: setup ## start the local twin, upload a data set and follow it to a registered model [ARGS=...]
	@$(VENV)/python -m cli demo $(ARGS)

test: setup ## run the gate: the tests that every change must pass, in 10 to 22 minutes [ARGS="tests/unit -x"]
	@$(VENV)/python -m pytest $(WORKERS) -m "not slow" $(ARGS)

test-all: setup ## run every test, in 45 to 75 minutes: all crash points, storms, example data sets and seeds [ARGS=...]
	@$(VENV)/python -m pytest $(WORKERS) $(ARGS)

check: setup ## lint, formatting, types, import rules, sizes, names and words, secrets and vulnerabilities
	$(VENV)/python -m ruff check .
	$(VENV)/python -m ruff format --check .
	$(VENV)/python -m mypy $(PACKAGES)
	$(VENV)/lint-imports
	$(VENV)/python -m tools.check_tree
	$(VENV)/python -m tools.security

bench: setup ## run benchmarks and check their promises [ONLY=name]
	@$(VENV)/python -m bench $(ONLY)

chaos: setup ## disturb events, calls, jobs, processes and data of a twin and check every promise [VERSIONS=50 SHARDS=20 CHANGED=0.5 SEED=1]
	@$(VENV)/python -m tests.chaos $(if $(VERSIONS),--versions $(VERSIONS)) $(if $(SHARDS),--shards $(SHARDS)) \
		$(if $(CHANGED),--changed $(CHANGED)) $(if $(SEED),--seed $(SEED))

constraints: setup ## write all installed versions into both constraints.txt
	@$(VENV)/python -m tools.setup constraints

clean: ## remove caches and the local twin's state
	@rm -rf .landfall .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage build dist
	@find . -name __pycache__ -not -path './.venv*' -not -path './node_modules/*' -prune -exec rm -rf {} +

distclean: clean ## remove the three environments too
	@rm -rf .venv .venv-training node_modules
