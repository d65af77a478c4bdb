# make up          everything on this machine, Ctrl-C ends it
# make test        the default suite        make test-full   all of it
# make lint        what must hold before a commit

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
INSTALLED_DEV := .venv/installed-dev
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes
PIP_COMPILE := .local/lock/bin/pip-compile --quiet --allow-unsafe --strip-extras \
	--generate-hashes --no-emit-index-url --no-emit-find-links --no-emit-trusted-host

# Each of the processes has servers of its own; most of a test's time is waiting.
PARALLEL ?= --numprocesses $(PROCESSES) --dist loadfile
# What failed beside others on a crowded machine is told, and has to pass alone.
ALONE = $(BIN)/python -m pytest --last-failed --last-failed-no-failures none

.PHONY: up down test test-full bench lint system-tools lock clean
.DEFAULT_GOAL := up

# Without a shell in between, so that the run can follow this make and end with it.
up: $(INSTALLED)
	@$(BIN)/python -m deploy.local.up --follow-parent

down: $(INSTALLED)
	@$(BIN)/python -m deploy.local.up --down

test: PROCESSES = 4
test: $(INSTALLED_DEV)
	$(BIN)/python -m pytest $(PARALLEL) -m "not full" || $(ALONE) -m "not full"

test-full: PROCESSES = 3
test-full: $(INSTALLED_DEV)
	$(BIN)/python -m pytest $(PARALLEL) || $(ALONE)

# Numbers for docs/performance.md; on a machine that does nothing else.
bench: $(INSTALLED_DEV)
	$(BIN)/python -m pytest -q --override-ini python_files='bench_*.py' \
		--override-ini python_functions='bench_*' tests/bench

lint: $(INSTALLED_DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	EXTRA_APPS=tests.lab.scripted $(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m deploy.local.django_checks

# What some tests want from the system: RabbitMQ, Redis, pgbouncer, another PostgreSQL.
system-tools:
	@.ci/system-tools

# Resolve requirements*.in anew. UPGRADE=1 takes the newest versions.
lock:
	$(PYTHON) -m venv .local/lock
	.local/lock/bin/python -m pip install --quiet --upgrade pip-tools
	for name in requirements requirements-local requirements-dev; do \
		$(PIP_COMPILE) $(if $(UPGRADE),--upgrade) --output-file=$$name.txt $$name.in || exit 1; \
	done

# Back to a fresh clone: the environment, all local data, the caches.
clean:
	@test ! -x $(BIN)/python || $(BIN)/python -m deploy.local.clean
	rm -rf .venv .local .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): requirements.txt requirements-local.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or later is needed: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "installing into .venv, about a minute ..."
	$(PYTHON) -m venv .venv
	$(PIP_INSTALL) -r requirements.txt -r requirements-local.txt
	@touch $@

$(INSTALLED_DEV): $(INSTALLED) requirements-dev.txt
	$(PIP_INSTALL) -r requirements.txt -r requirements-local.txt -r requirements-dev.txt
	@touch $@
